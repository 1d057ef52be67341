//! Claims that failed: sent again, read back, or failed for good, as `decide` decides.

use std::time::{Duration, Instant};

use super::decide::{self, Decision, Found, Step};
use super::schedule::Schedule;
use crate::service::in_flight::Job;
use crate::service::running::{Place, Running};
use crate::service::shared::Shared;
use crate::store::{Claimed, StoreError};
use crate::task::{Backoff, Status, TaskId};

/// The reason written to a task whose claim the database refused (chapter 39).
const UNCLAIMABLE: &str = "worker could not claim task";

/// The claims to be tried again.
#[derive(Debug, Default)]
pub struct Claims(Schedule<Claim>);

#[derive(Debug)]
struct Claim {
    job: Job,
    place: Place,
    /// When the last claim was sent.
    sent: Instant,
    /// One had no answer.
    answer_lost: bool,
    step: Step,
    backoff: Backoff,
}

impl Claims {
    /// When the next try is due.
    pub fn next_try(&self) -> Option<Instant> {
        self.0.next()
    }

    /// Adds a claim that was sent at `sent` and ended in `error`.
    pub fn add(&mut self, shared: &Shared, job: Job, place: Place, sent: Instant, error: StoreError) {
        let (answer_lost, step, backoff) = (false, Step::Claim, Backoff::new());
        self.claimed(shared, Claim { job, place, sent, answer_lost, step, backoff }, Err(error));
    }

    /// Tries those that are due.
    pub fn retry(&mut self, shared: &Shared) {
        let (claims, others): (Vec<_>, Vec<_>) =
            self.0.take_due().into_iter().partition(|claim| claim.step == Step::Claim);
        let (read_backs, fails) = others.into_iter().partition(|claim| claim.step == Step::ReadBack);
        self.claim(shared, claims);
        self.read_back(shared, read_backs);
        self.fail(shared, fails);
    }

    fn claim(&mut self, shared: &Shared, due: Vec<Claim>) {
        if due.is_empty() || shared.shutdown.has_expired() {
            return;
        }
        if !shared.claiming.is_allowed() {
            // In a shutdown a lost lock is not waited for: they stay QUEUED.
            if !shared.shutdown.has_begun() {
                due.into_iter().for_each(|claim| self.carry_out(shared, claim, Decision::Later(Step::Claim)));
            }
            return;
        }
        let sent = Instant::now();
        let answers = shared.store.claim_all(ids(&due));
        for (claim, answer) in due.into_iter().zip(answers) {
            self.claimed(shared, Claim { sent, ..claim }, answer);
        }
    }

    fn claimed(&mut self, shared: &Shared, mut claim: Claim, answer: Result<Option<Claimed>, StoreError>) {
        if let Err(error) = &answer {
            shared.trouble.line(format_args!("{}: claim: {error}", claim.job.id()));
            claim.answer_lost |= matches!(error, StoreError::Unknown(_));
        }
        let decision = decide::after_claim(answer, claim.answer_lost, shared.shutdown.has_begun());
        self.carry_out(shared, claim, decision);
    }

    fn read_back(&mut self, shared: &Shared, due: Vec<Claim>) {
        if due.is_empty() || shared.shutdown.has_expired() {
            return;
        }
        let rows = shared.store.look_up_each(ids(&due), shared.store.patience());
        let mut silent = false;
        for (claim, row) in due.into_iter().zip(rows) {
            if silent {
                // One silence at a time: the others must not wait for more than one of them.
                self.carry_out(shared, claim, Decision::Now(Step::ReadBack));
                continue;
            }
            let id = claim.job.id();
            let found = match row {
                Err(error) => Err(error),
                Ok(None) => Ok(Found::Gone),
                Ok(Some(row)) if row.status == Status::Queued.as_str() => Ok(Found::Queued),
                Ok(Some(_)) => {
                    let ours = shared.store.claimed_by_us(id);
                    silent = ours.is_err();
                    ours.map(|ours| ours.map_or(Found::Gone, Found::Ours))
                }
            };
            if let Err(error) = &found {
                shared.trouble.line(format_args!("{id}: reading back a claim: {error}"));
            }
            self.carry_out(shared, claim, decide::after_read_back(found));
        }
    }

    /// Fails tasks whose claim was refused. A shutdown leaves them QUEUED for the next start.
    fn fail(&mut self, shared: &Shared, due: Vec<Claim>) {
        let mut silent = false;
        for claim in due {
            if shared.shutdown.has_begun() {
                return;
            }
            if silent {
                self.carry_out(shared, claim, Decision::Now(Step::Fail));
                continue;
            }
            let failed = shared.store.fail_unclaimed(claim.job.id(), UNCLAIMABLE);
            if let Err(error) = &failed {
                shared.trouble.line(format_args!("{}: failing it: {error}", claim.job.id()));
                silent = !matches!(error, StoreError::Refused(_));
            }
            let decision = decide::after_fail(failed, claim.answer_lost);
            self.carry_out(shared, claim, decision);
        }
    }

    fn carry_out(&mut self, shared: &Shared, mut claim: Claim, decision: Decision) {
        let (pause, step) = match decision {
            Decision::Run(claimed) => {
                return claim.place.give_back_with(Running::new(shared, claim.job, claimed, claim.sent));
            }
            Decision::Drop => return,
            Decision::Now(step) => (Duration::ZERO, step),
            Decision::Later(step) => (claim.backoff.pause(), step),
        };
        claim.step = step;
        self.0.push(pause, claim);
    }
}

fn ids(claims: &[Claim]) -> Vec<TaskId> {
    claims.iter().map(|claim| claim.job.id().clone()).collect()
}
