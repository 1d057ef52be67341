//! One client connection, in protocol order: a head, its body, the exchange with the crew, the answer; then the next.
//! Must never pass on a request that is not whole, never start one before the last is answered, and never wait without
//! a deadline.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::door::Door;
use super::guest::{Entry, Turn};
use super::head::{self, Head};
use super::quota::Share;
use super::reply::{Refusal, Reply, Terms};
use super::wire::{Heard, Wire};
use crate::limits::{BODY_STEP, HEAD_BYTES, LONG_TICK, TICK};

/// A client inside the door.
pub struct Client {
    door: Arc<Door>,
    entry: Entry,
    /// Its number among the guests, as the crew reads it.
    number: String,
    /// Bytes read and not yet used are the first `filled`.
    inbox: Vec<u8>,
    filled: usize,
    /// The request in hand is a HEAD: a refusal has no body either.
    head_only: bool,
}

/// Why a connection ends.
enum End {
    /// The client is gone, or nothing can be said to it.
    Silent,
    /// The answer said so.
    Answered,
    /// With an answer of the door's own.
    Refused(Refusal),
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> End {
        End::Refused(refusal)
    }
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Silent
    }
}

impl Client {
    /// A client that was given a seat.
    pub fn new(stream: TcpStream, door: Arc<Door>) -> io::Result<Client> {
        let entry = door.guests.enter(Wire::new(stream, door.limits.write_time, Arc::clone(&door.closing))?);
        let number = entry.number().to_string();
        Ok(Client { door, entry, number, inbox: vec![0; HEAD_BYTES], filled: 0, head_only: false })
    }

    /// Serves requests until the connection ends.
    pub fn serve(mut self) {
        let end = loop {
            if let Err(end) = self.serve_one() {
                break end;
            }
        };
        let said = match end {
            End::Silent => return,
            End::Answered => Ok(()),
            End::Refused(refusal) => self.wire().send(&refusal.into_bytes(self.head_only)),
        };
        if said.is_ok() {
            self.entry.guest().wire().linger(&mut self.inbox);
        }
    }

    fn wire(&self) -> &Wire {
        self.entry.guest().wire()
    }

    fn serve_one(&mut self) -> Result<(), End> {
        self.head_only = false;
        self.wait_for_request()?;
        self.entry.guest().speak();
        let mut head = self.read_head()?;
        self.head_only = head.terms.head_only;
        if let Some(reply) = self.door.guard.refusal(&head) {
            return self.turn_away(head, reply);
        }
        let (request, share) = self.read_body(&mut head)?;
        self.entry.guest().ask(head.terms, share);
        let deadline = Instant::now() + self.door.limits.handler_time;
        let sent = self.door.pool.send(&request, deadline);
        if let Some(refusal) = sent.err().filter(|_| self.entry.guest().give_up()) {
            return Err(refusal.into());
        }
        // The answer may be long in coming, and the request large.
        drop(request);
        self.wait_for_answer(deadline)
    }

    /// Waits for the first byte, for as long as an idle client may.
    fn wait_for_request(&mut self) -> Result<(), End> {
        let began = Instant::now();
        let mut tick = TICK;
        while self.filled == 0 {
            let limits = &self.door.limits;
            let crowded = limits.idle_time_crowded;
            let patience = if self.door.seats.is_crowded() { crowded } else { limits.idle_time };
            let left = patience.saturating_sub(began.elapsed());
            if self.door.closing.is_begun() || left.is_zero() {
                return Err(End::Silent);
            }
            self.filled = self.receive(0, tick.min(left))?;
            // Not a moment between two requests, but idle: it may have to make room when it gets crowded, and the door
            // wakes it when it closes.
            tick = crowded;
        }
        Ok(())
    }

    fn read_head(&mut self) -> Result<Head, End> {
        let deadline = Instant::now() + self.door.limits.head_time;
        let mut seen = 0;
        loop {
            let bytes = &self.inbox[..self.filled];
            let end = head::find_end(bytes, seen)?;
            // The first look refuses what is no HTTP/1 at all (TLS, HTTP/2) without waiting for the rest of it.
            if end.is_some() || seen == 0 {
                match head::parse(bytes, &self.number, self.door.limits.body)? {
                    Some(head) if end == Some(head.size) => return Ok(head),
                    None if end.is_none() => {}
                    _ => return Err(Refusal { status: 400, detail: "the end of the head is unclear" }.into()),
                }
            }
            seen = self.filled;
            if Instant::now() >= deadline {
                return Err(Refusal { status: 408, detail: "the request's head did not arrive in time" }.into());
            }
            self.filled += self.receive(self.filled, TICK)?;
        }
    }

    /// One read into the inbox, behind its first `from` bytes: how many came, 0 after a tick without any.
    fn receive(&mut self, from: usize, tick: Duration) -> Result<usize, End> {
        heard(&self.door, self.entry.guest().wire().hear(&mut self.inbox[from..], tick))
    }

    /// The whole request as it goes to tiny_http, with its share of the bytes in flight. Bytes after it wait their turn.
    fn read_body(&mut self, head: &mut Head) -> Result<(Vec<u8>, Share), End> {
        let (door, wire) = (&self.door, self.entry.guest().wire());
        let began = Instant::now();
        let here = head.body.min(self.filled - head.size);
        let used = head.size + here;
        let mut request = std::mem::take(&mut head.forward);
        let start = request.len();
        request.extend_from_slice(&self.inbox[head.size..used]);
        self.inbox.copy_within(used..self.filled, 0);
        self.filled -= used;
        if head.expects_continue && here < head.body {
            wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let mut share = door.bodies.nothing();
        let (mut read, mut room) = (here, here);
        loop {
            if read == room {
                // Room is made as the body comes: announcing one must not be enough to keep others out.
                room = head.body.min(BODY_STEP.max(2 * read));
                if !share.grow_to(room) {
                    return Err(Refusal { status: 503, detail: "too many request bodies are in flight" }.into());
                }
                request.resize(start + room, 0);
            }
            if read == head.body {
                return Ok((request, share));
            }
            let limits = &door.limits;
            let patience = if door.bodies.is_crowded() { limits.body_time_crowded } else { limits.body_time };
            if began.elapsed() >= patience {
                return Err(Refusal { status: 408, detail: "the request's body did not arrive in time" }.into());
            }
            read += heard(door, wire.hear(&mut request[start + read..], TICK))?;
        }
    }

    /// Answers without looking at the body, and without a handler. The connection goes on if nothing of it is still to come.
    fn turn_away(&mut self, head: Head, reply: Reply) -> Result<(), End> {
        let used = head.size + head.body;
        let keep_alive = used <= self.filled && head.terms.keep_alive && !self.door.closing.is_begun();
        if used <= self.filled {
            self.inbox.copy_within(used..self.filled, 0);
            self.filled -= used;
        }
        let answer = reply.into_bytes(Terms { keep_alive, ..head.terms });
        self.wire().send(&answer)?;
        if keep_alive { Ok(()) } else { Err(End::Answered) }
    }

    /// Waits until the request in hand is answered. It listens to the client meanwhile: mostly the next that happens here
    /// is its next request, after the answer, and this thread sleeps until then.
    fn wait_for_answer(&mut self, deadline: Instant) -> Result<(), End> {
        let guest = Arc::clone(self.entry.guest());
        let mut tick = TICK;
        loop {
            let turn = guest.turn();
            match turn {
                Turn::Idle | Turn::Speaking => return Ok(()),
                Turn::Over => return Err(End::Answered),
                Turn::Handling(_) | Turn::Answering => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if (left.is_zero() || self.door.closing.is_cut()) && guest.give_up() {
                let detail = "the service did not answer in time; whether the request took effect is unknown";
                return Err(Refusal { status: 504, detail }.into());
            }
            if self.filled > 0 || guest.has_left() {
                // It has said what comes next, or nothing more will.
                guest.wait(turn, TICK);
                continue;
            }
            match guest.wire().hear(&mut self.inbox, tick.min(left)) {
                Heard::Bytes(n) => self.filled = n,
                Heard::Nothing => tick = LONG_TICK.min(2 * tick),
                // Who only closed its sending side still gets its answer.
                Heard::End => guest.leave(),
            }
        }
    }
}

/// The number of bytes that came, 0 after a tick without any.
fn heard(door: &Door, heard: Heard) -> Result<usize, End> {
    match heard {
        _ if door.closing.is_cut() => Err(End::Silent),
        Heard::Bytes(n) => Ok(n),
        Heard::Nothing => Ok(0),
        Heard::End => Err(End::Silent),
    }
}
