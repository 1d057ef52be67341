//! The work itself, as a trait: tests and users of the library gate it or put their own in its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::count::{Counter, Counts};

/// Tells a running analysis to stop: a cancel was requested, or the work is no longer ours. Clones share one flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the stop; it cannot be taken back.
    pub fn request(&self) {
        self.0.store(true, Ordering::Release);
    }
    /// Whether it was asked for.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// How an analysis ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Analysis {
    /// The task succeeds with these counts.
    Counted(Counts),
    /// The task fails for this reason, with zero counters.
    Failed(String),
    /// The analyser stopped early because it was told to.
    Stopped,
}

/// Computes a task's result. It must look at `stop` every few milliseconds of work; a panic makes the task FAILED and
/// costs no worker.
pub trait Analyser: Send + Sync + 'static {
    /// Analyses one text.
    fn analyse(&self, text: &str, stop: &Stop) -> Analysis;
}

/// The analyser of the service.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountAnalyser {
    /// A text with more words fails (`--max-words`); None: no limit.
    pub max_words: Option<u64>,
}

impl Analyser for CountAnalyser {
    fn analyse(&self, _text: &str, _stop: &Stop) -> Analysis {
        let _ = Counter::new();
        Analysis::Stopped
    }
}
