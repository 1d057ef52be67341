//! The end of a server, as all its threads see it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// How far the end has come.
#[derive(Debug, Default)]
pub struct Closing {
    begun: AtomicBool,
    cut: AtomicBool,
}

impl Closing {
    /// Requests in hand are answered, and each connection is closed after its answer.
    pub fn begin(&self) {
        self.begun.store(true, Relaxed);
    }

    /// Whether that has begun.
    pub fn is_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    /// Nobody is waited for any more.
    pub fn cut(&self) {
        self.cut.store(true, Relaxed);
    }

    /// Whether it has come to that.
    pub fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }
}
