//! The feeder: finds QUEUED rows that nobody holds — a recovered backlog, rows whose INSERT was committed but whose answer
//! was lost, another instance's — and RUNNING rows whose lease has expired, and hands them to the workers as permits free
//! up. The database is the queue; the channel is only its head.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Shared;
use crate::limits::{FEED_AGE, FEED_INTERVAL, FEED_ROWS};
use crate::log::{self, Bounded};
use crate::store::StoreError;
use crate::task::TaskId;

/// What was found and waits for permits.
struct Feeder<'a> {
    shared: &'a Arc<Shared>,
    /// What the last look found expired. The next one finds what is still so: kept apart, it is in here once.
    expired: VecDeque<TaskId>,
    backlog: VecDeque<TaskId>,
    /// The next look for QUEUED rows begins behind this number; -1: at the oldest.
    after: i64,
}

/// Feeds the workers until the drain begins.
pub(super) fn run(shared: &Arc<Shared>) {
    let trouble = Bounded::new();
    let mut feeder = Feeder { shared, expired: VecDeque::new(), backlog: VecDeque::new(), after: -1 };
    while !shared.drain.begun() {
        let next_look = Instant::now() + FEED_INTERVAL;
        if let Err(error) = feeder.look() {
            trouble.line(format_args!("looking for tasks: {error}"));
        }
        let found = !feeder.backlog.is_empty();
        feeder.hand_on(next_look);
        // Behind what was handed on there may be more. Where all was in hand already, there is time.
        let go_on = found && feeder.backlog.is_empty() && feeder.after >= 0;
        if !go_on {
            shared.drain.pause(next_look.saturating_duration_since(Instant::now()));
        }
    }
}

impl Feeder<'_> {
    /// Looks for tasks: expired ones at every look and first, however many wait.
    fn look(&mut self) -> Result<(), StoreError> {
        let settled = self.settle();
        self.expired = self.shared.store.expired(FEED_ROWS)?.into();
        if self.backlog.is_empty() {
            let found = self.shared.store.queued_after(self.after, FEED_ROWS, FEED_AGE)?;
            let more = found.len() as i64 == FEED_ROWS;
            // Where the look was full, the next one goes on behind it: what was seen is not read again and again.
            self.after = found.last().and_then(TaskId::number).filter(|_| more).unwrap_or(-1);
            self.backlog.extend(found);
            // What a submitter has brought to the channel already is no backlog.
            self.backlog.retain(|id| !self.shared.held.has(id));
        }
        // A row that cannot be ended keeps no other one from being found.
        settled
    }

    /// Ends what no owner may run again.
    fn settle(&self) -> Result<(), StoreError> {
        for (id, status) in self.shared.store.settle_expired()? {
            log::line(format_args!("{id} is {status}: its owners are gone, and it is not run again"));
        }
        Ok(())
    }

    /// Hands tasks on, each when there is a permit for it, until the next look is due.
    fn hand_on(&mut self, next_look: Instant) {
        while let Some(id) = self.expired.front().or(self.backlog.front()) {
            self.shared.backlog.store(self.backlog.len(), Ordering::Relaxed);
            if self.shared.drain.begun() {
                return;
            }
            if !self.shared.held.has(id) {
                let left = next_look.saturating_duration_since(Instant::now());
                let Some(permit) = self.shared.admission.wait(left) else { return };
                if let Some(hold) = self.shared.held.take(id, permit) {
                    self.shared.handoff.send(hold);
                }
            }
            let _ = self.expired.pop_front().or_else(|| self.backlog.pop_front());
        }
        self.shared.backlog.store(0, Ordering::Relaxed);
    }
}
