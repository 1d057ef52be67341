//! The end of the service, as everybody in it sees it: running, draining (finish what is in hand), expired (let go).

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::lock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    Draining,
    Expired,
}

/// Shared by all threads of a service; only ever moves forward.
#[derive(Debug)]
pub struct Drain {
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl Drain {
    /// Running.
    pub fn new() -> Drain {
        Drain { phase: Mutex::new(Phase::Running), changed: Condvar::new() }
    }

    /// From now on nothing new is taken on.
    pub fn begin(&self) {
        self.advance(Phase::Draining);
    }

    /// From now on nothing is begun or retried.
    pub fn expire(&self) {
        self.advance(Phase::Expired);
    }

    /// Whether the end has begun.
    pub fn begun(&self) -> bool {
        *lock(&self.phase) >= Phase::Draining
    }

    /// Whether the time for it is over.
    pub fn expired(&self) -> bool {
        *lock(&self.phase) == Phase::Expired
    }

    /// Pauses for `pause`, or until the next phase begins.
    pub fn pause(&self, pause: Duration) {
        let deadline = Instant::now() + pause;
        let mut phase = lock(&self.phase);
        let at_first = *phase;
        while *phase == at_first {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            phase = self.changed.wait_timeout(phase, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    fn advance(&self, next: Phase) {
        let mut phase = lock(&self.phase);
        *phase = next.max(*phase);
        self.changed.notify_all();
    }
}

impl Default for Drain {
    fn default() -> Self {
        Drain::new()
    }
}
