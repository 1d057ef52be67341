//! A worker: an OS thread that takes jobs from the queue, one at a time: claim ▸ analyse ▸ finish.
//!
//! What it must never do: analyse a task it does not know to be its own, or give up a write that the database may still
//! take. Where an answer is lost it reads the row back before it acts (DESIGN section 3).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Shared;
use super::admission::Permit;
use super::held::Hold;
use crate::log::Bounded;
use crate::store::{Claimed, Finish, StoreError};
use crate::task::{Analyser, Analysis, Backoff, Status, Stop, TaskId};

/// The reason written to a task whose claim the database refused (chapter 39).
pub const UNCLAIMABLE: &str = "worker could not claim task";

static TROUBLE: Bounded = Bounded::new();

/// A task on its way to a worker.
#[derive(Debug)]
pub struct Job {
    /// Given back before the hold: whoever finds the task free finds a permit, too.
    pub permit: Permit,
    /// Sole possession within this process.
    pub hold: Hold,
}

/// One worker's view of the service.
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) analyser: Arc<dyn Analyser>,
}

/// What reading a row back says after a claim without an answer.
enum ReadBack {
    Ours(Claimed),
    Queued,
    Gone,
}

impl Worker {
    /// Works until the queue is closed and empty, or the drain has expired.
    pub fn run(&self) {
        while let Some(job) = self.shared.queue.take() {
            self.work(job);
        }
    }

    fn work(&self, job: Job) {
        let begun = Instant::now();
        let Some(claimed) = self.claim(job.hold.id()) else { return };
        self.shared.running.fetch_add(1, Ordering::AcqRel);
        let analysis = analyse(&*self.analyser, &claimed.text, job.hold.stop());
        let finish = Finish { id: job.hold.id().clone(), epoch: claimed.epoch, analysis };
        drop(claimed);
        let finishing = self.shared.admission.finishing();
        if self.finish(&finish) {
            self.shared.running.fetch_sub(1, Ordering::AcqRel);
            self.shared.pace.finished(begun.elapsed());
        }
        drop(job);
        drop(finishing);
    }

    /// Claims the task; None: it is not ours to work on.
    fn claim(&self, id: &TaskId) -> Option<Claimed> {
        let mut backoff = Backoff::new();
        while self.shared.claiming.wait(&self.shared.drain) {
            match self.shared.store.claim(id) {
                Ok(claimed) => return claimed,
                Err(StoreError::Refused(why)) => {
                    TROUBLE.line(format_args!("{id}: claim refused: {why}"));
                    self.fail_unclaimed(id);
                    return None;
                }
                Err(StoreError::NotDone(why)) => {
                    TROUBLE.line(format_args!("{id}: claim: {why}"));
                    if self.shared.drain.begun() {
                        return None; // it stays QUEUED for the next start
                    }
                }
                Err(StoreError::Unknown(why)) => {
                    TROUBLE.line(format_args!("{id}: claim: {why}"));
                    match self.read_back(id)? {
                        ReadBack::Ours(claimed) => return Some(claimed),
                        ReadBack::Queued => {}
                        ReadBack::Gone => return None,
                    }
                }
            }
            self.shared.drain.pause(backoff.pause());
        }
        None
    }

    /// What became of a claim without an answer; None: nobody could say before the drain expired.
    fn read_back(&self, id: &TaskId) -> Option<ReadBack> {
        let mut backoff = Backoff::new();
        while !self.shared.drain.expired() {
            let found = self.shared.store.look_up(id).and_then(|row| match row {
                Some(row) if row.status == Status::Queued.as_str() => Ok(ReadBack::Queued),
                Some(row) => Ok(self.shared.store.claimed_by_us(&row)?.map_or(ReadBack::Gone, ReadBack::Ours)),
                None => Ok(ReadBack::Gone),
            });
            match found {
                Ok(found) => return Some(found),
                Err(error) => TROUBLE.line(format_args!("{id}: reading back a claim: {error}")),
            }
            self.shared.drain.pause(backoff.pause());
        }
        None
    }

    /// Fails a task whose claim was refused. Keeps the worker's slot until the write commits, the row is no longer QUEUED
    /// (cancelled) or the service stops; never claims again, never analyses.
    fn fail_unclaimed(&self, id: &TaskId) {
        let mut backoff = Backoff::new();
        while !self.shared.drain.begun() {
            match self.shared.store.fail_unclaimed(id, UNCLAIMABLE) {
                Ok(_) => return,
                Err(error) => TROUBLE.line(format_args!("{id}: failing it: {error}")),
            }
            self.shared.drain.pause(backoff.pause());
        }
    }

    /// Makes the task terminal; false: the drain expired first. Repeating the UPDATE after a lost answer is safe: it is
    /// fenced by owner and epoch, and a row that it ended already is not RUNNING.
    fn finish(&self, finish: &Finish) -> bool {
        let (mut backoff, mut answer_lost) = (Backoff::new(), false);
        loop {
            let id = &finish.id;
            match self.shared.store.finish(finish) {
                Ok(Some(_)) => return true,
                Ok(None) if answer_lost => return true, // the write without an answer was the one that did it
                Ok(None) => {
                    crate::log::line(format_args!("{id}: lease lost: epoch {} is not ours any more", finish.epoch));
                    return true;
                }
                Err(error) => {
                    TROUBLE.line(format_args!("{id}: finish: {error}"));
                    answer_lost |= matches!(error, StoreError::Unknown(_));
                }
            }
            if self.shared.drain.expired() {
                return false;
            }
            self.shared.drain.pause(backoff.pause());
        }
    }
}

/// Runs the analyser; its panic is the task's failure, not the worker's.
fn analyse(analyser: &dyn Analyser, text: &str, stop: &Stop) -> Analysis {
    catch_unwind(AssertUnwindSafe(|| analyser.analyse(text, stop))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Analysis::Failed(format!("analyser panicked: {said}"))
    })
}
