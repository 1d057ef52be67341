//! Connections: how they are configured, pooled, tried before use, and which statements they keep prepared.
//!
//! Nothing here bounds the wait for an answer: the postgres crate has no timeout of its own, and a stopped backend holds
//! a query for ever. Whoever must not wait so long asks through [`super::lane`] or `within` of the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::types::ToSql;
use postgres::{Config, Row, Statement, Transaction};

use super::connector::{Connector, NoConnection};
use super::error::StoreError;
use crate::limits::{CLIENT_CHECK_INTERVAL, CONNECT_TIMEOUT, POOL_IDLE, TRUSTED_IDLE};
use crate::lock;

/// A pool of configured connections, shared by all lanes.
#[derive(Clone)]
pub struct Pool {
    pool: r2d2::Pool<Connector>,
    last_error: LastError,
}

/// Why the last attempt to connect failed: r2d2 itself only says "timed out".
#[derive(Debug, Default, Clone)]
struct LastError(Arc<Mutex<String>>);

impl r2d2::HandleError<NoConnection> for LastError {
    fn handle_error(&self, NoConnection(why): NoConnection) {
        *lock(&self.0) = why;
    }
}

impl Pool {
    /// A pool of at most `size` connections; opens none yet, and none before it is asked for.
    pub fn new(config: &Config, statement_timeout: Duration, size: u32) -> Pool {
        let last_error = LastError::default();
        let connector = Connector::new(session_config(config.clone(), statement_timeout));
        let pool = r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(0))
            // Tried in session(), and only when idle for long: a round trip for each batch would be a waste.
            .test_on_check_out(false)
            .idle_timeout(Some(POOL_IDLE))
            .connection_timeout(CONNECT_TIMEOUT)
            .error_handler(Box::new(last_error.clone()))
            .build_unchecked(connector);
        Pool { pool, last_error }
    }

    /// A connection of one's own for a while; dropping it gives it back.
    pub fn session(&self) -> Result<Session, StoreError> {
        self.session_within(CONNECT_TIMEOUT)
    }

    /// The same with more patience: for a start, whose only alternative is to give up.
    pub fn session_within(&self, patience: Duration) -> Result<Session, StoreError> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let connection = self.pool.get_timeout(left).map_err(|error| self.no_connection(&error))?;
            let mut session = Session { connection };
            // The dead ones of a restarted server are met here, one by one, and thrown away by the pool.
            if session.is_alive() {
                return Ok(session);
            }
        }
    }

    fn no_connection(&self, error: &r2d2::Error) -> StoreError {
        let last = lock(&self.last_error.0).clone();
        let why = if last.is_empty() { error.to_string() } else { last };
        StoreError::NotDone(format!("no connection to PostgreSQL: {why}"))
    }
}

/// Plans are kept as long as their connection, and one that was made over an empty table must do for a large one, too: by
/// index, and in its order. What costs little there looks so dear to the planner then that it would compile it: not that either.
const PLANS: &str = "-c enable_seqscan=off -c enable_bitmapscan=off -c jit=off";

/// What every session asks of the server and of the network, on top of what the DSN says.
fn session_config(mut config: Config, statement_timeout: Duration) -> Config {
    let ours = format!(
        "-c statement_timeout={0} -c lock_timeout={1} -c idle_in_transaction_session_timeout={0} \
         -c client_connection_check_interval={2} {PLANS}",
        statement_timeout.as_millis(),
        (statement_timeout / 2).as_millis(), // less: a locked row ends a batch while its callers still wait
        CLIENT_CHECK_INTERVAL.as_millis(),
    );
    let options = match config.get_options() {
        Some(theirs) => format!("{theirs} {ours}"),
        None => ours,
    };
    if config.get_application_name().is_none() {
        config.application_name("taskstats");
    }
    config
        .options(&options)
        .connect_timeout(CONNECT_TIMEOUT)
        // Both are needed to notice a network that swallows packets: together about five seconds.
        .tcp_user_timeout(Duration::from_secs(5))
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(2))
        .keepalives_interval(Duration::from_secs(1))
        .keepalives_retries(3);
    config
}

/// One connection in use by one thread.
pub struct Session {
    connection: r2d2::PooledConnection<Connector>,
}

/// What stays with a connection in the pool.
struct Kept {
    /// Prepared statements, by their SQL.
    statements: HashMap<&'static str, Statement>,
    used: Instant,
}

impl Session {
    /// Whether the connection is good for another statement. One that has been idle for long is tried, since a restart of
    /// the server is only noticed on use; so is a new one, which the pool may have opened long ago.
    fn is_alive(&mut self) -> bool {
        let kept = r2d2::PooledConnection::extensions(&self.connection).get::<Kept>();
        let trusted = kept.is_some_and(|kept| kept.used.elapsed() < TRUSTED_IDLE);
        !self.connection.is_closed() && (trusted || self.connection.is_valid(CONNECT_TIMEOUT).is_ok())
    }

    fn kept(&mut self) -> &mut Kept {
        let extensions = r2d2::PooledConnection::extensions_mut(&mut self.connection);
        if extensions.get::<Kept>().is_none() {
            extensions.insert(Kept { statements: HashMap::new(), used: Instant::now() });
        }
        extensions.get_mut().expect("inserted above")
    }

    /// Runs one statement of [`super::sql`], prepared once per connection; its rows.
    pub fn query(&mut self, sql: &'static str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, postgres::Error> {
        self.run(sql, |connection, statement| connection.query(statement, values))
    }

    /// The same for a statement without rows; how many rows of the table it touched.
    pub fn execute(&mut self, sql: &'static str, values: &[&(dyn ToSql + Sync)]) -> Result<u64, postgres::Error> {
        self.run(sql, |connection, statement| connection.execute(statement, values))
    }

    fn run<T>(
        &mut self,
        sql: &'static str,
        execute: impl Fn(&mut postgres::Client, &Statement) -> Result<T, postgres::Error>,
    ) -> Result<T, postgres::Error> {
        let mut known = true;
        let result = loop {
            let statement = match self.kept().statements.get(sql) {
                Some(statement) => statement.clone(),
                None => {
                    known = false;
                    let prepared = self.connection.prepare(sql)?;
                    self.kept().statements.insert(sql, prepared.clone());
                    prepared
                }
            };
            match execute(&mut self.connection, &statement) {
                // A change of the schema makes a kept statement fail once, before it did anything.
                Err(error) if known && error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => {
                    self.kept().statements.remove(sql);
                }
                result => break result,
            }
        };
        self.kept().used = Instant::now();
        result
    }

    /// A transaction; rolled back unless committed.
    pub fn transaction(&mut self) -> Result<Transaction<'_>, postgres::Error> {
        self.connection.transaction()
    }
}
