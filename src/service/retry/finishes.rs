//! Terminal writes that failed, repeated until the task is terminal or known to be another owner's. Repeating one after a lost
//! answer is safe: it is fenced by owner and epoch, and a row that it has ended already is not RUNNING.

use std::time::{Duration, Instant};

use super::schedule::Schedule;
use crate::service::running::{Ended, Place};
use crate::service::shared::Shared;
use crate::store::StoreError;
use crate::task::Backoff;

/// The terminal writes to be repeated.
#[derive(Debug, Default)]
pub struct Finishes(Schedule<Finish>);

#[derive(Debug)]
struct Finish {
    ended: Ended,
    place: Place,
    /// A write had no answer: it may be the one that ended the task.
    answer_lost: bool,
    backoff: Backoff,
}

impl Finishes {
    /// When the next try is due.
    pub fn next_try(&self) -> Option<Instant> {
        self.0.next()
    }

    /// Adds a write that ended in `error`.
    pub fn add(&mut self, shared: &Shared, ended: Ended, place: Place, error: StoreError) {
        self.failed(shared, Finish { ended, place, answer_lost: false, backoff: Backoff::new() }, error);
    }

    /// Repeats those that are due. When the shutdown has expired they are given up: their rows stay RUNNING.
    pub fn retry(&mut self, shared: &Shared) {
        let due = self.0.take_due();
        if due.is_empty() || shared.shutdown.has_expired() {
            return;
        }
        let (lost, ours): (Vec<_>, Vec<_>) = due.into_iter().partition(|finish| finish.ended.job.is_lost());
        let answers = match ours.is_empty() {
            true => Vec::new(),
            false => shared.store.finish_all(ours.iter().map(|finish| finish.ended.finish.clone()).collect()),
        };
        let mut silent = false;
        let lost = lost.into_iter().map(|finish| (finish, Ok(None)));
        for (finish, answer) in ours.into_iter().zip(answers).chain(lost) {
            let by_us = match answer {
                Ok(Some(_)) => Ok(true),
                Ok(None) if finish.answer_lost && silent => {
                    // One silence at a time: the others must not wait for more than one of them.
                    self.0.push(Duration::ZERO, finish);
                    continue;
                }
                Ok(None) if finish.answer_lost => {
                    let by_us = shared.store.finished_by_us(&finish.ended.finish);
                    silent = by_us.is_err();
                    by_us
                }
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            };
            match by_us {
                Ok(by_us) => {
                    finish.ended.close(shared, by_us);
                    drop(finish.place);
                }
                Err(error) => self.failed(shared, finish, error),
            }
        }
    }

    fn failed(&mut self, shared: &Shared, mut finish: Finish, error: StoreError) {
        shared.trouble.line(format_args!("{}: finish: {error}", finish.ended.finish.id));
        finish.answer_lost |= matches!(error, StoreError::Unknown(_));
        self.0.push(finish.backoff.pause(), finish);
    }
}
