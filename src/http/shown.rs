//! What clients are shown of a task, as JSON: a receipt when it was accepted, its row afterwards. Must never show its text.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::service::Accepted;
use crate::store::TaskRow;
use crate::task::Status;

/// A task as its row says.
pub struct Shown<'a>(pub &'a TaskRow);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Shown(row) = self;
        let mut task = serializer.serialize_map(None)?;
        task.serialize_entry("id", row.id.as_str())?;
        task.serialize_entry("status", &row.status)?;
        task.serialize_entry("words", &row.counts.words)?;
        task.serialize_entry("bytes", &row.counts.bytes)?;
        task.serialize_entry("runes", &row.counts.runes)?;
        task.serialize_entry("cancel_requested", &row.cancel_requested)?;
        task.serialize_entry("created_at", &row.created_at)?;
        let others = [
            ("failure_reason", &row.failure_reason),
            ("started_at", &row.started_at),
            ("finished_at", &row.finished_at),
        ];
        for (name, value) in others {
            if let Some(value) = value {
                task.serialize_entry(name, value)?;
            }
        }
        task.end()
    }
}

/// A task that was accepted, and where it stands in the queue.
pub struct Receipt<'a>(pub &'a Accepted);

impl Serialize for Receipt<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut receipt = serializer.serialize_map(None)?;
        receipt.serialize_entry("id", self.0.id.as_str())?;
        receipt.serialize_entry("status", Status::Queued.as_str())?;
        receipt.serialize_entry("queue", &Queue(self.0))?;
        receipt.end()
    }
}

struct Queue<'a>(&'a Accepted);

impl Serialize for Queue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut queue = serializer.serialize_map(None)?;
        queue.serialize_entry("position", &self.0.position)?;
        queue.serialize_entry("expected_wait_ms", &(self.0.expected_wait.as_millis() as u64))?;
        queue.end()
    }
}

/// As JSON, for a body.
pub fn to_json(shown: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(shown).expect("its keys are strings, and writing into memory does not fail")
}
