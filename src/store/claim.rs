//! claim: a QUEUED row, or one whose lease has expired, becomes ours, RUNNING, under a new epoch.

use std::collections::HashMap;

use super::lane::Operation;
use super::lease::Lease;
use super::session::Session;
use super::sql;
use crate::task::TaskId;

/// What a worker holds of a task it claimed: the text, and the epoch that fences its writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// What is to be analysed.
    pub text: String,
    /// The claim's number; every later write names it.
    pub epoch: i64,
}

pub(super) struct Claim {
    /// Who claims: this process.
    pub owner: String,
    /// How long the claim holds without renewal, and what may be taken over; None: for ever, and nothing.
    pub lease: Option<Lease>,
}

impl Operation for Claim {
    type Input = TaskId;
    /// None: there was nothing to win.
    type Output = Option<Claimed>;

    fn run(&self, session: &mut Session, ids: &[TaskId]) -> Result<Vec<Option<Claimed>>, postgres::Error> {
        let id_column: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
        let (ttl, max_attempts) = (self.lease.map(Lease::millis), self.lease.map(|lease| lease.max_attempts));
        let rows = session.query(sql::CLAIM, &[&id_column, &self.owner, &ttl, &max_attempts])?;
        let mut won: HashMap<String, Claimed> = rows
            .iter()
            .map(|row| (row.get("id"), Claimed { text: row.get("text"), epoch: row.get("lease_epoch") }))
            .collect();
        Ok(ids.iter().map(|id| won.remove(id.as_str())).collect())
    }
}
