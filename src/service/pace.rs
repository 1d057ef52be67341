//! How fast tasks go through, measured: what a client is told to expect.

use std::sync::Mutex;
use std::time::Duration;

use crate::lock;

/// A running mean of how long a worker is busy with one task.
#[derive(Debug, Default)]
pub struct Pace {
    mean_busy: Mutex<Option<Duration>>,
}

/// The newest task's share of the mean: about the last ten tasks count.
const SHARE: f64 = 0.1;

impl Pace {
    /// A worker was busy for `busy` with one task.
    pub fn finished(&self, busy: Duration) {
        let mut mean = lock(&self.mean_busy);
        *mean = Some(mean.map_or(busy, |old| old.mul_f64(1.0 - SHARE) + busy.mul_f64(SHARE)));
    }

    /// How long a task waits for a worker when `ahead` tasks were there before it.
    pub fn expected_wait(&self, ahead: usize, workers: usize) -> Duration {
        let rounds = (ahead + 1).saturating_sub(workers) as f64 / workers as f64;
        lock(&self.mean_busy).unwrap_or_default().mul_f64(rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_worker_means_no_wait_and_a_queue_a_share_of_the_mean() {
        let pace = Pace::default();
        assert_eq!(pace.expected_wait(100, 2), Duration::ZERO, "nothing measured yet");
        pace.finished(Duration::from_millis(10));
        assert_eq!(pace.expected_wait(1, 2), Duration::ZERO, "one worker is free");
        assert_eq!(pace.expected_wait(5, 2), Duration::from_millis(20));
    }
}
