//! SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once with 128 + its number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, process, thread};

use crossbeam_channel::{Receiver, bounded};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::log;

/// The process's signals, watched from now on.
pub struct FirstSignal {
    /// Receives the first signal's number.
    pub asked: Receiver<i32>,
    started: Arc<AtomicBool>,
}

impl FirstSignal {
    /// Starts watching. Until [`FirstSignal::started`] the first signal ends the process: nothing is in hand yet, and a start
    /// that waits for its database must not have to be killed.
    pub fn watch() -> io::Result<FirstSignal> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let (ask, asked) = bounded(1);
        let started = Arc::new(AtomicBool::new(false));
        let has_started = started.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                if count > 0 {
                    process::exit(128 + signal);
                }
                if !has_started.load(Ordering::Acquire) {
                    log::line("stopped before it was ready");
                    process::exit(0);
                }
                // The receiver lives as long as the service.
                let _ = ask.send(signal);
            }
        })?;
        Ok(FirstSignal { asked, started })
    }

    /// From now on there is work in hand: the first signal is handed on.
    pub fn started(&self) {
        self.started.store(true, Ordering::Release);
    }
}
