//! Lines for people on stderr. The supervisor (journald) adds the time; nothing here ever prints a task's text.

use std::fmt::Display;
use std::io::Write;
use std::sync::Mutex;
use std::time::Instant;

use crate::limits::LOG_INTERVAL;
use crate::lock;

/// Writes one line. A closed stderr is not an error: the service outlives its log.
pub fn line(message: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "taskstats: {message}");
}

/// A source of lines that may repeat for as long as a fault lasts: prints at most one per [`LOG_INTERVAL`] and says
/// how many it held back.
#[derive(Debug, Default)]
pub struct Bounded {
    state: Mutex<(Option<Instant>, u64)>,
}

impl Bounded {
    /// A source that has printed nothing yet.
    pub const fn new() -> Self {
        Bounded { state: Mutex::new((None, 0)) }
    }

    /// Prints the line, or counts it when the last one is too recent.
    pub fn line(&self, message: impl Display) {
        let mut state = lock(&self.state);
        let (last, held_back) = *state;
        if last.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            state.1 += 1;
            return;
        }
        *state = (Some(Instant::now()), 0);
        match held_back {
            0 => line(message),
            n => line(format_args!("{message} ({n} lines like this held back)")),
        }
    }
}
