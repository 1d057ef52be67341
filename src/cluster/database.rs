//! The database `taskstats` in a running cluster.
//!
//! Must never: wait for the server without a bound. The client has no timeout of its own (a stopped server would hang
//! it for ever), so its thread is left behind when the time is up.

use std::error::Error;
use std::sync::mpsc;
use std::thread;

use postgres::error::SqlState;
use postgres::{Config, NoTls};

use super::postmaster::Server;
use super::{ClusterError, DATABASE_PATIENCE};

/// Creates the database when it is missing. Somebody else creating it at the same moment is as good.
pub(super) fn create_when_missing(server: &Server) -> Result<(), ClusterError> {
    let mut config = Config::new();
    config
        .host_path(&server.socket_directory)
        .port(server.port)
        .user("postgres")
        .dbname("postgres")
        .application_name("taskstats db start");
    let (report, outcome) = mpsc::channel();
    thread::spawn(move || report.send(create(&config)));
    let why = match outcome.recv_timeout(DATABASE_PATIENCE) {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => match error.as_db_error() {
            Some(said) => format!("{} {}", said.message(), said.hint().unwrap_or_default()),
            None => format!("{}: stop it with `taskstats db stop`, then start it again", with_causes(&error)),
        },
        Err(_) => format!("no answer within {} s", DATABASE_PATIENCE.as_secs()),
    };
    Err(ClusterError::new(format_args!(
        "the server (process {}, socket in {}) runs, but its database taskstats cannot be created: {}",
        server.pid,
        server.socket_directory.display(),
        why.trim_end()
    )))
}

fn create(config: &Config) -> Result<(), postgres::Error> {
    let mut client = config.connect(NoTls)?;
    if client.query_opt("SELECT 1 FROM pg_database WHERE datname = 'taskstats'", &[])?.is_some() {
        return Ok(());
    }
    // template0 may be copied by several at once; template1 refuses while somebody is connected to it.
    match client.batch_execute("CREATE DATABASE taskstats TEMPLATE template0") {
        Err(error)
            if matches!(error.code(), Some(&SqlState::DUPLICATE_DATABASE) | Some(&SqlState::UNIQUE_VIOLATION)) =>
        {
            Ok(())
        }
        outcome => outcome,
    }
}

/// A connection's error says little; its causes say what the system answered.
fn with_causes(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
