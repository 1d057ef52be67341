//! The database has committed, the answer is lost, or never heard the question: nothing runs twice, nothing is left hanging,
//! nobody is told a lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use taskstats::task::{Analyser, Analysis, CountAnalyser, Stop};

use crate::harness::inside::Inside;
use crate::harness::{Database, PgCluster, Proxy, Serve};

/// A service that reaches its database through a proxy.
fn served(database: &Database, proxy: &Proxy) -> Serve {
    Serve::start(&database.dsn_through(proxy), &["--workers", "2"]).unwrap_or_else(|failed| panic!("{failed:?}"))
}

/// Every task ended once: its epoch says how often it was claimed.
const ENDED_ONCE: &str = "SELECT DISTINCT status, words, lease_epoch FROM go_tasks";

/// Counts the UPDATEs to a status that got as far as a row, also those that are rolled back: a sequence knows no rollback.
fn count_tries(database: &Database, status: &str) {
    database.run(&format!(
        "CREATE SEQUENCE tries_{status};
         CREATE FUNCTION try_{status}() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN PERFORM nextval('tries_{status}'); RETURN NEW; END $$;
         CREATE TRIGGER try_{status} BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status = '{status}')
         EXECUTE FUNCTION try_{status}()"
    ));
}

fn tries(database: &Database, status: &str) -> String {
    database.rows(&format!("SELECT last_value FROM tries_{status} WHERE is_called"))
}

#[test]
fn a_claim_whose_answer_is_lost_is_read_back_and_finished_once() {
    let database = Database::with_schema();
    // One try for each: what was lost was a committed claim, and nobody made it again.
    count_tries(&database, "RUNNING");
    count_tries(&database, "SUCCEEDED");
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    for round in 0..10 {
        proxy.lose_next("SET status = 'RUNNING'");
        let id = serve.client().submit("Go one");
        serve.client().wait_for(&id, "SUCCEEDED");
        proxy.until_lost(round + 1);
    }
    assert_eq!(database.rows(ENDED_ONCE), "SUCCEEDED|2|1");
    assert_eq!(["RUNNING", "SUCCEEDED"].map(|status| tries(&database, status)), ["10", "10"]);
}

#[test]
fn a_claim_that_never_arrived_is_made_again() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    for round in 0..10 {
        proxy.lose_next_request("SET status = 'RUNNING'");
        let id = serve.client().submit("Go one");
        serve.client().wait_for(&id, "SUCCEEDED");
        proxy.until_lost(round + 1);
    }
    assert_eq!(database.rows(ENDED_ONCE), "SUCCEEDED|2|1");
}

#[test]
fn a_claim_that_arrives_late_is_found_by_the_one_after_it() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    for round in 0..10 {
        // Read back, the row is still QUEUED; the claim made again finds it RUNNING, by ourselves.
        proxy.delay_next("SET status = 'RUNNING'");
        let id = serve.client().submit("Go one");
        serve.client().wait_for(&id, "SUCCEEDED");
        proxy.until_lost(round + 1);
    }
    assert_eq!(database.rows(ENDED_ONCE), "SUCCEEDED|2|1");
}

#[test]
fn a_claim_that_arrives_before_a_refused_one_is_found_too() {
    let database = Database::with_schema();
    database.run(
        "CREATE SEQUENCE claims;
         CREATE FUNCTION refuse_the_second() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF current_query() LIKE '%SET status = ''RUNNING''%' AND nextval('claims') = 2 THEN
                 RAISE EXCEPTION 'not this one';
             END IF;
             RETURN NULL;
         END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON go_tasks FOR EACH STATEMENT EXECUTE FUNCTION refuse_the_second()",
    );
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    proxy.delay_next("SET status = 'RUNNING'");
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    assert_eq!(database.rows("SELECT last_value FROM claims"), "2", "the second claim was not refused");
    assert_eq!(database.rows(ENDED_ONCE), "SUCCEEDED|2|1");
}

/// Counts how often it is asked.
struct Counted(Arc<AtomicUsize>);

impl Analyser for Counted {
    fn analyse(&self, text: &str, stop: &Stop) -> Analysis {
        self.0.fetch_add(1, Ordering::SeqCst);
        CountAnalyser::default().analyse(text, stop)
    }
}

#[test]
fn the_analyser_sees_a_task_once_whatever_is_lost() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let seen = Arc::new(AtomicUsize::new(0));
    let inside = Inside::at(&database.dsn_through(&proxy), Counted(seen.clone()), 2);
    let (claim, finish) = ("SET status = 'RUNNING'", "CASE WHEN task.cancel_requested");
    for round in 0..20 {
        match round % 4 {
            0 => proxy.lose_next(claim),
            1 => proxy.lose_next_request(claim),
            2 => proxy.lose_next(finish),
            _ => proxy.lose_next_request(finish),
        }
        let id = inside.service.submit("Go one".into()).expect("accepted").id;
        crate::harness::until(&format!("{id} ends"), || {
            (database.task(id.as_str()) == "SUCCEEDED|2|6|6").then_some(())
        });
        proxy.until_lost(round + 1);
        assert_eq!(seen.load(Ordering::SeqCst), round + 1);
    }
    assert_eq!(database.rows(ENDED_ONCE), "SUCCEEDED|2|1");
}

#[test]
fn a_finish_whose_answer_is_lost_ended_the_task_once() {
    let database = Database::with_schema();
    count_tries(&database, "SUCCEEDED");
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let mut serve = served(&database, &proxy);
    for round in 0..10 {
        proxy.lose_next("CASE WHEN task.cancel_requested");
        let id = serve.client().submit("Go one");
        serve.client().wait_for(&id, "SUCCEEDED");
        proxy.until_lost(round + 1);
    }
    assert_eq!((database.rows(ENDED_ONCE), tries(&database, "SUCCEEDED")), ("SUCCEEDED|2|1".into(), "10".into()));
    serve.terminate();
    let said = serve.stderr().join("\n");
    assert!(!said.contains("lease lost"), "our own write was taken for another's: {said}");
}

#[test]
fn a_submission_whose_answer_is_lost_is_called_unknown_and_still_done() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    for round in 0..5 {
        proxy.lose_next("INSERT INTO go_tasks");
        let reply = serve.client().post_text("Go one");
        assert_eq!((reply.status, reply.text("outcome").as_str()), (503, "unknown"), "{reply:?}");
        proxy.until_lost(round + 1);
        let id = format!("task[{round}]");
        serve.client().wait_for(&id, "SUCCEEDED");
    }
    assert_eq!(database.rows(ENDED_ONCE), "SUCCEEDED|2|1");
}

#[test]
fn a_submission_that_never_arrived_is_called_unknown_and_leaves_no_row() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    proxy.lose_next_request("INSERT INTO go_tasks");
    // Who sent it cannot tell this from a lost answer.
    let reply = serve.client().post_text("never heard of");
    assert_eq!((reply.status, reply.text("outcome").as_str()), (503, "unknown"), "{reply:?}");
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    assert_eq!(database.rows("SELECT text FROM go_tasks"), "Go one");
}

#[test]
fn in_a_crowd_every_answer_stays_true_when_answers_are_lost() {
    const CLIENTS: usize = 16;
    const EACH: usize = 25;
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    let told: Vec<(String, String)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (mut client, proxy) = (serve.client(), &proxy);
                scope.spawn(move || {
                    let submit = |round: usize| {
                        // Several submissions share a statement, and so its fate.
                        if number == 0 && round % 5 == 0 {
                            proxy.lose_next("INSERT INTO go_tasks");
                        }
                        let text = format!("{number}/{round}");
                        let reply = client.post_text(&text);
                        match reply.status {
                            202 => (text, "stored".to_owned()),
                            503 => (text, reply.text("outcome")),
                            _ => panic!("{reply:?}"),
                        }
                    };
                    (0..EACH).map(submit).collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    crate::harness::until("all that is stored is done", || {
        (database.rows("SELECT count(*) FROM go_tasks WHERE status <> 'SUCCEEDED'") == "0").then_some(())
    });
    for (text, outcome) in &told {
        let rows = database.rows(&format!("SELECT count(*) FROM go_tasks WHERE text = '{text}'"));
        let is_true = match outcome.as_str() {
            "stored" => rows == "1",
            "none" => rows == "0",
            "unknown" => rows == "0" || rows == "1",
            _ => false,
        };
        assert!(is_true, "{text} was told {outcome}, and has {rows} rows");
    }
    assert!(told.iter().any(|(_, outcome)| outcome == "unknown"), "no answer was lost");
    assert_eq!(database.rows("SELECT DISTINCT status, words, lease_epoch FROM go_tasks"), "SUCCEEDED|1|1");
}

#[test]
fn a_cancel_whose_answer_is_lost_is_called_unknown_and_can_be_repeated() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    let gate = crate::harness::Gate::shut(&database, "RUNNING");
    let mut client = serve.client();
    let ids: Vec<String> = (0..3).map(|_| client.submit("queued")).collect();
    gate.reached();
    proxy.lose_next("cancel_requested OR status");
    let reply = client.cancel(&ids[2]);
    assert_eq!((reply.status, reply.text("outcome").as_str()), (503, "unknown"), "{reply:?}");
    assert_eq!(client.cancel(&ids[2]).status, 409);
    gate.open();
    client.wait_for(&ids[2], "CANCELED");
}

#[test]
fn a_look_up_whose_answer_is_lost_is_a_503_and_works_again() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    proxy.lose_next("SELECT id, status");
    assert_eq!(serve.client().get(&format!("/tasks/{id}")).status, 503);
    assert_eq!(serve.client().get(&format!("/tasks/{id}")).status, 200);
}
