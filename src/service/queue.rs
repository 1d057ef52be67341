//! The queue: the bounded channel from admission to the workers, with room for every permit. A task that has a permit never
//! waits to get in: tasks that were cancelled in the queue make room when it is needed.

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::Mutex;

use super::in_flight::Job;

/// The sending end, and the receiving end that workers clone.
#[derive(Debug)]
pub struct Queue {
    sender: Mutex<Option<Sender<Job>>>,
    receiver: Receiver<Job>,
}

impl Queue {
    /// A queue for `capacity` jobs.
    pub fn new(capacity: usize) -> Queue {
        let (sender, receiver) = bounded(capacity);
        Queue { sender: Mutex::new(Some(sender)), receiver }
    }

    /// The workers' end. It ends when the queue is closed and empty.
    pub fn receiver(&self) -> Receiver<Job> {
        self.receiver.clone()
    }

    /// Queues a job. A closed queue drops it: its row stays QUEUED. So does a queue that is full, which a cancel that failed
    /// makes possible; the poller finds the row again.
    pub fn send(&self, job: Job) {
        let sender = self.sender.lock();
        let Some(sender) = &*sender else { return };
        if let Err(TrySendError::Full(job)) = sender.try_send(job) {
            let waiting: Vec<Job> = self.receiver.try_iter().filter(|job| !job.is_cancelled()).collect();
            for job in waiting.into_iter().chain([job]) {
                let _ = sender.try_send(job);
            }
        }
    }

    /// Takes nothing more in; what is in it can still be received.
    pub fn close(&self) {
        *self.sender.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semaphore::Semaphore;
    use crate::service::in_flight::InFlight;
    use crate::task::TaskId;

    #[test]
    fn cancelled_tasks_make_room_and_the_others_keep_their_order() {
        let (permits, queue) = (Semaphore::new(3), Queue::new(3));
        let in_flight = InFlight::new(permits.clone());
        let send = |number| {
            let permit = permits.try_acquire(1).expect("a permit");
            queue.send(in_flight.take(&TaskId::from_number(number), permit).expect("not in flight"));
        };
        (0..3).for_each(send);
        in_flight.cancelled(&TaskId::from_number(0));
        in_flight.cancelled(&TaskId::from_number(2));
        (3..5).for_each(send);
        assert_eq!(permits.taken(), 3);
        queue.close();
        let order: Vec<_> = queue.receiver().iter().filter(Job::begin).map(|job| job.id().number()).collect();
        assert_eq!(order, [Some(1), Some(3), Some(4)]);
        assert_eq!(permits.taken(), 0);
    }

    #[test]
    fn what_comes_after_the_close_is_dropped() {
        let (permits, queue) = (Semaphore::new(1), Queue::new(1));
        let in_flight = InFlight::new(permits.clone());
        queue.close();
        let id = TaskId::from_number(0);
        queue.send(in_flight.take(&id, permits.try_acquire(1).expect("a permit")).expect("not in flight"));
        assert!(queue.receiver().recv().is_err());
        assert!(!in_flight.has(&id) && permits.taken() == 0);
    }
}
