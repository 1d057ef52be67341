//! The database has committed, the answer is lost: nothing runs twice, nothing is left hanging, nobody is told a lie.

use crate::harness::{Database, PgCluster, Proxy, Serve};

/// A service that reaches its database through a proxy.
fn served(database: &Database, proxy: &Proxy) -> Serve {
    Serve::start(&database.dsn_through(proxy), &["--workers", "2"]).unwrap_or_else(|failed| panic!("{failed:?}"))
}

/// Every task ended once: its epoch says how often it was claimed.
const ENDED_ONCE: &str = "SELECT DISTINCT status, words, lease_epoch FROM go_tasks";

#[test]
fn a_claim_whose_answer_is_lost_is_read_back_and_finished_once() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = served(&database, &proxy);
    for round in 0..10 {
        proxy.lose_next("SET status = 'RUNNING'");
        let id = serve.client().submit("Go one");
        serve.client().wait_for(&id, "SUCCEEDED");
        assert_eq!(proxy.lost(), round + 1);
    }
    assert_eq!(database.rows(ENDED_ONCE), "SUCCEEDED|2|1");
}

#[test]
fn a_finish_whose_answer_is_lost_ended_the_task_once() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let mut serve = served(&database, &proxy);
    for round in 0..10 {
        proxy.lose_next("CASE WHEN task.cancel_requested");
        let id = serve.client().submit("Go one");
        serve.client().wait_for(&id, "SUCCEEDED");
        assert_eq!(proxy.lost(), round + 1);
    }
    assert_eq!(database.rows(ENDED_ONCE), "SUCCEEDED|2|1");
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
        assert_eq!(proxy.lost(), round + 1);
        let id = format!("task[{round}]");
        serve.client().wait_for(&id, "SUCCEEDED");
    }
    assert_eq!(database.rows(ENDED_ONCE), "SUCCEEDED|2|1");
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
