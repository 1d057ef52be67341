//! Task ids: `task[n]`, and how they stand in a URL.

use std::fmt;

/// The id of a row. Rows of other programs may have any text here; only `task[n]` is numbered by us.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(String);

impl TaskId {
    /// Any id, as the database or a client spells it.
    pub fn new(id: impl Into<String>) -> Self {
        TaskId(id.into())
    }
    /// `task[n]`.
    pub fn from_number(number: i64) -> Self {
        TaskId(format!("task[{number}]"))
    }
    /// The spelling in the database.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
