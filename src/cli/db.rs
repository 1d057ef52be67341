//! `taskstats db start|stop|url`: the private PostgreSQL by hand, so that psql and scripts can use what `serve` uses.
//!
//! Never prints anything except the DSN on stdout.

use std::io::Write;

use super::Failure;
use super::database::{self, DATA_FLAG};
use super::flags::Flags;
use crate::log;
use crate::private_postgres::PrivatePostgres;

const USAGE: &str = "\
usage: taskstats db start|stop|url [--data DIR]

The private PostgreSQL that `taskstats serve` uses when it is given no --dsn.

  start   create it if there is none, start it if it is not running, print its DSN
  stop    stop it and wait until it is down
  url     print its DSN; exit code 1 when it is not running

The DSN is for psql, too:   psql \"$(taskstats db url)\"
PostgreSQL's programs are looked for in PATH and the usual directories, or only in TASKSTATS_PG_BIN if set.";

/// Runs `db` with the arguments that follow it.
///
/// # Errors
/// Exit code 2 for arguments that do not make sense, 1 for everything that then fails.
pub fn run(args: &mut lexopt::Parser) -> Result<(), Failure> {
    let Some(flags) = Flags::read_with_values(args, USAGE, &[DATA_FLAG])? else { return Ok(()) };
    let action = match &flags.values[..] {
        [action] => action.to_str().unwrap_or_default(),
        _ => "",
    };
    if !["start", "stop", "url"].contains(&action) {
        return Err(Failure::usage(format!("db {:?}: say one of start, stop and url; see --help", flags.values)));
    }
    let data = database::data(&flags)?;
    let postgres = PrivatePostgres::open(&data).map_err(Failure::failed)?;
    match action {
        "start" => print(&postgres.start().map_err(Failure::failed)?.url),
        "url" => print(&postgres.url().map_err(Failure::failed)?),
        _ => {
            if !postgres.stop().map_err(Failure::failed)? {
                log::line(format_args!("the private PostgreSQL in {} was not running", data.display()));
            }
            Ok(())
        }
    }
}

fn print(url: &str) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{url}")
        .map_err(|error| Failure::failed(format_args!("cannot write to stdout: {error}")))
}
