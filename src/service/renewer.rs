//! The renewer: keeps the leases of the tasks in hand, all in one statement. Where a lease is lost, or cannot be known to
//! hold, its analysis is told to stop and its result is not written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use crate::limits::{CANCEL_LOOK, RENEWALS_PER_LEASE};
use crate::log::{self, Bounded};
use crate::store::{Lease, LeasedTask, Renewal, StoreError};
use crate::task::Backoff;

static TROUBLE: Bounded = Bounded::new();

/// Renews until the drain has expired: work in hand is finished under its lease.
pub(super) fn run(shared: &Arc<Shared>, lease: Lease) {
    let third = lease.ttl / RENEWALS_PER_LEASE;
    let (mut due, mut backoff) = (Instant::now() + third, Backoff::new());
    while !shared.drain.expired() {
        let wait = due.saturating_duration_since(Instant::now()).min(CANCEL_LOOK);
        shared.drain.pause(wait.min(time_left(shared, lease.ttl)));
        let_go_of_the_expired(shared, lease.ttl);
        if Instant::now() < due {
            look_for_cancels(shared, lease.ttl);
            continue;
        }
        let next = match renew(shared, lease) {
            Ok(true) => {
                backoff = Backoff::new();
                third
            }
            Ok(false) => backoff.pause(),
            Err(error) => {
                TROUBLE.line(format_args!("renewing leases: {error}"));
                backoff.pause()
            }
        };
        due = Instant::now() + next;
    }
}

/// Renews all leases; false: some could not be renewed now, and may be lost if that goes on.
fn renew(shared: &Shared, lease: Lease) -> Result<bool, StoreError> {
    let tasks: Vec<LeasedTask> = shared.held.leases().into_iter().map(|(task, _)| task).collect();
    if tasks.is_empty() {
        return Ok(true);
    }
    let asked = Instant::now();
    let answers = shared.store.renew(lease, tasks.clone(), time_left(shared, lease.ttl))?;
    let mut all = true;
    for (task, answer) in tasks.iter().zip(answers) {
        if answer.cancel_requested {
            shared.held.stop(&task.id);
        }
        match answer.renewal {
            Renewal::Renewed => shared.held.renewed(task, asked),
            Renewal::Busy => all = false,
            Renewal::Lost => lose(shared, task, "another owner may have it"),
        }
    }
    Ok(all)
}

/// A cancel may have come through another process; its analyser should not have to wait for the next renewal.
fn look_for_cancels(shared: &Shared, ttl: Duration) {
    let tasks = shared.held.leases().into_iter().map(|(task, _)| task.id).collect::<Vec<_>>();
    if tasks.is_empty() {
        return;
    }
    match shared.store.cancel_requested(tasks, time_left(shared, ttl)) {
        Ok(cancelled) => cancelled.iter().for_each(|id| shared.held.stop(id)),
        Err(error) => TROUBLE.line(format_args!("looking for cancels: {error}")),
    }
}

/// Until the first of our leases is over: nothing may keep us waiting for longer, least of all a silent database.
fn time_left(shared: &Shared, ttl: Duration) -> Duration {
    let first = shared.held.leases().into_iter().map(|(_, asked)| asked).min();
    first.map_or(ttl, |asked| ttl.saturating_sub(asked.elapsed()))
}

/// By our own clock, which only has to run as fast as the server's: a lease that was asked for longer ago than it lasts is
/// over, whatever the server would say.
fn let_go_of_the_expired(shared: &Shared, ttl: Duration) {
    for (task, asked) in shared.held.leases() {
        if asked.elapsed() >= ttl {
            lose(shared, &task, "it could not be renewed in time");
        }
    }
}

fn lose(shared: &Shared, task: &LeasedTask, why: &str) {
    if shared.held.lose(task) {
        // Said of each, however much else there is to say: once a claim, so its number is bounded.
        log::line(format_args!("{}: lease lost, epoch {}: {why}; its analyser is told to stop", task.id, task.epoch));
    }
}
