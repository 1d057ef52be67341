//! A database of a test's own, and gates in it: locks and triggers that hold the service at a chosen statement.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use postgres::{Client, NoTls};
use taskstats::store::{Lease, Store, StoreConfig};

use super::{PgCluster, Proxy};

/// One database, empty at first.
pub struct Database {
    name: String,
    socket_dir: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Database {
    /// A new database in the shared cluster.
    pub fn new() -> Database {
        Database::within(PgCluster::shared())
    }

    /// A new database in this cluster.
    pub fn within(cluster: &PgCluster) -> Database {
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let database = Database { name, socket_dir: cluster.socket_dir().to_owned() };
        let create = format!("CREATE DATABASE {}", database.name);
        database.connect_to("postgres").batch_execute(&create).expect("create database");
        database
    }

    /// The same, with the schema in it.
    pub fn with_schema() -> Database {
        let database = Database::new();
        database.store("schema").apply_schema().expect("schema");
        database
    }

    /// Its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What `--dsn` takes.
    pub fn dsn(&self) -> String {
        self.dsn_of(&self.name)
    }

    /// What `--dsn` takes to come through a proxy.
    pub fn dsn_through(&self, proxy: &Proxy) -> String {
        format!("host={} user=postgres dbname={}", proxy.socket_dir().display(), self.name)
    }

    fn dsn_of(&self, name: &str) -> String {
        format!("host={} user=postgres dbname={name}", self.socket_dir.display())
    }

    fn connect_to(&self, name: &str) -> Client {
        Client::connect(&self.dsn_of(name), NoTls).expect("the cluster runs")
    }

    /// A connection of the test's own.
    pub fn connect(&self) -> Client {
        self.connect_to(&self.name)
    }

    /// Runs statements.
    pub fn run(&self, sql: &str) {
        self.connect().batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// One row's columns, as text joined by `|`; several rows joined by a blank.
    pub fn rows(&self, sql: &str) -> String {
        let sql = format!(
            "SELECT concat_ws('|', VARIADIC array(SELECT value FROM json_each_text(row_to_json(q)))) FROM ({sql}) q"
        );
        let rows = self.connect().query(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join(" ")
    }

    /// `status|words|bytes|runes` of a task.
    pub fn task(&self, id: &str) -> String {
        self.rows(&format!("SELECT status, words, bytes, runes FROM go_tasks WHERE id = '{id}'"))
    }

    /// A store of the test's own on this database.
    pub fn store(&self, owner: &str) -> Store {
        Database::store_at(&self.dsn(), owner, None)
    }

    /// The same with leases, as `serve --lease` has them.
    pub fn leased_store(&self, owner: &str, ttl: Duration, max_attempts: i64) -> Store {
        Database::store_at(&self.dsn(), owner, Some(Lease { ttl, max_attempts, effect_at_end: true }))
    }

    /// Waits until the task's lease is over, by the database's clock.
    pub fn wait_for_expiry(&self, id: &str) {
        super::until(&format!("{id}'s lease is over"), || {
            let over = format!("SELECT lease_until < clock_timestamp() FROM go_tasks WHERE id = '{id}'");
            (self.rows(&over) == "true").then_some(())
        });
    }

    /// Ends the task's lease, as if its time had passed.
    pub fn expire(&self, id: &str) {
        self.run(&format!(
            "UPDATE go_tasks SET lease_until = clock_timestamp() - interval '1 millisecond' WHERE id = '{id}'"
        ));
    }

    /// A store that `dsn` leads to.
    pub fn store_at(dsn: &str, owner: &str, lease: Option<Lease>) -> Store {
        Store::open(&StoreConfig {
            dsn: dsn.parse().expect("our own DSN"),
            timeout: Duration::from_secs(2),
            owner: owner.into(),
            lease,
        })
    }
}

/// A trigger that makes each UPDATE to a certain status wait, until the gate is opened or dropped.
pub struct Gate<'a> {
    database: &'a Database,
    status: &'static str,
    lock_holder: Option<Client>,
}

const GATE_KEY: i64 = 39;

impl<'a> Gate<'a> {
    /// Shuts the way to `status`: RUNNING holds claims, SUCCEEDED holds finishes.
    pub fn shut(database: &'a Database, status: &'static str) -> Gate<'a> {
        let mut lock_holder = database.connect();
        lock_holder.execute("SELECT pg_advisory_lock($1)", &[&GATE_KEY]).expect("gate lock");
        database.run(&format!(
            "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM pg_advisory_xact_lock_shared({GATE_KEY}); RETURN NEW; END $$;
             CREATE TRIGGER gate BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status = '{status}')
             EXECUTE FUNCTION gate()"
        ));
        Gate { database, status, lock_holder: Some(lock_holder) }
    }

    /// Waits until a statement stands before the gate.
    pub fn reached(&self) {
        super::until(&format!("a statement at the gate to {}", self.status), || {
            let waiting = self.database.rows(&format!(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {GATE_KEY} AND NOT granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ));
            (waiting != "0").then_some(())
        });
    }

    /// Opens the gate for good and removes its trigger.
    pub fn open(mut self) {
        self.lift();
    }

    fn lift(&mut self) {
        if self.lock_holder.take().is_some() {
            self.database.run("DROP TRIGGER gate ON go_tasks; DROP FUNCTION gate()");
        }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.lift();
        }
    }
}
