//! Would the enumeration notice? The program's SQL with one condition less, or one thing done wrongly: each such mutant must
//! break a law in some order.

use super::real::Texts;
use super::{Enumeration, Walk, all_settings};
use crate::harness::Database;

/// One change of one statement.
struct Mutant {
    name: &'static str,
    statement: fn(&mut Texts) -> &mut String,
    /// What is replaced, and by what. A parameter has to stay in use, or the server cannot tell its type.
    from: &'static str,
    to: &'static str,
}

const fn mutant(
    name: &'static str,
    statement: fn(&mut Texts) -> &mut String,
    from: &'static str,
    to: &'static str,
) -> Mutant {
    Mutant { name, statement, from, to }
}

const CLAIM: fn(&mut Texts) -> &mut String = |texts| &mut texts.claim;
const EFFECT: fn(&mut Texts) -> &mut String = |texts| &mut texts.effect;
const FINISH: fn(&mut Texts) -> &mut String = |texts| &mut texts.finish;
const RENEW: fn(&mut Texts) -> &mut String = |texts| &mut texts.renew;
const CANCEL: fn(&mut Texts) -> &mut String = |texts| &mut texts.cancel;
const SETTLE: fn(&mut Texts) -> &mut String = |texts| &mut texts.settle;

const MUTANTS: &[Mutant] = &[
    mutant("claim: no look at lease_until", CLAIM, "AND lease_until < clock_timestamp()", ""),
    mutant("claim: no look at cancel_requested", CLAIM, "AND NOT cancel_requested", ""),
    mutant("claim: no limit of attempts", CLAIM, "AND lease_epoch < $4", "AND $4::bigint IS NOT NULL"),
    mutant("claim: take over in any status", CLAIM, "AND status = 'RUNNING'", ""),
    mutant("claim: any status", CLAIM, "status = 'QUEUED'", "true"),
    mutant("claim: the epoch stays", CLAIM, "task.lease_epoch + 1", "task.lease_epoch"),
    mutant(
        "claim: the lease is not set",
        CLAIM,
        "lease_until = clock_timestamp() +",
        "lease_until = task.lease_until +",
    ),
    mutant("claim: the owner is not set", CLAIM, "lease_owner = $2", "lease_owner = coalesce(task.lease_owner, $2)"),
    mutant("effect: no epoch", EFFECT, "AND lease_epoch = $3", "AND $3::bigint IS NOT NULL"),
    mutant("effect: no lease_until", EFFECT, "AND lease_until >= clock_timestamp()", ""),
    mutant("effect: no status", EFFECT, "AND status = 'RUNNING'", ""),
    mutant("effect: id alone", EFFECT, EFFECT_CONDITION, "AND $2::text IS NOT NULL AND $3::bigint IS NOT NULL"),
    mutant("effect: a second one is an error", EFFECT, "ON CONFLICT (task_id) DO NOTHING", ""),
    mutant(
        "effect: a second one overwrites",
        EFFECT,
        "DO NOTHING",
        "DO UPDATE SET lease_owner = excluded.lease_owner, lease_epoch = excluded.lease_epoch",
    ),
    mutant("finish: no epoch", FINISH, "AND task.lease_epoch = done.epoch", ""),
    mutant("finish: no lease_until", FINISH, FINISH_LEASE, ""),
    mutant("finish: no status", FINISH, "AND task.status = 'RUNNING'", ""),
    mutant("finish: id alone", FINISH, FINISH_CONDITION, ""),
    mutant(
        "finish: the cancel is forgotten",
        FINISH,
        "CASE WHEN task.cancel_requested THEN 'CANCELED' ELSE done.status END",
        "done.status",
    ),
    mutant(
        "finish: a cancelled task keeps its words",
        FINISH,
        "words = CASE WHEN task.cancel_requested THEN 0 ELSE done.words END",
        "words = done.words",
    ),
    mutant("finish: no effect", FINISH, "WHERE $9 AND", "WHERE $9 AND false AND"),
    mutant("finish: an effect of any end", FINISH, "AND status = 'SUCCEEDED'", ""),
    mutant("renew: no epoch", RENEW, "AND lease_epoch = held.epoch", ""),
    mutant("renew: no lease_until", RENEW, "AND lease_until >= clock_timestamp()", ""),
    mutant("renew: no status", RENEW, "status = 'RUNNING'\n", "true\n"),
    mutant("renew: id alone", RENEW, RENEW_CONDITION, "$1::text IS NOT NULL"),
    mutant("cancel: any status", CANCEL, "AND status IN ('QUEUED', 'RUNNING')", ""),
    mutant(
        "cancel: a running task at once",
        CANCEL,
        "WHEN status = 'QUEUED' THEN 'CANCELED'",
        "WHEN true THEN 'CANCELED'",
    ),
    mutant("cancel: not noted", CANCEL, "cancel_requested OR status = 'RUNNING'", "cancel_requested"),
    mutant("settle: no lease_until", SETTLE, "AND lease_until < clock_timestamp()", ""),
    mutant("settle: no status", SETTLE, "status = 'RUNNING'\n", "true\n"),
    mutant("settle: attempts left", SETTLE, "lease_epoch >= $1", "lease_epoch >= $1::bigint - 1"),
    mutant("settle: cancelled ones are left", SETTLE, "(cancel_requested OR lease_epoch >= $1)", "lease_epoch >= $1"),
    mutant(
        "settle: a cancelled one is FAILED",
        SETTLE,
        "CASE WHEN cancel_requested THEN 'CANCELED' ELSE 'FAILED' END",
        "'FAILED'",
    ),
];

const EFFECT_CONDITION: &str = "AND status = 'RUNNING'
           AND lease_owner = $2
           AND lease_epoch = $3
           AND lease_until >= clock_timestamp()";
const FINISH_LEASE: &str = "AND (task.lease_until IS NULL OR task.lease_until >= clock_timestamp())";
const FINISH_CONDITION: &str = "AND task.status = 'RUNNING'
           AND task.lease_owner = $1
           AND task.lease_epoch = done.epoch
           AND (task.lease_until IS NULL OR task.lease_until >= clock_timestamp())";
const RENEW_CONDITION: &str = "status = 'RUNNING'
               AND lease_owner = $1
               AND lease_epoch = held.epoch
               AND lease_until >= clock_timestamp()";

#[test]
fn each_mutant_of_the_sql_breaks_a_law() {
    let database = Database::with_schema();
    let mut survivors = Vec::new();
    for Mutant { name, statement, from, to } in MUTANTS {
        let mut texts = Texts::of_the_program();
        let text = statement(&mut texts);
        assert_eq!(text.matches(from).count(), 1, "{name}: {from:?} must be in the statement once:{text}");
        *text = text.replace(from, to);
        let caught = all_settings()
            .into_iter()
            .find_map(|(setting, _)| Enumeration::of(&database, setting, Walk::Shared, &texts).err());
        match caught {
            Some(violation) => println!("{name}: {} after {:?}", violation.what, violation.path),
            None => survivors.push(name),
        }
    }
    println!("{} mutants", MUTANTS.len());
    assert!(survivors.is_empty(), "nobody noticed: {survivors:?}");
}
