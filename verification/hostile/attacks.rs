//! Clients that do not behave. Chance decides what each does, and can be repeated.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::SockRef;

/// Heads after which nothing may be executed, each for a reason of its own; a smuggled request follows.
const HEADS: [&str; 30] = [
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000000\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551616\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 0x10\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
    "GET / HTTP/0.9\r\n\r\n",
    "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "GET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nA: \0\r\n\r\n",
    "GET /\u{1} HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /tasks/%zz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "BREW /tasks HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "POST /tasks HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n",
    "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}\u{3}",
    "\r\n\r\n",
];
/// If this is ever stored, a body or the rest of a refused request was executed.
const SMUGGLED: &str = "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n\
                        {\"text\":\"smuggled\"}";
const GET: &str = "GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n";
/// Longest that an attacker stays.
const STAY: u64 = 1500;

/// One attacker, with one connection at a time.
pub struct Attacker {
    dice: u64,
    target: SocketAddr,
}

impl Attacker {
    pub fn new(seed: u64, target: SocketAddr) -> Attacker {
        Attacker { dice: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, target }
    }

    /// xorshift64*.
    fn below(&mut self, n: u64) -> u64 {
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        (self.dice.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }

    /// Connects and does its worst. Errors are no concern of an attacker.
    pub fn attack(&mut self) {
        let Ok(mut stream) = TcpStream::connect(self.target) else {
            return std::thread::sleep(Duration::from_millis(10));
        };
        let patience = Some(Duration::from_millis(500));
        let _ = stream.set_read_timeout(patience).and_then(|()| stream.set_write_timeout(patience));
        match self.below(100) {
            0..=39 => self.wrong_head(&mut stream),
            40..=54 => self.cut_short(&mut stream),
            55..=64 => self.garbage(&mut stream),
            65..=74 => self.mutated(&mut stream),
            75..=79 => self.endless_line(&mut stream),
            80..=84 => self.unread_answers(&mut stream),
            85..=89 => self.body_that_stops(&mut stream),
            90..=94 => self.drip(&mut stream),
            95 => self.stay(),
            96..=97 => self.gone_before_the_end(&mut stream),
            _ => self.request_within_a_body(&mut stream),
        }
        if self.below(2) == 0 {
            // A reset in place of a goodbye.
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        }
    }

    fn wrong_head(&mut self, stream: &mut TcpStream) {
        let head = HEADS[self.below(HEADS.len() as u64) as usize];
        let _ = stream.write_all(format!("{head}{SMUGGLED}").as_bytes());
        if self.below(2) == 0 {
            let _ = stream.read(&mut [0; 4096]);
        }
    }

    fn cut_short(&mut self, stream: &mut TcpStream) {
        let whole = [GET, SMUGGLED][self.below(2) as usize];
        let cut = self.below(whole.len() as u64 - 1) as usize;
        let _ = stream.write_all(&whole.as_bytes()[..cut]);
    }

    fn garbage(&mut self, stream: &mut TcpStream) {
        let length = self.below(20_000);
        let bytes: Vec<u8> = (0..length).map(|_| self.below(256) as u8).collect();
        let _ = stream.write_all(&bytes);
    }

    fn mutated(&mut self, stream: &mut TcpStream) {
        let mut bytes = GET.as_bytes().to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() as u64) as usize;
            bytes[at] = self.below(256) as u8;
        }
        let _ = stream.write_all(&bytes).and_then(|()| stream.read(&mut [0; 4096]));
    }

    fn endless_line(&mut self, stream: &mut TcpStream) {
        for _ in 0..self.below(64) {
            if stream.write_all(&[b'a'; 16 * 1024]).is_err() {
                return;
            }
        }
        let _ = stream.read(&mut [0; 4096]);
    }

    /// Many requests at once, and no interest in their answers.
    fn unread_answers(&mut self, stream: &mut TcpStream) {
        let _ = stream.write_all(GET.repeat(self.below(300) as usize).as_bytes());
        self.stay();
    }

    fn body_that_stops(&mut self, stream: &mut TcpStream) {
        let length = self.below(1_000_000);
        let head = format!("POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(&vec![b' '; self.below(length + 1) as usize / 4]);
        self.stay();
    }

    fn drip(&mut self, stream: &mut TcpStream) {
        let end = Instant::now() + Duration::from_millis(self.below(STAY));
        for byte in GET.bytes().cycle() {
            if Instant::now() >= end || stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Submits, wants to be told of the end, and does not wait for it. The key may be another's.
    fn gone_before_the_end(&mut self, stream: &mut TcpStream) {
        let body = "{\"text\":\"gone\"}";
        let head = "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nPrefer: wait=60\r\n";
        let (key, length) = (self.below(1000), body.len());
        let request = format!("{head}Idempotency-Key: {key}\r\nContent-Length: {length}\r\n\r\n{body}");
        let _ = stream.write_all(request.as_bytes());
    }

    fn stay(&mut self) {
        std::thread::sleep(Duration::from_millis(self.below(STAY)));
    }

    fn request_within_a_body(&mut self, stream: &mut TcpStream) {
        let body = SMUGGLED.repeat(self.below(50) as usize);
        let head = format!("POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).and_then(|()| stream.read(&mut [0; 4096]));
    }
}

/// Connections that are idle, within a head, and within a body, a third each. Dropping them closes them.
pub fn hold(target: SocketAddr, count: usize) -> Vec<TcpStream> {
    let begun = [
        "",
        "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Le",
        "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{\"text\":\"half",
    ];
    let connections = begun.iter().cycle().take(count).map(|begun| {
        let mut stream = TcpStream::connect(target).expect("there is room");
        stream.write_all(begun.as_bytes()).expect("a few bytes");
        stream
    });
    connections.collect()
}
