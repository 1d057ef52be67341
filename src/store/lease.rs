//! Leases: how several processes share one table (DESIGN section 4). A lease is the right to write a task's result until a
//! certain moment of the database's clock; the epoch of the claim fences whoever had it before.
//!
//! Never here: our own clock. Whether a lease holds is decided in the statement that needs it.

use std::collections::HashMap;
use std::time::Duration;

use super::session::Session;
use super::sql;
use crate::task::{Status, TaskId};

/// How tasks are leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// How long a claim holds without renewal.
    pub ttl: Duration,
    /// A task whose owners let this many leases expire is failed.
    pub max_attempts: i64,
    /// Whether a success records its effect in the finishing transaction; if not, the caller does it before, in one of its own.
    pub effect_at_end: bool,
}

impl Lease {
    pub(super) fn millis(self) -> i64 {
        self.ttl.as_millis() as i64
    }
}

/// A task under a lease of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedTask {
    /// Which task.
    pub id: TaskId,
    /// The epoch of our claim.
    pub epoch: i64,
}

/// What became of one lease when it was to be renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// It holds for a whole ttl from now.
    Renewed,
    /// It holds and was not renewed: somebody has the row locked at present. Try again soon.
    Busy,
    /// It expired, or somebody else has the task.
    Lost,
}

/// What a renewal found for one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// What became of the lease.
    pub renewal: Renewal,
    /// Somebody asked for the task's cancel, perhaps through another process.
    pub cancel_requested: bool,
}

/// What became of an effect's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It is recorded; nobody had recorded it before.
    New,
    /// An owner before us had recorded it.
    Known,
    /// Nothing was written: the task is not ours any more.
    LeaseLost,
}

/// Renews the leases of `owner` on `tasks`; one answer each, in their order.
pub(super) fn renew(
    session: &mut Session,
    owner: &str,
    lease: Lease,
    tasks: &[LeasedTask],
) -> Result<Vec<Renewed>, postgres::Error> {
    let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    let epochs: Vec<i64> = tasks.iter().map(|task| task.epoch).collect();
    let mut found = HashMap::new();
    let mut note = |rows: &[postgres::Row], renewal| {
        for row in rows {
            let renewed = Renewed { renewal, cancel_requested: row.get("cancel_requested") };
            found.entry(row.get::<_, String>("id")).or_insert(renewed);
        }
    };
    let renewed = session.query(sql::RENEW, &[&owner, &ids, &epochs, &lease.millis()])?;
    note(&renewed, Renewal::Renewed);
    if renewed.len() < tasks.len() {
        note(&session.query(sql::HELD, &[&owner, &ids, &epochs])?, Renewal::Busy);
    }
    let lost = Renewed { renewal: Renewal::Lost, cancel_requested: false };
    Ok(ids.iter().map(|id| found.remove(*id).unwrap_or(lost)).collect())
}

/// Ends the tasks that no owner may run again; which, and how.
pub(super) fn settle_expired(session: &mut Session, lease: Lease) -> Result<Vec<(TaskId, Status)>, postgres::Error> {
    let rows = session.query(sql::SETTLE_EXPIRED, &[&lease.max_attempts])?;
    let settled = rows.iter().map(|row| (TaskId::new(row.get::<_, String>("id")), row.get::<_, &str>("status")));
    Ok(settled.filter_map(|(id, status)| Some((id, Status::parse(status)?))).collect())
}

/// Records that `owner` did `task`, with its `words`, unless that is recorded.
pub(super) fn write_effect(
    session: &mut Session,
    owner: &str,
    task: &LeasedTask,
    words: i64,
) -> Result<Effect, postgres::Error> {
    let rows = session.query(sql::WRITE_EFFECT, &[&task.id.as_str(), &owner, &task.epoch, &words])?;
    Ok(match rows.first().map(|row| row.get("new")) {
        Some(true) => Effect::New,
        Some(false) => Effect::Known,
        None => Effect::LeaseLost,
    })
}
