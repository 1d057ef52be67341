//! `Prefer: wait`: an answer when the task has ended, and never later than was wished.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::http::Reply;
use crate::harness::serve::End;
use crate::harness::{Client, Database, Gate, PgCluster, Serve, until};

/// Longer than any of these tests lasts: an answer before has another reason.
const LONG: &str = "wait=60";

fn send_text(client: &mut Client, prefer: &str, text: &str) {
    let body = json!({"text": text}).to_string();
    client.send("POST", "/tasks", &[("Content-Type", "application/json"), ("Prefer", prefer)], body.as_bytes());
}

fn send_get(client: &mut Client, prefer: &str, id: &str) {
    client.send("GET", &format!("/tasks/{id}"), &[("Prefer", prefer)], b"");
}

fn get(client: &mut Client, prefer: &str, id: &str) -> Reply {
    send_get(client, prefer, id);
    client.answer()
}

fn applied(reply: &Reply) -> Option<&str> {
    reply.headers.get("preference-applied").map(String::as_str)
}

/// Clients inside: the service has a thread for each, by this name.
fn inside(serve: &Serve) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{}/task", serve.pid())).expect("it runs").flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|name| name == "public-client\n").count()
}

#[test]
fn a_submission_is_answered_when_its_task_has_ended() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    for round in 0..50 {
        send_text(&mut client, LONG, "Go one");
        let reply = client.answer();
        assert_eq!((reply.status, applied(&reply)), (202, Some(LONG)), "{reply:?}");
        assert_eq!(reply.headers["location"], format!("/tasks/task%5B{round}%5D"));
        let shown = client.task(&format!("task[{round}]"));
        assert_eq!((&shown["status"], &shown["words"]), (&"SUCCEEDED".into(), &2.into()));
        assert_eq!(reply.json(), shown, "what GET shows");
    }
    let reply = get(&mut client, LONG, "task[7]");
    assert_eq!((reply.status, applied(&reply), reply.text("status").as_str()), (200, Some(LONG), "SUCCEEDED"));
    assert_eq!(get(&mut client, LONG, "task[99]").status, 404);
}

#[test]
fn many_wait_for_one_task_and_hold_up_nobody() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let gate = Gate::shut(&database, "SUCCEEDED");
    let id = serve.client().submit("Go one");
    gate.reached();
    let mut waiting: Vec<Client> = (0..100).map(|_| serve.client()).collect();
    waiting.iter_mut().for_each(|client| send_get(client, LONG, &id));
    let mut other = serve.client();
    for _ in 0..100 {
        assert_eq!(other.task(&id)["status"], "RUNNING");
    }
    let queued = other.submit("next");
    gate.open();
    for client in &mut waiting {
        let reply = client.answer();
        assert_eq!((reply.status, reply.text("status").as_str()), (200, "SUCCEEDED"), "{reply:?}");
        // The connection is as good as before.
        assert_eq!(client.task(&id)["words"], 2);
    }
    assert_eq!(get(&mut other, LONG, &queued).text("status"), "SUCCEEDED");
}

#[test]
fn a_wait_ends_with_its_time_and_says_how_things_are() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let mut client = serve.client();
    let gate = Gate::shut(&database, "SUCCEEDED");
    let begun = Instant::now();
    send_text(&mut client, "wait=1", "Go one");
    let reply = client.answer();
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!((reply.status, applied(&reply)), (202, Some("wait=1")), "{reply:?}");
    assert_eq!(reply.text("status"), "RUNNING");
    let id = reply.text("id");
    let begun = Instant::now();
    let reply = get(&mut client, "respond-async, wait=\"1\"", &id);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!((reply.status, applied(&reply), reply.text("status").as_str()), (200, Some("wait=1"), "RUNNING"));
    // These do not wait at all.
    assert_eq!(applied(&get(&mut client, "wait=0", &id)), Some("wait=0"));
    for malformed in ["wait", "wait=-5", "wait=soon", "wait=1.5", ",;="] {
        let reply = get(&mut client, malformed, &id);
        assert_eq!((reply.status, applied(&reply)), (200, None), "{malformed}: {reply:?}");
    }
    gate.open();
}

#[test]
fn a_cancel_answers_those_who_wait() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let gate = Gate::shut(&database, "SUCCEEDED");
    let running = serve.client().submit("runs");
    gate.reached();
    let queued = serve.client().submit("queued");
    let (mut first, mut second) = (serve.client(), serve.client());
    send_get(&mut first, LONG, &running);
    send_get(&mut second, LONG, &queued);
    assert_eq!(serve.client().cancel(&queued).text("cancel"), "canceled");
    assert_eq!(second.answer().text("status"), "CANCELED");
    gate.open();
    assert_eq!(first.answer().text("status"), "SUCCEEDED");
}

#[test]
fn an_end_that_is_not_ours_is_seen_too() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let _gate = Gate::shut(&database, "RUNNING");
    let (id, gone) = (serve.client().submit("claimed"), serve.client().submit("deleted"));
    let (mut first, mut second) = (serve.client(), serve.client());
    let other = "INSERT INTO go_tasks (id, text, status) VALUES ('another program''s', '', 'RUNNING')";
    database.run(other);
    send_get(&mut first, LONG, "another%20program's");
    send_get(&mut second, LONG, &gone);
    database.run("UPDATE go_tasks SET status = 'FAILED', failure_reason = 'odd' WHERE id LIKE 'another%'");
    assert_eq!(first.answer().text("failure_reason"), "odd");
    database.run(&format!("DELETE FROM go_tasks WHERE id = '{gone}'"));
    assert_eq!(second.answer().status, 404);
    assert_eq!(database.task(&id), "QUEUED|0|0|0");
}

#[test]
fn a_shutdown_answers_those_who_wait_with_the_present_state() {
    let database = Database::with_schema();
    let mut serve = Serve::on(&database, &["--workers", "1"]);
    let gate = Gate::shut(&database, "SUCCEEDED");
    let id = serve.client().submit("runs");
    gate.reached();
    let mut waiting: Vec<Client> = (0..20).map(|_| serve.client()).collect();
    waiting.iter_mut().for_each(|client| send_get(client, LONG, &id));
    let mut posting = serve.client();
    send_text(&mut posting, LONG, "stays queued");
    until("the submission", || (database.rows("SELECT count(*) FROM go_tasks") == "2").then_some(()));
    serve.signal("TERM");
    for client in &mut waiting {
        let reply = client.answer();
        assert_eq!((reply.status, reply.text("status").as_str()), (200, "RUNNING"), "{reply:?}");
    }
    let reply = posting.answer();
    assert_eq!((reply.status, reply.text("status").as_str()), (202, "QUEUED"), "{reply:?}");
    gate.open();
    assert_eq!(serve.wait(), End::Code(0));
    assert!(!serve.stderr().iter().any(|line| line.contains("cut off")), "{:?}", serve.stderr());
}

#[test]
fn a_client_that_leaves_takes_its_wait_along() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let _gate = Gate::shut(&database, "RUNNING");
    let mut first = serve.client();
    let id = first.submit("held");
    let mut waiting: Vec<Client> = (0..50).map(|_| serve.client()).collect();
    waiting.iter_mut().for_each(|client| send_get(client, LONG, &id));
    until("all are inside", || (inside(&serve) == 51).then_some(()));
    // One only closes its sending side: it is answered early instead of late.
    waiting[0].send_no_more();
    assert_eq!(waiting[0].answer().text("status"), "QUEUED");
    drop(waiting);
    // Half of the wait at most, where the waits would have been over after 60 s.
    until("they are gone", || (inside(&serve) == 1).then_some(()));
    assert_eq!(first.get(&format!("/tasks/{id}")).text("status"), "QUEUED");
}

#[test]
fn texts_of_those_who_wait_count_as_nothing_in_flight() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let gate = Gate::shut(&database, "RUNNING");
    // More than fit into what may be in flight at once.
    let text = "w".repeat(1_000_000);
    let waiting: Vec<Client> = (0..70)
        .map(|number| {
            let mut client = serve.client();
            send_text(&mut client, LONG, &text);
            until("it is stored", || {
                (database.rows("SELECT count(*) FROM go_tasks") == (number + 1).to_string()).then_some(())
            });
            client
        })
        .collect();
    assert_eq!(serve.client().post_text(&text).status, 202);
    gate.open();
    for mut client in waiting {
        assert_eq!(client.answer().text("status"), "SUCCEEDED");
    }
}

#[test]
fn a_database_that_is_away_meanwhile_is_waited_for() {
    let cluster = PgCluster::own();
    let database = Database::within(&cluster);
    let serve = Serve::on(&database, &["--workers", "1"]);
    let gate = Gate::shut(&database, "SUCCEEDED");
    let id = serve.client().submit("runs");
    gate.reached();
    let [mut short, mut long, mut posting] = [serve.client(), serve.client(), serve.client()];
    send_get(&mut short, "wait=2", &id);
    send_get(&mut long, LONG, &id);
    send_text(&mut posting, "wait=2", "queued");
    until("the submission", || (database.rows("SELECT count(*) FROM go_tasks") == "2").then_some(()));
    cluster.stop("immediate");
    // Nobody can say now; that the submission was accepted stays true.
    assert_eq!(short.answer().status, 503);
    let accepted = posting.answer();
    assert_eq!((accepted.status, accepted.text("status").as_str()), (202, "QUEUED"), "{accepted:?}");
    cluster.start();
    // The server that held the gate is gone; its trigger is not.
    database.run("DROP TRIGGER gate ON go_tasks; DROP FUNCTION gate()");
    std::mem::forget(gate);
    assert_eq!(long.answer().text("status"), "SUCCEEDED");
}
