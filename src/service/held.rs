//! Which tasks this process has in hand, from hand-off to end. One holder per task and process: a task that the feeder
//! and its submitter both find is handed on once, so a row that is RUNNING under our name is known to be its holder's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::watch::Watch;
use crate::lock;
use crate::task::{Stop, TaskId};

/// The tasks in hand, each with the flag that stops its analysis.
#[derive(Debug, Default)]
pub struct Held {
    tasks: Mutex<HashMap<TaskId, Stop>>,
    /// Told when a task leaves.
    pub watch: Watch,
}

/// Sole possession of a task within this process, until dropped.
#[derive(Debug)]
pub struct Hold {
    held: Arc<Held>,
    id: TaskId,
    stop: Stop,
}

impl Held {
    /// Takes the task, unless somebody in this process has it.
    pub fn take(self: &Arc<Self>, id: &TaskId) -> Option<Hold> {
        let stop = Stop::default();
        let mut tasks = lock(&self.tasks);
        if tasks.contains_key(id) {
            return None;
        }
        tasks.insert(id.clone(), stop.clone());
        Some(Hold { held: self.clone(), id: id.clone(), stop })
    }

    /// Whether somebody in this process has it.
    pub fn has(&self, id: &TaskId) -> bool {
        lock(&self.tasks).contains_key(id)
    }

    /// Tells the task's analysis to stop, if it is in hand here.
    pub fn stop(&self, id: &TaskId) {
        if let Some(stop) = lock(&self.tasks).get(id) {
            stop.request();
        }
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
}

impl Drop for Hold {
    fn drop(&mut self) {
        lock(&self.held.tasks).remove(&self.id);
        self.held.watch.hint(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_one_holder_at_a_time() {
        let held = Arc::new(Held::default());
        let id = TaskId::from_number(7);
        let hold = held.take(&id).expect("free");
        assert!(held.has(&id) && held.take(&id).is_none());
        held.stop(&id);
        assert!(hold.stop().requested());
        drop(hold);
        assert!(!held.has(&id));
        assert!(!held.take(&id).expect("free again").stop().requested());
    }
}
