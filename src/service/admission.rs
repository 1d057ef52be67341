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

    /// A permit for a submission, or none: refuse it. Waits [`PERMIT_GRACE`] at most, and only while a task is finishing:
    /// a client that saw that task end may rely on its place being free.
    pub fn admit(self: &Arc<Self>) -> Option<Permit> {
        self.take(PERMIT_GRACE, |state| state.free == 0 && state.finishing > 0)
    }

    /// A permit for a task that is in the database already; waits for one up to `bound`.
    pub fn wait(self: &Arc<Self>, bound: Duration) -> Option<Permit> {
        self.take(bound, |state| state.free == 0)
    }

    fn take(self: &Arc<Self>, bound: Duration, worth_waiting: impl Fn(&State) -> bool) -> Option<Permit> {
        let deadline = Instant::now() + bound;
        let mut state = lock(&self.state);
        while worth_waiting(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.freed.wait_timeout(state, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        state.free = state.free.checked_sub(1)?;
        Some(Permit(self.clone()))
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
        self.0.freed.notify_one();
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
    fn a_submission_waits_for_the_permit_of_a_task_that_is_finishing() {
        let admission = Admission::new(1);
        let permit = admission.admit().expect("permit");
        let finishing = admission.finishing();
        let waiter = std::thread::spawn({
            let admission = admission.clone();
            move || admission.wait(Duration::from_secs(60)).is_some()
        });
        drop(permit);
        drop(finishing);
        assert!(waiter.join().expect("no panic"));
    }
}
