//! A small world outside the database, for outside-effect.sh: an HTTP receiver whose side effect is a line in a ledger, like
//! a letter that is sent. It shows what a receiver must do so that a call which is made twice has its effect once.
//!
//! `POST /effects` asks for an effect. With `Idempotency-Key` (the task) and `Fencing-Epoch` (of the caller's lease) the
//! receiver can tell calls for one effect apart from others, and late callers from present ones. The answer is one word:
//!
//! | answer | meaning |
//! |---|---|
//! | 200 `done` | the effect was had now |
//! | 200 `known` | it was had before, and not again |
//! | 409 `fenced` | a later owner has called: nothing was done |
//! | 503 `unknown` | it may have been had before, in a time that this receiver does not remember: nothing was done |
//!
//! usage: receiver --ledger FILE [--remember] [--lose-answers N]
//!
//! One connection at a time and one request each: no effect happens beside another.

use std::collections::HashMap;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use lexopt::ValueExt;

/// A client that says nothing is given up after this.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest request, bytes.
const REQUEST_BYTES: u64 = 64 * 1024;

/// A request for an effect.
#[derive(Debug)]
struct Call {
    /// What tells that two calls mean one effect; None: every call means one of its own.
    key: Option<String>,
    /// Of the caller's lease.
    epoch: u64,
    /// How often this caller has asked.
    attempt: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Done,
    Known,
    Fenced,
    Unknown,
}

impl Answer {
    fn word(self) -> &'static str {
        match self {
            Answer::Done => "done",
            Answer::Known => "known",
            Answer::Fenced => "fenced",
            Answer::Unknown => "unknown",
        }
    }

    fn status(self) -> &'static str {
        match self {
            Answer::Done | Answer::Known => "200 OK",
            Answer::Fenced => "409 Conflict",
            Answer::Unknown => "503 Service Unavailable",
        }
    }
}

/// What is known of one key.
#[derive(Debug, Default)]
struct Seen {
    /// The latest owner that called.
    epoch: u64,
    /// Its effect was had.
    done: bool,
}

struct Receiver {
    ledger: File,
    effects: u64,
    seen: HashMap<String, Seen>,
    /// Whether there may have been effects that are not in `seen`.
    forgot: bool,
    /// So many answers are not sent, as if the network had swallowed them.
    lose_answers: u64,
}

impl Receiver {
    /// The ledger is the world: it outlives us. To remember is to read it.
    fn open(path: &str, remember: bool, lose_answers: u64) -> std::io::Result<Receiver> {
        let ledger = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        let (mut effects, mut seen) = (0, HashMap::new());
        for line in BufReader::new(&ledger).lines() {
            effects += 1;
            if let (true, Some((key, epoch))) = (remember, line?.rsplit_once(' ')) {
                seen.insert(key.to_owned(), Seen { epoch: epoch.parse().unwrap_or(0), done: true });
            }
        }
        Ok(Receiver { forgot: effects > 0 && !remember, ledger, effects, seen, lose_answers })
    }

    /// Decides on a call and has the effect. Key and effect are one line, so neither is there without the other.
    fn take(&mut self, call: &Call) -> std::io::Result<Answer> {
        let answer = match &call.key {
            None => Answer::Done,
            Some(key) => {
                let known = self.seen.contains_key(key);
                let seen = self.seen.entry(key.clone()).or_default();
                // The first call of the first owner cannot be a repetition; any other may be.
                let repetition = call.epoch > 1 || call.attempt > 1;
                match seen {
                    Seen { epoch, .. } if call.epoch < *epoch => Answer::Fenced,
                    Seen { done: true, .. } => Answer::Known,
                    _ if !known && self.forgot && repetition => Answer::Unknown,
                    _ => Answer::Done,
                }
            }
        };
        if answer == Answer::Done {
            writeln!(self.ledger, "{} {}", call.key.as_deref().unwrap_or("-"), call.epoch)?;
            self.ledger.sync_data()?;
            self.effects += 1;
        }
        if let Some(seen) = call.key.as_ref().and_then(|key| self.seen.get_mut(key)) {
            seen.epoch = seen.epoch.max(call.epoch);
            seen.done |= answer == Answer::Done;
        }
        Ok(answer)
    }

    /// One request, one answer.
    fn serve(&mut self, mut client: TcpStream) -> Result<(), Box<dyn Error>> {
        client.set_read_timeout(Some(READ_TIMEOUT))?;
        let mut reader = BufReader::new(client.try_clone()?).take(REQUEST_BYTES);
        let (request, headers) = read_head(&mut reader)?;
        let header = |name: &str| headers.get(name).map(String::as_str);
        let number = |name: &str| header(name).map_or(Ok(1), str::parse::<u64>);
        let mut body = vec![0; header("content-length").unwrap_or("0").parse()?];
        reader.read_exact(&mut body)?;
        let (status, text) = match request.as_str() {
            "POST /effects" => {
                let call = Call {
                    key: header("idempotency-key").map(str::to_owned),
                    epoch: number("fencing-epoch")?,
                    attempt: number("attempt")?,
                };
                let answer = self.take(&call)?;
                println!("{} calls: {call:?}: {}", header("worker").unwrap_or("-"), answer.word());
                if self.lose_answers > 0 {
                    self.lose_answers -= 1;
                    println!("the answer is lost");
                    return Ok(());
                }
                (answer.status(), answer.word().to_owned())
            }
            "GET /effects" => ("200 OK", self.effects.to_string()),
            _ => ("404 Not Found", "there are only effects here".to_owned()),
        };
        let length = text.len() + 1;
        write!(client, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}\n")?;
        Ok(())
    }
}

/// Method and path, and the headers by their names in small letters.
fn read_head(reader: &mut impl BufRead) -> Result<(String, HashMap<String, String>), Box<dyn Error>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let request = lines.first().and_then(|line| line.rsplit_once(' ')).map_or("", |(request, _)| request);
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect();
    Ok((request.to_owned(), headers))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("receiver: {error}; usage: receiver --ledger FILE [--remember] [--lose-answers N]");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let (mut ledger, mut remember, mut lose_answers) = (None, false, 0);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            lexopt::Arg::Long("ledger") => ledger = Some(arguments.value()?.string()?),
            lexopt::Arg::Long("remember") => remember = true,
            lexopt::Arg::Long("lose-answers") => lose_answers = arguments.value()?.string()?.parse()?,
            other => return Err(other.unexpected().into()),
        }
    }
    let mut receiver = Receiver::open(&ledger.ok_or("--ledger is missing")?, remember, lose_answers)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("ready listen={}", listener.local_addr()?);
    for client in listener.incoming() {
        if let Err(error) = client.map_err(Into::into).and_then(|client| receiver.serve(client)) {
            eprintln!("receiver: {error}");
        }
    }
    Ok(())
}
