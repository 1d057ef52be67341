//! Intake: how a text becomes a task that a worker will take. A permit first, then the commit, then the way to the channel;
//! what has no permit leaves no row.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Service;
use super::admission::Permit;
use crate::store::StoreError;
use crate::task::TaskId;

/// A submission that was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The new task.
    pub id: TaskId,
    /// Tasks in hand before it.
    pub position: usize,
    /// How long it will wait for a worker, by the pace of the last tasks.
    pub expected_wait: Duration,
}

/// What became of a submission under an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Once {
    /// Nobody had the key: a new task.
    New(Accepted),
    /// The task that was made under this key, from the same text.
    Known(TaskId),
    /// The key belongs to another text.
    KeyReused,
}

/// Why a submission was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// Workers and queue are full; nothing was stored. Worth another try after this, when all that is there now has begun.
    Full(Duration),
    /// There are fewer places in all than texts; nothing was stored, and no other try would fare better.
    NeverFits {
        /// How many came together.
        texts: usize,
        /// How many places there are.
        places: usize,
    },
    /// The database did not take it; the error says whether a row may exist.
    Store(StoreError),
}

impl From<StoreError> for Rejected {
    fn from(error: StoreError) -> Rejected {
        Rejected::Store(error)
    }
}

impl Service {
    /// Admits a text, commits it as a task and hands it to the workers.
    pub fn submit(&self, text: String) -> Result<Accepted, Rejected> {
        let (estimate, permit) = self.admit()?;
        let id = self.shared.store.submit(text)?;
        Ok(self.hand_on(id, estimate, permit))
    }

    /// The same, at most once for each key: repeating it finds the task of the first time, also when the service is full, was
    /// restarted, or lost the answer of the first time.
    pub fn submit_once(&self, text: String, key: &str) -> Result<Once, Rejected> {
        // Before the permit: who asks again for what is there needs no place, and takes no number.
        if let Some(known) = self.known(&text, key)? {
            return Ok(known);
        }
        let (estimate, permit) = match self.admit() {
            Ok(admitted) => admitted,
            // The place that was missing may have gone to this very key, a moment ago.
            Err(full) => return self.known(&text, key)?.ok_or(full),
        };
        match self.shared.store.submit_once(&text, key)? {
            Some(id) => Ok(Once::New(self.hand_on(id, estimate, permit))),
            None => {
                drop(permit);
                let gone = StoreError::NotDone("the key's task was deleted in this moment; send it again".into());
                self.known(&text, key)?.ok_or(Rejected::Store(gone))
            }
        }
    }

    /// Admits all of the texts or none, and commits them together: their numbers rise in the order of the texts.
    pub fn submit_all(&self, texts: Vec<String>) -> Result<Vec<Accepted>, Rejected> {
        let (places, count) = (self.shared.admission.total(), texts.len());
        if count > places {
            return Err(Rejected::NeverFits { texts: count, places });
        }
        let first = self.shared.admission.taken();
        let last = first + count.saturating_sub(1);
        let permits = self.shared.admission.admit_all(count).ok_or_else(|| self.full(last))?;
        let ids = self.shared.store.submit_all(texts)?;
        let tasks = ids.into_iter().zip(permits).enumerate();
        Ok(tasks.map(|(n, (id, permit))| self.hand_on(id, self.estimate(first + n), permit)).collect())
    }

    /// What the key says of this text; None: nobody has it.
    fn known(&self, text: &str, key: &str) -> Result<Option<Once>, StoreError> {
        let Some(id) = self.shared.store.find_key(key)? else { return Ok(None) };
        let same = self.shared.store.has_text(&id, text)?;
        Ok(same.map(|same| if same { Once::Known(id) } else { Once::KeyReused }))
    }

    fn admit(&self) -> Result<(Estimate, Permit), Rejected> {
        let estimate = self.estimate(self.shared.admission.taken());
        let permit = self.shared.admission.admit().ok_or_else(|| self.full(estimate.position))?;
        Ok((estimate, permit))
    }

    /// A refusal behind `ahead` tasks in hand, and behind those that wait for the permits of these.
    fn full(&self, ahead: usize) -> Rejected {
        Rejected::Full(self.estimate(ahead + self.shared.backlog.load(Ordering::Relaxed)).expected_wait)
    }

    fn estimate(&self, position: usize) -> Estimate {
        Estimate { position, expected_wait: self.shared.pace.expected_wait(position, self.workers) }
    }

    /// Hands a committed task to the workers.
    fn hand_on(&self, id: TaskId, estimate: Estimate, permit: Permit) -> Accepted {
        // The feeder may have found the row first; then the task has its permit already.
        if let Some(hold) = self.shared.held.take(&id, permit) {
            self.shared.handoff.send(hold);
        }
        Accepted { id, position: estimate.position, expected_wait: estimate.expected_wait }
    }
}

/// What a submission is told to expect: how many were before it, and how long that will take.
struct Estimate {
    position: usize,
    expected_wait: Duration,
}
