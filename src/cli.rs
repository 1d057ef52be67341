//! The command line: picks the command, and names the exit code of every way to fail.

pub mod exit;

pub use exit::Failure;

/// Runs the command that `args` names.
pub fn run(mut args: lexopt::Parser) -> Result<(), Failure> {
    let _ = args.next();
    Err(Failure::usage("not yet"))
}
