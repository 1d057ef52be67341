//! A text in, a proven count out.

use std::thread;

use crate::harness::{Database, Serve};

#[test]
fn a_text_becomes_a_row_and_its_count() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let reply = client.post_text("Go one");
    assert_eq!(reply.status, 202, "{reply:?}");
    assert_eq!(reply.text("id"), "task[0]");
    assert_eq!(reply.text("status"), "QUEUED");
    assert_eq!(reply.json()["queue"]["position"], 0);
    assert_eq!(reply.headers["location"], "/tasks/task%5B0%5D");
    let task = client.wait_for("task[0]", "SUCCEEDED");
    assert_eq!((&task["words"], &task["bytes"], &task["runes"]), (&2.into(), &6.into(), &6.into()));
    assert_eq!(task["cancel_requested"], false);
    assert!(task["created_at"].as_str() <= task["started_at"].as_str(), "{task}");
    assert!(task["started_at"].as_str() <= task["finished_at"].as_str(), "{task}");
    assert_eq!(database.task("task[0]"), "SUCCEEDED|2|6|6");
    // Raw and percent-encoded name the same task.
    assert_eq!(client.get(&reply.headers["location"]).json()["id"], "task[0]");
    assert_eq!(client.submit("two"), "task[1]");
}

#[test]
fn texts_of_every_script_count_as_defined() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    for (text, counts) in [
        ("", [0, 0, 0]),
        ("任务 服务\u{3000}数据库", [3, 25, 9]),
        ("مرحبا بالعالم", [2, 25, 13]),
        ("👩\u{200d}👩\u{200d}👧 🇩🇪", [2, 27, 8]),
        ("a\u{a0}b\u{85}c\u{2003}d", [4, 11, 7]),
        ("e\u{301}le\u{300}ve\r\nfin", [2, 14, 12]),
        ("zero\u{200b}width\u{feff}", [1, 15, 11]),
    ] {
        let id = client.submit(text);
        let task = client.wait_for(&id, "SUCCEEDED");
        assert_eq!(
            serde_json::json!(counts),
            serde_json::json!([task["words"], task["bytes"], task["runes"]]),
            "{text}"
        );
    }
}

#[test]
fn a_text_that_fills_the_request_counts() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let frame = r#"{"text":""}"#.len();
    let text = "wörd ".repeat((1024 * 1024 - frame) / 6);
    let id = client.submit(&text);
    let words = text.len() / 6;
    client.wait_for(&id, "SUCCEEDED");
    assert_eq!(database.task(&id), format!("SUCCEEDED|{words}|{}|{}", words * 6, words * 5));
    // One byte more than a request may have is refused unread.
    let longest = "x".repeat(1024 * 1024 - frame);
    assert_eq!(client.post_text(&longest).status, 202);
    assert_eq!(serve.client().post_text(&format!("{longest}x")).status, 413);
}

#[test]
fn a_text_over_the_word_limit_fails_with_zero_counters() {
    let database = Database::new();
    let serve = Serve::on(&database, &["--max-words", "3"]);
    let mut client = serve.client();
    let (long, short) = (client.submit("one two three four"), client.submit("one two three"));
    let task = client.wait_for(&long, "FAILED");
    let reason = task["failure_reason"].as_str().expect("a reason");
    assert!(reason.contains('3') && reason.contains("max-words"), "{reason}");
    assert_eq!(database.task(&long), "FAILED|0|0|0");
    client.wait_for(&short, "SUCCEEDED");
}

#[test]
fn five_hundred_tasks_of_sixteen_clients_all_agree_with_their_rows() {
    let database = Database::new();
    let serve = Serve::on(&database, &["--queue", "600"]);
    let clients: Vec<_> = (0..16)
        .map(|number| {
            let mut client = serve.client();
            let share = if number < 4 { 32 } else { 31 };
            thread::spawn(move || {
                let ids: Vec<_> = (0..share).map(|n| (client.submit(&"w ".repeat(n + 1)), n + 1)).collect();
                ids.into_iter().map(|(id, words)| (client.wait_for(&id, "SUCCEEDED"), words)).collect::<Vec<_>>()
            })
        })
        .collect();
    let tasks: Vec<_> = clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
    assert_eq!(tasks.len(), 500);
    for (task, words) in &tasks {
        let id = task["id"].as_str().expect("an id");
        assert_eq!(task["words"], *words, "{task}");
        assert_eq!(database.task(id), format!("SUCCEEDED|{words}|{0}|{0}", words * 2));
    }
    let counted =
        "SELECT count(*), count(DISTINCT id), max(go_task_number(id)) FROM go_tasks WHERE status = 'SUCCEEDED'";
    assert_eq!(database.rows(counted), "500|500|499");
}

#[test]
fn a_number_that_another_row_has_is_passed_over() {
    let database = Database::with_schema();
    let store = database.store("test");
    database.run(
        "INSERT INTO go_tasks (id, text, status) SELECT 'task[' || n || ']', '', 'QUEUED' FROM generate_series(0, 2) n",
    );
    let id = store.submit("Go one".into()).expect("a number that is free");
    assert_eq!(id.as_str(), "task[3]");
    assert_eq!(database.rows("SELECT count(*), min(text) FROM go_tasks"), "4|");
}
