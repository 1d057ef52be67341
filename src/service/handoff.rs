//! The hand-off: the bounded channel from those who have a committed task to the workers. It has a place for every permit, so
//! a task that has one never waits here; tasks that were cancelled on the way make room when it is needed.

use std::sync::Mutex;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::held::Hold;
use crate::lock;

/// The sending end, and the one receiving end that workers clone.
#[derive(Debug)]
pub struct Handoff {
    sender: Mutex<Option<Sender<Hold>>>,
    receiver: Receiver<Hold>,
}

impl Handoff {
    /// A channel for `places` tasks.
    pub fn new(places: usize) -> Handoff {
        let (sender, receiver) = bounded(places);
        Handoff { sender: Mutex::new(Some(sender)), receiver }
    }

    /// The workers' end. It ends when the hand-off is closed and empty.
    pub fn receiver(&self) -> Receiver<Hold> {
        self.receiver.clone()
    }

    /// Hands a task to the workers. Once closed it is let go of: its row stays QUEUED.
    pub fn send(&self, hold: Hold) {
        let sender = lock(&self.sender);
        let Some(sender) = &*sender else { return };
        if let Err(TrySendError::Full(hold)) = sender.try_send(hold) {
            // Cancelled tasks hold no permit but still lie here. The others, with this one, have a place each.
            let waiting: Vec<Hold> = self.receiver.try_iter().filter(Hold::wanted).collect();
            for hold in waiting.into_iter().chain([hold]) {
                let _ = sender.try_send(hold);
            }
        }
    }

    /// Takes nothing more in; what is in it can still be received.
    pub fn close(&self) {
        *lock(&self.sender) = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::service::admission::Admission;
    use crate::service::held::Held;
    use crate::task::TaskId;

    #[test]
    fn cancelled_tasks_make_room_and_the_others_keep_their_order() {
        let (places, held, handoff) = (Admission::new(3), Arc::<Held>::default(), Handoff::new(3));
        let hand_on = |number| {
            let id = TaskId::from_number(number);
            handoff.send(held.take(&id, places.admit().expect("a place")).expect("nobody has it"));
        };
        (0..3).for_each(hand_on);
        held.release(&TaskId::from_number(0));
        held.release(&TaskId::from_number(2));
        (3..5).for_each(hand_on);
        assert_eq!(places.taken(), 3);
        handoff.close();
        let order: Vec<_> = handoff.receiver().iter().filter(Hold::begin).map(|hold| hold.id().number()).collect();
        assert_eq!(order, [Some(1), Some(3), Some(4)]);
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn what_comes_after_the_close_is_let_go() {
        let (places, held, handoff) = (Admission::new(1), Arc::<Held>::default(), Handoff::new(1));
        handoff.close();
        let id = TaskId::from_number(0);
        handoff.send(held.take(&id, places.admit().expect("a place")).expect("nobody has it"));
        assert!(handoff.receiver().recv().is_err());
        assert!(!held.has(&id) && places.taken() == 0);
    }
}
