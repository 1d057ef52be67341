//! A worker whose effect is outside the database: a call to receiver.rs. For outside-effect.sh.
//!
//! The call and its record in the database are two commits that nothing ties together. Between them the worker may die, and
//! whoever comes next cannot see from the database whether the call was made. With a key the receiver can tell; without
//! one, each owner of the task may have its own effect.
//!
//! usage: outside_worker --dsn DSN --worker NAME --ttl TIME --receiver ADDRESS [--key] [--crash] [--hold]
//!
//! --key    name the task and the lease's epoch in the call
//! --crash  end at once after the call, before it is recorded (73)
//! --hold   wait for the end of stdin before the call
//!
//! Exit codes are those of `taskstats lease run`.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use lexopt::ValueExt;
use taskstats::cli::exit;
use taskstats::cli::flags::duration;
use taskstats::limits::{DB_TIMEOUT, LEASE_ATTEMPTS, LEASE_LOOK};
use taskstats::store::{Claimed, Effect, Finish, Lease, LeasedTask, Store, StoreConfig, StoreError};
use taskstats::task::{Analyser, Analysis, Backoff, CountAnalyser, Status, Stop, TaskId};

/// The receiver is given up after this.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// A call with a key is made so often until it is answered.
const ATTEMPTS: u64 = 5;

type Failed = Box<dyn Error>;

struct Options {
    dsn: postgres::Config,
    worker: String,
    ttl: Duration,
    receiver: SocketAddr,
    key: bool,
    crash: bool,
    hold: bool,
}

/// What is known of the outside effect.
#[derive(Debug, PartialEq, Eq)]
enum Outside {
    /// It was had, now or before; in the receiver's word.
    Had(String),
    /// A later owner has called.
    Fenced,
    /// Nobody can tell; and why.
    Unknown(String),
}

fn main() -> ExitCode {
    match read_options().and_then(|options| run(&options)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("outside_worker: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read_options() -> Result<Options, Failed> {
    let (mut dsn, mut worker, mut ttl, mut receiver) = (None, None, None, None);
    let (mut key, mut crash, mut hold) = (false, false, false);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            lexopt::Arg::Long("dsn") => dsn = Some(arguments.value()?.string()?.parse()?),
            lexopt::Arg::Long("worker") => worker = Some(arguments.value()?.string()?),
            lexopt::Arg::Long("ttl") => ttl = Some(duration(&arguments.value()?.string()?)?),
            lexopt::Arg::Long("receiver") => receiver = Some(arguments.value()?.string()?.parse()?),
            lexopt::Arg::Long("key") => key = true,
            lexopt::Arg::Long("crash") => crash = true,
            lexopt::Arg::Long("hold") => hold = true,
            other => return Err(other.unexpected().into()),
        }
    }
    let (Some(dsn), Some(worker), Some(ttl), Some(receiver)) = (dsn, worker, ttl, receiver) else {
        return Err("--dsn, --worker, --ttl and --receiver are needed".into());
    };
    Ok(Options { dsn, worker, ttl, receiver, key, crash, hold })
}

/// The exit code.
fn run(options: &Options) -> Result<u8, Failed> {
    let lease = Lease { ttl: options.ttl, max_attempts: LEASE_ATTEMPTS, effect_at_end: false };
    let owner = options.worker.clone();
    let store = Store::open(&StoreConfig { dsn: options.dsn.clone(), timeout: DB_TIMEOUT, owner, lease: Some(lease) });
    store.apply_schema().map_err(failure)?;
    let Some((id, claimed)) = claim_one(&store)? else { return Ok(exit::NOTHING_TO_CLAIM) };
    let Analysis::Counted(counts) = CountAnalyser::default().analyse(&claimed.text, &Stop::default()) else {
        return Err("the count ended without counts".into());
    };
    let task = LeasedTask { id, epoch: claimed.epoch };
    if options.hold {
        eprintln!("{}: holding {} until stdin ends", options.worker, task.id);
        std::io::stdin().read_to_end(&mut Vec::new())?;
    }
    let outside = call(options, &task, counts.words)?;
    if options.crash {
        eprintln!("{}: {}: crashing between the call and its record", options.worker, task.id);
        std::process::exit(i32::from(exit::CRASHED_AFTER_EFFECT));
    }
    record(options, &store, &task, Analysis::Counted(counts), &outside)
}

fn claim_one(store: &Store) -> Result<Option<(TaskId, Claimed)>, Failed> {
    let mut candidates = store.expired(LEASE_LOOK).map_err(failure)?;
    candidates.extend(store.queued_after(-1, LEASE_LOOK, Duration::ZERO).map_err(failure)?);
    for id in candidates {
        if let Some(claimed) = store.claim(&id).map_err(failure)? {
            return Ok(Some((id, claimed)));
        }
    }
    Ok(None)
}

/// Calls the receiver. Only with a key may a call that was not answered be made again.
fn call(options: &Options, task: &LeasedTask, words: u64) -> Result<Outside, Failed> {
    let (mut backoff, mut attempt) = (Backoff::new(), 1);
    loop {
        let why = match call_once(options, task, words, attempt) {
            Ok((200, word)) => return Ok(Outside::Had(word)),
            Ok((409, _)) => return Ok(Outside::Fenced),
            Ok((503, _)) => return Ok(Outside::Unknown("the receiver cannot tell".into())),
            Ok((status, text)) => return Err(format!("the receiver answers {status} {text}").into()),
            Err(why) => why,
        };
        eprintln!("{}: {}: no answer: {why}", options.worker, task.id);
        if !options.key {
            return Ok(Outside::Unknown("no answer, and another call might have another effect".into()));
        }
        if attempt == ATTEMPTS {
            return Ok(Outside::Unknown(format!("no answer to {ATTEMPTS} calls")));
        }
        attempt += 1;
        std::thread::sleep(backoff.pause());
    }
}

/// Status and text of the answer; an error: there was none, and the call may have arrived or not.
fn call_once(options: &Options, task: &LeasedTask, words: u64, attempt: u64) -> Result<(u16, String), Failed> {
    let mut stream = TcpStream::connect_timeout(&options.receiver, CALL_TIMEOUT)?;
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    let body = words.to_string();
    let mut head = format!(
        "POST /effects HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\nWorker: {}\r\n",
        options.receiver,
        body.len(),
        options.worker
    );
    if options.key {
        head += &format!("Idempotency-Key: {}\r\nFencing-Epoch: {}\r\nAttempt: {attempt}\r\n", task.id, task.epoch);
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").ok_or("the connection was closed")?;
    let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
    Ok((status, text.trim().to_owned()))
}

/// Effect and end, in the database. What is not known is not claimed: the task is FAILED, and somebody must look.
fn record(
    options: &Options,
    store: &Store,
    task: &LeasedTask,
    counted: Analysis,
    outside: &Outside,
) -> Result<u8, Failed> {
    let (analysis, word) = match outside {
        Outside::Had(word) => (counted, word.as_str()),
        Outside::Unknown(why) => (Analysis::Failed(format!("outside effect unknown: {why}")), "unknown"),
        Outside::Fenced => return Ok(lease_lost(options, task, "fenced")),
    };
    if let Analysis::Counted(counts) = analysis {
        if store.write_effect(task, counts.words).map_err(failure)? == Effect::LeaseLost {
            return Ok(lease_lost(options, task, word));
        }
    }
    let finish = Finish { id: task.id.clone(), epoch: task.epoch, analysis };
    match store.finish(&finish).map_err(failure)? {
        Some(status) => {
            println!("{}", result(options, task, word, status));
            Ok(0)
        }
        None => Ok(lease_lost(options, task, word)),
    }
}

fn result(options: &Options, task: &LeasedTask, outside: &str, status: Status) -> serde_json::Value {
    serde_json::json!({"id": task.id.as_str(), "worker": options.worker, "epoch": task.epoch, "outside": outside,
                       "status": status.as_str()})
}

fn lease_lost(options: &Options, task: &LeasedTask, outside: &str) -> u8 {
    let (worker, id, epoch) = (&options.worker, &task.id, task.epoch);
    eprintln!("{worker}: lease lost: {id} is not ours any more under epoch {epoch}; the receiver had said: {outside}");
    exit::LEASE_LOST
}

fn failure(error: StoreError) -> Failed {
    error.to_string().into()
}
