//! The actions of the public listener: parse, act, reply. What they may do and when is the service's business.

use serde_json::{Map, Value, json};

use super::exchange::{Exchange, Reply};
use super::problem::{self, json_reply};
use super::submission::Submission;
use crate::service::{Rejected, Service};
use crate::store::{Cancelled, TaskRow};
use crate::task::{Status, TaskId};

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
    match service.submit(submission.text) {
        Ok(accepted) => {
            let queue = json!({
                "position": accepted.position,
                "expected_wait_ms": accepted.expected_wait.as_millis() as u64,
            });
            let body = json!({"id": accepted.id.as_str(), "status": Status::Queued.as_str(), "queue": queue});
            let mut reply = json_reply(202, &body);
            reply.headers.push(("Location", format!("/tasks/{}", accepted.id.to_segment())));
            reply
        }
        Err(Rejected::Full(expected_wait)) => problem::full(expected_wait),
        Err(Rejected::Store(error)) => problem::store_trouble(&error),
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
