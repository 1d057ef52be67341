//! Waiters: requests whose answer is put off until their task has ended. One thread owns them all: it looks at the rows of many
//! in one question, when a hint says that a task may have ended, when their time is over, and once a second in any case —
//! another instance's work gives no hints. Must never hold a handler thread, and never keep a request beyond its wait.
//!
//! There are never more of them than clients inside: each client waits for one answer at a time.

use std::collections::{HashMap, HashSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select, unbounded};

use super::exchange::{Exchange, Reply};
use super::{prefer, tasks};
use crate::limits::{WAIT_POLL, WAIT_TICK, WORKER_STACK};
use crate::service::Service;
use crate::store::{StoreError, TaskRow};
use crate::task::TaskId;

/// What a client waits for.
pub struct Pending {
    /// The task.
    pub id: TaskId,
    /// For how long.
    pub wait: Duration,
    /// What it is told if the row cannot be read at the end, and otherwise the head of its answer: a submission was accepted
    /// whatever happens later. None: the request only asks.
    pub accepted: Option<Reply>,
}

/// The callers' end. Dropping it answers those who wait, and ends the thread.
pub struct Waiters {
    messages: Sender<Message>,
}

enum Message {
    Park(Box<Parked>),
    Close,
}

struct Parked {
    exchange: Exchange,
    pending: Pending,
    deadline: Instant,
}

impl Waiters {
    /// Starts the thread.
    pub fn start(service: Arc<Service>) -> io::Result<Waiters> {
        let (messages, inbox) = unbounded();
        let thread = thread::Builder::new().name("waiters".into()).stack_size(WORKER_STACK);
        thread.spawn(move || {
            // After a panic those parked have been answered with 500, and the next ones are looked after again.
            while catch_unwind(AssertUnwindSafe(|| Room::new(&service, &inbox).run())).is_err() {}
        })?;
        Ok(Waiters { messages })
    }

    /// Answers later.
    pub fn park(&self, mut exchange: Exchange, pending: Pending) {
        exchange.free_body();
        let deadline = Instant::now() + pending.wait;
        // The thread outlives this sender.
        let _ = self.messages.send(Message::Park(Box::new(Parked { exchange, pending, deadline })));
    }

    /// From now on nobody waits: those parked are told the present state at once, and so is who comes now.
    pub fn close(&self) {
        let _ = self.messages.send(Message::Close);
    }
}

/// The thread's own: those parked, by their tasks.
struct Room<'a> {
    service: &'a Service,
    inbox: &'a Receiver<Message>,
    parked: HashMap<TaskId, Vec<Parked>>,
    /// Tasks whose rows are to be looked at now.
    due: HashSet<TaskId>,
    closing: bool,
    open: bool,
}

impl<'a> Room<'a> {
    fn new(service: &'a Service, inbox: &'a Receiver<Message>) -> Room<'a> {
        Room { service, inbox, parked: HashMap::new(), due: HashSet::new(), closing: false, open: true }
    }

    fn run(&mut self) {
        let hints = self.service.watch().hints();
        let (mut tick_at, mut poll_at) = (Instant::now(), Instant::now());
        while self.open {
            select! {
                recv(self.inbox) -> message => self.take(message.ok()),
                recv(hints) -> id => self.due.extend(id),
                default(tick_at.saturating_duration_since(Instant::now())) => {}
            }
            // Whatever else is there already is part of the same question.
            self.inbox.try_iter().for_each(|message| self.take(Some(message)));
            self.due.extend(hints.try_iter());
            let now = Instant::now();
            if now >= tick_at {
                tick_at = now + WAIT_TICK;
                let over = self.parked.iter().filter(|(_, parked)| parked.iter().any(|one| self.is_over(one)));
                self.due.extend(over.map(|(id, _)| id.clone()).collect::<Vec<_>>());
            }
            if now >= poll_at || self.closing {
                poll_at = now + WAIT_POLL;
                self.due.extend(self.parked.keys().cloned());
            }
            self.look();
        }
    }

    fn take(&mut self, message: Option<Message>) {
        match message {
            Some(Message::Park(parked)) => {
                let id = parked.pending.id.clone();
                self.service.watch().add(&id);
                // What is in our hands has not ended, and gives a hint when it leaves them.
                if !self.service.holds(&id) {
                    self.due.insert(id.clone());
                }
                self.parked.entry(id).or_default().push(*parked);
            }
            Some(Message::Close) => self.closing = true,
            None => (self.closing, self.open) = (true, false),
        }
    }

    /// Nothing more is waited for: time-out, shutdown, or a client that is gone (and one that only closed its sending side
    /// gets its answer early).
    fn is_over(&self, parked: &Parked) -> bool {
        self.closing || parked.exchange.client_left() || Instant::now() >= parked.deadline
    }

    /// Looks at the rows that are due and answers those who need not wait any longer.
    fn look(&mut self) {
        let ids: Vec<TaskId> = self.due.drain().filter(|id| self.parked.contains_key(id)).collect();
        if ids.is_empty() {
            return;
        }
        let rows = self.service.look_up_each(ids.clone(), self.service.patience());
        for (id, row) in ids.into_iter().zip(rows) {
            let has_ended = match &row {
                Ok(Some(row)) => row.has_ended(),
                Ok(None) => true,
                // The database may be back before the time is over.
                Err(_) => false,
            };
            let here = self.parked.remove(&id).unwrap_or_default();
            let (answerable, waiting): (Vec<_>, Vec<_>) =
                here.into_iter().partition(|one| has_ended || self.is_over(one));
            for Parked { exchange, pending, .. } in answerable {
                self.service.watch().remove(&id);
                exchange.reply(reply(pending, &row));
            }
            if !waiting.is_empty() {
                self.parked.insert(id, waiting);
            }
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        for (id, parked) in self.parked.drain() {
            parked.iter().for_each(|_| self.service.watch().remove(&id));
        }
    }
}

fn reply(pending: Pending, row: &Result<Option<TaskRow>, StoreError>) -> Reply {
    let told = match (pending.accepted, row) {
        (Some(accepted), Ok(Some(row))) => Reply { body: tasks::shown(row).body, ..accepted },
        // Accepted it was, even if nobody can say now what has become of it.
        (Some(accepted), _) => accepted,
        (None, row) => tasks::told(&pending.id, row),
    };
    prefer::applied(told, pending.wait)
}
