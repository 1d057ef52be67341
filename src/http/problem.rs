//! Errors that actions answer with: what was wrong, where, and what to do. A detail never repeats a task's text.

use std::fmt::Display;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::exchange::Reply;
use super::shown::to_json;
use crate::store::StoreError;
use crate::task::TaskId;

/// A reply with a JSON body.
pub fn json_reply(status: u16, body: &impl Serialize) -> Reply {
    Reply { status, headers: vec![("Content-Type", "application/json".into())], body: to_json(body) }
}

/// A problem without further members.
pub fn problem(status: u16, detail: impl Display) -> Reply {
    Reply::problem(status, detail, &[])
}

/// The request is wrong in itself.
pub fn bad_request(detail: impl Display) -> Reply {
    problem(400, detail)
}

/// No such task or page.
pub fn not_found(detail: impl Display) -> Reply {
    problem(404, detail)
}

/// 409: the task is terminal, and a terminal row never changes.
pub fn too_late(id: &TaskId) -> Reply {
    Reply::problem(409, format_args!("{id} has ended already"), &[("cancel", json!("too_late"))])
}

/// 409: the row is another program's, and we change none of those.
pub fn not_ours(id: &TaskId) -> Reply {
    let detail = format!("{id} is another program's: only tasks named task[n] can be cancelled here");
    Reply::problem(409, detail, &[("cancel", json!("not_ours"))])
}

/// 401: who asks has not shown the token.
pub fn unauthorized(detail: impl Display) -> Reply {
    let mut reply = problem(401, detail);
    reply.headers.push(("WWW-Authenticate", "Bearer".into()));
    reply
}

/// 421: the request is meant for another host than this one.
pub fn misdirected(detail: impl Display) -> Reply {
    problem(421, detail)
}

/// 422: the key names an earlier submission of another text.
pub fn key_reused() -> Reply {
    let detail = "Idempotency-Key belongs to a task with another text: send a new text under a new key";
    problem(422, detail)
}

/// 413: a batch of more lines than can ever be taken at once.
pub fn batch_too_long(lines: usize, most: usize) -> Reply {
    let detail = format!("a batch of {lines} lines is never taken here: send at most {most} at once");
    problem(413, detail)
}

/// 405, with the methods that would be allowed.
pub fn method_not_allowed(method: &str, allow: String) -> Reply {
    let mut reply = problem(405, format_args!("{method} is not possible here; allowed: {allow}"));
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
    let mut reply = Reply::problem(503, detail, &[("outcome", json!(outcome))]);
    let seconds = retry_after.as_secs_f64().ceil().max(1.0);
    reply.headers.push(("Retry-After", format!("{seconds:.0}")));
    reply
}
