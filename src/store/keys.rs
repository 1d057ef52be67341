//! keys: which task has an idempotency key. The row itself is the memory: a key is known for as long as its row exists, in
//! every process, also after a restart and after an INSERT whose answer was lost.

use std::collections::HashMap;

use super::lane::Operation;
use super::session::Session;
use super::sql;
use crate::task::TaskId;

pub(super) struct FindKey;

impl Operation for FindKey {
    type Input = String;
    /// None: no row has the key.
    type Output = Option<TaskId>;

    fn run(&self, session: &mut Session, keys: &[String]) -> Result<Vec<Option<TaskId>>, postgres::Error> {
        let rows = session.query(sql::FIND_KEYS, &[&keys])?;
        let found: HashMap<&str, &str> = rows.iter().map(|row| (row.get("idempotency_key"), row.get("id"))).collect();
        Ok(keys.iter().map(|key| found.get(key.as_str()).map(|id| TaskId::new(*id))).collect())
    }
}
