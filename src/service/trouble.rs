//! Trouble: a claim or a terminal write that the database refused, could not do now, or did not answer. Its worker stays with
//! it until it knows.
//!
//! What it must never do: take a task for its own without knowing it, or give up a write that the database may still take.
//! Where an answer is lost it reads the row back before it acts (DESIGN section 3).

use std::time::Instant;

use super::board::Ended;
use super::held::Hold;
use super::worker::{Worker, say_lost};
use crate::log::Bounded;
use crate::store::{Claimed, StoreError};
use crate::task::{Backoff, Status, TaskId};

/// The reason written to a task whose claim the database refused (chapter 39).
pub const UNCLAIMABLE: &str = "worker could not claim task";

static TROUBLE: Bounded = Bounded::new();

/// What reading a row back says after a claim without an answer.
enum ReadBack {
    Ours(Claimed),
    Queued,
    Gone,
}

impl Worker {
    /// Sees to a claim that was asked for at `asked` and ended in `error`; None: the task is not ours to work on.
    pub(super) fn claim_again(&self, hold: &Hold, mut asked: Instant, error: StoreError) -> Option<Claimed> {
        let (id, mut backoff, mut answer_lost) = (hold.id(), Backoff::new(), false);
        let mut answer = Err(error);
        loop {
            let claimed = match answer {
                Ok(Some(claimed)) => Some(claimed),
                // An earlier claim, without an answer, may have arrived after its row was read back.
                Ok(None) if answer_lost => Some(self.arrived(id)?),
                Ok(None) => return None,
                Err(StoreError::Refused(why)) => {
                    TROUBLE.line(format_args!("{id}: claim refused: {why}"));
                    if self.fail_unclaimed(id) || !answer_lost {
                        return None;
                    }
                    Some(self.arrived(id)?)
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
                self.running(hold, claimed.epoch, asked);
                return Some(claimed);
            }
            self.shared.drain.pause(backoff.pause());
            if !self.shared.claiming.wait(&self.shared.drain) {
                return None;
            }
            asked = Instant::now();
            answer = self.shared.store.claim(id);
        }
    }

    /// What a claim without an answer won; None: nothing, or nobody could say before the drain expired.
    fn arrived(&self, id: &TaskId) -> Option<Claimed> {
        match self.read_back(id)? {
            ReadBack::Ours(claimed) => Some(claimed),
            ReadBack::Queued | ReadBack::Gone => None,
        }
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
    /// (cancelled) or the service stops; never claims again, never analyses. False: it is not QUEUED any more; true: it is FAILED,
    /// or left QUEUED for the next start.
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

    /// Sees to a terminal write that ended in `error`: repeats it until the task is terminal, or known to be another's; false:
    /// the drain expired first. Repeating the UPDATE after a lost answer is safe: it is fenced by owner and epoch, and a row
    /// that it ended already is not RUNNING.
    pub(super) fn insist(&self, ended: &Ended, error: StoreError) -> bool {
        let Ended { hold, finish, .. } = ended;
        let (mut backoff, mut answer_lost, mut trouble) = (Backoff::new(), false, error);
        loop {
            TROUBLE.line(format_args!("{}: finish: {trouble}", finish.id));
            answer_lost |= matches!(trouble, StoreError::Unknown(_));
            if self.shared.drain.expired() {
                return false;
            }
            self.shared.drain.pause(backoff.pause());
            let answer = if hold.lost() { Ok(None) } else { self.shared.store.finish(finish) };
            let done = match answer {
                Ok(Some(_)) => Ok(true),
                // The write without an answer may be the one that did it.
                Ok(None) if answer_lost => self.shared.store.finished_by_us(finish),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            };
            match done {
                Ok(ours) => {
                    if !ours {
                        say_lost(finish);
                    }
                    return true;
                }
                Err(error) => trouble = error,
            }
        }
    }
}
