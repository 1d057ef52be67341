//! A worker: an OS thread that goes from step to step of the [`Board`]: it takes jobs from the bounded channel and claims them,
//! analyses, tells the database. The plain cases are here; what to do about a claim or a write that the database did not
//! plainly do is in [`super::trouble`].

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crossbeam_channel::{Receiver, select};

use super::Shared;
use super::board::{Begun, Board, Ended, Step};
use super::held::Hold;
use crate::log;
use crate::store::Finish;
use crate::task::{Analyser, Analysis, Stop};

/// One worker's view of the service.
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: Receiver<Hold>,
    pub(super) analyser: Arc<dyn Analyser>,
}

impl Worker {
    /// Works until the channel is closed and empty, and every task in hand has ended.
    pub fn run(&self) {
        loop {
            match self.board().next() {
                Step::Listen => self.listen(),
                Step::Analyse(begun) => self.analyse(begun),
                Step::Finish(ended) => self.finish(ended),
                Step::Insist(ended, error) => {
                    if self.insist(&ended, error) {
                        self.done(ended);
                    }
                    self.board().free_place();
                }
                Step::Leave => return,
            }
        }
    }

    fn board(&self) -> &Board {
        &self.shared.board
    }

    /// Waits for a job, and claims it together with those that came with it, as far as there are places.
    fn listen(&self) {
        let job = select! {
            recv(self.jobs) -> job => job,
            recv(self.board().bell()) -> _ => return self.board().stop_listening(),
        };
        let Ok(hold) = job else {
            self.board().close();
            return self.board().stop_listening();
        };
        // While claiming pauses the job waits here; it stays QUEUED when the service ends first.
        if hold.begin() && self.shared.claiming.wait(&self.shared.drain) {
            self.claim(hold);
        } else {
            drop(hold);
            self.board().stop_listening();
        }
    }

    fn claim(&self, first: Hold) {
        let more = self.board().claiming(self.jobs.len());
        let others = self.jobs.try_iter().take(more).filter(Hold::begin);
        let holds: Vec<Hold> = iter::once(first).chain(others).collect();
        let asked = Instant::now();
        let claims = self.shared.store.claim_all(holds.iter().map(|hold| hold.id().clone()).collect());
        let mut begun = Vec::new();
        for (hold, claim) in holds.into_iter().zip(claims) {
            // Not QUEUED any more: cancelled, or another instance's.
            let Some(claimed) = claim.transpose() else { continue };
            if let Ok(claimed) = &claimed {
                self.running(&hold, claimed.epoch, asked);
            }
            begun.push(Begun { hold, since: asked, claimed });
        }
        let unused = 1 + more - begun.len();
        self.board().claimed(begun, unused);
    }

    /// The task is RUNNING on our account, by a claim that we asked for at `asked`.
    pub(super) fn running(&self, hold: &Hold, epoch: i64, asked: Instant) {
        self.shared.running.fetch_add(1, Ordering::AcqRel);
        if self.shared.leased {
            hold.leased(epoch, asked);
        }
    }

    fn analyse(&self, begun: Begun) {
        let Begun { hold, since, claimed } = begun;
        let claimed = match claimed {
            Ok(claimed) => Some(claimed),
            Err(error) => self.claim_again(&hold, since, error),
        };
        let Some(claimed) = claimed else {
            drop(hold);
            return self.board().free_place();
        };
        let analysis = analyse(&*self.analyser, &claimed.text, hold.stop());
        let finish = Finish { id: hold.id().clone(), epoch: claimed.epoch, analysis };
        let finishing = self.shared.admission.finishing();
        self.board().ended(Ended { hold, since, finish, finishing });
    }

    fn finish(&self, ended: Vec<Ended>) {
        // An owner that knows of its loss writes nothing more; the UPDATE would touch no row.
        let (lost, ours): (Vec<_>, Vec<_>) = ended.into_iter().partition(|ended| ended.hold.lost());
        let answers = self.shared.store.finish_all(ours.iter().map(|ended| ended.finish.clone()).collect());
        let lost = lost.into_iter().map(|ended| (ended, Ok(None)));
        let (mut done, mut troubled) = (0, Vec::new());
        for (ended, answer) in lost.chain(ours.into_iter().zip(answers)) {
            match answer {
                Err(error) => {
                    troubled.push((ended, error));
                    continue;
                }
                Ok(None) => say_lost(&ended.finish),
                Ok(Some(_)) => {}
            }
            self.done(ended);
            done += 1;
        }
        self.board().finished(done, troubled);
    }

    /// The task is not RUNNING on our account any more.
    fn done(&self, ended: Ended) {
        self.shared.running.fetch_sub(1, Ordering::AcqRel);
        self.shared.pace.finished(ended.since.elapsed());
        // The permit goes with the hold, before `finishing`: see there.
        drop(ended.hold);
        drop(ended.finishing);
    }
}

/// Says that a task's lease is lost: whatever came of its analysis is another's to write.
pub(super) fn say_lost(finish: &Finish) {
    log::line(format_args!("{}: lease lost: epoch {} is not ours any more", finish.id, finish.epoch));
}

/// Runs the analyser; its panic is the task's failure, not the worker's.
fn analyse(analyser: &dyn Analyser, text: &str, stop: &Stop) -> Analysis {
    catch_unwind(AssertUnwindSafe(|| analyser.analyse(text, stop))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Analysis::Failed(format!("analyser panicked: {said}"))
    })
}
