//! The counting semaphore of the whole program: a bounded amount of something (tasks admitted, tasks running, client connections,
//! bytes of request bodies) and permits for parts of it. Never hands out more than its capacity, except through
//! [`Semaphore::force`], whose caller cannot be refused.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// A capacity, and how much of it is taken.
#[derive(Debug)]
pub struct Semaphore {
    capacity: usize,
    taken: Mutex<usize>,
    released: Condvar,
}

/// A part of a semaphore's capacity; dropping it gives the part back.
#[derive(Debug)]
pub struct Permit {
    semaphore: Arc<Semaphore>,
    amount: usize,
}

impl Semaphore {
    /// A semaphore of which nothing is taken.
    pub fn new(capacity: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore { capacity, taken: Mutex::new(0), released: Condvar::new() })
    }

    /// The whole amount.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How much of it is taken; more than the capacity after a [`Semaphore::force`].
    pub fn taken(&self) -> usize {
        *self.taken.lock()
    }

    /// Whether more than half of the capacity is taken.
    pub fn is_crowded(&self) -> bool {
        self.taken() > self.capacity / 2
    }

    /// A permit for `amount`, or None when less than that is free.
    pub fn try_acquire(self: &Arc<Self>, amount: usize) -> Option<Permit> {
        let mut permit = self.empty();
        permit.try_grow(amount).then_some(permit)
    }

    /// The same, waiting until `deadline` for others to give back what is missing.
    pub fn acquire(self: &Arc<Self>, amount: usize, deadline: Instant) -> Option<Permit> {
        let mut taken = self.taken.lock();
        while !self.has_room(*taken, amount) {
            if self.released.wait_until(&mut taken, deadline).timed_out() {
                return None;
            }
        }
        *taken += amount;
        Some(Permit { semaphore: Arc::clone(self), amount })
    }

    /// A permit for `amount` whatever is taken: for what exists already and can only be counted.
    pub fn force(self: &Arc<Self>, amount: usize) -> Permit {
        *self.taken.lock() += amount;
        Permit { semaphore: Arc::clone(self), amount }
    }

    /// A permit for nothing, which may grow.
    pub fn empty(self: &Arc<Self>) -> Permit {
        Permit { semaphore: Arc::clone(self), amount: 0 }
    }

    /// Waits until nothing is taken, at most until `deadline`; returns what is still taken.
    pub fn wait_until_free(&self, deadline: Instant) -> usize {
        let mut taken = self.taken.lock();
        while *taken > 0 {
            if self.released.wait_until(&mut taken, deadline).timed_out() {
                break;
            }
        }
        *taken
    }

    fn has_room(&self, taken: usize, amount: usize) -> bool {
        self.capacity.checked_sub(taken).is_some_and(|free| amount <= free)
    }
}

impl Permit {
    /// How much of the semaphore this permit holds.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Adds `more` to the permit; false, and nothing changed, when less than that is free.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let mut taken = self.semaphore.taken.lock();
        let fits = self.semaphore.has_room(*taken, more);
        if fits {
            *taken += more;
            self.amount += more;
        }
        fits
    }

    /// Moves `amount` of this permit, or all that it has, into a permit of its own.
    pub fn split(&mut self, amount: usize) -> Permit {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        Permit { semaphore: Arc::clone(&self.semaphore), amount }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.semaphore.taken.lock() -= self.amount;
        // All: the next waiter may need more than this, and the one behind it less.
        self.semaphore.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn permits_run_out_and_come_back() {
        let semaphore = Semaphore::new(3);
        let two = semaphore.try_acquire(2).expect("two of three");
        assert!(semaphore.is_crowded());
        assert!(semaphore.try_acquire(2).is_none() && semaphore.try_acquire(usize::MAX).is_none());
        assert_eq!(semaphore.taken(), 2, "a refusal takes nothing");
        let one = semaphore.try_acquire(1).expect("the last one");
        assert_eq!(semaphore.wait_until_free(Instant::now()), 3);
        drop((two, one));
        assert_eq!(semaphore.wait_until_free(Instant::now()), 0);
    }

    #[test]
    fn a_permit_grows_as_far_as_there_is_room_and_splits_into_parts() {
        let semaphore = Semaphore::new(3);
        let mut growing = semaphore.empty();
        assert!(growing.try_grow(2) && !growing.try_grow(2) && growing.try_grow(1));
        let mut part = growing.split(2);
        assert_eq!((part.amount(), growing.amount()), (2, 1));
        drop(growing);
        assert_eq!(semaphore.taken(), 2);
        assert_eq!(part.split(9).amount(), 2, "no more than it had");
    }

    #[test]
    fn a_waiter_gets_what_is_given_back_and_gives_up_at_its_deadline() {
        let semaphore = Semaphore::new(1);
        let permit = semaphore.try_acquire(1).expect("free");
        assert!(semaphore.acquire(1, Instant::now() + Duration::from_millis(1)).is_none());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| semaphore.acquire(1, Instant::now() + Duration::from_secs(60)).is_some());
            drop(permit);
            assert!(waiter.join().expect("no panic"));
        });
    }

    #[test]
    fn what_is_forced_counts_and_keeps_others_out() {
        let semaphore = Semaphore::new(1);
        let (first, second) = (semaphore.force(1), semaphore.force(1));
        assert_eq!(semaphore.taken(), 2);
        drop(first);
        assert!(semaphore.try_acquire(1).is_none());
        drop(second);
        assert!(semaphore.try_acquire(1).is_some());
    }
}
