//! Submission: how a text becomes a task in the queue. First a permit, then the commit, then the queue. What gets no permit leaves
//! no row.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::shared::Shared;
use crate::semaphore::Permit;
use crate::store::StoreError;
use crate::task::TaskId;

/// A submission that was committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The new task.
    pub id: TaskId,
    /// Tasks in flight before it.
    pub position: usize,
    /// How long it will wait for a worker, estimated from the last tasks.
    pub expected_wait: Duration,
}

/// What became of a submission with an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Once {
    /// The key is new: a new task.
    New(Accepted),
    /// The task that was made under this key, from the same text.
    Known(TaskId),
    /// The key belongs to another text.
    KeyReused,
}

/// Why a submission was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejected {
    /// Workers and queue are full; nothing was stored. Try again after this time, when all that is in flight now has begun.
    Full(Duration),
    /// There are fewer permits in all than texts; nothing was stored, and no other try would succeed.
    NeverFits {
        /// How many came together.
        texts: usize,
        /// How many permits there are.
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

/// Admits a text, commits it as a task and queues it.
pub(super) fn submit(shared: &Shared, text: String) -> Result<Accepted, Rejected> {
    let (estimate, permit) = admit(shared)?;
    let id = shared.store.submit(text)?;
    Ok(queue(shared, id, estimate, permit))
}

/// The same, at most once for each key: repeating it finds the task of the first time, also when the service is full, was
/// restarted, or lost the answer of the first time.
pub(super) fn submit_once(shared: &Shared, text: String, key: &str) -> Result<Once, Rejected> {
    // Before the permit: a repetition needs no place, and takes no number.
    if let Some(known) = known(shared, &text, key)? {
        return Ok(known);
    }
    let (estimate, permit) = match admit(shared) {
        Ok(admitted) => admitted,
        // The place that was missing may have gone to this very key, a moment ago.
        Err(full) => return known(shared, &text, key)?.ok_or(full),
    };
    match shared.store.submit_once(&text, key)? {
        Some(id) => Ok(Once::New(queue(shared, id, estimate, permit))),
        None => {
            drop(permit);
            let gone = StoreError::NotDone("the key's task was deleted in this moment; send it again".into());
            known(shared, &text, key)?.ok_or(Rejected::Store(gone))
        }
    }
}

/// Admits all of the texts or none, and commits them together: their numbers rise in the order of the texts.
pub(super) fn submit_all(shared: &Shared, texts: Vec<String>) -> Result<Vec<Accepted>, Rejected> {
    let (places, count) = (shared.permits.capacity(), texts.len());
    if count > places {
        return Err(Rejected::NeverFits { texts: count, places });
    }
    let first = shared.permits.taken();
    let last = first + count.saturating_sub(1);
    let mut permits = shared.permits.try_acquire(count).ok_or_else(|| full(shared, last))?;
    let ids = shared.store.submit_all(texts)?;
    let tasks = ids.into_iter().enumerate();
    Ok(tasks.map(|(n, id)| queue(shared, id, Estimate::at(shared, first + n), permits.split(1))).collect())
}

/// The task that has the key, compared with this text; None: the key is new.
fn known(shared: &Shared, text: &str, key: &str) -> Result<Option<Once>, StoreError> {
    let Some(id) = shared.store.find_key(key)? else { return Ok(None) };
    let same = shared.store.has_text(&id, text)?;
    Ok(same.map(|same| if same { Once::Known(id) } else { Once::KeyReused }))
}

fn admit(shared: &Shared) -> Result<(Estimate, Permit), Rejected> {
    let estimate = Estimate::at(shared, shared.permits.taken());
    let permit = shared.permits.try_acquire(1).ok_or_else(|| full(shared, estimate.position))?;
    Ok((estimate, permit))
}

/// A rejection behind `ahead` tasks in flight, and behind those that wait for the permits of these.
fn full(shared: &Shared, ahead: usize) -> Rejected {
    Rejected::Full(shared.eta.expected_wait(ahead + shared.backlog.load(Ordering::Relaxed)))
}

/// Queues a committed task.
fn queue(shared: &Shared, id: TaskId, estimate: Estimate, permit: Permit) -> Accepted {
    // The poller may have found the row first; then the task has its permit already.
    if let Some(job) = shared.in_flight.take(&id, permit) {
        shared.queue.send(job);
    }
    Accepted { id, position: estimate.position, expected_wait: estimate.expected_wait }
}

/// What a submission is told to expect.
struct Estimate {
    position: usize,
    expected_wait: Duration,
}

impl Estimate {
    /// For the task behind `position` others.
    fn at(shared: &Shared, position: usize) -> Estimate {
        Estimate { position, expected_wait: shared.eta.expected_wait(position) }
    }
}
