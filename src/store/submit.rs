//! submit: a text becomes a committed QUEUED row, unless its idempotency key has one already.

use postgres::error::SqlState;

use super::lane::Operation;
use super::session::Session;
use super::sql;
use crate::limits::NUMBER_TRIES;
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
        let rows = wanted.iter().flat_map(|one| one.texts().iter().map(|text| (text.as_str(), one.key())));
        let (texts, keys): (Vec<&str>, Vec<Option<&str>>) = rows.unzip();
        let mut store = || match keys.iter().any(Option::is_some) {
            false => session.query(sql::SUBMIT, &[&texts]),
            true => session.query(sql::SUBMIT_ONCE, &[&texts, &keys]),
        };
        let mut stored = store();
        for _ in 0..NUMBER_TRIES {
            match &stored {
                Err(error) if number_is_taken(error) => stored = store(),
                _ => break,
            }
        }
        let stored = stored?;
        let mut ids = stored.iter().map(|row| row.get::<_, Option<String>>(0).map(TaskId::new));
        Ok(wanted.iter().map(|one| ids.by_ref().take(one.texts().len()).collect()).collect())
    }
}

/// Whether another row has the number: a single instance that started beside ones with leases sets the next number behind
/// the largest in the table, and may not see what those are about to commit. Each try takes new numbers.
fn number_is_taken(error: &postgres::Error) -> bool {
    // A key that is taken is no error: the statement passes over it.
    error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}
