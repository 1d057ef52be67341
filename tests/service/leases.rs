//! `serve --lease`: several instances on one database, and what becomes of the work of those that die.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use taskstats::store::{Cancelled, Store};
use taskstats::task::Analysis;

use crate::harness::inside::{Held, Inside};
use crate::harness::serve::End;
use crate::harness::{Database, PgCluster, Serve, stalled_since, until, until_within};

/// From the death of an owner to its task's next claim by an instance that has a worker free: the lease, which may have
/// been renewed just before, and this.
const NOTICED: Duration = Duration::from_secs(1);

/// A file that holds the analysers of a gated instance while it exists.
pub struct FileGate(PathBuf);

impl FileGate {
    pub fn shut(database: &Database) -> FileGate {
        FileGate::named(database, "gate")
    }

    /// One of several for the instances on one database.
    pub fn named(database: &Database, name: &str) -> FileGate {
        let file = format!("taskstats-{name}-{}-{}", std::process::id(), database.name());
        let gate = FileGate(std::env::temp_dir().join(file));
        gate.shut_again();
        gate
    }

    pub fn shut_again(&self) {
        File::create(&self.0).expect("a file");
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Opens it, if it is not open.
    pub fn open(&self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Drop for FileGate {
    fn drop(&mut self) {
        self.open();
    }
}

/// An instance whose analysers are held at `gate`.
fn held(database: &Database, gate: &FileGate, flags: &[&str]) -> Serve {
    Serve::gated(&database.dsn(), gate.path(), flags)
}

/// Waits until so many tasks are RUNNING.
pub fn until_running(database: &Database, tasks: usize) {
    until(&format!("{tasks} tasks are RUNNING"), || {
        let running = database.rows("SELECT count(*) FROM go_tasks WHERE status = 'RUNNING'");
        (running == tasks.to_string()).then_some(())
    });
}

/// A moment, by the database's clock and by ours.
struct Moment {
    clock: String,
    at: Instant,
}

impl Moment {
    fn now(database: &Database) -> Moment {
        stalled_since(Instant::now());
        Moment { clock: database.rows("SELECT clock_timestamp()"), at: Instant::now() }
    }

    /// How long after it, by the database's clock, the last claim was of those tasks that `which` names; less the time that
    /// the machine itself stood still.
    fn until_last_claim(&self, database: &Database, which: &str) -> Duration {
        let seconds = database.rows(&format!(
            "SELECT greatest(0, extract(epoch FROM max(started_at) - '{}'::timestamptz)) FROM go_tasks WHERE {which}",
            self.clock
        ));
        Duration::from_secs_f64(seconds.parse().expect("seconds")).saturating_sub(stalled_since(self.at))
    }
}

/// Each task's row with its effect, in the order of numbers.
const OUTCOME: &str = "SELECT status, t.words, t.lease_epoch AS epoch, e.words AS effect, e.lease_epoch AS effect_epoch
    FROM go_tasks t LEFT JOIN go_task_effects e ON task_id = id ORDER BY go_task_number(id)";

#[test]
fn what_a_killed_instance_had_is_taken_over_within_the_lease_and_a_second() {
    let database = Database::with_schema();
    let gate = FileGate::shut(&database);
    let mut worst = Duration::ZERO;
    for round in 0..3 {
        let mut a = held(&database, &gate, &["--lease", "2s", "--workers", "2"]);
        a.client().submit("Go one");
        a.client().submit("Go one");
        until_running(&database, 2);
        let b = Serve::on(&database, &["--lease", "2s"]);
        let killed = Moment::now(&database);
        a.kill();
        for n in 0..2 {
            b.client().wait_for(&format!("task[{}]", 2 * round + n), "SUCCEEDED");
        }
        worst = worst.max(killed.until_last_claim(&database, "true"));
    }
    assert_eq!(database.rows(OUTCOME), ["SUCCEEDED|2|2|2|2"; 6].join(" "));
    println!("worst takeover after a kill: {worst:?}, lease 2 s");
    assert!(worst <= Duration::from_secs(2) + NOTICED, "{worst:?}");
}

#[test]
fn an_idle_instance_learns_of_work_that_another_was_given() {
    let cluster = PgCluster::own();
    let database = Database::within(&cluster);
    database.store("schema").apply_schema().expect("schema");
    let gate = FileGate::shut(&database);
    let a = held(&database, &gate, &["--lease", "60s", "--workers", "1"]);
    a.client().submit("holds the only worker");
    until_running(&database, 1);
    let b = Serve::on(&database, &["--lease", "60s"]);
    let learns = |what: &str| {
        for _ in 0..5 {
            let submitted = Moment::now(&database);
            let id = a.client().submit("Go one");
            b.client().wait_for(&id, "SUCCEEDED");
            let learned = submitted.until_last_claim(&database, &format!("id = '{id}'"));
            assert!(learned <= NOTICED, "{what}: {learned:?}");
        }
    };
    learns("at first");
    for mode in ["fast", "immediate"] {
        cluster.stop(mode);
        cluster.start();
        for serve in [&a, &b] {
            until("ready again", || (serve.admin_client().get("/readyz").status == 200).then_some(()));
        }
        learns(mode);
    }
    assert_eq!(database.rows("SELECT status, lease_epoch FROM go_tasks WHERE id = 'task[0]'"), "RUNNING|1");
    gate.open();
    a.client().wait_for("task[0]", "SUCCEEDED");
}

#[test]
fn a_task_whose_owners_die_is_failed_and_the_others_flow_on() {
    let database = Database::with_schema();
    let gate = FileGate::shut(&database);
    let flags = ["--lease", "1s", "--workers", "1", "--max-attempts", "3"];
    let mut a = held(&database, &gate, &flags);
    let deadly = a.client().submit("kills its owner");
    for epoch in 1..=3 {
        until("it is claimed", || {
            let row = format!("SELECT status, lease_epoch FROM go_tasks WHERE id = '{deadly}'");
            (database.rows(&row) == format!("RUNNING|{epoch}")).then_some(())
        });
        a.kill();
        if epoch < 3 {
            a = held(&database, &gate, &flags);
        }
    }
    let b = Serve::on(&database, &flags);
    let mut client = b.client();
    let others: Vec<String> = (0..20).map(|_| client.submit("Go one")).collect();
    others.iter().for_each(|id| drop(client.wait_for(id, "SUCCEEDED")));
    let failed = client.wait_for(&deadly, "FAILED");
    assert_eq!(failed["failure_reason"], "3 owners died or lost their lease before completion");
    let row = format!("SELECT status, words, bytes, runes, lease_epoch FROM go_tasks WHERE id = '{deadly}'");
    assert_eq!(database.rows(&row), "FAILED|0|0|0|3");
    assert_eq!(database.rows(&format!("SELECT count(*) FROM go_task_effects WHERE task_id = '{deadly}'")), "0");
}

#[test]
fn what_cannot_be_settled_holds_nobody_else_up() {
    let database = Database::with_schema();
    database.run(
        "INSERT INTO go_tasks (id, text, status, lease_owner, lease_epoch, lease_until) VALUES
           ('task[0]', 'stuck', 'RUNNING', 'gone', 5, clock_timestamp() - interval '1 hour'),
           ('task[1]', 'expired', 'RUNNING', 'gone', 1, clock_timestamp() - interval '1 hour'),
           ('task[2]', 'queued', 'QUEUED', NULL, 0, NULL);
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status = 'FAILED') EXECUTE FUNCTION refuse()",
    );
    let serve = Serve::on(&database, &["--lease", "1s"]);
    serve.client().wait_for("task[1]", "SUCCEEDED");
    serve.client().wait_for("task[2]", "SUCCEEDED");
    assert_eq!(database.task("task[0]"), "RUNNING|0|0|0");
}

#[test]
fn a_cancel_through_another_instance_reaches_the_analyser() {
    let database = Database::with_schema();
    let (analyser, holder) = Held::pair();
    let a = Inside::leased(&database.dsn(), analyser, 1, Duration::from_secs(30));
    let id = a.service.submit("Go one".into()).expect("accepted").id;
    let stop = holder.begun.recv().expect("it begins");
    let b = Serve::on(&database, &["--lease", "30s"]);
    assert_eq!(b.client().cancel(id.as_str()).text("cancel"), "requested");
    until_within(Duration::from_secs(2), "the analyser is told", || stop.requested().then_some(()));
    assert_eq!(database.rows("SELECT status, cancel_requested FROM go_tasks"), "RUNNING|true");
    holder.results.send(Analysis::Stopped).expect("it waits");
    b.client().wait_for(id.as_str(), "CANCELED");
    assert_eq!(a.service.cancel(&id), Ok(Cancelled::TooLate));
    assert_eq!(database.rows(OUTCOME), "CANCELED|0|1");
}

#[test]
fn a_cancelled_task_whose_owner_died_is_canceled_and_never_run_again() {
    let database = Database::with_schema();
    let gate = FileGate::shut(&database);
    let mut a = held(&database, &gate, &["--lease", "1s", "--workers", "1"]);
    let id = a.client().submit("Go one");
    until_running(&database, 1);
    let b = Serve::on(&database, &["--lease", "1s"]);
    assert_eq!(b.client().cancel(&id).text("cancel"), "requested");
    let claimed = database.rows("SELECT started_at, lease_owner, lease_epoch FROM go_tasks");
    a.kill();
    b.client().wait_for(&id, "CANCELED");
    assert_eq!(database.rows("SELECT started_at, lease_owner, lease_epoch FROM go_tasks"), claimed);
    assert_eq!(database.rows(OUTCOME), "CANCELED|0|1");
    assert!(b.stderr().iter().any(|line| line.contains("task[0] is CANCELED")), "{:?}", b.stderr());
}

#[test]
fn many_live_rows_do_not_hide_an_expired_one() {
    let database = Database::with_schema();
    database.run(
        "INSERT INTO go_tasks (id, text, status, lease_owner, lease_epoch, lease_until)
         SELECT 'task[' || n || ']', 'live', 'RUNNING', 'other', 1, clock_timestamp() + interval '1 hour'
           FROM generate_series(0, 2999) n;
         INSERT INTO go_tasks (id, text, status, lease_owner, lease_epoch, lease_until)
         VALUES ('task[3000]', 'Go one', 'RUNNING', 'gone', 1, clock_timestamp() + interval '1 hour')",
    );
    let serve = Serve::on(&database, &["--lease", "30s"]);
    let live = "SELECT md5(string_agg(go_tasks::text, ',' ORDER BY id)) FROM go_tasks WHERE id <> 'task[3000]'";
    let before = database.rows(live);
    let over = Moment::now(&database);
    database.expire("task[3000]");
    serve.client().wait_for("task[3000]", "SUCCEEDED");
    assert!(over.until_last_claim(&database, "id = 'task[3000]'") <= NOTICED);
    assert_eq!(database.rows(live), before);
}

#[test]
fn a_graceful_stop_leaves_its_queue_to_others_and_keeps_its_leases() {
    let database = Database::with_schema();
    let gate = FileGate::shut(&database);
    let mut a = held(&database, &gate, &["--lease", "1s", "--workers", "1"]);
    let mut client = a.client();
    client.submit("held");
    until_running(&database, 1);
    let queued: Vec<String> = (0..4).map(|_| client.submit("Go one")).collect();
    drop(client);
    a.signal("TERM");
    until("it drains", || a.stderr().iter().any(|line| line.contains("draining")).then_some(()));
    let (b, stopped) = (Serve::on(&database, &["--lease", "1s"]), Moment::now(&database));
    queued.iter().for_each(|id| drop(b.client().wait_for(id, "SUCCEEDED")));
    assert!(stopped.until_last_claim(&database, "words = 2") <= NOTICED, "the queue waits for nobody's lease");
    // Three leases long it goes on renewing what it still holds.
    let claimed = database.rows("SELECT started_at FROM go_tasks WHERE id = 'task[0]'");
    until("its lease was renewed many times", || {
        let renewed = format!(
            "SELECT lease_until > '{claimed}'::timestamptz + interval '4 s' FROM go_tasks WHERE id = 'task[0]'"
        );
        (database.rows(&renewed) == "true").then_some(())
    });
    gate.open();
    assert_eq!(a.wait(), End::Code(0));
    assert_eq!(database.rows(OUTCOME), format!("SUCCEEDED|1|1|1|1 {}", ["SUCCEEDED|2|1|2|1"; 4].join(" ")));
}

#[test]
fn instances_that_start_together_on_an_empty_database_all_work() {
    let database = Database::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut serve = Serve::on(&database, &["--lease", "30s"]);
                let ids: Vec<String> = (0..10).map(|_| serve.client().submit("Go one")).collect();
                ids.iter().for_each(|id| drop(serve.client().wait_for(id, "SUCCEEDED")));
                assert_eq!(serve.terminate(), End::Code(0));
            });
        }
    });
    assert_eq!(database.rows("SELECT count(*), max(go_task_number(id)) FROM go_tasks"), "40|39");
    assert_eq!(database.rows("SELECT count(*) FROM go_task_effects"), "40");
}

/// The next number, as far as the sequence knows.
fn next_number(database: &Database) -> i64 {
    database.rows("SELECT last_value + is_called::int FROM go_task_numbers").parse().expect("a number")
}

#[test]
fn joining_never_moves_the_numbers_back_while_others_take_them() {
    let database = Database::with_schema();
    let stores: Vec<Store> = (0..4).map(|n| database.leased_store(&format!("{n}"), NOTICED, 5)).collect();
    for round in 0..25 {
        // Another program's row, far ahead: all of them find that the sequence has to be moved.
        let ahead = next_number(&database) + 1_000;
        database.run(&format!("INSERT INTO go_tasks (id, text, status) VALUES ('task[{ahead}]', 'x', 'SUCCEEDED')"));
        thread::scope(|scope| {
            for store in &stores {
                scope.spawn(move || {
                    assert!(store.join().expect("joined").next > ahead, "round {round}");
                    store.join().expect("joined");
                });
                scope.spawn(move || {
                    for _ in 0..10 {
                        // A number given twice is a row refused.
                        store.submit("Go one".into()).unwrap_or_else(|error| panic!("round {round}: {error}"));
                    }
                });
            }
        });
        assert!(next_number(&database) > ahead, "round {round}");
    }
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks WHERE status = 'QUEUED'"), "1000");
}
