//! The database that a command works on: the flags that name it, and the way from them to a store with its schema.

use std::path::PathBuf;
use std::time::Duration;

use super::exit::Failure;
use super::flags::{Flag, Flags, duration};
use crate::limits::DB_TIMEOUT;
use crate::log;
use crate::private_postgres::PrivatePostgres;
use crate::store::{Lease, Store, StoreConfig, StoreError};

/// Default of `--data`.
const DEFAULT_DATA: &str = "./taskstats-data";

/// `--dsn`
pub const DSN_FLAG: Flag =
    Flag { name: "dsn", value: "DSN", help: "PostgreSQL to use (none: a private one in --data)" };
/// `--data`
pub const DATA_FLAG: Flag =
    Flag { name: "data", value: "DIR", help: "directory of the private PostgreSQL (./taskstats-data)" };
/// `--db-timeout`
pub const DB_TIMEOUT_FLAG: Flag = Flag { name: "db-timeout", value: "TIME", help: "bound on one SQL statement (2s)" };

/// A database, as the flags describe it.
#[derive(Debug, Clone)]
pub struct Database {
    place: Place,
    /// statement_timeout of the sessions.
    timeout: Duration,
}

#[derive(Debug, Clone)]
enum Place {
    /// An existing server.
    Dsn(Box<postgres::Config>),
    /// The private PostgreSQL in this directory.
    Private(PathBuf),
}

impl Database {
    /// Reads the three flags above; touches nothing.
    pub fn read(flags: &Flags) -> Result<Database, Failure> {
        let data = data(flags)?;
        let place = match flags.get("dsn", dsn)? {
            Some(dsn) => Place::Dsn(Box::new(dsn)),
            None => Place::Private(data),
        };
        Ok(Database { place, timeout: flags.get("db-timeout", db_timeout)?.unwrap_or(DB_TIMEOUT) })
    }

    /// A store on it, for the owner of that name, with the schema applied; starts the private PostgreSQL if it is not running.
    pub fn ready(&self, owner: String, lease: Option<Lease>) -> Result<Store, Failure> {
        let dsn = match &self.place {
            Place::Dsn(dsn) => (**dsn).clone(),
            Place::Private(data) => {
                let started =
                    PrivatePostgres::open(data).and_then(|postgres| postgres.start()).map_err(Failure::failed)?;
                log::line(format_args!("private PostgreSQL: {}", started.url));
                started.url.parse().map_err(|error| Failure::failed(format!("{}: {error}", started.url)))?
            }
        };
        let store = Store::open(&StoreConfig { dsn, timeout: self.timeout, owner, lease });
        store.apply_schema().map_err(|error| failure("schema", &error))?;
        Ok(store)
    }
}

/// `--data`, or its default.
pub fn data(flags: &Flags) -> Result<PathBuf, Failure> {
    Ok(flags.path("data")?.unwrap_or_else(|| DEFAULT_DATA.into()))
}

/// A step that the database did not take: exit code 1.
pub fn failure(step: &str, error: &StoreError) -> Failure {
    Failure::failed(format!("{step}: {error}; nothing was started"))
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

/// A bound that a statement can meet and a client can wait for.
fn db_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    let sensible = Duration::from_millis(100)..=Duration::from_secs(60);
    if sensible.contains(&timeout) { Ok(timeout) } else { Err("must be from 100ms to 60s".into()) }
}
