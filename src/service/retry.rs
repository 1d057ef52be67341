//! The retry: the one place for tasks whose claim or terminal write the database refused, could not do, or did not answer. One
//! thread tries them again, all that are due in one statement, until it is known what became of each. A task here keeps its
//! permit and its place, and keeps no worker from other tasks.
//!
//! Never gives up a write that the database may still take, before the shutdown has expired.

mod claims;
mod decide;
mod finishes;
mod schedule;

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError};

use self::claims::Claims;
use self::finishes::Finishes;
use super::in_flight::Job;
use super::running::{Ended, Place};
use super::shared::Shared;
use crate::store::StoreError;

/// What failed, and how.
pub enum Failed {
    /// A claim, which was sent at that moment.
    Claim(Job, Place, Instant, StoreError),
    /// A terminal write.
    Finish(Ended, Place, StoreError),
}

/// Retries until the last worker has left; none leaves before its tasks have ended.
pub(super) fn run(shared: &Arc<Shared>, inbox: &Receiver<Failed>) {
    let (mut claims, mut finishes) = (Claims::default(), Finishes::default());
    loop {
        let due = claims.next_try().into_iter().chain(finishes.next_try()).min();
        let first = match due {
            Some(due) => inbox.recv_deadline(due),
            None => inbox.recv().map_err(RecvTimeoutError::from),
        };
        if matches!(first, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
        for failed in first.into_iter().chain(inbox.try_iter()) {
            match failed {
                Failed::Claim(job, place, sent, error) => claims.add(shared, job, place, sent, error),
                Failed::Finish(ended, place, error) => finishes.add(shared, ended, place, error),
            }
        }
        claims.retry(shared);
        finishes.retry(shared);
    }
}
