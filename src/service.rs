//! The service: admission, the bounded channel, workers, feeder and keeper around one store (DESIGN section 3).
//!
//! It knows tasks and the store, never HTTP: a handler calls [`Service::submit`], [`Service::look_up`],
//! [`Service::cancel`] and turns what they return into a reply.

pub mod admission;
pub mod board;
pub mod drain;
pub mod feeder;
pub mod handoff;
pub mod held;
pub mod intake;
pub mod keeper;
pub mod pace;
pub mod renewer;
pub mod trouble;
pub mod watch;
pub mod worker;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::limits::WORKER_STACK;
use crate::store::{Cancelled, InstanceLock, Lease, Store, StoreError, TaskRow};
use crate::task::{Analyser, TaskId};
use crate::{lock, log};
use admission::Admission;
use board::Board;
use drain::Drain;
use handoff::Handoff;
use held::Held;
pub use intake::{Accepted, Once, Rejected};
use keeper::Claiming;
use pace::Pace;
use watch::Watch;
use worker::Worker;

/// How much a service does at once.
#[derive(Debug, Clone, Copy)]
pub struct ServiceConfig {
    /// Worker threads: tasks being analysed at once.
    pub workers: usize,
    /// Tasks admitted beyond those.
    pub queue: usize,
}

/// What gives a service the right to work on the database's tasks.
pub enum Tenure {
    /// It is the only instance, for as long as it has the lock.
    Sole(Box<InstanceLock>),
    /// It is one of several: each task has a lease.
    Leased(Lease),
}

/// A running service. [`Service::drain`] ends it.
pub struct Service {
    shared: Arc<Shared>,
    workers: usize,
    /// Closed when the last worker has ended: each holds the other end.
    workers_ended: Receiver<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What all threads of a service see.
pub(crate) struct Shared {
    pub store: Arc<Store>,
    pub admission: Arc<Admission>,
    pub held: Arc<Held>,
    pub handoff: Handoff,
    pub board: Board,
    pub drain: Drain,
    pub claiming: Claiming,
    pub pace: Pace,
    /// Whether claims expire unless they are renewed.
    pub leased: bool,
    /// Tasks RUNNING in the database on our account.
    pub running: AtomicUsize,
    /// QUEUED rows that wait for a permit, as far as the feeder has seen them: at least so many.
    pub backlog: AtomicUsize,
    events: Sender<Event>,
}

/// What ends a service from inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The instance lock was lost, and the session described here has it now.
    InstanceLockLost(String),
    /// The thread of this name panicked: what it was there for is not done any more.
    ThreadDied(String),
}

impl Shared {
    fn tell(&self, event: Event) {
        // Whoever runs the service may have gone already; then nobody needs to know.
        let _ = self.events.try_send(event);
    }

    /// Starts a thread of the service. Its panic ends the service, whose promises need all of them: without the keeper,
    /// another instance could have the lock and nobody here would know.
    fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (shared, name) = (self.clone(), name.to_owned());
        thread::Builder::new().name(name.clone()).stack_size(WORKER_STACK).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| body(&shared))).is_err() {
                shared.claiming.stop(format!("the thread {name} has died"));
                shared.board.abandon();
                shared.tell(Event::ThreadDied(name));
            }
        })
    }
}

impl Service {
    /// Starts workers, feeder, keeper and, with leases, the renewer. `events` tells the caller when the service should end.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(
        store: Arc<Store>,
        analyser: Arc<dyn Analyser>,
        tenure: Tenure,
        config: ServiceConfig,
        events: Sender<Event>,
    ) -> io::Result<Service> {
        let permits = config.workers + config.queue;
        let shared = Arc::new(Shared {
            store,
            admission: Admission::new(permits),
            held: Arc::default(),
            handoff: Handoff::new(permits),
            board: Board::new(config.workers),
            drain: Drain::new(),
            claiming: Claiming::new(),
            pace: Pace::default(),
            leased: matches!(tenure, Tenure::Leased(_)),
            running: AtomicUsize::new(0),
            backlog: AtomicUsize::new(0),
            events,
        });
        let (working, workers_ended) = bounded(0);
        let mut threads = Vec::new();
        for number in 0..config.workers {
            let (jobs, analyser, working) = (shared.handoff.receiver(), analyser.clone(), working.clone());
            threads.push(shared.spawn(&format!("worker-{number}"), move |shared| {
                let _working: Sender<()> = working;
                Worker { shared: shared.clone(), jobs, analyser }.run();
            })?);
        }
        threads.push(shared.spawn("feeder", feeder::run)?);
        match tenure {
            Tenure::Sole(instance) => threads.push(shared.spawn("keeper", |shared| keeper::run(shared, *instance))?),
            Tenure::Leased(lease) => {
                threads.push(shared.spawn("keeper", keeper::watch)?);
                threads.push(shared.spawn("renewer", move |shared| renewer::run(shared, lease))?);
            }
        }
        Ok(Service { shared, workers: config.workers, workers_ended, threads: Mutex::new(threads) })
    }

    /// What the database says of a task; None: there is none.
    pub fn look_up(&self, id: &TaskId) -> Result<Option<TaskRow>, StoreError> {
        self.shared.store.look_up(id)
    }

    /// The same for many tasks in one question, each on its own account, in their order.
    pub fn look_up_each(&self, ids: Vec<TaskId>, patience: Duration) -> Vec<Result<Option<TaskRow>, StoreError>> {
        self.shared.store.look_up_each(ids, patience)
    }

    /// How long a question to the database may take.
    pub fn patience(&self) -> Duration {
        self.shared.store.patience()
    }

    /// Whether the task is in this process's hands: it gives a hint when it leaves them.
    pub fn holds(&self, id: &TaskId) -> bool {
        self.shared.held.has(id)
    }

    /// Hints that tasks may have ended.
    pub fn watch(&self) -> &Watch {
        &self.shared.held.watch
    }

    /// Cancels a queued task, whose place is free then, or asks a running one to stop: it stays RUNNING until its analyser
    /// has stopped.
    pub fn cancel(&self, id: &TaskId) -> Result<Cancelled, StoreError> {
        // Its CANCELED may be seen before its permit is back.
        let _finishing = self.shared.admission.finishing();
        let cancelled = self.shared.store.cancel(id)?;
        match cancelled {
            Cancelled::Requested => self.shared.held.stop(id),
            Cancelled::Canceled => {
                self.shared.held.release(id);
                // It may have been in nobody's hands.
                self.shared.held.watch.hint(id);
            }
            Cancelled::TooLate | Cancelled::NotOurs | Cancelled::Unknown => {}
        }
        Ok(cancelled)
    }

    /// Why the service is not ready for work; empty: it is.
    pub fn not_ready(&self) -> Vec<String> {
        let draining = self.shared.drain.begun().then(|| "draining: the service is shutting down".to_owned());
        draining.into_iter().chain(self.shared.claiming.trouble()).collect()
    }

    /// From now on the service is not ready, and takes nothing new from the queue. Call before [`Service::drain`] to let
    /// requests in hand finish first.
    pub fn begin_drain(&self) {
        self.shared.drain.begin();
        self.shared.handoff.close();
    }

    /// Lets the workers finish what they hold and what the channel holds, for at most `timeout`. What was not begun stays
    /// QUEUED. How many tasks were still running then: the database shows them RUNNING.
    pub fn drain(&self, timeout: Duration) -> usize {
        self.begin_drain();
        let deadline = Instant::now() + timeout;
        let waited = self.workers_ended.recv_deadline(deadline);
        self.shared.drain.expire();
        let running = self.shared.running.load(Ordering::Acquire);
        if waited == Err(RecvTimeoutError::Timeout) {
            // A worker that has not begun its task lets go of it now; one within the analyser or a write cannot.
            log::line(format_args!("drain timeout: {running} tasks still running after {} s", timeout.as_secs_f64()));
            return running;
        }
        for thread in lock(&self.threads).drain(..) {
            // None ends with a panic: see [`Shared::spawn`].
            let _ = thread.join();
        }
        running
    }
}
