//! What may be asked, and what is answered to everything else.

use crate::harness::{Database, Serve};

/// Brackets of all kinds, never closed, deeper than any recursion may go.
fn nests() -> Vec<Vec<u8>> {
    let deep = |start: &str, piece: &str| [start, &piece.repeat(10_240 / piece.len())].concat().into_bytes();
    vec![
        deep(r#"{"text":"#, "["),
        deep("", "["),
        deep("", r#"{"text":"#),
        deep(r#"{"extra":"#, r#"[{"a":"#),
        [deep(r#"{"text":"#, "["), deep("", "]"), b"}".to_vec()].concat(),
    ]
}

#[test]
fn malformed_submissions_are_refused_and_nothing_is_stored() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let mut client = serve.client();
    let flat = [
        // No JSON, or more than one.
        &b""[..],
        b" ",
        b"{",
        br#"{"text":"a"#,
        br#"{"text":"a"}{"text":"b"}"#,
        b"{\"text\":\"a\"}\0",
        br#"{"text":'a'}"#,
        b"\xef\xbb\xbf{\"text\":\"a\"}",
        b"{\"text\":\"a\nb\"}",
        b"{\"text\":\"a\x01b\"}",
        br#"{"text":"\x"}"#,
        // Not an object with the one field.
        b"[]",
        b"{}",
        b"null",
        b"\"text\"",
        br#"{"text":1}"#,
        br#"{"text":1e999}"#,
        br#"{"text":null}"#,
        br#"{"text":true}"#,
        br#"{"text":["a"]}"#,
        br#"{"text":{"text":"a"}}"#,
        br#"{"Text":"a"}"#,
        br#"{"text":"a","extra":1}"#,
        br#"{"text":"a","text":"b"}"#,
        br#"{"text":"a","t\u0065xt":"b"}"#,
        br#"{"text":"a","\u0000":1}"#,
        // No Unicode text that PostgreSQL can store.
        br#"{"text":"a\u0000b"}"#,
        b"{\"text\":\"a\0b\"}",
        br#"{"text":"\ud800"}"#,
        br#"{"text":"\udc00"}"#,
        br#"{"text":"\ud800\ud800"}"#,
        br#"{"text":"\udc00\ud800"}"#,
        br#"{"text":"\ud83dx"}"#,
        br#"{"text":"\u12"}"#,
        b"{\"text\":\"\xf1\"}",
        b"{\"text\":\"\xf1\x80\x80\"}",
        b"{\"text\":\"\xc0\xaf\"}",
        b"{\"text\":\"\xc0\x80\"}",
        b"{\"text\":\"\xe0\x80\xaf\"}",
        b"{\"text\":\"\xf0\x80\x80\xaf\"}",
        b"{\"text\":\"\xed\xa0\x80\"}",
        b"{\"text\":\"\xf4\x90\x80\x80\"}",
        b"{\"text\":\"\xff\"}",
        b"{\"te\xffxt\":\"a\"}",
    ];
    for body in flat.into_iter().map(<[u8]>::to_vec).chain(nests()) {
        let reply = client.post_raw(&body);
        assert_eq!(reply.status, 400, "{}: {reply:?}", String::from_utf8_lossy(&body));
        assert_eq!(reply.headers["content-type"], "application/problem+json");
        assert!(!reply.text("detail").is_empty());
    }
    let reply = client.request("POST", "/tasks", &[("Content-Type", "text/plain")], b"{\"text\":\"a\"}");
    assert_eq!(reply.status, 415, "{reply:?}");
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "0");
    // On the same connection, by the one worker there is.
    let id = client.submit("still served");
    client.wait_for(&id, "SUCCEEDED");
}

#[test]
fn odd_submissions_that_are_text_get_a_correct_count() {
    let database = Database::with_schema();
    let serve = Serve::on(&database, &["--workers", "1"]);
    let mut client = serve.client();
    let brackets = format!(r#"{{"text":"{}"}}"#, "[{".repeat(5_120));
    let bodies: [(&str, &str); 9] = [
        (r#"{"text":""}"#, "0|0|0"),
        (r#"{"text":" \t\r\n"}"#, "0|4|4"),
        (r#"{"text":"\ud83d\ude00"}"#, "1|4|1"),
        (r#"{"t\u0065xt":"Go\u0020one"}"#, "2|6|6"),
        (r#"{"text":"\uffff \ufffe"}"#, "2|7|3"),
        (r#"{"text":"\u0001\u001f\u007f"}"#, "1|3|3"),
        (r#"{"text":"'; DROP TABLE go_tasks; --"}"#, "5|26|26"),
        (r#"{"text":"\\u0000 \\x00 %00"}"#, "3|15|15"),
        (&brackets, "1|10240|10240"),
    ];
    for (body, counts) in bodies {
        let reply = client.post_raw(body.as_bytes());
        assert_eq!(reply.status, 202, "{body}: {reply:?}");
        let id = reply.text("id");
        client.wait_for(&id, "SUCCEEDED");
        assert_eq!(database.task(&id), format!("SUCCEEDED|{counts}"), "{body}");
    }
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
