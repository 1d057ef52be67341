//! The configuration of `taskstats serve`: read and checked before anything listens or connects.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::database::{DATA_FLAG, DB_TIMEOUT_FLAG, DSN_FLAG, Database};
use super::exit::Failure;
use super::flags::{Flag, Flags, address, duration, number, switch};
use super::lease::{MAX_ATTEMPTS_FLAG, max_attempts};
use crate::http::token::Token;
use crate::limits::{BODY_BYTES, DRAIN_TIMEOUT, QUEUE_SLOTS, SHORTEST_LEASE, WORKERS};
use crate::store::Lease;

const USAGE: &str = "usage: taskstats serve [FLAGS]\n\nAccepts texts over HTTP and counts them.";

const FLAGS: &[Flag] = &[
    Flag { name: "listen", value: "ADDR", help: "public listener (127.0.0.1:8080)" },
    Flag { name: "token-file", value: "FILE", help: "clients of --listen must show this bearer token (none)" },
    Flag { name: "allow-anonymous", value: "", help: "without a token, --listen may be more than loopback" },
    Flag { name: "admin", value: "ADDR", help: "health and readiness; loopback only (127.0.0.1:8081)" },
    DSN_FLAG,
    DATA_FLAG,
    Flag { name: "workers", value: "N", help: "tasks RUNNING at once (256); more than 8 share 8 threads" },
    Flag { name: "queue", value: "N", help: "tasks admitted beyond those; more get 503 (256)" },
    Flag { name: "max-words", value: "N", help: "a text with more words becomes FAILED (no limit)" },
    Flag { name: "max-body", value: "BYTES", help: "longest request body; longer gets 413 (1048576)" },
    DB_TIMEOUT_FLAG,
    Flag { name: "drain-timeout", value: "TIME", help: "how long SIGTERM waits for work in hand (30s)" },
    Flag { name: "lease", value: "TIME", help: "share the database with others: hold tasks for so long (no sharing)" },
    MAX_ATTEMPTS_FLAG,
];

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The public listener.
    pub listen: SocketAddr,
    /// What its clients have to show.
    pub token: Option<Token>,
    /// The admin listener; loopback.
    pub admin: SocketAddr,
    /// The database.
    pub database: Database,
    /// Worker threads.
    pub workers: usize,
    /// Tasks admitted beyond those being worked on.
    pub queue: usize,
    /// A text with more words fails.
    pub max_words: Option<u64>,
    /// Longest request body, bytes.
    pub max_body: usize,
    /// How long a shutdown waits for work in hand.
    pub drain_timeout: Duration,
    /// How tasks are leased; None: this is the only instance.
    pub lease: Option<Lease>,
}

impl ServeConfig {
    /// Reads flags and environment; None: help was printed.
    pub fn read(args: &mut lexopt::Parser) -> Result<Option<ServeConfig>, Failure> {
        let Some(flags) = Flags::read(args, USAGE, FLAGS)? else { return Ok(None) };
        let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let max_attempts = max_attempts(&flags)?;
        let token = flags.get("token-file", |file| Token::read(Path::new(file)))?;
        let anonymous = flags.get("allow-anonymous", switch)?.unwrap_or(false);
        let listen = flags.get("listen", |text| public_address(text, token.is_some() || anonymous))?;
        Ok(Some(ServeConfig {
            listen: listen.unwrap_or(loopback(8080)),
            token,
            admin: flags.get("admin", loopback_address)?.unwrap_or(loopback(8081)),
            database: Database::read(&flags)?,
            workers: flags.get("workers", number(1..=1024))?.map_or(WORKERS, |n| n as usize),
            queue: flags.get("queue", number(0..=1_000_000))?.map_or(QUEUE_SLOTS, |n| n as usize),
            max_words: flags.get("max-words", number(0..=u64::MAX))?,
            // The reply to a task holds no text, so nothing but memory bounds the body.
            max_body: flags.get("max-body", number(1..=64 * 1024 * 1024))?.map_or(BODY_BYTES, |n| n as usize),
            drain_timeout: flags.get("drain-timeout", duration)?.unwrap_or(DRAIN_TIMEOUT),
            lease: flags.get("lease", lease_time)?.map(|ttl| Lease { ttl, max_attempts, effect_at_end: true }),
        }))
    }
}

/// Everybody who reaches the public listener may fill the queue and read and cancel every task: beyond this host that has to
/// be somebody who was given the token, or the wish of who starts it.
fn public_address(text: &str, may_be_reached: bool) -> Result<SocketAddr, String> {
    let address = address(text)?;
    if may_be_reached || address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("is more than loopback: it needs --token-file FILE, or --allow-anonymous if everybody may use it".into())
    }
}

/// The admin listener shows what is inside: nothing but this host may reach it.
fn loopback_address(text: &str) -> Result<SocketAddr, String> {
    let address = address(text)?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("must be a loopback address such as 127.0.0.1:8081".into())
    }
}

/// Long enough for a renewal at a third of it to be tried more than once.
fn lease_time(text: &str) -> Result<Duration, String> {
    let ttl = duration(text)?;
    if ttl >= SHORTEST_LEASE { Ok(ttl) } else { Err(format!("must be {} s or more", SHORTEST_LEASE.as_secs())) }
}
