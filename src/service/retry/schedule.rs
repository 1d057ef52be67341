//! Entries that are to be tried again, each at its time.

use std::time::{Duration, Instant};

/// Entries in the order of their arrival, each with the time of its next try.
#[derive(Debug)]
pub struct Schedule<T>(Vec<(Instant, T)>);

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Schedule(Vec::new())
    }
}

impl<T> Schedule<T> {
    /// When the next try is due.
    pub fn next(&self) -> Option<Instant> {
        self.0.iter().map(|(due, _)| *due).min()
    }

    /// Adds an entry that is due after `pause`.
    pub fn push(&mut self, pause: Duration, entry: T) {
        self.0.push((Instant::now() + pause, entry));
    }

    /// Takes the entries that are due.
    pub fn take_due(&mut self) -> Vec<T> {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.0).into_iter().partition(|(due, _)| *due <= now);
        self.0 = later;
        due.into_iter().map(|(_, entry): (Instant, T)| entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_taken_in_its_order_and_the_rest_stays() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next(), None);
        schedule.push(Duration::from_secs(60), "later");
        let later = schedule.next();
        ["first", "second"].into_iter().for_each(|entry| schedule.push(Duration::ZERO, entry));
        assert_eq!(schedule.take_due(), ["first", "second"]);
        assert_eq!(schedule.next(), later);
    }
}
