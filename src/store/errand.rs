//! Errands: the statements too rare for a lane of their own, one at a time, with the same bounded wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::error::StoreError;
use super::lane::{Lane, Operation};
use super::session::Session;
use crate::lock;

type Errand = Box<dyn Fn(&mut Session) -> Result<(), postgres::Error> + Send>;

pub(super) struct Errands;

impl Operation for Errands {
    type Input = Errand;
    type Output = ();
    const BATCH: usize = 1;
    const WIDTH: usize = 2;

    fn run(&self, session: &mut Session, errands: &[Errand]) -> Result<Vec<()>, postgres::Error> {
        errands.iter().map(|errand| errand(session)).collect()
    }
}

impl Lane<Errands> {
    /// Runs `ask` on one of the lane's connections and gives back what it returned.
    pub(super) fn ask<T, F>(&self, ask: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut Session) -> Result<T, postgres::Error> + Send + 'static,
    {
        self.ask_within(Duration::MAX, ask)
    }

    /// The same for a caller that may have less time than the lane gives.
    pub(super) fn ask_within<T, F>(&self, bound: Duration, ask: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&mut Session) -> Result<T, postgres::Error> + Send + 'static,
    {
        let slot = Arc::new(Mutex::new(None));
        let filled = slot.clone();
        self.call_within(
            bound.min(self.patience()),
            Box::new(move |session| {
                let answer = ask(session)?;
                *lock(&filled) = Some(answer);
                Ok(())
            }),
        )?;
        let answer = lock(&slot).take();
        answer.ok_or_else(|| StoreError::Unknown("errand ended without an answer".into()))
    }
}
