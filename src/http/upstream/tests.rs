use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::*;
use crate::http::private_dir::PrivateDir;

const GOOD: &[u8] = b"HTTP/1.0 204 No Content\r\nContent-Length: 0\r\n\r\n";
const PATIENCE: Duration = Duration::from_secs(20);

/// A pool whose other side gives `answer` to each ping, and then reads, when it is `open`; with what it has read.
fn pool(dir: &PrivateDir, answer: &'static [u8], open: bool) -> (io::Result<Pool>, Receiver<Vec<u8>>) {
    let listener = UnixListener::bind(dir.socket()).expect("a socket");
    let (reading, read) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, reading) = (stream.expect("a connection"), reading.clone());
            thread::spawn(move || {
                let mut ping = vec![0; PING.len()];
                stream.read_exact(&mut ping).expect("a ping");
                assert_eq!(ping, PING);
                stream.write_all(answer).expect("taken");
                let mut bytes = vec![0; 4096];
                while open && stream.read(&mut bytes).is_ok_and(|n| n > 0 && reading.send(bytes[..n].to_vec()).is_ok())
                {
                }
            });
        }
    });
    (Pool::start(dir.socket(), Arc::default()), read)
}

fn status(pool: &Pool, request: &[u8], time: Duration) -> u16 {
    pool.send(request, Instant::now() + time).map_or_else(|refusal| refusal.status, |()| 200)
}

fn free(pool: &Pool) -> usize {
    pool.state.lock().free.len()
}

#[test]
fn a_connection_is_proved_by_its_ping() {
    for (answer, sound) in [(GOOD, true), (b"HTTP/1.0 500 No\r\n\r\n", false), (b"HTTP/1.0 204", false), (b"", false)] {
        let dir = PrivateDir::create().expect("a directory");
        assert_eq!(pool(&dir, answer, false).0.is_ok(), sound, "{:?}", String::from_utf8_lossy(answer));
    }
}

#[test]
fn one_connection_carries_one_request_after_the_other() {
    let dir = PrivateDir::create().expect("a directory");
    let (pool, read) = pool(&dir, GOOD, true);
    let pool = pool.expect("the ping is answered");
    for request in [b"first", b"other"] {
        assert_eq!(status(&pool, request, PATIENCE), 200);
        assert_eq!(read.recv_timeout(PATIENCE).expect("it arrives"), request);
        assert_eq!(free(&pool), 1);
    }
}

#[test]
fn half_a_request_costs_its_connection_and_no_other_request() {
    let dir = PrivateDir::create().expect("a directory");
    let (pool, read) = pool(&dir, GOOD, true);
    let pool = pool.expect("the ping is answered");
    let (taken, long) = (pool.take().map_err(|refusal| refusal.status).expect("free"), vec![b'x'; 64 << 20]);
    // The other side stops reading when nobody hears what it has read.
    drop(read);
    pool.state.lock().free.push_back(taken);
    assert_eq!(status(&pool, &long, PATIENCE), 502);
    assert_eq!(free(&pool), 0);
}

#[test]
fn a_request_that_is_not_taken_is_not_waited_for() {
    let dir = PrivateDir::create().expect("a directory");
    let listener = UnixListener::bind(dir.socket()).expect("a socket");
    let other = thread::spawn(move || {
        let mut stream = listener.accept().expect("a connection").0;
        stream.read_exact(&mut vec![0; PING.len()]).expect("a ping");
        stream.write_all(GOOD).expect("taken");
        stream
    });
    let pool = Pool::start(dir.socket(), Arc::default()).expect("the ping is answered");
    let silent = other.join().expect("no panic");
    let long = vec![b'x'; 64 << 20];
    assert_eq!(status(&pool, &long, Duration::ZERO), 503);
    assert_eq!(free(&pool), 0);
    drop(silent);
}

#[test]
fn connections_nobody_uses_are_closed() {
    let dir = PrivateDir::create().expect("a directory");
    let pool = pool(&dir, GOOD, true).0.expect("the ping is answered");
    let mut taken: VecDeque<Upstream> = (0..3).filter_map(|_| pool.take().ok()).collect();
    assert_eq!((taken.len(), free(&pool)), (3, 0));
    pool.state.lock().free.append(&mut taken);
    assert!(!pool.trim(PATIENCE));
    assert_eq!(free(&pool), 3);
    assert!(pool.trim(Duration::ZERO));
    assert_eq!(free(&pool), 0);
    assert_eq!(status(&pool, b"next", PATIENCE), 200);
}
