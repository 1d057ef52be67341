//! Clients that behave: what HTTP promises them, and what happens when a handler does not behave.

use std::thread;
use std::time::Duration;

use taskstats::http::exchange::Reply;
use taskstats::http::server::DoorLimits;
use taskstats::limits::{BODY_BYTES, TICK};

use crate::house::{BIG, House, PATIENCE};

#[test]
fn a_connection_carries_many_requests() {
    let house = House::new();
    let mut visitor = house.connect();
    for n in 0..100 {
        let answer = visitor.get(&format!("/{n}"));
        assert_eq!((answer.status, answer.text()), (200, format!("GET /{n} 0")));
        assert_eq!(answer.header("Connection"), None);
        assert_eq!(answer.header("Server"), Some("taskstats"));
        assert!(answer.header("Date").is_some());
    }
}

#[test]
fn a_client_that_was_idle_is_as_good_as_before() {
    let house = House::new();
    let mut visitor = house.connect();
    for _ in 0..2 {
        // Idle is who has said nothing for a tick; nobody outside can see when that has passed.
        thread::sleep(2 * TICK);
        assert_eq!(visitor.request("POST", "/echo", &[b'x'; 100_000]).answer().body.len(), 100_000);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_one_at_a_time() {
    let mut house = House::new();
    let mut visitor = house.connect();
    let requests: Vec<String> = (0..50).map(|n| format!("/gate/{n}")).collect();
    requests.iter().for_each(|target| {
        visitor.request("POST", target, b"body");
    });
    house.wait_at_gates(1);
    // While the first one stands at the gate, the other 49 wait in front of the door.
    assert_eq!(house.connect().get("/alive").status, 200);
    assert_eq!(house.seen(), ["POST /gate/0 4", "GET /alive 0"]);
    house.gate = None;
    for target in &requests {
        assert_eq!(visitor.answer().text(), format!("POST {target} 4"));
    }
}

#[test]
fn the_largest_body_passes_against_the_largest_reply() {
    let house = House::new();
    let mut visitor = house.connect();
    let body: Vec<u8> = (0..BODY_BYTES).map(|n| (n % 251) as u8).collect();
    for _ in 0..3 {
        assert!(visitor.request("POST", "/echo", &body).answer().body == body, "the body came back changed");
        assert_eq!(visitor.request("POST", "/big", &body).answer().body.len(), BIG);
    }
}

#[test]
fn versions_and_connection_fields_decide_what_is_kept() {
    let house = House::new();
    let cases = [
        ("GET / HTTP/1.0\r\n\r\n", Some("close")),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("keep-alive")),
        ("GET / HTTP/1.1\r\nHost: test\r\n\r\n", None),
        ("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", Some("close")),
    ];
    for (head, connection) in cases {
        let mut visitor = house.connect();
        let answer = visitor.send(head).answer();
        assert_eq!((answer.status, answer.header("Connection")), (200, connection), "{head:?}");
        match connection {
            Some("close") => visitor.closed(),
            _ => assert_eq!(visitor.send(head).answer().status, 200),
        }
    }
    // Pipelined behind a close: never executed.
    let mut visitor = house.connect();
    visitor
        .send("GET /last HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\nGET /after HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(visitor.answer().text(), "GET /last 0");
    visitor.closed();
    assert!(!house.seen().contains(&String::from("GET /after 0")));
}

#[test]
fn head_is_answered_without_a_body() {
    let house = House::new();
    let mut visitor = house.connect();
    let answer = visitor.request("HEAD", "/big", b"").head();
    assert_eq!((answer.status, answer.header("Content-Length")), (200, Some(BIG.to_string().as_str())));
    assert_eq!(visitor.get("/next").text(), "GET /next 0");
    let answer = visitor.request("HEAD", "/panic", b"").head();
    assert_eq!(answer.status, 500);
    assert_eq!(visitor.get("/next").status, 200);
}

#[test]
fn a_continue_comes_only_when_the_body_is_wanted() {
    let house = House::new();
    let mut visitor = house.connect();
    let head = |length: usize| {
        format!("POST /echo HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n")
    };
    assert_eq!(visitor.send(head(5)).head().status, 100);
    assert_eq!(visitor.send("hello").answer().text(), "hello");
    // The body came along: nobody waits for a word.
    assert_eq!(visitor.send(head(5) + "hello").answer().text(), "hello");
    assert_eq!(visitor.send(head(0)).answer().text(), "");
    visitor.send(head(BODY_BYTES + 1)).refused(413);
}

#[test]
fn a_body_too_long_is_refused_even_if_it_is_sent() {
    let house = House::new();
    let mut visitor = house.connect();
    let body = vec![b'x'; 4 * BODY_BYTES];
    visitor.request("POST", "/echo", &body).refused(413);
    assert!(house.seen().is_empty());
}

#[test]
fn a_panic_costs_one_answer() {
    let house = House::new();
    let mut visitor = house.connect();
    for _ in 0..50 {
        let answer = visitor.get("/panic");
        assert_eq!((answer.status, answer.header("Content-Type")), (500, Some("application/problem+json")));
        assert_eq!(visitor.get("/alive").status, 200);
    }
}

#[test]
fn what_a_handler_must_not_do_becomes_a_500() {
    let house = House::new();
    let mut visitor = house.connect();
    for target in ["/drop", "/evil-header"] {
        let answer = visitor.get(target);
        assert_eq!((answer.status, answer.header("Content-Type")), (500, Some("application/problem+json")));
        assert_eq!(answer.header("Set-Cookie"), None);
    }
    assert_eq!(visitor.get("/alive").status, 200);
}

#[test]
fn an_exchange_may_be_answered_later_by_another_thread() {
    let house = House::new();
    let mut visitor = house.connect();
    visitor.send("PATCH /later HTTP/1.1\r\nHost: test\r\nX-Tag: a b\r\nContent-Length: 2\r\n\r\nhi");
    let exchange = house.later.recv_timeout(PATIENCE).expect("the request");
    assert_eq!((exchange.method(), exchange.target(), exchange.body()), ("PATCH", "/later", b"hi".as_slice()));
    assert_eq!((exchange.header("x-tag"), exchange.header("X-Other")), (Some("a b"), None));
    assert_eq!(exchange.peer(), Some(visitor.stream.local_addr().expect("an address")));
    exchange.reply(Reply { status: 202, headers: vec![("Location", "/tasks/task[0]".into())], body: b"{}".to_vec() });
    let answer = visitor.answer();
    assert_eq!((answer.status, answer.header("Location")), (202, Some("/tasks/task[0]")));
    assert_eq!(visitor.get("/alive").status, 200);
}

#[test]
fn nobody_can_lie_about_the_peer() {
    let house = House::new();
    let mut visitor = house.connect();
    let address = visitor.stream.local_addr().expect("an address").to_string();
    let answer = visitor.send("GET /peer HTTP/1.1\r\nHost: test\r\nx-GUEST: 0\r\n\r\n").answer();
    assert_eq!(answer.text(), address);
}

#[test]
fn a_handler_that_takes_too_long_is_given_up() {
    let mut house = House::with(DoorLimits { handler_time: Duration::from_millis(300), ..DoorLimits::default() });
    house.connect().request("GET", "/gate", b"").refused(504);
    assert_eq!(house.connect().get("/alive").status, 200);
    house.gate = None;
    assert_eq!(house.connect().get("/alive").status, 200);
}
