//! Recovery, and joining. Recovery: one plain transaction, an explicit step of a single instance's start. Opening the store never recovers: it
//! may be open beside an instance that still works (chapter 28). Joining is what an instance with leases does instead: it
//! touches no task.

use super::error::{StoreError, describe};
use super::schema::SCHEMA_LOCK;
use super::session::Session;
use super::sql;
use crate::limits::START_TIMEOUT;

/// The reason written to what a dead process left RUNNING.
pub const ABANDONED: &str = "process exited before worker completion";

/// What recovery found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// Tasks left RUNNING by a dead process, now FAILED.
    pub failed: u64,
    /// Tasks that wait for a worker.
    pub queued: u64,
    /// The number of the next submission.
    pub next: i64,
}

/// Fails what was left RUNNING without a lease, and counts the backlog. Repeating it changes nothing.
///
/// # Errors
/// Any error leaves the tasks as they were, unless it is [`StoreError::Unknown`]: the COMMIT was not answered.
pub(super) fn recover(session: &mut Session) -> Result<Recovery, StoreError> {
    let mut transaction = session.transaction().map_err(failed)?;
    // A killed predecessor's backend may hold a row for as long as the server takes to notice; counting a long backlog
    // takes its time, too.
    let patience = START_TIMEOUT.as_millis();
    let set = format!("SET LOCAL lock_timeout = {patience}; SET LOCAL statement_timeout = {patience}");
    transaction.batch_execute(&set).map_err(failed)?;
    let failed_rows = transaction.execute(sql::RECOVER, &[&ABANDONED]).map_err(failed)?;
    let queued: i64 = transaction.query_one(sql::COUNT_QUEUED, &[]).map_err(failed)?.get(0);
    let next: i64 = transaction.query_one(sql::NUMBER_AFTER_LARGEST, &[]).map_err(failed)?.get(0);
    transaction.execute(sql::SET_NEXT_NUMBER, &[&next]).map_err(failed)?;
    transaction.commit().map_err(|error| match StoreError::of_statement(&error) {
        StoreError::Unknown(why) => StoreError::Unknown(format!("recovery's COMMIT: {why}")),
        _ => failed(error),
    })?;
    Ok(Recovery { failed: failed_rows, queued: queued as u64, next })
}

/// Counts the backlog, and sees to it that the next number is free: an instance that was here alone may have set it, other
/// programs may have added rows, and others like us take numbers meanwhile.
pub(super) fn join(session: &mut Session) -> Result<Recovery, StoreError> {
    let mut transaction = session.transaction().map_err(not_joined)?;
    let patience = START_TIMEOUT.as_millis();
    let set = format!("SET LOCAL lock_timeout = {patience}; SET LOCAL statement_timeout = {patience}");
    transaction.batch_execute(&set).map_err(not_joined)?;
    // A hold gives the sequence a new file when it is committed: who reads it at that moment may find the old one empty.
    transaction.batch_execute(SCHEMA_LOCK).map_err(not_joined)?;
    let free: i64 = transaction.query_one(sql::NUMBER_AFTER_LARGEST, &[]).map_err(not_joined)?.get(0);
    let mut next: i64 = transaction.query_one(sql::NEXT_NUMBER, &[]).map_err(not_joined)?.get(0);
    if next < free {
        transaction.batch_execute(sql::HOLD_NUMBERS).map_err(not_joined)?;
        // Others may have taken numbers before the hold: never back behind those.
        next = transaction.query_one(sql::NEXT_NUMBER, &[]).map_err(not_joined)?.get::<_, i64>(0).max(free);
        transaction.execute(sql::SET_NEXT_NUMBER, &[&next]).map_err(not_joined)?;
    }
    let queued: i64 = transaction.query_one(sql::COUNT_QUEUED, &[]).map_err(not_joined)?.get(0);
    transaction.commit().map_err(not_joined)?;
    Ok(Recovery { failed: 0, queued: queued as u64, next })
}

fn failed(error: postgres::Error) -> StoreError {
    StoreError::Refused(format!("recovery was rolled back: {}", describe(&error)))
}

fn not_joined(error: postgres::Error) -> StoreError {
    StoreError::Refused(format!("could not join the instances on this database: {}", describe(&error)))
}
