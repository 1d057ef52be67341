use super::*;

fn ground() -> (Arc<Semaphore>, Arc<InFlight>, TaskId) {
    let permits = Semaphore::new(2);
    (permits.clone(), InFlight::new(permits), TaskId::from_number(7))
}

fn take(permits: &Arc<Semaphore>, in_flight: &Arc<InFlight>, id: &TaskId) -> Option<Job> {
    in_flight.take(id, permits.try_acquire(1).expect("a permit"))
}

#[test]
fn a_task_has_one_job_at_a_time() {
    let (permits, in_flight, id) = ground();
    let job = take(&permits, &in_flight, &id).expect("free");
    assert!(take(&permits, &in_flight, &id).is_none());
    in_flight.stop(&id);
    assert!(job.stop().requested());
    drop(job);
    assert_eq!(permits.taken(), 0);
    assert!(!take(&permits, &in_flight, &id).expect("free again").stop().requested());
}

#[test]
fn a_cancel_frees_the_place_of_a_queued_task() {
    let (permits, in_flight, id) = ground();
    let job = take(&permits, &in_flight, &id).expect("free");
    in_flight.cancelling(&id);
    assert_eq!(permits.taken(), 0, "before its end can be seen");
    in_flight.cancelled(&id);
    assert!(job.is_cancelled() && !job.begin(), "there is nothing to do");
    in_flight.not_cancelled(&id);
    assert_eq!(permits.taken(), 0, "a second cancel came too late");
}

#[test]
fn a_cancel_that_failed_or_lost_to_a_worker_takes_the_place_again() {
    let (permits, in_flight, id) = ground();
    let job = take(&permits, &in_flight, &id).expect("free");
    in_flight.cancelling(&id);
    let other = permits.try_acquire(2).expect("another submission was quicker");
    assert!(job.begin(), "the claim decides");
    in_flight.not_cancelled(&id);
    assert_eq!(permits.taken(), 3);
    in_flight.cancelling(&id);
    in_flight.cancelled(&id);
    assert_eq!(permits.taken(), 3, "a worker has it");
    drop((job, other));
    assert_eq!(permits.taken(), 0);
}

#[test]
fn a_task_has_no_place_while_it_may_have_ended() {
    let (permits, in_flight, id) = ground();
    let job = take(&permits, &in_flight, &id).expect("free");
    assert!(job.begin());
    job.running(None);
    job.ending();
    in_flight.not_cancelled(&id);
    assert_eq!((permits.taken(), in_flight.running()), (0, 1));
    job.not_ended();
    assert_eq!((permits.taken(), in_flight.running()), (1, 1));
    job.ended();
    assert_eq!((permits.taken(), in_flight.running()), (0, 0));
}

#[test]
fn a_lease_is_lost_for_its_own_epoch_only() {
    let (permits, in_flight, id) = ground();
    let job = take(&permits, &in_flight, &id).expect("free");
    let (old, ours) = (LeasedTask { id: id.clone(), epoch: 1 }, LeasedTask { id, epoch: 2 });
    assert!(!in_flight.lose(&ours) && in_flight.leases().is_empty());
    let requested = Instant::now();
    job.running(Some((2, requested)));
    assert_eq!(in_flight.leases(), [(ours.clone(), requested)]);
    assert!(!in_flight.lose(&old) && !job.is_lost());
    assert!(in_flight.lose(&ours) && job.is_lost() && job.stop().requested());
    assert!(in_flight.leases().is_empty(), "nothing to renew any more");
}
