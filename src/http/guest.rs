//! Guests: what the door and a handler tell each other about one client, past tiny_http: the door, that the client has left
//! while its request is in hand; the handler, that the request's body is used up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::quota::Share;
use crate::lock;

/// One client connection.
#[derive(Default)]
pub struct Guest {
    left: AtomicBool,
    /// Its part of the bytes in flight, while a request is in hand.
    body: Mutex<Option<Share>>,
}

/// The clients inside, each under a number that no other ever has.
#[derive(Default)]
pub struct Guests {
    inside: Mutex<HashMap<u64, Arc<Guest>>>,
    next: AtomicU64,
}

/// A place in the book, for as long as the client is inside.
pub struct Entry {
    guests: Arc<Guests>,
    number: u64,
    guest: Arc<Guest>,
}

impl Guests {
    /// Writes a client into the book.
    pub fn enter(self: &Arc<Self>) -> Entry {
        let (number, guest) = (self.next.fetch_add(1, Relaxed), Arc::<Guest>::default());
        lock(&self.inside).insert(number, Arc::clone(&guest));
        Entry { guests: Arc::clone(self), number, guest }
    }

    /// The client of this number.
    pub fn find(&self, number: u64) -> Option<Arc<Guest>> {
        lock(&self.inside).get(&number).cloned()
    }
}

impl Guest {
    /// The client has closed its side.
    pub fn leave(&self) {
        self.left.store(true, Relaxed);
    }

    /// Whether it has.
    pub fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// Notes the bytes that the request in hand may take up; None: it is answered.
    pub fn set_body(&self, share: Option<Share>) {
        *lock(&self.body) = share;
    }
}

impl Entry {
    /// Under which it is found.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The client.
    pub fn guest(&self) -> &Arc<Guest> {
        &self.guest
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.guests.inside).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::quota::Quota;

    #[test]
    fn a_guest_is_found_while_inside_and_its_bytes_come_back() {
        let (guests, quota) = (Arc::<Guests>::default(), Quota::new(1));
        let entry = guests.enter();
        let found = guests.find(entry.number()).expect("inside");
        entry.guest().set_body(quota.take(1));
        assert!(quota.take(1).is_none());
        found.set_body(None);
        assert!(quota.take(1).is_some());
        assert!(!found.has_left());
        entry.guest().leave();
        assert!(found.has_left());
        let other = guests.enter();
        assert_ne!(other.number(), entry.number());
        let number = entry.number();
        drop(entry);
        assert!(guests.find(number).is_none());
    }
}
