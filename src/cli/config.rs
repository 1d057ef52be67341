//! The configuration of `taskstats serve`: read and checked before anything listens or connects.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::exit::Failure;
use super::flags::{Flag, Flags, address, duration, number, switch};
use crate::http::token::Token;
use crate::limits::{BODY_BYTES, DB_TIMEOUT, DRAIN_TIMEOUT, QUEUE_SLOTS, WORKERS};

const USAGE: &str = "usage: taskstats serve [FLAGS]\n\nAccepts texts over HTTP and counts them.";

const FLAGS: &[Flag] = &[
    Flag { name: "listen", value: "ADDR", help: "public listener (127.0.0.1:8080)" },
    Flag { name: "token-file", value: "FILE", help: "clients of --listen must show this bearer token (none)" },
    Flag { name: "allow-anonymous", value: "", help: "without a token, --listen may be more than loopback" },
    Flag { name: "admin", value: "ADDR", help: "health and readiness; loopback only (127.0.0.1:8081)" },
    Flag { name: "dsn", value: "DSN", help: "PostgreSQL to use (none: a private cluster in --data)" },
    Flag { name: "data", value: "DIR", help: "directory of the private cluster (./taskstats-data)" },
    Flag { name: "workers", value: "N", help: "tasks counted at once (8)" },
    Flag { name: "queue", value: "N", help: "tasks admitted beyond those; more get 503 (256)" },
    Flag { name: "max-words", value: "N", help: "a text with more words becomes FAILED (no limit)" },
    Flag { name: "max-body", value: "BYTES", help: "longest request body; longer gets 413 (1048576)" },
    Flag { name: "db-timeout", value: "TIME", help: "bound on one SQL statement (2s)" },
    Flag { name: "drain-timeout", value: "TIME", help: "how long SIGTERM waits for work in hand (30s)" },
];

/// Where the database is.
#[derive(Debug, Clone)]
pub enum Database {
    /// An existing server.
    Dsn(Box<postgres::Config>),
    /// A private cluster in this directory.
    Embedded(PathBuf),
}

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The public listener.
    pub listen: SocketAddr,
    /// What its clients have to show.
    pub token: Option<Token>,
    /// The admin listener; loopback.
    pub admin: SocketAddr,
    /// Where the database is.
    pub database: Database,
    /// Worker threads.
    pub workers: usize,
    /// Tasks admitted beyond those being worked on.
    pub queue: usize,
    /// A text with more words fails.
    pub max_words: Option<u64>,
    /// Longest request body, bytes.
    pub max_body: usize,
    /// statement_timeout of the database sessions.
    pub db_timeout: Duration,
    /// How long a shutdown waits for work in hand.
    pub drain_timeout: Duration,
}

impl ServeConfig {
    /// Reads flags and environment; None: help was printed.
    pub fn read(args: &mut lexopt::Parser) -> Result<Option<ServeConfig>, Failure> {
        let Some(flags) = Flags::read(args, USAGE, FLAGS)? else { return Ok(None) };
        let loopback = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let dsn = flags.get("dsn", dsn)?;
        let data = flags.get("data", |dir| Ok(PathBuf::from(dir)))?;
        let token = flags.get("token-file", |file| Token::read(Path::new(file)))?;
        let anonymous = flags.get("allow-anonymous", switch)?.unwrap_or(false);
        let listen = flags.get("listen", |text| public_address(text, token.is_some() || anonymous))?;
        Ok(Some(ServeConfig {
            listen: listen.unwrap_or(loopback(8080)),
            token,
            admin: flags.get("admin", loopback_address)?.unwrap_or(loopback(8081)),
            database: match dsn {
                Some(dsn) => Database::Dsn(Box::new(dsn)),
                None => Database::Embedded(data.unwrap_or_else(|| super::DEFAULT_DATA.into())),
            },
            workers: flags.get("workers", number(1..=1024))?.map_or(WORKERS, |n| n as usize),
            queue: flags.get("queue", number(0..=1_000_000))?.map_or(QUEUE_SLOTS, |n| n as usize),
            max_words: flags.get("max-words", number(0..=u64::MAX))?,
            // The reply to a task holds no text, so nothing but memory bounds the body.
            max_body: flags.get("max-body", number(1..=64 * 1024 * 1024))?.map_or(BODY_BYTES, |n| n as usize),
            db_timeout: flags.get("db-timeout", db_timeout)?.unwrap_or(DB_TIMEOUT),
            drain_timeout: flags.get("drain-timeout", duration)?.unwrap_or(DRAIN_TIMEOUT),
        }))
    }
}

/// A DSN that names a server: a mistake in it shows before anything starts.
fn dsn(text: &str) -> Result<postgres::Config, String> {
    let expected = "expected postgresql://user@host:port/database or host=… dbname=… user=…";
    let config: postgres::Config = text.parse().map_err(|error: postgres::Error| {
        let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        format!("not a DSN: {why}; {expected}")
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(format!("names no host; {expected}"));
    }
    Ok(config)
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

/// A bound that a statement can meet and a client can wait for.
fn db_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    let sensible = Duration::from_millis(100)..=Duration::from_secs(60);
    if sensible.contains(&timeout) { Ok(timeout) } else { Err("must be from 100ms to 60s".into()) }
}
