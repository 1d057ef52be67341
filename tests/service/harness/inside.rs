//! The service as a library, within the test: for analysers that only a test can want.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use taskstats::service::{Event, Mode, Service, ServiceConfig};
use taskstats::store::{Lease, Relock, Store};
use taskstats::task::{Analyser, Analysis, Stop};

use super::Database;

/// A running service with an analyser of the test's own.
pub struct Inside {
    pub service: Arc<Service>,
    /// What would end the service.
    pub events: Receiver<Event>,
}

impl Inside {
    /// Starts one on a database that has the schema.
    pub fn on(database: &Database, analyser: impl Analyser, workers: usize) -> Inside {
        Inside::at(&database.dsn(), analyser, workers)
    }

    /// The same on the database that `dsn` leads to.
    pub fn at(dsn: &str, analyser: impl Analyser, workers: usize) -> Inside {
        let store = Database::store_at(dsn, "inside", None);
        let Relock::Held(instance) = store.lock_instance().expect("an answer") else { panic!("the lock is taken") };
        store.recover().expect("recovery");
        Inside::start(store, analyser, Mode::Sole(instance), workers)
    }

    /// One of several on the database that `dsn` leads to, with leases of `ttl`.
    pub fn leased(dsn: &str, analyser: impl Analyser, workers: usize, ttl: Duration) -> Inside {
        let lease = Lease { ttl, max_attempts: 5, effect_at_end: true };
        let store = Database::store_at(dsn, "inside", Some(lease));
        Inside::start(store, analyser, Mode::Leased(lease), workers)
    }

    fn start(store: Store, analyser: impl Analyser, mode: Mode, workers: usize) -> Inside {
        let store = Arc::new(store);
        let (tell, events) = bounded(1);
        let size = ServiceConfig { workers, queue: 64 };
        let service = Service::start(store, Arc::new(analyser), mode, size, Arc::default(), tell).expect("threads");
        Inside { service: Arc::new(service), events }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.service.drain(super::PATIENCE);
    }
}

/// An analyser that says when it has begun, and then waits for the test to say how it ends.
pub struct Held {
    begun: Sender<Stop>,
    results: Receiver<Analysis>,
}

/// The test's ends of a [`Held`] analyser.
pub struct Holder {
    /// One message per analysis that has begun, with its flag.
    pub begun: Receiver<Stop>,
    /// One message ends one analysis.
    pub results: Sender<Analysis>,
}

impl Held {
    pub fn pair() -> (Held, Holder) {
        let ((begun, has_begun), (end, results)) = (unbounded(), unbounded());
        (Held { begun, results }, Holder { begun: has_begun, results: end })
    }
}

impl Analyser for Held {
    fn analyse(&self, _text: &str, stop: &Stop) -> Analysis {
        self.begun.send(stop.clone()).expect("the test listens");
        self.results.recv().expect("the test answers")
    }
}
