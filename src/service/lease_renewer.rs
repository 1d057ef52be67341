//! The lease renewer: renews the leases of all tasks in flight in one statement. Where a lease is lost, or not known to hold, the
//! analysis is stopped and its result is not written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::Shared;
use crate::limits::{CANCEL_LOOK, RENEWALS_PER_LEASE};
use crate::log::{self, Bounded};
use crate::store::{Lease, LeasedTask, Renewal, StoreError};
use crate::task::Backoff;

static TROUBLE: Bounded = Bounded::new();

/// Renews until the shutdown has expired: tasks in flight are finished under their leases.
pub(super) fn run(shared: &Arc<Shared>, lease: Lease) {
    let third = lease.ttl / RENEWALS_PER_LEASE;
    let (mut due, mut backoff) = (Instant::now() + third, Backoff::new());
    while !shared.shutdown.has_expired() {
        let wait = due.saturating_duration_since(Instant::now()).min(CANCEL_LOOK);
        shared.shutdown.pause(wait.min(time_left(shared, lease.ttl)));
        lose_expired(shared, lease.ttl);
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

/// Renews all leases; false: some could not be renewed now, and will be lost if that goes on.
fn renew(shared: &Shared, lease: Lease) -> Result<bool, StoreError> {
    let tasks: Vec<LeasedTask> = shared.in_flight.leases().into_iter().map(|(task, _)| task).collect();
    if tasks.is_empty() {
        return Ok(true);
    }
    let requested = Instant::now();
    let answers = shared.store.renew(lease, tasks.clone(), time_left(shared, lease.ttl))?;
    let mut all = true;
    for (task, answer) in tasks.iter().zip(answers) {
        if answer.cancel_requested {
            shared.in_flight.stop(&task.id);
        }
        match answer.renewal {
            Renewal::Renewed => shared.in_flight.renewed(task, requested),
            Renewal::Busy => all = false,
            Renewal::Lost => lose(shared, task, "another owner may have it"),
        }
    }
    Ok(all)
}

/// Finds cancels that came through another process, sooner than the next renewal would.
fn look_for_cancels(shared: &Shared, ttl: Duration) {
    let tasks = shared.in_flight.leases().into_iter().map(|(task, _)| task.id).collect::<Vec<_>>();
    if tasks.is_empty() {
        return;
    }
    match shared.store.cancel_requested(tasks, time_left(shared, ttl)) {
        Ok(cancelled) => cancelled.iter().for_each(|id| shared.in_flight.stop(id)),
        Err(error) => TROUBLE.line(format_args!("looking for cancels: {error}")),
    }
}

/// The time until the first of our leases is over: no statement may take longer.
fn time_left(shared: &Shared, ttl: Duration) -> Duration {
    let first = shared.in_flight.leases().into_iter().map(|(_, requested)| requested).min();
    first.map_or(ttl, |requested| ttl.saturating_sub(requested.elapsed()))
}

/// By our own clock, which only has to run as fast as the server's, a lease is over when it was requested longer ago than it
/// lasts, whatever the server would answer.
fn lose_expired(shared: &Shared, ttl: Duration) {
    for (task, requested) in shared.in_flight.leases() {
        if requested.elapsed() >= ttl {
            lose(shared, &task, "it could not be renewed in time");
        }
    }
}

fn lose(shared: &Shared, task: &LeasedTask, why: &str) {
    if shared.in_flight.lose(task) {
        // Not bounded: there is one such line for a claim.
        log::line(format_args!("{}: lease lost, epoch {}: {why}; its analyser is told to stop", task.id, task.epoch));
    }
}
