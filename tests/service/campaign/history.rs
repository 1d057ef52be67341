//! The history checker: what a table's triggers wrote down, held against section 2. It is pure, and is itself tried on
//! broken histories.

use std::collections::HashMap;

/// One row of `go_tasks` as a change left it. Times are microseconds of the database's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub id: String,
    pub at: i64,
    pub status: String,
    pub owner: Option<String>,
    pub epoch: i64,
    pub lease_until: Option<i64>,
    pub words: i64,
}

/// One row of `go_task_effects`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRow {
    pub id: String,
    pub owner: String,
    pub epoch: i64,
    pub words: i64,
}

/// One claim of what an owner had let expire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Takeover {
    pub id: String,
    pub from: String,
    pub at: i64,
    /// When the lease was over.
    pub over: i64,
}

/// What a sound history holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub succeeded: usize,
    pub failed: usize,
    pub canceled: usize,
    pub renewals: usize,
    pub takeovers: Vec<Takeover>,
}

/// A statement looks at the clock before it waits for a row, and its trigger after: they may be so far apart, microseconds.
const STATEMENT: i64 = 2_500_000;

/// Checks the changes of all tasks, each task's in their order, and the effects at the end.
pub fn check(changes: &[Change], effects: &[EffectRow]) -> Result<Summary, String> {
    let mut summary = Summary::default();
    let mut last: HashMap<&str, &Change> = HashMap::new();
    for change in changes {
        let before = last.insert(&change.id, change);
        judge(before, change, &mut summary).map_err(|law| format!("{law}: {before:?} became {change:?}"))?;
    }
    let mut by_id: HashMap<&str, Vec<&EffectRow>> = HashMap::new();
    effects.iter().for_each(|effect| by_id.entry(&effect.id).or_default().push(effect));
    for (id, end) in last {
        let effects = by_id.remove(id).unwrap_or_default();
        let owner = end.owner.as_deref().unwrap_or_default();
        match end.status.as_str() {
            "SUCCEEDED" => match effects[..] {
                [effect] if (effect.owner.as_str(), effect.epoch, effect.words) == (owner, end.epoch, end.words) => {
                    summary.succeeded += 1;
                }
                _ => return Err(format!("not exactly its own effect: {end:?} has {effects:?}")),
            },
            "FAILED" | "CANCELED" if !effects.is_empty() => return Err(format!("an effect without success: {end:?}")),
            "FAILED" => summary.failed += 1,
            "CANCELED" => summary.canceled += 1,
            _ => return Err(format!("not terminal at the end: {end:?}")),
        }
    }
    match by_id.keys().next() {
        Some(id) => Err(format!("an effect of a task without a history: {id}")),
        None => Ok(summary),
    }
}

/// Whether one change follows from the one before; which law it breaks.
fn judge(before: Option<&Change>, change: &Change, summary: &mut Summary) -> Result<(), &'static str> {
    if change.status != "SUCCEEDED" && change.words != 0 {
        return Err("counters without success");
    }
    let Some(before) = before else {
        return if change.status == "QUEUED" && change.epoch == 0 { Ok(()) } else { Err("not born QUEUED at epoch 0") };
    };
    match (before.status.as_str(), change.status.as_str()) {
        ("QUEUED", "RUNNING") if change.epoch != before.epoch + 1 => {
            Err("a claim that did not move the epoch on by one")
        }
        ("QUEUED", "RUNNING") if change.lease_until.is_none_or(|until| until <= change.at) => {
            Err("a claim without a lease")
        }
        ("QUEUED", "RUNNING") => Ok(()),
        ("QUEUED", "CANCELED" | "FAILED") if change.epoch == before.epoch => Ok(()),
        ("RUNNING", "RUNNING") if change.epoch == before.epoch => renewed(before, change, summary),
        ("RUNNING", "RUNNING") => taken_over(before, change, summary),
        ("RUNNING", "SUCCEEDED" | "FAILED" | "CANCELED") => ended(before, change),
        ("SUCCEEDED" | "FAILED" | "CANCELED", _) => Err("a terminal task changed"),
        _ => Err("no such transition"),
    }
}

fn renewed(before: &Change, change: &Change, summary: &mut Summary) -> Result<(), &'static str> {
    if change.owner != before.owner {
        return Err("another owner under the same epoch");
    }
    match (before.lease_until, change.lease_until) {
        (old, new) if old == new => Ok(()), // a cancel was noted
        (Some(old), Some(new)) if new < old => Err("a lease was shortened"),
        (Some(old), Some(_)) if change.at > old + STATEMENT => Err("a lease was renewed after its end"),
        (Some(_), Some(_)) => {
            summary.renewals += 1;
            Ok(())
        }
        _ => Err("a lease appeared or vanished"),
    }
}

fn taken_over(before: &Change, change: &Change, summary: &mut Summary) -> Result<(), &'static str> {
    if change.epoch != before.epoch + 1 {
        return Err("a takeover that did not move the epoch on by one");
    }
    let (Some(over), Some(from)) = (before.lease_until, before.owner.clone()) else {
        return Err("a task without a lease was taken over");
    };
    if change.at < over {
        return Err("a task was taken over under a lease that holds");
    }
    summary.takeovers.push(Takeover { id: change.id.clone(), from, at: change.at, over });
    Ok(())
}

fn ended(before: &Change, change: &Change) -> Result<(), &'static str> {
    if (change.epoch, &change.owner) != (before.epoch, &before.owner) {
        return Err("ended by somebody who did not have it");
    }
    let by_its_owner = change.status == "SUCCEEDED";
    if by_its_owner && before.lease_until.is_none_or(|until| change.at > until + STATEMENT) {
        return Err("ended after the end of its lease");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: i64 = 1_000_000;

    fn change(at: i64, status: &str, owner: &str, epoch: i64, lease_until: i64) -> Change {
        let (id, words) = ("task[0]".to_owned(), if status == "SUCCEEDED" { 2 } else { 0 });
        let (owner, lease_until) =
            if owner.is_empty() { (None, None) } else { (Some(owner.into()), Some(lease_until)) };
        Change { id, at, status: status.into(), owner, epoch, lease_until, words }
    }

    /// Claimed by A, renewed, taken over by B, done.
    fn sound() -> (Vec<Change>, Vec<EffectRow>) {
        let (first, second) = (10 + LEASE, 400_000 + LEASE);
        let changes = vec![
            change(0, "QUEUED", "", 0, 0),
            change(10, "RUNNING", "A", 1, first),
            change(400_000, "RUNNING", "A", 1, second),
            change(second + 5, "RUNNING", "B", 2, second + 5 + LEASE),
            change(second + 900, "SUCCEEDED", "B", 2, second + 5 + LEASE),
        ];
        (changes, vec![EffectRow { id: "task[0]".into(), owner: "B".into(), epoch: 2, words: 2 }])
    }

    fn broken(spoil: impl FnOnce(&mut Vec<Change>, &mut Vec<EffectRow>)) -> String {
        let (mut changes, mut effects) = sound();
        spoil(&mut changes, &mut effects);
        check(&changes, &effects).expect_err("somebody spoiled it")
    }

    #[test]
    fn a_sound_history_is_summed_up() {
        let (changes, effects) = sound();
        let summary = check(&changes, &effects).expect("sound");
        assert_eq!((summary.succeeded, summary.renewals, summary.takeovers.len()), (1, 1, 1));
        let takeover = &summary.takeovers[0];
        assert_eq!((takeover.from.as_str(), takeover.at - takeover.over), ("A", 5));
    }

    /// A law, and what breaks it.
    type Case = (&'static str, fn(&mut Vec<Change>, &mut Vec<EffectRow>));

    const BROKEN_CHANGES: [Case; 17] = [
        ("not born QUEUED", |changes, _| drop(changes.remove(0))),
        ("not born QUEUED", |changes, _| changes[0].epoch = 3),
        ("a claim that did not move", |changes, _| changes[1].epoch = 2),
        ("a claim without a lease", |changes, _| changes[1].lease_until = None),
        ("another owner under the same epoch", |changes, _| changes[2].owner = Some("B".into())),
        ("a lease was shortened", |changes, _| changes[2].lease_until = Some(500_000)),
        ("a lease was renewed after its end", |changes, _| changes[2].at = 10 + LEASE + STATEMENT + 1),
        ("a lease appeared or vanished", |changes, _| changes[2].lease_until = None),
        ("a task was taken over under a lease", |changes, _| changes[3].at = 400_000 + LEASE - 1),
        ("a takeover that did not move", |changes, _| changes[3].epoch = 3),
        ("another owner under the same epoch", |changes, _| changes[3].epoch = 1),
        ("ended by somebody", |changes, _| changes[4].epoch = 1),
        ("ended by somebody", |changes, _| changes[4].owner = Some("A".into())),
        ("ended after the end", |changes, _| changes[4].at = changes[3].at + LEASE + STATEMENT + 1),
        ("counters without success", |changes, _| changes[3].words = 1),
        ("a terminal task changed", |changes, _| changes.push(changes[4].clone())),
        ("no such transition", |changes, _| (changes[4].status, changes[4].words) = ("QUEUED".into(), 0)),
    ];

    const BROKEN_ENDS: [Case; 6] = [
        ("not terminal at the end", |changes, effects| {
            changes.truncate(4);
            effects.clear();
        }),
        ("not exactly its own effect", |_, effects| effects.clear()),
        ("not exactly its own effect", |_, effects| effects.push(effects[0].clone())),
        ("not exactly its own effect", |_, effects| effects[0].epoch = 1),
        ("an effect without success", |changes, _| (changes[4].status, changes[4].words) = ("FAILED".into(), 0)),
        ("an effect of a task without a history", |_, effects| {
            effects.push(EffectRow { id: "task[9]".into(), ..effects[0].clone() });
        }),
    ];

    #[test]
    fn broken_histories_are_told_apart() {
        for (law, spoil) in BROKEN_CHANGES.into_iter().chain(BROKEN_ENDS) {
            let said = broken(spoil);
            assert!(said.starts_with(law), "{law}: {said}");
        }
    }

    #[test]
    fn tasks_are_judged_each_by_its_own_history() {
        let (mut changes, mut effects) = sound();
        let other = |change: &Change| Change { id: "task[1]".into(), ..change.clone() };
        let others: Vec<Change> = changes.iter().map(other).collect();
        changes = changes.into_iter().zip(others).flat_map(|(one, two)| [one, two]).collect();
        effects.push(EffectRow { id: "task[1]".into(), ..effects[0].clone() });
        assert_eq!(check(&changes, &effects).expect("sound").succeeded, 2);
    }
}
