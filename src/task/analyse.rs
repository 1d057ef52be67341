//! The work itself, as a trait: tests and users of the library gate it or put their own in its place. It must never
//! run on for long once it was told to stop, and never learn where a text comes from or where its counts go.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::count::{Counter, Counts};

/// Bytes counted between two looks at [`Stop`]: well under a millisecond of work, and far more than the look costs.
const PIECE: usize = 64 * 1024;

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
    fn analyse(&self, text: &str, stop: &Stop) -> Analysis {
        let mut counter = Counter::new();
        for piece in text.as_bytes().chunks(PIECE) {
            if stop.requested() {
                return Analysis::Stopped;
            }
            counter.push(piece).expect("a str is UTF-8");
        }
        let counts = counter.finish().expect("a str is UTF-8");
        // Counted to the end even when the limit was passed long before: the reason says by how much.
        match self.max_words {
            Some(limit) if counts.words > limit => {
                let words = counts.words;
                Analysis::Failed(format!("text has {words} words, more than the {limit} that --max-words allows"))
            }
            _ => Analysis::Counted(counts),
        }
    }
}
