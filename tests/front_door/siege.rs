//! Hostility in bulk: a flood of one kind after another, which must cost little while it lasts and nothing after it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use taskstats::http::server::DoorLimits;
use taskstats::limits::HEAD_BYTES;

use crate::alone::{alone, files_and_threads, peak_memory, until_back_to};
use crate::house::{House, Visitor};

const MIB: usize = 1024 * 1024;

/// Sends as long as the door takes it, and reads what it says.
fn flood(house: &House, begin: &str, filling: &[u8], length: usize) -> String {
    let mut stream = TcpStream::connect(house.address).expect("a connection");
    let mut answers = stream.try_clone().expect("a second handle");
    let reader = thread::spawn(move || {
        let mut answer = Vec::new();
        // A reset after the answer is an end as good as any.
        let _ = answers.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    });
    stream.write_all(begin.as_bytes()).expect("the beginning");
    let mut sent = 0;
    while sent < length && stream.write_all(filling).is_ok() {
        sent += filling.len();
    }
    drop(stream);
    reader.join().expect("no panic")
}

#[test]
fn a_line_of_64_mib_is_refused_and_never_kept() {
    if let Some((code, written)) = alone("siege::a_line_of_64_mib_is_refused_and_never_kept") {
        return assert_eq!(code, Some(0), "{written}");
    }
    let house = House::new();
    assert_eq!(house.connect().get("/alive").status, 200);
    let before = peak_memory();
    for begin in ["", "GET /", "GET / HTTP/1.1\r\nHost: test\r\nA: "] {
        let answer = flood(&house, begin, &[b'a'; HEAD_BYTES], 64 * MIB);
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    let answer =
        flood(&house, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 67108864\r\n\r\n", &[0; MIB], 64 * MIB);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let grown = peak_memory() - before;
    assert!(grown < 8 * MIB, "{grown} bytes more than before");
    assert_eq!(house.seen(), ["GET /alive 0"]);
}

#[test]
fn ten_thousand_pipelined_requests_are_answered_in_order_beside_everybody_else() {
    let house = House::new();
    let mut greedy = house.connect();
    let mut sending = greedy.stream.try_clone().expect("a second handle");
    let sender = thread::spawn(move || {
        let requests: Vec<String> = (0..10_000).map(|n| format!("GET /{n} HTTP/1.1\r\nHost: test\r\n\r\n")).collect();
        sending.write_all(requests.concat().as_bytes()).expect("all of them");
    });
    let mut other = house.connect();
    for n in 0..10_000 {
        assert_eq!(greedy.answer().text(), format!("GET /{n} 0"));
        if n % 100 == 0 {
            assert_eq!(other.get("/other").status, 200);
        }
    }
    sender.join().expect("sent");
}

/// Closes with a reset in place of a goodbye.
fn reset(visitor: Visitor) {
    SockRef::from(&visitor.stream).set_linger(Some(Duration::ZERO)).expect("a linger of nothing");
}

#[test]
fn a_storm_of_resets_and_of_everything_else_leaves_nothing_behind() {
    if let Some((code, written)) = alone("siege::a_storm_of_resets_and_of_everything_else_leaves_nothing_behind") {
        return assert_eq!(code, Some(0), "{written}");
    }
    let mut house = House::with(DoorLimits { connections: 64, ..DoorLimits::default() });
    // The most threads that there can be at rest.
    let mut all: Vec<Visitor> = (0..64).map(|_| house.connect()).collect();
    all.iter_mut().for_each(|visitor| {
        visitor.request("GET", "/gate", b"");
    });
    house.wait_at_gates(64);
    house.gate = None;
    assert!(all.iter_mut().all(|visitor| visitor.answer().status == 200));
    drop(all);
    house.wait_for_a_seat();
    // Some internal connections more may be opened, three files each, and stay for a minute. A leak would be 1,000 files.
    let (files, threads) = files_and_threads();
    let at_rest = (files + 3 * 16, threads);
    let post = "POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n";
    let storm = || {
        for begun in [
            "",
            "G",
            "GET / HTTP/1.1\r\nHost: test\r\n",
            "GET /big HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET /panic HTTP/1.1\r\nHost: test\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: test\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 30000000000\r\n\r\nx",
            "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
            post,
        ] {
            let mut visitor = house.connect();
            // A door that is full may have closed already.
            let _ = visitor.stream.write_all(begun.as_bytes());
            reset(visitor);
        }
    };
    (0..100).for_each(|_| storm());
    until_back_to(at_rest);
    house.wait_for_a_seat();
}

#[test]
fn a_reply_is_not_held_back_until_the_client_acknowledges_the_first_half() {
    let house = House::new();
    let mut visitor = house.connect();
    let began = Instant::now();
    for _ in 0..100 {
        assert_eq!(visitor.request("POST", "/echo", &[b'x'; 3000]).answer().body.len(), 3000);
    }
    // Held back (Nagle against a delayed acknowledgement) each takes 40 ms.
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}
