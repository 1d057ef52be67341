//! The queue: jobs on their way to the workers, first in, first out. A channel would do, but for one thing: a task that is
//! cancelled here must leave at once and take its permit along, or a full queue would stay full of what nobody wants.
//!
//! Bounded without a bound of its own: each job holds a permit, and there are only so many.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use super::worker::Job;
use crate::lock;
use crate::task::TaskId;

/// Shared by those who bring jobs and those who take them.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    brought: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Queue {
    /// Brings a job. Let go of instead, with its permit, when the queue is closed (its row stays QUEUED for the next start)
    /// or when its task was cancelled on the way here.
    pub fn push(&self, job: Job) {
        let mut state = lock(&self.state);
        if !state.closed && !job.hold.stop().requested() {
            state.jobs.push_back(job);
            self.brought.notify_one();
        }
    }

    /// The next job; waits for one. None: the queue is closed and empty.
    pub fn take(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.brought.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes a cancelled task out. One that a worker has begun is not here any more: its end is the worker's.
    pub fn remove(&self, id: &TaskId) {
        let mut state = lock(&self.state);
        let at = state.jobs.iter().position(|job| job.hold.id() == id);
        drop(at.and_then(|at| state.jobs.remove(at)));
    }

    /// Takes nothing more in; what is in it can still be taken.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.brought.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::service::admission::Admission;
    use crate::service::held::Held;

    /// A queue's surroundings: three permits.
    struct Ground {
        admission: Arc<Admission>,
        held: Arc<Held>,
        queue: Queue,
    }

    impl Ground {
        fn new() -> Ground {
            Ground { admission: Admission::new(3), held: Arc::default(), queue: Queue::default() }
        }

        fn job(&self, number: i64) -> Job {
            let hold = self.held.take(&TaskId::from_number(number)).expect("nobody has it");
            Job { permit: self.admission.admit().expect("a permit"), hold }
        }
    }

    #[test]
    fn jobs_come_out_in_their_order_without_those_cancelled() {
        let ground = Ground::new();
        (0..3).for_each(|number| ground.queue.push(ground.job(number)));
        assert!(ground.admission.admit().is_none());
        let cancelled = TaskId::from_number(1);
        ground.queue.remove(&cancelled);
        assert_eq!(ground.admission.taken(), 2, "its permit is free");
        assert!(ground.held.take(&cancelled).is_some(), "nobody has it in hand");
        ground.queue.remove(&cancelled);
        ground.queue.close();
        let order: Vec<TaskId> = std::iter::from_fn(|| ground.queue.take()).map(|job| job.hold.id().clone()).collect();
        assert_eq!(order, [TaskId::from_number(0), TaskId::from_number(2)]);
        assert_eq!(ground.admission.taken(), 0);
    }

    #[test]
    fn what_is_cancelled_or_late_on_its_way_is_let_go() {
        let ground = Ground::new();
        let job = ground.job(0);
        ground.held.stop(job.hold.id());
        ground.queue.push(job);
        ground.queue.close();
        ground.queue.push(ground.job(1));
        assert!(ground.queue.take().is_none());
        assert_eq!(ground.admission.taken(), 0);
    }
}
