//! submit: a text becomes a committed QUEUED row.

use super::lane::Operation;
use super::session::Session;
use super::sql;
use crate::task::TaskId;

pub(super) struct Submit;

impl Operation for Submit {
    type Input = String;
    type Output = TaskId;
    const NAME: &'static str = "submit";

    fn run(&self, session: &mut Session, texts: &[String]) -> Result<Vec<TaskId>, postgres::Error> {
        let numbers = session.query(sql::NEXT_NUMBERS, &[&(texts.len() as i64)])?;
        let ids: Vec<TaskId> = numbers.iter().map(|row| TaskId::from_number(row.get(0))).collect();
        let id_column: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
        session.query(sql::SUBMIT, &[&id_column, &texts])?;
        Ok(ids)
    }
}
