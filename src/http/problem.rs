//! Errors as clients see them: `application/problem+json` (RFC 9457), from one place. A problem's detail says what was
//! wrong, where, and what to do; it never repeats a task's text.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::exchange::Reply;
use super::shown::to_json;
use crate::limits::DETAIL_CHARS;
use crate::store::StoreError;
use crate::task::TaskId;

/// A reply with a JSON body.
pub fn json_reply(status: u16, body: &impl Serialize) -> Reply {
    Reply { status, headers: vec![("Content-Type", "application/json".into())], body: to_json(body) }
}

/// A problem without further members.
pub fn problem(status: u16, title: &str, detail: impl Display) -> Reply {
    problem_with(status, title, detail, &[])
}

/// A problem with members of its own.
fn problem_with(status: u16, title: &str, detail: impl Display, members: &[(&str, Value)]) -> Reply {
    let mut detail = detail.to_string();
    if let Some((end, _)) = detail.char_indices().nth(DETAIL_CHARS) {
        detail.truncate(end);
        detail.push('…');
    }
    let mut body = json!({"type": "about:blank", "title": title, "status": status, "detail": detail});
    for (name, value) in members {
        body[*name] = value.clone();
    }
    Reply {
        status,
        headers: vec![("Content-Type", "application/problem+json".into())],
        body: body.to_string().into_bytes(),
    }
}

/// The request is wrong in itself.
pub fn bad_request(detail: impl Display) -> Reply {
    problem(400, "Bad Request", detail)
}

/// No such task or page.
pub fn not_found(detail: impl Display) -> Reply {
    problem(404, "Not Found", detail)
}

/// 409: the task is terminal, and a terminal row never changes.
pub fn too_late(id: &TaskId) -> Reply {
    problem_with(409, "Conflict", format_args!("{id} has ended already"), &[("cancel", json!("too_late"))])
}

/// 409: the row is another program's, and we change none of those.
pub fn not_ours(id: &TaskId) -> Reply {
    let detail = format!("{id} is another program's: only tasks named task[n] can be cancelled here");
    problem_with(409, "Conflict", detail, &[("cancel", json!("not_ours"))])
}

/// 401: who asks has not shown the token.
pub fn unauthorized(detail: impl Display) -> Reply {
    let mut reply = problem(401, "Unauthorized", detail);
    reply.headers.push(("WWW-Authenticate", "Bearer".into()));
    reply
}

/// 421: the request is meant for another host than this one.
pub fn misdirected(detail: impl Display) -> Reply {
    problem(421, "Misdirected Request", detail)
}

/// 422: the key names an earlier submission of another text.
pub fn key_reused() -> Reply {
    let detail = "Idempotency-Key belongs to a task with another text: send a new text under a new key";
    problem(422, "Unprocessable Content", detail)
}

/// 413: a batch of more lines than can ever be taken at once.
pub fn batch_too_long(lines: usize, most: usize) -> Reply {
    let detail = format!("a batch of {lines} lines is never taken here: send at most {most} at once");
    problem(413, "Content Too Large", detail)
}

/// 405, with the methods that would be allowed.
pub fn method_not_allowed(method: &str, allow: String) -> Reply {
    let mut reply = problem(405, "Method Not Allowed", format_args!("{method} is not possible here; allowed: {allow}"));
    reply.headers.push(("Allow", allow));
    reply
}

/// 503 because the service is full: nothing was stored.
pub fn full(expected_wait: Duration) -> Reply {
    unavailable("workers and queue are full", "none", expected_wait)
}

/// 503 because of the database, and whether something may have happened all the same.
pub fn store_trouble(error: &StoreError) -> Reply {
    let outcome = match error {
        StoreError::Refused(_) | StoreError::NotDone(_) => "none",
        StoreError::Unknown(_) => "unknown",
    };
    unavailable(error, outcome, Duration::ZERO)
}

fn unavailable(detail: impl Display, outcome: &str, retry_after: Duration) -> Reply {
    let mut reply = problem_with(503, "Service Unavailable", detail, &[("outcome", json!(outcome))]);
    let seconds = retry_after.as_secs_f64().ceil().max(1.0);
    reply.headers.push(("Retry-After", format!("{seconds:.0}")));
    reply
}
