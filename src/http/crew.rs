//! The crew: threads that take requests off tiny_http and hand them to the handler. Whoever takes a request and leaves
//! nobody waiting hires a colleague first, so that a request never waits for another one's handler. Must never lose a
//! thread to a panic, and never let a request sit while there is room for one more thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use super::guest::Guests;
use super::server::{Handler, give_up};
use crate::limits::{CREW_MIN, CREW_PERIOD, HTTP_STACK, TICK};
use crate::{lock, log};

/// The handler threads of one server.
pub struct Crew {
    team: Arc<Team>,
}

struct Team {
    name: &'static str,
    /// Weak, so that a handler that never returns does not keep tiny_http, its thread and its socket alive.
    tiny: Weak<tiny_http::Server>,
    handler: Handler,
    guests: Arc<Guests>,
    cap: usize,
    period: Duration,
    roll: Mutex<Roll>,
    left: Condvar,
    hiring_failed: log::Bounded,
}

/// Who is there, and who was needed.
struct Roll {
    threads: usize,
    /// Threads with a request; the others wait for one.
    busy: usize,
    /// The most that were busy at once in this period.
    most_busy: usize,
    period_began: Instant,
    /// Threads to retire: those the last period did not need.
    surplus: usize,
    closing: bool,
}

impl Crew {
    /// Starts [`CREW_MIN`] threads that take requests off `tiny`; there will be at most `cap` of them.
    pub fn start(
        name: &'static str,
        tiny: &Arc<tiny_http::Server>,
        handler: Handler,
        guests: Arc<Guests>,
        cap: usize,
    ) -> Crew {
        Self::start_with_period(name, tiny, handler, guests, cap, CREW_PERIOD)
    }

    fn start_with_period(
        name: &'static str,
        tiny: &Arc<tiny_http::Server>,
        handler: Handler,
        guests: Arc<Guests>,
        cap: usize,
        period: Duration,
    ) -> Crew {
        let roll = Roll { threads: 0, busy: 0, most_busy: 0, period_began: Instant::now(), surplus: 0, closing: false };
        let team = Team {
            name,
            tiny: Arc::downgrade(tiny),
            handler,
            guests,
            cap,
            period,
            roll: Mutex::new(roll),
            left: Condvar::new(),
            hiring_failed: log::Bounded::new(),
        };
        let crew = Crew { team: Arc::new(team) };
        for _ in 0..CREW_MIN.min(cap) {
            Team::hire(&crew.team);
        }
        crew
    }

    /// Sends everybody home: those who wait at once, the others when their handler returns. Waits for them until the
    /// deadline and returns how many are still busy; they leave by themselves.
    pub fn close(&self, deadline: Instant) -> usize {
        let mut roll = lock(&self.team.roll);
        roll.closing = true;
        if let Some(tiny) = self.team.tiny.upgrade() {
            // Each wakes one waiting thread; one too many stays in the queue and harms nobody.
            (0..roll.threads).for_each(|_| tiny.unblock());
        }
        loop {
            let patience = deadline.saturating_duration_since(Instant::now());
            if roll.threads == 0 || patience.is_zero() {
                return roll.threads;
            }
            roll = self.team.left.wait_timeout(roll, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.close(Instant::now() + TICK);
    }
}

impl Team {
    /// One more thread, if there is room.
    fn hire(self: &Arc<Self>) {
        {
            let mut roll = lock(&self.roll);
            if roll.threads >= self.cap || roll.closing {
                return;
            }
            roll.threads += 1;
        }
        let team = Arc::clone(self);
        let thread = thread::Builder::new().name(format!("{}-crew", self.name)).stack_size(HTTP_STACK);
        if let Err(e) = thread.spawn(move || team.work()) {
            lock(&self.roll).threads -= 1;
            self.hiring_failed.line(format_args!("{}: no thread for another handler: {e}", self.name));
        }
    }

    fn work(self: Arc<Self>) {
        while let Some(tiny) = self.stay() {
            let taken = tiny.recv_timeout(self.period);
            drop(tiny);
            match taken {
                Ok(Some(request)) => {
                    if self.nobody_else_waits() {
                        self.hire();
                    }
                    self.attend(request);
                    lock(&self.roll).busy -= 1;
                }
                // A period without a request, or woken to leave: stay knows.
                Ok(None) => {}
                Err(e) => give_up(format_args!("{}: tiny_http accepts no connections any more: {e}", self.name)),
            }
        }
    }

    /// Where to wait for a request; None when this thread is to leave. One that leaves never holds tiny_http: who waits
    /// for the last to leave must be its only owner then.
    fn stay(&self) -> Option<Arc<tiny_http::Server>> {
        let mut roll = lock(&self.roll);
        if roll.period_began.elapsed() >= self.period {
            roll.surplus = roll.threads.saturating_sub(roll.most_busy + CREW_MIN);
            roll.most_busy = roll.busy;
            roll.period_began = Instant::now();
        }
        let retires = roll.surplus > 0 && roll.threads - roll.busy > CREW_MIN;
        let tiny = if retires || roll.closing { None } else { self.tiny.upgrade() };
        if tiny.is_none() {
            roll.surplus = roll.surplus.saturating_sub(1);
            roll.threads -= 1;
            self.left.notify_all();
        }
        tiny
    }

    /// Counts this thread as busy; true when that leaves nobody for the next request.
    fn nobody_else_waits(&self) -> bool {
        let mut roll = lock(&self.roll);
        roll.busy += 1;
        roll.most_busy = roll.most_busy.max(roll.busy);
        roll.busy == roll.threads
    }

    fn attend(&self, request: tiny_http::Request) {
        // Nothing of ours is left half-done by a panic: the exchange answers 500 while it unwinds, and the panic hook
        // has said on stderr what happened.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some(exchange) = Exchange::receive(request, &self.guests) {
                (self.handler)(exchange);
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use crossbeam_channel::{bounded, unbounded};

    use super::*;
    use crate::http::exchange::GUEST_FIELD;
    use crate::http::guest::tests::{TERMS, enter};
    use crate::http::private_dir::PrivateDir;
    use crate::http::quota::Quota;
    use crate::http::reply::Terms;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_crew_grows_with_its_work_to_its_cap_and_shrinks_after_it() {
        let dir = PrivateDir::create().expect("a directory");
        let listener = UnixListener::bind(dir.socket()).expect("a socket");
        let tiny = Arc::new(tiny_http::Server::from_listener(listener, None).expect("tiny_http"));
        let (entering, entered) = unbounded();
        let (gate, opened) = bounded::<()>(0);
        let handler = move |exchange: Exchange| {
            entering.send(()).expect("the test listens");
            // An error is what opens the gate.
            let _ = opened.recv();
            drop(exchange);
        };
        let cap = CREW_MIN + 8;
        let (guests, quota) = (Arc::<Guests>::default(), Quota::new(0));
        let period = Duration::from_millis(20);
        let crew = Crew::start_with_period("test", &tiny, Arc::new(handler), Arc::clone(&guests), cap, period);
        let threads = || lock(&crew.team.roll).threads;
        // One more request than there may be threads. They come one at a time, so that tiny_http loses none.
        let mut clients = Vec::new();
        for n in 0..=cap {
            let (entry, client) = enter(&guests);
            entry.guest().ask(Terms { keep_alive: false, ..TERMS }, quota.nothing());
            let mut upstream = UnixStream::connect(dir.socket()).expect("a connection");
            let request = format!("GET / HTTP/1.0\r\n{GUEST_FIELD}: {}\r\n\r\n", entry.number());
            upstream.write_all(request.as_bytes()).expect("a request");
            clients.push((entry, client));
            let came = entered.recv_timeout(if n < cap { PATIENCE } else { Duration::from_millis(100) });
            assert_eq!(came.is_ok(), n < cap, "request {n}");
        }
        assert_eq!(threads(), cap);
        drop(gate);
        for (_, client) in &mut clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        }
        let began = Instant::now();
        while threads() > CREW_MIN {
            assert!(began.elapsed() < PATIENCE, "{} threads stay", threads());
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(crew.close(Instant::now() + PATIENCE), 0);
        assert_eq!(threads(), 0);
        assert_eq!(Arc::strong_count(&tiny), 1);
    }
}
