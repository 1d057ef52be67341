//! Pauses between the tries of something that must get through.

use std::time::Duration;

use crate::limits::BACKOFF;

/// Doubling pauses between the two bounds of [`BACKOFF`].
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Backoff {
    /// Starts at the shortest pause.
    pub fn new() -> Self {
        Backoff { next: BACKOFF.0 }
    }

    /// How long to pause before the next try.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(BACKOFF.1);
        pause
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_within_their_bounds() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u128> = (0..6).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [25, 50, 100, 200, 250, 250]);
    }
}
