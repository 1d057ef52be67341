//! A lane: one kind of statement, a few threads with a connection each, and a channel. A thread takes everything that
//! waits on the channel and does it in ONE statement, so that many callers share one commit (one fsync). An idle lane
//! adds no wait: a lone caller is a batch of one.
//!
//! A caller waits for its reply with a deadline, whatever the server does; the thread in the silent backend is left
//! behind and a stand-in takes over its work. What a caller that gave up is told — nothing happened, or nobody knows —
//! is decided by one atomic state shared with the thread.
//!
//! Never here: which statement, and what a result means. That is the [`Operation`]'s.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::error::StoreError;
use super::session::{Pool, Session};
use crate::limits::{BATCH_ROWS, LANE_STACK, STAND_INS};
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

    /// Does all of `inputs` in one statement that commits by itself; one output per input, in their order.
    fn run(&self, session: &mut Session, inputs: &[Self::Input]) -> Result<Vec<Self::Output>, postgres::Error>;
}

/// The callers' end of a lane. Dropping it ends the threads once the channel is empty.
pub struct Lane<O: Operation> {
    jobs: Sender<Order<O>>,
    crew: Arc<Crew<O>>,
}

/// What one caller wants, all of it in one message: the thread that takes it has all of it for its statement.
type Order<O> = Vec<(<O as Operation>::Input, Caller<<O as Operation>::Output>)>;

/// Where a caller's wish stands.
const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const LEFT: u8 = 2;

struct Caller<T> {
    state: Arc<AtomicU8>,
    /// Which of its caller's wishes it is.
    place: usize,
    reply: Sender<(usize, Result<T, StoreError>)>,
}

impl<T> Caller<T> {
    /// Takes the wish up, unless its caller has left.
    fn begin(&self) -> bool {
        self.state.compare_exchange(WAITING, BEGUN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Puts a wish back whose statement did nothing; false when its caller has left meanwhile.
    fn put_back(&self) -> bool {
        self.state.compare_exchange(BEGUN, WAITING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn answer(&self, result: Result<T, StoreError>) {
        // A caller that has left needs no answer: it was told that the outcome is unknown.
        let _ = self.reply.send((self.place, result));
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
    width: usize,
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
    /// Starts `width` threads, whose callers wait at most `patience`.
    pub fn start(operation: O, pool: Pool, width: usize, patience: Duration) -> Lane<O> {
        let (sender, jobs) = unbounded();
        let crew = Arc::new(Crew { operation, pool, jobs, patience, threads: Mutex::default(), width });
        for _ in 0..width {
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

    fn call_all_within(&self, patience: Duration, inputs: Vec<O::Input>) -> Vec<Result<O::Output, StoreError>> {
        let deadline = Instant::now() + patience;
        let (reply, answers) = bounded(inputs.len());
        let states: Vec<Arc<AtomicU8>> = inputs.iter().map(|_| Arc::new(AtomicU8::new(WAITING))).collect();
        let caller = |place: usize| Caller { state: states[place].clone(), place, reply: reply.clone() };
        let order = inputs.into_iter().enumerate().map(|(place, input)| (input, caller(place))).collect();
        drop(reply);
        // Cannot fail: the crew holds the other end for as long as the lane lives.
        let _ = self.jobs.send(order);
        let mut results: Vec<Option<Result<O::Output, StoreError>>> = states.iter().map(|_| None).collect();
        // It ends with the last answer, with the deadline, or when a panic has taken the last of the callers away.
        while let Ok((place, result)) = answers.recv_deadline(deadline) {
            results[place] = Some(result);
        }
        if results.iter().all(Option::is_some) {
            return results.into_iter().flatten().collect();
        }
        let were: Vec<u8> = states.iter().map(|state| state.swap(LEFT, Ordering::AcqRel)).collect();
        for (place, result) in answers.try_iter() {
            results[place] = Some(result);
        }
        self.crew.replace_the_stuck();
        let waited = format!("{} waited {} ms", O::NAME, patience.as_millis());
        let given_up = |was: u8| match was {
            BEGUN => StoreError::Unknown(waited.clone()),
            _ => StoreError::NotDone(waited.clone()),
        };
        results.into_iter().zip(were).map(|(result, was)| result.unwrap_or_else(|| Err(given_up(was)))).collect()
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
                crew.hire(); // its callers saw their reply channel close: outcome unknown
            }
        });
        match spawned {
            Ok(_) => self.members().push(member),
            Err(error) => log::line(format_args!("cannot start a thread for {}: {error}", O::NAME)),
        }
    }

    /// Puts a stand-in beside each thread that has been in one statement for longer than callers wait: its backend is
    /// silent, and only the server or the network can end that.
    fn replace_the_stuck(self: &Arc<Self>) {
        let stuck: Vec<Arc<Member>> = {
            let members = self.members();
            let room = (self.width + STAND_INS).saturating_sub(members.len());
            let is_stuck = |member: &&Arc<Member>| {
                let busy = *lock(&member.busy);
                busy.is_some_and(|since| since.elapsed() >= self.patience)
                    && !member.replaced.swap(true, Ordering::AcqRel)
            };
            members.iter().filter(is_stuck).take(room).cloned().collect()
        };
        for _ in stuck {
            self.hire();
        }
    }

    fn work(&self, me: &Member) {
        while let Ok(mut batch) = self.jobs.recv() {
            while batch.len() < O::BATCH {
                let Ok(more) = self.jobs.try_recv() else { break };
                batch.extend(more);
            }
            let wanted = batch.into_iter().filter(|(_, caller)| caller.begin());
            let (inputs, callers): (Vec<_>, Vec<_>) = wanted.unzip();
            if inputs.is_empty() {
                continue;
            }
            me.set_busy(Some(Instant::now()));
            self.serve(inputs, callers);
            me.set_busy(None);
            if me.replaced.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Does a batch and answers each caller. One bad row fails a whole statement, so after a failure that changed
    /// nothing each is tried alone: only the bad one fails.
    fn serve(&self, inputs: Vec<O::Input>, callers: Vec<Caller<O::Output>>) {
        let result = self.pool.session().and_then(|session| self.attempt(session, &inputs, callers.len() > 1));
        match result {
            Ok(Some(outputs)) => {
                for (caller, output) in callers.iter().zip(outputs) {
                    caller.answer(Ok(output));
                }
            }
            Ok(None) => {
                let waiting: Vec<bool> = callers.iter().map(Caller::put_back).collect();
                for ((input, caller), waiting) in inputs.into_iter().zip(callers).zip(waiting) {
                    if waiting && caller.begin() {
                        self.serve(vec![input], vec![caller]);
                    }
                }
            }
            Err(error) => {
                for caller in &callers {
                    caller.answer(Err(error.clone()));
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
