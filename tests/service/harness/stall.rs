//! How long this machine kept a thread of ours from running: where it is busy with other things, an answer may be late through
//! no fault of the service. Measured, so that the bounds under test need no guess for it.

use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

/// How often the watching thread should run.
const PERIOD: Duration = Duration::from_millis(20);

/// When the watching thread ran too late, and by how much.
static STALLS: Mutex<Vec<(Instant, Duration)>> = Mutex::new(Vec::new());

/// All delays since `start`. The first call begins to watch.
pub fn stalled_since(start: Instant) -> Duration {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        thread::spawn(|| {
            loop {
                let begun = Instant::now();
                thread::sleep(PERIOD);
                let late = begun.elapsed().saturating_sub(PERIOD);
                if late > PERIOD {
                    STALLS.lock().expect("no panic").push((Instant::now(), late));
                }
            }
        });
    });
    let stalls = STALLS.lock().expect("no panic");
    stalls.iter().filter(|(at, _)| *at >= start).map(|(_, late)| *late).sum()
}
