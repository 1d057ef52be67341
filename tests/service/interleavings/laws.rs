//! Section 2's invariants, judged from what is seen before and after one statement. The model is asked separately, so that
//! a fault of the model cannot hide one of the program.

use super::Act;
use super::model::{Answer, Lease, Model, Status};
use super::real::{Seen, State};

/// Which law a statement broke.
pub fn hold(before: &Seen, after: &Seen, act: Act, answer: Answer, attempts: i64) -> Result<(), &'static str> {
    let changed = before != after;
    let (before, after) = (&before.state, &after.state);
    let terminal = !matches!(before.status, Status::Queued | Status::Running);
    let broken = [
        (terminal && changed && act != Act::Expire, "a terminal task changed"),
        (after.epoch < before.epoch, "the epoch shrank"),
        (after.epoch > before.epoch && !matches!(act, Act::Claim { .. }), "the epoch grew without a claim"),
        (after.status != Status::Succeeded && after.counters != (0, 0, 0), "counters without a success"),
        (after.status == Status::Succeeded && after.counters != (2, 6, 6), "a success with wrong counters"),
        (after.status == Status::Succeeded && after.effects.is_empty(), "a success without its effect"),
        (after.effects.len() > 1, "two effects"),
        (after.effects.iter().any(|(_, _, epoch)| *epoch > after.epoch), "an effect of an epoch that never was"),
        (after.effects.iter().any(|(words, _, _)| *words != 2), "an effect with wrong words"),
        (!before.effects.is_empty() && before.effects != after.effects, "an effect changed"),
        (
            before.cancel_requested && matches!(after.status, Status::Succeeded | Status::Failed),
            "a cancel that was acknowledged is lost",
        ),
    ];
    if let Some((_, law)) = broken.into_iter().find(|(broken, _)| *broken) {
        return Err(law);
    }
    match act {
        Act::Claim { .. } if answer == Answer::Nothing && changed => Err("a claim that won nothing wrote something"),
        Act::Claim { .. } => claim_law(before, after, answer, attempts),
        Act::Effect { owner, epoch } | Act::Renew { owner, epoch } | Act::Finish { owner, epoch } => {
            let whose = before.owner.as_deref() == Some(owner);
            match () {
                () if !changed => Ok(()),
                () if epoch != before.epoch => Err("a write under an old epoch touched the task"),
                () if !whose => Err("a write touched another owner's task"),
                () if before.lease != Lease::Holds => Err("a write touched the task after the end of its lease"),
                () => Ok(()),
            }
        }
        Act::Settle if changed && before.lease != Lease::Over => Err("a task was given up under a lease that holds"),
        Act::Settle if changed && !before.cancel_requested && before.epoch < attempts => {
            Err("a task was given up that had attempts left")
        }
        Act::Settle | Act::Cancel | Act::Expire => Ok(()),
    }
}

fn claim_law(before: &State, after: &State, answer: Answer, attempts: i64) -> Result<(), &'static str> {
    let taken_over = before.status == Status::Running;
    match answer {
        Answer::Claimed(_) if taken_over && before.lease != Lease::Over => {
            Err("a task was taken over under a lease that holds")
        }
        Answer::Claimed(_) if before.cancel_requested => Err("a cancelled task was claimed"),
        Answer::Claimed(_) if taken_over && before.epoch >= attempts => {
            Err("a task was claimed more often than it may")
        }
        Answer::Claimed(epoch) if epoch != before.epoch + 1 || after.epoch != epoch => {
            Err("a claim did not move the epoch on")
        }
        _ => Ok(()),
    }
}

/// What a task must look like when all is over.
pub fn end_well(seen: &State) -> Result<(), String> {
    let effects = seen.effects.len();
    let well = match seen.status {
        Status::Succeeded => effects == 1,
        // Where the effect has a transaction of its own, a cancel may come after it.
        Status::Canceled | Status::Failed => effects <= 1,
        Status::Queued | Status::Running => false,
    };
    if well { Ok(()) } else { Err(format!("a bad end: {seen:?}")) }
}

/// Says where the database and the model differ.
pub fn is_as_modelled(seen: &State, model: &Model) -> Result<(), String> {
    let effects: Vec<_> = model.effect.iter().map(|&(owner, epoch)| (2, owner.to_owned(), epoch)).collect();
    let same = (seen.status, seen.owner.as_deref(), seen.epoch, seen.lease, seen.cancel_requested)
        == (model.status, model.owner, model.epoch, model.lease, model.cancel_requested);
    if same && seen.effects == effects { Ok(()) } else { Err(format!("left {seen:?}, by the design {model:?}")) }
}
