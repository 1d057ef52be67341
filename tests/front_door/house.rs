//! A server with a small handler, and clients that speak bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use taskstats::http::Guard;
use taskstats::http::exchange::{Exchange, Reply};
use taskstats::http::server::{DoorLimits, Server};

/// No test waits longer than this for anything.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at what cannot be waited for.
pub const PAUSE: Duration = Duration::from_millis(20);
/// What `/big` answers with, bytes: the largest reply there is.
pub const BIG: usize = taskstats::limits::REPLY_BYTES;

/// A running server.
pub struct House {
    pub server: Server,
    pub address: SocketAddr,
    /// One line for each request that reached the handler.
    seen: Arc<Mutex<Vec<String>>>,
    /// Says which request has come to `/gate…` and waits there.
    pub entered: Receiver<String>,
    /// Dropping it opens all gates.
    pub gate: Option<Sender<()>>,
    /// Requests to `/later`, for the test to answer.
    pub later: Receiver<Exchange>,
}

impl House {
    pub fn new() -> House {
        House::with(DoorLimits::default())
    }

    pub fn with(limits: DoorLimits) -> House {
        House::on(TcpListener::bind("127.0.0.1:0").expect("a free port"), limits)
    }

    pub fn on(listener: TcpListener, limits: DoorLimits) -> House {
        House::guarded(listener, limits, Guard::Anyone)
    }

    pub fn guarded(listener: TcpListener, limits: DoorLimits, guard: Guard) -> House {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (entering, entered) = unbounded();
        let (gate, gate_opened) = bounded::<()>(0);
        let (put_off, later) = unbounded();
        let log = Arc::clone(&seen);
        let handler = move |exchange: Exchange| {
            let line = format!("{} {} {}", exchange.method(), exchange.target(), exchange.body().len());
            log.lock().expect("nobody panics with it").push(line.clone());
            match exchange.target() {
                "/panic" => panic!("as the test wants it"),
                "/drop" => drop(exchange),
                "/later" => put_off.send(exchange).expect("the test listens"),
                "/big" => exchange.reply(text(vec![b'x'; BIG])),
                "/evil-header" => exchange.reply(Reply {
                    status: 200,
                    headers: vec![("X-Echo", "a\r\nSet-Cookie: b".into())],
                    body: Vec::new(),
                }),
                "/peer" => {
                    let peer = exchange.peer().map(|peer| peer.to_string()).unwrap_or_default();
                    exchange.reply(text(peer.into_bytes()));
                }
                "/echo" => {
                    let body = exchange.body().to_vec();
                    exchange.reply(text(body));
                }
                target if target.starts_with("/gate") => {
                    entering.send(target.to_string()).expect("the test listens");
                    // An error is what opens the gate: nothing is ever sent.
                    let _ = gate_opened.recv();
                    exchange.reply(text(line.into_bytes()));
                }
                _ => exchange.reply(text(line.into_bytes())),
            }
        };
        let server = Server::start("test", listener, limits, guard, Arc::new(handler)).expect("a server");
        House { address: server.address(), server, seen, entered, gate: Some(gate), later }
    }

    pub fn connect(&self) -> Visitor {
        Visitor::to(self.address)
    }

    /// Tries until the door is not full.
    pub fn wait_for_a_seat(&self) -> Visitor {
        let began = Instant::now();
        loop {
            let mut visitor = self.connect();
            if visitor.get("/seat").status == 200 {
                return visitor;
            }
            assert!(began.elapsed() < PATIENCE, "the door stays full");
            thread::sleep(PAUSE);
        }
    }

    /// The requests that reached the handler so far.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("nobody panics with it").clone()
    }

    /// Waits until this many requests stand at the gates.
    pub fn wait_at_gates(&self, count: usize) {
        for n in 0..count {
            self.entered.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("only {n} of {count} requests came in"));
        }
    }
}

fn text(body: Vec<u8>) -> Reply {
    Reply { status: 200, headers: vec![("Content-Type", "text/plain".into())], body }
}

/// A client's connection.
pub struct Visitor {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Visitor {
    pub fn to(address: SocketAddr) -> Visitor {
        Visitor::on(TcpStream::connect(address).expect("somebody listens"))
    }

    pub fn on(stream: TcpStream) -> Visitor {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Visitor { stream, unread: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Visitor {
        self.stream.write_all(bytes.as_ref()).expect("the door takes it");
        self
    }

    /// A request with the usual fields; the body's length is added.
    pub fn request(&mut self, method: &str, target: &str, body: &[u8]) -> &mut Visitor {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len());
        self.send([head.as_bytes(), body].concat())
    }

    pub fn get(&mut self, target: &str) -> Answer {
        self.request("GET", target, b"").answer()
    }

    /// The next answer, with its body.
    pub fn answer(&mut self) -> Answer {
        let answer = self.head();
        let length = answer.header("Content-Length").expect("a length").parse().expect("a number");
        while self.unread.len() < length {
            assert!(self.read_more(), "closed within the body of {}", answer.head);
        }
        let body = self.unread.drain(..length).collect();
        Answer { body, ..answer }
    }

    /// The next answer to a HEAD: no body follows.
    pub fn head(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.read_more(), "closed before an answer; got {:?}", String::from_utf8_lossy(&self.unread));
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let head = String::from_utf8(head).expect("an ASCII head");
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("a status line");
        Answer { status: status.parse().expect("a status"), head, body: Vec::new() }
    }

    /// The next answer must be the door's own: an error in JSON, after which it closes.
    pub fn refused(&mut self, status: u16) -> Answer {
        let answer = self.answer();
        assert_eq!(answer.status, status, "{} {}", answer.head, answer.text());
        assert_eq!(answer.header("Content-Type"), Some("application/problem+json"));
        assert_eq!(answer.header("Connection"), Some("close"));
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
        assert_eq!(answer.header("Retry-After").is_some(), status == 503);
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], "about:blank");
        assert!(problem["title"].is_string() && problem["detail"].is_string());
        self.closed();
        answer
    }

    /// Whether bytes of an answer are there, after a short wait.
    pub fn has_answer(&self) -> bool {
        self.stream.set_read_timeout(Some(PAUSE)).expect("a timeout");
        let arrived = self.stream.peek(&mut [0]).is_ok_and(|n| n > 0);
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        arrived
    }

    /// Whether the door has closed and said nothing.
    pub fn is_closed(&self) -> bool {
        self.stream.set_nonblocking(true).expect("non-blocking");
        let closed = self.stream.peek(&mut [0]).is_ok_and(|n| n == 0);
        self.stream.set_nonblocking(false).expect("blocking");
        closed
    }

    /// The door closes without another byte.
    pub fn closed(&mut self) {
        assert!(!self.read_more(), "unexpected: {:?}", String::from_utf8_lossy(&self.unread));
        assert!(self.unread.is_empty(), "unread: {:?}", String::from_utf8_lossy(&self.unread));
    }

    /// False when the door has closed.
    fn read_more(&mut self) -> bool {
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(n) => {
                self.unread.extend_from_slice(&chunk[..n]);
                n > 0
            }
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(e) => panic!("no answer: {e}"),
        }
    }
}
