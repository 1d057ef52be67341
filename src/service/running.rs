//! A RUNNING task of this process, and the places of one worker, which bound how many there are. A place that is lent to the retry
//! comes back by itself, however that ends.

use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, never, select, unbounded};

use super::in_flight::Job;
use super::shared::Shared;
use crate::log;
use crate::store::{Claimed, Finish};

/// A task that was claimed, and is to be analysed.
#[derive(Debug)]
pub struct Running {
    pub job: Job,
    pub claimed: Claimed,
    /// When the claim was sent, by our own clock.
    pub since: Instant,
}

impl Running {
    /// The task is RUNNING on our account, by a claim that was sent at `since`.
    pub(super) fn new(shared: &Shared, job: Job, claimed: Claimed, since: Instant) -> Running {
        job.running(shared.leased.then_some((claimed.epoch, since)));
        Running { job, claimed, since }
    }
}

/// A task whose analysis has ended, and whose row has not.
#[derive(Debug)]
pub struct Ended {
    pub job: Job,
    pub since: Instant,
    pub finish: Finish,
}

impl Ended {
    /// The row is terminal by our write, or else another owner's.
    pub(super) fn close(self, shared: &Shared, by_us: bool) {
        let Finish { id, epoch, .. } = &self.finish;
        if !by_us {
            log::line(format_args!("{id}: lease lost: epoch {epoch} is not ours any more"));
        }
        shared.eta.finished(self.since.elapsed());
        self.job.ended();
    }
}

/// The places of one worker: so many of its tasks may be RUNNING.
#[derive(Debug)]
pub struct Places {
    total: usize,
    lent: usize,
    back: Sender<Back>,
    returned: Receiver<Back>,
}

/// A place that is lent; dropping it gives it back.
#[derive(Debug)]
pub struct Place(Option<Sender<Back>>);

/// What comes back with a place.
#[derive(Debug)]
enum Back {
    Nothing,
    Running(Running),
}

/// What a worker does next.
#[derive(Debug)]
pub enum Next {
    /// Claim this job: there is a place for it.
    Claim(Job),
    /// Analyse this task, which has its place already.
    Analyse(Running),
}

impl Places {
    /// `total` places, all free.
    pub fn new(total: usize) -> Places {
        let (back, returned) = unbounded();
        Places { total, lent: 0, back, returned }
    }

    /// How many are not lent.
    pub fn free(&self) -> usize {
        self.total - self.lent
    }

    /// Lends a place until it is dropped.
    pub fn lend(&mut self) -> Place {
        self.lent += 1;
        Place(Some(self.back.clone()))
    }

    /// Waits for a job, as long as there is a place for it, and for what comes back. None: `jobs` has ended and every place is back.
    pub fn next(&mut self, jobs: &Receiver<Job>) -> Option<Next> {
        let (full, mut open) = (never(), true);
        while open || self.lent > 0 {
            let jobs = if open && self.free() > 0 { jobs } else { &full };
            select! {
                recv(self.returned) -> back => {
                    self.lent -= 1;
                    if let Ok(Back::Running(running)) = back {
                        return Some(Next::Analyse(running));
                    }
                }
                recv(jobs) -> job => match job {
                    Ok(job) => return Some(Next::Claim(job)),
                    Err(_) => open = false,
                },
            }
        }
        None
    }
}

impl Place {
    /// Gives the place back with a task that turned out to be RUNNING on our account: it is to be analysed.
    pub fn give_back_with(mut self, running: Running) {
        if let Some(back) = self.0.take() {
            // A worker that has died is reported elsewhere.
            let _ = back.send(Back::Running(running));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(back) = self.0.take() {
            let _ = back.send(Back::Nothing);
        }
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;
    use crate::semaphore::Semaphore;
    use crate::service::in_flight::InFlight;
    use crate::task::TaskId;

    fn job(number: i64) -> Job {
        let permits = Semaphore::new(1);
        let permit = permits.try_acquire(1).expect("a permit");
        InFlight::new(permits).take(&TaskId::from_number(number), permit).expect("not in flight")
    }

    #[test]
    fn a_job_waits_until_there_is_a_place_for_it() {
        let (send, jobs) = bounded(2);
        let mut places = Places::new(1);
        send.send(job(0)).expect("room");
        assert!(matches!(places.next(&jobs), Some(Next::Claim(_))));
        let place = places.lend();
        send.send(job(1)).expect("room");
        let running =
            Running { job: job(0), claimed: Claimed { text: String::new(), epoch: 1 }, since: Instant::now() };
        place.give_back_with(running);
        assert!(matches!(places.next(&jobs), Some(Next::Analyse(_))), "what has its place already comes first");
        assert!(matches!(places.next(&jobs), Some(Next::Claim(_))));
    }

    #[test]
    fn a_worker_leaves_when_every_place_is_back() {
        let (send, jobs) = bounded(1);
        let mut places = Places::new(2);
        let place = places.lend();
        drop(send);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| places.next(&jobs).is_none());
            drop(place);
            assert!(worker.join().expect("no panic"));
        });
    }
}
