//! The tasks in flight in this process, from admission to their end. A task has one [`Job`] at a time: one that the poller and its
//! submitter both find is queued once, so a row that is RUNNING under our name belongs to the owner of its job.
//!
//! Never asks the database.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::watch::Watch;
use crate::limits::IN_FLIGHT_KEPT;
use crate::semaphore::{Permit, Semaphore};
use crate::store::LeasedTask;
use crate::task::{Stop, TaskId};

/// The tasks in flight.
#[derive(Debug)]
pub struct InFlight {
    tasks: Mutex<HashMap<TaskId, Task>>,
    permits: Arc<Semaphore>,
    running: AtomicUsize,
    /// Notified when a task leaves.
    pub watch: Watch,
}

#[derive(Debug)]
struct Task {
    stop: Stop,
    phase: Phase,
    /// None while a statement is under way that may end the task, and after it has.
    permit: Option<Permit>,
    /// With leases: the epoch of our claim, and when the present lease was requested.
    lease: Option<(i64, Instant)>,
    /// The lease is another owner's: nothing may be written any more.
    lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Queued,
    Cancelled,
    Begun,
    Ending,
}

/// Sole possession of a task within this process, until dropped.
#[derive(Debug)]
pub struct Job {
    in_flight: Arc<InFlight>,
    id: TaskId,
    stop: Stop,
}

impl InFlight {
    /// No tasks; those to come have their permits from `permits`.
    pub fn new(permits: Arc<Semaphore>) -> Arc<InFlight> {
        let (tasks, running) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(InFlight { tasks, permits, running, watch: Watch::default() })
    }

    /// The job of a task, unless there is one already.
    pub fn take(self: &Arc<Self>, id: &TaskId, permit: Permit) -> Option<Job> {
        let mut tasks = self.tasks.lock();
        if tasks.contains_key(id) {
            return None;
        }
        let stop = Stop::default();
        let (phase, permit, lease, lost) = (Phase::Queued, Some(permit), None, false);
        tasks.insert(id.clone(), Task { stop: stop.clone(), phase, permit, lease, lost });
        Some(Job { in_flight: Arc::clone(self), id: id.clone(), stop })
    }

    /// Whether the task is in flight.
    pub fn has(&self, id: &TaskId) -> bool {
        self.tasks.lock().contains_key(id)
    }

    /// Tasks that are RUNNING in the database on our account.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    /// Stops the task's analysis, if it is in flight.
    pub fn stop(&self, id: &TaskId) {
        if let Some(task) = self.tasks.lock().get(id) {
            task.stop.request();
        }
    }

    /// Gives back the permit of a queued task before a statement that may cancel it. [`InFlight::cancelled`] or
    /// [`InFlight::not_cancelled`] afterwards.
    pub fn cancelling(&self, id: &TaskId) {
        let mut tasks = self.tasks.lock();
        drop(tasks.get_mut(id).filter(|task| task.phase == Phase::Queued).and_then(|task| task.permit.take()));
    }

    /// The task was cancelled while it was QUEUED: no worker begins it any more.
    pub fn cancelled(&self, id: &TaskId) {
        if let Some(task) = self.tasks.lock().get_mut(id).filter(|task| task.phase == Phase::Queued) {
            (task.phase, task.permit) = (Phase::Cancelled, None);
        }
        // It may be watched without being in flight.
        self.watch.hint(id);
    }

    /// The task was not cancelled: it needs its permit still.
    pub fn not_cancelled(&self, id: &TaskId) {
        if let Some(task) = self.tasks.lock().get_mut(id) {
            if matches!(task.phase, Phase::Queued | Phase::Begun) && task.permit.is_none() {
                task.permit = Some(self.permits.force(1));
            }
        }
    }

    /// The leases to be renewed, each with the moment when it was requested.
    pub fn leases(&self) -> Vec<(LeasedTask, Instant)> {
        let tasks = self.tasks.lock();
        let leased = tasks.iter().filter(|(_, task)| !task.lost).filter_map(|(id, task)| Some((id, task.lease?)));
        leased.map(|(id, (epoch, requested))| (LeasedTask { id: id.clone(), epoch }, requested)).collect()
    }

    /// A lease was renewed by a request of the moment `requested`.
    pub fn renewed(&self, task: &LeasedTask, requested: Instant) {
        self.with_lease(task, |found| found.lease = Some((task.epoch, requested)));
    }

    /// A lease is lost: the analysis is stopped, and nothing more is written. False: it was not in flight.
    pub fn lose(&self, task: &LeasedTask) -> bool {
        self.with_lease(task, |found| {
            found.lost = true;
            found.stop.request();
        })
    }

    /// Acts on the claim of that epoch only: the task may have ended and come back under another.
    fn with_lease(&self, task: &LeasedTask, act: impl FnOnce(&mut Task)) -> bool {
        let mut tasks = self.tasks.lock();
        let same = |found: &&mut Task| found.lease.is_some_and(|(epoch, _)| epoch == task.epoch);
        tasks.get_mut(&task.id).filter(same).map(act).is_some()
    }
}

impl Job {
    /// The task.
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// The flag that the task's analysis must watch.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// A worker begins the task; false: it was cancelled meanwhile, and there is nothing to do.
    pub fn begin(&self) -> bool {
        self.with(|task| {
            let begins = task.phase != Phase::Cancelled;
            if begins {
                task.phase = Phase::Begun;
            }
            begins
        })
    }

    /// Whether it was cancelled before a worker began it.
    pub fn is_cancelled(&self) -> bool {
        self.with(|task| task.phase == Phase::Cancelled)
    }

    /// The task is RUNNING on our account; `lease`: the claim's epoch and the moment of its request, where it expires.
    pub fn running(&self, lease: Option<(i64, Instant)>) {
        self.in_flight.running.fetch_add(1, Ordering::AcqRel);
        self.with(|task| task.lease = lease);
    }

    /// Whether the lease is known to be another owner's.
    pub fn is_lost(&self) -> bool {
        self.with(|task| task.lost)
    }

    /// Gives back the permit before the statement that ends the task: a client that sees the end finds the place free.
    pub fn ending(&self) {
        drop(self.with(|task| {
            task.phase = Phase::Ending;
            task.permit.take()
        }));
    }

    /// That statement failed: the task needs its permit again, whoever has taken it meanwhile.
    pub fn not_ended(&self) {
        let permit = self.in_flight.permits.force(1);
        self.with(|task| (task.phase, task.permit) = (Phase::Begun, Some(permit)));
    }

    /// The task is not RUNNING on our account any more.
    pub fn ended(self) {
        self.in_flight.running.fetch_sub(1, Ordering::AcqRel);
    }

    fn with<T>(&self, act: impl FnOnce(&mut Task) -> T) -> T {
        act(self.in_flight.tasks.lock().get_mut(&self.id).expect("only a job's drop removes its task"))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // The permit first: whoever finds the task gone finds its place free, too.
        drop(self.with(|task| task.permit.take()));
        {
            let mut tasks = self.in_flight.tasks.lock();
            tasks.remove(&self.id);
            if tasks.is_empty() {
                tasks.shrink_to(IN_FLIGHT_KEPT);
            }
        }
        self.in_flight.watch.hint(&self.id);
    }
}
