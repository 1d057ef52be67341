//! The actions of the admin listener, which only loopback reaches. Health is about the process and never asks the
//! database; readiness says whether work can be taken now, and if not, why.

use serde_json::json;

use super::exchange::{Exchange, Reply};
use super::problem::json_reply;
use crate::service::Service;

/// `GET /healthz`: the process answers. Green also while the database is away.
pub fn health(_service: &Service, _exchange: &Exchange) -> Reply {
    json_reply(200, &json!({"status": "ok"}))
}

/// `GET /readyz`: 200, or 503 with the reasons.
pub fn readiness(service: &Service, _exchange: &Exchange) -> Reply {
    let reasons = service.not_ready();
    let status = if reasons.is_empty() { 200 } else { 503 };
    json_reply(status, &json!({"ready": reasons.is_empty(), "reasons": reasons}))
}
