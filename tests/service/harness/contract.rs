//! What `openapi.json` promises, held against every answer that any test gets.

use std::sync::OnceLock;

use serde_json::Value;
use taskstats::http::openapi::DOCUMENT;

use super::http::Reply;

/// The listener that was asked, by its tag in the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    Public,
    Admin,
}

/// Statuses of requests that name no operation of the document, with the responses that describe them.
const ELSEWHERE: [(u16, &str); 6] = [
    (400, "BadRequest"),
    (401, "Unauthorized"),
    (404, "NotFound"),
    (405, "MethodNotAllowed"),
    (421, "MisdirectedRequest"),
    (503, "ServiceUnavailable"),
];

/// Fails unless the answer is one that the document has for the request.
pub fn check(listener: Listener, method: &str, target: &str, reply: &Reply) {
    let told = format!("{listener:?} {method} {target} → {reply:?}");
    let response = match operation(listener, method, target) {
        Some(operation) => &operation["responses"][reply.status.to_string()],
        None => match ELSEWHERE.iter().find(|(status, _)| *status == reply.status) {
            Some((_, name)) => &document()["components"]["responses"][name],
            None => panic!("undocumented: {told}"),
        },
    };
    let response = resolved(response);
    assert!(response.is_object(), "undocumented status: {told}");
    for (name, header) in response["headers"].as_object().expect("headers") {
        let header = resolved(header);
        match reply.headers.get(&name.to_lowercase()) {
            Some(value) => fits(&header["schema"], &Value::from(value.as_str()), &format!("{name}: {told}")),
            None => assert!(header["required"] == false, "no {name}: {told}"),
        }
    }
    let content_type = reply.headers.get("content-type").unwrap_or_else(|| panic!("no type: {told}"));
    let content = response["content"].get(content_type).unwrap_or_else(|| panic!("undocumented type: {told}"));
    match content_type.as_str() {
        _ if method == "HEAD" => {}
        // A schema can only say that this is a string; what its lines are stands in the description.
        "application/x-ndjson" => {
            let line = &document()["components"]["schemas"]["Accepted"];
            reply.lines().iter().for_each(|value| fits(line, value, &told));
        }
        _ => fits(&content["schema"], &reply.json(), &told),
    }
    if content_type == "application/problem+json" && method != "HEAD" && [500, 502, 503, 504].contains(&reply.status) {
        assert!(reply.json()["outcome"].is_string(), "may it be sent again? {told}");
    }
}

fn document() -> &'static Value {
    static PARSED: OnceLock<Value> = OnceLock::new();
    PARSED.get_or_init(|| serde_json::from_str(DOCUMENT).expect("JSON"))
}

fn operation(listener: Listener, method: &str, target: &str) -> Option<&'static Value> {
    let path = target.split('?').next().expect("a path");
    let method = if method == "HEAD" { "get".to_owned() } else { method.to_lowercase() };
    let tag = if listener == Listener::Admin { "admin" } else { "public" };
    let paths = document()["paths"].as_object().expect("paths");
    let here = paths.iter().filter(|(template, _)| matches(template, path));
    here.map(|(_, operations)| &operations[&method]).find(|operation| operation["tags"][0] == tag)
}

fn matches(template: &str, path: &str) -> bool {
    let (wanted, found): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    let fits = |(wanted, found): (&&str, &&str)| wanted == found || wanted.starts_with('{') && !found.is_empty();
    wanted.len() == found.len() && wanted.iter().zip(&found).all(fits)
}

/// Follows a `$ref`.
fn resolved(value: &'static Value) -> &'static Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(path) => document().pointer(path.trim_start_matches('#')).unwrap_or_else(|| panic!("no {path}")),
        None => value,
    }
}

/// Fails unless the value is as the schema says.
fn fits(schema: &'static Value, value: &Value, told: &str) {
    if let Some(fault) = fault(schema, value) {
        panic!("{fault}: {told}");
    }
}

/// What breaks the schema; as much of JSON Schema as the document uses for replies. Patterns are for schemathesis.
fn fault(schema: &'static Value, value: &Value) -> Option<String> {
    let schema = resolved(schema);
    let names = |wanted: &'static Value| wanted.as_array().expect("a list").iter();
    schema.as_object().expect("a schema").iter().find_map(|(rule, wanted)| {
        let kept = match rule.as_str() {
            "type" => match wanted.as_str().expect("one type") {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "integer" => value.is_i64() || value.is_u64(),
                other => panic!("the checker does not know the type {other}"),
            },
            "const" => value == wanted,
            "enum" => names(wanted).any(|one| one == value),
            "minimum" => value.as_i64() >= wanted.as_i64(),
            "maximum" => value.as_i64() <= wanted.as_i64(),
            "minLength" => value.as_str().map(|text| text.chars().count() as u64) >= wanted.as_u64(),
            "required" => names(wanted).all(|name| value.get(name.as_str().expect("a name")).is_some()),
            "additionalProperties" => {
                assert_eq!(wanted, false, "the checker knows nothing else");
                value.as_object().is_some_and(|all| all.keys().all(|name| schema["properties"].get(name).is_some()))
            }
            "properties" => {
                let mut present = wanted.as_object().expect("schemas").iter();
                return present.find_map(|(name, schema)| fault(schema, value.get(name)?));
            }
            "items" => return value.as_array().and_then(|items| items.iter().find_map(|item| fault(wanted, item))),
            "anyOf" => names(wanted).any(|one| fault(one, value).is_none()),
            "description" | "example" | "format" | "pattern" => true,
            other => panic!("the checker does not know {other}"),
        };
        (!kept).then(|| format!("{value} breaks {rule} {wanted}"))
    })
}
