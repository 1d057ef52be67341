//! Claims: refused, contended, cancelled.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::serve::End;
use crate::harness::{Database, Serve, stalled_since, until};
use taskstats::task::TaskId;

/// A trigger that raises an error on the way to a status.
fn refuse(database: &Database, name: &str, status: &str) {
    database.run(&format!(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no %', NEW.status; END $$;
         CREATE TRIGGER {name} BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status = '{status}') EXECUTE FUNCTION refuse()"
    ));
}

const UNCLAIMABLE: &str = "worker could not claim task";

#[test]
fn a_refused_claim_fails_the_task_without_analysing_it() {
    let database = Database::with_schema();
    refuse(&database, "no_claim", "RUNNING");
    let serve = Serve::on(&database, &["--workers", "1"]);
    let mut client = serve.client();
    let id = client.submit("Go one");
    let task = client.wait_for(&id, "FAILED");
    assert_eq!(task["failure_reason"], UNCLAIMABLE);
    let row = "SELECT status, words, bytes, runes, lease_epoch, started_at IS NULL AS never FROM go_tasks";
    assert_eq!(database.rows(row), "FAILED|0|0|0|0|true");
    database.run("DROP TRIGGER no_claim ON go_tasks");
    let next = client.submit("Go one");
    client.wait_for(&next, "SUCCEEDED");
}

#[test]
fn the_failing_write_is_retried_until_it_commits() {
    let database = Database::with_schema();
    refuse(&database, "no_claim", "RUNNING");
    refuse(&database, "no_fail", "FAILED");
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "0"]);
    let mut client = serve.client();
    let id = client.submit("Go one");
    until("two tries", || {
        (serve.stderr().iter().filter(|line| line.contains("failing it")).count() >= 2).then_some(())
    });
    assert_eq!(database.task(&id), "QUEUED|0|0|0");
    assert_eq!(client.post_text("no slot").status, 503, "the worker's slot must be kept");
    database.run("DROP TRIGGER no_fail ON go_tasks");
    stalled_since(Instant::now());
    let begun = Instant::now();
    assert_eq!(client.wait_for(&id, "FAILED")["failure_reason"], UNCLAIMABLE);
    let took = begun.elapsed().saturating_sub(stalled_since(begun));
    assert!(took < Duration::from_secs(1), "the longest pause is 250 ms: {took:?}");
}

#[test]
fn a_cancel_ends_the_retries_and_its_state_stays() {
    let database = Database::with_schema();
    refuse(&database, "no_claim", "RUNNING");
    refuse(&database, "no_fail", "FAILED");
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "0"]);
    let mut client = serve.client();
    let id = client.submit("Go one");
    until("a try", || serve.stderr().iter().any(|line| line.contains("failing it")).then_some(()));
    assert_eq!(client.cancel(&id).text("cancel"), "canceled");
    database.run("DROP TRIGGER no_fail ON go_tasks; DROP TRIGGER no_claim ON go_tasks");
    until("the slot is free", || (client.post_text("next").status == 202).then_some(()));
    assert_eq!(database.task(&id), "CANCELED|0|0|0");
}

#[test]
fn sigterm_ends_the_retries_and_the_task_stays_queued() {
    let database = Database::with_schema();
    refuse(&database, "no_claim", "RUNNING");
    refuse(&database, "no_fail", "FAILED");
    let mut serve = Serve::on(&database, &["--workers", "1"]);
    let id = serve.client().submit("Go one");
    until("a try", || serve.stderr().iter().any(|line| line.contains("failing it")).then_some(()));
    let begun = Instant::now();
    assert_eq!(serve.terminate(), End::Code(0));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(database.task(&id), "QUEUED|0|0|0");
    database.run("DROP TRIGGER no_fail ON go_tasks; DROP TRIGGER no_claim ON go_tasks");
    let serve = Serve::on(&database, &[]);
    serve.client().wait_for(&id, "SUCCEEDED");
}

#[test]
fn a_failing_write_that_hangs_is_given_up_and_tried_again() {
    let database = Database::with_schema();
    refuse(&database, "no_claim", "RUNNING");
    let mut holder = database.connect();
    holder.batch_execute("CREATE SEQUENCE tries; SELECT pg_advisory_lock(7)").expect("a lock");
    // No lock_timeout: only the bound on the whole statement can end it. A sequence counts what is rolled back, too.
    database.run(
        "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             PERFORM nextval('tries'), set_config('lock_timeout', '0', true);
             PERFORM pg_advisory_xact_lock_shared(7);
             RETURN NEW;
         END $$;
         CREATE TRIGGER hang BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status = 'FAILED') EXECUTE FUNCTION hang()",
    );
    let serve = Serve::on(&database, &["--workers", "1"]);
    let mut client = serve.client();
    let id = client.submit("Go one");
    let tries = |least: usize| {
        until(&format!("{least} tries"), || {
            let tries = database.rows("SELECT last_value FROM tries WHERE is_called");
            (tries.parse().unwrap_or(0) >= least).then(Instant::now)
        })
    };
    let (first, third) = (tries(1), tries(3));
    let (pause, stalled) = ((third - first) / 2, stalled_since(first));
    assert!(pause > Duration::from_millis(1_900), "two seconds for SQL are not all used: {pause:?}");
    assert!(pause < Duration::from_millis(2_000 + 250 + 500) + stalled, "more than two seconds for SQL: {pause:?}");
    assert_eq!(database.task(&id), "QUEUED|0|0|0");
    drop(holder);
    assert_eq!(client.wait_for(&id, "FAILED")["failure_reason"], UNCLAIMABLE);
}

#[test]
fn a_state_that_came_meanwhile_is_never_overwritten() {
    let database = Database::with_schema();
    refuse(&database, "no_claim", "RUNNING");
    refuse(&database, "no_fail", "FAILED");
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "0"]);
    let mut client = serve.client();
    let id = client.submit("Go one");
    until("a try", || serve.stderr().iter().any(|line| line.contains("failing it")).then_some(()));
    database.run("UPDATE go_tasks SET status = 'SUCCEEDED', words = 7, finished_at = clock_timestamp()");
    database.run("DROP TRIGGER no_fail ON go_tasks; DROP TRIGGER no_claim ON go_tasks");
    until("the slot is free", || (client.post_text("next").status == 202).then_some(()));
    assert_eq!(database.task(&id), "SUCCEEDED|7|0|0");
}

#[test]
fn a_refused_finish_is_retried_and_the_work_not_repeated() {
    let database = Database::with_schema();
    refuse(&database, "no_success", "SUCCEEDED");
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "0"]);
    let mut client = serve.client();
    let id = client.submit("Go one");
    until("two tries", || (serve.stderr().iter().filter(|line| line.contains("finish:")).count() >= 2).then_some(()));
    assert_eq!(database.task(&id), "RUNNING|0|0|0");
    assert_eq!(client.post_text("no slot").status, 503, "the worker's slot must be kept");
    database.run("DROP TRIGGER no_success ON go_tasks");
    client.wait_for(&id, "SUCCEEDED");
    assert_eq!(database.rows("SELECT status, words, lease_epoch FROM go_tasks"), "SUCCEEDED|2|1");
}

#[test]
fn a_finish_that_lost_its_row_leaves_it_as_it_is() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "0"]);
    let mut client = serve.client();
    // Another owner's epoch, and a terminal state: neither may be touched.
    for taken in ["lease_epoch = 2", "status = 'FAILED', failure_reason = 'by hand'"] {
        refuse(&database, "no_success", "SUCCEEDED");
        let id =
            until("a free slot", || Some(client.post_text("Go one")).filter(|reply| reply.status == 202)).text("id");
        until("it runs", || database.task(&id).starts_with("RUNNING").then_some(()));
        database.run(&format!("UPDATE go_tasks SET {taken} WHERE id = '{id}'"));
        let row = format!("SELECT * FROM go_tasks WHERE id = '{id}'");
        let before = database.rows(&row);
        let said = format!("{id}: lease lost");
        until("the loss is told", || serve.stderr().iter().any(|line| line.contains(&said)).then_some(()));
        database.run("DROP TRIGGER no_success ON go_tasks");
        assert_eq!(database.rows(&row), before);
    }
}

/// Statements in this database that wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'active' AND wait_event_type = 'Lock'";

#[test]
fn of_two_claims_of_one_task_exactly_one_wins() {
    let database = Database::with_schema();
    let stores = [database.store("left"), database.store("right")];
    for round in 0..100 {
        let id = stores[0].submit(format!("text {round}")).expect("submit");
        // Both stand before the row when it is let go: neither comes first by starting first.
        let mut locker = database.connect();
        let mut lock = locker.transaction().expect("begin");
        lock.execute("SELECT FROM go_tasks WHERE id = $1 FOR UPDATE", &[&id.as_str()]).expect("lock");
        let claim = |store: &taskstats::store::Store, id: &TaskId| store.claim(id).expect("an answer").is_some();
        let wins = std::thread::scope(|scope| {
            let left = scope.spawn(|| claim(&stores[0], &id));
            let right = scope.spawn(|| claim(&stores[1], &id));
            until("both wait for the row", || (database.rows(WAITING) == "2").then_some(()));
            lock.rollback().expect("rollback");
            usize::from(left.join().expect("no panic")) + usize::from(right.join().expect("no panic"))
        });
        assert_eq!(wins, 1, "round {round}");
        assert_eq!(database.rows(&format!("SELECT lease_epoch FROM go_tasks WHERE id = '{id}'")), "1");
    }
}

#[test]
fn a_claim_that_waits_for_a_locked_row_does_not_hold_up_the_next() {
    let database = Database::with_schema();
    let store = Arc::new(database.store("alone"));
    let [locked, free] = [(); 2].map(|()| store.submit("Go one".into()).expect("a row"));
    let mut locker = database.connect();
    let mut lock = locker.transaction().expect("begin");
    lock.execute("SELECT FROM go_tasks WHERE id = $1 FOR UPDATE", &[&locked.as_str()]).expect("lock");
    let (claimer, claim) = (store.clone(), locked.clone());
    let waits = thread::spawn(move || claimer.claim(&claim));
    until("the claim waits", || (database.rows(WAITING) == "1").then_some(()));
    assert!(store.claim(&free).expect("an answer").is_some());
    assert!(!waits.is_finished(), "the next claim came after the end of the one that waits");
    lock.rollback().expect("rollback");
    assert!(waits.join().expect("no panic").expect("an answer").is_some());
}
