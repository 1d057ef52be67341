//! The front door of a listener: accepts clients as long as there are seats, and shows the others out. Must never stop
//! accepting because of one client, one failed thread or a lack of file descriptors.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use socket2::SockRef;

use super::caps::DoorLimits;
use super::client::Client;
use super::closing::Closing;
use super::guard::Guard;
use super::guest::Guests;
use super::porter::Porter;
use super::quota::Quota;
use super::server::give_up;
use super::upstream::Pool;
use crate::limits::{ACCEPT_PAUSE, HTTP_STACK};
use crate::{files, lock, log};

/// What all clients of a listener share.
pub struct Door {
    /// Begins the names of the threads and the lines in the log.
    pub name: &'static str,
    /// What a client may do.
    pub limits: DoorLimits,
    /// Who may ask at all.
    pub guard: Guard,
    /// The way to the crew.
    pub pool: Pool,
    /// The clients inside.
    pub guests: Arc<Guests>,
    /// One for each client connection.
    pub seats: Arc<Quota>,
    /// One for each byte of a body in flight.
    pub bodies: Arc<Quota>,
    /// How far its end has come.
    pub closing: Arc<Closing>,
}

/// The open listener and the thread that accepts on it.
pub struct Gate {
    listener: Arc<TcpListener>,
    shut: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Gate {
    /// Starts accepting.
    pub fn open(listener: TcpListener, door: Arc<Door>) -> io::Result<Gate> {
        let (listener, shut) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let porter = Porter::start(Arc::clone(&door))?;
        let entrance = Entrance { door, porter, accept_failed: log::Bounded::new(), spawn_failed: log::Bounded::new() };
        let (accepting, told) = (Arc::clone(&listener), Arc::clone(&shut));
        let thread = thread::Builder::new()
            .name(format!("{}-door", entrance.door.name))
            .stack_size(HTTP_STACK)
            .spawn(move || entrance.accept_until(&accepting, &told))?;
        Ok(Gate { listener, shut, thread })
    }

    /// Stops accepting and closes the listener: its port is free when this returns.
    pub fn shut(self) {
        self.shut.store(true, Relaxed);
        // Wakes accept(). It fails only on a listener that does not listen, and then accept() has returned already.
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
        if self.thread.join().is_err() {
            log::line("the thread that accepts connections had panicked");
        }
    }
}

/// What the accepting thread has at hand.
struct Entrance {
    door: Arc<Door>,
    porter: Porter,
    accept_failed: log::Bounded,
    spawn_failed: log::Bounded,
}

impl Entrance {
    fn accept_until(&self, listener: &TcpListener, shut: &AtomicBool) {
        loop {
            files::wait_for_turn();
            let accepted = listener.accept();
            if shut.load(Relaxed) {
                return;
            }
            match accepted {
                Ok((stream, _)) => self.admit(stream),
                // The client went away before its turn.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(e) if e.kind() == ErrorKind::InvalidInput => {
                    give_up(format_args!("{}: the listener does not listen any more: {e}", self.door.name))
                }
                Err(e) => {
                    self.accept_failed.line(format_args!("{}: cannot accept a connection: {e}", self.door.name));
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream) {
        let Some(seat) = self.door.seats.take(1) else {
            return self.porter.see_off(stream);
        };
        // Shared, because a thread that does not start gives nothing back.
        let arrival = Arc::new(Mutex::new(Some((stream, seat))));
        let (door, arrived) = (Arc::clone(&self.door), Arc::clone(&arrival));
        let thread = thread::Builder::new().name(format!("{}-client", door.name)).stack_size(HTTP_STACK);
        let spawned = thread.spawn(move || {
            let Some((stream, seat)) = lock(&arrived).take() else { return };
            if let Ok(client) = Client::new(stream, door) {
                client.serve();
            }
            // Only now, when its socket is closed.
            drop(seat);
        });
        if let Err(e) = spawned {
            self.spawn_failed.line(format_args!("{}: no thread for a client: {e}", self.door.name));
            if let Some((stream, _seat)) = lock(&arrival).take() {
                self.porter.see_off(stream);
            }
        }
    }
}
