//! One HTTP server: a door in front, stock tiny_http behind it on a private Unix socket, and the crew that runs the
//! handler. Must never be the reason that a shutdown takes longer than the patience it was given and a moment.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::process;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use super::caps::DoorLimits;
use super::closing::Closing;
use super::crew::Crew;
use super::door::{Door, Gate};
use super::exchange::Exchange;
use super::guard::Guard;
use super::guest::Guests;
use super::private_dir::PrivateDir;
use super::quota::Quota;
use super::upstream::Pool;
use crate::exit;
use crate::limits::{CREW_SPARE, TICK};
use crate::{lock, log};

/// Answers requests, each on a thread of its own; it may also pass the exchange on and return.
pub type Handler = Arc<dyn Fn(Exchange) + Send + Sync>;

/// A running server. Dropped without [`Server::close`] it closes without patience.
pub struct Server {
    address: SocketAddr,
    gate: Mutex<Option<Gate>>,
    door: Arc<Door>,
    crew: Crew,
    /// Its drop ends tiny_http's accept loop by connecting to the socket, so it goes before the directory.
    tiny: Option<Arc<tiny_http::Server>>,
    _dir: PrivateDir,
}

impl Server {
    /// Starts serving the listener to those whom the guard lets ask. `name` begins the names of the threads.
    pub fn start(
        name: &'static str,
        listener: TcpListener,
        limits: DoorLimits,
        guard: Guard,
        handler: Handler,
    ) -> io::Result<Server> {
        let address = listener.local_addr()?;
        let dir = PrivateDir::create()?;
        let internal = UnixListener::bind(dir.socket())?;
        let tiny = tiny_http::Server::from_listener(internal, None).map_err(io::Error::other)?;
        let tiny = Arc::new(tiny);
        let guests = Arc::<Guests>::default();
        let crew = Crew::start(name, &tiny, handler, Arc::clone(&guests), limits.connections + CREW_SPARE);
        let closing = Arc::<Closing>::default();
        let door = Arc::new(Door {
            name,
            pool: Pool::start(dir.socket(), Arc::clone(&closing))?,
            guests,
            seats: Quota::new(limits.connections),
            // One body of the largest size fits, whatever was configured.
            bodies: Quota::new(limits.bodies.max(limits.body)),
            limits,
            guard,
            closing,
        });
        let gate = Gate::open(listener, Arc::clone(&door))?;
        Ok(Server { address, gate: Mutex::new(Some(gate)), door, crew, tiny: Some(tiny), _dir: dir })
    }

    /// Where it listens; the real port when it was asked for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more clients. The listener is closed, and its port free, when this returns; those inside are served on.
    pub fn stop_accepting(&self) {
        let gate = lock(&self.gate).take();
        if let Some(gate) = gate {
            gate.shut();
        }
    }

    /// Closes idle clients, lets the requests in hand be answered, then ends every thread and removes the socket.
    /// Clients still inside when the patience is over are cut off; returns how many.
    pub fn close(mut self, patience: Duration) -> usize {
        self.end(patience)
    }

    fn end(&mut self, patience: Duration) -> usize {
        self.stop_accepting();
        self.door.closing.begin();
        self.door.guests.wake_idle();
        let cut_off = self.door.seats.wait_until_free(Instant::now() + patience);
        self.door.closing.cut();
        // A handler that does not return is left behind.
        self.door.guests.wake_all();
        let deadline = Instant::now() + 4 * TICK;
        self.door.seats.wait_until_free(deadline);
        self.door.pool.trim(Duration::ZERO);
        let busy = self.crew.close(deadline);
        if busy > 0 {
            log::line(format_args!("{}: {busy} request handlers were still at work at the end", self.door.name));
        }
        self.tiny = None;
        cut_off
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.tiny.is_some() {
            self.end(Duration::ZERO);
        }
    }
}

/// Ends the process: a part of it is dead and cannot be started anew from inside, so the supervisor must.
pub(super) fn give_up(reason: impl Display) -> ! {
    log::line(format_args!("{reason}: exiting so that the supervisor starts a new process"));
    process::exit(i32::from(exit::INTERNAL))
}
