//! look-up: what a row says, for clients and for reading back after an unknown outcome.

use std::collections::HashMap;

use postgres::Row;

use super::lane::Operation;
use super::session::Session;
use super::sql;
use crate::task::{Counts, Status, TaskId};

/// A row of `go_tasks` without its text. Times are RFC 3339 in UTC, by the database's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRow {
    /// `task[n]`, or another program's id.
    pub id: TaskId,
    /// As stored: another program's row may hold a state that is not one of ours.
    pub status: String,
    /// Zero unless SUCCEEDED.
    pub counts: Counts,
    /// Why it FAILED.
    pub failure_reason: Option<String>,
    /// A running task was asked to stop.
    pub cancel_requested: bool,
    /// Who claimed it last.
    pub lease_owner: Option<String>,
    /// How often it was claimed.
    pub lease_epoch: i64,
    /// When it was committed.
    pub created_at: String,
    /// When it was claimed last.
    pub started_at: Option<String>,
    /// When it became terminal.
    pub finished_at: Option<String>,
}

impl TaskRow {
    /// Whether it is terminal, and so will never change.
    pub fn has_ended(&self) -> bool {
        Status::parse(&self.status).is_some_and(Status::is_terminal)
    }

    fn read(row: &Row) -> TaskRow {
        let count = |column| row.get::<_, Option<i64>>(column).unwrap_or(0) as u64;
        TaskRow {
            id: TaskId::new(row.get::<_, String>("id")),
            status: row.get("status"),
            counts: Counts { words: count("words"), bytes: count("bytes"), runes: count("runes") },
            failure_reason: row.get("failure_reason"),
            cancel_requested: row.get("cancel_requested"),
            lease_owner: row.get("lease_owner"),
            lease_epoch: row.get("lease_epoch"),
            created_at: row.get("created_at"),
            started_at: row.get("started_at"),
            finished_at: row.get("finished_at"),
        }
    }
}

pub(super) struct LookUp;

impl Operation for LookUp {
    type Input = TaskId;
    type Output = Option<TaskRow>;

    fn run(&self, session: &mut Session, ids: &[TaskId]) -> Result<Vec<Option<TaskRow>>, postgres::Error> {
        let id_column: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
        let rows = session.query(sql::LOOK_UP, &[&id_column])?;
        let found: HashMap<&str, &Row> = rows.iter().map(|row| (row.get("id"), row)).collect();
        // Several callers may ask for one task.
        Ok(ids.iter().map(|id| found.get(id.as_str()).map(|row| TaskRow::read(row))).collect())
    }
}
