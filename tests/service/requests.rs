//! What may be asked, and what is answered to everything else.

use crate::harness::{Database, Serve};

#[test]
fn malformed_submissions_are_refused_and_nothing_is_stored() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    let nested = [br#"{"text":"#.as_slice(), &[b'['; 10_000]].concat();
    for body in [
        &b""[..],
        b"{",
        b"[]",
        b"{}",
        br#"{"text":1}"#,
        br#"{"text":"a","text":"b"}"#,
        br#"{"text":"a","extra":1}"#,
        br#"{"text":"a\u0000b"}"#,
        br#"{"text":"\ud800"}"#,
        b"{\"text\":\"\xf1\"}",
        b"{\"text\":\"\xc0\xaf\"}",
        &nested,
    ] {
        let reply = client.post_raw(body);
        assert_eq!(reply.status, 400, "{}: {reply:?}", String::from_utf8_lossy(body));
        assert_eq!(reply.headers["content-type"], "application/problem+json");
        assert!(!reply.text("detail").is_empty());
    }
    let reply = client.request("POST", "/tasks", &[("Content-Type", "text/plain")], b"{\"text\":\"a\"}");
    assert_eq!(reply.status, 415, "{reply:?}");
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "0");
    client.submit("still served");
}

#[test]
fn unknown_things_are_not_found_and_wrong_methods_are_told_the_right_ones() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut client = serve.client();
    for (method, target, status, allow) in [
        ("GET", "/tasks/task[7]", 404, None),
        ("GET", "/tasks/no-such", 404, None),
        ("GET", "/", 404, None),
        ("GET", "/tasks/", 404, None),
        ("GET", "/healthz", 404, None),
        ("GET", "/tasks/%zz", 400, None),
        ("GET", "/tasks/%00", 400, None),
        ("GET", "/tasks", 405, Some("POST")),
        ("PUT", "/tasks/task[0]", 405, Some("GET, HEAD, DELETE")),
        ("GET", "/tasks/task[0]/cancel", 405, Some("POST")),
    ] {
        let reply = client.request(method, target, &[], b"");
        assert_eq!(
            (reply.status, reply.headers.get("allow").map(String::as_str)),
            (status, allow),
            "{method} {target}"
        );
        assert_eq!(reply.headers["content-type"], "application/problem+json");
    }
    let id = client.submit("Go one");
    let head = client.request("HEAD", &format!("/tasks/{id}"), &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn the_service_describes_itself() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let reply = serve.client().get("/openapi.json");
    assert_eq!((reply.status, reply.body.as_slice()), (200, include_bytes!("../../src/http/openapi.json").as_slice()));
    assert_eq!(serve.client().request("HEAD", "/openapi.json", &[], b"").status, 200);
}

#[test]
fn the_admin_listener_tells_health_and_readiness_only() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut admin = serve.admin_client();
    assert_eq!(admin.get("/healthz").json()["status"], "ok");
    let ready = admin.get("/readyz");
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &true.into()), "{ready:?}");
    assert_eq!(admin.get("/tasks/task[0]").status, 404);
}
