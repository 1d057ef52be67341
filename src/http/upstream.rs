//! The connections behind the door: Unix sockets to tiny_http, one exchange at a time on each. Must never carry two
//! requests at once, never be used again when out of step, and never be opened two at a time: tiny_http can lose
//! connections that arrive together.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::reply::Refusal;
use super::server::give_up;
use crate::limits::{
    HEAD_BYTES, HEAD_FIELDS, LONG_TICK, PING_TIME, PINGS_LOST, REPLY_BYTES, SHORT_TICK, TICK, UPSTREAM_WAIT,
};
use crate::{files, lock};

/// A request without a peer: the crew answers it before any handler sees it.
const PING: &[u8] = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
/// First size of an answer's buffer, bytes: most answers arrive in one read.
const ANSWER_BYTES: usize = 4096;

/// The connections that are free, and the right to open one more. There are never more in use than clients.
pub struct Pool {
    path: PathBuf,
    /// Set when nobody waits for answers any more.
    cut: Arc<AtomicBool>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The most recently used at the back, where it is taken: those nobody needs gather at the front.
    free: VecDeque<Upstream>,
    /// All that were opened, for who wants to end them; some are closed already.
    open: Vec<Weak<UnixStream>>,
    opening: bool,
    pings_lost: u32,
}

struct Upstream {
    stream: Arc<UnixStream>,
    used: Instant,
    /// The socket's read timeout.
    tick: Duration,
}

impl Pool {
    /// A pool with one connection, proved by a ping: the whole way to the crew and back works.
    pub fn start(path: PathBuf, cut: Arc<AtomicBool>) -> io::Result<Pool> {
        let state = State { free: VecDeque::new(), open: Vec::new(), opening: false, pings_lost: 0 };
        let pool = Pool { path, cut, state: Mutex::new(state), changed: Condvar::new() };
        let first = pool.open()?;
        lock(&pool.state).free.push_back(first);
        Ok(pool)
    }

    /// Carries one request to the crew and its answer back: HTTP/1.0, whole, with its length. Calls `look_up` at every
    /// tick that the answer is waited for; the longer that takes, the longer the ticks.
    pub fn exchange(
        &self,
        request: Vec<u8>,
        head_only: bool,
        time: Duration,
        look_up: &dyn Fn(),
        answer: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let mut upstream = self.take()?;
        let patience = Patience { deadline: Instant::now() + time, cut: &self.cut, look_up };
        let sent = upstream.send(&request, &patience);
        // The answer may be long in coming, and the request large.
        drop(request);
        match sent.and_then(|()| upstream.receive(head_only, &patience, answer)) {
            Ok(()) => {
                upstream.used = Instant::now();
                lock(&self.state).free.push_back(upstream);
                self.changed.notify_one();
                Ok(())
            }
            // Out of step: dropped, and replaced when somebody needs it.
            Err(e) => Err(match e.kind() {
                ErrorKind::TimedOut => Refusal {
                    status: 504,
                    detail: "the service did not answer in time; whether the request took effect is unknown",
                },
                ErrorKind::ConnectionAborted => Refusal {
                    status: 503,
                    detail: "the service is shutting down; whether the request took effect is unknown",
                },
                _ => Refusal { status: 502, detail: "the service lost the request; whether it took effect is unknown" },
            }),
        }
    }

    /// Nobody waits for answers any more: who does is woken.
    pub fn cut_off(&self) {
        self.cut.store(true, Relaxed);
        for stream in lock(&self.state).open.iter().filter_map(Weak::upgrade) {
            // Fails when the other side has gone, which wakes its reader as well.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Closes the connections unused for this long; whether there were any.
    pub fn trim(&self, unused: Duration) -> bool {
        let mut state = lock(&self.state);
        let before = state.free.len();
        while state.free.front().is_some_and(|upstream| upstream.used.elapsed() >= unused) {
            state.free.pop_front();
        }
        state.free.len() < before
    }

    fn take(&self) -> Result<Upstream, Refusal> {
        let deadline = Instant::now() + UPSTREAM_WAIT;
        let mut state = lock(&self.state);
        loop {
            if let Some(upstream) = state.free.pop_back() {
                return Ok(upstream);
            }
            if !state.opening {
                state.opening = true;
                drop(state);
                let opened = self.open();
                lock(&self.state).opening = false;
                self.changed.notify_one();
                return opened.map_err(|_| Refusal { status: 503, detail: "the service cannot take one more request" });
            }
            if Instant::now() >= deadline || self.cut.load(Relaxed) {
                return Err(Refusal { status: 503, detail: "too many requests arrived at once" });
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
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
        let stream = Arc::new(stream);
        {
            let mut state = lock(&self.state);
            state.open.retain(|stream| stream.strong_count() > 0);
            state.open.push(Arc::downgrade(&stream));
        }
        let mut upstream = Upstream { stream, used: Instant::now(), tick: TICK };
        let patience = Patience { deadline: Instant::now() + PING_TIME, cut: &self.cut, look_up: &|| {} };
        let answered = upstream.send(PING, &patience);
        let answered = answered.and_then(|()| upstream.receive(false, &patience, &mut Vec::new()));
        let mut state = lock(&self.state);
        state.pings_lost = if answered.is_ok() || self.cut.load(Relaxed) { 0 } else { state.pings_lost + 1 };
        if state.pings_lost >= PINGS_LOST {
            give_up(format_args!("tiny_http answers no pings any more: {answered:?}"));
        }
        answered.map(|()| upstream)
    }
}

/// How long an exchange goes on, and what is done meanwhile.
struct Patience<'a> {
    deadline: Instant,
    cut: &'a AtomicBool,
    look_up: &'a dyn Fn(),
}

impl Patience<'_> {
    /// After a socket call that moved nothing: 0 bytes when it may be tried again.
    fn go_on(&self, e: io::Error) -> io::Result<usize> {
        if self.cut.load(Relaxed) {
            Err(ErrorKind::ConnectionAborted.into())
        } else if !is_tick(&e) {
            Err(e)
        } else if Instant::now() >= self.deadline {
            Err(ErrorKind::TimedOut.into())
        } else {
            (self.look_up)();
            Ok(0)
        }
    }
}

impl Upstream {
    /// Sends one request.
    fn send(&mut self, request: &[u8], patience: &Patience) -> io::Result<()> {
        let mut sent = 0;
        while sent < request.len() {
            sent += (&*self.stream).write(&request[sent..]).or_else(|e| patience.go_on(e))?;
        }
        Ok(())
    }

    /// Reads the whole answer, and nothing after it.
    fn receive(&mut self, head_only: bool, patience: &Patience, answer: &mut Vec<u8>) -> io::Result<()> {
        self.set_tick(TICK)?;
        answer.clear();
        answer.resize(ANSWER_BYTES, 0);
        let (mut filled, mut total) = (0, None);
        while total.is_none_or(|total| filled < total) {
            let read = match (&*self.stream).read(&mut answer[filled..]) {
                Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            filled += match read {
                Ok(read) => read,
                Err(e) => {
                    let nothing = patience.go_on(e)?;
                    let left = patience.deadline.saturating_duration_since(Instant::now());
                    self.set_tick(LONG_TICK.min(2 * self.tick).min(left).max(SHORT_TICK))?;
                    nothing
                }
            };
            if total.is_none() {
                total = answer_length(&answer[..filled], head_only)?;
                answer.resize(total.unwrap_or(filled + ANSWER_BYTES).max(filled), 0);
            }
        }
        if total == Some(filled) { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
    }

    fn set_tick(&mut self, tick: Duration) -> io::Result<()> {
        if tick != self.tick {
            self.stream.set_read_timeout(Some(tick))?;
            self.tick = tick;
        }
        Ok(())
    }
}

/// Length of the whole answer that begins with these bytes; None when its head is not complete.
fn answer_length(bytes: &[u8], head_only: bool) -> io::Result<Option<usize>> {
    let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let head = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES => return Ok(None),
        _ => return Err(ErrorKind::InvalidData.into()),
    };
    let length = response.headers.iter().find(|field| field.name.eq_ignore_ascii_case("Content-Length"));
    let length = length.and_then(|field| std::str::from_utf8(field.value).ok()?.parse::<usize>().ok());
    match length {
        Some(_) if head_only || matches!(response.code, Some(204 | 304)) => Ok(Some(head)),
        Some(length) if length <= REPLY_BYTES => Ok(Some(head + length)),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// Whether a socket call came back only to have its deadline looked at.
pub(super) fn is_tick(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
