//! The connections behind the door: Unix sockets to tiny_http, which carry one whole request after the other. Must never
//! mix two requests, never be used again after half of one, and never be opened two at a time: tiny_http can lose
//! connections that arrive together.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::closing::Closing;
use super::reply::Refusal;
use super::server::give_up;
use super::wire::is_tick;
use crate::files;
use crate::limits::{PING_TIME, PINGS_LOST, TICK, UPSTREAM_WAIT};

/// A request of nobody: the crew answers it here, before any handler sees it.
const PING: &[u8] = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
/// The connections that are free, and the right to open one more. There are only as many as requests that were on their way
/// at once: what comes back does not come here.
pub struct Pool {
    path: PathBuf,
    closing: Arc<Closing>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The most recently used at the back, where it is taken: those nobody needs gather at the front.
    free: VecDeque<Upstream>,
    opening: bool,
    pings_lost: u32,
}

struct Upstream {
    stream: UnixStream,
    used: Instant,
}

impl Pool {
    /// A pool with one connection, proved by a ping: the whole way to the crew and back works.
    pub fn start(path: PathBuf, closing: Arc<Closing>) -> io::Result<Pool> {
        let state = State { free: VecDeque::new(), opening: false, pings_lost: 0 };
        let pool = Pool { path, closing, state: Mutex::new(state), changed: Condvar::new() };
        let first = pool.open()?;
        pool.state.lock().free.push_back(first);
        Ok(pool)
    }

    /// Carries one whole request to the crew, until the deadline at the latest.
    pub fn send(&self, request: &[u8], deadline: Instant) -> Result<(), Refusal> {
        let mut upstream = self.take()?;
        match upstream.send(request, deadline, &self.closing) {
            Ok(()) => {
                upstream.used = Instant::now();
                self.state.lock().free.push_back(upstream);
                self.changed.notify_one();
                Ok(())
            }
            // Half a request is on it: dropped, and replaced when somebody needs it.
            Err(e) => Err(match e.kind() {
                ErrorKind::TimedOut => Refusal { status: 503, detail: "the service did not take the request in time" },
                ErrorKind::ConnectionAborted => Refusal { status: 503, detail: "the service is shutting down" },
                _ => Refusal { status: 502, detail: "the service lost the request; whether it took effect is unknown" },
            }),
        }
    }

    /// Closes the connections unused for this long; whether there were any.
    pub fn trim(&self, unused: Duration) -> bool {
        let mut state = self.state.lock();
        let before = state.free.len();
        while state.free.front().is_some_and(|upstream| upstream.used.elapsed() >= unused) {
            state.free.pop_front();
        }
        state.free.len() < before
    }

    fn take(&self) -> Result<Upstream, Refusal> {
        let deadline = Instant::now() + UPSTREAM_WAIT;
        let mut state = self.state.lock();
        loop {
            if let Some(upstream) = state.free.pop_back() {
                return Ok(upstream);
            }
            if !state.opening {
                state.opening = true;
                drop(state);
                let opened = self.open();
                self.state.lock().opening = false;
                self.changed.notify_one();
                return opened.map_err(|_| Refusal { status: 503, detail: "the service cannot take one more request" });
            }
            if Instant::now() >= deadline || self.closing.is_cut() {
                return Err(Refusal { status: 503, detail: "too many requests arrived at once" });
            }
            self.changed.wait_for(&mut state, TICK);
        }
    }

    /// One more connection, if there are files for it: without, tiny_http's accepting thread would die.
    fn open(&self) -> io::Result<Upstream> {
        files::with_enough(|| self.connect())
    }

    /// Only a new process helps when tiny_http does not take a connection, and only then.
    fn connect(&self) -> io::Result<Upstream> {
        let stream = match UnixStream::connect(&self.path) {
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
                give_up(format_args!("tiny_http accepts no connections at {} any more: {e}", self.path.display()))
            }
            connected => connected?,
        };
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        let mut upstream = Upstream { stream, used: Instant::now() };
        let answered = upstream.ping(Instant::now() + PING_TIME, &self.closing);
        let mut state = self.state.lock();
        state.pings_lost = if answered.is_ok() || self.closing.is_cut() { 0 } else { state.pings_lost + 1 };
        if state.pings_lost >= PINGS_LOST {
            give_up(format_args!("tiny_http answers no pings any more: {answered:?}"));
        }
        answered.map(|()| upstream)
    }
}

impl Upstream {
    /// Sends one request.
    fn send(&mut self, request: &[u8], deadline: Instant, closing: &Closing) -> io::Result<()> {
        let mut sent = 0;
        while sent < request.len() {
            sent += self.stream.write(&request[sent..]).or_else(|e| go_on(e, deadline, closing))?;
        }
        Ok(())
    }

    /// Proves the whole way to the crew. The answer to a ping is a head, and the last that is ever read here.
    fn ping(&mut self, deadline: Instant, closing: &Closing) -> io::Result<()> {
        self.send(PING, deadline, closing)?;
        let (mut answer, mut piece) = (Vec::new(), [0; 512]);
        while !answer.ends_with(b"\r\n\r\n") {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => answer.extend_from_slice(&piece[..n]),
                Err(e) => drop(go_on(e, deadline, closing)?),
            }
        }
        if answer.starts_with(b"HTTP/1.0 204 ") { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
    }
}

/// After a socket call that moved nothing: 0 bytes when it may be tried again.
fn go_on(e: io::Error, deadline: Instant, closing: &Closing) -> io::Result<usize> {
    if closing.is_cut() {
        Err(ErrorKind::ConnectionAborted.into())
    } else if !is_tick(&e) {
        Err(e)
    } else if Instant::now() >= deadline {
        Err(ErrorKind::TimedOut.into())
    } else {
        Ok(0)
    }
}

#[cfg(test)]
mod tests;
