//! Quotas: a bounded amount of something (seats for clients, bytes for bodies) of which shares are taken and come back
//! by themselves. Must never block a taker: who does not get a share says so to its client.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// The amount and what is taken of it.
pub struct Quota {
    cap: usize,
    taken: Mutex<usize>,
    given_back: Condvar,
}

/// A part of a quota; dropping it gives it back.
pub struct Share {
    quota: Arc<Quota>,
    amount: usize,
}

impl Quota {
    /// A quota of `cap`, nothing taken.
    pub fn new(cap: usize) -> Arc<Quota> {
        Arc::new(Quota { cap, taken: Mutex::new(0), given_back: Condvar::new() })
    }

    /// A share of `amount`, or None when less than that is left.
    pub fn take(self: &Arc<Self>, amount: usize) -> Option<Share> {
        let mut share = self.nothing();
        share.grow_to(amount).then_some(share)
    }

    /// A share of nothing, to be grown.
    pub fn nothing(self: &Arc<Self>) -> Share {
        Share { quota: Arc::clone(self), amount: 0 }
    }

    /// Whether more than half is taken.
    pub fn is_crowded(&self) -> bool {
        *self.taken.lock() > self.cap / 2
    }

    /// Waits until everything has come back, at most until the deadline; returns what is still taken.
    pub fn wait_until_free(&self, deadline: Instant) -> usize {
        let mut taken = self.taken.lock();
        loop {
            let patience = deadline.saturating_duration_since(Instant::now());
            if *taken == 0 || patience.is_zero() {
                return *taken;
            }
            self.given_back.wait_for(&mut taken, patience);
        }
    }
}

impl Share {
    /// Makes the share this large; false, and as it was, when not so much is left.
    pub fn grow_to(&mut self, amount: usize) -> bool {
        let more = amount.saturating_sub(self.amount);
        let mut taken = self.quota.taken.lock();
        if more > self.quota.cap - *taken {
            return false;
        }
        *taken += more;
        self.amount += more;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.quota.taken.lock() -= self.amount;
        self.quota.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_gives_what_it_has_and_takes_it_back() {
        let quota = Quota::new(3);
        let two = quota.take(2).expect("two of three");
        assert!(quota.is_crowded());
        assert!(quota.take(2).is_none());
        let one = quota.take(1).expect("the last one");
        assert!(quota.take(1).is_none());
        assert_eq!(quota.wait_until_free(Instant::now()), 3);
        drop((one, two));
        assert_eq!(quota.wait_until_free(Instant::now()), 0);
        assert!(quota.take(usize::MAX).is_none());
        let mut growing = quota.nothing();
        assert!(growing.grow_to(2) && growing.grow_to(1) && !growing.grow_to(4) && growing.grow_to(3));
        assert!(quota.take(1).is_none());
        drop(growing);
        assert!(quota.take(3).is_some());
    }
}
