//! `taskstats serve`: the order of a start and of an end (DESIGN section 3), and nothing else.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use crossbeam_channel::{bounded, select};

use super::config::ServeConfig;
use super::database;
use super::exit::{self, Failure};
use super::signals::FirstSignal;
use crate::http::routes::{self, Route};
use crate::http::{DoorLimits, Exchange, Guard, Office, Server};
use crate::limits::CLOSE_PATIENCE;
use crate::log;
use crate::service::{Event, Mode, Service, ServiceConfig};
use crate::shutdown::Shutdown;
use crate::store::{InstanceLock, Lease, Recovery, Relock, Store, owner_name};
use crate::task::{Analyser, CountAnalyser};

/// Runs the service until a signal ends it.
pub fn run(args: &mut lexopt::Parser) -> Result<(), Failure> {
    run_with(args, |counting| Arc::new(counting))
}

/// The same with an analyser of the caller's own, which may use the one that the flags describe.
pub fn run_with(
    args: &mut lexopt::Parser,
    analyser: impl FnOnce(CountAnalyser) -> Arc<dyn Analyser>,
) -> Result<(), Failure> {
    let Some(config) = ServeConfig::read(args)? else { return Ok(()) };
    let signal = FirstSignal::watch().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    let owner = owner_name().map_err(|error| Failure::failed(format!("no name for this process: {error}")))?;
    let store = Arc::new(config.database.ready(owner, config.lease)?);
    let (mode, recovery) = settle_in(&store, config.lease)?;

    signal.started();
    let (events, inbox) = bounded(1);
    let shutdown = Arc::new(Shutdown::default());
    let analyser = analyser(CountAnalyser { max_words: config.max_words });
    let size = ServiceConfig { workers: config.workers, queue: config.queue };
    let service = Service::start(store, analyser, mode, size, shutdown, events)
        .map_err(|error| Failure::failed(format!("cannot start threads: {error}")))?;
    let service = Arc::new(service);
    let office = Office::open(service.clone())
        .map(Arc::new)
        .map_err(|error| Failure::failed(format!("cannot start threads: {error}")));
    let (servers, office) = match office.and_then(|office| Ok((start_servers(&config, &office)?, office))) {
        Ok(started) => started,
        Err(failure) => {
            service.drain(config.drain_timeout);
            return Err(failure);
        }
    };
    announce(&servers, recovery);

    // Neither channel closes: the signals and the service hold the other ends.
    let outcome = select! {
        recv(signal.asked) -> signal => {
            signal.iter().for_each(|signal| log::line(format_args!("signal {signal}: draining")));
            Ok(())
        }
        recv(inbox) -> event => event.map_or(Ok(()), |event| Err(ended_by(event))),
    };
    let ended = end(servers, &service, &office, &config);
    outcome.and(ended)
}

fn ended_by(event: Event) -> Failure {
    match event {
        Event::InstanceLockLost(holder) => another_instance(&holder),
        Event::ThreadDied(name) => {
            Failure { code: exit::INTERNAL, message: format!("the thread {name} has died: start the service again") }
        }
    }
}

/// The right to work on this database's tasks: the instance lock and recovery, or leases and neither of them.
fn settle_in(store: &Store, lease: Option<Lease>) -> Result<(Mode, Recovery), Failure> {
    match lease {
        None => {
            let instance = take_instance(store)?;
            let recovery = store.recover().map_err(|error| database::failure("recovery", &error))?;
            Ok((Mode::Sole(Box::new(instance)), recovery))
        }
        Some(lease) => {
            let joined = store.join().map_err(|error| database::failure("joining", &error))?;
            Ok((Mode::Leased(lease), joined))
        }
    }
}

fn take_instance(store: &Store) -> Result<InstanceLock, Failure> {
    match store.lock_instance().map_err(|error| database::failure("instance lock", &error))? {
        Relock::Held(mut lock) => {
            lock.prove().map_err(|error| database::failure("instance lock", &error))?;
            Ok(*lock)
        }
        Relock::OursStill => Err(another_instance("an earlier session of ours")),
        Relock::Another(holder) => Err(another_instance(&holder)),
    }
}

fn another_instance(holder: &str) -> Failure {
    let message =
        format!("another taskstats serve works on this database ({holder}): stop it first, or use another one");
    Failure { code: exit::ANOTHER_INSTANCE, message }
}

/// Both listeners; the public one first, since readiness speaks of it.
fn start_servers(config: &ServeConfig, office: &Arc<Office>) -> Result<[Server; 2], Failure> {
    let public = DoorLimits { body: config.max_body, ..DoorLimits::default() };
    let start = |name, flag: &str, address: SocketAddr, limits, guard: Guard, table: &'static [Route]| {
        let office = Arc::clone(office);
        let handler = move |exchange: Exchange| office.answer(table, exchange);
        TcpListener::bind(address)
            .and_then(|listener| Server::start(name, listener, limits, guard, Arc::new(handler)))
            .map_err(|error| Failure::failed(format!("{flag} {address}: cannot listen: {error}")))
    };
    let clients = config.token.clone().map_or(Guard::Anyone, Guard::Bearer);
    let public = start("public", "--listen", config.listen, public, clients, routes::PUBLIC)?;
    let admin = start("admin", "--admin", config.admin, DoorLimits::admin(), Guard::Loopback, routes::ADMIN)?;
    Ok([public, admin])
}

/// Tells the supervisor, and scripts that read the line.
fn announce([public, admin]: &[Server; 2], recovery: Recovery) {
    let Recovery { failed, queued, next } = recovery;
    let (listen, admin) = (public.address(), admin.address());
    // Without systemd there is nobody to notify; a closed stdout has no reader to miss the line.
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    let line = format!("ready listen={listen} admin={admin} failed={failed} queued={queued} next={next}\n");
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
}

/// Frees the ports, answers what is in hand, then lets the workers finish.
fn end(servers: [Server; 2], service: &Service, office: &Office, config: &ServeConfig) -> Result<(), Failure> {
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Stopping]);
    servers.iter().for_each(Server::stop_accepting);
    service.begin_drain();
    office.end_waits();
    for server in servers {
        let cut_off = server.close(CLOSE_PATIENCE);
        if cut_off > 0 {
            log::line(format_args!("{cut_off} clients cut off unanswered"));
        }
    }
    match service.drain(config.drain_timeout) {
        0 => Ok(()),
        running => {
            let then = match config.lease {
                Some(_) => "another instance takes them over when their leases expire",
                None => "the next start makes them FAILED",
            };
            Err(Failure::failed(format!("{running} tasks were still running at the drain timeout; {then}")))
        }
    }
}
