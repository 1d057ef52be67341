//! Whether tasks may be claimed now, and what the database was last found to be: what readiness reports.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::limits::{KEEPER_INTERVAL, PROOF_AGE};
use crate::log::{self, Bounded};
use crate::shutdown::Shutdown;

static TROUBLE: Bounded = Bounded::new();

/// Shared by the leader, which sets it, and by all that claim.
#[derive(Debug)]
pub struct Claiming {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    allowed: bool,
    /// For good.
    stopped: bool,
    /// What is wrong with the database, as far as known.
    trouble: Option<String>,
    /// When the database last answered.
    proved: Instant,
}

impl Claiming {
    /// Allowed: the lock was just taken.
    pub fn new() -> Claiming {
        let state = State { allowed: true, stopped: false, trouble: None, proved: Instant::now() };
        Claiming { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Whether claiming is allowed now.
    pub fn is_allowed(&self) -> bool {
        self.state.lock().allowed
    }

    /// Waits until claiming is allowed; false: the service ends first. In a shutdown a lost lock is not waited for.
    pub fn wait(&self, shutdown: &Shutdown) -> bool {
        let mut state = self.state.lock();
        while !state.allowed && !shutdown.has_begun() {
            self.changed.wait_for(&mut state, KEEPER_INTERVAL);
        }
        state.allowed && !shutdown.has_expired()
    }

    /// Why the service is not ready, as far as the database goes.
    pub fn trouble(&self) -> Option<String> {
        let state = self.state.lock();
        let silent = state.proved.elapsed();
        let silence = || format!("database: silent for {} ms", silent.as_millis());
        state.trouble.clone().or_else(|| (silent > PROOF_AGE).then(silence))
    }

    /// From now on nothing is claimed, whatever the database answers.
    pub fn stop(&self, why: String) {
        let mut state = self.state.lock();
        (state.stopped, state.allowed, state.trouble) = (true, false, Some(why));
        self.changed.notify_all();
    }

    /// Sets whether claiming is allowed, and what is wrong with the database.
    pub fn set(&self, allowed: bool, trouble: Option<String>) {
        let mut state = self.state.lock();
        if state.stopped {
            return;
        }
        if state.trouble != trouble {
            match &trouble {
                Some(trouble) => TROUBLE.line(format_args!("not ready: {trouble}")),
                None => log::line("ready again: the database answers"),
            }
        }
        if trouble.is_none() {
            state.proved = Instant::now();
        }
        (state.allowed, state.trouble) = (allowed, trouble);
        self.changed.notify_all();
    }
}
