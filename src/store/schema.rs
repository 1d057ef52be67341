//! The schema: `schema.sql` is the whole of it, applied at start where the mark on the table differs.

use super::error::{StoreError, describe};
use super::session::Session;
use crate::limits::{CLIENT_CHECK_INTERVAL, LOCK_PATIENCE};

const SCHEMA: &str = include_str!("../../schema.sql");

/// Serialises starts: two CREATE … IF NOT EXISTS at once can still collide.
pub(super) const SCHEMA_LOCK: &str = "SELECT pg_advisory_xact_lock(x'7461736b'::bigint << 32)";

/// What our sessions ask for at connect: a pooler in transaction mode drops it, as it would drop locks and statements.
const SESSION_OPTION: &str = "SELECT setting::bigint FROM pg_settings WHERE name = 'client_connection_check_interval'";

/// The mark that `schema.sql` leaves on the table; NULL without a table.
const MARK: &str = "SELECT obj_description(to_regclass('go_tasks'), 'pg_class')";

/// Brings the database up to `schema.sql`; says whether anything had to be done.
///
/// # Errors
/// [`StoreError::Refused`] where the database cannot hold our texts (its encoding is not UTF8), where our session options do
/// not arrive, or where a statement is refused.
pub(super) fn apply(session: &mut Session) -> Result<bool, StoreError> {
    let encoding: String = one(session, "SHOW server_encoding")?;
    if encoding != "UTF8" {
        return Err(StoreError::Refused(format!(
            "the database's encoding is {encoding}: create one with ENCODING 'UTF8'"
        )));
    }
    if one::<i64>(session, SESSION_OPTION)? != CLIENT_CHECK_INTERVAL.as_millis() as i64 {
        return Err(StoreError::Refused(
            "session options are not passed on, as by a pooler in transaction mode: connect directly, or in session mode".into(),
        ));
    }
    if one::<Option<String>>(session, MARK)?.is_some_and(|mark| SCHEMA.contains(&format!("'{mark}'"))) {
        return Ok(false);
    }
    let mut work = || {
        let mut transaction = session.transaction()?;
        // Building an index over an older table takes as long as it takes; waiting for a lock must not.
        let patience = LOCK_PATIENCE.as_millis();
        transaction.batch_execute(&format!("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {patience}"))?;
        transaction.batch_execute(SCHEMA_LOCK)?;
        transaction.batch_execute(SCHEMA)?;
        transaction.commit()
    };
    work().map(|()| true).map_err(|error| StoreError::Refused(format!("schema.sql: {}", describe(&error))))
}

fn one<T: for<'a> postgres::types::FromSql<'a>>(session: &mut Session, sql: &'static str) -> Result<T, StoreError> {
    let rows = session.query(sql, &[]).map_err(|error| StoreError::of_statement(&error))?;
    Ok(rows[0].get(0))
}
