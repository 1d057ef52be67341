//! The watch: tells those who wait for a task that it has left this process's hands, which is when it may have ended. A hint
//! and nothing more: it may come too often, and for a task of another instance not at all. The row decides.

use std::collections::HashMap;
use std::sync::Mutex;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::limits::WATCH_HINTS;
use crate::lock;
use crate::task::TaskId;

/// The tasks watched, and the hints not yet taken.
#[derive(Debug)]
pub struct Watch {
    /// How many watch each task.
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
    /// Asks for hints about a task. Look at its row after this, not before: the end in between would be missed.
    pub fn add(&self, id: &TaskId) {
        *lock(&self.watched).entry(id.clone()).or_default() += 1;
    }

    /// Takes one [`Watch::add`] back.
    pub fn remove(&self, id: &TaskId) {
        let mut watched = lock(&self.watched);
        if let Some(count) = watched.get_mut(id) {
            *count -= 1;
            if *count == 0 {
                watched.remove(id);
            }
        }
    }

    /// Where hints arrive. One reader: each hint goes to one only.
    pub fn hints(&self) -> &Receiver<TaskId> {
        &self.hints
    }

    /// The task may have ended.
    pub(super) fn hint(&self, id: &TaskId) {
        if lock(&self.watched).contains_key(id) {
            // Full: its reader is behind, and looks at every row once a second anyway.
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
        assert!(lock(&watch.watched).is_empty());
    }
}
