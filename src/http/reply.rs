//! Replies: what a handler, or the door itself, says to a client. Must never let a header out whose value could end
//! its own line.

use std::fmt::Display;
use std::time::SystemTime;

use httpdate::fmt_http_date;
use serde_json::{Value, json};
use tiny_http::StatusCode;

use crate::limits::{DETAIL_CHARS, REPLY_BYTES};
use crate::log;

/// What every reply says besides, unless its handler says otherwise: nobody keeps it, and a browser that is shown it takes
/// it for nothing but what it is.
const ALWAYS: [(&str, &str); 6] = [
    ("Server", "taskstats"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
];

/// Room for the head of an answer, bytes: most have less.
const HEAD_ROOM: usize = 512;

/// One reply. `Content-Type` is one of its headers; the length, the date and what keeps the connection are added later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status code, 200 to 599.
    pub status: u16,
    /// Names and values; a value may hold visible ASCII and spaces, or the client gets a 500 instead.
    pub headers: Vec<(&'static str, String)>,
    /// At most [`REPLY_BYTES`], or the client gets a 500 instead. For HEAD it is measured and not sent.
    pub body: Vec<u8>,
}

impl Reply {
    /// An error: `application/problem+json` (RFC 9457) with members of its own. A long detail is cut.
    pub(super) fn problem(status: u16, detail: impl Display, members: &[(&str, Value)]) -> Reply {
        let mut detail = detail.to_string();
        if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARS) {
            detail.truncate(end);
            detail.push('…');
        }
        let mut body = json!({"type": "about:blank", "title": reason(status), "status": status, "detail": detail});
        for (name, value) in members {
            body[*name] = value.clone();
        }
        let headers = vec![("Content-Type", "application/problem+json".into())];
        Reply { status, headers, body: body.to_string().into_bytes() }
    }

    /// The reply itself, or a 500 in its place when it must not be sent.
    pub(super) fn checked(self) -> Reply {
        match self.fault() {
            None => self,
            Some(fault) => {
                log::line(format_args!("a handler's reply with status {} was not sent: {fault}", self.status));
                Refusal::UNANSWERED.into()
            }
        }
    }

    fn fault(&self) -> Option<&'static str> {
        let visible = |text: &str| text.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        if !(200..600).contains(&self.status) {
            Some("its status is not one a reply can have")
        } else if self.body.len() > REPLY_BYTES {
            Some("its body is too long")
        } else if !self.headers.iter().all(|(name, value)| visible(name) && visible(value)) {
            Some("a header holds more than visible ASCII")
        } else {
            None
        }
    }

    /// The whole answer, for the client's socket.
    pub(super) fn into_bytes(self, terms: Terms) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_ROOM + self.body.len());
        let mut put = |parts: &[&str]| parts.iter().for_each(|part| bytes.extend_from_slice(part.as_bytes()));
        put(&["HTTP/1.1 ", &self.status.to_string(), " ", reason(self.status), "\r\n"]);
        if !terms.keep_alive {
            put(&["Connection: close\r\n"]);
        } else if terms.is_old {
            put(&["Connection: keep-alive\r\n"]);
        }
        put(&["Date: ", &fmt_http_date(SystemTime::now()), "\r\n"]);
        self.headers.iter().for_each(|(name, value)| put(&[name, ": ", value, "\r\n"]));
        let always = ALWAYS.iter().filter(|(name, _)| !self.headers.iter().any(|(own, _)| own == name));
        always.for_each(|(name, value)| put(&[name, ": ", value, "\r\n"]));
        put(&["Content-Length: ", &self.body.len().to_string(), "\r\n\r\n"]);
        if !terms.head_only {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// How a request is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// HEAD: without the body.
    pub head_only: bool,
    /// The connection goes on.
    pub keep_alive: bool,
    /// HTTP/1.0: must be told that the connection is kept.
    pub is_old: bool,
}

/// Why the door itself answers, and closes the connection after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The status code.
    pub status: u16,
    /// What was wrong, for people.
    pub detail: &'static str,
}

impl Refusal {
    /// A handler that panicked, or forgot to answer.
    pub(super) const UNANSWERED: Refusal =
        Refusal { status: 500, detail: "the request was not answered because of a fault in the service" };

    /// The whole answer, for the client's socket; `head_only` for HEAD.
    pub(super) fn into_bytes(self, head_only: bool) -> Vec<u8> {
        Reply::from(self).into_bytes(Terms { head_only, keep_alive: false, is_old: false })
    }
}

impl From<Refusal> for Reply {
    fn from(Refusal { status, detail }: Refusal) -> Reply {
        // The door refuses with 503 what nobody has begun; of the other faults of ours, it does not know.
        let outcome = match status {
            503 => Some("none"),
            500 | 502 | 504 => Some("unknown"),
            _ => None,
        };
        let mut reply = Reply::problem(status, detail, outcome.map(|told| ("outcome", told.into())).as_slice());
        if status == 503 {
            reply.headers.push(("Retry-After", "1".into()));
        }
        reply
    }
}

/// A status in words: RFC 9110's, where tiny_http knows older ones.
fn reason(status: u16) -> &'static str {
    match status {
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        other => StatusCode(other).default_reason_phrase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_header(value: &str) -> Reply {
        Reply { status: 200, headers: vec![("Location", value.into())], body: Vec::new() }
    }

    #[test]
    fn a_header_that_would_end_its_line_is_never_sent() {
        assert_eq!(with_header("/tasks/task[0]").checked().status, 200);
        for value in ["a\r\nSet-Cookie: x", "a\nb", "a\0", "caf\u{e9}", "a\tb", "\u{7f}"] {
            assert_eq!(with_header(value).checked().status, 500, "{value:?}");
        }
    }

    #[test]
    fn an_impossible_status_or_an_endless_body_becomes_a_500() {
        let reply = |status, length| Reply { status, headers: Vec::new(), body: vec![b'x'; length] };
        assert_eq!(reply(100, 0).checked().status, 500);
        assert_eq!(reply(600, 0).checked().status, 500);
        assert_eq!(reply(200, REPLY_BYTES + 1).checked().status, 500);
        assert_eq!(reply(599, REPLY_BYTES).checked().status, 599);
    }

    #[test]
    fn what_a_reply_says_itself_is_not_said_twice() {
        let mut reply = with_header("/");
        reply.headers.push(("Cache-Control", "no-cache".into()));
        let bytes = reply.into_bytes(Terms { head_only: false, keep_alive: true, is_old: false });
        let text = String::from_utf8(bytes).expect("ASCII");
        assert_eq!(text.matches("Cache-Control").count(), 1, "{text}");
        assert!(text.contains("no-cache") && text.contains("nosniff") && text.contains("DENY"), "{text}");
    }

    #[test]
    fn a_refusal_is_a_whole_answer() {
        let text = String::from_utf8(Refusal { status: 503, detail: "no room" }.into_bytes(false)).expect("ASCII");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"), "{head}");
        assert!(head.contains("\r\nRetry-After: 1"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{head}");
        assert!(body.contains(r#""detail":"no room""#) && body.contains(r#""outcome":"none""#), "{body}");
        assert!(Refusal { status: 400, detail: "" }.into_bytes(true).ends_with(b"\r\n\r\n"));
    }
}
