//! claim: a QUEUED row becomes ours, RUNNING, under a new epoch.

use std::collections::HashMap;
use std::time::Duration;

use super::lane::Operation;
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
    /// How long the claim holds without renewal; None: for ever (single instance).
    pub lease: Option<Duration>,
}

impl Operation for Claim {
    type Input = TaskId;
    /// None: the row was not QUEUED.
    type Output = Option<Claimed>;
    const NAME: &'static str = "claim";

    fn run(&self, session: &mut Session, ids: &[TaskId]) -> Result<Vec<Option<Claimed>>, postgres::Error> {
        let id_column: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
        let lease = self.lease.map(|lease| lease.as_millis() as i64);
        let rows = session.query(sql::CLAIM, &[&id_column, &self.owner, &lease])?;
        let mut won: HashMap<String, Claimed> = rows
            .iter()
            .map(|row| (row.get("id"), Claimed { text: row.get("text"), epoch: row.get("lease_epoch") }))
            .collect();
        Ok(ids.iter().map(|id| won.remove(id.as_str())).collect())
    }
}
