//! `taskstats serve` with its analyser held at a gate, for experiments on RUNNING tasks: an analysis begins only when the
//! file named by `GATE` does not exist, and looks whether it was told to stop only then, like an analyser that is slow to
//! stop. It takes serve's flags.
//!
//! It also shows how to put an analyser of one's own into the service.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use taskstats::cli::serve;
use taskstats::task::{Analyser, Analysis, CountAnalyser, Stop};

struct Gated {
    gate: PathBuf,
    counting: CountAnalyser,
}

impl Analyser for Gated {
    fn analyse(&self, text: &str, stop: &Stop) -> Analysis {
        while self.gate.exists() {
            // A file has no way to wake us, and the gate must hold across processes.
            std::thread::sleep(Duration::from_millis(5));
        }
        self.counting.analyse(text, stop)
    }
}

fn main() -> ExitCode {
    let Some(gate) = std::env::var_os("GATE").map(PathBuf::from) else {
        eprintln!("gated: set GATE to the path of the file that shuts the gate while it exists");
        return ExitCode::from(2);
    };
    let gated = |counting| Arc::new(Gated { gate, counting }) as Arc<dyn Analyser>;
    match serve::run_with(&mut lexopt::Parser::from_env(), gated) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("gated: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}
