//! One client connection, in protocol order: a head, its body, the exchange with the crew, the answer; then the next.
//! Must never pass on a request that is not whole, never start one before the last is answered, and never wait without
//! a deadline.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tiny_http::HTTPVersion;

use super::door::Door;
use super::guest::Entry;
use super::head::{self, Head};
use super::quota::Share;
use super::reply::{Refusal, Reply, set_connection};
use super::upstream::is_tick;
use crate::limits::{BODY_STEP, HEAD_BYTES, LINGER_BYTES, LINGER_TIME, SHORT_TICK, TICK};

/// Room of an answer's buffer that is kept between requests, bytes.
const KEPT_ANSWER: usize = 64 * 1024;

/// A client inside the door.
pub struct Client {
    wire: Wire,
    entry: Entry,
    /// The client's address and its number among the guests, as the crew reads them.
    peer: String,
    /// Bytes read and not yet used are the first `filled`.
    inbox: Vec<u8>,
    filled: usize,
    answer: Vec<u8>,
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
    pub fn new(stream: TcpStream, peer: SocketAddr, door: Arc<Door>) -> io::Result<Client> {
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        let entry = door.guests.enter();
        let peer = format!("{peer} {}", entry.number());
        let (inbox, answer) = (vec![0; HEAD_BYTES], Vec::new());
        Ok(Client { wire: Wire { stream, door }, entry, peer, inbox, filled: 0, answer, head_only: false })
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
            End::Refused(refusal) => self.wire.send(&refusal.into_bytes(self.head_only)),
        };
        if said.is_ok() {
            self.wire.linger(&mut self.inbox);
        }
    }

    fn serve_one(&mut self) -> Result<(), End> {
        self.head_only = false;
        self.wait_for_request()?;
        let mut head = self.read_head()?;
        self.head_only = head.head_only;
        if let Some(reply) = self.wire.door.guard.refusal(&head) {
            return self.turn_away(head, reply);
        }
        let (request, share) = self.read_body(&mut head)?;
        let (wire, guest) = (&self.wire, self.entry.guest());
        guest.set_body(Some(share));
        let look_up = || {
            if wire.is_closed() {
                guest.leave();
            }
        };
        let (pool, time) = (&wire.door.pool, wire.door.limits.handler_time);
        let exchanged = pool.exchange(request, head.head_only, time, &look_up, &mut self.answer);
        guest.set_body(None);
        exchanged?;
        self.send_answer(&head)
    }

    /// Waits for the first byte, for as long as an idle client may.
    fn wait_for_request(&mut self) -> Result<(), End> {
        if self.filled > 0 {
            return Ok(());
        }
        let began = Instant::now();
        self.filled = self.wire.receive(&mut self.inbox)?;
        if self.filled > 0 {
            return Ok(());
        }
        // Not a moment between two requests, but idle: looks up less often, and the door wakes it when it closes.
        self.entry.guest().set_idle(Some(&self.wire.stream));
        while self.filled == 0 {
            let Wire { stream, door } = &self.wire;
            let limits = &door.limits;
            let patience = if door.seats.is_crowded() { limits.idle_time_crowded } else { limits.idle_time };
            let left = patience.saturating_sub(began.elapsed());
            if door.closing.load(Relaxed) || left.is_zero() {
                return Err(End::Silent);
            }
            // It may have to make room when it gets crowded.
            stream.set_read_timeout(Some(limits.idle_time_crowded.min(left).max(SHORT_TICK)))?;
            self.filled = self.wire.receive(&mut self.inbox)?;
        }
        self.entry.guest().set_idle(None);
        Ok(self.wire.stream.set_read_timeout(Some(TICK))?)
    }

    fn read_head(&mut self) -> Result<Head, End> {
        let limits = &self.wire.door.limits;
        let deadline = Instant::now() + limits.head_time;
        let mut seen = 0;
        loop {
            let bytes = &self.inbox[..self.filled];
            let end = head::find_end(bytes, seen)?;
            // The first look refuses what is no HTTP/1 at all (TLS, HTTP/2) without waiting for the rest of it.
            if end.is_some() || seen == 0 {
                match head::parse(bytes, &self.peer, limits.body)? {
                    Some(head) if end == Some(head.size) => return Ok(head),
                    None if end.is_none() => {}
                    _ => return Err(Refusal { status: 400, detail: "the end of the head is unclear" }.into()),
                }
            }
            seen = self.filled;
            if Instant::now() >= deadline {
                return Err(Refusal { status: 408, detail: "the request's head did not arrive in time" }.into());
            }
            self.filled += self.wire.receive(&mut self.inbox[self.filled..])?;
        }
    }

    /// The whole request as it goes to tiny_http, with its share of the bytes in flight. Bytes after it wait their turn.
    fn read_body(&mut self, head: &mut Head) -> Result<(Vec<u8>, Share), End> {
        let door = &self.wire.door;
        let began = Instant::now();
        let here = head.body.min(self.filled - head.size);
        let used = head.size + here;
        let mut request = std::mem::take(&mut head.forward);
        let start = request.len();
        request.extend_from_slice(&self.inbox[head.size..used]);
        self.inbox.copy_within(used..self.filled, 0);
        self.filled -= used;
        if head.expects_continue && here < head.body {
            self.wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")?;
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
            read += self.wire.receive(&mut request[start + read..])?;
        }
    }

    /// Answers without looking at the body, and without a handler. The connection goes on if nothing of it is still to come.
    fn turn_away(&mut self, mut head: Head, reply: Reply) -> Result<(), End> {
        let used = head.size + head.body;
        if used <= self.filled {
            self.inbox.copy_within(used..self.filled, 0);
            self.filled -= used;
        } else {
            head.keep_alive = false;
        }
        reply.print(HTTPVersion(1, 0), head.head_only, &mut self.answer);
        self.send_answer(&head)
    }

    fn send_answer(&mut self, head: &Head) -> Result<(), End> {
        let version = self.answer.get_mut(..8).filter(|version| *version == b"HTTP/1.0");
        let version = version.ok_or(Refusal { status: 502, detail: "the service's answer was not understood" })?;
        version.copy_from_slice(b"HTTP/1.1");
        let keep_alive = head.keep_alive && !self.wire.door.closing.load(Relaxed);
        if !keep_alive {
            set_connection(&mut self.answer, "close");
        } else if head.is_old {
            set_connection(&mut self.answer, "keep-alive");
        }
        self.wire.send(&self.answer)?;
        self.answer.clear();
        self.answer.shrink_to(KEPT_ANSWER);
        if keep_alive { Ok(()) } else { Err(End::Answered) }
    }
}

/// The client's socket, whose calls come back at least every tick.
struct Wire {
    stream: Arc<TcpStream>,
    door: Arc<Door>,
}

impl Wire {
    /// One read: the number of bytes that came, 0 after a tick without any.
    fn receive(&self, into: &mut [u8]) -> Result<usize, End> {
        if self.door.cut.load(Relaxed) {
            return Err(End::Silent);
        }
        match (&*self.stream).read(into) {
            Ok(0) => Err(End::Silent),
            Ok(n) => Ok(n),
            Err(e) if is_tick(&e) => Ok(0),
            Err(_) => Err(End::Silent),
        }
    }

    /// Whether the client has closed its sending side, which is all there is to see of one that has gone.
    fn is_closed(&self) -> bool {
        let waiting = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let closed = match waiting {
            Ok(n) => n == 0,
            Err(e) => !is_tick(&e),
        };
        // In any case back to blocking: who only closed its sending side still gets its answer.
        self.stream.set_nonblocking(false).is_err() || closed
    }

    fn send(&self, mut bytes: &[u8]) -> Result<(), End> {
        let deadline = Instant::now() + self.door.limits.write_time;
        loop {
            match (&*self.stream).write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if is_tick(&e) => {}
                Err(_) => return Err(End::Silent),
            }
            if bytes.is_empty() {
                return Ok(());
            }
            if self.door.cut.load(Relaxed) || Instant::now() >= deadline {
                return Err(End::Silent);
            }
        }
    }

    /// After the last answer: reads on for a moment, because closing a socket with unread bytes resets it, and the
    /// client might lose the answer.
    fn linger(&self, scrap: &mut [u8]) {
        let deadline = Instant::now() + LINGER_TIME;
        let mut thrown_away = 0;
        if self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        while thrown_away < LINGER_BYTES && Instant::now() < deadline {
            match self.receive(scrap) {
                Ok(0) if self.door.closing.load(Relaxed) => return,
                Ok(n) => thrown_away += n,
                Err(_) => return,
            }
        }
    }
}
