//! Hints for long polls: a task that is watched is no longer in flight here, so it may have ended. Never more than a hint: it may
//! come too often, and not at all for a task of another instance. The row decides.

use std::collections::HashMap;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use crate::limits::WATCH_HINTS;
use crate::task::TaskId;

/// The tasks watched, and the hints not yet received.
#[derive(Debug)]
pub struct Watch {
    /// How many long polls watch each task.
    watched: Mutex<HashMap<TaskId, usize>>,
    hint: Sender<TaskId>,
    hints: Receiver<TaskId>,
}

impl Default for Watch {
    fn default() -> Watch {
        let (hint, hints) = bounded(WATCH_HINTS);
        Watch { watched: Mutex::default(), hint, hints }
    }
}

impl Watch {
    /// Requests hints about a task. Read its row after this, not before: an end in between would be missed.
    pub fn add(&self, id: &TaskId) {
        *self.watched.lock().entry(id.clone()).or_default() += 1;
    }

    /// Undoes one [`Watch::add`].
    pub fn remove(&self, id: &TaskId) {
        let mut watched = self.watched.lock();
        if let Some(count) = watched.get_mut(id) {
            *count -= 1;
            if *count == 0 {
                watched.remove(id);
            }
        }
    }

    /// Where hints arrive, for one reader.
    pub fn hints(&self) -> &Receiver<TaskId> {
        &self.hints
    }

    /// The task may have ended.
    pub(super) fn hint(&self, id: &TaskId) {
        if self.watched.lock().contains_key(id) {
            // Full: the reader is behind, and reads every row once a second anyway.
            let _ = self.hint.try_send(id.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_come_for_what_is_watched_only() {
        let (watch, id) = (Watch::default(), TaskId::from_number(1));
        watch.hint(&id);
        assert!(watch.hints().is_empty());
        watch.add(&id);
        watch.add(&id);
        watch.remove(&id);
        watch.hint(&id);
        assert_eq!(watch.hints().try_recv(), Ok(id.clone()));
        watch.remove(&id);
        watch.hint(&id);
        assert!(watch.hints().is_empty());
        assert!(watch.watched.lock().is_empty());
    }
}
