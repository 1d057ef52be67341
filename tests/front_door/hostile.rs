//! Clients that send what they should not: nothing of it reaches a handler, and everybody is told why.

use std::time::Duration;

use taskstats::http::server::DoorLimits;
use taskstats::limits::{HEAD_BYTES, HEAD_FIELDS};

use crate::house::{House, PATIENCE};

/// Follows every hostile head: it must never be executed.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n";

/// Sends each and expects the status, a closed connection, and a handler that has seen nothing.
fn all_refused(status: u16, heads: impl IntoIterator<Item = impl AsRef<[u8]>>) {
    let house = House::new();
    for head in heads {
        let head = head.as_ref();
        println!("{status} for {:?}", String::from_utf8_lossy(&head[..head.len().min(200)]));
        let mut visitor = house.connect();
        visitor.send([head, SMUGGLED.as_bytes()].concat()).refused(status);
    }
    assert_eq!(house.connect().get("/alive").status, 200);
    assert_eq!(house.seen(), ["GET /alive 0"]);
}

fn post(fields: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: test\r\n{fields}\r\n\r\n")
}

#[test]
fn declared_lengths_beyond_the_limit_are_refused_unread() {
    let lengths = [
        "1048577",
        "1000000000",
        "30000000000",
        "1000000000000",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
    ];
    all_refused(413, lengths.map(|length| post(&format!("Content-Length: {length}"))));
}

#[test]
fn lengths_that_are_no_numbers_are_refused() {
    let lengths =
        ["-1", "+5", "0x10", "5, 6", "5, 5", "", "5 6", "1e3", "5\r\nContent-Length: 6", "5\r\ncontent-length: 5"];
    all_refused(400, lengths.map(|length| post(&format!("Content-Length: {length}"))));
}

#[test]
fn transfer_encoding_is_refused_in_every_variant() {
    let values = ["chunked", "Chunked", "identity", "gzip, chunked", "chunked\r\nTransfer-Encoding: identity", "x", ""];
    all_refused(411, values.map(|value| post(&format!("Transfer-Encoding: {value}"))));
    all_refused(411, values.map(|value| post(&format!("Content-Length: 3\r\nTransfer-Encoding: {value}"))));
    all_refused(411, values.map(|value| post(&format!("transfer-encoding:{value}\r\nContent-Length: 3"))));
    all_refused(
        400,
        ["Transfer-Encoding : chunked", " Transfer-Encoding: chunked", "Transfer-Encoding:\x0bchunked"].map(post),
    );
}

#[test]
fn chunked_bodies_are_never_executed_whole_half_or_endless() {
    let bodies =
        ["5\r\nhello\r\n0\r\n\r\n", "5\r\nhe", "ffffffffffffffff\r\nhello", "0\r\n\r\n", "-1\r\n", "5;x=\"\r\n", ""];
    all_refused(411, bodies.map(|body| post("Transfer-Encoding: chunked") + body));
    all_refused(411, bodies.map(|body| post("Transfer-Encoding: chunked\r\nContent-Length: 40") + body));
}

#[test]
fn other_versions_and_protocols_are_refused() {
    let versions = ["HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/3.0", "http/1.1"];
    all_refused(505, versions.map(|version| format!("GET / {version}\r\nHost: test\r\n\r\n")));
    all_refused(505, ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]);
    all_refused(400, ["GET /\r\n", "GET / HTTP/1.1 HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"]);
    all_refused(400, [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice()]);
}

#[test]
fn heads_that_could_be_read_in_two_ways_are_refused() {
    all_refused(
        400,
        [
            "GET / HTTP/1.1\nHost: test\n\n",
            "GET / HTTP/1.1\r\nHost: test\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\rA: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nA: b\r\n c\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nA: b\0c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nA: b\x08c\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nA: caf\u{e9}\r\n\r\n",
            "GET /caf\u{e9} HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET http://test/ HTTP/1.1\r\nHost: test\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nHost: test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : test\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: test\r\nno colon\r\n\r\n",
        ],
    );
    all_refused(417, [post("Expect: something")]);
}

#[test]
fn heads_without_end_are_refused() {
    all_refused(
        431,
        [
            format!("GET /{} HTTP/1.1\r\nHost: test\r\n\r\n", "a".repeat(HEAD_BYTES)),
            post(&format!("A: {}", "b".repeat(HEAD_BYTES))),
            "A".repeat(HEAD_BYTES),
            post(&vec!["A: b"; HEAD_FIELDS].join("\r\n")),
        ],
    );
}

#[test]
fn a_request_inside_a_body_is_never_executed() {
    let house = House::new();
    let mut visitor = house.connect();
    let body = SMUGGLED.repeat(100);
    for target in ["/plain", "/panic", "/drop", "/echo"] {
        let status = visitor.request("POST", target, body.as_bytes()).answer().status;
        assert_eq!(status, if ["/panic", "/drop"].contains(&target) { 500 } else { 200 });
    }
    // A body that is cut off is no request at all, and what there was of it is none either.
    visitor.send(format!("POST /cut HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n{SMUGGLED}"));
    visitor.stream.shutdown(std::net::Shutdown::Write).expect("half closed");
    visitor.closed();
    let seen = ["/plain", "/panic", "/drop", "/echo"].map(|target| format!("POST {target} {}", body.len()));
    assert_eq!(house.seen(), seen);
}

#[test]
fn slow_heads_and_bodies_meet_their_deadlines() {
    let short = Duration::from_millis(300);
    let limits = DoorLimits { head_time: short, body_time: short, ..DoorLimits::default() };
    let house = House::with(limits);
    for begun in
        ["G", "GET / HTTP/1.1\r\nHost: test\r\n", "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nab"]
    {
        house.connect().send(begun).refused(408);
    }
    // Dripping does not help: the deadline is for the whole head.
    let mut dripping = house.connect();
    dripping.send("GET / HTTP/1.1\r\nHost: test\r\nA: ");
    while !dripping.has_answer() {
        dripping.send("b");
    }
    assert_eq!(dripping.answer().status, 408);
    assert!(house.seen().is_empty());
}

#[test]
fn a_client_that_does_not_read_is_cut_off_and_disturbs_nobody() {
    let house = House::with(DoorLimits {
        connections: 2,
        write_time: Duration::from_millis(500),
        idle_time_crowded: PATIENCE,
        ..DoorLimits::default()
    });
    let (mut lazy, mut other) = (house.connect(), house.connect());
    for _ in 0..40 {
        lazy.request("GET", "/big", b"");
    }
    assert_eq!(other.get("/alive").status, 200);
    // Its seat becomes free: the sockets' buffers do not hold 40 MiB.
    house.wait_for_a_seat();
    assert!(house.seen().iter().filter(|line| line.contains("/big")).count() < 40);
    assert_eq!(other.get("/alive").status, 200);
}
