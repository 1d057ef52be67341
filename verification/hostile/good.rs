//! Clients that behave: each submits a text now and then and asks for the last one it was promised, on one connection.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, fs};

const CLIENTS: usize = 16;
/// One request in so many is a submission: the rest does not wait for a disk.
const PER_SUBMISSION: u64 = 16;

/// What was asked and promised.
#[derive(Default)]
pub struct Tally {
    pub requests: u64,
    pub failures: u64,
    pub tasks: Vec<Promised>,
}

/// A task that was answered with 202, and the counts that its text has.
pub struct Promised {
    id: String,
    words: usize,
    bytes: usize,
    runes: usize,
}

impl Tally {
    pub fn add(&mut self, mut other: Tally) {
        self.requests += other.requests;
        self.failures += other.failures;
        self.tasks.append(&mut other.tasks);
    }

    /// One line per task, for COPY.
    pub fn write(&self, path: &str) -> io::Result<()> {
        let lines: Vec<String> = self.tasks.iter().map(Promised::to_string).collect();
        fs::write(path, lines.concat())
    }
}

impl fmt::Display for Promised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\t{}\t{}\t{}", self.id, self.words, self.bytes, self.runes)
    }
}

/// The clients at work.
pub struct Workforce {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Tally>>,
}

impl Workforce {
    pub fn start(address: SocketAddr) -> Workforce {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (0..CLIENTS).map(|number| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || work(address, number, &stop))
        });
        Workforce { clients: clients.collect(), stop }
    }

    pub fn work_for(self, time: Duration) -> Tally {
        thread::sleep(time);
        self.stop.store(true, Relaxed);
        let mut all = Tally::default();
        self.clients.into_iter().for_each(|client| all.add(client.join().expect("no panic")));
        all
    }
}

fn work(address: SocketAddr, number: usize, stop: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let mut connection = None;
    while !stop.load(Relaxed) {
        let done = match connection.take().map_or_else(|| connect(address), Ok) {
            Ok(mut client) => match tally.tasks.last() {
                Some(last) if tally.requests % PER_SUBMISSION > 0 => show(&mut client, &last.id),
                _ => submit(&mut client, number, &mut tally),
            }
            .map(|()| connection = Some(client)),
            Err(error) => Err(error),
        };
        tally.requests += 1;
        if let Err(error) = done {
            eprintln!("good client {number}: {error}");
            tally.failures += 1;
        }
    }
    tally
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(BufReader::new(stream))
}

fn submit(client: &mut BufReader<TcpStream>, number: usize, tally: &mut Tally) -> io::Result<()> {
    let words = tally.tasks.len() % 50;
    let text = vec!["wörd"; words].join(" ");
    let body = format!("{{\"text\":\"{text}\"}}");
    let head = format!("POST /tasks HTTP/1.1\r\nHost: good-{number}\r\nContent-Type: application/json\r\n");
    let answer = ask(client, &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()))?;
    let id = answer.strip_prefix("202 {\"id\":\"").and_then(|rest| rest.split('"').next());
    let id = id.ok_or_else(|| io::Error::other(answer.clone()))?.to_owned();
    tally.tasks.push(Promised { id, words, bytes: text.len(), runes: text.chars().count() });
    Ok(())
}

fn show(client: &mut BufReader<TcpStream>, id: &str) -> io::Result<()> {
    let answer = ask(client, &format!("GET /tasks/{id} HTTP/1.1\r\nHost: good\r\n\r\n"))?;
    if answer.starts_with("200 ") && answer.contains(id) { Ok(()) } else { Err(io::Error::other(answer)) }
}

/// Sends a request; the status and the body of the answer.
fn ask(client: &mut BufReader<TcpStream>, request: &str) -> io::Result<String> {
    client.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    client.read_line(&mut line)?;
    let status = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        line.clear();
        client.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("Content-Length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body)?;
    Ok(format!("{status} {}", String::from_utf8_lossy(&body)))
}
