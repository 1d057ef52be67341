//! The actions of the public listener: parse, act, reply. What they may do and when is the service's business.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::exchange::{Exchange, Reply};
use super::problem::{self, json_reply};
use super::routes::Answer;
use super::shown::{Receipt, Shown, to_json};
use super::submission::Submission;
use super::waiters::Pending;
use super::{batch, prefer};
use crate::limits::{BATCH_LINES, KEY_BYTES};
use crate::service::{Accepted, Once, Rejected, Service};
use crate::store::{Cancelled, StoreError, TaskRow};
use crate::task::TaskId;

/// Names a submission, so that repeating it makes no second task.
const KEY_FIELD: &str = "Idempotency-Key";

/// The content type of one task.
const SINGLE: &str = "application/json";
/// The content type of a batch.
const BATCH: &str = "application/x-ndjson";

/// `POST /tasks`: 202 once the task's row is committed; with `Prefer: wait`, when it has ended. A batch is never waited for.
pub fn create(service: &Service, exchange: &Exchange) -> Answer {
    let media_type = exchange.header("Content-Type").map(media_type);
    if media_type.is_some_and(|sent| sent.eq_ignore_ascii_case(BATCH)) {
        return Answer::Now(submit_batch(service, exchange).unwrap_or_else(|refusal| refusal));
    }
    if let Some(other) = media_type.filter(|sent| !sent.eq_ignore_ascii_case(SINGLE)) {
        let detail = format!("Content-Type is {other}; send {SINGLE}, or {BATCH} for a batch");
        return Answer::Now(problem::problem(415, detail));
    }
    let (id, accepted) = match submit(service, exchange) {
        Ok(submitted) => submitted,
        Err(refusal) => return Answer::Now(refusal),
    };
    match prefer::wait(exchange) {
        None => Answer::Now(accepted),
        Some(Duration::ZERO) => Answer::Now(prefer::applied(accepted, Duration::ZERO)),
        Some(wait) => Answer::WhenEnded(Pending { id, wait, accepted: Some(accepted) }),
    }
}

/// The task and what is said of it, or the refusal.
fn submit(service: &Service, exchange: &Exchange) -> Result<(TaskId, Reply), Reply> {
    let submission = Submission::parse(exchange.body()).map_err(problem::bad_request)?;
    let Some(key) = exchange.header(KEY_FIELD) else {
        return service.submit(submission.text).map(created).map_err(rejected);
    };
    if key.is_empty() || key.len() > KEY_BYTES || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let detail = format!("{KEY_FIELD}: must be 1 to {KEY_BYTES} visible ASCII characters");
        return Err(problem::bad_request(detail));
    }
    match service.submit_once(submission.text, key).map_err(rejected)? {
        Once::New(accepted) => Ok(created(accepted)),
        Once::Known(id) => replayed(service, id),
        Once::KeyReused => Err(problem::key_reused()),
    }
}

/// All tasks of a batch, one line for each, or the refusal of all.
fn submit_batch(service: &Service, exchange: &Exchange) -> Result<Reply, Reply> {
    if exchange.header(KEY_FIELD).is_some() {
        return Err(problem::bad_request(format_args!("{KEY_FIELD}: names one task, and cannot name a batch")));
    }
    let lines = batch::lines(exchange.body());
    if lines > BATCH_LINES {
        return Err(problem::batch_too_long(lines, BATCH_LINES));
    }
    let texts = batch::parse(exchange.body()).map_err(problem::bad_request)?;
    let accepted = service.submit_all(texts).map_err(rejected)?;
    let mut body = Vec::new();
    for task in &accepted {
        body.extend(to_json(&Receipt(task)));
        body.push(b'\n');
    }
    Ok(Reply { status: 202, headers: vec![("Content-Type", BATCH.into())], body })
}

fn created(accepted: Accepted) -> (TaskId, Reply) {
    let reply = task_accepted(&accepted.id, &Receipt(&accepted));
    (accepted.id, reply)
}

/// The task of an earlier request with the same key, as it is now.
fn replayed(service: &Service, id: TaskId) -> Result<(TaskId, Reply), Reply> {
    let row = service.look_up(&id).map_err(|error| problem::store_trouble(&error))?;
    let row = row.ok_or_else(|| no_such_task(&id))?;
    let mut reply = task_accepted(&id, &json!({"id": id.as_str(), "status": row.status}));
    reply.headers.push(("Idempotency-Replayed", "true".into()));
    Ok((id, reply))
}

fn task_accepted(id: &TaskId, body: &impl Serialize) -> Reply {
    let mut reply = json_reply(202, body);
    reply.headers.push(("Location", format!("/tasks/{}", id.to_segment())));
    reply
}

fn rejected(why: Rejected) -> Reply {
    match why {
        Rejected::Full(expected_wait) => problem::full(expected_wait),
        Rejected::NeverFits { texts, places } => problem::batch_too_long(texts, places),
        Rejected::Store(error) => problem::store_trouble(&error),
    }
}

/// `GET /tasks/{id}`: what the database says; with `Prefer: wait`, when the task has ended.
pub fn show(service: &Service, exchange: &Exchange, id: &TaskId) -> Answer {
    let Some(wait) = prefer::wait(exchange) else { return Answer::WhenRead(id.clone()) };
    match service.look_up(id) {
        Ok(Some(row)) if !wait.is_zero() && !row.has_ended() => {
            Answer::WhenEnded(Pending { id: row.id, wait, accepted: None })
        }
        row => Answer::Now(prefer::applied(told(id, &row), wait)),
    }
}

/// What was found of a task.
pub(super) fn told(id: &TaskId, row: &Result<Option<TaskRow>, StoreError>) -> Reply {
    match row {
        Ok(Some(row)) => shown(row),
        Ok(None) => no_such_task(id),
        Err(error) => problem::store_trouble(error),
    }
}

/// A task as clients see it.
pub(super) fn shown(row: &TaskRow) -> Reply {
    json_reply(200, &Shown(row))
}

/// `POST /tasks/{id}/cancel` and `DELETE /tasks/{id}`: 202 when it is cancelled or asked to stop, 409 when it is too late or not
/// for us to do.
pub fn cancel(service: &Service, _exchange: &Exchange, id: &TaskId) -> Reply {
    let accepted = |cancel| json_reply(202, &json!({"id": id.as_str(), "cancel": cancel}));
    match service.cancel(id) {
        Ok(Cancelled::Canceled) => accepted("canceled"),
        Ok(Cancelled::Requested) => accepted("requested"),
        Ok(Cancelled::TooLate) => problem::too_late(id),
        Ok(Cancelled::NotOurs) => problem::not_ours(id),
        Ok(Cancelled::Unknown) => no_such_task(id),
        Err(error) => problem::store_trouble(&error),
    }
}

fn no_such_task(id: &TaskId) -> Reply {
    problem::not_found(format_args!("there is no task {id}"))
}

/// A content type without its parameters.
fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::REPLY_BYTES;

    #[test]
    fn the_reply_to_the_longest_batch_may_be_sent() {
        let longest = Accepted {
            id: TaskId::from_number(999_999_999_999_999_999),
            position: usize::MAX,
            expected_wait: Duration::from_millis(u64::MAX),
        };
        assert!((to_json(&Receipt(&longest)).len() + 1) * BATCH_LINES <= REPLY_BYTES);
    }
}
