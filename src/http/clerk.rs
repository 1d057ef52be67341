//! The clerk: answers who asks for a task. One thread takes everybody who stands at its desk, asks the database once for all
//! of them, and answers each: no handler thread sleeps until its row comes, and a crowd is one statement. Must never keep
//! anybody longer than the database's patience, nor let a request that still has time pay for one that has none.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::exchange::Exchange;
use super::tasks;
use crate::limits::{BATCH_ROWS, FIRST_LOOK, HTTP_STACK, LOOK_MIN};
use crate::service::Service;
use crate::task::TaskId;

/// The askers' end. Dropping it ends the thread when everybody has been answered.
pub struct Clerk {
    service: Arc<Service>,
    desk: Sender<Asker>,
}

/// Somebody who waits for what a row says.
struct Asker {
    exchange: Exchange,
    id: TaskId,
    deadline: Instant,
}

impl Clerk {
    /// Starts the thread.
    pub fn start(service: Arc<Service>) -> io::Result<Clerk> {
        let (desk, askers) = unbounded();
        let thread = thread::Builder::new().name("clerk".into()).stack_size(HTTP_STACK);
        let asked = Arc::clone(&service);
        // After a panic its askers have been answered with 500; it ends when the other end is gone.
        thread.spawn(move || while catch_unwind(AssertUnwindSafe(|| work(&asked, &askers))).is_err() {})?;
        Ok(Clerk { service, desk })
    }

    /// Answers `exchange` with what the row of `id` says, soon.
    pub fn ask(&self, exchange: Exchange, id: TaskId) {
        let deadline = Instant::now() + self.service.patience();
        // The thread outlives this sender.
        let _ = self.desk.send(Asker { exchange, id, deadline });
    }
}

fn work(service: &Service, desk: &Receiver<Asker>) {
    let mut askers = Vec::new();
    loop {
        let is_first_try = askers.is_empty();
        if is_first_try {
            let Ok(first) = desk.recv() else { return };
            askers.push(first);
            // As in a lane: those who are about to ask come along.
            thread::yield_now();
        }
        let room = BATCH_ROWS.saturating_sub(askers.len());
        askers.extend(desk.try_iter().take(room));
        // It is the second one that may find a slow database; the first only a silent connection.
        let most = if is_first_try { FIRST_LOOK } else { Duration::MAX };
        askers = look(service, askers, most);
    }
}

/// Looks at their rows, for `most` at most, and answers them; those remain for whom there is still time.
fn look(service: &Service, askers: Vec<Asker>, most: Duration) -> Vec<Asker> {
    let began = Instant::now();
    let first_deadline = askers.iter().map(|asker| asker.deadline).min().unwrap_or(began);
    let patience = first_deadline.saturating_duration_since(began).clamp(LOOK_MIN, most);
    let rows = service.look_up_each(askers.iter().map(|asker| asker.id.clone()).collect(), patience);
    let now = Instant::now();
    // An error that came sooner is the database's word, and counts for everybody.
    let timed_out = now.duration_since(began) >= patience;
    let mut remain = Vec::new();
    for (asker, row) in askers.into_iter().zip(rows) {
        if row.is_err() && timed_out && now < asker.deadline {
            remain.push(asker);
        } else {
            asker.exchange.reply(tasks::told(&asker.id, &row));
        }
    }
    remain
}
