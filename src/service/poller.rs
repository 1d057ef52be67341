//! The poller: finds QUEUED rows that are not in flight (a recovered backlog, rows whose INSERT was committed and whose answer was
//! lost, another instance's) and RUNNING rows whose lease has expired, and queues them as permits come free. The database is
//! the queue; the channel is only its head.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::shared::Shared;
use crate::limits::{POLL_AGE, POLL_INTERVAL, POLL_ROWS};
use crate::log::{self, Bounded};
use crate::store::StoreError;
use crate::task::TaskId;

/// What was found and waits for permits.
struct Poller<'a> {
    shared: &'a Arc<Shared>,
    /// What the last look found expired; the next look replaces it, so that a task is in here once.
    expired: VecDeque<TaskId>,
    backlog: VecDeque<TaskId>,
    /// The next look for QUEUED rows begins behind this number; -1: at the oldest.
    after: i64,
}

/// Polls until the shutdown begins.
pub(super) fn run(shared: &Arc<Shared>) {
    let trouble = Bounded::new();
    let mut poller = Poller { shared, expired: VecDeque::new(), backlog: VecDeque::new(), after: -1 };
    while !shared.shutdown.has_begun() {
        let next_look = Instant::now() + POLL_INTERVAL;
        if let Err(error) = poller.look() {
            trouble.line(format_args!("looking for tasks: {error}"));
        }
        let found = !poller.backlog.is_empty();
        poller.queue(next_look);
        // Behind what was queued there may be more. Where all was in flight already, there is time.
        let go_on = found && poller.backlog.is_empty() && poller.after >= 0;
        if !go_on {
            shared.shutdown.pause(next_look.saturating_duration_since(Instant::now()));
        }
    }
}

impl Poller<'_> {
    /// Looks for tasks: expired ones at every look and first, however many wait.
    fn look(&mut self) -> Result<(), StoreError> {
        let reaped = self.reap_expired();
        self.expired = self.shared.store.expired(POLL_ROWS)?.into();
        if self.backlog.is_empty() {
            let found = self.shared.store.queued_after(self.after, POLL_ROWS, POLL_AGE)?;
            let more = found.len() as i64 == POLL_ROWS;
            // Where the look was full, the next one goes on behind it: no row is read again and again.
            self.after = found.last().and_then(TaskId::number).filter(|_| more).unwrap_or(-1);
            self.backlog.extend(found);
            // What its submitter has queued already is no backlog.
            self.backlog.retain(|id| !self.shared.in_flight.has(id));
        }
        // A row that cannot be ended keeps no other one from being found.
        reaped
    }

    /// Ends the tasks that no owner may run again.
    fn reap_expired(&self) -> Result<(), StoreError> {
        for (id, status) in self.shared.store.settle_expired()? {
            log::line(format_args!("{id} is {status}: its owners are gone, and it is not run again"));
        }
        Ok(())
    }

    /// Queues what was found, each task when there is a permit for it, until the next look is due.
    fn queue(&mut self, next_look: Instant) {
        while let Some(id) = self.expired.front().or(self.backlog.front()) {
            self.shared.backlog.store(self.backlog.len(), Ordering::Relaxed);
            if self.shared.shutdown.has_begun() {
                return;
            }
            if !self.shared.in_flight.has(id) {
                let Some(permit) = self.shared.permits.acquire(1, next_look) else { return };
                if let Some(job) = self.shared.in_flight.take(id, permit) {
                    self.shared.queue.send(job);
                }
            }
            let _ = self.expired.pop_front().or_else(|| self.backlog.pop_front());
        }
        self.shared.backlog.store(0, Ordering::Relaxed);
    }
}
