//! Many clients at once: each is answered, or told at once that there is no room.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use taskstats::http::server::DoorLimits;
use taskstats::limits::BODY_BYTES;

use crate::house::{House, PATIENCE, Visitor};

#[test]
fn a_burst_of_200_connections_is_answered_whole() {
    let house = House::with(DoorLimits { connections: 256, ..DoorLimits::default() });
    let address = house.address;
    for round in 0..3 {
        let clients: Vec<_> = (0..200)
            .map(|n| {
                thread::spawn(move || {
                    let mut visitor = Visitor::to(address);
                    for request in 0..3 {
                        let target = format!("/{round}/{n}/{request}");
                        assert_eq!(visitor.get(&target).text(), format!("GET {target} 0"));
                    }
                    visitor
                })
            })
            .collect();
        // All stay connected until the last one is answered.
        let visitors: Vec<Visitor> = clients.into_iter().map(|client| client.join().expect("every answer")).collect();
        assert_eq!(visitors.len(), 200);
    }
    assert_eq!(house.seen().len(), 3 * 200 * 3);
}

#[test]
fn blocked_handlers_stop_nobody_else() {
    let mut house = House::with(DoorLimits { connections: 100, ..DoorLimits::default() });
    let mut blocked: Vec<Visitor> = (0..64).map(|_| house.connect()).collect();
    blocked.iter_mut().for_each(|visitor| {
        visitor.request("GET", "/gate", b"");
    });
    house.wait_at_gates(64);
    let mut visitor = house.connect();
    for _ in 0..100 {
        assert_eq!(visitor.get("/alive").status, 200);
    }
    house.gate = None;
    for visitor in &mut blocked {
        assert_eq!(visitor.answer().text(), "GET /gate 0");
    }
}

#[test]
fn a_full_door_says_so_and_has_room_again() {
    let mut house = House::with(DoorLimits { connections: 3, ..DoorLimits::default() });
    let mut inside: Vec<Visitor> = (0..3).map(|_| house.connect()).collect();
    inside.iter_mut().for_each(|visitor| {
        visitor.request("GET", "/gate", b"");
    });
    house.wait_at_gates(3);
    for _ in 0..100 {
        house.connect().request("POST", "/refused", &[b'x'; 10_000]).refused(503);
    }
    assert_eq!(house.seen().len(), 3);
    house.gate = None;
    assert!(inside.iter_mut().all(|visitor| visitor.answer().status == 200));
    drop(inside);
    house.wait_for_a_seat();
}

#[test]
fn idle_clients_make_room_when_it_gets_crowded() {
    let short = Duration::from_millis(100);
    let house = House::with(DoorLimits { connections: 4, idle_time_crowded: short, ..DoorLimits::default() });
    let mut idle: Vec<Visitor> = (0..2).map(|_| house.connect()).collect();
    assert!(idle.iter_mut().all(|visitor| visitor.get("/first").status == 200));
    idle.extend((2..4).map(|_| house.connect()));
    // Full of idle clients: some of them must go for one who works.
    house.wait_for_a_seat();
    assert!(idle.iter().any(Visitor::is_closed));
}

#[test]
fn an_idle_client_is_closed_in_the_end() {
    let house = House::with(DoorLimits { idle_time: Duration::from_millis(300), ..DoorLimits::default() });
    house.connect().closed();
    let mut visitor = house.connect();
    assert_eq!(visitor.get("/").status, 200);
    visitor.closed();
}

#[test]
fn bodies_in_flight_have_a_budget() {
    let mut house = House::with(DoorLimits { body: 1000, bodies: 1000, ..DoorLimits::default() });
    let mut first = house.connect();
    first.request("POST", "/gate", &[b'x'; 600]);
    house.wait_at_gates(1);
    house.connect().request("POST", "/echo", &[b'x'; 401]).refused(503);
    assert_eq!(house.connect().request("POST", "/echo", &[b'x'; 400]).answer().status, 200);
    house.gate = None;
    assert_eq!(first.answer().status, 200);
    assert_eq!(house.connect().request("POST", "/echo", &[b'x'; 1000]).answer().status, 200);
}

#[test]
fn bodies_that_were_announced_and_never_come_take_no_room() {
    let house = House::with(DoorLimits { bodies: BODY_BYTES, ..DoorLimits::default() });
    let head = format!("POST /never HTTP/1.1\r\nHost: test\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    // Each is asked for its body, so that all of them are known to be inside.
    let mut announcing: Vec<Visitor> = (0..32).map(|_| house.connect()).collect();
    for visitor in &mut announcing {
        let head = head.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
        assert_eq!(visitor.send(head).head().status, 100);
    }
    let answer = house.connect().request("POST", "/echo", &[b'x'; BODY_BYTES / 4]).answer();
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn slow_bodies_make_room_when_it_gets_tight() {
    let house = House::with(DoorLimits {
        bodies: BODY_BYTES,
        body_time: 2 * PATIENCE,
        body_time_crowded: Duration::from_millis(300),
        ..DoorLimits::default()
    });
    let mut slow = house.connect();
    slow.send(format!("POST /never HTTP/1.1\r\nHost: test\r\nContent-Length: {BODY_BYTES}\r\n\r\n"));
    slow.send(vec![b'x'; BODY_BYTES - 1]);
    slow.refused(408);
    assert_eq!(house.connect().request("POST", "/echo", &[b'x'; BODY_BYTES]).answer().status, 200);
}

#[test]
fn a_listener_that_does_not_block_is_as_good() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("non-blocking");
    let house = House::on(listener, DoorLimits::default());
    assert_eq!(house.connect().get("/").status, 200);
}
