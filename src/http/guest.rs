//! Guests: the clients inside. A guest's own thread hears its requests; whoever has one in hand answers it at the guest's
//! socket, past tiny_http: two threads fewer have to wake. Must never let two answers out for one request, nor one for a
//! request that was given up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::quota::Share;
use super::reply::{Reply, Terms};
use super::wire::Wire;
use crate::limits::HTTP_STACK;

/// One client connection.
pub struct Guest {
    wire: Wire,
    turn: Mutex<Turn>,
    turned: Condvar,
    left: AtomicBool,
    /// Its part of the bytes in flight, while a request is in hand.
    body: Mutex<Option<Share>>,
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The client's; it has not begun.
    Idle,
    /// The client's, which has.
    Speaking,
    /// A handler's, which is to answer on these terms.
    Handling(Terms),
    /// An answer is on its way.
    Answering,
    /// Nobody's: the last answer was sent, or the request was given up.
    Over,
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
    pub fn enter(self: &Arc<Self>, wire: Wire) -> Entry {
        let number = self.next.fetch_add(1, Relaxed);
        let guest = Arc::new(Guest {
            wire,
            turn: Mutex::new(Turn::Idle),
            turned: Condvar::new(),
            left: AtomicBool::new(false),
            body: Mutex::new(None),
        });
        self.inside.lock().insert(number, Arc::clone(&guest));
        Entry { guests: Arc::clone(self), number, guest }
    }

    /// The client of this number.
    pub fn find(&self, number: u64) -> Option<Arc<Guest>> {
        self.inside.lock().get(&number).cloned()
    }

    /// Wakes the threads of idle clients, which read the end of their connection.
    pub fn wake_idle(&self) {
        self.inside.lock().values().filter(|guest| guest.turn() == Turn::Idle).for_each(|guest| guest.wire.wake());
    }

    /// Wakes the threads of all clients.
    pub fn wake_all(&self) {
        for guest in self.inside.lock().values() {
            guest.wire.wake();
            guest.turned.notify_all();
        }
    }
}

impl Guest {
    /// Its socket.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// The client has closed its side.
    pub fn leave(&self) {
        self.left.store(true, Relaxed);
    }

    /// Whether it has.
    pub fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// Lets go of the bytes that the request in hand may take up.
    pub fn free_body(&self) {
        *self.body.lock() = None;
    }

    /// Whose turn it is.
    pub fn turn(&self) -> Turn {
        *self.turn.lock()
    }

    /// Waits until that may have changed.
    pub fn wait(&self, unchanged: Turn, patience: Duration) {
        let mut turn = self.turn.lock();
        if *turn == unchanged {
            self.turned.wait_for(&mut turn, patience);
        }
    }

    /// The client begins to speak.
    pub fn speak(&self) {
        *self.turn.lock() = Turn::Speaking;
    }

    /// A handler is to answer what the client has said, whose body takes up `body`.
    pub fn ask(&self, terms: Terms, body: Share) {
        *self.body.lock() = Some(body);
        *self.turn.lock() = Turn::Handling(terms);
    }

    /// Nobody is to answer any more; false: somebody has begun to.
    pub fn give_up(&self) -> bool {
        let mut turn = self.turn.lock();
        let given_up = matches!(*turn, Turn::Handling(_));
        if given_up {
            *turn = Turn::Over;
        }
        given_up
    }

    /// Answers the request in hand, unless it was given up: then it has been answered. Does not wait for the client.
    pub fn answer(self: &Arc<Self>, reply: Reply) {
        self.free_body();
        let terms = {
            let mut turn = self.turn.lock();
            let Turn::Handling(terms) = *turn else { return };
            *turn = Turn::Answering;
            terms
        };
        let keep_alive = terms.keep_alive && !self.wire.is_closing();
        let answer = reply.into_bytes(Terms { keep_alive, ..terms });
        match self.wire.try_send(&answer) {
            Ok(sent) if sent == answer.len() => self.answered(keep_alive),
            Ok(sent) => self.send_rest(answer, sent, keep_alive),
            Err(_) => self.answered(false),
        }
    }

    /// The client is slow, or the answer long: a thread of its own has the patience.
    fn send_rest(self: &Arc<Self>, answer: Vec<u8>, sent: usize, keep_alive: bool) {
        let guest = Arc::clone(self);
        let thread = thread::Builder::new().name("slow-reader".into()).stack_size(HTTP_STACK);
        let spawned = thread.spawn(move || {
            let taken = guest.wire.send(&answer[sent..]).is_ok();
            guest.answered(keep_alive && taken);
        });
        if spawned.is_err() {
            self.answered(false);
        }
    }

    fn answered(&self, keep_alive: bool) {
        if !keep_alive {
            self.wire.finish();
        }
        *self.turn.lock() = if keep_alive { Turn::Idle } else { Turn::Over };
        self.turned.notify_all();
        if self.wire.is_closing() {
            self.wire.wake();
        }
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
        self.guests.inside.lock().remove(&self.number);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::http::closing::Closing;
    use crate::http::quota::Quota;
    use crate::http::reply::Refusal;

    pub const TERMS: Terms = Terms { head_only: false, keep_alive: true, is_old: false };

    /// A guest, and the client's end.
    pub fn enter(guests: &Arc<Guests>) -> (Entry, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let stream = listener.accept().expect("it comes").0;
        let wire = Wire::new(stream, Duration::from_secs(20), Arc::<Closing>::default()).expect("a socket");
        (guests.enter(wire), client)
    }

    fn refusal() -> Reply {
        Refusal { status: 500, detail: "" }.into()
    }

    #[test]
    fn a_guest_is_found_while_inside_and_its_bytes_come_back() {
        let (guests, quota) = (Arc::<Guests>::default(), Quota::new(1));
        let (entry, _client) = enter(&guests);
        let found = guests.find(entry.number()).expect("inside");
        entry.guest().ask(TERMS, quota.take(1).expect("room"));
        assert!(quota.take(1).is_none());
        found.free_body();
        assert!(quota.take(1).is_some());
        let (other, _client) = enter(&guests);
        assert_ne!(other.number(), entry.number());
        let number = entry.number();
        drop(entry);
        assert!(guests.find(number).is_none());
    }

    #[test]
    fn a_request_has_one_answer() {
        let (guests, quota) = (Arc::<Guests>::default(), Quota::new(0));
        let (entry, mut client) = enter(&guests);
        let guest = entry.guest();
        guest.ask(TERMS, quota.nothing());
        (0..2).for_each(|_| guest.answer(refusal()));
        assert_eq!((guest.turn(), guest.give_up()), (Turn::Idle, false));
        guest.ask(TERMS, quota.nothing());
        assert!(guest.give_up());
        guest.answer(refusal());
        assert_eq!(guest.turn(), Turn::Over);
        guest.wire().finish();
        let mut answers = String::new();
        client.read_to_string(&mut answers).expect("answers");
        assert_eq!(answers.matches("HTTP/1.1 500 ").count(), 1, "{answers}");
    }

    #[test]
    fn the_rest_of_a_long_answer_waits_for_its_reader() {
        let (guests, quota) = (Arc::<Guests>::default(), Quota::new(0));
        let (entry, mut client) = enter(&guests);
        let body = vec![b'x'; 32 << 20];
        entry.guest().ask(Terms { keep_alive: false, ..TERMS }, quota.nothing());
        entry.guest().answer(Reply { status: 200, headers: Vec::new(), body: body.clone() });
        assert_eq!(entry.guest().turn(), Turn::Answering, "no socket has room for all of it");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("an answer, and its end");
        assert!(answer.ends_with(&body));
        entry.guest().wait(Turn::Answering, Duration::from_secs(20));
        assert_eq!(entry.guest().turn(), Turn::Over);
    }
}
