//! Which tasks this process has in hand, from hand-off to end. One holder per task and process: a task that the feeder
//! and its submitter both find is handed on once, so a row that is RUNNING under our name is known to be its holder's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::admission::Permit;
use super::watch::Watch;
use crate::limits::HELD_KEPT;
use crate::lock;
use crate::store::LeasedTask;
use crate::task::{Stop, TaskId};

/// The tasks in hand.
#[derive(Debug, Default)]
pub struct Held {
    tasks: Mutex<HashMap<TaskId, InHand>>,
    /// Told when a task leaves.
    pub watch: Watch,
}

/// What is known of one of them.
#[derive(Debug)]
struct InHand {
    /// Stops its analysis.
    stop: Stop,
    /// Its place; None: it was cancelled before a worker began it, and its place is another's.
    permit: Option<Permit>,
    /// A worker has begun it.
    begun: bool,
    /// Where tasks are leased: the epoch of our claim, and when we asked for what holds the lease now.
    lease: Option<(i64, Instant)>,
    /// The lease is another's: nothing may be written any more.
    lost: bool,
}

/// Sole possession of a task within this process, until dropped.
#[derive(Debug)]
pub struct Hold {
    held: Arc<Held>,
    id: TaskId,
    stop: Stop,
}

impl Held {
    /// Takes the task into its place, unless somebody in this process has it.
    pub fn take(self: &Arc<Self>, id: &TaskId, permit: Permit) -> Option<Hold> {
        let stop = Stop::default();
        let mut tasks = lock(&self.tasks);
        if tasks.contains_key(id) {
            return None;
        }
        let in_hand = InHand { stop: stop.clone(), permit: Some(permit), begun: false, lease: None, lost: false };
        tasks.insert(id.clone(), in_hand);
        Some(Hold { held: self.clone(), id: id.clone(), stop })
    }

    /// Whether somebody in this process has the task.
    pub fn has(&self, id: &TaskId) -> bool {
        lock(&self.tasks).contains_key(id)
    }

    /// Tells the task's analysis to stop, if it is in hand here.
    pub fn stop(&self, id: &TaskId) {
        if let Some(task) = lock(&self.tasks).get(id) {
            task.stop.request();
        }
    }

    /// Frees the place of a task that was cancelled in the queue: its holder, somewhere in the channel, must not keep it.
    pub fn release(&self, id: &TaskId) {
        let permit = lock(&self.tasks).get_mut(id).filter(|task| !task.begun).and_then(|task| task.permit.take());
        drop(permit);
    }

    /// The leases to be renewed, each with the moment we asked for what holds it now.
    pub fn leases(&self) -> Vec<(LeasedTask, Instant)> {
        let tasks = lock(&self.tasks);
        let leased = tasks.iter().filter(|(_, task)| !task.lost).filter_map(|(id, task)| Some((id, task.lease?)));
        leased.map(|(id, (epoch, asked))| (LeasedTask { id: id.clone(), epoch }, asked)).collect()
    }

    /// A lease was renewed; it was asked for at `asked`.
    pub fn renewed(&self, task: &LeasedTask, asked: Instant) {
        self.with_lease(task, |in_hand| in_hand.lease = Some((task.epoch, asked)));
    }

    /// A lease is lost: its analysis is told to stop, its holder writes nothing more. False: it was not in hand.
    pub fn lose(&self, task: &LeasedTask) -> bool {
        self.with_lease(task, |in_hand| {
            in_hand.lost = true;
            in_hand.stop.request();
        })
    }

    /// Only the claim of that epoch is meant: the task may have ended and come back under another.
    fn with_lease(&self, task: &LeasedTask, act: impl FnOnce(&mut InHand)) -> bool {
        let mut tasks = lock(&self.tasks);
        let same = |in_hand: &&mut InHand| in_hand.lease.is_some_and(|(epoch, _)| epoch == task.epoch);
        tasks.get_mut(&task.id).filter(same).map(act).is_some()
    }
}

impl Hold {
    /// The task.
    pub fn id(&self) -> &TaskId {
        &self.id
    }

    /// The flag that its analysis must watch.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// A worker begins the task; false: it was cancelled meanwhile, and there is nothing to do.
    pub fn begin(&self) -> bool {
        self.with(|task| {
            task.begun = true;
            task.permit.is_some()
        })
    }

    /// Whether it still has its place: it was not cancelled.
    pub fn wanted(&self) -> bool {
        self.with(|task| task.permit.is_some())
    }

    /// The task is ours under a lease that we asked for at `asked`.
    pub fn leased(&self, epoch: i64, asked: Instant) {
        self.with(|task| task.lease = Some((epoch, asked)));
    }

    /// Whether the lease is known to be another's.
    pub fn lost(&self) -> bool {
        self.with(|task| task.lost)
    }

    fn with<T>(&self, act: impl FnOnce(&mut InHand) -> T) -> T {
        act(lock(&self.held.tasks).get_mut(&self.id).expect("only a hold's drop removes its task"))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Its place first: whoever finds the task free finds a place, too.
        drop(self.with(|task| task.permit.take()));
        {
            let mut tasks = lock(&self.held.tasks);
            tasks.remove(&self.id);
            if tasks.is_empty() {
                tasks.shrink_to(HELD_KEPT);
            }
        }
        self.held.watch.hint(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::admission::Admission;

    fn ground() -> (Arc<Admission>, Arc<Held>, TaskId) {
        (Admission::new(2), Arc::default(), TaskId::from_number(7))
    }

    #[test]
    fn a_task_has_one_holder_at_a_time() {
        let (places, held, id) = ground();
        let take = || held.take(&id, places.admit().expect("a place"));
        let hold = take().expect("free");
        assert!(take().is_none());
        held.stop(&id);
        assert!(hold.stop().requested());
        drop(hold);
        assert_eq!(places.taken(), 0);
        assert!(!take().expect("free again").stop().requested());
    }

    #[test]
    fn a_cancel_frees_the_place_of_a_task_that_nobody_has_begun() {
        let (places, held, id) = ground();
        let hold = held.take(&id, places.admit().expect("a place")).expect("free");
        held.release(&id);
        assert_eq!(places.taken(), 0);
        assert!(!hold.begin(), "there is nothing to do");
        drop(hold);
        let hold = held.take(&id, places.admit().expect("a place")).expect("free");
        assert!(hold.begin());
        held.release(&id);
        assert_eq!(places.taken(), 1, "a worker has it");
    }

    #[test]
    fn a_lease_is_lost_for_its_own_epoch_only() {
        let (places, held, id) = ground();
        let hold = held.take(&id, places.admit().expect("a place")).expect("free");
        let (old, ours) = (LeasedTask { id: id.clone(), epoch: 1 }, LeasedTask { id, epoch: 2 });
        assert!(!held.lose(&ours) && held.leases().is_empty());
        let asked = Instant::now();
        hold.leased(2, asked);
        assert_eq!(held.leases(), [(ours.clone(), asked)]);
        assert!(!held.lose(&old) && !hold.lost());
        assert!(held.lose(&ours) && hold.lost() && hold.stop().requested());
        assert!(held.leases().is_empty(), "nothing to renew any more");
    }
}
