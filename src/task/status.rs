//! The five states of a task (DESIGN section 2).

use std::fmt;

/// Where a task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Committed, waiting for a worker.
    Queued,
    /// Claimed by a worker.
    Running,
    /// Terminal: counted.
    Succeeded,
    /// Terminal: zero counters and a reason.
    Failed,
    /// Terminal: zero counters.
    Canceled,
}

impl Status {
    /// Every state, in the order of a task's life.
    pub const ALL: [Status; 5] = [Status::Queued, Status::Running, Status::Succeeded, Status::Failed, Status::Canceled];

    /// The spelling in the database and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Queued => "QUEUED",
            Status::Running => "RUNNING",
            Status::Succeeded => "SUCCEEDED",
            Status::Failed => "FAILED",
            Status::Canceled => "CANCELED",
        }
    }

    /// The state spelled so, if there is one.
    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// A terminal row never changes again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Status::Succeeded | Status::Failed | Status::Canceled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
