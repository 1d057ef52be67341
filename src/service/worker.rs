//! A worker: an OS thread that owns a batch from the queue to its end. It receives what waits, claims all of it in one statement,
//! counts each text, ends all in one statement. It handles the plain cases only: a task whose claim or end the database refused
//! or did not answer goes to [`super::retry`], and its worker goes on with others.

use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use super::in_flight::Job;
use super::retry::Failed;
use super::running::{Ended, Next, Place, Places, Running};
use super::shared::Shared;
use crate::limits::{BATCH_ROWS, WORKER_THREADS};
use crate::store::Finish;
use crate::task::{Analyser, Analysis, Stop};

/// One worker's view of the service.
pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: Receiver<Job>,
    pub(super) analyser: Arc<dyn Analyser>,
    pub(super) places: Places,
    pub(super) retry: Sender<Failed>,
}

impl Worker {
    /// Works until the queue is closed and empty, and every task of this worker has ended.
    pub fn run(mut self) {
        while let Some(next) = self.places.next(&self.jobs) {
            let running = match next {
                Next::Claim(job) => self.claim(job),
                Next::Analyse(running) => vec![running],
            };
            let ended = running.into_iter().map(|running| self.analyse(running)).collect();
            self.finish(ended);
        }
    }

    /// Claims a job together with those that wait behind it: a fair part of them, as far as there are places.
    fn claim(&mut self, first: Job) -> Vec<Running> {
        // While claiming pauses the job waits here; it stays QUEUED when the service ends first.
        if !self.shared.claiming.wait(&self.shared.shutdown) {
            return Vec::new();
        }
        let fair = self.jobs.len().div_ceil(WORKER_THREADS);
        let others = self.jobs.try_iter().take(fair.min(self.places.free() - 1).min(BATCH_ROWS - 1));
        let jobs: Vec<Job> = iter::once(first).chain(others).filter(Job::begin).collect();
        let sent = Instant::now();
        let answers = self.shared.store.claim_all(jobs.iter().map(|job| job.id().clone()).collect());
        let mut running = Vec::new();
        for (job, answer) in jobs.into_iter().zip(answers) {
            match answer {
                Ok(Some(claimed)) => running.push(Running::new(&self.shared, job, claimed, sent)),
                // Not QUEUED any more: cancelled, or another instance's.
                Ok(None) => {}
                Err(error) => self.retry(|place| Failed::Claim(job, place, sent, error)),
            }
        }
        running
    }

    fn analyse(&self, running: Running) -> Ended {
        let Running { job, claimed, since } = running;
        let analysis = analyse(&*self.analyser, &claimed.text, job.stop());
        let finish = Finish { id: job.id().clone(), epoch: claimed.epoch, analysis };
        Ended { job, since, finish }
    }

    fn finish(&mut self, ended: Vec<Ended>) {
        // An owner that knows of its loss writes nothing more; the UPDATE would touch no row.
        let (lost, ours): (Vec<_>, Vec<_>) = ended.into_iter().partition(|ended| ended.job.is_lost());
        lost.into_iter().for_each(|ended| ended.close(&self.shared, false));
        if ours.is_empty() {
            return;
        }
        ours.iter().for_each(|ended| ended.job.ending());
        let answers = self.shared.store.finish_all(ours.iter().map(|ended| ended.finish.clone()).collect());
        for (ended, answer) in ours.into_iter().zip(answers) {
            match answer {
                Ok(status) => ended.close(&self.shared, status.is_some()),
                Err(error) => {
                    ended.job.not_ended();
                    self.retry(|place| Failed::Finish(ended, place, error));
                }
            }
        }
    }

    fn retry(&mut self, failed: impl FnOnce(Place) -> Failed) {
        // Cannot fail while the retry lives; its death is reported, and ends the service.
        let _ = self.retry.send(failed(self.places.lend()));
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
