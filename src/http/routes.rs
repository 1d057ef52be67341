//! The routes: which action answers which method and path, in one table per listener. To add a route, add a line to a
//! table and write its action: parse, act, reply.

use std::io;
use std::sync::Arc;

use super::clerk::Clerk;
use super::exchange::{Exchange, Reply};
use super::waiters::{Pending, Waiters};
use super::{admin, openapi, problem, tasks};
use crate::service::Service;
use crate::task::TaskId;

/// One line of a table.
pub struct Route {
    /// In capitals; GET answers HEAD, too.
    pub method: &'static str,
    /// A path; `{id}` stands for one segment, a task's id raw or percent-encoded.
    pub path: &'static str,
    action: Action,
}

/// What a route does.
enum Action {
    /// With the request.
    Plain(fn(&Service, &Exchange) -> Reply),
    /// With the task that its path names.
    OfTask(fn(&Service, &Exchange, &TaskId) -> Reply),
    /// The same two for answers that may come later.
    Waiting(fn(&Service, &Exchange) -> Answer),
    WaitingOfTask(fn(&Service, &Exchange, &TaskId) -> Answer),
}

/// What an action says.
pub enum Answer {
    /// This, at once.
    Now(Reply),
    /// The state of a task, when its row has been read.
    WhenRead(TaskId),
    /// The state of a task when it has ended.
    WhenEnded(Pending),
}

/// The public listener.
pub const PUBLIC: &[Route] = &[
    Route { method: "POST", path: "/tasks", action: Action::Waiting(tasks::create) },
    Route { method: "GET", path: "/tasks/{id}", action: Action::WaitingOfTask(tasks::show) },
    Route { method: "DELETE", path: "/tasks/{id}", action: Action::OfTask(tasks::cancel) },
    Route { method: "POST", path: "/tasks/{id}/cancel", action: Action::OfTask(tasks::cancel) },
    Route { method: "GET", path: "/openapi.json", action: Action::Plain(openapi::show) },
];

/// The admin listener.
pub const ADMIN: &[Route] = &[
    Route { method: "GET", path: "/healthz", action: Action::Plain(admin::health) },
    Route { method: "GET", path: "/readyz", action: Action::Plain(admin::readiness) },
];

/// The service as clients meet it, and the threads that answer where no action does.
pub struct Office {
    service: Arc<Service>,
    clerk: Clerk,
    waiters: Waiters,
}

impl Office {
    /// Starts the threads.
    pub fn open(service: Arc<Service>) -> io::Result<Office> {
        let (clerk, waiters) = (Clerk::start(service.clone())?, Waiters::start(service.clone())?);
        Ok(Office { service, clerk, waiters })
    }

    /// Answers one request by a table.
    pub fn answer(&self, table: &[Route], exchange: Exchange) {
        match dispatch(table, &self.service, &exchange) {
            Answer::Now(reply) => exchange.reply(reply),
            Answer::WhenRead(id) => self.clerk.ask(exchange, id),
            Answer::WhenEnded(pending) => self.waiters.park(exchange, pending),
        }
    }

    /// From now on nobody waits for the end of a task.
    pub fn end_waits(&self) {
        self.waiters.close();
    }
}

fn dispatch(table: &[Route], service: &Service, exchange: &Exchange) -> Answer {
    let path = exchange.target().split('?').next().unwrap_or_default();
    // HEAD is GET without the body: the reply leaves it out.
    let method = if exchange.method() == "HEAD" { "GET" } else { exchange.method() };
    let here: Vec<(&Route, Option<&str>)> =
        table.iter().filter_map(|route| Some((route, matched(route.path, path)?))).collect();
    let Some((route, id)) = here.iter().find(|(route, _)| route.method == method) else {
        if here.is_empty() {
            return Answer::Now(problem::not_found(format_args!("there is nothing at {path}")));
        }
        return Answer::Now(problem::method_not_allowed(exchange.method(), allowed(&here)));
    };
    // Of the routes with a task, each has its segment; of the others, none asks for it.
    let id = match TaskId::from_segment(id.unwrap_or_default()) {
        Ok(id) => id,
        Err(error) => return Answer::Now(problem::bad_request(format_args!("task id in the path: {error}"))),
    };
    match &route.action {
        Action::Plain(action) => Answer::Now(action(service, exchange)),
        Action::OfTask(action) => Answer::Now(action(service, exchange, &id)),
        Action::Waiting(action) => action(service, exchange),
        Action::WaitingOfTask(action) => action(service, exchange, &id),
    }
}

/// Whether `path` fits `pattern`, and the segment that stands for `{id}`.
fn matched<'a>(pattern: &str, path: &'a str) -> Option<Option<&'a str>> {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    let mut id = None;
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return Some(id),
            (Some("{id}"), Some(segment)) if !segment.is_empty() => id = Some(segment),
            (Some(wanted), Some(segment)) if wanted == segment => {}
            _ => return None,
        }
    }
}

fn allowed(here: &[(&Route, Option<&str>)]) -> String {
    let methods = here.iter().flat_map(|(route, _)| match route.method {
        "GET" => vec!["GET", "HEAD"],
        other => vec![other],
    });
    methods.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_paths() {
        assert_eq!(matched("/tasks", "/tasks"), Some(None));
        assert_eq!(matched("/tasks", "/tasks/"), None);
        assert_eq!(matched("/tasks/{id}", "/tasks/task[0]"), Some(Some("task[0]")));
        assert_eq!(matched("/tasks/{id}", "/tasks/"), None);
        assert_eq!(matched("/tasks/{id}", "/tasks/a/b"), None);
        assert_eq!(matched("/tasks/{id}/cancel", "/tasks/task%5B0%5D/cancel"), Some(Some("task%5B0%5D")));
    }
}
