//! The embedded PostgreSQL: a private cluster in a data directory, for people who have PostgreSQL's programs but no
//! server. It outlives the process that started it, is reached over a Unix socket only, and is an ordinary cluster:
//! psql, pg_dump and pg_ctl work on it.
//!
//! Must never: initialise a directory that is not ours, run PostgreSQL as root, loosen the permissions of a directory
//! it did not create, listen on a network, or signal a process that it has not proved to be this cluster's server.
//!
//! Read `layout` (what lies where) first, then `postmaster` (the running server).

mod account;
mod database;
mod initdb;
mod layout;
mod lock;
mod pid_file;
mod postmaster;
mod programs;
mod socket;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use account::Account;
use layout::Layout;
use lock::Lock;
use postmaster::Postmaster;
use programs::{Places, Programs};

/// How long a server may take to start: crash recovery of a few GiB of WAL on a slow disk.
const START_PATIENCE: Duration = Duration::from_secs(120);
/// How long a fast stop may take: it ends with a checkpoint.
const STOP_PATIENCE: Duration = Duration::from_secs(60);
/// How long one start or stop waits for another on the same directory: longer than either may take.
const LOCK_PATIENCE: Duration = Duration::from_secs(180);
/// How long a killed server's backends, or a killed start's initdb, may live on before a start gives up: they notice
/// within milliseconds.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(10);
/// Bound on creating the database: the server's own files are copied, some 10 MiB with their fsyncs.
const DATABASE_PATIENCE: Duration = Duration::from_secs(30);
/// How often something that is waited for is looked at.
const POLL: Duration = Duration::from_millis(50);

/// The private cluster of one data directory. Holds no connection and no process: dropping it stops nothing.
#[derive(Debug)]
pub struct Cluster {
    layout: Layout,
    programs: Programs,
    account: Account,
}

/// A cluster that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The DSN of its database `taskstats`, in the form that psql and the `postgres` crate both accept.
    pub url: String,
    /// The server ran before; it was not started now.
    pub already_running: bool,
}

impl Cluster {
    /// Finds out what the cluster in `data` needs: PostgreSQL's programs (of its own major version when it exists
    /// already, else the first found) and the account that runs them. Creates and starts nothing.
    ///
    /// # Errors
    /// `data` is no directory, PostgreSQL is not installed in a fitting version, or the cluster belongs to an account
    /// we may not act as.
    pub fn new(data: &Path) -> Result<Cluster, ClusterError> {
        let layout = Layout::new(data)?;
        let account = match layout.cluster_owner()? {
            Some((uid, gid)) => Account::of_cluster(uid, gid, &layout.pgdata())?,
            None => Account::of_new_cluster()?,
        };
        let major = layout.cluster_version()?;
        let programs = Programs::find(&Places::from_env(), major.as_deref(), &account, layout.data())?;
        Ok(Cluster { layout, programs, account })
    }

    /// Makes the cluster run: creates the directory and the cluster when there is none, starts the server when it does
    /// not run, creates the database `taskstats` when it is missing. Several callers at once, also of different
    /// processes, all end up on one server.
    ///
    /// # Errors
    /// The directory is not ours or not usable, initdb failed, or the server does not start; says which and why.
    pub fn start(&self) -> Result<Started, ClusterError> {
        self.layout.create_data()?;
        let _lock = Lock::take(self.layout.data())?;
        if self.layout.cluster_owner()?.is_none() {
            initdb::create_cluster(&self.layout, &self.programs, &self.account)?;
        }
        let (server, already_running) = self.postmaster()?.start()?;
        database::create_when_missing(&server)?;
        Ok(Started { url: server.url(), already_running })
    }

    /// Stops the server and waits until it is gone: open transactions are rolled back, connections closed (PostgreSQL's
    /// fast mode). False when it was not running.
    ///
    /// # Errors
    /// The server did not stop in time.
    pub fn stop(&self) -> Result<bool, ClusterError> {
        if self.layout.cluster_owner()?.is_none() {
            return Ok(false);
        }
        let _lock = Lock::take(self.layout.data())?;
        self.postmaster()?.stop()
    }

    /// The DSN of the running cluster.
    ///
    /// # Errors
    /// It does not run; says how to start it.
    pub fn url(&self) -> Result<String, ClusterError> {
        let data = self.layout.data();
        if self.layout.cluster_owner()?.is_none() {
            return Err(ClusterError::new(format_args!(
                "there is no cluster in {0}: `taskstats db start --data {0}` creates and starts one",
                data.display()
            )));
        }
        match self.postmaster()?.server()? {
            Some(server) => Ok(server.url()),
            None => Err(ClusterError::new(format_args!(
                "the cluster in {0} is not running: start it with `taskstats db start --data {0}`",
                data.display()
            ))),
        }
    }

    fn postmaster(&self) -> Result<Postmaster<'_>, ClusterError> {
        let pgdata = self.layout.real_pgdata()?;
        Ok(Postmaster { pgdata, data: self.layout.data(), programs: &self.programs, account: &self.account })
    }
}

/// Why the cluster cannot do what was asked: one line that says what failed, on what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterError(String);

impl ClusterError {
    fn new(message: impl fmt::Display) -> Self {
        ClusterError(message.to_string())
    }

    /// An operation on a path that the system refused. `what` is a verb: "cannot {what} {path}: {error}".
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
            ClusterError(format!("cannot {what} {}: {error}{advice}", path.display()))
        }
    }
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ClusterError {}
