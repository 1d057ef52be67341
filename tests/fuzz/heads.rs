//! Heads: `head::find_end` and `head::parse`.

use taskstats::http::head::{Head, find_end, parse};
use taskstats::limits::{HEAD_BYTES, HEAD_FIELDS};

use crate::dice::{Dice, repeat};

const GUEST: &str = "4711";
const BODY_LIMIT: usize = 1000;

const LINES: [&str; 16] = [
    "GET / HTTP/1.1",
    "GET /tasks/task[0] HTTP/1.1",
    "POST /tasks HTTP/1.1",
    "POST /tasks/task%5B0%5D/cancel HTTP/1.0",
    "DELETE /a?b=c#d HTTP/1.1",
    "HEAD //a/../b HTTP/1.1",
    "get /a{b}|c^`\"<>\\ HTTP/1.1",
    "OPTIONS /%zz HTTP/1.1",
    "GET /long HTTP/1.0",
    "GET http://a/b HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "CONNECT a:80 HTTP/1.1",
    "GET / HTTP/2.0",
    "GET / HTTP/1.2",
    "GET  / HTTP/1.1",
    "PRI * HTTP/2.0",
];
const SOUND: [&str; 12] = [
    "Content-Length: 5",
    "content-length:\t7 ",
    "Content-Length: 1000",
    "TE: trailers",
    "Trailer: Host",
    "Connection: close",
    "Connection: Keep-Alive, Host, Content-Length",
    "Expect: 100-continue",
    "Upgrade: h2c",
    "X-Guest: 9",
    "Authorization: Bearer abc",
    "Prefer: wait=3",
];
const ODD: [&str; 18] = [
    "Host: b",
    "host: [::1]:1",
    "Host: a b",
    "Content-Length: 0",
    "Content-Length: 1001",
    "Content-Length: 18446744073709551615",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length : 5",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer_Encoding: chunked",
    "Expect: the worst",
    "A: \x01",
    " folded",
    "no colon",
    ": no name",
    "A:b:c",
];
const SPICE: [&[u8]; 20] = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b": ",
    b" ",
    b"\0",
    b"\xff",
    b"\t",
    b"\x7f",
    b"%00",
    b",",
    b"\r\nContent-Length: 7",
    b"\r\nTransfer-Encoding: chunked",
    b"HTTP/2.0",
    b"HTTP/1.1",
    b"99999999999999999999",
    b"\r\n ",
    b"GET / HTTP/1.1\r\nHost: b\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
];

/// Mostly a head, with something wrong in it or not, and some bytes of what follows.
fn generate(dice: &mut Dice) -> Vec<u8> {
    if dice.below(20) == 0 {
        return dice.bytes(200);
    }
    let mut head = dice.one_of(&LINES).to_owned() + "\r\n";
    if dice.below(8) > 0 {
        head += "Host: a\r\n";
    }
    for _ in 0..dice.below(5) {
        head += if dice.below(8) > 0 { dice.one_of(&SOUND) } else { dice.one_of(&ODD) };
        head += "\r\n";
    }
    if dice.below(500) == 0 {
        head += &format!("Long: {}\r\n", "x".repeat(dice.below(2 * HEAD_BYTES)));
    }
    if dice.below(500) == 0 {
        head += &"A: b\r\n".repeat(dice.below(100));
    }
    let mut bytes = (head + "\r\n{\"text\":\"a\"}").into_bytes();
    if dice.below(3) > 0 {
        dice.mutate(&mut bytes, &SPICE);
    }
    bytes
}

#[test]
fn a_head_is_refused_or_means_one_thing() {
    let (mut accepted, mut refused, mut waiting) = (0, 0, 0);
    repeat(700_000, |dice| {
        let bytes = generate(dice);
        let end = find_end(&bytes, 0);
        let cut = dice.below(bytes.len() + 1);
        // The pieces a head comes in change nothing.
        if find_end(&bytes[..cut], 0) == Ok(None) {
            assert_eq!(find_end(&bytes, cut), end, "{:?} cut at {cut}", show(&bytes));
        }
        match (end, parse(&bytes, GUEST, BODY_LIMIT)) {
            (Ok(Some(end)), Ok(Some(head))) if end == head.size => {
                accepted += 1;
                means_one_thing(&bytes, &head);
            }
            (Ok(None), Ok(None)) => waiting += 1,
            // The two views differ, or one of them refuses: so does the door.
            (Err(refusal), _) | (_, Err(refusal)) => {
                refused += 1;
                assert!([400, 411, 413, 417, 431, 505].contains(&refusal.status), "{refusal:?}");
            }
            (end, head) => panic!("{:?}: {end:?} and {head:?}", show(&bytes)),
        }
    });
    println!("{accepted} accepted, {refused} refused, {waiting} incomplete");
    assert!(accepted > 100_000 && refused > 100_000 && waiting > 1000, "the inputs miss something");
}

/// The head read again by a reader that knows no tricks: split at line ends, split at colons, count.
fn means_one_thing(bytes: &[u8], head: &Head) {
    let shown = show(bytes);
    let raw = &bytes[..head.size];
    assert!(raw.ends_with(b"\r\n\r\n") && head.body <= BODY_LIMIT, "{shown}");
    let raw = std::str::from_utf8(raw).expect("visible ASCII and blanks");
    assert!(raw.chars().all(|c| c.is_ascii_graphic() || " \t\r\n".contains(c)), "{shown}");
    assert_eq!(raw.matches('\n').count(), raw.matches("\r\n").count(), "{shown}");
    assert_eq!(raw.matches('\r').count(), raw.matches("\r\n").count(), "{shown}");
    let (_, fields) = read(raw);
    assert!(values(&fields, "transfer-encoding").is_empty(), "{shown}");
    match values(&fields, "content-length")[..] {
        [] => assert_eq!(head.body, 0, "{shown}"),
        [length] => assert_eq!(length.parse(), Ok(head.body), "{shown}"),
        _ => panic!("two lengths: {shown}"),
    }
    let forward = std::str::from_utf8(&head.forward).expect("visible ASCII");
    let (line, fields) = read(forward);
    assert_eq!(
        line,
        raw.lines().next().expect("a line").rsplit_once(' ').expect("a version").0.to_owned() + " HTTP/1.0"
    );
    assert_eq!(values(&fields, "content-length"), [head.body.to_string()], "{shown}");
    assert_eq!(values(&fields, "x-guest"), [GUEST], "{shown}");
    assert_eq!(values(&fields, "connection"), ["keep-alive"], "{shown}");
    for hop in ["transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive", "proxy-connection"] {
        assert!(values(&fields, hop).is_empty(), "{hop} is passed on: {shown}");
    }
    // What was passed on, read once more by the same reader, is passed on as it is.
    if head.forward.len() <= HEAD_BYTES && fields.len() <= HEAD_FIELDS {
        assert_eq!(find_end(&head.forward, 0), Ok(Some(head.forward.len())), "{shown}");
        let again = parse(&head.forward, GUEST, BODY_LIMIT).expect("sound").expect("whole");
        assert_eq!((again.body, again.terms.head_only), (head.body, head.terms.head_only), "{shown}");
        assert_eq!(std::str::from_utf8(&again.forward), Ok(forward), "{shown}");
    }
}

/// The first line, and names (in lower case) with values.
fn read(head: &str) -> (&str, Vec<(String, &str)>) {
    let mut lines = head.strip_suffix("\r\n\r\n").expect("an empty line at the end").split("\r\n");
    let first = lines.next().expect("a first line");
    assert_eq!(first.split(' ').count(), 3, "{first:?}");
    let fields = lines.map(|line| {
        let (name, value) = line.split_once(':').expect("a colon");
        assert!(!name.is_empty() && !name.contains([' ', '\t']), "{line:?}");
        (name.to_ascii_lowercase(), value.trim())
    });
    (first, fields.collect())
}

fn values<'a>(fields: &[(String, &'a str)], name: &str) -> Vec<&'a str> {
    fields.iter().filter(|(found, _)| found == name).map(|(_, value)| *value).collect()
}

fn show(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(2000)].escape_ascii().to_string()
}
