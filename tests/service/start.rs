//! Starting: configuration, schema, recovery, the instance lock.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use crate::harness::serve::{End, run};
use crate::harness::{Database, Gate, Serve, until};

/// From the end of one process to the readiness of the next.
const RESTART: Duration = Duration::from_secs(5);

#[test]
fn a_wrong_configuration_is_told_before_anything_listens_or_connects() {
    // A server that would notice a connection, and ports that are taken: exit code 1, if it tried to listen.
    let dir = format!("/tmp/taskstats-test-{}-untouched", std::process::id());
    std::fs::create_dir(&dir).expect("a fresh directory");
    let server = UnixListener::bind(format!("{dir}/.s.PGSQL.5432")).expect("a socket");
    server.set_nonblocking(true).expect("a socket option");
    let dsn = format!("host={dir} user=postgres dbname=untouched");
    let taken = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let [listen, admin] = taken.each_ref().map(|port| port.local_addr().expect("bound").to_string());
    for (args, said) in [
        (&["--admin", "0.0.0.0:0"][..], r#"--admin "0.0.0.0:0""#),
        (&["--listen", "nowhere"], r#"--listen "nowhere""#),
        (&["--workers", "0"], r#"--workers "0""#),
        (&["--workers", "many"], r#"--workers "many""#),
        (&["--queue", "-1"], r#"--queue "-1""#),
        (&["--max-words", "x"], r#"--max-words "x""#),
        (&["--db-timeout", "2"], r#"--db-timeout "2""#),
        (&["--drain-timeout", "0s"], r#"--drain-timeout "0s""#),
        (&["--dsn", "host"], r#"--dsn "host""#),
        (&["--dsn", "port=5432"], r#"--dsn "port=5432""#),
        (&["--data", ""], r#"--data "": must not be empty"#),
        (&["--dsn"], "--dsn needs a value"),
        (&["--no-such", "1"], "--no-such"),
        (&["stray"], "stray"),
    ] {
        let output = run(&[&["serve", "--dsn", &dsn, "--listen", &listen, "--admin", &admin], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(said), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        let connected = server.accept().map_err(|error| error.kind());
        assert!(matches!(connected, Err(std::io::ErrorKind::WouldBlock)), "{args:?}: {connected:?}");
    }
    std::fs::remove_dir_all(&dir).expect("our own directory");
}

#[test]
fn an_older_table_is_upgraded_in_place() {
    let database = Database::new();
    database.run(
        "CREATE TABLE go_tasks (id text PRIMARY KEY, text text NOT NULL, status text NOT NULL,
                                words integer, bytes integer, runes integer);
         INSERT INTO go_tasks VALUES ('task[0]', 'Go one', 'SUCCEEDED', 2, 6, 6), ('task[7]', 'x', 'QUEUED', 0, 0, 0),
                                     ('legacy-x', 'mine', 'QUEUED', NULL, NULL, NULL), ('task[09]', 'y', 'RUNNING', 0, 0, 0)",
    );
    let mut serve = Serve::on(&database, &[]);
    assert_eq!(
        (serve.reported("failed"), serve.reported("queued"), serve.reported("next")),
        ("0".into(), "1".into(), "8".into())
    );
    let mut client = serve.client();
    client.wait_for("task[7]", "SUCCEEDED");
    assert_eq!(client.task("legacy-x")["status"], "QUEUED");
    assert_eq!(client.submit("Go one"), "task[8]");
    client.wait_for("task[8]", "SUCCEEDED");
    assert_eq!(serve.terminate(), End::Code(0));
    let rows = "SELECT id, status, words FROM go_tasks ORDER BY id";
    assert_eq!(
        database.rows(rows),
        "legacy-x|QUEUED task[09]|RUNNING|0 task[0]|SUCCEEDED|2 task[7]|SUCCEEDED|1 task[8]|SUCCEEDED|2"
    );
    // Applying it again, by hand and by a start, changes nothing.
    database.run(include_str!("../../schema.sql"));
    let again = Serve::on(&database, &[]);
    assert_eq!(again.reported("next"), "9");
}

#[test]
fn recovery_fails_what_a_killed_process_left_running_and_runs_the_rest() {
    let database = Database::with_schema();
    let mut serve = Serve::on(&database, &["--workers", "1", "--queue", "1"]);
    let mut client = serve.client();
    let gate = Gate::shut(&database, "SUCCEEDED");
    client.submit("dies running");
    gate.reached();
    client.submit("waits on");
    serve.kill();
    // At once: the dead process's backend still stands at the gate, with the row's lock in its hand.
    let mut serve = Serve::on(&database, &["--workers", "1", "--queue", "1"]);
    gate.open();
    assert!(serve.ready.ends_with("failed=1 queued=1 next=2"), "{}", serve.ready);
    let mut client = serve.client();
    let failed = client.task("task[0]");
    assert_eq!((&failed["status"], &failed["words"]), (&"FAILED".into(), &0.into()));
    assert_eq!(failed["failure_reason"], "process exited before worker completion");
    client.wait_for("task[1]", "SUCCEEDED");
    let before = database.rows("SELECT * FROM go_tasks ORDER BY id");
    serve.kill();
    let serve = Serve::on(&database, &[]);
    assert!(serve.ready.ends_with("failed=0 queued=0 next=2"), "{}", serve.ready);
    assert_eq!(database.rows("SELECT * FROM go_tasks ORDER BY id"), before);
    assert_eq!(serve.client().submit("next"), "task[2]");
}

#[test]
fn a_dead_process_s_claim_that_commits_after_the_next_start_leaves_nothing_running() {
    for _ in 0..5 {
        let database = Database::with_schema();
        let mut serve = Serve::on(&database, &["--workers", "1"]);
        let gate = Gate::shut(&database, "RUNNING");
        let id = serve.client().submit("claimed by the dead");
        gate.reached();
        serve.kill();
        // The server has not noticed yet: the claim still stands at the gate, and goes through it now.
        let serve = Serve::on(&database, &["--workers", "1"]);
        gate.open();
        let mut client = serve.client();
        until(&format!("{id} ends"), || client.task(&id).get("finished_at").is_some().then_some(()));
        let ended = database.rows("SELECT status, words, failure_reason FROM go_tasks");
        let by_the_dead = "FAILED|0|process exited before worker completion";
        assert!(ended == by_the_dead || ended == "SUCCEEDED|4", "{ended}");
    }
}

#[test]
fn opening_a_store_beside_a_working_instance_recovers_nothing() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let gate = Gate::shut(&database, "SUCCEEDED");
    let id = serve.client().submit("works");
    gate.reached();
    let other = database.store("another");
    other.apply_schema().expect("nothing to do");
    assert_eq!(database.task(&id), "RUNNING|0|0|0");
    gate.open();
    serve.client().wait_for(&id, "SUCCEEDED");
}

#[test]
fn a_second_instance_is_told_so_and_starts_once_the_first_is_gone() {
    let database = Database::with_schema();
    let mut first = Serve::on(&database, &["--workers", "1"]);
    let gate = Gate::shut(&database, "SUCCEEDED");
    let mut client = first.client();
    let (running, queued) = (client.submit("works"), client.submit("waits"));
    gate.reached();
    let rows = "SELECT * FROM go_tasks ORDER BY id";
    let before = database.rows(rows);
    let (end, said) = Serve::start(&database.dsn(), &[]).err().expect("must not start");
    assert_eq!(end, End::Code(5), "{said}");
    assert!(said.contains("another taskstats serve works on this database"), "{said}");
    assert_eq!(database.rows(rows), before, "a living instance's rows were recovered");
    let begun = Instant::now();
    first.kill();
    // The dead process's backend still stands at the gate.
    let second = Serve::on(&database, &["--workers", "1"]);
    assert!(begun.elapsed() < RESTART, "{:?}", begun.elapsed());
    assert!(second.ready.ends_with("failed=1 queued=1 next=2"), "{}", second.ready);
    gate.open();
    assert_eq!(database.task(&running), "FAILED|0|0|0");
    second.client().wait_for(&queued, "SUCCEEDED");
}

#[test]
fn a_database_that_is_not_there_is_told_and_ends_the_start() {
    let (end, said) = Serve::start("host=/nowhere user=nobody dbname=none", &[]).err().expect("must not start");
    assert_eq!(end, End::Code(1));
    assert!(said.contains("/nowhere") || said.contains("No such file"), "{said}");
}

#[test]
fn a_port_in_use_is_told_and_ends_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let database = Database::new();
    let (end, said) = Serve::start(&database.dsn(), &["--listen", &address]).err().expect("must not start");
    assert_eq!(end, End::Code(1));
    assert!(said.contains(&address) && said.contains("in use"), "{said}");
}

#[test]
fn a_recovery_that_fails_midway_is_rolled_back_and_starts_nothing() {
    let database = Database::with_schema();
    database.run(
        "INSERT INTO go_tasks (id, text, status) SELECT 'task[' || n || ']', 'left', 'RUNNING' FROM generate_series(0, 9) n;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not task[5]'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (OLD.id = 'task[5]') EXECUTE FUNCTION refuse()",
    );
    let (end, said) = Serve::start(&database.dsn(), &[]).err().expect("must not start");
    assert_eq!(end, End::Code(1));
    assert!(said.contains("recovery was rolled back") && said.contains("not task[5]"), "{said}");
    assert_eq!(database.rows("SELECT status, count(*) FROM go_tasks GROUP BY 1"), "RUNNING|10");
    database.run("DROP TRIGGER refuse ON go_tasks");
    assert_eq!(Serve::on(&database, &[]).reported("failed"), "10");
}

#[test]
fn recovery_leaves_leased_rows_alone() {
    let database = Database::with_schema();
    database.run(
        "INSERT INTO go_tasks (id, text, status, lease_owner, lease_epoch, lease_until) VALUES
           ('task[0]', 'live', 'RUNNING', 'other', 3, clock_timestamp() + interval '1 hour'),
           ('task[1]', 'expired', 'RUNNING', 'other', 1, clock_timestamp() - interval '1 hour'),
           ('task[2]', 'ours', 'RUNNING', 'serve', 1, NULL)",
    );
    let leased = "SELECT * FROM go_tasks WHERE id <> 'task[2]' ORDER BY id";
    let before = database.rows(leased);
    let serve = Serve::on(&database, &[]);
    assert!(serve.ready.ends_with("failed=1 queued=0 next=3"), "{}", serve.ready);
    assert_eq!(database.rows(leased), before);
    assert_eq!(database.task("task[2]"), "FAILED|0|0|0");
}

#[test]
fn killed_and_restarted_fifteen_times_each_start_finds_its_way() {
    for _ in 0..15 {
        let database = Database::with_schema();
        let mut serve = Serve::on(&database, &["--workers", "1", "--queue", "1"]);
        let mut client = serve.client();
        let gate = Gate::shut(&database, "SUCCEEDED");
        client.submit("dies running");
        gate.reached();
        client.submit("waits on");
        serve.kill();
        let begun = Instant::now();
        let serve = Serve::on(&database, &["--workers", "1", "--queue", "1"]);
        assert!(begun.elapsed() < RESTART, "{:?}", begun.elapsed());
        assert!(serve.ready.ends_with("failed=1 queued=1 next=2"), "{}", serve.ready);
        gate.open();
        let mut client = serve.client();
        assert_eq!(client.task("task[0]")["status"], "FAILED");
        client.wait_for("task[1]", "SUCCEEDED");
        assert_eq!(client.submit("next"), "task[2]");
    }
}

/// What a process in /proc tells of itself.
fn proc_file(serve: &Serve, name: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{}/{name}", serve.pid())).expect("the service runs");
    String::from_utf8(bytes).expect("no names but ours")
}

#[test]
fn the_process_looks_as_it_was_started() {
    let database = Database::new();
    let serve = Serve::on(&database, &["--workers", "4"]);
    assert_eq!(proc_file(&serve, "comm"), "taskstats\n");
    let arguments = proc_file(&serve, "cmdline");
    let arguments: Vec<&str> = arguments.split('\0').collect();
    assert!(arguments[0].ends_with("/taskstats") && arguments[1] == "serve", "{arguments:?}");
    assert_eq!(arguments[arguments.len() - 3..], ["--workers", "4", ""]);
}
