//! `Idempotency-Key`: asking again makes no second task, whatever happened to the first answer.

use std::io::Write;
use std::net::TcpStream;
use std::thread;

use serde_json::json;

use crate::harness::http::Reply;
use crate::harness::{Client, Database, Gate, PgCluster, Proxy, Serve};

fn post(client: &mut Client, key: &str, text: &str) -> Reply {
    let body = json!({"text": text}).to_string();
    client.request("POST", "/tasks", &[("Content-Type", "application/json"), ("Idempotency-Key", key)], body.as_bytes())
}

fn is_replay(reply: &Reply) -> bool {
    reply.headers.get("idempotency-replayed").is_some_and(|value| value == "true")
}

#[test]
fn a_key_names_one_task_for_ever() {
    let database = Database::new();
    let mut serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let first = post(&mut client, "a-key", "Go one");
    assert_eq!((first.status, first.text("id").as_str(), is_replay(&first)), (202, "task[0]", false), "{first:?}");
    client.wait_for("task[0]", "SUCCEEDED");
    let again = post(&mut client, "a-key", "Go one");
    assert_eq!((again.status, again.text("id").as_str(), is_replay(&again)), (202, "task[0]", true), "{again:?}");
    assert_eq!((again.text("status").as_str(), &again.headers["location"]), ("SUCCEEDED", &first.headers["location"]));
    let other = post(&mut client, "a-key", "Go two");
    assert_eq!((other.status, other.headers["content-type"].as_str()), (422, "application/problem+json"), "{other:?}");
    assert_eq!(serve.terminate(), crate::harness::serve::End::Code(0));
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let later = post(&mut client, "a-key", "Go one");
    assert_eq!((later.status, later.text("id").as_str(), is_replay(&later)), (202, "task[0]", true), "{later:?}");
    // Nothing of all this took a number.
    assert_eq!(post(&mut client, "another", "Go one").text("id"), "task[1]");
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "2");
}

#[test]
fn a_key_is_visible_ascii_of_bounded_length() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let longest = "~".repeat(255);
    for key in ["", "two words", "tab\there", &format!("{longest}!")] {
        let reply = post(&mut client, key, "Go one");
        assert_eq!(reply.status, 400, "{key:?}: {reply:?}");
        assert!(reply.text("detail").contains("Idempotency-Key"), "{reply:?}");
    }
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "0");
    for key in ["!", "\"quoted;=,\"", &longest] {
        assert_eq!(post(&mut client, key, "Go one").status, 202, "{key:?}");
        assert!(is_replay(&post(&mut client, key, "Go one")), "{key:?}");
    }
}

#[test]
fn of_200_at_once_with_one_key_all_name_one_row() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let replies: Vec<Reply> = thread::scope(|scope| {
        let clients: Vec<_> = (0..200)
            .map(|n| {
                let serve = &serve;
                scope.spawn(move || {
                    if n % 2 == 0 {
                        return Some(post(&mut serve.client(), "one", "Go one"));
                    }
                    // Gone before the answer.
                    let mut stream = TcpStream::connect(serve.listen).expect("the service listens");
                    let head = "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n";
                    let rest = "Idempotency-Key: one\r\nContent-Length: 17\r\n\r\n{\"text\":\"Go one\"}";
                    stream.write_all(format!("{head}{rest}").as_bytes()).expect("send");
                    None
                })
            })
            .collect();
        clients.into_iter().filter_map(|client| client.join().expect("no panic")).collect()
    });
    assert_eq!(replies.len(), 100);
    let id = replies[0].text("id");
    for reply in &replies {
        assert_eq!((reply.status, &reply.text("id")), (202, &id), "{reply:?}");
    }
    assert!(replies.iter().filter(|reply| !is_replay(reply)).count() <= 1);
    serve.client().wait_for(&id, "SUCCEEDED");
    assert_eq!(database.rows("SELECT count(*), min(id), max(lease_epoch) FROM go_tasks"), format!("1|{id}|1"));
}

#[test]
fn a_retry_finds_the_row_whose_answer_was_lost() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = Serve::start(&database.dsn_through(&proxy), &[]).unwrap_or_else(|failed| panic!("{failed:?}"));
    for round in 0..5 {
        let key = format!("key-{round}");
        proxy.lose_next("INSERT INTO go_tasks");
        let lost = post(&mut serve.client(), &key, "Go one");
        assert_eq!((lost.status, lost.text("outcome").as_str()), (503, "unknown"), "{lost:?}");
        proxy.until_lost(round + 1);
        let retry = post(&mut serve.client(), &key, "Go one");
        assert_eq!((retry.status, retry.text("id"), is_replay(&retry)), (202, format!("task[{round}]"), true));
        serve.client().wait_for(&retry.text("id"), "SUCCEEDED");
    }
    assert_eq!(database.rows("SELECT count(*), max(lease_epoch) FROM go_tasks"), "5|1");
}

#[test]
fn a_full_service_refuses_new_keys_only() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "0"]);
    let mut client = serve.client();
    let gate = Gate::shut(&database, "RUNNING");
    let first = post(&mut client, "first", "Go one");
    assert_eq!(first.status, 202, "{first:?}");
    gate.reached();
    let again = post(&mut client, "first", "Go one");
    assert_eq!((again.status, again.text("status").as_str(), is_replay(&again)), (202, "QUEUED", true), "{again:?}");
    assert_eq!(post(&mut client, "first", "Go two").status, 422);
    assert_eq!(post(&mut client, "second", "Go one").status, 503);
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "1");
    gate.open();
    client.wait_for(&first.text("id"), "SUCCEEDED");
}

#[test]
fn many_keys_at_once_share_statements_and_stay_apart() {
    let database = Database::new();
    let serve = Serve::on(&database, &["--queue", "2000"]);
    // Every key comes from four clients, each in another order; and there are texts without a key between them.
    let told: Vec<Vec<(usize, String)>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..16usize)
            .map(|client| {
                let serve = &serve;
                scope.spawn(move || {
                    let mut connection = serve.client();
                    (0..40)
                        .map(|n| {
                            let key = (client / 4) * 40 + if client % 2 == 0 { n } else { 39 - n };
                            assert_eq!(connection.post_text("keyless").status, 202);
                            let reply = post(&mut connection, &key.to_string(), &format!("text {key}"));
                            assert_eq!(reply.status, 202, "{reply:?}");
                            (key, reply.text("id"))
                        })
                        .collect()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).collect()
    });
    for (key, id) in told.into_iter().flatten() {
        let row = format!("SELECT idempotency_key, text FROM go_tasks WHERE id = '{id}'");
        assert_eq!(database.rows(&row), format!("{key}|text {key}"));
    }
    let counts =
        "SELECT count(*) FILTER (WHERE text = 'keyless'), count(*), count(DISTINCT idempotency_key) FROM go_tasks";
    assert_eq!(database.rows(counts), "640|800|160");
}
