//! A worker: an OS thread that takes jobs from the bounded channel, one at a time: claim ▸ analyse ▸ finish.
//!
//! What it must never do: analyse a task it does not know to be its own, or give up a write that the database may still
//! take. Where an answer is lost it reads the row back before it acts (DESIGN section 3).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam_channel::Receiver;

use super::Shared;
use super::held::Hold;
use crate::log::{self, Bounded};
use crate::store::{Claimed, Finish, StoreError};
use crate::task::{Analyser, Analysis, Backoff, Status, Stop, TaskId};

/// The reason written to a task whose claim the database refused (chapter 39).
pub const UNCLAIMABLE: &str = "worker could not claim task";

static TROUBLE: Bounded = Bounded::new();

/// One worker's view of the service.
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: Receiver<Hold>,
    pub(super) analyser: Arc<dyn Analyser>,
}

/// What reading a row back says after a claim without an answer.
enum ReadBack {
    Ours(Claimed),
    Queued,
    Gone,
}

impl Worker {
    /// Works until the channel is closed and empty, or the drain has expired.
    pub fn run(&self) {
        for hold in &self.jobs {
            if hold.begin() {
                self.work(hold);
            }
        }
    }

    fn work(&self, hold: Hold) {
        let begun = Instant::now();
        let Some(claimed) = self.claim(&hold) else { return };
        self.shared.running.fetch_add(1, Ordering::AcqRel);
        let analysis = analyse(&*self.analyser, &claimed.text, hold.stop());
        let finish = Finish { id: hold.id().clone(), epoch: claimed.epoch, analysis };
        drop(claimed);
        let finishing = self.shared.admission.finishing();
        if self.finish(&finish, &hold) {
            self.shared.running.fetch_sub(1, Ordering::AcqRel);
            self.shared.pace.finished(begun.elapsed());
        }
        drop(hold);
        drop(finishing);
    }

    /// Claims the task; None: it is not ours to work on.
    fn claim(&self, hold: &Hold) -> Option<Claimed> {
        let (id, mut backoff, mut answer_lost) = (hold.id(), Backoff::new(), false);
        while self.shared.claiming.wait(&self.shared.drain) {
            let asked = Instant::now();
            let claimed = match self.shared.store.claim(id) {
                // The claim without an answer may have arrived after the row was read back.
                Ok(None) if answer_lost => match self.read_back(id)? {
                    ReadBack::Ours(claimed) => Some(claimed),
                    ReadBack::Queued | ReadBack::Gone => return None,
                },
                Ok(claimed) => Some(claimed?),
                Err(StoreError::Refused(why)) => {
                    TROUBLE.line(format_args!("{id}: claim refused: {why}"));
                    // Not QUEUED any more: an earlier claim without an answer may have arrived.
                    let arrived = !self.fail_unclaimed(id) && answer_lost;
                    match arrived.then(|| self.read_back(id))?? {
                        ReadBack::Ours(claimed) => Some(claimed),
                        ReadBack::Queued | ReadBack::Gone => return None,
                    }
                }
                Err(StoreError::NotDone(why)) => {
                    TROUBLE.line(format_args!("{id}: claim: {why}"));
                    if self.shared.drain.begun() {
                        return None; // it stays QUEUED for the next start
                    }
                    None
                }
                Err(StoreError::Unknown(why)) => {
                    TROUBLE.line(format_args!("{id}: claim: {why}"));
                    answer_lost = true;
                    match self.read_back(id)? {
                        ReadBack::Ours(claimed) => Some(claimed),
                        ReadBack::Queued => None,
                        ReadBack::Gone => return None,
                    }
                }
            };
            if let Some(claimed) = claimed {
                if self.shared.leased {
                    hold.leased(claimed.epoch, asked);
                }
                return Some(claimed);
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
                Some(_) => Ok(self.shared.store.claimed_by_us(id)?.map_or(ReadBack::Gone, ReadBack::Ours)),
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
    /// (cancelled) or the service stops; never claims again, never analyses. False: it is not QUEUED any more.
    fn fail_unclaimed(&self, id: &TaskId) -> bool {
        let mut backoff = Backoff::new();
        while !self.shared.drain.begun() {
            match self.shared.store.fail_unclaimed(id, UNCLAIMABLE) {
                Ok(failed) => return failed,
                Err(error) => TROUBLE.line(format_args!("{id}: failing it: {error}")),
            }
            self.shared.drain.pause(backoff.pause());
        }
        true
    }

    /// Makes the task terminal, or lets go of it where the lease is lost; false: the drain expired first. Repeating the
    /// UPDATE after a lost answer is safe: it is fenced by owner and epoch, and a row that it ended already is not RUNNING.
    fn finish(&self, finish: &Finish, hold: &Hold) -> bool {
        let (mut backoff, mut answer_lost) = (Backoff::new(), false);
        loop {
            let id = &finish.id;
            // An owner that knows of its loss writes nothing more; the UPDATE would touch no row.
            let ended = if hold.lost() { Ok(None) } else { self.shared.store.finish(finish) };
            let done = match ended {
                Ok(Some(_)) => Ok(true),
                // The write without an answer may be the one that did it.
                Ok(None) if answer_lost => self.shared.store.finished_by_us(finish),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            };
            match done {
                Ok(true) => return true,
                Ok(false) => {
                    log::line(format_args!("{id}: lease lost: epoch {} is not ours any more", finish.epoch));
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
