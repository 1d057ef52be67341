//! What can go wrong between us and the database, told apart by what became of the statement: that is all a caller may
//! act on, and what a client is told.

use std::error::Error;
use std::fmt;

use postgres::error::{Severity, SqlState};

/// Why a statement gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The server looked at the statement and said no; nothing was changed. Trying again meets the same answer.
    Refused(String),
    /// Nothing was changed: never sent, or given up by the server (timeout, lock, shutdown, read-only). Try again.
    NotDone(String),
    /// No answer came: it may or may not have been committed.
    Unknown(String),
}

impl StoreError {
    /// The same of a statement that only reads: without an answer, too, nothing was changed.
    pub fn of_question(self) -> StoreError {
        match self {
            StoreError::Unknown(why) => StoreError::NotDone(why),
            known => known,
        }
    }

    /// Sorts an error of a statement that was sent in autocommit or ended by its own COMMIT.
    pub fn of_statement(error: &postgres::Error) -> StoreError {
        let text = describe(error);
        match error.as_db_error() {
            // FATAL and PANIC end the session; they may arrive in place of an answer that was already on its way.
            Some(db) if db.parsed_severity() != Some(Severity::Error) => StoreError::Unknown(text),
            Some(db) if passes(db.code()) => StoreError::NotDone(text),
            Some(_) => StoreError::Refused(text),
            None => StoreError::Unknown(text),
        }
    }
}

/// SQLSTATEs that say something of the server's present condition, not of our statement.
fn passes(code: &SqlState) -> bool {
    let class = &code.code()[..2];
    let condition_of_the_server = matches!(class, "08" | "53" | "57" | "58");
    let lost_to_another = matches!(code.code(), "55P03" | "40001" | "40P01");
    let standby_or_read_only = code.code() == "25006";
    condition_of_the_server || lost_to_another || standby_or_read_only
}

/// The whole of an error: Display alone says just "db error".
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut part: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = part {
        let said = match error.downcast_ref::<postgres::error::DbError>() {
            Some(db) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
            None => error.to_string(),
        };
        if !text.contains(&said) {
            let glue = if text.is_empty() { "" } else { ": " };
            text = text + glue + &said;
        }
        part = error.source();
    }
    text.replace('\n', " ")
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Refused(why) => write!(f, "refused by the database: {why}"),
            StoreError::NotDone(why) => write!(f, "the database could not do it now: {why}"),
            StoreError::Unknown(why) => write!(f, "no answer from the database: {why}"),
        }
    }
}

impl Error for StoreError {}
