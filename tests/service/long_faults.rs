//! The server is there and yet of no use for twenty seconds: a locked table, silent backends, only reads, no connection to be
//! had. Every answer is bounded and true, all comes back by itself, the log stays short, and nothing leaks.

use std::time::{Duration, Instant};

use crate::harness::serve::{End, send_signal};
use crate::harness::{Database, PgCluster, Serve, stalled_since, until_within};
use crate::lost_database::{BOUND, RETURN, Told, ask_all, quiet, stored, works_again_in_time};

/// How long a fault lasts, in seconds: first a short one that makes everything which is made once, then the long one.
const FAULTS: [u64; 2] = [3, 20];
/// Handler threads that nobody needs any more retire after 10 to 20 s.
const SETTLING: Duration = Duration::from_secs(40);

/// The pool's size is below this; after a time without connections it may fill up at once.
const MOST_CONNECTIONS: usize = 44;
/// The socket, and what the client library needs to wait for it.
const FILES_PER_CONNECTION: usize = 4;

/// What a leak would show in.
#[derive(Debug, Clone, Copy)]
struct Resources {
    threads: usize,
    files: usize,
    connections: usize,
}

impl Resources {
    fn of(serve: &Serve, database: &Database) -> Resources {
        let count = |what| std::fs::read_dir(format!("/proc/{}/{what}", serve.pid())).expect("a live process").count();
        let connections =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        Resources {
            threads: count("task"),
            files: count("fd"),
            connections: database.rows(connections).parse().expect("a number"),
        }
    }

    /// Whether this is what it was, but for what a pool and idle threads may come to: twelve clients ask all the time, so that
    /// one of anything for each answer would be a hundred.
    fn is_like(&self, earlier: &Resources) -> bool {
        let more_connections = self.connections.saturating_sub(earlier.connections);
        self.threads <= earlier.threads + 6
            && self.connections <= MOST_CONNECTIONS
            && self.files <= earlier.files + FILES_PER_CONNECTION * more_connections + 12
    }
}

/// A service on its database, with a finished task to look up.
fn served(database: &Database, dsn: &str) -> (Serve, String) {
    let serve = Serve::start(dsn, &[]).unwrap_or_else(|failed| panic!("{failed:?}"));
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    assert_eq!(database.task(&id), "SUCCEEDED|2|6|6");
    (serve, id)
}

/// Lets clients ask while a fault lasts, and sees all come back; what they were told. `begin` gives what ends the fault.
#[track_caller]
fn endure<E: FnOnce()>(serve: &Serve, database: &Database, id: &str, begin: impl Fn() -> E) -> Told {
    let (mut told, mut earlier) = (Told::default(), None);
    for seconds in FAULTS {
        let (said, start) = (serve.stderr().len(), Instant::now());
        let end = begin();
        while start.elapsed() < Duration::from_secs(seconds) {
            ask_all(serve, id, &mut told);
            assert_eq!(serve.admin_client().get("/healthz").status, 200);
        }
        quiet(serve, said, start.elapsed());
        end();
        works_again_in_time(serve, id);
        until_within(Duration::from_secs(10), "every accepted task ends", || {
            (database.rows("SELECT count(*) FROM go_tasks WHERE status <> 'SUCCEEDED'") == "0").then_some(())
        });
        let mut now = Resources::of(serve, database);
        if let Some(earlier) = &earlier {
            let start = Instant::now();
            while !now.is_like(earlier) {
                assert!(start.elapsed() < SETTLING, "a leak: {earlier:?} has become {now:?}");
                now = Resources::of(serve, database);
            }
        }
        earlier = Some(now);
    }
    let stored = stored(database);
    assert!(
        (told.accepted..=told.accepted + told.unknown).contains(&stored),
        "{stored} submissions are stored, {} accepted, {} unknown",
        told.accepted,
        told.unknown
    );
    told
}

#[test]
fn a_locked_table_is_a_503_and_harms_nothing() {
    let database = Database::with_schema();
    let (serve, id) = served(&database, &database.dsn());
    let told = endure(&serve, &database, &id, || {
        let mut locker = database.connect();
        locker.batch_execute("BEGIN; LOCK TABLE go_tasks IN ACCESS EXCLUSIVE MODE").expect("lock");
        move || drop(locker)
    });
    assert_eq!((told.accepted, told.found), (0, 0), "nobody gets past the lock");
}

#[test]
fn silent_backends_are_a_503_or_passed_by_and_harm_nothing() {
    // A stopped backend may hold what all sessions of its server need: not the other tests' server.
    let cluster = PgCluster::own();
    let database = Database::within(&cluster);
    let (serve, id) = served(&database, &database.dsn());
    let told = endure(&serve, &database, &id, || {
        let backends =
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let backends = database.rows(backends);
        let backends = backends.split(' ').map(|pid| pid.parse().expect("a pid"));
        let stopped: Vec<u32> = backends.filter(|&pid| send_signal(pid, "STOP")).collect();
        move || stopped.iter().for_each(|&pid| assert!(send_signal(pid, "CONT")))
    });
    assert!(told.refused > 0, "no backend of the service was stopped");
    assert!(told.accepted > 0 && told.found > 0, "stand-ins take over, with connections that are not silent");
}

#[test]
fn a_read_only_server_is_a_503_for_writers_and_an_answer_for_readers() {
    let cluster = PgCluster::own();
    let database = Database::within(&cluster);
    let (serve, id) = served(&database, &database.dsn());
    let set = |value: &str| {
        let mut client = database.connect();
        let alter = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
        for statement in ["SET default_transaction_read_only = off", &alter, "SELECT pg_reload_conf()"] {
            client.batch_execute(statement).expect(statement);
        }
    };
    let told = endure(&serve, &database, &id, || {
        set("on");
        until_within(RETURN, "readiness is red", || {
            let ready = serve.admin_client().get("/readyz");
            (ready.status == 503).then(|| assert!(ready.json().to_string().contains("read-only"), "{ready:?}"))
        });
        || set("off")
    });
    assert_eq!(told.accepted + told.unknown, 0, "a server that only reads stores nothing, and says so");
    assert_eq!(told.found, told.refused, "all writers are refused, all readers answered");
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
    let (mut serve, id) = served(&database, &dsn);
    let told = endure(&serve, &database, &id, || {
        database.run(&format!("ALTER ROLE {role} CONNECTION LIMIT 0"));
        // Ended, and gone. MATERIALIZED: or else the server may ask for the end of a session before it asks whose it is.
        let ended = format!(
            "WITH theirs AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE usename = '{role}')
             SELECT count(pg_terminate_backend(pid)) FROM theirs"
        );
        until_within(BOUND, "its connections are ended", || (database.rows(&ended) == "0").then_some(()));
        || database.run(&format!("ALTER ROLE {role} CONNECTION LIMIT -1"))
    });
    assert_eq!((told.accepted, told.found), (0, 0));
    assert_eq!(serve.terminate(), End::Code(0));
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn who_asks_late_does_not_pay_for_those_who_ran_out_of_time() {
    let database = Database::with_schema();
    let (serve, id) = served(&database, &database.dsn());
    let target = format!("/tasks/{id}");
    let mut locker = database.connect();
    locker.batch_execute("BEGIN; LOCK TABLE go_tasks IN ACCESS EXCLUSIVE MODE").expect("lock");
    let [mut first, mut second, mut late] = [(); 3].map(|()| serve.client());
    let first_waits_for = |age: &str| {
        let question = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation'
               AND query LIKE '%id = ANY%' AND clock_timestamp() - query_start > interval '{age}'"
        );
        until_within(BOUND, "a look-up waits for the lock", || (database.rows(&question) == "1").then_some(()));
    };
    first.send("GET", &target, &[], b"");
    first_waits_for("0 s");
    // Both of these wait for the first one's end, and are asked for together.
    let asked = Instant::now();
    second.send("GET", &target, &[], b"");
    first_waits_for("0.7 s");
    late.send("GET", &target, &[], b"");
    assert_eq!(first.answer().status, 503);
    assert_eq!(second.answer().status, 503, "its time was over before that of the last");
    assert!(asked.elapsed() < BOUND + stalled_since(asked), "{:?}", asked.elapsed());
    drop(locker);
    assert_eq!(late.answer().status, 200, "it had time left when the lock went");
}

#[test]
fn one_silent_backend_costs_who_asks_a_moment_and_no_error() {
    let cluster = PgCluster::own();
    let database = Database::within(&cluster);
    let (serve, id) = served(&database, &database.dsn());
    let mut locker = database.connect();
    locker.batch_execute("BEGIN; LOCK TABLE go_tasks IN ACCESS EXCLUSIVE MODE").expect("lock");
    let mut client = serve.client();
    let asked = Instant::now();
    client.send("GET", &format!("/tasks/{id}"), &[], b"");
    let looking = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation'
                      AND query LIKE '%id = ANY%'";
    let backend = until_within(BOUND, "the look-up waits for the lock", || database.rows(looking).parse().ok());
    assert!(send_signal(backend, "STOP"));
    drop(locker);
    let answer = client.answer();
    assert!(send_signal(backend, "CONT"));
    assert_eq!(answer.status, 200, "after {:?}: {answer:?}", asked.elapsed());
}
