//! `taskstats lease`: chapter E08, line by line, on the real binary.

use std::process::{Child, Command, Output, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use taskstats::store::{Effect, Finish, LeasedTask, Store};
use taskstats::task::{Analysis, Counts, TaskId};

use crate::harness::serve::{BINARY, run, send_signal};
use crate::harness::{Database, until};

const ROW: &str = "SELECT status, words, lease_owner, lease_epoch FROM go_tasks";
const EFFECTS: &str = "SELECT task_id, words, lease_owner, lease_epoch FROM go_task_effects";
/// Every column, so that two equal answers mean that nothing was written.
const ALL: &str = "SELECT * FROM go_tasks";

/// A database with the task `Go one` in it, submitted by the command.
fn with_a_task() -> Database {
    let database = Database::with_schema();
    let output = run(&["lease", "submit", "--text", "Go one", "--dsn", &database.dsn()]);
    assert_eq!((output.status.code(), said(&output)), (Some(0), json!({"id": "task[0]"})), "{output:?}");
    database
}

/// `lease run` to its end.
fn run_as(database: &Database, worker: &str, flags: &[&str]) -> Output {
    run(&[&["lease", "run", "--worker", worker, "--dsn", &database.dsn()], flags].concat())
}

/// What it printed on stdout: one line of JSON.
fn said(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn done(worker: &str, epoch: i64, new: bool) -> Value {
    json!({"id": "task[0]", "worker": worker, "epoch": epoch, "new": new, "status": "SUCCEEDED", "words": 2})
}

#[test]
fn one_that_crashes_before_its_effect_is_taken_over_when_its_lease_is_over() {
    let database = with_a_task();
    let crashed = run_as(&database, "A", &["--ttl", "2s", "--crash", "before-effect"]);
    assert_eq!((crashed.status.code(), crashed.stdout.len()), (Some(72), 0), "{crashed:?}");
    assert_eq!((database.rows(ROW), database.rows(EFFECTS)), ("RUNNING|0|A|1".into(), String::new()));
    let before = database.rows(ALL);
    let early = run_as(&database, "B", &["--ttl", "2s"]);
    assert_eq!(database.rows("SELECT lease_until > clock_timestamp() FROM go_tasks"), "true", "B was within the lease");
    assert_eq!((early.status.code(), early.stdout.len()), (Some(3), 0), "{early:?}");
    assert_eq!(database.rows(ALL), before);
    database.wait_for_expiry("task[0]");
    let late = run_as(&database, "B", &["--ttl", "2s"]);
    assert_eq!((late.status.code(), said(&late)), (Some(0), done("B", 2, true)), "{late:?}");
    assert_eq!((database.rows(ROW), database.rows(EFFECTS)), ("SUCCEEDED|2|B|2".into(), "task[0]|2|B|2".into()));
}

#[test]
fn one_that_crashes_after_its_effect_leaves_it_to_be_found_and_not_written_twice() {
    let database = with_a_task();
    let crashed = run_as(&database, "A", &["--ttl", "2s", "--crash", "after-effect"]);
    assert_eq!((crashed.status.code(), crashed.stdout.len()), (Some(73), 0), "{crashed:?}");
    assert_eq!((database.rows(ROW), database.rows(EFFECTS)), ("RUNNING|0|A|1".into(), "task[0]|2|A|1".into()));
    database.wait_for_expiry("task[0]");
    let late = run_as(&database, "B", &["--ttl", "2s"]);
    assert_eq!((late.status.code(), said(&late)), (Some(0), done("B", 2, false)), "{late:?}");
    assert_eq!((database.rows(ROW), database.rows(EFFECTS)), ("SUCCEEDED|2|B|2".into(), "task[0]|2|A|1".into()));
}

#[test]
fn of_two_connections_on_one_task_one_wins_in_each_of_1000_rounds() {
    const ROUNDS: usize = 1_000;
    let database = Database::with_schema();
    let stores = ["left", "right"].map(|owner| database.leased_store(owner, Duration::from_secs(60), 5));
    let ids: Vec<TaskId> = (0..ROUNDS).map(|n| stores[0].submit(format!("text {n}")).expect("submit")).collect();
    let barrier = Barrier::new(2);
    let wins = |store: &Store| -> Vec<Option<i64>> {
        let claim = |id| {
            barrier.wait();
            store.claim(id).expect("an answer").map(|claimed| claimed.epoch)
        };
        ids.iter().map(claim).collect()
    };
    for epoch in 1..=2 {
        let (left, right) = thread::scope(|scope| {
            let (left, right) = (scope.spawn(|| wins(&stores[0])), scope.spawn(|| wins(&stores[1])));
            (left.join().expect("no panic"), right.join().expect("no panic"))
        });
        for (round, pair) in left.into_iter().zip(right).enumerate() {
            assert!(matches!(pair, (Some(won), None) | (None, Some(won)) if won == epoch), "round {round}: {pair:?}");
        }
        assert_eq!(database.rows("SELECT DISTINCT status, lease_epoch FROM go_tasks"), format!("RUNNING|{epoch}"));
        // The second time around they fight for what an owner has let expire.
        database.run("UPDATE go_tasks SET lease_until = clock_timestamp() - interval '1 second'");
    }
}

#[test]
fn forced_writes_under_an_old_epoch_are_refused() {
    let database = with_a_task();
    let ttl = Duration::from_secs(60);
    // A second process under A's name is another owner all the same: its epoch says so.
    for (taker, id) in [("B", "task[0]"), ("A", "task[1]")] {
        let (a, b) = (database.leased_store("A", ttl, 5), database.leased_store(taker, ttl, 5));
        if id == "task[1]" {
            a.submit("Go one".into()).expect("submit");
        }
        let (id, analysis) = (TaskId::new(id), Analysis::Counted(Counts { words: 9, bytes: 9, runes: 9 }));
        let old = LeasedTask { id: id.clone(), epoch: a.claim(&id).expect("an answer").expect("ours").epoch };
        database.expire(id.as_str());
        assert_eq!(b.claim(&id).expect("an answer").expect("taken over").epoch, 2);
        let stale = Finish { id: id.clone(), epoch: old.epoch, analysis };
        let refused = |when: &str| {
            let before = (database.rows(ALL), database.rows(EFFECTS));
            assert_eq!(a.write_effect(&old, 9), Ok(Effect::LeaseLost), "{when}");
            assert_eq!(a.finish(&stale), Ok(None), "{when}");
            assert_eq!((database.rows(ALL), database.rows(EFFECTS)), before, "{when}");
        };
        refused("B has claimed");
        let ours = LeasedTask { id: id.clone(), epoch: 2 };
        assert_eq!(b.write_effect(&ours, 2), Ok(Effect::New));
        refused("B has recorded its effect");
        let counts = Counts { words: 2, bytes: 6, runes: 6 };
        b.finish(&Finish { id: id.clone(), epoch: 2, analysis: Analysis::Counted(counts) }).expect("an answer");
        refused("B has finished");
        assert_eq!(database.task(id.as_str()), "SUCCEEDED|2|6|6");
    }
}

/// A `lease run` that waits at a point until its stdin ends.
struct Holding(Child);

impl Holding {
    fn at(database: &Database, point: &str, ttl: &str) -> Holding {
        let dsn = database.dsn();
        let args = ["lease", "run", "--worker", "A", "--ttl", ttl, "--hold", point, "--dsn", &dsn];
        // A test that fails takes it along, also when it is stopped.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", BINARY])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let holding = Holding(command.spawn().expect("the binary"));
        until("A has claimed", || (database.rows(ROW) == "RUNNING|0|A|1").then_some(()));
        holding
    }

    /// Ends its stdin, and waits for it.
    fn let_go(self) -> Output {
        self.0.wait_with_output().expect("its end")
    }
}

/// It knew that its lease was lost, said so and left what B had done as it was.
fn has_lost(database: &Database, output: &Output, before: &(String, String), effect: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(4), 0), "{stderr}");
    assert!(stderr.contains("A: lease lost: task[0]") && stderr.contains(effect), "{stderr}");
    assert_eq!(&(database.rows(ALL), database.rows(EFFECTS)), before);
}

#[test]
fn an_owner_held_past_its_lease_writes_nothing_and_says_so() {
    for (point, new, effect) in [
        ("before-effect", true, "effect refused, end refused"),
        ("after-effect", false, "effect recorded, end refused"),
    ] {
        let database = with_a_task();
        let a = Holding::at(&database, point, "60s");
        if point == "after-effect" {
            until("A's effect", || (!database.rows(EFFECTS).is_empty()).then_some(()));
        }
        database.expire("task[0]");
        let b = run_as(&database, "B", &[]);
        assert_eq!((b.status.code(), said(&b)), (Some(0), done("B", 2, new)), "{b:?}");
        let before = (database.rows(ALL), database.rows(EFFECTS));
        has_lost(&database, &a.let_go(), &before, effect);
    }
}

#[test]
fn an_owner_stopped_past_its_lease_wakes_up_to_have_lost_it() {
    let database = with_a_task();
    let a = Holding::at(&database, "before-effect", "1s");
    send_signal(a.0.id(), "STOP");
    database.wait_for_expiry("task[0]");
    let b = run_as(&database, "B", &[]);
    assert_eq!((b.status.code(), said(&b)), (Some(0), done("B", 2, true)), "{b:?}");
    let before = (database.rows(ALL), database.rows(EFFECTS));
    send_signal(a.0.id(), "CONT");
    has_lost(&database, &a.let_go(), &before, "effect refused, end refused");
}

#[test]
fn what_may_not_be_run_again_is_settled_and_not_claimed() {
    let database = Database::with_schema();
    database.run(
        "INSERT INTO go_tasks (id, text, status, lease_owner, lease_epoch, lease_until, cancel_requested) VALUES
           ('task[0]', 'deadly', 'RUNNING', 'gone', 5, clock_timestamp() - interval '1 hour', false),
           ('task[1]', 'unwanted', 'RUNNING', 'gone', 1, clock_timestamp() - interval '1 hour', true),
           ('task[2]', 'of a plain serve', 'RUNNING', 'serve', 1, NULL, false),
           ('task[3]', 'held', 'RUNNING', 'other', 1, clock_timestamp() + interval '1 hour', false)",
    );
    let others = "SELECT * FROM go_tasks WHERE id IN ('task[2]', 'task[3]') ORDER BY id";
    let before = database.rows(others);
    let output = run_as(&database, "B", &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(database.rows(others), before);
    let settled = "SELECT status, lease_epoch, failure_reason FROM go_tasks WHERE finished_at IS NOT NULL ORDER BY id";
    assert_eq!(database.rows(settled), "FAILED|5|5 owners died or lost their lease before completion CANCELED|1");
}
