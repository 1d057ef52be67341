//! The end of a server: what is in hand is answered, everything else is closed, nothing is left behind.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use socket2::{Domain, Socket, Type};
use taskstats::http::server::DoorLimits;
use taskstats::limits::{BODY_BYTES, TICK};

use crate::alone::{alone, files_and_threads, until_back_to};
use crate::house::{House, PATIENCE, Visitor};

#[test]
fn requests_in_hand_are_answered_and_the_port_is_free_at_once() {
    let mut house = House::new();
    let (mut idle, mut fresh, mut busy) = (house.connect(), house.connect(), house.connect());
    assert_eq!(idle.get("/").status, 200);
    busy.request("POST", "/gate", b"body");
    house.wait_at_gates(1);
    let server = house.server;
    server.stop_accepting();
    assert!(TcpStream::connect(house.address).is_err(), "nobody accepts any more");
    let next = TcpListener::bind(house.address).expect("the port is free");
    // Those inside are served on until the server closes.
    assert_eq!(idle.get("/").status, 200);
    let closing = thread::spawn(move || server.close(PATIENCE));
    idle.closed();
    fresh.closed();
    assert!(!closing.is_finished(), "the request in hand is waited for");
    house.gate = None;
    let answer = busy.answer();
    assert_eq!((answer.text().as_str(), answer.header("Connection")), ("POST /gate 4", Some("close")));
    busy.closed();
    assert_eq!(closing.join().expect("closed"), 0);
    drop(next);
}

#[test]
fn idle_clients_are_woken_however_long_they_may_stay() {
    let long = 4 * PATIENCE;
    let house = House::with(DoorLimits { idle_time: long, idle_time_crowded: long, ..DoorLimits::default() });
    let (mut used, mut fresh) = (house.connect(), house.connect());
    assert_eq!(used.get("/").status, 200);
    // Idle is who has said nothing for a tick; nobody outside can see when that has passed.
    thread::sleep(2 * TICK);
    let began = Instant::now();
    assert_eq!(house.server.close(PATIENCE), 0);
    assert!(began.elapsed() < PATIENCE / 4, "it took {:?}", began.elapsed());
    used.closed();
    fresh.closed();
}

#[test]
fn a_handler_that_does_not_return_is_cut_off() {
    let mut house = House::new();
    let mut busy = house.connect();
    busy.request("GET", "/gate", b"");
    house.wait_at_gates(1);
    let began = Instant::now();
    assert_eq!(house.server.close(Duration::from_millis(100)), 1);
    assert!(began.elapsed() < PATIENCE / 4, "it took {:?}", began.elapsed());
    busy.refused(504);
    house.gate = None;
}

#[test]
fn a_head_that_never_ends_does_not_hold_up_the_end() {
    // Nobody outside can see when the server has read the beginning of the head: before that its client is idle, and none is
    // cut off.
    let cut_off = (0..20).any(|_| {
        let house = House::new();
        let mut half = house.connect();
        assert_eq!(half.get("/").status, 200);
        half.send("GET / HTTP/1.1\r\n");
        let began = Instant::now();
        let cut_off = house.server.close(Duration::from_millis(400));
        assert!(began.elapsed() < PATIENCE / 4, "it took {:?}", began.elapsed());
        half.closed();
        cut_off == 1
    });
    assert!(cut_off, "no head was read before the end");
}

/// The directories of internal sockets this process has.
fn socket_dirs() -> Vec<PathBuf> {
    let name = format!("taskstats-http-{}-", std::process::id());
    let places = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).into_iter().chain([env::temp_dir()]);
    let entries = places.flat_map(|place| fs::read_dir(place).into_iter().flatten()).flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name)).map(|entry| entry.path()).collect()
}

#[test]
fn nothing_is_left_behind() {
    if let Some((code, written)) = alone("closing::nothing_is_left_behind") {
        return assert_eq!(code, Some(0), "{written}");
    }
    let before = files_and_threads();
    for _ in 0..3 {
        let mut house = House::with(DoorLimits { connections: 100, ..DoorLimits::default() });
        let mut visitors: Vec<Visitor> = (0..50).map(|_| house.connect()).collect();
        visitors.iter_mut().for_each(|visitor| {
            visitor.request("POST", "/gate", &[b'x'; 2000]);
        });
        house.wait_at_gates(50);
        assert!(files_and_threads().1 > before.1 + 100 && !socket_dirs().is_empty());
        house.gate = None;
        assert!(visitors.iter_mut().all(|visitor| visitor.answer().status == 200));
        assert_eq!(house.server.close(PATIENCE), 0);
        assert!(socket_dirs().is_empty());
    }
    // tiny_http's own threads leave five seconds after their server.
    until_back_to(before);
}

#[test]
fn a_dead_tiny_http_ends_the_process_for_the_supervisor() {
    if let Some((code, written)) = alone("closing::a_dead_tiny_http_ends_the_process_for_the_supervisor") {
        assert_eq!(code, Some(i32::from(taskstats::cli::exit::INTERNAL)), "{written}");
        return assert!(written.contains("tiny_http accepts no connections"), "{written}");
    }
    let house = House::new();
    let mut first = house.connect();
    assert_eq!(first.get("/").status, 200);
    // Without its socket tiny_http is out of reach, as it is when its accept loop has ended.
    socket_dirs().into_iter().for_each(|dir| fs::remove_dir_all(dir).expect("removed"));
    // The connection that is open still works; one more cannot be had, when several requests are on their way at once.
    assert_eq!(first.get("/").status, 200);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (mut visitor, began) = (house.connect(), Instant::now());
                while began.elapsed() < PATIENCE {
                    visitor.request("POST", "/echo", &vec![b'x'; BODY_BYTES]).answer();
                }
            });
        }
    });
    unreachable!("the process has ended");
}

#[test]
fn running_out_of_files_is_survived() {
    if let Some((code, written)) = alone("closing::running_out_of_files_is_survived") {
        assert_eq!(code, Some(0), "{written}");
        return assert!(written.contains("cannot accept a connection"), "{written}");
    }
    let house = House::new();
    let mut inside = house.connect();
    assert_eq!(inside.get("/").status, 200);
    let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let (first, second) = (socket(), socket());
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    // The kernel may have set one descriptor aside for the accept() that waits; there is none for the one after it.
    first.connect(&house.address.into()).expect("room in the backlog");
    second.connect(&house.address.into()).expect("room in the backlog");
    let mut outside = Visitor::on(second.into());
    outside.request("GET", "/", b"");
    for _ in 0..3 {
        assert!(!outside.has_answer());
        assert_eq!(inside.get("/").status, 200);
    }
    drop(files);
    assert_eq!(outside.answer().status, 200);
    assert_eq!(house.connect().get("/").status, 200);
}
