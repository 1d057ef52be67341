//! What every test stands on: a private PostgreSQL, the real binary, a plain HTTP client, gates in SQL. Nothing is left
//! behind, also when a test fails or is killed.

pub mod cluster;
pub mod contract;
pub mod database;
pub mod http;
pub mod inside;
pub mod proxy;
pub mod serve;
mod stall;

pub use cluster::PgCluster;
pub use database::{Database, Gate};
pub use http::Client;
pub use proxy::Proxy;
pub use serve::Serve;
pub use stall::stalled_since;

use std::time::{Duration, Instant};

/// Longest wait of a test for something that must happen; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Asks until `question` has an answer.
#[track_caller]
pub fn until<T>(what: &str, question: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, question)
}

/// The same with a bound that is itself the promise under test.
#[track_caller]
pub fn until_within<T>(bound: Duration, what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(start.elapsed() < bound, "not within {bound:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
