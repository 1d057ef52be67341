//! The board: what there is to do for the workers of one process. A task is claimed and ended together with others, and
//! analysed alone; whoever is free takes the next step of any. An analysis that takes long keeps one worker, and no other task.
//!
//! Must never let work lie while a worker sleeps: who takes a step and leaves another one behind wakes somebody for it.

use std::collections::VecDeque;
use std::mem;
use std::sync::Mutex;
use std::thread::{self, Thread};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::admission::Finishing;
use super::held::Hold;
use crate::limits::{BATCH_ROWS, BOARD_CALLS};
use crate::lock;
use crate::store::{Claimed, Finish, StoreError};

/// A task that a worker has begun, and what the database said of its claim.
pub struct Begun {
    /// The task.
    pub hold: Hold,
    /// When it was claimed, by our own clock.
    pub since: Instant,
    /// The error of a claim that was not plainly won.
    pub claimed: Result<Claimed, StoreError>,
}

/// A task whose analysis has ended, and whose row is still to be told.
pub struct Ended {
    /// The task.
    pub hold: Hold,
    /// When it was claimed.
    pub since: Instant,
    /// How it ended.
    pub finish: Finish,
    /// From the first try of the write until the task's place is free.
    pub finishing: Finishing,
}

/// What a worker does next.
pub enum Step {
    /// Listen to the channel, with a place for one task; [`Board::claiming`] or [`Board::stop_listening`] afterwards.
    Listen,
    /// Analyse this one.
    Analyse(Begun),
    /// Tell the database how these ended; [`Board::finished`] afterwards.
    Finish(Vec<Ended>),
    /// Find out what became of this write, which the database did not plainly do.
    Insist(Ended, StoreError),
    /// There will be nothing more.
    Leave,
}

/// Which step there is to take.
enum Due {
    Listen,
    Analyse,
    Finish,
    Insist,
    Leave,
}

/// Shared by all workers.
pub struct Board {
    state: Mutex<State>,
    ring: Sender<()>,
    bell: Receiver<()>,
}

struct State {
    begun: VecDeque<Begun>,
    ended: Vec<Ended>,
    troubled: Vec<(Ended, StoreError)>,
    /// Free places: so many more tasks may be RUNNING.
    places: usize,
    /// How many places there are.
    total: usize,
    /// A worker listens to the channel.
    listening: bool,
    /// Workers that claim, and that finish: [`BOARD_CALLS`] each at most. What one more would have in hand is better off in the
    /// next one's statement.
    claiming: usize,
    finishing: usize,
    /// Nothing comes through the channel any more.
    closed: bool,
    /// A thread of the service has died, perhaps with steps and places that nobody will ever give back.
    abandoned: bool,
    /// Workers that sleep. The last to go to sleep is the first to be woken, so that as few of them as can do the work have
    /// their memory in use.
    asleep: Vec<Thread>,
    /// One of them was woken and is not here yet. It will see what there is by then, and wake the next.
    waking: bool,
}

impl Board {
    /// An empty board with room for `places` running tasks, one for each worker.
    pub fn new(places: usize) -> Board {
        let (ring, bell) = bounded(1);
        let state = State {
            begun: VecDeque::new(),
            ended: Vec::new(),
            troubled: Vec::new(),
            places,
            total: places,
            listening: false,
            claiming: 0,
            finishing: 0,
            closed: false,
            abandoned: false,
            asleep: Vec::new(),
            waking: false,
        };
        Board { state: Mutex::new(state), ring, bell }
    }

    /// The next step; waits for one.
    pub fn next(&self) -> Step {
        loop {
            {
                let mut state = lock(&self.state);
                let step = state.take();
                self.wake_for(&mut state);
                if let Some(step) = step {
                    return step;
                }
                state.asleep.push(thread::current());
            }
            thread::park();
            lock(&self.state).awake();
        }
    }

    /// Wakes somebody when there is a step left: one who sleeps, or else the one who listens to the channel.
    fn wake_for(&self, state: &mut State) {
        if state.waking || state.due().is_none() {
            return;
        }
        if let Some(worker) = state.asleep.pop() {
            state.waking = true;
            worker.unpark();
        } else if state.listening {
            // A bell that rings already is enough.
            let _ = self.ring.try_send(());
        }
    }

    /// Rings when there is a step for the worker that listens to the channel.
    pub fn bell(&self) -> &Receiver<()> {
        &self.bell
    }

    /// The worker that listened claims now, beside the task that it has place for up to `more` others: for how many there are
    /// places. [`Board::claimed`] afterwards.
    pub fn claiming(&self, more: usize) -> usize {
        let mut state = lock(&self.state);
        let granted = more.min(state.places).min(BATCH_ROWS - 1);
        state.places -= granted;
        (state.listening, state.claiming) = (false, state.claiming + 1);
        self.wake_for(&mut state);
        granted
    }

    /// The worker that listened has nothing to claim.
    pub fn stop_listening(&self) {
        let mut state = lock(&self.state);
        (state.listening, state.places) = (false, state.places + 1);
    }

    /// A worker has claimed these, and gives back the places that it did not need.
    pub fn claimed(&self, begun: Vec<Begun>, unused: usize) {
        let mut state = lock(&self.state);
        state.claiming -= 1;
        state.places += unused;
        state.begun.extend(begun);
    }

    /// An analysis has ended.
    pub fn ended(&self, ended: Ended) {
        lock(&self.state).ended.push(ended);
    }

    /// A worker has told the database of `done` tasks, which need no place any more; these are in trouble.
    pub fn finished(&self, done: usize, troubled: Vec<(Ended, StoreError)>) {
        let mut state = lock(&self.state);
        state.finishing -= 1;
        state.places += done;
        state.troubled.extend(troubled);
    }

    /// A task needs its place no more.
    pub fn free_place(&self) {
        lock(&self.state).places += 1;
    }

    /// Nothing comes through the channel any more: workers leave when the last task has ended.
    pub fn close(&self) {
        lock(&self.state).closed = true;
    }

    /// The service cannot go on: each worker leaves when there is nothing for it to do.
    pub fn abandon(&self) {
        let mut state = lock(&self.state);
        (state.closed, state.abandoned) = (true, true);
        self.wake_for(&mut state);
    }
}

impl State {
    /// This thread sleeps no more: it was woken, or for no reason, as a parked thread may.
    fn awake(&mut self) {
        let me = thread::current().id();
        match self.asleep.iter().position(|worker| worker.id() == me) {
            Some(place) => drop(self.asleep.remove(place)),
            None => self.waking = false,
        }
    }

    /// Analyses come first: while they are short, those who finish and claim find the more to do at once. They cannot keep the
    /// others from it: each begun task has its place, and there is a worker for each place.
    fn due(&self) -> Option<Due> {
        let nothing_left = self.begun.is_empty() && self.ended.is_empty() && self.troubled.is_empty();
        if !self.begun.is_empty() {
            Some(Due::Analyse)
        } else if !self.troubled.is_empty() {
            Some(Due::Insist)
        } else if !self.ended.is_empty() && self.finishing < BOARD_CALLS {
            Some(Due::Finish)
        } else if !self.closed && !self.listening && self.claiming < BOARD_CALLS && self.places > 0 {
            Some(Due::Listen)
        } else if self.closed && (self.places == self.total || self.abandoned && nothing_left) {
            Some(Due::Leave)
        } else {
            None
        }
    }

    fn take(&mut self) -> Option<Step> {
        match self.due()? {
            Due::Analyse => self.begun.pop_front().map(Step::Analyse),
            Due::Insist => self.troubled.pop().map(|(ended, error)| Step::Insist(ended, error)),
            Due::Finish => {
                self.finishing += 1;
                let rest = self.ended.split_off(self.ended.len().min(BATCH_ROWS));
                Some(Step::Finish(mem::replace(&mut self.ended, rest)))
            }
            Due::Listen => {
                (self.listening, self.places) = (true, self.places - 1);
                Some(Step::Listen)
            }
            Due::Leave => Some(Step::Leave),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::service::admission::Admission;
    use crate::service::held::Held;
    use crate::task::{Analysis, TaskId};

    struct Ground {
        board: Board,
        permits: Arc<Admission>,
        held: Arc<Held>,
    }

    impl Ground {
        fn new(places: usize) -> Ground {
            Ground { board: Board::new(places), permits: Admission::new(100), held: Arc::default() }
        }

        fn begun(&self, number: i64) -> Begun {
            let permit = self.permits.admit().expect("a place");
            let hold = self.held.take(&TaskId::from_number(number), permit).expect("nobody has it");
            Begun { hold, since: Instant::now(), claimed: Ok(Claimed { text: String::new(), epoch: 1 }) }
        }

        fn end(&self, begun: Begun) {
            let finish = Finish { id: begun.hold.id().clone(), epoch: 1, analysis: Analysis::Stopped };
            let finishing = self.permits.finishing();
            self.board.ended(Ended { hold: begun.hold, since: begun.since, finish, finishing });
        }

        fn rings(&self) -> bool {
            self.board.bell().try_recv().is_ok()
        }

        /// Waits until so many workers sleep.
        fn until_asleep(&self, workers: usize) {
            while lock(&self.board.state).asleep.len() != workers {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn one_worker_takes_a_task_through_all_its_steps() {
        let ground = Ground::new(1);
        assert!(matches!(ground.board.next(), Step::Listen));
        assert!(!ground.rings(), "there is no place for another one's task");
        assert_eq!(ground.board.claiming(5), 0);
        ground.board.claimed(vec![ground.begun(0)], 0);
        let Step::Analyse(begun) = ground.board.next() else { panic!("it is analysed") };
        ground.end(begun);
        let Step::Finish(ended) = ground.board.next() else { panic!("its end is written") };
        ground.board.finished(ended.len(), Vec::new());
        assert!(matches!(ground.board.next(), Step::Listen));
    }

    #[test]
    fn who_leaves_work_behind_wakes_somebody_for_it() {
        let ground = Ground::new(4);
        assert!(matches!(ground.board.next(), Step::Listen));
        assert_eq!(ground.board.claiming(9), 3, "as many as there are places");
        thread::scope(|scope| {
            let sleepers: Vec<_> = (0..2).map(|_| scope.spawn(|| ground.board.next())).collect();
            ground.until_asleep(2);
            ground.board.claimed((0..4).map(|number| ground.begun(number)).collect(), 0);
            // One for this worker, and one for each of the others: woken by this one, and by each other.
            assert!(matches!(ground.board.next(), Step::Analyse(_)));
            assert!(sleepers.into_iter().all(|sleeper| matches!(sleeper.join().expect("no panic"), Step::Analyse(_))));
        });
    }

    #[test]
    fn the_one_who_listens_is_called_when_nobody_sleeps() {
        let ground = Ground::new(4);
        assert!(matches!(ground.board.next(), Step::Listen));
        ground.board.claiming(1);
        assert!(matches!(ground.board.next(), Step::Listen));
        assert!(!ground.rings(), "nothing is left");
        ground.board.claimed((0..2).map(|number| ground.begun(number)).collect(), 0);
        let Step::Analyse(begun) = ground.board.next() else { panic!("it is analysed") };
        assert!(ground.rings(), "another is left");
        ground.board.stop_listening();
        let Step::Analyse(other) = ground.board.next() else { panic!("by who listened") };
        [begun, other].into_iter().for_each(|begun| ground.end(begun));
        let Step::Finish(ended) = ground.board.next() else { panic!("both together") };
        let trouble = ended.into_iter().map(|ended| (ended, StoreError::NotDone(String::new())));
        ground.board.finished(0, trouble.collect());
        assert!((0..2).all(|_| matches!(ground.board.next(), Step::Insist(..))));
    }

    #[test]
    fn everybody_leaves_when_the_last_task_has_ended() {
        let ground = Ground::new(2);
        assert!(matches!(ground.board.next(), Step::Listen));
        ground.board.claiming(0);
        ground.board.claimed(vec![ground.begun(0)], 0);
        let Step::Analyse(begun) = ground.board.next() else { panic!("it is analysed") };
        ground.board.close();
        assert!(lock(&ground.board.state).take().is_none(), "a task still runs, and may need them");
        drop(begun);
        ground.board.free_place();
        (0..3).for_each(|worker| assert!(matches!(ground.board.next(), Step::Leave), "worker {worker}"));
    }
}
