//! submit: a text becomes a committed QUEUED row, unless its idempotency key has one already.

use postgres::error::SqlState;
use postgres::types::ToSql;

use super::lane::Operation;
use super::session::Session;
use super::sql;
use crate::limits::NUMBER_TRIES;
use crate::task::TaskId;

/// What one caller wants stored; at most one row has its key.
#[derive(Debug)]
pub(super) struct Submission {
    pub text: String,
    pub key: Option<String>,
}

pub(super) struct Submit;

impl Operation for Submit {
    type Input = Submission;
    /// None: another row has the key. Which one is asked afterwards, and never here: an error after the INSERT would have the
    /// lane do the rest of its batch twice.
    type Output = Option<TaskId>;

    fn run(&self, session: &mut Session, wanted: &[Submission]) -> Result<Vec<Self::Output>, postgres::Error> {
        let (texts, keys): (Vec<&str>, Vec<Option<&str>>) =
            wanted.iter().map(|one| (one.text.as_str(), one.key.as_deref())).unzip();
        match keys.iter().any(Option::is_some) {
            false => store(session, sql::SUBMIT, &[&texts]),
            true => store(session, sql::SUBMIT_ONCE, &[&texts, &keys]),
        }
    }
}

/// Tasks of one caller, all or none. A lane of its own: single tasks do not wait for thousands, and these are a statement that
/// is large enough.
pub(super) struct SubmitAll;

impl Operation for SubmitAll {
    type Input = Vec<String>;
    /// One id for each text.
    type Output = Vec<TaskId>;
    const BATCH: usize = 1;
    /// These share no commit: while some wait for theirs, the others keep the processors busy.
    const WIDTH: usize = 6;

    fn run(&self, session: &mut Session, wanted: &[Vec<String>]) -> Result<Vec<Vec<TaskId>>, postgres::Error> {
        let ids_of = |texts: &Vec<String>| {
            let stored = store(session, sql::SUBMIT, &[texts])?;
            Ok(stored.into_iter().flatten().collect())
        };
        wanted.iter().map(ids_of).collect()
    }
}

/// Runs an INSERT that takes its numbers from the sequence; the ids of the rows.
fn store(
    session: &mut Session,
    insert: &'static str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Option<TaskId>>, postgres::Error> {
    let mut stored = session.query(insert, parameters);
    for _ in 0..NUMBER_TRIES {
        match &stored {
            Err(error) if number_is_taken(error) => stored = session.query(insert, parameters),
            _ => break,
        }
    }
    Ok(stored?.iter().map(|row| row.get::<_, Option<String>>(0).map(TaskId::new)).collect())
}

/// Whether another row has the number: a single instance that started beside ones with leases sets the next number behind
/// the largest in the table, and may not see what those are about to commit. Each try takes new numbers.
fn number_is_taken(error: &postgres::Error) -> bool {
    // A key that is taken is no error: the statement passes over it.
    error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}
