use super::*;

const GUEST: &str = "4711";

/// The way a client's bytes go: the end of the head first, then its meaning.
fn read(bytes: &[u8]) -> Result<Option<Head>, Refusal> {
    let end = find_end(bytes, 0)?;
    let head = parse(bytes, GUEST, 1000)?;
    if let Some(head) = &head {
        assert_eq!(end, Some(head.size), "two views of one head");
    }
    Ok(head)
}

fn accepted(text: &str) -> Head {
    read(text.as_bytes()).unwrap_or_else(|e| panic!("{text:?}: {e:?}")).unwrap_or_else(|| panic!("{text:?}: partial"))
}

fn status(bytes: impl AsRef<[u8]>) -> u16 {
    match read(bytes.as_ref()) {
        Err(refusal) => refusal.status,
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes.as_ref())),
    }
}

/// The status for a POST with these fields.
fn fields(fields: &str) -> u16 {
    status(format!("POST /tasks HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n"))
}

#[test]
fn a_sound_head_is_rewritten() {
    let text = "POST /tasks?x=[1] HTTP/1.1\r\nHost: a:80\r\nContent-Length:  7 \r\nPrefer: wait=5\r\nConnection: Foo, Close\r\n\
                x-guest: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nExpect: 100-Continue\r\n\r\n";
    let head = accepted(&format!("{text}{{body..."));
    assert_eq!((head.method(), head.host(), head.authorization()), ("POST", Some("a:80"), None));
    assert_eq!((head.size, head.body), (text.len(), 7));
    assert!(!head.terms.keep_alive && !head.terms.is_old && head.expects_continue && !head.terms.head_only);
    assert_eq!(
        String::from_utf8(head.forward).expect("ASCII"),
        "POST /tasks?x=[1] HTTP/1.0\r\nConnection: keep-alive\r\nX-Guest: 4711\r\nHost: a:80\r\n\
         Prefer: wait=5\r\nContent-Length: 7\r\n\r\n"
    );
}

#[test]
fn connections_are_kept_by_the_rules_of_their_version() {
    let keeps = |version: &str, connection: &str| {
        accepted(&format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n")).terms.keep_alive
    };
    assert!(keeps("1.1", ""));
    assert!(keeps("1.1", "Connection: keep-alive\r\n"));
    assert!(keeps("1.1", "Connection: closed, not-close\r\n"));
    assert!(!keeps("1.1", "Connection: keep-alive, close\r\n"));
    assert!(!keeps("1.1", "Connection: a\r\nConnection: CLOSE\r\n"));
    assert!(!keeps("1.0", ""));
    assert!(keeps("1.0", "Connection: Keep-Alive\r\n"));
    assert!(!keeps("1.0", "Connection: keep-alive, close\r\n"));
    assert!(accepted("GET / HTTP/1.0\r\n\r\n").terms.is_old);
    assert!(accepted("HEAD / HTTP/1.0\r\n\r\n").terms.head_only);
}

#[test]
fn an_incomplete_head_waits() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n";
    for length in 0..text.len() {
        assert!(read(&text.as_bytes()[..length]).expect("nothing wrong yet").is_none(), "{length}");
    }
    assert!(read(text.as_bytes()).expect("sound").is_some());
}

#[test]
fn the_end_is_found_in_whatever_pieces_it_comes() {
    let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET";
    for seen in 0..=text.len() - 4 {
        assert_eq!(find_end(text, seen), Ok(Some(text.len() - 3)), "{seen}");
    }
}

#[test]
fn lengths_that_are_no_plain_numbers_are_refused() {
    for length in ["-1", "+5", "0x10", "5, 6", "5,5", "5 5", "", "1e3", "5;", "\u{665}"] {
        assert_eq!(fields(&format!("Content-Length: {length}")), 400, "{length:?}");
    }
    assert_eq!(fields("Content-Length: 5\r\nContent-Length: 6"), 400);
    assert_eq!(fields("Content-Length: 5\r\ncontent-length: 5"), 400);
    let huge = ["1001", "1000000000", "30000000000", "9223372036854775808", "18446744073709551616"];
    for length in huge.into_iter().chain(["9".repeat(100).as_str()]) {
        assert_eq!(fields(&format!("Content-Length: {length}")), 413, "{length}");
    }
    assert_eq!(accepted("POST / HTTP/1.0\r\nContent-Length: 1000\r\n\r\n").body, 1000);
}

#[test]
fn transfer_encoding_is_refused_in_every_disguise() {
    for te in ["chunked", "Chunked", "identity", "gzip, chunked", "xchunked", "", " chunked\t"] {
        assert_eq!(fields(&format!("Transfer-Encoding: {te}")), 411, "{te:?}");
        assert_eq!(fields(&format!("Content-Length: 5\r\nTRANSFER-encoding:{te}")), 411, "{te:?}");
    }
    for te in ["Transfer-Encoding : chunked", " Transfer-Encoding: chunked", "Transfer\tEncoding: chunked"] {
        assert_eq!(fields(te), 400, "{te:?}");
    }
    assert_eq!(fields("Transfer-Encoding:\x0bchunked"), 400);
}

#[test]
fn other_versions_are_refused() {
    for version in ["HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "HTTP/3.0", "http/1.1", "HTTP/1"] {
        assert_eq!(status(format!("GET / {version}\r\nHost: a\r\n\r\n")), 505, "{version}");
    }
    assert_eq!(status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    for line in ["GET /", "GET / HTTP/1.1 x", "GET  / HTTP/1.1", "GET /\tHTTP/1.1"] {
        assert_eq!(status(format!("{line}\r\nHost: a\r\n\r\n")), 400, "{line}");
    }
    assert_eq!(status(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 400);
}

#[test]
fn bytes_that_have_no_place_in_a_head_are_refused() {
    for byte in (0..0x20).filter(|b| ![b'\t', b'\r', b'\n'].contains(b)).chain(0x7f..=0xff) {
        let head = |before: &str, after: &str| [before.as_bytes(), &[byte], after.as_bytes()].concat();
        assert_eq!(status(head("GET / HTTP/1.1\r\nHost: a\r\nA: b", "c\r\n\r\n")), 400, "value {byte:#x}");
        assert_eq!(status(head("GET / HTTP/1.1\r\nHost: a\r\nA", "c: d\r\n\r\n")), 400, "name {byte:#x}");
        assert_eq!(status(head("GET /a", "b HTTP/1.1\r\nHost: a\r\n\r\n")), 400, "target {byte:#x}");
        assert_eq!(status(head("GE", "T / HTTP/1.1\r\nHost: a\r\n\r\n")), 400, "method {byte:#x}");
    }
}

#[test]
fn lines_end_in_cr_lf_and_are_never_folded() {
    for text in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\rB: c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n\tc\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(status(text), 400, "{text:?}");
    }
}

#[test]
fn only_paths_are_targets() {
    for target in ["http://a/", "*", "a", "", "/caf\u{e9}"] {
        assert_eq!(status(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")), 400, "{target}");
    }
    assert_eq!(status("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

#[test]
fn there_is_one_host() {
    assert_eq!(status("GET / HTTP/1.1\r\nA: b\r\n\r\n"), 400);
    assert_eq!(fields("Host: a"), 400);
    for host in ["a b", "a/b", "a@b", "a,b", "a\tb"] {
        assert_eq!(status(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")), 400, "{host}");
    }
    for host in ["[::1]:8080", "localhost:1", "", "a_b-c.d"] {
        assert_eq!(accepted(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).body, 0);
    }
}

#[test]
fn fields_that_mean_one_thing_come_once() {
    assert_eq!(fields("Content-Type: text/plain\r\ncontent-type: application/json"), 400);
    assert_eq!(fields("Idempotency-Key: a\r\nIdempotency-Key: a"), 400);
    assert_eq!(fields("Authorization: Bearer a\r\nauthorization: Bearer b"), 400);
    assert_eq!(fields("Expect: 200-ok"), 417);
    accepted("GET / HTTP/1.0\r\nPrefer: wait=1\r\nPrefer: handling=strict\r\n\r\n");
}

#[test]
fn a_head_says_what_a_guard_asks_for() {
    let head = accepted("HEAD / HTTP/1.0\r\n\r\n");
    assert_eq!((head.method(), head.host(), head.authorization()), ("HEAD", None, None));
    let head = accepted("BREW / HTTP/1.1\r\nAUTHORIZATION:\tBearer  a \r\nA: b\r\nhost:\r\n\r\n");
    assert_eq!((head.method(), head.host(), head.authorization()), ("BREW", Some(""), Some("Bearer  a")));
}

#[test]
fn a_head_has_its_limits() {
    let with_fields = |n: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(n - 1));
    accepted(&with_fields(HEAD_FIELDS));
    assert_eq!(status(with_fields(HEAD_FIELDS + 1)), 431);
    let with_size = |n: usize| {
        let rest = "GET / HTTP/1.1\r\nHost: a\r\nA: \r\n\r\n".len();
        format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "b".repeat(n - rest))
    };
    assert_eq!(accepted(&with_size(HEAD_BYTES)).size, HEAD_BYTES);
    assert_eq!(status(with_size(HEAD_BYTES + 1)), 431);
    assert_eq!(status("G".repeat(HEAD_BYTES)), 431);
}
