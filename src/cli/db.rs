//! `taskstats db start|stop|url`: the embedded cluster by hand, so that psql and scripts can use what `serve` uses.
//!
//! Must never: print anything but the DSN on stdout.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use lexopt::Arg;

use super::{DEFAULT_DATA, Failure};
use crate::cluster::Cluster;
use crate::log;

const HELP: &str = "\
usage: taskstats db start|stop|url [--data DIR]

The private PostgreSQL cluster that `taskstats serve` uses when it is given no --dsn.

  start   create the cluster if there is none, start it if it is not running, print its DSN
  stop    stop it and wait until it is down
  url     print the DSN of the running cluster; exit code 1 when it is not running

  --data DIR   the data directory (environment TASKSTATS_DATA, default ./taskstats-data)
  --help       this text

The DSN is for psql, too:   psql \"$(taskstats db url)\"
PostgreSQL's programs are looked for in PATH and the usual directories, or only in TASKSTATS_PG_BIN if set.
";

enum Action {
    Start,
    Stop,
    Url,
}

/// Runs `db` with the arguments that follow it.
///
/// # Errors
/// Exit code 2 for arguments that do not make sense, 1 for everything that then fails.
pub fn run(args: &mut lexopt::Parser) -> Result<(), Failure> {
    let Some((action, data)) = parse(args)? else { return print(HELP) };
    let cluster = Cluster::new(&data).map_err(Failure::failed)?;
    match action {
        Action::Start => print(&format!("{}\n", cluster.start().map_err(Failure::failed)?.url)),
        Action::Url => print(&format!("{}\n", cluster.url().map_err(Failure::failed)?)),
        Action::Stop => {
            if !cluster.stop().map_err(Failure::failed)? {
                log::line(format_args!("the cluster in {} was not running", data.display()));
            }
            Ok(())
        }
    }
}

/// None: help is wanted.
fn parse(args: &mut lexopt::Parser) -> Result<Option<(Action, PathBuf)>, Failure> {
    let mut action = None;
    let mut data = std::env::var_os("TASKSTATS_DATA").filter(|dir| !dir.is_empty());
    while let Some(arg) = args.next().map_err(usage)? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(None),
            Arg::Long("data") => data = Some(directory(args.value().map_err(usage)?)?),
            Arg::Value(value) if action.is_none() => action = Some(action_of(&value)?),
            other => return Err(usage(other.unexpected())),
        }
    }
    let action = action.ok_or_else(|| usage("say what to do: start, stop or url"))?;
    Ok(Some((action, data.unwrap_or_else(|| DEFAULT_DATA.into()).into())))
}

fn action_of(value: &OsString) -> Result<Action, Failure> {
    match value.to_str() {
        Some("start") => Ok(Action::Start),
        Some("stop") => Ok(Action::Stop),
        Some("url") => Ok(Action::Url),
        _ => Err(usage(format_args!("unknown action {value:?}: say start, stop or url"))),
    }
}

fn directory(value: OsString) -> Result<OsString, Failure> {
    if value.is_empty() { Err(usage("--data needs the name of a directory")) } else { Ok(value) }
}

fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::failed(format_args!("cannot write to stdout: {error}")))
}

fn usage(message: impl std::fmt::Display) -> Failure {
    Failure::usage(format_args!("db: {message} (see `taskstats db --help`)"))
}
