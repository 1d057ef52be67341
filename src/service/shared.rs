//! What all threads of a service share, and how they are started.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, JoinHandle};

use crossbeam_channel::Sender;

use super::claiming::Claiming;
use super::eta::Eta;
use super::in_flight::InFlight;
use super::queue::Queue;
use crate::limits::WORKER_STACK;
use crate::log::Bounded;
use crate::semaphore::Semaphore;
use crate::shutdown::Shutdown;
use crate::store::Store;

/// What all threads of a service share.
pub(super) struct Shared {
    pub store: Arc<Store>,
    /// Admission: one permit for each task in flight.
    pub permits: Arc<Semaphore>,
    pub in_flight: Arc<InFlight>,
    pub queue: Queue,
    pub shutdown: Arc<Shutdown>,
    pub claiming: Claiming,
    pub eta: Eta,
    /// Whether claims expire unless they are renewed.
    pub leased: bool,
    /// QUEUED rows that wait for a permit: at least so many, as far as the poller has seen.
    pub backlog: AtomicUsize,
    /// The log's lines about claims and terminal writes that failed.
    pub trouble: Bounded,
    pub events: Sender<Event>,
}

/// What ends a service from inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The instance lock was lost to the session described here.
    InstanceLockLost(String),
    /// The thread of this name panicked, and its work is not done any more.
    ThreadDied(String),
}

impl Shared {
    /// Reports an event to the owner of the service, which acts on the first.
    pub fn report(&self, event: Event) {
        let _ = self.events.try_send(event);
    }

    /// Starts a thread of the service. Its panic ends the service, whose promises need all of its threads: without the leader's,
    /// another instance could have the lock unnoticed.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn spawn(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (shared, name) = (self.clone(), name.to_owned());
        thread::Builder::new().name(name.clone()).stack_size(WORKER_STACK).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| body(&shared))).is_err() {
                shared.claiming.stop(format!("the thread {name} has died"));
                shared.report(Event::ThreadDied(name));
            }
        })
    }
}
