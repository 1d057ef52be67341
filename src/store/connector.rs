//! How the pool opens a connection. A failure must never be a panic: r2d2 would count the connection as being opened for
//! ever, and the pool would be one smaller each time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{error, fmt};

use postgres::{Client, Config, NoTls};
use r2d2::ManageConnection;
use r2d2_postgres::PostgresConnectionManager;

use super::error::describe;
use crate::files;

/// Opens and tries connections.
pub struct Connector(PostgresConnectionManager<NoTls>);

/// Why there is no connection.
#[derive(Debug)]
pub struct NoConnection(pub String);

impl Connector {
    /// A connector to the server that the configuration names.
    pub fn new(config: Config) -> Connector {
        Connector(PostgresConnectionManager::new(config, NoTls))
    }
}

impl ManageConnection for Connector {
    type Connection = Client;
    type Error = NoConnection;

    fn connect(&self) -> Result<Client, NoConnection> {
        files::are_enough().map_err(|error| NoConnection(error.to_string()))?;
        // The postgres crate unwraps what it needs files or threads for; nothing of ours is touched by that.
        let connected = catch_unwind(AssertUnwindSafe(|| self.0.connect()));
        let connected = connected.map_err(|_| NoConnection("no files or threads are left for it".into()))?;
        connected.map_err(|error| NoConnection(describe(&error)))
    }

    fn is_valid(&self, client: &mut Client) -> Result<(), NoConnection> {
        self.0.is_valid(client).map_err(|error| NoConnection(describe(&error)))
    }

    fn has_broken(&self, client: &mut Client) -> bool {
        self.0.has_broken(client)
    }
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for NoConnection {}
