//! The instance lock: a session advisory lock that makes a second `serve` on the same database refuse to start. It lives
//! and dies with its connection, so a killed process frees it by dying.

use std::thread;
use std::time::{Duration, Instant};

use super::error::StoreError;
use super::recovery::ABANDONED;
use super::session::Session;
use super::sql;
use crate::limits::KEEPER_INTERVAL;

/// Held for as long as its connection lives.
pub struct InstanceLock {
    session: Session,
    identity: String,
}

/// Who has the lock, seen by one who wants it.
pub enum Relock {
    /// We do, again.
    Held(Box<InstanceLock>),
    /// A session of ours whose connection is lost: the server has not noticed yet.
    OursStill,
    /// Another instance; what the server says of its session.
    Another(String),
}

impl InstanceLock {
    /// The server's name for the session that holds the lock; no other session ever has it.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Proves that the connection, and with it the lock, is still there.
    ///
    /// # Errors
    /// The connection is gone or unusable; the lock is free for others. May block in a silent backend, which still holds
    /// the lock.
    pub fn prove(&mut self) -> Result<Proof, StoreError> {
        let rows = self.session.query(sql::PROVE, &[]).map_err(|error| StoreError::of_statement(&error))?;
        let identity: String = rows[0].get(1);
        if identity != self.identity {
            return Err(StoreError::Refused(format!(
                "one connection is served by changing sessions ({}, now {identity}), as by a pooler in transaction mode; \
                 the instance lock needs a session of its own: connect directly, or in session mode",
                self.identity
            )));
        }
        Ok(Proof::of(&rows[0]))
    }
}

impl InstanceLock {
    /// Fails what a dead process claimed after our recovery had looked: its claim was waiting in the server when it was
    /// killed. Says how many tasks that were. An error is no reason to give the lock up: `prove` tells of that.
    pub(super) fn recover_late(&mut self, owner: &str) -> Result<u64, StoreError> {
        self.session.execute(sql::RECOVER_LATE, &[&ABANDONED, &owner]).map_err(|error| StoreError::of_statement(&error))
    }
}

/// What the lock's connection says of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It takes writes.
    Writable,
    /// It answers, but only reads.
    ReadOnly,
}

impl Proof {
    /// Of a row of [`sql::PROVE`].
    pub(super) fn of(row: &postgres::Row) -> Proof {
        if row.get(0) { Proof::Writable } else { Proof::ReadOnly }
    }
}

/// Tries for the lock until it is had or `patience` is over; `ours` is the identity of a lock we held before.
pub(super) fn take(mut session: Session, ours: &str, patience: Duration) -> Result<Relock, StoreError> {
    let start = Instant::now();
    loop {
        let rows = session.query(sql::TRY_INSTANCE_LOCK, &[]).map_err(|error| StoreError::of_statement(&error))?;
        let (taken, mine, holder): (bool, String, Option<String>) = (rows[0].get(0), rows[0].get(1), rows[0].get(2));
        match holder {
            _ if taken => return Ok(Relock::Held(Box::new(InstanceLock { session, identity: mine }))),
            Some(holder) if holder == ours => return Ok(Relock::OursStill),
            holder if start.elapsed() >= patience => {
                return Ok(Relock::Another(holder.unwrap_or_else(|| "a session we may not see".into())));
            }
            _ => thread::sleep(KEEPER_INTERVAL),
        }
    }
}
