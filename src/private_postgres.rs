//! The private PostgreSQL: `initdb`, `pg_ctl start|stop` and a directory, for users who have PostgreSQL's programs but no
//! server. The server outlives the process that started it, is reached over a Unix socket only, and is an ordinary
//! PostgreSQL: psql, pg_dump and pg_ctl work on it.
//!
//! | path | content |
//! |---|---|
//! | `DIR/cluster` | PGDATA, or a symbolic link to it (see `create`) |
//! | `DIR/cluster.new-*` | the same while initdb works; a left-over when no start is under way |
//! | `DIR/cluster/postgresql.log` | the server's log, written by the server's own account |
//! | `/tmp/taskstats-pg-*` | the directory of the server's socket (see `socket`) |
//!
//! Never initialises a directory that holds anything else, never runs PostgreSQL as root, never changes the permissions of
//! a directory that it did not create, and never listens on a network.

/// An [`Error`] with this message, written as for `format!`.
macro_rules! error {
    ($($message:tt)*) => { $crate::private_postgres::Error(format!($($message)*)) };
}

mod account;
mod control;
mod create;
mod programs;
mod socket;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::PG_POLL_INTERVAL;
use account::Account;
use control::{Control, Lock};
use programs::{Places, Programs};

/// Name of PGDATA in the data directory.
const PGDATA: &str = "cluster";
/// The file that marks a PGDATA. It names the major version that made it.
const VERSION: &str = "PG_VERSION";

/// The private PostgreSQL of one data directory. Holds no connection and no process: dropping it stops nothing.
#[derive(Debug)]
pub struct PrivatePostgres {
    /// Absolute. It need not exist.
    data: PathBuf,
    programs: Programs,
    account: Account,
}

/// A private PostgreSQL that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The DSN of its database `taskstats`, in the form that psql and the `postgres` crate both accept.
    pub url: String,
    /// The server ran before; it was not started now.
    pub already_running: bool,
}

impl PrivatePostgres {
    /// Finds what the private PostgreSQL in `data` needs: PostgreSQL's programs (of the major version that made it, or
    /// the first found) and the account that runs them. Creates and starts nothing.
    ///
    /// # Errors
    /// `data` is not a directory, PostgreSQL is not installed in a fitting version, or PGDATA belongs to an account that
    /// this process may not act as.
    pub fn open(data: &Path) -> Result<PrivatePostgres> {
        let data = std::path::absolute(data).map_err(Error::io("make absolute the path", data))?;
        if fs::metadata(&data).is_ok_and(|found| !found.is_dir()) {
            return Err(error!("{} is not a directory: choose another one with --data", data.display()));
        }
        let pgdata = data.join(PGDATA);
        let (account, version) = match owner(&pgdata)? {
            Some((uid, gid)) => {
                let account = Account::of_owner(uid, gid, &pgdata)?;
                let file = pgdata.join(VERSION);
                (account, Some(fs::read_to_string(&file).map_err(Error::io("read", &file))?))
            }
            None => (Account::of_new()?, None),
        };
        let programs = Programs::find(&Places::from_env(), version.as_deref().map(str::trim), &account, &data)?;
        Ok(PrivatePostgres { data, programs, account })
    }

    /// Makes the server run: creates the directory and PGDATA when there is none, starts the server when it does not
    /// run. Concurrent callers, of any process, all get the same server.
    ///
    /// # Errors
    /// The directory cannot be used, initdb failed, or the server does not start. The error names the cause.
    pub fn start(&self) -> Result<Started> {
        fs::create_dir_all(&self.data).map_err(Error::io("create", &self.data))?;
        let _lock = Lock::take(&self.data)?;
        if owner(&self.pgdata())?.is_none() {
            create::create(&self.data, &self.programs, &self.account)?;
        }
        Control::new(self)?.start()
    }

    /// Stops the server and waits until its process has ended: PostgreSQL's fast mode rolls open transactions back and
    /// closes connections. False when it was not running.
    ///
    /// # Errors
    /// The server did not stop in time.
    pub fn stop(&self) -> Result<bool> {
        if owner(&self.pgdata())?.is_none() {
            return Ok(false);
        }
        let _lock = Lock::take(&self.data)?;
        Control::new(self)?.stop()
    }

    /// The DSN of the running server.
    ///
    /// # Errors
    /// It does not run; the error names the command that starts it.
    pub fn url(&self) -> Result<String> {
        if owner(&self.pgdata())?.is_none() {
            return Err(error!(
                "there is no private PostgreSQL in {0}: `taskstats db start --data {0}` creates and starts one",
                self.data.display()
            ));
        }
        Control::new(self)?.url()
    }

    fn pgdata(&self) -> PathBuf {
        self.data.join(PGDATA)
    }
}

/// Uid and gid of PGDATA's owner; None when there is no PGDATA yet.
fn owner(pgdata: &Path) -> Result<Option<(u32, u32)>> {
    match fs::metadata(pgdata) {
        Ok(found) => match fs::metadata(pgdata.join(VERSION)) {
            // Another account's PGDATA cannot be entered: its owner is all there is to see.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error!(
                "{} is not a PostgreSQL data directory (it has no file {}): choose another directory with --data",
                pgdata.display(),
                VERSION
            )),
            _ => Ok(Some((found.uid(), found.gid()))),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_link(pgdata) {
            Ok(target) => Err(error!(
                "the link {0} points to {1}, which is gone: bring that back, or remove the link to begin with an empty \
                 database",
                pgdata.display(),
                target.display()
            )),
            Err(_) => Ok(None),
        },
        Err(error) => Err(Error::io("look at", pgdata)(error)),
    }
}

/// Repeats `attempt` until it has a result. None when it has none within `limit`.
fn poll<T>(limit: Duration, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let deadline = Instant::now() + limit;
    loop {
        let result = attempt()?;
        if result.is_some() || Instant::now() >= deadline {
            return Ok(result);
        }
        thread::sleep(PG_POLL_INTERVAL);
    }
}

type Result<T> = std::result::Result<T, Error>;

/// Why the private PostgreSQL cannot be used: one line with the operation, its object, the cause and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    /// A failed operation on a path. `what` is a verb: "cannot {what} {path}: {error}".
    fn io(what: &str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| {
            let advice = match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    ": run it as the owner, or choose another directory with --data"
                }
                io::ErrorKind::StorageFull => ": make room on that disk",
                _ => "",
            };
            error!("cannot {what} {}: {error}{advice}", path.display())
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
