//! What a task is: ids, states, counts, the analyser. Pure: nothing here does I/O, knows SQL or HTTP.

pub mod analyse;
pub mod backoff;
pub mod count;
pub mod id;
pub mod status;

pub use analyse::{Analyser, Analysis, CountAnalyser, Stop};
pub use backoff::Backoff;
pub use count::{Counter, Counts, InvalidUtf8};
pub use id::{BadSegment, TaskId};
pub use status::Status;
