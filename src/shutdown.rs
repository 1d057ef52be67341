//! The shutdown of the whole program, in phases that only move forward. Edge, http and service look at one object; each pause
//! of theirs ends when the next phase begins. Decides nothing: `cli::serve` moves it on.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How far the shutdown has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Running,
    /// Requests and tasks in flight are finished; nothing new is begun.
    Draining,
    /// No client is waited for any more; tasks still are.
    ConnectionsCut,
    /// No task is waited for any more either.
    Expired,
}

/// Shared by all threads of a process.
#[derive(Debug, Default)]
pub struct Shutdown {
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl Shutdown {
    /// From now on nothing new is begun.
    pub fn begin(&self) {
        self.advance(Phase::Draining);
    }

    /// From now on no client is waited for.
    pub fn cut_connections(&self) {
        self.advance(Phase::ConnectionsCut);
    }

    /// From now on no task is begun, retried or waited for.
    pub fn expire(&self) {
        self.advance(Phase::Expired);
    }

    /// Whether the shutdown has begun.
    pub fn has_begun(&self) -> bool {
        *self.phase.lock() >= Phase::Draining
    }

    /// Whether clients are not waited for any more.
    pub fn connections_are_cut(&self) -> bool {
        *self.phase.lock() >= Phase::ConnectionsCut
    }

    /// Whether tasks are not waited for any more.
    pub fn has_expired(&self) -> bool {
        *self.phase.lock() == Phase::Expired
    }

    /// Pauses for `pause`, or until the next phase begins.
    pub fn pause(&self, pause: Duration) {
        let deadline = Instant::now() + pause;
        let mut phase = self.phase.lock();
        let at_first = *phase;
        while *phase == at_first && !self.changed.wait_until(&mut phase, deadline).timed_out() {}
    }

    fn advance(&self, next: Phase) {
        let mut phase = self.phase.lock();
        *phase = next.max(*phase);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn phases_only_move_forward() {
        let shutdown = Shutdown::default();
        assert!(!shutdown.has_begun());
        shutdown.cut_connections();
        shutdown.begin();
        assert!(shutdown.has_begun() && shutdown.connections_are_cut() && !shutdown.has_expired());
        shutdown.expire();
        assert!(shutdown.has_expired());
    }

    #[test]
    fn a_pause_ends_with_its_time_or_with_the_phase() {
        let shutdown = Shutdown::default();
        shutdown.pause(Duration::from_millis(1));
        thread::scope(|scope| {
            scope.spawn(|| {
                // A wake-up without a new phase ends no pause, but shows that somebody pauses.
                while !shutdown.changed.notify_one() {
                    thread::yield_now();
                }
                shutdown.begin();
            });
            shutdown.pause(Duration::from_secs(60));
            assert!(shutdown.has_begun());
        });
    }
}
