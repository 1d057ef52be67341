//! The binary: hands the arguments to [`taskstats::cli`] and turns its result into an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match taskstats::cli::run(lexopt::Parser::from_env()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                taskstats::log::line(&failure.message);
            }
            ExitCode::from(failure.code)
        }
    }
}
