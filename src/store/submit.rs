//! submit: a text becomes a committed QUEUED row, unless its idempotency key has one already.

use std::collections::HashSet;

use super::lane::Operation;
use super::session::Session;
use super::sql;
use crate::task::TaskId;

/// A task that is to be.
#[derive(Debug)]
pub(super) struct Submission {
    /// What is to be analysed.
    pub text: String,
    /// At most one row has it.
    pub key: Option<String>,
}

pub(super) struct Submit;

impl Operation for Submit {
    type Input = Submission;
    /// None: another row has the key. Which one is asked afterwards, and never here: an error after the INSERT would have the
    /// lane do the rest of its batch twice.
    type Output = Option<TaskId>;
    const NAME: &'static str = "submit";

    fn run(&self, session: &mut Session, wanted: &[Submission]) -> Result<Vec<Option<TaskId>>, postgres::Error> {
        let numbers = session.query(sql::NEXT_NUMBERS, &[&(wanted.len() as i64)])?;
        let ids: Vec<TaskId> = numbers.iter().map(|row| TaskId::from_number(row.get(0))).collect();
        let id_column: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
        let texts: Vec<&str> = wanted.iter().map(|submission| submission.text.as_str()).collect();
        let keys: Vec<Option<&str>> = wanted.iter().map(|submission| submission.key.as_deref()).collect();
        let rows = session.query(sql::SUBMIT, &[&id_column, &texts, &keys])?;
        let stored: HashSet<&str> = rows.iter().map(|row| row.get("id")).collect();
        Ok(ids.iter().map(|id| stored.contains(id.as_str()).then(|| id.clone())).collect())
    }
}
