//! A lane: one kind of statement, a thread that does it, and a channel. The thread takes everything that waits on the
//! channel and does it in ONE statement, so that many callers share one commit (one fsync), and all who come meanwhile share
//! the next. An idle lane adds no wait: a lone caller is a batch of one.
//!
//! Where a statement takes long (a locked row, a slow disk, a silent backend), its thread is left behind and a stand-in takes
//! over its work. A caller waits for its results with a deadline, whatever the server does. What one that gave up is told —
//! nothing happened, or nobody knows — is decided by where its wish stands in the `Call` that both share.
//!
//! Never here: which statement, and what a result means. That is the [`Operation`]'s.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
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
    /// The most inputs in one statement. One caller's are never divided, so it may get longer.
    const BATCH: usize = BATCH_ROWS;
    /// Threads of the lane. With one, all who come while it waits for its commit share the next statement.
    const WIDTH: usize = 1;
    /// The same with all stand-ins.
    const MOST_THREADS: usize = Self::WIDTH + STAND_INS;

    /// Does all of `inputs` in one statement that commits by itself; one output per input, in their order.
    fn run(&self, session: &mut Session, inputs: &[Self::Input]) -> Result<Vec<Self::Output>, postgres::Error>;
}

/// The callers' end of a lane. Dropping it ends the threads once the channel is empty.
pub struct Lane<O: Operation> {
    orders: Sender<Order<O>>,
    threads: Arc<Threads<O>>,
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
    stands: Vec<Stand<T>>,
    /// How many of them nobody has answered yet, or dropped.
    unsettled: usize,
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
    index: usize,
    answered: bool,
}

impl<T> Wish<T> {
    /// Changes where the wish stands, if `is_there` says that it may.
    fn advance(&self, is_there: fn(&Stand<T>) -> bool, to: Stand<T>) -> bool {
        let mut wishes = lock(&self.call.wishes);
        let stand = &mut wishes.stands[self.index];
        let advances = is_there(stand);
        if advances {
            *stand = to;
        }
        advances
    }

    /// Takes the wish up, unless its caller has left.
    fn begin(&self) -> bool {
        self.advance(|stand| matches!(stand, Stand::Waiting), Stand::Begun)
    }

    /// Puts a wish back whose statement did nothing; false when its caller has left meanwhile.
    fn put_back(&self) -> bool {
        self.advance(|stand| matches!(stand, Stand::Begun), Stand::Waiting)
    }

    fn answer(mut self, result: Result<T, StoreError>) {
        self.settle(Some(result));
    }

    fn settle(&mut self, result: Option<Result<T, StoreError>>) {
        self.answered = true;
        let mut wishes = lock(&self.call.wishes);
        let stand = &mut wishes.stands[self.index];
        // A caller that has left needs no answer: it was told that the outcome is unknown.
        if let (Stand::Begun, Some(result)) = (&stand, result) {
            *stand = Stand::Done(result);
        }
        wishes.unsettled -= 1;
        if wishes.unsettled == 0 {
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

/// The threads of one lane, and what they share.
struct Threads<O: Operation> {
    name: &'static str,
    operation: O,
    pool: Pool,
    orders: Receiver<Order<O>>,
    /// How long a caller waits for its reply.
    patience: Duration,
    members: Mutex<Vec<Arc<Member>>>,
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
    /// Starts its threads, under the lane's name. Callers wait at most `patience`.
    pub fn start(name: &'static str, operation: O, pool: Pool, patience: Duration) -> Lane<O> {
        let (sender, orders) = unbounded();
        let threads = Arc::new(Threads { name, operation, pool, orders, patience, members: Mutex::default() });
        threads.fill(&mut lock(&threads.members));
        Lane { orders: sender, threads }
    }

    /// How long a caller waits unless it says otherwise.
    pub fn patience(&self) -> Duration {
        self.threads.patience
    }

    /// Has `input` done and waits for its result.
    ///
    /// # Errors
    /// After the lane's patience [`StoreError::NotDone`] when it was not begun, else [`StoreError::Unknown`].
    pub fn call(&self, input: O::Input) -> Result<O::Output, StoreError> {
        self.call_within(self.threads.patience, input)
    }

    /// The same for a caller with less patience than the lane's.
    pub fn call_within(&self, patience: Duration, input: O::Input) -> Result<O::Output, StoreError> {
        self.call_all_within(patience, vec![input]).pop().expect("one result for one input")
    }

    /// Has all of `inputs` done, each on its own account, and waits for their results, in their order.
    pub fn call_all(&self, inputs: Vec<O::Input>) -> Vec<Result<O::Output, StoreError>> {
        self.call_all_within(self.threads.patience, inputs)
    }

    /// The same for callers with less patience than the lane's.
    pub fn call_all_within(&self, patience: Duration, inputs: Vec<O::Input>) -> Vec<Result<O::Output, StoreError>> {
        let deadline = Instant::now() + patience;
        let wishes = Wishes { stands: inputs.iter().map(|_| Stand::Waiting).collect(), unsettled: inputs.len() };
        let call = Arc::new(Call { wishes: Mutex::new(wishes), settled: Condvar::new() });
        let wish = |index| Wish { call: Arc::clone(&call), index, answered: false };
        let order = inputs.into_iter().enumerate().map(|(index, input)| (input, wish(index))).collect();
        // Cannot fail: the threads hold the other end for as long as the lane lives.
        let _ = self.orders.send(order);
        while !call.wait(deadline.min(Instant::now() + LANE_HELD_UP)) && Instant::now() < deadline {
            self.threads.replace_the_held_up();
        }
        let stands = call.leave();
        let waited = || format!("{} waited {} ms", self.threads.name, patience.as_millis());
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
            if wishes.unsettled == 0 || patience.is_zero() {
                return wishes.unsettled == 0;
            }
            wishes = self.settled.wait_timeout(wishes, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits no more; how the wishes stand.
    fn leave(&self) -> Vec<Stand<T>> {
        let mut wishes = lock(&self.wishes);
        wishes.stands.iter_mut().map(|stand| mem::replace(stand, Stand::Left)).collect()
    }
}

impl<O: Operation> Threads<O> {
    /// Starts the threads that are missing.
    fn fill(self: &Arc<Self>, members: &mut Vec<Arc<Member>>) {
        while members.len() < O::WIDTH && self.hire(members) {}
    }

    /// Starts one more thread; false, and logged, when there can be none.
    fn hire(self: &Arc<Self>, members: &mut Vec<Arc<Member>>) -> bool {
        let member = Arc::new(Member::default());
        let (threads, me) = (self.clone(), member.clone());
        let spawned = thread::Builder::new().name(self.name.into()).stack_size(LANE_STACK).spawn(move || {
            // A panic has settled its callers' wishes without a result: outcome unknown.
            while catch_unwind(AssertUnwindSafe(|| threads.work(&me))).is_err() {}
            lock(&threads.members).retain(|other| !Arc::ptr_eq(other, &me));
        });
        match spawned {
            Ok(_) => members.push(member),
            Err(ref error) => log::line(format_args!("cannot start a thread for {}: {error}", self.name)),
        }
        spawned.is_ok()
    }

    /// Puts a stand-in beside each thread that has been in one statement for long, where somebody waits behind it.
    fn replace_the_held_up(self: &Arc<Self>) {
        if self.orders.is_empty() {
            return;
        }
        let mut members = lock(&self.members);
        self.fill(&mut members);
        let room = O::MOST_THREADS.saturating_sub(members.len());
        let held_up: Vec<_> = members.iter().filter(|member| member.is_held_up()).take(room).cloned().collect();
        for member in held_up {
            // In this order: without a stand-in it has to stay.
            let hired = self.hire(&mut members);
            member.replaced.store(hired, Ordering::Release);
        }
    }

    fn work(&self, me: &Member) {
        me.set_busy(None);
        while let Ok(mut batch) = self.orders.recv() {
            // Where others wait for a processor, those who are about to ask come first, and share the statement. Where nobody
            // does, this returns at once.
            thread::yield_now();
            while batch.len() < O::BATCH {
                let Ok(more) = self.orders.try_recv() else { break };
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
                // All of them: whoever leaves while others are tried is told that nothing was done.
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
    fn is_held_up(&self) -> bool {
        let busy = *lock(&self.busy);
        busy.is_some_and(|since| since.elapsed() >= LANE_HELD_UP) && !self.replaced.load(Ordering::Acquire)
    }

    fn set_busy(&self, since: Option<Instant>) {
        *lock(&self.busy) = since;
    }
}
