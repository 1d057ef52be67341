//! The same task in the database: the statements of `taskstats::store::sql`, or wilfully broken ones, prepared in one
//! transaction that is never committed.

use postgres::{Statement, Transaction};
use taskstats::store::sql;

use super::model::{Answer, Lease, Status};

pub const ID: &str = "task[0]";
/// Longer than any run, so that a lease ends only when a step says so.
const TTL_MILLIS: i64 = 3_600_000;
/// `Go one`
const WORDS: i64 = 2;

/// The texts of the statements.
#[derive(Clone)]
pub struct Texts {
    pub claim: String,
    pub effect: String,
    pub finish: String,
    pub renew: String,
    pub cancel: String,
    pub settle: String,
}

impl Texts {
    /// Those that the program runs.
    pub fn of_the_program() -> Texts {
        Texts {
            claim: sql::CLAIM.into(),
            effect: sql::WRITE_EFFECT.into(),
            finish: sql::FINISH.into(),
            renew: sql::RENEW.into(),
            cancel: sql::CANCEL.into(),
            settle: sql::SETTLE_EXPIRED.into(),
        }
    }
}

/// Everything there is to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub state: State,
    /// The whole row as text: equal texts mean that nothing was written.
    pub row: String,
}

/// What decides the task's future: all but the hours at which things happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub status: Status,
    pub owner: Option<String>,
    pub epoch: i64,
    pub lease: Lease,
    pub cancel_requested: bool,
    /// words, bytes, runes
    pub counters: (i64, i64, i64),
    /// words, owner, epoch of each effect
    pub effects: Vec<(i64, String, i64)>,
}

const SEE: &str = "
    SELECT status, lease_owner, lease_epoch, lease_until IS NULL, lease_until < clock_timestamp(), cancel_requested,
           words, bytes, runes, go_tasks::text,
           array(SELECT words FROM go_task_effects), array(SELECT lease_owner FROM go_task_effects),
           array(SELECT lease_epoch FROM go_task_effects)
      FROM go_tasks";

const EXPIRE: &str =
    "UPDATE go_tasks SET lease_until = clock_timestamp() - interval '1 second' WHERE lease_until IS NOT NULL";

/// The task in a transaction.
pub struct Real<'a> {
    pub transaction: Transaction<'a>,
    claim: Statement,
    effect: Statement,
    finish: Statement,
    renew: Statement,
    cancel: Statement,
    settle: Statement,
    expire: Statement,
    see: Statement,
}

impl<'a> Real<'a> {
    pub fn new(mut transaction: Transaction<'a>, texts: &Texts) -> Result<Real<'a>, postgres::Error> {
        // Rolled back with the rest; until then it gives both tables fresh files.
        transaction.batch_execute("TRUNCATE go_tasks, go_task_effects")?;
        transaction.execute("INSERT INTO go_tasks (id, text, status) VALUES ($1, 'Go one', 'QUEUED')", &[&ID])?;
        let mut prepare = |text: &str| transaction.prepare(text);
        Ok(Real {
            claim: prepare(&texts.claim)?,
            effect: prepare(&texts.effect)?,
            finish: prepare(&texts.finish)?,
            renew: prepare(&texts.renew)?,
            cancel: prepare(&texts.cancel)?,
            settle: prepare(&texts.settle)?,
            expire: prepare(EXPIRE)?,
            see: prepare(SEE)?,
            transaction,
        })
    }

    pub fn claim(&mut self, owner: &str, attempts: i64) -> Result<Answer, postgres::Error> {
        let rows = self.transaction.query(&self.claim, &[&vec![ID], &owner, &TTL_MILLIS, &attempts])?;
        Ok(rows.first().map_or(Answer::Nothing, |row| Answer::Claimed(row.get("lease_epoch"))))
    }

    pub fn effect(&mut self, owner: &str, epoch: i64) -> Result<Answer, postgres::Error> {
        let rows = self.transaction.query(&self.effect, &[&ID, &owner, &epoch, &WORDS])?;
        Ok(rows.first().map_or(Answer::Nothing, |row| Answer::Effect { new: row.get("new") }))
    }

    pub fn renew(&mut self, owner: &str, epoch: i64) -> Result<Answer, postgres::Error> {
        let rows = self.transaction.query(&self.renew, &[&owner, &vec![ID], &vec![epoch], &TTL_MILLIS])?;
        Ok(if rows.is_empty() { Answer::Nothing } else { Answer::Done })
    }

    pub fn finish(&mut self, owner: &str, epoch: i64, with_effect: bool) -> Result<Answer, postgres::Error> {
        let (ids, epochs, statuses, reasons) = (vec![ID], vec![epoch], vec!["SUCCEEDED"], vec![None::<&str>]);
        let (words, others) = (vec![WORDS], vec![6_i64]);
        let rows = self.transaction.query(
            &self.finish,
            &[&owner, &ids, &epochs, &statuses, &words, &others, &others, &reasons, &with_effect],
        )?;
        Ok(became(&rows))
    }

    pub fn cancel(&mut self) -> Result<Answer, postgres::Error> {
        Ok(became(&self.transaction.query(&self.cancel, &[&ID])?))
    }

    pub fn settle(&mut self, attempts: i64) -> Result<Answer, postgres::Error> {
        Ok(became(&self.transaction.query(&self.settle, &[&attempts])?))
    }

    pub fn expire(&mut self) -> Result<(), postgres::Error> {
        self.transaction.execute(&self.expire, &[]).map(drop)
    }

    pub fn see(&mut self) -> Result<Seen, postgres::Error> {
        let row = self.transaction.query_one(&self.see, &[])?;
        let lease = match (row.get(3), row.get(4)) {
            (true, _) => Lease::None,
            (false, Some(true)) => Lease::Over,
            (false, _) => Lease::Holds,
        };
        let (words, owners, epochs): (Vec<i64>, Vec<String>, Vec<i64>) = (row.get(10), row.get(11), row.get(12));
        let effects = words.into_iter().zip(owners).zip(epochs).map(|((words, owner), epoch)| (words, owner, epoch));
        let state = State {
            status: status(row.get(0)),
            owner: row.get(1),
            epoch: row.get(2),
            lease,
            cancel_requested: row.get(5),
            counters: (row.get(6), row.get(7), row.get(8)),
            effects: effects.collect(),
        };
        Ok(Seen { state, row: row.get(9) })
    }
}

fn became(rows: &[postgres::Row]) -> Answer {
    rows.first().map_or(Answer::Nothing, |row| Answer::Became(status(row.get("status"))))
}

fn status(text: &str) -> Status {
    match text {
        "QUEUED" => Status::Queued,
        "RUNNING" => Status::Running,
        "SUCCEEDED" => Status::Succeeded,
        "FAILED" => Status::Failed,
        "CANCELED" => Status::Canceled,
        other => panic!("status {other}"),
    }
}
