//! `openapi.json`: what both listeners answer, for programs. A route that is not in it, or a status that a test of the
//! service sees and it does not name, fails the tests.

use super::exchange::{Exchange, Reply};
use crate::service::Service;

/// The document.
pub const DOCUMENT: &str = include_str!("openapi.json");

/// `GET /openapi.json`.
pub fn show(_service: &Service, _exchange: &Exchange) -> Reply {
    let headers = vec![("Content-Type", "application/json".into())];
    Reply { status: 200, headers, body: DOCUMENT.as_bytes().to_vec() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::http::routes::{ADMIN, PUBLIC};

    #[test]
    fn the_document_has_all_routes_of_both_listeners_and_no_others() {
        let document: Value = serde_json::from_str(DOCUMENT).expect("JSON");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let tables = [("public", PUBLIC), ("admin", ADMIN)];
        let routes: BTreeSet<_> = tables
            .into_iter()
            .flat_map(|(listener, table)| {
                table.iter().map(move |route| format!("{listener} {} {}", route.method, route.path))
            })
            .collect();
        let mut documented = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().expect("paths") {
            for (method, operation) in operations.as_object().expect("operations").iter().filter(|(_, o)| o.is_object())
            {
                let listener = operation["tags"][0].as_str().expect("a listener");
                // Clients take the server from here.
                assert_eq!(operation.get("servers").is_some(), listener == "admin", "{method} {path}");
                documented.insert(format!("{listener} {} {path}", method.to_uppercase()));
            }
        }
        assert_eq!(documented, routes);
    }
}
