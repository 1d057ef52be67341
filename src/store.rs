//! The store: every question and order to PostgreSQL, each with a bounded wait but the upgrade of a schema.
//!
//! Opening a store connects to nothing and changes nothing; [`Store::apply_schema`] and [`Store::recover`] are steps of
//! their own, which only a start-up takes. Nothing here knows HTTP, workers or permits.

pub mod claim;
pub mod connector;
pub mod errand;
pub mod error;
pub mod finish;
pub mod instance;
pub mod keys;
pub mod lane;
pub mod lease;
pub mod lookup;
pub mod recovery;
pub mod schema;
pub mod session;
pub mod sql;
pub mod submit;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

pub use claim::Claimed;
pub use error::StoreError;
pub use finish::Finish;
pub use instance::{InstanceLock, Proof, Relock};
pub use lease::{Effect, Lease, LeasedTask, Renewal, Renewed};
pub use lookup::TaskRow;
pub use recovery::Recovery;

use crate::limits::{LOCK_PATIENCE, RELOCK_TIMEOUT, REPLY_MARGIN, START_CONNECT_TIMEOUT, START_TIMEOUT};
use crate::task::{Status, TaskId};
use claim::Claim;
use errand::Errands;
use finish::FinishBatch;
use keys::FindKey;
use lane::{Lane, Operation};
use lookup::LookUp;
use session::{Pool, Session};
use submit::{Submission, Submit, SubmitAll};

/// How a store reaches its database.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Where, and as whom.
    pub dsn: postgres::Config,
    /// The server gives up a statement after this; callers wait [`REPLY_MARGIN`] longer.
    pub timeout: Duration,
    /// The name under which tasks are claimed: see [`owner_name`].
    pub owner: String,
    /// How claims are leased; None: they hold for ever (single instance).
    pub lease: Option<Lease>,
}

/// What a cancel did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was QUEUED: CANCELED now, and never run.
    Canceled,
    /// It is RUNNING and will be CANCELED when its analyser has stopped.
    Requested,
    /// It was terminal already.
    TooLate,
    /// It is another program's.
    NotOurs,
    /// There is no such task.
    Unknown,
}

/// A connected store; share it by reference or in an `Arc`.
pub struct Store {
    pool: Pool,
    owner: String,
    lease: Option<Lease>,
    submit: Lane<Submit>,
    submit_all: Lane<SubmitAll>,
    find_key: Lane<FindKey>,
    claim: Lane<Claim>,
    finish: Lane<FinishBatch>,
    look_up: Lane<LookUp>,
    /// What clients ask for one by one.
    errands: Lane<Errands>,
    /// What the service asks on its own account; a crowd of clients must not keep a lease from being renewed.
    upkeep: Lane<Errands>,
}

/// Threads of all lanes with their stand-ins.
const LANE_THREADS: usize = Submit::MOST_THREADS
    + SubmitAll::MOST_THREADS
    + FindKey::MOST_THREADS
    + Claim::MOST_THREADS
    + FinishBatch::MOST_THREADS
    + LookUp::MOST_THREADS
    + 2 * Errands::MOST_THREADS;

impl Store {
    /// Prepares lanes and a pool. Opens no connection, changes no row.
    pub fn open(config: &StoreConfig) -> Store {
        // A connection for every thread that a lane may have, and some for the instance lock and start-up.
        let connections = LANE_THREADS + 4;
        let pool = Pool::new(&config.dsn, config.timeout, connections as u32);
        let patience = config.timeout + REPLY_MARGIN;
        let owner = config.owner.clone();
        let finish =
            FinishBatch { owner: owner.clone(), with_effect: config.lease.is_some_and(|lease| lease.effect_at_end) };
        Store {
            submit: Lane::start("submit", Submit, pool.clone(), patience),
            submit_all: Lane::start("batch", SubmitAll, pool.clone(), patience),
            find_key: Lane::start("key", FindKey, pool.clone(), patience),
            claim: Lane::start("claim", Claim { owner: owner.clone(), lease: config.lease }, pool.clone(), patience),
            finish: Lane::start("finish", finish, pool.clone(), patience),
            look_up: Lane::start("look-up", LookUp, pool.clone(), patience),
            errands: Lane::start("errand", Errands, pool.clone(), patience),
            upkeep: Lane::start("upkeep", Errands, pool.clone(), patience),
            owner,
            lease: config.lease,
            pool,
        }
    }

    /// Brings the database up to `schema.sql`; says whether anything had to be done.
    pub fn apply_schema(&self) -> Result<bool, StoreError> {
        // No bound of our own: an upgrade's indexes take as long as the table is large.
        schema::apply(&mut self.pool.session_within(START_CONNECT_TIMEOUT)?)
    }

    /// Waits a moment for the instance lock: a killed predecessor's is free as soon as the server notices.
    pub fn lock_instance(&self) -> Result<Relock, StoreError> {
        within(START_TIMEOUT, &self.pool, |session| instance::take(session, "", LOCK_PATIENCE))
    }

    /// One try to have the instance lock again, after the connection named `identity` was lost.
    pub fn relock_instance(&self, identity: &str) -> Result<Relock, StoreError> {
        let ours = identity.to_owned();
        within(RELOCK_TIMEOUT, &self.pool, move |session| instance::take(session, &ours, Duration::ZERO))
    }

    /// Fails what a dead process left RUNNING and reports the backlog: see `recovery::recover`.
    pub fn recover(&self) -> Result<Recovery, StoreError> {
        within(START_TIMEOUT, &self.pool, |mut session| recovery::recover(&mut session))
    }

    /// What an instance with leases does instead of recovery; no task changes: see `recovery::join`.
    pub fn join(&self) -> Result<Recovery, StoreError> {
        within(START_TIMEOUT, &self.pool, |mut session| recovery::join(&mut session))
    }

    /// Asks the server whether it takes writes.
    pub fn probe(&self) -> Result<Proof, StoreError> {
        self.upkeep.ask(|session| Ok(Proof::of(&session.query(sql::PROVE, &[])?[0])))
    }

    /// Fails what another process, which is dead since `lock` is ours, has left RUNNING after recovery. Returns how many tasks.
    pub fn recover_late(&self, lock: &mut InstanceLock) -> Result<u64, StoreError> {
        lock.recover_late(&self.owner)
    }

    /// Commits a new QUEUED task.
    pub fn submit(&self, text: String) -> Result<TaskId, StoreError> {
        // Only a key that is taken keeps a row from being stored.
        let stored = self.submit.call(Submission { text, key: None })?;
        stored.ok_or_else(|| StoreError::Unknown("a task without a key was not stored".into()))
    }

    /// Commits new QUEUED tasks, all or none; one id for each text, in their order.
    pub fn submit_all(&self, texts: Vec<String>) -> Result<Vec<TaskId>, StoreError> {
        self.submit_all.call(texts)
    }

    /// Commits a new QUEUED task under an idempotency key; None: another task has the key.
    pub fn submit_once(&self, text: &str, key: &str) -> Result<Option<TaskId>, StoreError> {
        self.submit.call(Submission { text: text.into(), key: Some(key.into()) })
    }

    /// The task that has this idempotency key.
    pub fn find_key(&self, key: &str) -> Result<Option<TaskId>, StoreError> {
        self.find_key.call(key.into()).map_err(StoreError::of_question)
    }

    /// Whether a task has exactly this text; None: there is no such task.
    pub fn has_text(&self, id: &TaskId, text: &str) -> Result<Option<bool>, StoreError> {
        let (id, text) = (id.clone(), text.to_owned());
        self.errands
            .ask(move |session| {
                let rows = session.query(sql::HAS_TEXT, &[&id.as_str(), &text])?;
                Ok(rows.first().map(|row| row.get(0)))
            })
            .map_err(StoreError::of_question)
    }

    /// Claims a task; None: it is neither QUEUED nor to be taken over.
    pub fn claim(&self, id: &TaskId) -> Result<Option<Claimed>, StoreError> {
        self.claim.call(id.clone())
    }

    /// The same for many tasks, each on its own account, in their order.
    pub fn claim_all(&self, ids: Vec<TaskId>) -> Vec<Result<Option<Claimed>, StoreError>> {
        self.claim.call_all(ids)
    }

    /// Reads back a claim that was not answered: what we hold, if it made the row ours.
    pub fn claimed_by_us(&self, id: &TaskId) -> Result<Option<Claimed>, StoreError> {
        let (id, owner) = (id.clone(), self.owner.clone());
        self.errands.ask(move |session| {
            let rows = session.query(sql::CLAIMED, &[&id.as_str(), &owner])?;
            Ok(rows.first().map(|row| Claimed { text: row.get("text"), epoch: row.get("lease_epoch") }))
        })
    }

    /// Makes a task of ours terminal; the state it got, or None: it is not ours any more (lease lost).
    pub fn finish(&self, finish: &Finish) -> Result<Option<Status>, StoreError> {
        self.finish.call(finish.clone())
    }

    /// The same for many tasks, each on its own account, in their order.
    pub fn finish_all(&self, finishes: Vec<Finish>) -> Vec<Result<Option<Status>, StoreError>> {
        self.finish.call_all(finishes)
    }

    /// Reads back a finish that was not answered: whether it made the row what it is.
    pub fn finished_by_us(&self, finish: &Finish) -> Result<bool, StoreError> {
        // A cancel may have decided in place of us. FAILED may be the end that others gave it when our lease was over.
        let as_we_would = |row: &TaskRow| {
            Status::parse(&row.status).is_some_and(|status| [finish.status(), Status::Canceled].contains(&status))
        };
        let ours = |row: &TaskRow| row.lease_owner.as_ref() == Some(&self.owner) && row.lease_epoch == finish.epoch;
        Ok(self.look_up(&finish.id)?.is_some_and(|row| as_we_would(&row) && ours(&row)))
    }

    /// Fails a task that could not be claimed; false: it is not QUEUED any more.
    pub fn fail_unclaimed(&self, id: &TaskId, reason: &'static str) -> Result<bool, StoreError> {
        let id = id.clone();
        self.errands.ask(move |session| session.execute(sql::FAIL_UNCLAIMED, &[&id.as_str(), &reason])).map(|n| n > 0)
    }

    /// Cancels a queued task, or asks a running one to stop.
    pub fn cancel(&self, id: &TaskId) -> Result<Cancelled, StoreError> {
        let wanted = id.clone();
        let status: Option<String> = self.errands.ask(move |session| {
            let rows = session.query(sql::CANCEL, &[&wanted.as_str()])?;
            Ok(rows.first().map(|row| row.get(0)))
        })?;
        match status.as_deref().and_then(Status::parse) {
            Some(Status::Canceled) => Ok(Cancelled::Canceled),
            Some(_) => Ok(Cancelled::Requested),
            None if self.look_up(id)?.is_none() => Ok(Cancelled::Unknown),
            None if id.number().is_none() => Ok(Cancelled::NotOurs),
            None => Ok(Cancelled::TooLate),
        }
    }

    /// What the row says; None: there is none.
    pub fn look_up(&self, id: &TaskId) -> Result<Option<TaskRow>, StoreError> {
        self.look_up.call(id.clone()).map_err(StoreError::of_question)
    }

    /// The same for many tasks in one statement, each on its own account, in their order.
    pub fn look_up_each(&self, ids: Vec<TaskId>, patience: Duration) -> Vec<Result<Option<TaskRow>, StoreError>> {
        let rows = self.look_up.call_all_within(patience, ids).into_iter();
        rows.map(|row| row.map_err(StoreError::of_question)).collect()
    }

    /// How long a caller waits for the database unless it says otherwise.
    pub fn patience(&self) -> Duration {
        self.look_up.patience()
    }

    /// Up to `limit` QUEUED tasks with numbers above `after`, oldest number first, that have been there for `age`.
    pub fn queued_after(&self, after: i64, limit: i64, age: Duration) -> Result<Vec<TaskId>, StoreError> {
        self.upkeep.ask(move |session| {
            let rows = session.query(sql::QUEUED_AFTER, &[&after, &limit, &(age.as_millis() as i64)])?;
            Ok(rows.iter().map(|row| TaskId::new(row.get::<_, String>(0))).collect())
        })
    }

    /// Up to `limit` tasks to be taken over; none without leases.
    pub fn expired(&self, limit: i64) -> Result<Vec<TaskId>, StoreError> {
        let Some(Lease { max_attempts, .. }) = self.lease else { return Ok(Vec::new()) };
        self.upkeep.ask(move |session| {
            let rows = session.query(sql::EXPIRED, &[&max_attempts, &limit])?;
            Ok(rows.iter().map(|row| TaskId::new(row.get::<_, String>(0))).collect())
        })
    }

    /// Ends the tasks whose lease expired and that no owner may run again; which, and how. None without leases.
    pub fn settle_expired(&self) -> Result<Vec<(TaskId, Status)>, StoreError> {
        let Some(lease) = self.lease else { return Ok(Vec::new()) };
        self.upkeep.ask(move |session| lease::settle_expired(session, lease))
    }

    /// Renews our leases on `tasks`, all in one statement; one answer each, in their order. Waits for `bound` at most.
    pub fn renew(&self, lease: Lease, tasks: Vec<LeasedTask>, bound: Duration) -> Result<Vec<Renewed>, StoreError> {
        let owner = self.owner.clone();
        self.upkeep.ask_within(bound, move |session| lease::renew(session, &owner, lease, &tasks))
    }

    /// Those of `ids` that were asked to stop. Waits for `bound` at most.
    pub fn cancel_requested(&self, ids: Vec<TaskId>, bound: Duration) -> Result<Vec<TaskId>, StoreError> {
        self.upkeep.ask_within(bound, move |session| {
            let id_column: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
            let rows = session.query(sql::CANCEL_REQUESTED, &[&id_column])?;
            Ok(rows.iter().map(|row| TaskId::new(row.get::<_, String>(0))).collect())
        })
    }

    /// Records, in a transaction of its own, what we did for a task of ours (chapter E08).
    pub fn write_effect(&self, task: &LeasedTask, words: u64) -> Result<Effect, StoreError> {
        let (owner, task) = (self.owner.clone(), task.clone());
        self.errands.ask(move |session| lease::write_effect(session, &owner, &task, words as i64))
    }
}

/// Does `work` on a connection of its own in a thread of its own, and waits at most `bound` for it.
fn within<T, F>(bound: Duration, pool: &Pool, work: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: FnOnce(Session) -> Result<T, StoreError> + Send + 'static,
{
    let (reply, answer) = mpsc::channel();
    let pool = pool.clone();
    let spawned = thread::Builder::new().name("start-up".into()).spawn(move || {
        // A caller that gave up needs no answer.
        let _ = reply.send(pool.session().and_then(work));
    });
    spawned.map_err(|error| StoreError::NotDone(format!("no thread: {error}")))?;
    answer
        .recv_timeout(bound)
        .unwrap_or_else(|_| Err(StoreError::Unknown(format!("the database was silent for {} s", bound.as_secs()))))
}

/// A name for this process that no other process ever has: a restart under the same host and pid is another owner.
pub fn owner_name() -> std::io::Result<String> {
    use std::io::Read;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    let mut random = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(format!("{}:{}:{:016x}", host.trim(), std::process::id(), u64::from_ne_bytes(random)))
}
