//! Load for verification/bench.sh, at little cost of its own: a blocking thread and a keep-alive connection for each client,
//! one write and (nearly always) one read for each request, which is the same bytes every time.
//!
//! `load post|batch|wait [--clients N] [--tasks N] [--lines N] [--rate N] ADDRESS...` sends tasks, the clients spread over the
//! addresses, and prints one line: how many, how long, the times from request to reply, and the CPU time this program used.
//! With `--rate` requests are due at fixed times, and a late one is late from then on, not from when it was sent. A 503 is
//! tried again after its Retry-After.
//!
//! `load read FILE...` reads files into memory and prints the bytes and the seconds.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lexopt::ValueExt;

/// The same text as in verification/sql/bench-*.sql.
const TEXT: &str = r#"{"text":"the quick brown fox jumps over the lazy dog"}"#;
/// Seconds that a waiting POST is told to wait, at most.
const WAIT: u32 = 10;
/// More than any reply but that to a large batch.
const REPLY_BUFFER: usize = 16 * 1024;
/// Bytes in one read of a file: the size that `taskstats count` uses.
const FILE_BUFFER: usize = 256 * 1024;
/// Stack of a client's thread, bytes.
const STACK: usize = 64 * 1024;
/// A reply that takes longer is a fault.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ticks a second in /proc: USER_HZ is 100 on every Linux that Debian runs on.
const TICKS: u64 = 100;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What is to be sent.
struct Plan {
    head: &'static str,
    body: String,
    requests: u64,
    clients: usize,
    /// Requests a second, whatever the answers do; None: each client sends when it has its answer.
    rate: Option<f64>,
    /// Whether the reply tells the end of the task.
    ends: bool,
    addresses: Vec<SocketAddr>,
}

/// What came of it.
#[derive(Default)]
struct Tally {
    micros: Vec<u32>,
    refused: u64,
    unfinished: u64,
}

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<String> {
    let mut args = lexopt::Parser::from_env();
    let mode = match args.next()? {
        Some(lexopt::Arg::Value(mode)) => mode.string()?,
        _ => return Err("usage: load post|batch|wait|read …".into()),
    };
    if mode == "read" { read_files(&mut args) } else { Ok(send(&plan(&mode, &mut args)?)?) }
}

fn plan(mode: &str, args: &mut lexopt::Parser) -> Outcome<Plan> {
    let (mut clients, mut tasks, mut lines) = (64, 1000_u64, 100_u64);
    let (mut rate, mut addresses) = (None, Vec::new());
    while let Some(arg) = args.next()? {
        match arg {
            lexopt::Arg::Long("clients") => clients = args.value()?.parse()?,
            lexopt::Arg::Long("tasks") => tasks = args.value()?.parse()?,
            lexopt::Arg::Long("lines") => lines = args.value()?.parse()?,
            lexopt::Arg::Long("rate") => rate = Some(args.value()?.parse()?),
            lexopt::Arg::Value(address) => addresses.push(address.parse()?),
            other => return Err(other.unexpected().into()),
        }
    }
    if addresses.is_empty() || clients == 0 {
        return Err("an ADDRESS and a client are needed".into());
    }
    let (head, body, requests) = match mode {
        "post" | "wait" => ("application/json", TEXT.to_owned(), tasks),
        "batch" => ("application/x-ndjson", format!("{TEXT}\n").repeat(lines as usize), tasks.div_ceil(lines)),
        _ => return Err(format!("{mode}: unknown; post, batch, wait or read").into()),
    };
    Ok(Plan { head, body, requests, clients, rate, ends: mode == "wait", addresses })
}

impl Plan {
    fn request(&self, address: SocketAddr) -> Vec<u8> {
        let prefer = if self.ends { format!("Prefer: wait={WAIT}\r\n") } else { String::new() };
        format!(
            "POST /tasks HTTP/1.1\r\nHost: {address}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{prefer}\r\n{}",
            self.head,
            self.body.len(),
            self.body
        )
        .into_bytes()
    }
}

/// Lets all clients work until every request has its answer.
fn send(plan: &Plan) -> Outcome<String> {
    let tickets = AtomicU64::new(0);
    // All are connected before the first request is sent.
    let start = Barrier::new(plan.clients + 1);
    let (begin, seconds, tally) = thread::scope(|scope| -> Outcome<_> {
        let clients: Vec<_> = (0..plan.clients)
            .map(|number| {
                let (tickets, start) = (&tickets, &start);
                let address = plan.addresses[number % plan.addresses.len()];
                let body = move || work(plan, address, tickets, start);
                thread::Builder::new().stack_size(STACK).spawn_scoped(scope, body)
            })
            .collect::<Result<_, _>>()?;
        start.wait();
        let (begin, clock) = (SystemTime::now(), Instant::now());
        let mut tally = Tally::default();
        for client in clients {
            let part = client.join().map_err(|_| "a client panicked")??;
            tally.micros.extend(part.micros);
            tally.refused += part.refused;
            tally.unfinished += part.unfinished;
        }
        Ok((begin, clock.elapsed().as_secs_f64(), tally))
    })?;
    let mut micros = tally.micros;
    micros.sort_unstable();
    let at = |share: f64| micros.get((micros.len() as f64 * share) as usize).or(micros.last()).copied().unwrap_or(0);
    Ok(format!(
        "requests={} refused={} unfinished={} begin_us={} seconds={seconds:.6} p50_us={} p99_us={} max_us={} cpu_ms={}",
        micros.len(),
        tally.refused,
        tally.unfinished,
        begin.duration_since(UNIX_EPOCH)?.as_micros(),
        at(0.5),
        at(0.99),
        at(1.0),
        cpu_millis()?,
    ))
}

/// One client: takes tickets until there are none.
fn work(plan: &Plan, address: SocketAddr, tickets: &AtomicU64, start: &Barrier) -> Outcome<Tally> {
    let connection = Connection::open(address);
    start.wait();
    let begin = Instant::now();
    let (mut connection, request, mut tally) = (connection?, plan.request(address), Tally::default());
    loop {
        let ticket = tickets.fetch_add(1, Relaxed);
        if ticket >= plan.requests {
            return Ok(tally);
        }
        let due = plan.rate.map(|rate| begin + Duration::from_secs_f64(ticket as f64 / rate));
        if let Some(due) = due {
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        loop {
            let sent = due.unwrap_or_else(Instant::now);
            let reply = connection.exchange(&request)?;
            match reply.status {
                202 => {
                    tally.micros.push(sent.elapsed().as_micros().try_into().unwrap_or(u32::MAX));
                    tally.unfinished += u64::from(plan.ends && !reply.says(b"\"SUCCEEDED\""));
                    break;
                }
                503 => {
                    tally.refused += 1;
                    thread::sleep(Duration::from_secs(reply.retry_after));
                }
                status => return Err(format!("{address} answered {status}").into()),
            }
        }
    }
}

/// A keep-alive connection.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// What of a reply matters.
struct Reply<'a> {
    status: u16,
    retry_after: u64,
    body: &'a [u8],
}

impl Reply<'_> {
    fn says(&self, word: &[u8]) -> bool {
        self.body.windows(word.len()).any(|window| window == word)
    }
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, buffer: vec![0; REPLY_BUFFER] })
    }

    /// Sends a request and reads its whole reply.
    fn exchange(&mut self, request: &[u8]) -> io::Result<Reply<'_>> {
        self.stream.write_all(request)?;
        let mut filled = 0;
        let head_end = loop {
            filled += self.read_more(filled)?;
            if let Some(at) = self.buffer[..filled].windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = Head::parse(&self.buffer[..head_end])?;
        let whole = head_end + head.length;
        if self.buffer.len() < whole {
            self.buffer.resize(whole, 0);
        }
        while filled < whole {
            filled += self.read_more(filled)?;
        }
        let body = &self.buffer[head_end..whole];
        Ok(Reply { status: head.status, retry_after: head.retry_after, body })
    }

    fn read_more(&mut self, filled: usize) -> io::Result<usize> {
        match self.stream.read(&mut self.buffer[filled..])? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed within a reply")),
            length => Ok(length),
        }
    }
}

struct Head {
    status: u16,
    length: usize,
    retry_after: u64,
}

impl Head {
    fn parse(bytes: &[u8]) -> io::Result<Head> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "not the head of a reply");
        let text = std::str::from_utf8(bytes).map_err(|_| bad())?;
        let mut lines = text.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let (mut length, mut retry_after) = (None, 1);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok();
            } else if name.eq_ignore_ascii_case("retry-after") {
                retry_after = value.trim().parse().unwrap_or(1);
            }
        }
        Ok(Head { status: status.ok_or_else(bad)?, length: length.ok_or_else(bad)?, retry_after })
    }
}

/// CPU time of this process with all its threads, dead ones too.
fn cpu_millis() -> Outcome<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1;
    let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(2).map_while(|field| field.parse().ok()).collect();
    Ok(ticks.iter().sum::<u64>() * 1000 / TICKS)
}

fn read_files(args: &mut lexopt::Parser) -> Outcome<String> {
    let mut buffer = vec![0; FILE_BUFFER];
    let (clock, mut bytes) = (Instant::now(), 0);
    while let Some(arg) = args.next()? {
        let lexopt::Arg::Value(name) = arg else { return Err(arg.unexpected().into()) };
        let mut file = File::open(&name).map_err(|error| format!("{}: {error}", name.to_string_lossy()))?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                length => bytes += length,
            }
        }
    }
    Ok(format!("bytes={bytes} seconds={:.6}", clock.elapsed().as_secs_f64()))
}
