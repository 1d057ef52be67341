//! Batches: many texts in one request, all of them or none.

use serde_json::{Value, json};

use crate::harness::http::Reply;
use crate::harness::{Client, Database, Gate, PgCluster, Proxy, Serve};

fn post(client: &mut Client, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let headers = [&[("Content-Type", "application/x-ndjson")], headers].concat();
    client.request("POST", "/tasks", &headers, body)
}

fn lines(texts: impl IntoIterator<Item = String>) -> Vec<u8> {
    texts.into_iter().map(|text| json!({"text": text}).to_string() + "\n").collect::<Vec<_>>().concat().into_bytes()
}

fn ids(reply: &Reply) -> Vec<String> {
    assert_eq!((reply.status, reply.headers["content-type"].as_str()), (202, "application/x-ndjson"), "{reply:?}");
    let body = String::from_utf8(reply.body.clone()).expect("UTF-8");
    let line =
        |line: &str| serde_json::from_str::<Value>(line).expect("JSON")["id"].as_str().expect("an id").to_owned();
    body.lines().map(line).collect()
}

#[test]
fn every_line_becomes_a_task_in_its_order() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let reply = post(&mut client, &[], &lines((0..200).map(|n| format!("text {n}"))));
    let ids = ids(&reply);
    assert_eq!(ids, (0..200).map(|n| format!("task[{n}]")).collect::<Vec<_>>());
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(database.rows(&format!("SELECT text FROM go_tasks WHERE id = '{id}'")), format!("text {n}"));
        client.wait_for(id, "SUCCEEDED");
    }
    // The last line may go without its end; a single task has the same shape.
    let single = post(&mut client, &[], b"{\"text\":\"Go one\"}");
    assert_eq!(single.text("id"), "task[200]");
    assert_eq!((single.text("status").as_str(), &single.json()["queue"]["position"]), ("QUEUED", &0.into()));
}

#[test]
fn a_bad_line_is_named_and_nothing_is_stored() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let good = "{\"text\":\"good\"}\n";
    for (body, named) in [
        (String::new(), "empty"),
        ("\n".into(), "line 1"),
        (format!("{good}{good}{{\"text\":7}}\n{good}"), "line 3"),
        (format!("{good}\n{good}"), "line 2"),
        (format!("{good}{{\"text\":\"\\u0000\"}}"), "line 2"),
        (format!("[{}]", good.trim()), "line 1"),
    ] {
        let reply = post(&mut client, &[], body.as_bytes());
        assert_eq!((reply.status, reply.headers["content-type"].as_str()), (400, "application/problem+json"), "{body}");
        assert!(reply.text("detail").contains(named), "{body}: {reply:?}");
    }
    let keyed = post(&mut client, &[("Idempotency-Key", "k")], good.as_bytes());
    assert_eq!(keyed.status, 400, "{keyed:?}");
    assert!(keyed.text("detail").contains("Idempotency-Key"), "{keyed:?}");
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "0");
    assert_eq!(post(&mut client, &[("Prefer", "wait=30")], good.as_bytes()).status, 202, "a batch is not waited for");
}

#[test]
fn a_batch_finds_room_for_all_or_is_refused() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1", "--queue", "4"]);
    let mut client = serve.client();
    let gate = Gate::shut(&database, "RUNNING");
    let five = lines((0..5).map(|n| format!("five {n}")));
    let first = client.submit("first");
    gate.reached();
    let refused = post(&mut client, &[], &five);
    assert_eq!((refused.status, refused.text("outcome").as_str()), (503, "none"), "{refused:?}");
    assert!(refused.headers["retry-after"].parse::<u32>().expect("seconds") >= 1);
    let six = post(&mut client, &[], &lines((0..6).map(|n| format!("six {n}"))));
    assert_eq!(six.status, 413, "{six:?}");
    assert!(six.text("detail").contains("at most 5"), "{six:?}");
    let four = ids(&post(&mut client, &[], &lines((0..4).map(|n| format!("four {n}")))));
    assert_eq!(client.post_text("one too many").status, 503);
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "5");
    gate.open();
    for id in std::iter::once(&first).chain(&four) {
        client.wait_for(id, "SUCCEEDED");
    }
    assert_eq!(ids(&post(&mut client, &[], &five)).len(), 5);
}

#[test]
fn the_longest_batch_is_taken_and_a_longer_one_is_not() {
    let database = Database::new();
    let serve = Serve::on(&database, &["--queue", "20000"]);
    let mut client = serve.client();
    let most = taskstats::limits::BATCH_LINES;
    let longer = post(&mut client, &[], &lines((0..=most).map(|_| String::new())));
    assert_eq!(longer.status, 413, "{longer:?}");
    assert!(longer.text("detail").contains(&format!("at most {most}")), "{longer:?}");
    let ids = ids(&post(&mut client, &[], &lines((0..most).map(|n| n.to_string()))));
    assert_eq!(ids.len(), most);
    client.wait_for(ids.last().expect("some"), "SUCCEEDED");
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), most.to_string());
}

#[test]
fn a_batch_that_the_database_refuses_in_part_is_refused_whole() {
    let database = Database::with_schema();
    database.run("ALTER TABLE go_tasks ADD CONSTRAINT fussy CHECK (text <> 'bad')");
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let reply = post(&mut client, &[], &lines(["good", "bad", "good"].map(String::from)));
    assert_eq!((reply.status, reply.text("outcome").as_str()), (503, "none"), "{reply:?}");
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "0");
}

#[test]
fn a_batch_whose_answer_is_lost_is_stored_once_and_done() {
    let database = Database::with_schema();
    let proxy = Proxy::before(PgCluster::shared().socket_dir());
    let serve = Serve::start(&database.dsn_through(&proxy), &[]).unwrap_or_else(|failed| panic!("{failed:?}"));
    proxy.lose_next("INSERT INTO go_tasks");
    let reply = post(&mut serve.client(), &[], &lines((0..20).map(|n| n.to_string())));
    assert_eq!((reply.status, reply.text("outcome").as_str()), (503, "unknown"), "{reply:?}");
    for n in 0..20 {
        serve.client().wait_for(&format!("task[{n}]"), "SUCCEEDED");
    }
    assert_eq!(database.rows("SELECT count(*), max(lease_epoch) FROM go_tasks"), "20|1");
}
