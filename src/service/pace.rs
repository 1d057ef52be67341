//! How fast tasks go through, measured: what a client is told to expect.

use std::sync::Mutex;
use std::time::Duration;

use crate::lock;

/// A running mean of how long a worker is busy with one task, from the claim to the end: where the database is what takes
/// the time, the mean says so, too.
#[derive(Debug, Default)]
pub struct Pace {
    mean: Mutex<Mean>,
}

#[derive(Debug, Default)]
struct Mean {
    busy: Duration,
    /// How many tasks it is the mean of, up to [`WINDOW`].
    tasks: u32,
}

/// About so many of the last tasks count: a moment in which all workers stand still together must not become the pace.
const WINDOW: u32 = 32;

impl Pace {
    /// A worker was busy for `busy` with one task.
    pub fn finished(&self, busy: Duration) {
        let mut mean = lock(&self.mean);
        mean.tasks = WINDOW.min(mean.tasks + 1);
        mean.busy = (mean.busy * (mean.tasks - 1) + busy) / mean.tasks;
    }

    /// How long a task waits for a worker when `ahead` tasks were there before it.
    pub fn expected_wait(&self, ahead: usize, workers: usize) -> Duration {
        let rounds = (ahead + 1).saturating_sub(workers) as f64 / workers as f64;
        lock(&self.mean).busy.mul_f64(rounds)
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

    #[test]
    fn the_first_tasks_count_alike_and_old_ones_fade() {
        let pace = Pace::default();
        (1..=3).for_each(|n| pace.finished(Duration::from_millis(n * 10)));
        assert_eq!(pace.expected_wait(1, 1), Duration::from_millis(20));
        (0..10 * WINDOW).for_each(|_| pace.finished(Duration::from_millis(50)));
        assert_eq!(pace.expected_wait(1, 1).as_millis(), 49, "just below what all but the oldest took");
    }
}
