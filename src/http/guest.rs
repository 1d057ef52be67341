//! Guests: what the door and a handler tell each other about one client, past tiny_http: the door, that the client has left
//! while its request is in hand; the handler, that the request's body is used up.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use super::quota::Share;
use crate::lock;

/// One client connection.
#[derive(Default)]
pub struct Guest {
    left: AtomicBool,
    /// Its part of the bytes in flight, while a request is in hand.
    body: Mutex<Option<Share>>,
    /// Its socket, while its thread waits there for the next request; else nothing.
    idle: Mutex<Weak<TcpStream>>,
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

    /// Wakes the threads of idle clients, which read the end of their connection.
    pub fn wake_idle(&self) {
        for guest in lock(&self.inside).values() {
            if let Some(stream) = lock(&guest.idle).upgrade() {
                // Fails when the client has gone, which wakes its thread as well.
                let _ = stream.shutdown(Shutdown::Read);
            }
        }
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

    /// Notes that its thread waits at this socket; None: not any more. Who is to be woken when the door closes looks whether
    /// it does after this, not before.
    pub fn set_idle(&self, stream: Option<&Arc<TcpStream>>) {
        *lock(&self.idle) = stream.map(Arc::downgrade).unwrap_or_default();
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
