//! submit: a text becomes a committed QUEUED row, unless its idempotency key has one already.

use std::collections::HashSet;

use super::lane::Operation;
use super::session::Session;
use super::sql;
use crate::task::TaskId;

/// What one caller wants stored.
#[derive(Debug)]
pub(super) enum Submission {
    /// One text; at most one row has its key.
    One { text: String, key: Option<String> },
    /// All of these or none.
    Many(Vec<String>),
}

impl Submission {
    fn texts(&self) -> &[String] {
        match self {
            Submission::One { text, .. } => std::slice::from_ref(text),
            Submission::Many(texts) => texts,
        }
    }

    fn key(&self) -> Option<&str> {
        match self {
            Submission::One { key, .. } => key.as_deref(),
            Submission::Many(_) => None,
        }
    }
}

pub(super) struct Submit;

impl Operation for Submit {
    type Input = Submission;
    /// One id for each text. None: another row has the key. Which one is asked afterwards, and never here: an error after the
    /// INSERT would have the lane do the rest of its batch twice.
    type Output = Option<Vec<TaskId>>;
    const NAME: &'static str = "submit";

    fn run(&self, session: &mut Session, wanted: &[Submission]) -> Result<Vec<Self::Output>, postgres::Error> {
        let rows = || wanted.iter().flat_map(|one| one.texts().iter().map(|text| (text.as_str(), one.key())));
        let (texts, keys): (Vec<&str>, Vec<Option<&str>>) = rows().unzip();
        let numbers = session.query(sql::NEXT_NUMBERS, &[&(texts.len() as i64)])?;
        let ids: Vec<TaskId> = numbers.iter().map(|row| TaskId::from_number(row.get(0))).collect();
        let id_column: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
        let stored = session.query(sql::SUBMIT, &[&id_column, &texts, &keys])?;
        let stored: HashSet<&str> = stored.iter().map(|row| row.get("id")).collect();
        let mut ids = ids.iter();
        let outputs = wanted.iter().map(|one| {
            let ids = ids.by_ref().take(one.texts().len());
            ids.map(|id| stored.contains(id.as_str()).then(|| id.clone())).collect()
        });
        Ok(outputs.collect())
    }
}
