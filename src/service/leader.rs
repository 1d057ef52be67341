//! The leader lock: of all plain instances on one database, only the holder of the instance lock works. Proves several times a
//! second that the lock's connection lives, and so is the first to notice a lost database. Without the lock nothing is claimed:
//! another instance may hold it. An instance with leases has no lock; it only probes the database.

use std::sync::Arc;

use super::shared::{Event, Shared};
use crate::limits::KEEPER_INTERVAL;
use crate::log;
use crate::store::{InstanceLock, Lease, Proof, Relock, StoreError};

/// What gives a service the right to work on the database's tasks.
pub enum Mode {
    /// It is the only instance, for as long as it holds the lock.
    Sole(Box<InstanceLock>),
    /// It is one of several: each task has a lease.
    Leased(Lease),
}

/// Holds the lock until the service has ended.
pub(super) fn hold(shared: &Arc<Shared>, lock: InstanceLock) {
    let mut identity = lock.identity().to_owned();
    let mut lock = Some(lock);
    while !shared.shutdown.has_expired() {
        shared.shutdown.pause(KEEPER_INTERVAL);
        let step = match lock.as_mut() {
            Some(held) => held.prove().map(|proof| {
                recover_late(shared, held);
                trouble_of(proof)
            }),
            None => regain(shared, &mut lock, &mut identity),
        };
        match step {
            Ok(trouble) => shared.claiming.set(lock.is_some(), trouble),
            Err(error) => {
                lock = None;
                shared.claiming.set(false, Some(format!("database: {error}")));
            }
        }
    }
}

/// Probes the database until the service has ended, where leases decide who may work on what.
pub(super) fn probe(shared: &Arc<Shared>) {
    while !shared.shutdown.has_expired() {
        shared.shutdown.pause(KEEPER_INTERVAL);
        match shared.store.probe() {
            Ok(proof) => shared.claiming.set(true, trouble_of(proof)),
            Err(error) => shared.claiming.set(false, Some(format!("database: {error}"))),
        }
    }
}

/// A claim of a killed predecessor may be committed after our recovery; while we hold the lock, no other claim is rightful.
fn recover_late(shared: &Shared, lock: &mut InstanceLock) {
    match shared.store.recover_late(lock) {
        Ok(0) => {}
        Ok(tasks) => log::line(format_args!("{tasks} tasks were claimed by a process that had exited: FAILED")),
        // The next proof comes in a moment.
        Err(_) => {}
    }
}

fn trouble_of(proof: Proof) -> Option<String> {
    (proof == Proof::ReadOnly).then(|| "database: it is read-only".into())
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
            shared.report(Event::InstanceLockLost(holder));
            Some("another instance runs on this database".into())
        }
    })
}
