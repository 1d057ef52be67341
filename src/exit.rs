//! Exit codes (DESIGN section 6).

use std::fmt::Display;

/// Something failed while running.
pub const FAILED: u8 = 1;
/// Wrong usage or configuration: nothing was started, listened on or connected to.
pub const USAGE: u8 = 2;
/// `lease run` found no task that it may claim.
pub const NOTHING_TO_CLAIM: u8 = 3;
/// `lease run` held a task that another owner has taken over: nothing of it was written any more.
pub const LEASE_LOST: u8 = 4;
/// Another instance holds this database.
pub const ANOTHER_INSTANCE: u8 = 5;
/// A part inside the process died; the supervisor should start it anew.
pub const INTERNAL: u8 = 70;
/// `lease run --crash before-effect`.
pub const CRASHED_BEFORE_EFFECT: u8 = 72;
/// `lease run --crash after-effect`.
pub const CRASHED_AFTER_EFFECT: u8 = 73;

/// Why a command ends, and with which code. An empty message: it was said already.
#[derive(Debug)]
pub struct Failure {
    /// The process's exit code.
    pub code: u8,
    /// What failed, on what, and what to do.
    pub message: String,
}

impl Failure {
    /// Exit [`USAGE`].
    pub fn usage(message: impl Display) -> Self {
        Failure { code: USAGE, message: message.to_string() }
    }
    /// Exit [`FAILED`].
    pub fn failed(message: impl Display) -> Self {
        Failure { code: FAILED, message: message.to_string() }
    }
}
