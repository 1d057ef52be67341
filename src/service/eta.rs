//! How long a new task will wait for a worker, estimated from how long the last ones took.

use std::time::Duration;

use parking_lot::Mutex;

/// A running mean of how long a task is RUNNING, from its claim to its end: where the database takes the time, the mean shows it.
#[derive(Debug)]
pub struct Eta {
    workers: usize,
    mean: Mutex<Mean>,
}

#[derive(Debug, Default)]
struct Mean {
    busy: Duration,
    /// How many tasks it is the mean of, up to [`WINDOW`].
    tasks: u32,
}

/// About so many of the last tasks count: a moment in which all workers stand still together must not decide.
const WINDOW: u32 = 32;

impl Eta {
    /// Nothing is known yet of tasks of which `workers` run at once.
    pub fn new(workers: usize) -> Eta {
        Eta { workers, mean: Mutex::default() }
    }

    /// A task was RUNNING for `busy`.
    pub fn finished(&self, busy: Duration) {
        let mut mean = self.mean.lock();
        mean.tasks = WINDOW.min(mean.tasks + 1);
        mean.busy = (mean.busy * (mean.tasks - 1) + busy) / mean.tasks;
    }

    /// How long a task waits when `ahead` tasks were there before it.
    pub fn expected_wait(&self, ahead: usize) -> Duration {
        let rounds = (ahead + 1).saturating_sub(self.workers) as f64 / self.workers as f64;
        self.mean.lock().busy.mul_f64(rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_worker_means_no_wait_and_a_queue_a_share_of_the_mean() {
        let eta = Eta::new(2);
        assert_eq!(eta.expected_wait(100), Duration::ZERO, "nothing measured yet");
        eta.finished(Duration::from_millis(10));
        assert_eq!(eta.expected_wait(1), Duration::ZERO, "one worker is free");
        assert_eq!(eta.expected_wait(5), Duration::from_millis(20));
    }

    #[test]
    fn the_first_tasks_count_alike_and_old_ones_fade() {
        let eta = Eta::new(1);
        (1..=3).for_each(|n| eta.finished(Duration::from_millis(n * 10)));
        assert_eq!(eta.expected_wait(1), Duration::from_millis(20));
        (0..10 * WINDOW).for_each(|_| eta.finished(Duration::from_millis(50)));
        assert_eq!(eta.expected_wait(1).as_millis(), 49, "just below what all but the oldest took");
    }
}
