//! Many clients that wait, and a few that work beside them: what the ones cost the others, and the service. Started by
//! waiters.sh, which has seen to a service, to rows `held-0`, `held-1`, … that never end and to a finished task `task[0]`.
//!
//! usage: waiters ADDRESS PID WAITERS

use std::error::Error;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long each client waits: longer than what is measured beside it.
const WAIT: Duration = Duration::from_secs(50);
/// How long each throughput is measured.
const SPELL: Duration = Duration::from_secs(5);
/// Clients that work: fewer than the seats that the waiters leave.
const WORKING: usize = 8;
/// An answer later than this after its time is not in time: on a busy machine a thousand answers take a moment.
const LATE: Duration = Duration::from_secs(5);
/// Threads of the service that may end while the clients come in: of the last ones that worked, and of idle handlers.
const ENDED: u64 = 64;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The service, from outside.
struct Target {
    address: String,
    pid: String,
}

/// What it takes up.
struct Cost {
    rss_kib: u64,
    threads: u64,
    files: usize,
}

fn main() -> Outcome<()> {
    let [address, pid, waiters] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "usage: waiters ADDRESS PID WAITERS")?;
    let (target, waiters) = (Target { address, pid }, waiters.parse()?);
    // Once unmeasured: connections, statements and memory are there afterwards.
    target.work("POST")?;
    let before = (target.cost()?, target.work("GET")?, target.work("POST")?);
    let begun = Instant::now();
    let parked = (0..waiters).map(|n| target.park(n)).collect::<Outcome<Vec<_>>>()?;
    let parking = begun.elapsed();
    target.until_inside(waiters, &before.0)?;
    let idle = target.busy_over(Duration::from_secs(4))?;
    let during = (target.cost()?, target.work("GET")?, target.work("POST")?);
    let measured = begun.elapsed();
    if measured >= WAIT {
        return Err(format!("measuring took {measured:?}, longer than the clients wait").into());
    }
    for stream in parked {
        collect(stream)?;
    }
    let collected = begun.elapsed();
    let after = (target.cost()?, target.work("GET")?, target.work("POST")?);

    println!("waiters                    {waiters}, parked within {:.1} s", parking.as_secs_f64());
    println!(
        "all answered               {:.1} s after the first came, with wait={}",
        collected.as_secs_f64(),
        WAIT.as_secs()
    );
    let cost = |name: &str, of: &dyn Fn(&Cost) -> u64, unit: &str| {
        let [before, during, after] = [&before.0, &during.0, &after.0].map(of);
        println!("{name:<26} {before}{unit} before, {during}{unit} during, {after}{unit} after");
    };
    cost("resident", &|cost| cost.rss_kib / 1024, " MiB");
    cost("threads", &|cost| cost.threads, "");
    cost("files", &|cost| cost.files as u64, "");
    println!("resident per waiter        {} KiB", during.0.rss_kib.saturating_sub(before.0.rss_kib) / waiters as u64);
    println!("while they only wait       {:.1} % of one processor", idle * 100.0);
    for (method, [before, during, after]) in
        [("GET", [before.1, during.1, after.1]), ("POST", [before.2, during.2, after.2])]
    {
        // Before and after, so that what the machine does meanwhile counts for both sides.
        let ratio = during / ((before + after) / 2.0);
        println!(
            "{method:<4} of {WORKING} others           {before:.0}/s before, {during:.0}/s during, {after:.0}/s after: ratio {ratio:.2}"
        );
    }
    if collected > WAIT + parking + LATE {
        return Err(format!("the last answer came after {collected:?}").into());
    }
    Ok(())
}

impl Target {
    fn connect(&self) -> Outcome<TcpStream> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAIT + Duration::from_secs(30)))?;
        Ok(stream)
    }

    /// A client that waits for a row of its own.
    fn park(&self, number: usize) -> Outcome<TcpStream> {
        let mut stream = self.connect()?;
        let wait = WAIT.as_secs();
        let request = format!("GET /tasks/held-{number} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait={wait}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }

    /// Each client inside has a thread. Of those that were there before, some may have ended.
    fn until_inside(&self, waiters: usize, before: &Cost) -> Outcome<()> {
        let begun = Instant::now();
        while self.cost()?.threads + ENDED < before.threads + waiters as u64 {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(format!("{} threads: not everybody waits", self.cost()?.threads).into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Requests a second that the working clients get answered.
    fn work(&self, method: &str) -> Outcome<f64> {
        let body = r#"{"text":"the quick brown fox"}"#;
        let request = match method {
            "GET" => "GET /tasks/task%5B0%5D HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
            _ => format!(
                "POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ),
        };
        let over = AtomicBool::new(false);
        let work = || -> Outcome<u64> {
            let (mut stream, mut answered) = (self.connect()?, 0);
            while !over.load(Ordering::Relaxed) {
                stream.write_all(request.as_bytes())?;
                let head = answer(&mut stream)?;
                if !head.starts_with("HTTP/1.1 20") {
                    return Err(format!("{method}: {head}").into());
                }
                answered += 1;
            }
            Ok(answered)
        };
        let begun = Instant::now();
        let answered = thread::scope(|scope| {
            let clients: Vec<_> = (0..WORKING).map(|_| scope.spawn(work)).collect();
            thread::sleep(SPELL);
            over.store(true, Ordering::Relaxed);
            clients.into_iter().map(|client| client.join().map_err(|_| "a client panicked")?).sum::<Outcome<u64>>()
        })?;
        Ok(answered as f64 / begun.elapsed().as_secs_f64())
    }

    /// The share of one processor that the service takes meanwhile.
    fn busy_over(&self, time: Duration) -> Outcome<f64> {
        let ticks = || -> Outcome<u64> {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
            // After the name, which may hold anything, in brackets: utime and stime are the 12th and 13th.
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            Ok(fields.get(11).ok_or("no utime")?.parse::<u64>()? + fields.get(12).ok_or("no stime")?.parse::<u64>()?)
        };
        let begun = ticks()?;
        thread::sleep(time);
        // A hundred a second, on every Linux.
        Ok((ticks()? - begun) as f64 / 100.0 / time.as_secs_f64())
    }

    fn cost(&self) -> Outcome<Cost> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).ok_or(format!("no {name}"))
        };
        let files = fs::read_dir(format!("/proc/{}/fd", self.pid))?.count();
        Ok(Cost { rss_kib: field("VmRSS:")?, threads: field("Threads:")?, files })
    }
}

/// The answer of one that waited.
fn collect(mut stream: TcpStream) -> Outcome<()> {
    let head = answer(&mut stream)?;
    let applied = format!("Preference-Applied: wait={}\r\n", WAIT.as_secs());
    if head.starts_with("HTTP/1.1 200") && head.contains(&applied) { Ok(()) } else { Err(head.into()) }
}

/// Reads one answer; its head.
fn answer(stream: &mut TcpStream) -> Outcome<String> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end + 2]).into_owned();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if bytes.len() >= end + 4 + length.ok_or("no length")?.parse::<usize>()? {
                return Ok(head);
            }
        }
        match stream.read(&mut chunk)? {
            0 => return Err("closed without an answer".into()),
            read => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}
