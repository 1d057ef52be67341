//! Who is let in, and who is not.

use crate::harness::{Database, Gate, Serve};

#[test]
fn one_running_one_queued_the_third_refused_and_not_stored() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "1"]);
    let mut client = serve.client();
    for round in 0..200 {
        let gate = Gate::shut(&database, "RUNNING");
        let (first, second) = (client.submit("first"), client.submit("second"));
        let third = client.post_text("third");
        assert_eq!(third.status, 503, "round {round}: {third:?}");
        assert_eq!(third.text("outcome"), "none");
        assert!(third.headers["retry-after"].parse::<u32>().expect("seconds") >= 1);
        assert_eq!(database.rows("SELECT count(*) FROM go_tasks WHERE text = 'third'"), "0");
        gate.open();
        client.wait_for(&first, "SUCCEEDED");
        client.wait_for(&second, "SUCCEEDED");
    }
}

#[test]
fn who_saw_a_task_end_finds_its_place_free() {
    let database = Database::new();
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "0"]);
    let mut client = serve.client();
    for _ in 0..200 {
        let id = client.submit("again");
        client.wait_for(&id, "SUCCEEDED");
    }
}

#[test]
fn a_queued_task_is_cancelled_at_once_and_never_run() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let mut client = serve.client();
    let gate = Gate::shut(&database, "RUNNING");
    let first = client.submit("first");
    gate.reached();
    let second = client.submit("second");
    let cancelled = client.cancel(&second);
    assert_eq!((cancelled.status, cancelled.text("cancel").as_str()), (202, "canceled"));
    let again = client.cancel(&second);
    assert_eq!((again.status, again.text("cancel").as_str()), (409, "too_late"));
    gate.open();
    client.wait_for(&first, "SUCCEEDED");
    assert_eq!(client.cancel(&first).status, 409);
    assert_eq!(database.rows("SELECT status, words, lease_epoch FROM go_tasks WHERE text = 'second'"), "CANCELED|0|0");
    assert_eq!(client.cancel("task[99]").status, 404);
}

#[test]
fn a_cancelled_task_gives_its_place_to_the_next() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "1"]);
    let mut client = serve.client();
    let gate = Gate::shut(&database, "RUNNING");
    let first = client.submit("first");
    gate.reached();
    // More often than there are places: what is cancelled leaves nothing behind in the queue.
    for round in 0..10 {
        let queued = client.submit("queued");
        assert_eq!(client.post_text("third").status, 503, "round {round}");
        assert_eq!(client.cancel(&queued).text("cancel"), "canceled");
    }
    let last = client.submit("last");
    assert_eq!(client.post_text("one too many").status, 503);
    gate.open();
    client.wait_for(&first, "SUCCEEDED");
    client.wait_for(&last, "SUCCEEDED");
    assert_eq!(
        database.rows("SELECT status, count(*), max(lease_epoch) FROM go_tasks GROUP BY status ORDER BY status"),
        "CANCELED|10|0 SUCCEEDED|2|1"
    );
}
