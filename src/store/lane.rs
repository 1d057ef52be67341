//! A lane: one kind of statement, a thread with a connection, and a channel. The thread takes everything that waits on the
//! channel and does it in ONE statement, so that many callers share one commit (one fsync), and all who come meanwhile share
//! the next. An idle lane adds no wait: a lone caller is a batch of one.
//!
//! Where a statement takes long (a locked row, a slow disk, a silent backend), its thread is left behind and a stand-in takes
//! over its work. A caller waits for its results with a deadline, whatever the server does. What one that gave up is told —
//! nothing happened, or nobody knows — is decided by where its wish stands in the [`Call`] that both share.
//!
//! Never here: which statement, and what a result means. That is the [`Operation`]'s.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::error::StoreError;
use super::session::{Pool, Session};
use crate::limits::{BATCH_ROWS, LANE_HELD_UP, LANE_STACK, STAND_INS};
use crate::lock;
use crate::log;

/// One kind of statement.
pub trait Operation: Send + Sync + 'static {
    /// What one caller wants.
    type Input: Send + 'static;
    /// What one caller gets.
    type Output: Send + 'static;
    /// The lane's name, for its threads and the log.
    const NAME: &'static str;
    /// The most inputs in one statement, but for the rest of the last caller's.
    const BATCH: usize = BATCH_ROWS;
    /// Threads of the lane. With one, all who come while it waits for its commit share the next statement.
    const WIDTH: usize = 1;

    /// Does all of `inputs` in one statement that commits by itself; one output per input, in their order.
    fn run(&self, session: &mut Session, inputs: &[Self::Input]) -> Result<Vec<Self::Output>, postgres::Error>;
}

/// The callers' end of a lane. Dropping it ends the threads once the channel is empty.
pub struct Lane<O: Operation> {
    jobs: Sender<Order<O>>,
    crew: Arc<Crew<O>>,
}

/// What one caller wants, all of it in one message: the thread that takes it has all of it for its statement.
type Order<O> = Vec<(<O as Operation>::Input, Wish<<O as Operation>::Output>)>;

/// One call, shared by its caller and the thread that has its order. No channel: a crowd of callers must sleep, and a channel's
/// receiver looks again and again before it does.
struct Call<T> {
    wishes: Mutex<Wishes<T>>,
    settled: Condvar,
}

struct Wishes<T> {
    stand: Vec<Stand<T>>,
    /// Of which the caller still waits for so many.
    open: usize,
}

/// Where a wish stands.
enum Stand<T> {
    Waiting,
    Begun,
    Done(Result<T, StoreError>),
    /// Its caller waits no more.
    Left,
}

/// The thread's end of one wish. Dropped without an answer, by a panic, it leaves the wish as it stood.
struct Wish<T> {
    call: Arc<Call<T>>,
    place: usize,
    answered: bool,
}

impl<T> Wish<T> {
    /// Changes where the wish stands, if `from` says that it is there.
    fn turn(&self, from: fn(&Stand<T>) -> bool, to: Stand<T>) -> bool {
        let mut wishes = lock(&self.call.wishes);
        let stand = &mut wishes.stand[self.place];
        let turns = from(stand);
        if turns {
            *stand = to;
        }
        turns
    }

    /// Takes the wish up, unless its caller has left.
    fn begin(&self) -> bool {
        self.turn(|stand| matches!(stand, Stand::Waiting), Stand::Begun)
    }

    /// Puts a wish back whose statement did nothing; false when its caller has left meanwhile.
    fn put_back(&self) -> bool {
        self.turn(|stand| matches!(stand, Stand::Begun), Stand::Waiting)
    }

    fn answer(mut self, result: Result<T, StoreError>) {
        self.settle(Some(result));
    }

    fn settle(&mut self, result: Option<Result<T, StoreError>>) {
        self.answered = true;
        let mut wishes = lock(&self.call.wishes);
        let stand = &mut wishes.stand[self.place];
        // A caller that has left needs no answer: it was told that the outcome is unknown.
        if let (Stand::Begun, Some(result)) = (&stand, result) {
            *stand = Stand::Done(result);
        }
        wishes.open -= 1;
        if wishes.open == 0 {
            self.call.settled.notify_one();
        }
    }
}

impl<T> Drop for Wish<T> {
    fn drop(&mut self) {
        if !self.answered {
            self.settle(None);
        }
    }
}

/// What the threads of one lane share.
struct Crew<O: Operation> {
    operation: O,
    pool: Pool,
    jobs: Receiver<Order<O>>,
    /// How long a caller waits for its reply.
    patience: Duration,
    threads: Mutex<Vec<Arc<Member>>>,
}

/// One thread of a lane.
#[derive(Default)]
struct Member {
    /// Since when it is in a statement.
    busy: Mutex<Option<Instant>>,
    /// A stand-in has its place: it ends when its statement does.
    replaced: AtomicBool,
}

impl<O: Operation> Lane<O> {
    /// Starts its threads. Callers wait at most `patience`.
    pub fn start(operation: O, pool: Pool, patience: Duration) -> Lane<O> {
        let (sender, jobs) = unbounded();
        let crew = Arc::new(Crew { operation, pool, jobs, patience, threads: Mutex::default() });
        for _ in 0..O::WIDTH {
            crew.hire();
        }
        Lane { jobs: sender, crew }
    }

    /// How long a caller waits unless it says otherwise.
    pub fn patience(&self) -> Duration {
        self.crew.patience
    }

    /// Has `input` done and waits for its result.
    ///
    /// # Errors
    /// After the lane's patience [`StoreError::NotDone`] when it was not begun, else [`StoreError::Unknown`].
    pub fn call(&self, input: O::Input) -> Result<O::Output, StoreError> {
        self.call_within(self.crew.patience, input)
    }

    /// The same for a caller with less patience than the lane's.
    pub fn call_within(&self, patience: Duration, input: O::Input) -> Result<O::Output, StoreError> {
        self.call_all_within(patience, vec![input]).pop().expect("one result for one input")
    }

    /// Has all of `inputs` done, each on its own account, and waits for their results, in their order.
    pub fn call_all(&self, inputs: Vec<O::Input>) -> Vec<Result<O::Output, StoreError>> {
        self.call_all_within(self.crew.patience, inputs)
    }

    /// The same for callers with less patience than the lane's.
    pub fn call_all_within(&self, patience: Duration, inputs: Vec<O::Input>) -> Vec<Result<O::Output, StoreError>> {
        let deadline = Instant::now() + patience;
        let stand = inputs.iter().map(|_| Stand::Waiting).collect();
        let call = Arc::new(Call { wishes: Mutex::new(Wishes { stand, open: inputs.len() }), settled: Condvar::new() });
        let wish = |place| Wish { call: Arc::clone(&call), place, answered: false };
        let order = inputs.into_iter().enumerate().map(|(place, input)| (input, wish(place))).collect();
        // Cannot fail: the crew holds the other end for as long as the lane lives.
        let _ = self.jobs.send(order);
        while !call.wait(deadline.min(Instant::now() + LANE_HELD_UP)) && Instant::now() < deadline {
            self.crew.replace_the_held_up();
        }
        let stands = call.leave();
        let waited = || format!("{} waited {} ms", O::NAME, patience.as_millis());
        let result = |stand| match stand {
            Stand::Done(result) => result,
            Stand::Waiting | Stand::Left => Err(StoreError::NotDone(waited())),
            Stand::Begun => Err(StoreError::Unknown(waited())),
        };
        stands.into_iter().map(result).collect()
    }
}

impl<T> Call<T> {
    /// Waits until every wish is settled, or no longer than `deadline`; whether they are.
    fn wait(&self, deadline: Instant) -> bool {
        let mut wishes = lock(&self.wishes);
        loop {
            let patience = deadline.saturating_duration_since(Instant::now());
            if wishes.open == 0 || patience.is_zero() {
                return wishes.open == 0;
            }
            wishes = self.settled.wait_timeout(wishes, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits no more; how the wishes stand.
    fn leave(&self) -> Vec<Stand<T>> {
        let mut wishes = lock(&self.wishes);
        wishes.stand.iter_mut().map(|stand| mem::replace(stand, Stand::Left)).collect()
    }
}

impl<O: Operation> Crew<O> {
    fn members(&self) -> MutexGuard<'_, Vec<Arc<Member>>> {
        lock(&self.threads)
    }

    /// Adds a thread. A failed spawn is logged: the lane goes on with those it has.
    fn hire(self: &Arc<Self>) {
        let member = Arc::new(Member::default());
        let (crew, me) = (self.clone(), member.clone());
        let spawned = thread::Builder::new().name(O::NAME.into()).stack_size(LANE_STACK).spawn(move || {
            let panicked = catch_unwind(AssertUnwindSafe(|| crew.work(&me))).is_err();
            crew.members().retain(|other| !Arc::ptr_eq(other, &me));
            if panicked {
                crew.hire(); // its callers' wishes were settled without a result: outcome unknown
            }
        });
        match spawned {
            Ok(_) => self.members().push(member),
            Err(error) => log::line(format_args!("cannot start a thread for {}: {error}", O::NAME)),
        }
    }

    /// Puts a stand-in beside each thread that has been in one statement for long, where somebody waits behind it.
    fn replace_the_held_up(self: &Arc<Self>) {
        if self.jobs.is_empty() {
            return;
        }
        let held_up = {
            let members = self.members();
            let room = (O::WIDTH + STAND_INS).saturating_sub(members.len());
            let is_held_up = |member: &&Arc<Member>| {
                let busy = *lock(&member.busy);
                busy.is_some_and(|since| since.elapsed() >= LANE_HELD_UP)
                    && !member.replaced.swap(true, Ordering::AcqRel)
            };
            members.iter().filter(is_held_up).take(room).count()
        };
        for _ in 0..held_up {
            self.hire();
        }
    }

    fn work(&self, me: &Member) {
        while let Ok(mut batch) = self.jobs.recv() {
            // Where others wait for a processor, those who are about to ask come first, and share the statement. Where nobody
            // does, this returns at once.
            thread::yield_now();
            while batch.len() < O::BATCH {
                let Ok(more) = self.jobs.try_recv() else { break };
                batch.extend(more);
            }
            let wanted = batch.into_iter().filter(|(_, wish)| wish.begin());
            let (inputs, wishes): (Vec<_>, Vec<_>) = wanted.unzip();
            if inputs.is_empty() {
                continue;
            }
            me.set_busy(Some(Instant::now()));
            self.serve(inputs, wishes);
            me.set_busy(None);
            if me.replaced.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Does a batch and answers each caller. One bad row fails a whole statement, so after a failure that changed
    /// nothing each is tried alone: only the bad one fails.
    fn serve(&self, inputs: Vec<O::Input>, wishes: Vec<Wish<O::Output>>) {
        let result = self.pool.session().and_then(|session| self.attempt(session, &inputs, wishes.len() > 1));
        match result {
            Ok(Some(outputs)) => {
                for (wish, output) in wishes.into_iter().zip(outputs) {
                    wish.answer(Ok(output));
                }
            }
            Ok(None) => {
                let waiting: Vec<bool> = wishes.iter().map(Wish::put_back).collect();
                for ((input, wish), waiting) in inputs.into_iter().zip(wishes).zip(waiting) {
                    if waiting && wish.begin() {
                        self.serve(vec![input], vec![wish]);
                    }
                }
            }
            Err(error) => {
                for wish in wishes {
                    wish.answer(Err(error.clone()));
                }
            }
        }
    }

    /// One statement on a connection that the pool has back right after, so that lanes never wait for each other's. None:
    /// the server refused the batch or gave it up, and its parts may fare better.
    fn attempt(
        &self,
        mut session: Session,
        inputs: &[O::Input],
        divisible: bool,
    ) -> Result<Option<Vec<O::Output>>, StoreError> {
        match self.operation.run(&mut session, inputs).map_err(|error| StoreError::of_statement(&error)) {
            Ok(outputs) => Ok(Some(outputs)),
            Err(StoreError::Refused(_) | StoreError::NotDone(_)) if divisible => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Member {
    fn set_busy(&self, since: Option<Instant>) {
        *lock(&self.busy) = since;
    }
}
