//! Exit codes (DESIGN section 6).

use std::fmt::Display;

/// Something failed while running.
pub const FAILED: u8 = 1;
/// Wrong usage or configuration: nothing was started, listened on or connected to.
pub const USAGE: u8 = 2;
/// Another instance holds this database.
pub const ANOTHER_INSTANCE: u8 = 5;
/// A part inside the process died; the supervisor should start it anew.
pub const INTERNAL: u8 = 70;

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
