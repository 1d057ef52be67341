//! A listener with a guard: who may not ask is told so by the door, whatever else it has sent or announced.

use std::net::TcpListener;

use taskstats::http::{DoorLimits, Guard};
use taskstats::limits::BODY_BYTES;

use crate::house::{House, PATIENCE, Visitor};

/// Longer than any test waits for an answer: nobody is told because the body took too long.
fn house() -> House {
    let limits = DoorLimits { body_time: 2 * PATIENCE, body_time_crowded: 2 * PATIENCE, ..DoorLimits::default() };
    House::guarded(TcpListener::bind("127.0.0.1:0").expect("a free port"), limits, Guard::Loopback)
}

/// The head of a request that the guard turns away.
fn head(more: &str, length: usize) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: elsewhere\r\n{more}Content-Length: {length}\r\n\r\n")
}

fn is_let_in(visitor: &mut Visitor) {
    assert_eq!(visitor.send("GET /in HTTP/1.1\r\nHost: localhost\r\n\r\n").answer().text(), "GET /in 0");
}

#[test]
fn a_body_that_nobody_wants_is_not_waited_for() {
    let house = house();
    for more in ["", "Expect: 100-continue\r\n"] {
        house.connect().send(head(more, BODY_BYTES)).refused(421);
        // Nor is the rest of it.
        house.connect().send(head(more, 100) + "some of it").refused(421);
    }
    // One that is sent all the same does not cost the answer.
    house.connect().send([head("", BODY_BYTES).as_bytes(), &[b'x'; BODY_BYTES]].concat()).refused(421);
    assert!(house.seen().is_empty());
    is_let_in(&mut house.connect());
}

#[test]
fn a_connection_goes_on_when_nothing_more_is_to_come() {
    let house = house();
    let mut visitor = house.connect();
    // What looks like a request is a body, and what comes behind it is a request.
    let body = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (more, body) in [("", ""), ("Expect: 100-continue\r\n", ""), ("", body), ("Expect: 100-continue\r\n", body)] {
        let answer = visitor.send(head(more, body.len()) + body).answer();
        assert_eq!((answer.status, answer.header("Connection")), (421, None), "{more}{body}");
        is_let_in(&mut visitor);
    }
    let answer = visitor.send("HEAD / HTTP/1.1\r\nHost: elsewhere\r\n\r\n").head();
    assert_eq!(answer.status, 421);
    is_let_in(&mut visitor);
    let answer = visitor.send("GET / HTTP/1.0\r\nHost: elsewhere\r\n\r\n").answer();
    assert_eq!((answer.status, answer.header("Connection")), (421, Some("close")));
    visitor.closed();
    assert_eq!(house.seen(), ["GET /in 0"; 5]);
}
