//! The service: admission, the queue, workers, poller and leader lock around one store (DESIGN section 3).
//!
//! It knows tasks and the store, never HTTP: a handler calls [`Service::submit`], [`Service::look_up`],
//! [`Service::cancel`] and turns what they return into a response.

mod claiming;
mod eta;
mod in_flight;
mod leader;
mod lease_renewer;
mod poller;
mod queue;
mod retry;
mod running;
mod shared;
mod submit;
mod watch;
mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::limits::WORKER_THREADS;
use crate::log;
use crate::log::Bounded;
use crate::semaphore::Semaphore;
use crate::shutdown::Shutdown;
use crate::store::{Cancelled, Store, StoreError, TaskRow};
use crate::task::{Analyser, TaskId};
use claiming::Claiming;
use eta::Eta;
use in_flight::InFlight;
pub use leader::Mode;
use queue::Queue;
use running::Places;
pub use shared::Event;
use shared::Shared;
pub use submit::{Accepted, Once, Rejected};
use watch::Watch;
use worker::Worker;

/// How much a service does at once.
#[derive(Debug, Clone, Copy)]
pub struct ServiceConfig {
    /// Tasks RUNNING at once.
    pub workers: usize,
    /// Tasks admitted beyond those.
    pub queue: usize,
}

/// A running service. [`Service::drain`] ends it.
pub struct Service {
    shared: Arc<Shared>,
    /// Closed when the last worker has ended: each holds the other end.
    workers_ended: Receiver<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Service {
    /// Starts workers, retry, poller, leader and, with leases, the lease renewer. `events` receives what should end the service.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(
        store: Arc<Store>,
        analyser: Arc<dyn Analyser>,
        mode: Mode,
        config: ServiceConfig,
        shutdown: Arc<Shutdown>,
        events: Sender<Event>,
    ) -> io::Result<Service> {
        let permits = Semaphore::new(config.workers + config.queue);
        let shared = Arc::new(Shared {
            store,
            in_flight: InFlight::new(permits.clone()),
            queue: Queue::new(permits.capacity()),
            permits,
            shutdown,
            claiming: Claiming::new(),
            eta: Eta::new(config.workers),
            leased: matches!(mode, Mode::Leased(_)),
            backlog: AtomicUsize::new(0),
            trouble: Bounded::new(),
            events,
        });
        let (mut threads, workers_ended) = start_workers(&shared, &analyser, config.workers)?;
        threads.push(shared.spawn("poller", poller::run)?);
        match mode {
            Mode::Sole(lock) => threads.push(shared.spawn("leader", |shared| leader::hold(shared, *lock))?),
            Mode::Leased(lease) => {
                threads.push(shared.spawn("leader", leader::probe)?);
                threads.push(shared.spawn("lease-renewer", move |shared| lease_renewer::run(shared, lease))?);
            }
        }
        Ok(Service { shared, workers_ended, threads: Mutex::new(threads) })
    }

    /// Admits a text, commits it as a task and queues it.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn submit(&self, text: String) -> Result<Accepted, Rejected> {
        submit::submit(&self.shared, text)
    }

    /// The same, at most once for each key, whatever happened to the first submission's answer.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn submit_once(&self, text: String, key: &str) -> Result<Once, Rejected> {
        submit::submit_once(&self.shared, text, key)
    }

    /// Admits and commits all of the texts or none; one task for each, in their order.
    ///
    /// # Errors
    /// See [`Rejected`].
    pub fn submit_all(&self, texts: Vec<String>) -> Result<Vec<Accepted>, Rejected> {
        submit::submit_all(&self.shared, texts)
    }

    /// The row of a task; None: there is none.
    ///
    /// # Errors
    /// The database did not answer.
    pub fn look_up(&self, id: &TaskId) -> Result<Option<TaskRow>, StoreError> {
        self.shared.store.look_up(id)
    }

    /// The same for many tasks in one statement, waiting at most `patience`; one result for each, in their order.
    pub fn look_up_each(&self, ids: Vec<TaskId>, patience: Duration) -> Vec<Result<Option<TaskRow>, StoreError>> {
        self.shared.store.look_up_each(ids, patience)
    }

    /// How long a statement may take.
    pub fn patience(&self) -> Duration {
        self.shared.store.patience()
    }

    /// Whether the task is in flight here: there will be a hint when it has left.
    pub fn holds(&self, id: &TaskId) -> bool {
        self.shared.in_flight.has(id)
    }

    /// Hints that tasks may have ended.
    pub fn watch(&self) -> &Watch {
        &self.shared.in_flight.watch
    }

    /// Cancels a queued task, or stops a running one, which stays RUNNING until its analyser has stopped.
    ///
    /// # Errors
    /// The database did not do it, or did not answer.
    pub fn cancel(&self, id: &TaskId) -> Result<Cancelled, StoreError> {
        let in_flight = &self.shared.in_flight;
        // Before its CANCELED can be seen.
        in_flight.cancelling(id);
        let cancelled = self.shared.store.cancel(id);
        match cancelled {
            Ok(Cancelled::Canceled) => in_flight.cancelled(id),
            _ => in_flight.not_cancelled(id),
        }
        if cancelled == Ok(Cancelled::Requested) {
            in_flight.stop(id);
        }
        cancelled
    }

    /// Why the service is not ready; empty: it is.
    pub fn not_ready(&self) -> Vec<String> {
        let draining = self.shared.shutdown.has_begun().then(|| "draining: the service is shutting down".to_owned());
        draining.into_iter().chain(self.shared.claiming.trouble()).collect()
    }

    /// Begins the shutdown: the service is not ready, and queues nothing new. Call before [`Service::drain`] to let requests
    /// in flight finish first.
    pub fn begin_drain(&self) {
        self.shared.shutdown.begin();
        self.shared.queue.close();
    }

    /// Lets the workers finish what they have and what is queued, for at most `timeout`. What was not begun stays QUEUED. Returns
    /// how many tasks were still running then: their rows are RUNNING.
    pub fn drain(&self, timeout: Duration) -> usize {
        self.begin_drain();
        let waited = self.workers_ended.recv_deadline(Instant::now() + timeout);
        self.shared.shutdown.expire();
        let running = self.shared.in_flight.running();
        if waited == Err(RecvTimeoutError::Timeout) {
            // A worker in an analyser or a statement cannot be interrupted.
            log::line(format_args!("drain timeout: {running} tasks still running after {} s", timeout.as_secs_f64()));
            return running;
        }
        for thread in self.threads.lock().drain(..) {
            // None ends with a panic: see [`Shared::spawn`].
            let _ = thread.join();
        }
        running
    }
}

/// Starts the retry and the workers, which share the `running` places. The receiver is closed when the last worker has ended.
fn start_workers(
    shared: &Arc<Shared>,
    analyser: &Arc<dyn Analyser>,
    running: usize,
) -> io::Result<(Vec<JoinHandle<()>>, Receiver<()>)> {
    let (retry, failed) = unbounded();
    let (working, workers_ended) = bounded(0);
    let mut threads = vec![shared.spawn("retry", move |shared| retry::run(shared, &failed))?];
    let workers = running.min(WORKER_THREADS);
    for number in 0..workers {
        let places = Places::new(running / workers + usize::from(number < running % workers));
        let (jobs, analyser, retry) = (shared.queue.receiver(), analyser.clone(), retry.clone());
        let working: Sender<()> = working.clone();
        threads.push(shared.spawn(&format!("worker-{number}"), move |shared| {
            Worker { shared: shared.clone(), jobs, analyser, places, retry }.run();
            drop(working);
        })?);
    }
    Ok((threads, workers_ended))
}
