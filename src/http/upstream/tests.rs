use std::os::unix::net::UnixListener;
use std::thread;

use super::*;
use crate::http::private_dir::PrivateDir;

const GOOD: &[u8] = b"HTTP/1.0 204 No Content\r\nContent-Length: 0\r\n\r\n";
const PATIENCE: Duration = Duration::from_secs(20);

/// A pool whose other side answers each ping well, and each request after it with `answer`; an empty one: closes.
fn pool(dir: &PrivateDir, answer: &'static [u8]) -> Pool {
    let listener = UnixListener::bind(dir.socket()).expect("a socket");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut answers = std::iter::once(GOOD).chain(std::iter::repeat(answer));
                while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
                    match answers.next() {
                        Some(answer) if !answer.is_empty() => stream.write_all(answer).expect("taken"),
                        _ => return,
                    }
                }
            });
        }
    });
    Pool::start(dir.socket(), Arc::new(AtomicBool::new(false))).expect("the ping is answered")
}

fn status(pool: &Pool, head_only: bool, time: Duration) -> u16 {
    let mut answer = Vec::new();
    match pool.exchange(b"GET / HTTP/1.0\r\n\r\n".to_vec(), head_only, time, &|| {}, &mut answer) {
        Ok(()) => std::str::from_utf8(&answer[9..12]).expect("digits").parse().expect("a status"),
        Err(refusal) => refusal.status,
    }
}

#[test]
fn answers_out_of_step_cost_their_connection_and_no_other_request() {
    let cases: [(&[u8], bool, u16); 9] = [
        (GOOD, false, 204),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", false, 200),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", true, 200),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nokay", false, 502),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 99999999999\r\n\r\n", false, 502),
        (b"HTTP/1.0 200 OK\r\nContent-Length: two\r\n\r\nok", false, 502),
        (b"HTTP/1.0 200 OK\r\n\r\nok", false, 502),
        (b"nonsense\r\n\r\n", false, 502),
        (b"", false, 502),
    ];
    for (answer, head_only, expected) in cases {
        let dir = PrivateDir::create().expect("a directory");
        let pool = pool(&dir, answer);
        for _ in 0..3 {
            assert_eq!(status(&pool, head_only, PATIENCE), expected, "{:?}", String::from_utf8_lossy(answer));
            assert_eq!(lock(&pool.state).free.len(), usize::from(expected < 300));
        }
    }
}

#[test]
fn an_answer_that_does_not_come_is_not_waited_for() {
    let dir = PrivateDir::create().expect("a directory");
    let pool = pool(&dir, b"HTTP/1.0 200 OK\r\n");
    assert_eq!(status(&pool, false, Duration::ZERO), 504);
    // A connection that is open already; then nobody waits any more.
    let ready = pool.take().map_err(|refusal| refusal.status).expect("a connection");
    lock(&pool.state).free.push_back(ready);
    pool.cut.store(true, Relaxed);
    assert_eq!(status(&pool, false, PATIENCE), 503);
}

#[test]
fn who_waits_for_long_looks_up_less_often_and_is_woken_by_the_cut() {
    let dir = PrivateDir::create().expect("a directory");
    let pool = pool(&dir, b"HTTP/1.0 200 OK\r\n");
    let (looking, looked) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let look_up = || looking.send(Instant::now()).expect("the test listens");
            pool.exchange(b"GET / HTTP/1.0\r\n\r\n".to_vec(), false, PATIENCE, &look_up, &mut Vec::new())
        });
        let looks: Vec<Instant> = (0..3).map(|_| looked.recv_timeout(PATIENCE).expect("a look")).collect();
        let pauses = [looks[1] - looks[0], looks[2] - looks[1]];
        assert!(pauses[0] >= 2 * TICK && pauses[1] >= 4 * TICK, "{pauses:?}");
        // Now within the longest tick.
        pool.cut_off();
        assert_eq!(waiting.join().expect("no panic").map_err(|refusal| refusal.status), Err(503));
        assert!(looks[2].elapsed() < LONG_TICK / 2, "woken after {:?}", looks[2].elapsed());
    });
}

#[test]
fn connections_nobody_uses_are_closed() {
    let dir = PrivateDir::create().expect("a directory");
    let pool = pool(&dir, GOOD);
    let mut taken: VecDeque<Upstream> = (0..3).filter_map(|_| pool.take().ok()).collect();
    assert_eq!((taken.len(), lock(&pool.state).free.len()), (3, 0));
    lock(&pool.state).free.append(&mut taken);
    pool.trim(PATIENCE);
    assert_eq!(lock(&pool.state).free.len(), 3);
    pool.trim(Duration::ZERO);
    assert_eq!(lock(&pool.state).free.len(), 0);
    assert_eq!(status(&pool, false, PATIENCE), 204);
}
