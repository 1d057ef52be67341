//! The database is away or short of connections: every answer is bounded and honest, and all comes back by itself. What the
//! server itself can do to us for long is in `long_faults`.

use std::thread;
use std::time::{Duration, Instant};

use taskstats::limits::TRUSTED_IDLE;

use crate::harness::serve::End;
use crate::harness::{Database, PgCluster, Serve, stalled_since, until, until_within};

/// Database timeout plus one second (DESIGN section 3).
pub const BOUND: Duration = Duration::from_secs(3);
/// From the database's return to the first good answer.
pub const RETURN: Duration = Duration::from_secs(2);

/// What clients were told, each within [`BOUND`].
#[derive(Default)]
pub struct Told {
    /// Submissions that were accepted.
    pub accepted: usize,
    /// Submissions refused with the outcome `unknown`: so many more may be stored.
    pub unknown: usize,
    /// Look-ups that were answered.
    pub found: usize,
    /// 503s, of both.
    pub refused: usize,
}

/// Submits and looks up from several clients at once.
#[track_caller]
pub fn ask_all(serve: &Serve, id: &str, told: &mut Told) {
    stalled_since(Instant::now());
    let clients: Vec<_> = (0..12)
        .map(|number| {
            let (mut client, path) = (serve.client(), format!("/tasks/{id}"));
            thread::spawn(move || {
                let start = Instant::now();
                let reply = if number % 2 == 0 { client.post_text("db lost") } else { client.get(&path) };
                let (waited, stalled) = (start.elapsed(), stalled_since(start));
                assert!(waited < BOUND + stalled, "{waited:?}, of which the machine stalled {stalled:?}");
                reply
            })
        })
        .collect();
    for (number, client) in clients.into_iter().enumerate() {
        let reply = client.join().expect("an answer in time");
        match (reply.status, number % 2 == 0) {
            (202, true) => told.accepted += 1,
            (200, false) => told.found += 1,
            (503, is_submission) => {
                told.refused += 1;
                told.unknown += usize::from(is_submission && reply.text("outcome") == "unknown");
            }
            _ => panic!("{reply:?}"),
        }
    }
}

/// The same where all of them must be refused; how many submissions were told that their outcome is unknown.
#[track_caller]
fn all_refused_in_time(serve: &Serve, id: &str) -> usize {
    let mut told = Told::default();
    ask_all(serve, id, &mut told);
    assert_eq!((told.accepted, told.found), (0, 0));
    told.unknown
}

/// Rows of what [`ask_all`] submitted.
pub fn stored(database: &Database) -> usize {
    database.rows("SELECT count(*) FROM go_tasks WHERE text = 'db lost'").parse().expect("a number")
}

#[track_caller]
pub fn works_again_in_time(serve: &Serve, id: &str) {
    until_within(RETURN, "the database's return", || {
        let looked_up = serve.client().get(&format!("/tasks/{id}")).status == 200;
        let submitted = serve.client().post_text("back again").status == 202;
        let ready = serve.admin_client().get("/readyz").status == 200;
        (looked_up && submitted && ready).then_some(())
    });
}

/// At most two lines a second, and a few when it begins and ends.
#[track_caller]
pub fn quiet(serve: &Serve, since: usize, lasted: Duration) {
    let lines = serve.stderr().split_off(since);
    assert!(lines.len() as u64 <= 2 * lasted.as_secs() + 2, "{} in {lasted:?}:\n{}", lines.len(), lines.join("\n"));
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
        quiet(&serve, said, start.elapsed());
        cluster.start();
        works_again_in_time(&serve, &id);
        assert_eq!(stored(&database), 0);
    }
    let last = serve.client().submit("Go one");
    serve.client().wait_for(&last, "SUCCEEDED");
    assert_eq!(serve.terminate(), End::Code(0));
}

#[test]
fn nobody_meets_a_connection_that_died_while_it_was_idle() {
    let database = Database::with_schema();
    let store = database.store("idle");
    for round in 0..5 {
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let id = store.submit("Go one".into()).unwrap_or_else(|error| panic!("round {round}: {error}"));
                    assert!(store.look_up(&id).unwrap_or_else(|error| panic!("round {round}: {error}")).is_some());
                });
            }
        });
        let backends = "FROM pg_stat_activity WHERE application_name = 'taskstats' AND datname = current_database()";
        database.run(&format!("SELECT pg_terminate_backend(pid) {backends}"));
        until("they are gone", || (database.rows(&format!("SELECT count(*) {backends}")) == "0").then_some(()));
        // What is younger counts as alive; no restart is this short.
        thread::sleep(TRUSTED_IDLE);
    }
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
                    // On a busy machine one of the three may not come in time: a 503, and the next try will do.
                    let accepted = until("accepted", || Some(client.post_text("Go one")).filter(|it| it.status == 202));
                    let path = format!("/tasks/{}", accepted.text("id"));
                    until("done", || {
                        let task = client.get(&path);
                        (task.status == 200 && task.text("status") == "SUCCEEDED").then_some(())
                    });
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("all of them end"));
    assert_eq!(serve.terminate(), End::Code(0));
    database.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}
