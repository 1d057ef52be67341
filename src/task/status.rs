//! The five states of a task (DESIGN section 2). Names only: which change is allowed is decided by the UPDATE that makes
//! it, never here.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_read_back() {
        let spellings = Status::ALL.map(Status::as_str);
        assert_eq!(spellings, ["QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"]);
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
            assert_eq!(status.to_string(), status.as_str());
        }
    }

    #[test]
    fn other_spellings_are_no_state() {
        for text in ["", "queued", "QUEUED ", "CANCELLED", "DONE"] {
            assert_eq!(Status::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn three_states_are_terminal() {
        let terminal: Vec<Status> = Status::ALL.into_iter().filter(|status| status.is_terminal()).collect();
        assert_eq!(terminal, [Status::Succeeded, Status::Failed, Status::Canceled]);
    }
}
