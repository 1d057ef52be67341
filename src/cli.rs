//! The command line: one match from a command's name to its module.

pub mod config;
pub mod count;
pub mod database;
pub mod db;
pub mod flags;
pub mod lease;
pub mod serve;
pub mod signals;

use std::io::Write;

pub use crate::exit::{self, Failure};

const USAGE: &str = "\
usage: taskstats COMMAND [FLAGS]

  count [--json] [--max-words N] [FILE…]   count words, bytes and runes of files or stdin
  serve [FLAGS]                            accept texts over HTTP and count them
  lease submit|run [FLAGS]                 one task under a lease, step by step (chapter E08)
  db start|stop|url [--data DIR]           the private PostgreSQL that serve uses without --dsn

taskstats COMMAND --help says more.";

/// Runs the command that `args` names.
pub fn run(mut args: lexopt::Parser) -> Result<(), Failure> {
    match args.next().map_err(Failure::usage)? {
        Some(lexopt::Arg::Value(command)) => match command.to_string_lossy().as_ref() {
            "count" => count::run(&mut args),
            "serve" => serve::run(&mut args),
            "lease" => lease::run(&mut args),
            "db" => db::run(&mut args),
            other => Err(Failure::usage(format!("unknown command {other}\n\n{USAGE}"))),
        },
        Some(lexopt::Arg::Long("help") | lexopt::Arg::Short('h')) => {
            say(USAGE);
            Ok(())
        }
        Some(lexopt::Arg::Long("version") | lexopt::Arg::Short('V')) => {
            say(concat!("taskstats ", env!("CARGO_PKG_VERSION")));
            Ok(())
        }
        Some(other) => Err(Failure::usage(format!("{}\n\n{USAGE}", other.unexpected()))),
        None => Err(Failure::usage(format!("no command\n\n{USAGE}"))),
    }
}

/// Writes a line to stdout. A reader that has gone (`| head`) is no error.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
