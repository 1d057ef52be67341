//! `taskstats lease`: chapter E08's experiment. One process claims one task under a lease, records its effect, then commits
//! the terminal state: two commit points on purpose, with a place to die or to be held before each.

use std::io::Read;
use std::time::Duration;

use lexopt::Arg;
use serde_json::json;

use super::database::{DATA_FLAG, DB_TIMEOUT_FLAG, DSN_FLAG, Database};
use super::exit::{self, Failure};
use super::flags::{Flag, Flags, duration, number};
use crate::limits::{LEASE_ATTEMPTS, LEASE_LOOK};
use crate::log;
use crate::store::{Claimed, Effect, Finish, Lease, LeasedTask, Store, StoreError, owner_name};
use crate::task::{Analyser, Analysis, CountAnalyser, Status, Stop, TaskId};

const USAGE: &str = "\
usage: taskstats lease submit --text TEXT [FLAGS]
       taskstats lease run --worker NAME [FLAGS]

submit stores one task. run claims one task (queued, or running under an expired lease), counts it, records its effect and,
in a second transaction, its end.

exit codes: 0 done, 3 nothing to claim, 4 lease lost, 72 crashed before the effect, 73 crashed after it";

const SUBMIT_FLAGS: &[Flag] =
    &[Flag { name: "text", value: "TEXT", help: "the text" }, DSN_FLAG, DATA_FLAG, DB_TIMEOUT_FLAG];

const RUN_FLAGS: &[Flag] = &[
    Flag { name: "worker", value: "NAME", help: "who claims" },
    Flag { name: "ttl", value: "TIME", help: "how long the claim holds (30s)" },
    MAX_ATTEMPTS_FLAG,
    Flag { name: "crash", value: "WHERE", help: "end at once: before-effect (72) or after-effect (73)" },
    Flag { name: "hold", value: "WHERE", help: "wait for the end of stdin: before-effect or after-effect" },
    DSN_FLAG,
    DATA_FLAG,
    DB_TIMEOUT_FLAG,
];

/// `--max-attempts`
pub const MAX_ATTEMPTS_FLAG: Flag =
    Flag { name: "max-attempts", value: "N", help: "a task fails when so many owners let its lease expire (5)" };

/// The value of `--max-attempts`.
pub fn max_attempts(flags: &Flags) -> Result<i64, Failure> {
    Ok(flags.get("max-attempts", number(1..=1_000_000))?.map_or(LEASE_ATTEMPTS, |n| n as i64))
}

/// Runs `lease` with the arguments that follow it.
pub fn run(args: &mut lexopt::Parser) -> Result<(), Failure> {
    match args.next().map_err(Failure::usage)? {
        Some(Arg::Value(action)) if action == "submit" => submit(args),
        Some(Arg::Value(action)) if action == "run" => run_one(args),
        Some(Arg::Long("help") | Arg::Short('h')) => {
            super::say(USAGE);
            Ok(())
        }
        Some(Arg::Value(action)) => Err(Failure::usage(format!("lease: unknown action {action:?}\n\n{USAGE}"))),
        Some(other) => Err(Failure::usage(format!("lease: {}\n\n{USAGE}", other.unexpected()))),
        None => Err(Failure::usage(format!("lease: say what to do: submit or run\n\n{USAGE}"))),
    }
}

fn submit(args: &mut lexopt::Parser) -> Result<(), Failure> {
    let Some(flags) = Flags::read(args, USAGE, SUBMIT_FLAGS)? else { return Ok(()) };
    let text = required(&flags, "text", |text| {
        if text.contains('\0') { Err("U+0000 cannot be stored".into()) } else { Ok(text.to_owned()) }
    })?;
    let database = Database::read(&flags)?;
    let owner = owner_name().map_err(|error| Failure::failed(format!("no name for this process: {error}")))?;
    let store = database.ready(owner, None)?;
    store.join().map_err(|error| trouble("next number", &error))?;
    let id = store.submit(text).map_err(|error| trouble("submit", &error))?;
    super::say(&json!({"id": id.as_str()}).to_string());
    Ok(())
}

/// Where a run can be made to die or to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    BeforeEffect,
    AfterEffect,
}

/// One run, as its flags describe it.
struct Run {
    worker: String,
    lease: Lease,
    crash: Option<Point>,
    hold: Option<Point>,
}

fn run_one(args: &mut lexopt::Parser) -> Result<(), Failure> {
    let Some(flags) = Flags::read(args, USAGE, RUN_FLAGS)? else { return Ok(()) };
    let run = Run {
        worker: required(&flags, "worker", name)?,
        lease: Lease {
            ttl: flags.get("ttl", duration)?.unwrap_or(Duration::from_secs(30)),
            max_attempts: max_attempts(&flags)?,
            effect_at_end: false,
        },
        crash: flags.get("crash", point)?,
        hold: flags.get("hold", point)?,
    };
    let store = Database::read(&flags)?.ready(run.worker.clone(), Some(run.lease))?;
    let Some((id, claimed)) = claim_one(&store)? else {
        let message = format!("{}: nothing to claim", run.worker);
        return Err(Failure { code: exit::NOTHING_TO_CLAIM, message });
    };
    run.work(&store, &id, &claimed)
}

/// Claims a task: first one whose owner is gone, else the oldest that waits. None: there is neither.
fn claim_one(store: &Store) -> Result<Option<(TaskId, Claimed)>, Failure> {
    for (id, status) in store.settle_expired().map_err(|error| trouble("settling expired tasks", &error))? {
        log::line(format_args!("{id} is {status}: its owners are gone, and it is not run again"));
    }
    loop {
        let mut candidates = store.expired(LEASE_LOOK).map_err(|error| trouble("looking for expired tasks", &error))?;
        let queued = store
            .queued_after(-1, LEASE_LOOK, Duration::ZERO)
            .map_err(|error| trouble("looking for queued tasks", &error))?;
        candidates.extend(queued);
        if candidates.is_empty() {
            return Ok(None);
        }
        for id in candidates {
            if let Some(claimed) = store.claim(&id).map_err(|error| trouble("claim", &error))? {
                return Ok(Some((id, claimed)));
            }
        }
        // Others won all of these, so each such round is somebody's progress.
    }
}

impl Run {
    fn work(&self, store: &Store, id: &TaskId, claimed: &Claimed) -> Result<(), Failure> {
        let Analysis::Counted(counts) = CountAnalyser::default().analyse(&claimed.text, &Stop::default()) else {
            return Err(Failure::failed(format!("{id}: the count ended without counts")));
        };
        let task = LeasedTask { id: id.clone(), epoch: claimed.epoch };
        self.pass(Point::BeforeEffect, id)?;
        let effect = store.write_effect(&task, counts.words).map_err(|error| trouble("effect", &error))?;
        self.pass(Point::AfterEffect, id)?;
        let finish = Finish { id: id.clone(), epoch: claimed.epoch, analysis: Analysis::Counted(counts) };
        let status = store.finish(&finish).map_err(|error| trouble("finish", &error))?;
        let (Some(status), Effect::New | Effect::Known) = (status, effect) else {
            return Err(self.lease_lost(&task, effect, status));
        };
        let words = if status == Status::Succeeded { counts.words } else { 0 };
        super::say(
            &json!({"id": id.as_str(), "worker": self.worker, "epoch": claimed.epoch, "new": effect == Effect::New,
                    "status": status.as_str(), "words": words})
            .to_string(),
        );
        Ok(())
    }

    /// Dies or waits here if that was asked for.
    fn pass(&self, here: Point, id: &TaskId) -> Result<(), Failure> {
        if self.hold == Some(here) {
            log::line(format_args!("{}: holding {id} until stdin ends", self.worker));
            std::io::stdin()
                .read_to_end(&mut Vec::new())
                .map_err(|error| Failure::failed(format!("stdin: {error}")))?;
        }
        if self.crash == Some(here) {
            let (code, when) = match here {
                Point::BeforeEffect => (exit::CRASHED_BEFORE_EFFECT, "before"),
                Point::AfterEffect => (exit::CRASHED_AFTER_EFFECT, "after"),
            };
            log::line(format_args!("{}: {id}: crashing {when} the effect", self.worker));
            // At once: nothing is given back, no connection is closed in order.
            std::process::exit(i32::from(code));
        }
        Ok(())
    }

    fn lease_lost(&self, task: &LeasedTask, effect: Effect, status: Option<Status>) -> Failure {
        let effect = if effect == Effect::LeaseLost { "refused" } else { "recorded" };
        let end = if status.is_none() { "refused" } else { "committed" };
        let (worker, id, epoch) = (&self.worker, &task.id, task.epoch);
        let message =
            format!("{worker}: lease lost: {id} is not ours any more under epoch {epoch}: effect {effect}, end {end}");
        Failure { code: exit::LEASE_LOST, message }
    }
}

fn required<T>(flags: &Flags, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Failure> {
    flags.get(name, parse)?.ok_or_else(|| Failure::usage(format!("lease: --{name} is missing; see --help")))
}

fn name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\0') { Err("must be a name".into()) } else { Ok(text.to_owned()) }
}

fn point(text: &str) -> Result<Point, String> {
    match text {
        "before-effect" => Ok(Point::BeforeEffect),
        "after-effect" => Ok(Point::AfterEffect),
        _ => Err("must be before-effect or after-effect".into()),
    }
}

fn trouble(step: &str, error: &StoreError) -> Failure {
    Failure::failed(format!("lease: {step}: {error}"))
}
