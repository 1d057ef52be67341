//! finish: a RUNNING row of ours becomes terminal — succeeded, failed, or cancelled if that was asked for meanwhile.

use std::collections::HashMap;

use super::lane::Operation;
use super::session::Session;
use super::sql;
use crate::limits::REASON_BYTES;
use crate::task::{Analysis, Counts, Status, TaskId};

/// The end of a task that this process claimed.
#[derive(Debug, Clone)]
pub struct Finish {
    /// Which task.
    pub id: TaskId,
    /// The epoch of our claim: a write under an older one touches no row.
    pub epoch: i64,
    /// What the analyser said.
    pub analysis: Analysis,
}

impl Finish {
    /// The state it asks for.
    pub(super) fn status(&self) -> Status {
        match self.analysis {
            Analysis::Counted(_) => Status::Succeeded,
            Analysis::Failed(_) => Status::Failed,
            Analysis::Stopped => Status::Canceled,
        }
    }

    fn counts(&self) -> Counts {
        match self.analysis {
            Analysis::Counted(counts) => counts,
            Analysis::Failed(_) | Analysis::Stopped => Counts::default(),
        }
    }

    fn reason(&self) -> Option<String> {
        match &self.analysis {
            Analysis::Failed(reason) => Some(storable_reason(reason)),
            Analysis::Counted(_) | Analysis::Stopped => None,
        }
    }
}

/// A reason PostgreSQL can store: without NUL, and cut at a character to [`REASON_BYTES`]. Otherwise an odd error text would
/// make the very write fail that reports it.
fn storable_reason(reason: &str) -> String {
    let reason = reason.replace('\0', "\u{fffd}");
    let end = (0..=REASON_BYTES.min(reason.len())).rev().find(|&end| reason.is_char_boundary(end)).unwrap_or(0);
    reason[..end].to_owned()
}

pub(super) struct FinishBatch {
    /// Who claimed: this process.
    pub owner: String,
    /// Whether a success records its effect in the same transaction: where tasks are leased.
    pub with_effect: bool,
}

impl Operation for FinishBatch {
    type Input = Finish;
    /// None: no row is ours under that epoch any more (lease lost).
    type Output = Option<Status>;

    fn run(&self, session: &mut Session, tasks: &[Finish]) -> Result<Vec<Option<Status>>, postgres::Error> {
        let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        let epochs: Vec<i64> = tasks.iter().map(|task| task.epoch).collect();
        let statuses: Vec<&str> = tasks.iter().map(|task| task.status().as_str()).collect();
        let words: Vec<i64> = tasks.iter().map(|task| task.counts().words as i64).collect();
        let bytes: Vec<i64> = tasks.iter().map(|task| task.counts().bytes as i64).collect();
        let runes: Vec<i64> = tasks.iter().map(|task| task.counts().runes as i64).collect();
        let reasons: Vec<Option<String>> = tasks.iter().map(Finish::reason).collect();
        let rows = session.query(
            sql::FINISH,
            &[&self.owner, &ids, &epochs, &statuses, &words, &bytes, &runes, &reasons, &self.with_effect],
        )?;
        let ended: HashMap<&str, Option<Status>> =
            rows.iter().map(|row| (row.get("id"), Status::parse(row.get("status")))).collect();
        Ok(tasks.iter().map(|task| ended.get(task.id.as_str()).copied().flatten()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_at_a_character_and_holds_no_nul() {
        assert_eq!(storable_reason("a\0b"), "a\u{fffd}b");
        assert_eq!(storable_reason("short"), "short");
        let long = "é".repeat(REASON_BYTES); // two bytes each: the bound falls between characters or after one
        assert_eq!(storable_reason(&long).len(), REASON_BYTES / 2 * 2);
        let odd = format!("x{long}");
        assert!(storable_reason(&odd).len() < REASON_BYTES && odd.starts_with(&storable_reason(&odd)));
    }
}
