//! Who may ask: the bearer token of the public listener, and the admin listener that is for this host alone.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use taskstats::limits::BODY_TIME;

use crate::harness::serve::{BINARY, End, run};
use crate::harness::{Database, PATIENCE, Serve};

const TOKEN: &str = "a-token-of-more-than-32-bytes/with+signs=";

/// A file in a directory of its own, gone with this value.
struct Secret {
    dir: PathBuf,
    path: String,
}

impl Secret {
    fn new(name: &str, content: &str, mode: u32) -> Secret {
        let dir = std::env::temp_dir().join(format!("taskstats-test-{}-{name}", std::process::id()));
        fs::create_dir(&dir).expect("a fresh directory");
        let file = dir.join("token");
        fs::write(&file, content).expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("its mode");
        Secret { path: file.to_str().expect("UTF-8").to_owned(), dir }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What serve says when it refuses these flags: exit code 2, one line, nothing on stdout.
fn refused(flags: &[&str]) -> String {
    let output = run(&[&["serve", "--admin", "127.0.0.1:0", "--dsn", "host=/nowhere"], flags].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{flags:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

#[test]
fn a_token_file_that_will_not_do_is_told_before_anything_starts() {
    for (name, content, mode, why) in [
        ("short", &TOKEN[..31], 0o600, "31 bytes"),
        ("empty", "", 0o600, "0 bytes"),
        ("long", &"x".repeat(5000), 0o600, "4096"),
        ("spaces", "0123456789abcdef 0123456789abcdef", 0o600, "visible ASCII"),
        ("lines", "0123456789abcdef0123456789abcdef\n\n", 0o600, "visible ASCII"),
        ("group", TOKEN, 0o640, "mode 0640"),
        ("world", TOKEN, 0o604, "mode 0604"),
        ("writable", TOKEN, 0o602, "mode 0602"),
    ] {
        let secret = Secret::new(name, content, mode);
        let said = refused(&["--token-file", &secret.path]);
        assert!(said.contains("--token-file") && said.contains(&secret.path) && said.contains(why), "{said}");
        assert!(content.is_empty() || !said.contains(content), "{said}");
    }
    assert!(refused(&["--token-file", "/no/such/file"]).contains("cannot be read"));
    assert!(refused(&["--token-file", "/tmp"]).contains("not a file"));
}

#[test]
fn more_than_loopback_is_refused_without_a_token_unless_everybody_is_welcome() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8080", "[2001:db8::1]:8080", "[::ffff:127.0.0.1]:0"] {
        let said = refused(&["--listen", address]);
        assert!(
            said.contains(address) && said.contains("--token-file") && said.contains("--allow-anonymous"),
            "{said}"
        );
    }
    assert!(refused(&["--allow-anonymous=no"]).contains("allow-anonymous"));
    assert!(refused(&["--allow-anonymous", "1"]).contains('1'), "a switch takes no value");
    // The environment may say it as well; then it is PostgreSQL that is missing.
    for (value, code) in [("1", 1), ("true", 1), ("0", 2), ("false", 2), ("", 2)] {
        let mut serve = Command::new(BINARY);
        serve.args(["serve", "--listen", "192.0.2.1:8080", "--data", "/nowhere"]).env("TASKSTATS_PG_BIN", "/nowhere");
        let output = serve.env("TASKSTATS_ALLOW_ANONYMOUS", value).output().expect("the binary");
        assert_eq!(output.status.code(), Some(code), "{value:?}: {output:?}");
    }
    // An address that this host does not have: taken by the configuration, and then refused by the kernel.
    let (database, secret) = (Database::new(), Secret::new("beyond", TOKEN, 0o400));
    for flags in [&["--allow-anonymous"][..], &["--token-file", &secret.path]] {
        let flags = [&["--listen", "192.0.2.1:8080"], flags].concat();
        let (end, said) = Serve::start(&database.dsn(), &flags).err().expect("no such address");
        assert!(end == End::Code(1) && said.contains("cannot listen"), "{flags:?}: {end:?}: {said}");
    }
}

#[test]
fn without_the_token_nothing_is_answered_but_401() {
    let (database, secret) = (Database::new(), Secret::new("http", &format!("{TOKEN}\n"), 0o600));
    let serve = Serve::on(&database, &["--token-file", &secret.path]);
    let mut client = serve.client();
    let body = br#"{"text":"Go one"}"#.as_slice();
    let bearer = |token: &str| format!("Bearer {token}");
    let wrong = [bearer(&TOKEN[1..]), bearer(&format!("{TOKEN}x")), bearer(""), TOKEN.into(), format!("Basic {TOKEN}")];
    for authorization in wrong.iter().map(Some).chain([None]) {
        for (method, target) in [
            ("POST", "/tasks"),
            ("GET", "/tasks/task[0]"),
            ("DELETE", "/tasks/task[0]"),
            ("GET", "/"),
            ("PUT", "/tasks"),
        ] {
            let mut headers = vec![("Content-Type", "application/json")];
            headers.extend(authorization.map(|value| ("Authorization", value.as_str())));
            let reply = client.request(method, target, &headers, body);
            assert_eq!((reply.status, reply.headers["www-authenticate"].as_str()), (401, "Bearer"), "{reply:?}");
            assert_eq!(reply.headers["content-type"], "application/problem+json");
            assert!(!reply.text("detail").contains(TOKEN));
        }
    }
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), "0");
    let headers = [("Content-Type", "application/json"), ("Authorization", &*bearer(TOKEN))];
    let reply = client.request("POST", "/tasks", &headers, body);
    assert_eq!((reply.status, reply.text("id").as_str()), (202, "task[0]"));
    let reply = client.request("GET", "/tasks/task[0]", &[("authorization", &format!("bearer  {TOKEN}"))], b"");
    assert_eq!(reply.status, 200, "the scheme has no case");
    // Two tokens in one head: nobody can know which one counts.
    let twice = [("Authorization", &*bearer(TOKEN)), ("Authorization", &*bearer("x"))];
    assert_eq!(serve.client().request("GET", "/tasks/task[0]", &twice, b"").status, 400);
    // The admin listener is for this host, which needs none.
    assert_eq!(serve.admin_client().get("/readyz").status, 200);
    assert!(!serve.stderr().join("\n").contains(TOKEN));
}

#[test]
fn a_body_is_not_waited_for_where_there_is_no_token() {
    let (database, secret) = (Database::new(), Secret::new("unread", TOKEN, 0o600));
    let serve = Serve::on(&database, &["--token-file", &secret.path]);
    // The door waits longer for a body than this client for its answer.
    assert!(BODY_TIME >= PATIENCE);
    for field in ["", "Authorization: Bearer wrong\r\n", "Expect: 100-continue\r\n"] {
        let mut stream = TcpStream::connect(serve.listen).expect("the service listens");
        stream.set_read_timeout(Some(PATIENCE / 2)).expect("a timeout");
        let head = "POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        stream.write_all(format!("{head}{field}Content-Length: 1048576\r\n\r\n").as_bytes()).expect("a head");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer, and the end");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{field}{answer}");
        assert!(answer.contains("\r\nWWW-Authenticate: Bearer\r\n"), "{field}{answer}");
        assert!(answer.contains("\r\nContent-Type: application/problem+json\r\n"), "{field}{answer}");
    }
}

#[test]
fn the_admin_listener_answers_to_this_host_and_only_to_questions() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let mut admin = serve.admin_client();
    for (host, status) in [
        ("localhost", 200),
        ("LOCALHOST:8081", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8081", 200),
        ("rebound.example:8081", 421),
        ("localhost.rebound.example", 421),
        ("127.0.0.1.rebound.example", 421),
        ("169.254.169.254", 421),
        ("", 421),
    ] {
        for target in ["/healthz", "/readyz"] {
            let reply = admin.request("GET", target, &[("Host", host)], b"");
            assert_eq!(reply.status, status, "{host}: {reply:?}");
        }
        let reply = admin.request("POST", "/nowhere", &[("Host", host)], b"");
        assert_eq!(reply.status, if status == 200 { 405 } else { 421 }, "{host}: {reply:?}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        for target in ["/healthz", "/readyz", "/", "/tasks", "/nowhere"] {
            let reply = admin.request(method, target, &[], b"{}");
            assert_eq!((reply.status, reply.headers["allow"].as_str()), (405, "GET, HEAD"), "{method}: {reply:?}");
        }
    }
    assert_eq!(admin.request("HEAD", "/healthz", &[], b"").status, 200);
    assert_eq!(admin.get("/nowhere").status, 404);
    // The public listener may be asked by any name: that is what a proxy in front sends.
    let reply = serve.client().request("GET", "/tasks/task[0]", &[("Host", "tasks.example")], b"");
    assert_eq!(reply.status, 404);
}
