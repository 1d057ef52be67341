//! The crew: threads that take requests off tiny_http and hand them to the handler. Whoever takes a request and leaves
//! nobody waiting hires a colleague first, so that a request never waits for another one's handler. Must never lose a
//! thread to a panic, and never let a request sit while there is room for one more thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::exchange::Exchange;
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
    cap: usize,
    period: Duration,
    roll: Mutex<Roll>,
    left: Condvar,
    hiring_failed: log::Bounded,
}

/// Who is there, and who was needed.
struct Roll {
    threads: usize,
    /// Threads waiting for a request.
    idle: usize,
    /// The fewest that ever waited at once in this period: so many were not needed.
    fewest_idle: usize,
    period_began: Instant,
    /// Threads to retire, found at the end of the last period.
    surplus: usize,
    closing: bool,
}

impl Crew {
    /// Starts [`CREW_MIN`] threads that take requests off `tiny`; there will be at most `cap` of them.
    pub fn start(name: &'static str, tiny: &Arc<tiny_http::Server>, handler: Handler, cap: usize) -> Crew {
        Self::start_with_period(name, tiny, handler, cap, CREW_PERIOD)
    }

    fn start_with_period(
        name: &'static str,
        tiny: &Arc<tiny_http::Server>,
        handler: Handler,
        cap: usize,
        period: Duration,
    ) -> Crew {
        let roll =
            Roll { threads: 0, idle: 0, fewest_idle: 0, period_began: Instant::now(), surplus: 0, closing: false };
        let team = Team {
            name,
            tiny: Arc::downgrade(tiny),
            handler,
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
        while let Some(tiny) = self.sit_down() {
            let taken = tiny.recv_timeout(self.period);
            drop(tiny);
            let nobody_waits = self.stand_up();
            match taken {
                Ok(Some(request)) => {
                    if nobody_waits {
                        self.hire();
                    }
                    self.attend(request);
                }
                // A period without a request, or woken to leave: sit_down knows.
                Ok(None) => {}
                Err(e) => give_up(format_args!("{}: tiny_http accepts no connections any more: {e}", self.name)),
            }
        }
    }

    /// Where to wait for a request; None when this thread is to leave. One that leaves never holds tiny_http: who waits
    /// for the last to leave must be its only owner then.
    fn sit_down(&self) -> Option<Arc<tiny_http::Server>> {
        let mut roll = lock(&self.roll);
        if roll.period_began.elapsed() >= self.period {
            roll.surplus = roll.fewest_idle.saturating_sub(CREW_MIN);
            roll.fewest_idle = roll.idle;
            roll.period_began = Instant::now();
        }
        let stays = !roll.closing && roll.surplus == 0;
        let tiny = if stays { self.tiny.upgrade() } else { None };
        if tiny.is_some() {
            roll.idle += 1;
        } else {
            roll.surplus = roll.surplus.saturating_sub(1);
            roll.threads -= 1;
            self.left.notify_all();
        }
        tiny
    }

    /// After waiting; true when nobody else waits.
    fn stand_up(&self) -> bool {
        let mut roll = lock(&self.roll);
        roll.idle -= 1;
        roll.fewest_idle = roll.fewest_idle.min(roll.idle);
        roll.idle == 0
    }

    fn attend(&self, request: tiny_http::Request) {
        // Nothing of ours is left half-done by a panic: the exchange answers 500 while it unwinds, and the panic hook
        // has said on stderr what happened.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if let Some(exchange) = Exchange::receive(request) {
                (self.handler)(exchange);
            }
        }));
    }
}
