//! The actions of the public listener: parse, act, reply. What they may do and when is the service's business.

use serde_json::{Map, Value, json};

use super::exchange::{Exchange, Reply};
use super::problem::{self, json_reply};
use super::submission::Submission;
use crate::limits::KEY_BYTES;
use crate::service::{Accepted, Once, Rejected, Service};
use crate::store::{Cancelled, TaskRow};
use crate::task::{Status, TaskId};

/// Names a submission, so that repeating it makes no second task.
const KEY_FIELD: &str = "Idempotency-Key";

/// `POST /tasks`: 202 once the task's row is committed.
pub fn create(service: &Service, exchange: &Exchange) -> Reply {
    if let Some(other) = exchange.header("Content-Type").filter(|value| !is_json(value)) {
        let detail = format!("Content-Type is {other}; send application/json");
        return problem::problem(415, "Unsupported Media Type", detail);
    }
    let submission = match Submission::parse(exchange.body()) {
        Ok(submission) => submission,
        Err(why) => return problem::bad_request(why),
    };
    let Some(key) = exchange.header(KEY_FIELD) else {
        return service.submit(submission.text).map_or_else(rejected, |accepted| created(&accepted));
    };
    if key.is_empty() || key.len() > KEY_BYTES || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return problem::bad_request(format_args!("{KEY_FIELD}: must be 1 to {KEY_BYTES} visible ASCII characters"));
    }
    match service.submit_once(submission.text, key) {
        Ok(Once::New(accepted)) => created(&accepted),
        Ok(Once::Known(id)) => replayed(service, &id),
        Ok(Once::KeyReused) => problem::key_reused(),
        Err(why) => rejected(why),
    }
}

fn created(accepted: &Accepted) -> Reply {
    let queue = json!({
        "position": accepted.position,
        "expected_wait_ms": accepted.expected_wait.as_millis() as u64,
    });
    let body = json!({"id": accepted.id.as_str(), "status": Status::Queued.as_str(), "queue": queue});
    task_accepted(&accepted.id, &body)
}

/// The task of an earlier request with the same key, as it is now.
fn replayed(service: &Service, id: &TaskId) -> Reply {
    match service.look_up(id) {
        Ok(Some(row)) => {
            let mut reply = task_accepted(id, &json!({"id": id.as_str(), "status": row.status}));
            reply.headers.push(("Idempotency-Replayed", "true".into()));
            reply
        }
        Ok(None) => no_such_task(id),
        Err(error) => problem::store_trouble(&error),
    }
}

fn task_accepted(id: &TaskId, body: &Value) -> Reply {
    let mut reply = json_reply(202, body);
    reply.headers.push(("Location", format!("/tasks/{}", id.to_segment())));
    reply
}

fn rejected(why: Rejected) -> Reply {
    match why {
        Rejected::Full(expected_wait) => problem::full(expected_wait),
        Rejected::Store(error) => problem::store_trouble(&error),
    }
}

/// `GET /tasks/{id}`: what the database says.
pub fn show(service: &Service, _exchange: &Exchange, id: &TaskId) -> Reply {
    match service.look_up(id) {
        Ok(Some(row)) => json_reply(200, &task_json(&row)),
        Ok(None) => no_such_task(id),
        Err(error) => problem::store_trouble(&error),
    }
}

/// `POST /tasks/{id}/cancel` and `DELETE /tasks/{id}`: 202 when it is cancelled or asked to stop, 409 when it is too late.
pub fn cancel(service: &Service, _exchange: &Exchange, id: &TaskId) -> Reply {
    let accepted = |cancel| json_reply(202, &json!({"id": id.as_str(), "cancel": cancel}));
    match service.cancel(id) {
        Ok(Cancelled::Canceled) => accepted("canceled"),
        Ok(Cancelled::Requested) => accepted("requested"),
        Ok(Cancelled::TooLate) => problem::too_late(id),
        Ok(Cancelled::Unknown) => no_such_task(id),
        Err(error) => problem::store_trouble(&error),
    }
}

fn no_such_task(id: &TaskId) -> Reply {
    problem::not_found(format_args!("there is no task {id}"))
}

fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/json")
}

fn task_json(row: &TaskRow) -> Value {
    let mut task = Map::new();
    let mut put = |name: &str, value: Value| drop(task.insert(name.into(), value));
    put("id", json!(row.id.as_str()));
    put("status", json!(row.status));
    put("words", json!(row.counts.words));
    put("bytes", json!(row.counts.bytes));
    put("runes", json!(row.counts.runes));
    if let Some(reason) = &row.failure_reason {
        put("failure_reason", json!(reason));
    }
    put("cancel_requested", json!(row.cancel_requested));
    put("created_at", json!(row.created_at));
    for (name, time) in [("started_at", &row.started_at), ("finished_at", &row.finished_at)] {
        if let Some(time) = time {
            put(name, json!(time));
        }
    }
    Value::Object(task)
}
