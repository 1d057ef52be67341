//! A task's text is its owner's: it must not get out through logs, metrics or somebody's error message.

use crate::harness::{Database, Serve, until};

/// In every text here; nobody else says it.
const MARKER: &str = "Xq7-marker";

fn submission(text: &str) -> Vec<u8> {
    serde_json::json!({ "text": text }).to_string().into_bytes()
}

#[test]
fn no_text_gets_into_the_log_or_the_admin_listener_whatever_becomes_of_it() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--max-words", "3", "--workers", "1", "--queue", "0", "--max-body", "1000"]);
    let mut client = serve.client();
    let text = format!("{MARKER} counted");
    let counted = client.submit(&text);
    client.wait_for(&counted, "SUCCEEDED");
    let failed = client.submit(&format!("{text} and too long"));
    client.wait_for(&failed, "FAILED");
    // The server's own error has the whole row in its DETAIL.
    database.run("ALTER TABLE go_tasks ADD CONSTRAINT refused CHECK (text NOT LIKE '%refused%')");
    assert_eq!(client.post_text(&format!("{text} refused")).status, 503);
    for (status, content_type, body) in [
        (400, "application/json", format!("{{\"text\":\"{MARKER}").into_bytes()),
        (400, "application/json", format!("{{\"text\":\"{MARKER}\",\"{MARKER}\":1}}").into_bytes()),
        (400, "application/json", format!("\"{MARKER}\"").into_bytes()),
        (400, "application/json", submission(&format!("{MARKER}\0"))),
        (413, "application/json", submission(&MARKER.repeat(100))),
        (415, "text/plain", submission(MARKER)),
        (415, MARKER, submission(MARKER)),
    ] {
        let reply = serve.client().request("POST", "/tasks", &[("Content-Type", content_type)], &body);
        assert_eq!(reply.status, status, "{reply:?}");
    }
    for (method, target) in [("GET", "/tasks/"), ("DELETE", "/tasks/"), ("PATCH", "/"), ("GET", "/tasks/%zz")] {
        client.request(method, &format!("{target}{MARKER}"), &[], b"");
    }
    serve.client().request("GET", "/", &[("X-Text", &format!("{MARKER}\u{e9}"))], b"");
    // A claim that is refused is a line in the log, and a task at work while the others are turned away.
    database.run(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no claim'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status IN ('RUNNING', 'FAILED'))
         EXECUTE FUNCTION refuse()",
    );
    client.submit(&text);
    assert_eq!(client.post_text(&text).status, 503);
    until("the log says why", || serve.stderr().iter().any(|line| line.contains("no claim")).then_some(()));
    let mut admin = serve.admin_client();
    for target in ["/", "/healthz", "/readyz", "/metrics"] {
        let reply = admin.get(target);
        let said = format!("{:?} {}", reply.headers, String::from_utf8_lossy(&reply.body));
        assert!(!said.contains(MARKER), "{target}: {said}");
    }
    let log = serve.stderr().join("\n");
    assert!(!log.contains(MARKER), "{log}");
}

#[test]
fn an_error_tells_what_is_wrong_without_repeating_the_text() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    for body in [format!("\"{MARKER}\""), format!("{{\"text\":\"{MARKER}\\ud800\"}}"), format!("[\"{MARKER}\"]")] {
        let reply = client.post_raw(body.as_bytes());
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(!reply.text("detail").contains(MARKER), "{body}: {reply:?}");
    }
}

#[test]
fn an_error_is_short_however_long_what_it_speaks_of() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let long = "\\u0001".repeat(170_000);
    for body in [format!("{{\"{long}\":1}}"), format!("{{\"text\":\"a\",\"{long}\":1}}")] {
        let reply = client.post_raw(body.as_bytes());
        assert_eq!(reply.status, 400, "{:?}", &reply.headers);
        assert!(reply.body.len() < 2000, "{} bytes", reply.body.len());
    }
    // A path and a type may be as long as a head.
    let long = "x".repeat(15_000);
    let reply = client.get(&format!("/{long}"));
    assert!(reply.status == 404 && reply.body.len() < 2000, "{} bytes", reply.body.len());
    let reply = client.request("POST", "/tasks", &[("Content-Type", &long)], b"");
    assert!(reply.status == 415 && reply.body.len() < 2000, "{} bytes", reply.body.len());
}
