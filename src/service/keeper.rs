//! The keeper of the instance lock: proves several times a second that the lock's connection lives, and so is the first to
//! know of a lost database. While the lock is not held, nobody claims: another instance may have it. An instance with leases
//! has no lock; its keeper only asks the database whether it is there.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use super::drain::Drain;
use super::{Event, Shared};
use crate::limits::{KEEPER_INTERVAL, PROOF_AGE};
use crate::lock;
use crate::log::{self, Bounded};
use crate::store::instance::{Proof, Relock};
use crate::store::{InstanceLock, StoreError};

static TROUBLE: Bounded = Bounded::new();

/// Whether tasks may be claimed, and what the database said last.
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
    pub(super) fn new() -> Claiming {
        let state = State { allowed: true, stopped: false, trouble: None, proved: Instant::now() };
        Claiming { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until claiming is allowed; false: the service ends first. A drain whose lock is lost claims nothing more.
    pub fn wait(&self, drain: &Drain) -> bool {
        let mut state = lock(&self.state);
        while !state.allowed && !drain.begun() {
            state =
                self.changed.wait_timeout(state, KEEPER_INTERVAL).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        state.allowed && !drain.expired()
    }

    /// Why the service is not ready for work, as far as the database goes.
    pub fn trouble(&self) -> Option<String> {
        let state = lock(&self.state);
        let silent = state.proved.elapsed();
        let silence = || format!("database: silent for {} ms", silent.as_millis());
        state.trouble.clone().or_else(|| (silent > PROOF_AGE).then(silence))
    }

    /// From now on nobody claims, whatever the database says.
    pub(super) fn stop(&self, why: String) {
        let mut state = lock(&self.state);
        (state.stopped, state.allowed, state.trouble) = (true, false, Some(why));
        self.changed.notify_all();
    }

    fn set(&self, allowed: bool, trouble: Option<String>) {
        let mut state = lock(&self.state);
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

/// Keeps the lock until the service has ended.
pub(super) fn run(shared: &Arc<Shared>, lock: InstanceLock) {
    let mut identity = lock.identity().to_owned();
    let mut lock = Some(lock);
    while !shared.drain.expired() {
        shared.drain.pause(KEEPER_INTERVAL);
        let step = match lock.as_mut() {
            Some(held) => held.prove().map(|proof| {
                recover_late(shared, held);
                State::of_proof(proof)
            }),
            None => regain(shared, &mut lock, &mut identity),
        };
        match step {
            Ok(trouble) => shared.claiming.set(lock.is_some(), trouble),
            Err(error) => {
                lock = None;
                shared.claiming.set(false, Some(format!("database: {}", error)));
            }
        }
    }
}

/// Asks the database whether it takes writes, until the service has ended. Leases alone say who may work on what.
pub(super) fn watch(shared: &Arc<Shared>) {
    while !shared.drain.expired() {
        shared.drain.pause(KEEPER_INTERVAL);
        match shared.store.probe() {
            Ok(proof) => shared.claiming.set(true, State::of_proof(proof)),
            Err(error) => shared.claiming.set(false, Some(format!("database: {error}"))),
        }
    }
}

/// A claim of a killed predecessor may commit after our recovery; as long as the lock is held, nobody else's is rightful.
fn recover_late(shared: &Shared, lock: &mut InstanceLock) {
    match shared.store.recover_late(lock) {
        Ok(0) => {}
        Ok(tasks) => log::line(format_args!("{tasks} tasks were claimed by a process that had exited: FAILED")),
        // The next step comes in a moment, and proves the connection first.
        Err(_) => {}
    }
}

impl State {
    fn of_proof(proof: Proof) -> Option<String> {
        (proof == Proof::ReadOnly).then(|| "database: it is read-only".into())
    }
}

/// One try to get the lock back.
fn regain(
    shared: &Shared,
    lock: &mut Option<InstanceLock>,
    identity: &mut String,
) -> Result<Option<String>, StoreError> {
    Ok(match shared.store.relock_instance(identity)? {
        Relock::Held(regained) => {
            *identity = regained.identity().to_owned();
            *lock = Some(*regained);
            None
        }
        Relock::OursStill => Some("database: our lost connection still holds the instance lock".into()),
        Relock::Another(holder) => {
            shared.tell(Event::InstanceLockLost(holder));
            Some("another instance runs on this database".into())
        }
    })
}
