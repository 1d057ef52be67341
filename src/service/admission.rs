//! Admission: how many tasks the process takes on at once. Permits = workers + queue slots; a submission without a permit
//! is refused before anything is written. A channel alone cannot say "one running, one queued, third refused": whether the
//! worker has taken job one yet would decide.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::limits::PERMIT_GRACE;
use crate::lock;

/// The permits of one process.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
    freed: Condvar,
    total: usize,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Finishing UPDATEs and cancels under way: their tasks may be seen terminal while their permits are still on the way back.
    finishing: usize,
}

/// The right to have one task in hand; dropping it gives it back.
#[derive(Debug)]
pub struct Permit(Arc<Admission>);

/// Marks a finishing UPDATE or a cancel that is under way, until dropped. Drop the task's permit first.
#[derive(Debug)]
pub struct Finishing(Arc<Admission>);

impl State {
    /// Whether it is worth a moment's wait: a client that saw a task end may rely on its place being free.
    fn is_finishing(&self) -> bool {
        self.finishing > 0
    }
}

impl Admission {
    /// `total` permits, all free.
    pub fn new(total: usize) -> Arc<Admission> {
        let state = Mutex::new(State { free: total, finishing: 0 });
        Arc::new(Admission { state, freed: Condvar::new(), total })
    }

    /// How many permits there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// How many are taken: tasks queued or running in this process.
    pub fn taken(&self) -> usize {
        self.total - lock(&self.state).free
    }

    /// A permit for a submission, or none: refuse it. Waits [`PERMIT_GRACE`] at most, and only while a task is finishing.
    pub fn admit(self: &Arc<Self>) -> Option<Permit> {
        self.take(1, PERMIT_GRACE, State::is_finishing).then(|| Permit(self.clone()))
    }

    /// The same for `count` submissions together: all of their permits, or none.
    pub fn admit_all(self: &Arc<Self>, count: usize) -> Option<Vec<Permit>> {
        let taken = self.take(count, PERMIT_GRACE, State::is_finishing);
        taken.then(|| (0..count).map(|_| Permit(self.clone())).collect())
    }

    /// A permit for a task that is in the database already; waits for one up to `bound`.
    pub fn wait(self: &Arc<Self>, bound: Duration) -> Option<Permit> {
        self.take(1, bound, |_| true).then(|| Permit(self.clone()))
    }

    /// Takes `count` from those free; whoever is told true makes as many permits of them.
    fn take(&self, count: usize, bound: Duration, worth_waiting: impl Fn(&State) -> bool) -> bool {
        let deadline = Instant::now() + bound;
        let mut state = lock(&self.state);
        while state.free < count && worth_waiting(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.freed.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        let left = state.free.checked_sub(count);
        state.free = left.unwrap_or(state.free);
        left.is_some()
    }

    /// Says that an UPDATE that may end a task is about to be sent.
    pub fn finishing(self: &Arc<Self>) -> Finishing {
        lock(&self.state).finishing += 1;
        Finishing(self.clone())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.0.state).free += 1;
        // All: the one who would be woken may wait for more than this.
        self.0.freed.notify_all();
    }
}

impl Drop for Finishing {
    fn drop(&mut self) {
        lock(&self.0.state).finishing -= 1;
        // Those who waited for this one's permit should look again, whether they got it or not.
        self.0.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn permits_run_out_and_come_back() {
        let admission = Admission::new(2);
        let first = admission.admit().expect("first");
        let _second = admission.admit().expect("second");
        assert!(admission.admit().is_none());
        assert_eq!(admission.taken(), 2);
        drop(first);
        assert!(admission.admit().is_some());
    }

    #[test]
    fn a_batch_gets_all_of_its_permits_or_none() {
        let admission = Admission::new(3);
        let one = admission.admit().expect("one");
        assert!(admission.admit_all(3).is_none());
        assert_eq!(admission.taken(), 1, "nothing of them was kept");
        drop(one);
        let all = admission.admit_all(3).expect("all");
        assert_eq!((all.len(), admission.taken()), (3, 3));
        drop(all);
        assert_eq!(admission.taken(), 0);
        assert!(admission.admit_all(4).is_none());
    }

    /// A submission that has seen there is no permit, and then the test does `then`: whether it gets one.
    fn submit_and(admission: &Arc<Admission>, then: impl FnOnce()) -> bool {
        let (looks, look) = mpsc::channel();
        thread::scope(|scope| {
            let submission = scope.spawn(|| {
                admission.take(1, Duration::from_secs(60), |state| {
                    looks.send(()).expect("the test listens");
                    state.is_finishing()
                })
            });
            look.recv().expect("it looks");
            then();
            submission.join().expect("no panic")
        })
    }

    #[test]
    fn a_submission_waits_for_the_permit_of_a_task_that_is_finishing() {
        let admission = Admission::new(1);
        let permit = admission.admit().expect("permit");
        let finishing = admission.finishing();
        assert!(submit_and(&admission, || drop(permit)), "and keeps it");
        assert!(!submit_and(&admission, || drop(finishing)), "the place went to nobody");
        assert!(!submit_and(&admission, || ()), "nothing to wait for");
    }
}
