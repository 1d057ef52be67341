//! The database is away, stopped, locked or read-only: every answer is bounded and honest, and all comes back by itself.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::serve::{End, send_signal};
use crate::harness::{Database, PgCluster, Serve, until_within};

/// Database timeout plus one second (DESIGN section 3).
const BOUND: Duration = Duration::from_secs(3);
/// From the database's return to the first good answer.
const RETURN: Duration = Duration::from_secs(2);

/// Submits and looks up from several clients at once; every answer is a 503 in time. Says how many submissions were told
/// that their outcome is unknown: so many may be stored, and no more.
#[track_caller]
fn all_refused_in_time(serve: &Serve, id: &str) -> usize {
    let clients: Vec<_> = (0..12)
        .map(|number| {
            let (mut client, path) = (serve.client(), format!("/tasks/{id}"));
            thread::spawn(move || {
                let start = Instant::now();
                let reply = if number % 2 == 0 { client.post_text("db lost") } else { client.get(&path) };
                assert!(start.elapsed() < BOUND, "{:?}", start.elapsed());
                assert_eq!(reply.status, 503, "{reply:?}");
                (number % 2 == 0 && reply.text("outcome") == "unknown").then_some(())
            })
        })
        .collect();
    clients.into_iter().filter_map(|client| client.join().expect("a 503 in time")).count()
}

fn stored(database: &Database) -> usize {
    database.rows("SELECT count(*) FROM go_tasks WHERE text = 'db lost'").parse().expect("a number")
}

#[track_caller]
fn works_again_in_time(serve: &Serve, id: &str) {
    until_within(RETURN, "the database's return", || {
        let looked_up = serve.client().get(&format!("/tasks/{id}")).status == 200;
        let submitted = serve.client().post_text("back again").status == 202;
        let ready = serve.admin_client().get("/readyz").status == 200;
        (looked_up && submitted && ready).then_some(())
    });
}

fn quiet(serve: &Serve, since: usize, seconds: u64) {
    let lines = serve.stderr().len() - since;
    assert!(lines as u64 <= 2 * (seconds + 3), "{lines} lines in {seconds} s:\n{}", serve.stderr().join("\n"));
}

fn open_files(serve: &Serve) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", serve.pid())).expect("a live process").count()
}

fn threads(serve: &Serve) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", serve.pid())).expect("a live process").count()
}

#[test]
fn a_stopped_server_is_a_503_and_its_return_is_noticed() {
    let cluster = PgCluster::own();
    let database = Database::within(&cluster);
    let mut serve = Serve::on(&database, &[]);
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    for mode in ["fast", "immediate"] {
        let said = serve.stderr().len();
        cluster.stop(mode);
        let start = Instant::now();
        for _ in 0..3 {
            all_refused_in_time(&serve, &id);
        }
        assert_eq!(serve.admin_client().get("/healthz").status, 200);
        let ready = serve.admin_client().get("/readyz");
        assert_eq!(ready.status, 503);
        assert!(ready.json()["reasons"][0].as_str().expect("a reason").contains("database"), "{ready:?}");
        quiet(&serve, said, start.elapsed().as_secs());
        cluster.start();
        works_again_in_time(&serve, &id);
        assert_eq!(stored(&database), 0);
    }
    let last = serve.client().submit("Go one");
    serve.client().wait_for(&last, "SUCCEEDED");
    assert_eq!(serve.terminate(), End::Code(0));
}

#[test]
fn sigterm_ends_a_service_whose_database_is_away() {
    let cluster = PgCluster::own();
    let database = Database::within(&cluster);
    let mut serve = Serve::on(&database, &["--drain-timeout", "5s"]);
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    cluster.stop("immediate");
    all_refused_in_time(&serve, &id);
    assert_eq!(serve.terminate(), End::Code(0));
}

#[test]
fn a_locked_table_is_a_503_and_harms_nothing() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &[]);
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    let (files, crew, said) = (open_files(&serve), threads(&serve), serve.stderr().len());
    let mut locker = database.connect();
    let mut lock = locker.transaction().expect("begin");
    lock.batch_execute("LOCK TABLE go_tasks IN ACCESS EXCLUSIVE MODE").expect("lock");
    let start = Instant::now();
    let mut unknown = 0;
    while start.elapsed() < Duration::from_secs(20) {
        unknown += all_refused_in_time(&serve, &id);
    }
    quiet(&serve, said, 20);
    lock.rollback().expect("rollback");
    works_again_in_time(&serve, &id);
    assert!(stored(&database) <= unknown, "a submission told `none` was stored");
    no_leak(&serve, files, crew);
}

#[test]
fn silent_backends_are_a_503_and_harm_nothing() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &[]);
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    let (files, crew, said) = (open_files(&serve), threads(&serve), serve.stderr().len());
    let backends = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let stopped: Vec<u32> =
        database.rows(backends).split(' ').map(|pid| pid.parse().expect("the pid of a backend of ours")).collect();
    stopped.iter().for_each(|&pid| send_signal(pid, "STOP"));
    let start = Instant::now();
    let mut rounds = Vec::new();
    while start.elapsed() < Duration::from_secs(20) {
        let begun = Instant::now();
        let status = serve.client().get(&format!("/tasks/{id}")).status;
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        rounds.push(status);
        let begun = Instant::now();
        serve.client().post_text("while silent");
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        assert_eq!(serve.admin_client().get("/healthz").status, 200);
    }
    assert!(rounds.contains(&503), "no backend of the service was stopped: {rounds:?}");
    assert!(
        rounds.contains(&200),
        "stand-ins with fresh connections take over from threads that are stuck: {rounds:?}"
    );
    quiet(&serve, said, 20);
    stopped.iter().for_each(|&pid| send_signal(pid, "CONT"));
    works_again_in_time(&serve, &id);
    until_within(Duration::from_secs(10), "every accepted task ends", || {
        let open = database.rows("SELECT count(*) FROM go_tasks WHERE status IN ('QUEUED', 'RUNNING')");
        (open == "0").then_some(())
    });
    no_leak(&serve, files, crew);
}

#[test]
fn a_read_only_server_is_a_503_for_writers_and_an_answer_for_readers() {
    let cluster = PgCluster::own();
    let database = Database::within(&cluster);
    let serve = Serve::on(&database, &[]);
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    let set = |value| {
        let mut client = database.connect();
        let alter = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
        for statement in ["SET default_transaction_read_only = off", &alter, "SELECT pg_reload_conf()"] {
            client.batch_execute(statement).expect(statement);
        }
    };
    set("on");
    until_within(RETURN, "readiness is red", || {
        let ready = serve.admin_client().get("/readyz");
        (ready.status == 503).then(|| assert!(ready.json().to_string().contains("read-only"), "{ready:?}"))
    });
    let refused = serve.client().post_text("db lost");
    assert_eq!((refused.status, refused.text("outcome").as_str()), (503, "none"));
    assert_eq!(serve.client().get(&format!("/tasks/{id}")).status, 200);
    set("off");
    works_again_in_time(&serve, &id);
}

#[track_caller]
fn no_leak(serve: &Serve, files: usize, crew: usize) {
    // Connections that stood in may stay pooled, and handlers retire after a while: bounded, not equal.
    until_within(Duration::from_secs(60), "threads and files come back", || {
        (threads(serve) <= crew + 8 && open_files(serve) <= files + 60).then_some(())
    });
}

#[test]
fn fewer_connections_than_lanes_are_enough() {
    let database = Database::with_schema();
    let role = "few_connections";
    database.run(&format!(
        "CREATE ROLE {role} LOGIN CONNECTION LIMIT 3; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};
         GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
    ));
    let dsn = database.dsn().replace("user=postgres", &format!("user={role}"));
    let mut serve = Serve::start(&dsn, &[]).unwrap_or_else(|failed| panic!("{failed:?}"));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let mut client = serve.client();
            thread::spawn(move || {
                for _ in 0..25 {
                    let id = client.submit("Go one");
                    client.wait_for(&id, "SUCCEEDED");
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("all of them end"));
    assert_eq!(serve.terminate(), End::Code(0));
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn no_connection_to_be_had_is_a_503_and_passes() {
    let database = Database::with_schema();
    let role = "no_connections";
    database.run(&format!(
        "CREATE ROLE {role} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role};
         GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
    ));
    let dsn = database.dsn().replace("user=postgres", &format!("user={role}"));
    let mut serve = Serve::start(&dsn, &[]).unwrap_or_else(|failed| panic!("{failed:?}"));
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    let said = serve.stderr().len();
    database.run(&format!("ALTER ROLE {role} CONNECTION LIMIT 0"));
    database.rows(&format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{role}'"));
    let start = Instant::now();
    let unknown: usize = (0..3).map(|_| all_refused_in_time(&serve, &id)).sum();
    quiet(&serve, said, start.elapsed().as_secs());
    database.run(&format!("ALTER ROLE {role} CONNECTION LIMIT -1"));
    works_again_in_time(&serve, &id);
    assert!(stored(&database) <= unknown, "a submission told `none` was stored");
    assert_eq!(serve.terminate(), End::Code(0));
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
