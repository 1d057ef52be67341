//! Every order of what two workers do to one task, with expiries, a crash, a cancel and late arrivals thrown in, on the
//! program's own SQL. After each step the database is held against section 2's invariants and against a model of it; from
//! each end a fresh worker brings the task to its terminal state.
//!
//! Orders that begin alike are run once: the steps are nodes of a tree, walked within one transaction by savepoints. Two nodes
//! with the same row, effects and workers have the same future. Its end is tried once; with [`Walk::Shared`], so is all of it.

mod laws;
mod model;
mod mutants;
mod real;

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use model::{Answer, Lease, Model};
use real::{Real, Seen, State, Texts};

use crate::harness::Database;

/// One thing that happens to the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Claim { owner: &'static str },
    Effect { owner: &'static str, epoch: i64 },
    Renew { owner: &'static str, epoch: i64 },
    Finish { owner: &'static str, epoch: i64 },
    Cancel,
    Settle,
    Expire,
}

/// What a worker does with a task, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Claim,
    Effect,
    Renew,
    Finish,
}

/// How workers work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `lease run`: the effect and the end are two transactions.
    Run,
    /// `serve --lease`: they are one.
    Serve,
}

impl Shape {
    fn steps(self) -> [Step; 3] {
        match self {
            Shape::Run => [Step::Claim, Step::Effect, Step::Finish],
            Shape::Serve => [Step::Claim, Step::Renew, Step::Finish],
        }
    }
}

/// The next thing in an order. Workers are numbered 0 and 1.
#[derive(Debug, Clone, Copy)]
enum Move {
    Next(usize),
    /// A worker does nothing any more.
    Crash(usize),
    Expire,
    Cancel,
    Settle,
    /// A statement that a worker sent before gets to the server again, or only now.
    Late(usize, Step),
}

/// How often may still happen what need not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    expiries: u8,
    crashes: u8,
    cancels: u8,
    settles: u8,
    late: u8,
}

/// What is enumerated.
#[derive(Debug, Clone, Copy)]
struct Setting {
    shape: Shape,
    /// The workers' names: the same one twice is a process that was started again under its name.
    owners: [&'static str; 2],
    budget: Budget,
    attempts: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Worker {
    /// Steps done.
    done: usize,
    epoch: Option<i64>,
    over: bool,
}

/// A place in the tree.
#[derive(Debug, Clone)]
struct Node {
    model: Model,
    workers: [Worker; 2],
    left: Budget,
}

/// What went wrong, and after which moves.
#[derive(Debug)]
pub struct Violation {
    what: String,
    path: Vec<Move>,
}

/// Whether nodes with the same future are walked on from each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    Each,
    Shared,
}

/// What is known already.
#[derive(Default)]
struct Known {
    /// States from which the task was brought to its end.
    ended: HashSet<State>,
    /// Nodes that were walked on from, with how many orders go through each.
    walked: HashMap<(State, [Worker; 2], Budget), u64>,
    /// Statements that were run and judged.
    steps: u64,
}

struct Enumeration<'a> {
    real: Real<'a>,
    setting: Setting,
    path: Vec<Move>,
    known: &'a mut Known,
}

impl Node {
    fn moves(&self, shape: Shape) -> Vec<Move> {
        let mut moves = Vec::new();
        for (number, worker) in self.workers.iter().enumerate() {
            if !worker.over {
                moves.push(Move::Next(number));
                moves.extend((self.left.crashes > 0).then_some(Move::Crash(number)));
            }
            if self.left.late > 0 && worker.epoch.is_some() {
                let sent = shape.steps().into_iter().take(worker.done).skip(1);
                moves.extend(sent.map(|step| Move::Late(number, step)));
            }
        }
        moves.extend((self.left.expiries > 0 && self.model.lease == Lease::Holds).then_some(Move::Expire));
        moves.extend((self.left.cancels > 0).then_some(Move::Cancel));
        moves.extend((self.left.settles > 0).then_some(Move::Settle));
        moves
    }

    fn complete(&self) -> bool {
        self.workers.iter().all(|worker| worker.over)
    }
}

impl Enumeration<'_> {
    /// Walks all orders of a setting with these statements; how many orders and steps there were.
    fn of(database: &Database, setting: Setting, walk: Walk, texts: &Texts) -> Result<(u64, u64), Violation> {
        let mut client = database.connect();
        let root = Node { model: Model::queued(), workers: [Worker::default(); 2], left: setting.budget };
        let (mut orders, mut known) = (0, Known::default());
        // What is rolled back stays in the table's files, and each look reads past it: a fresh table for each subtree.
        for first in root.moves(setting.shape) {
            let transaction = client.transaction().expect("begin");
            let mut real = Real::new(transaction, texts).expect("the statements are well formed");
            let seen = real.see().expect("the row");
            let mut part = Enumeration { real, setting, path: vec![first], known: &mut known };
            let made = part.make(&root, &seen, first).and_then(|(node, seen)| part.explore(&node, &seen, walk));
            orders += made.map_err(|what| Violation { what, path: part.path })?;
        }
        Ok((orders, known.steps))
    }

    /// Walks on from a node; how many orders go through it.
    fn explore(&mut self, node: &Node, seen: &Seen, walk: Walk) -> Result<u64, String> {
        let key = (seen.state.clone(), node.workers, node.left);
        if let Some(&orders) = self.known.walked.get(&key).filter(|_| walk == Walk::Shared) {
            return Ok(orders);
        }
        let mut orders = 0;
        let depth = self.path.len();
        self.savepoint(&format!("SAVEPOINT at_{depth}"));
        if node.complete() {
            orders += 1;
            if self.known.ended.insert(seen.state.clone()) {
                self.converge(node, seen)?;
                self.savepoint(&format!("ROLLBACK TO at_{depth}"));
            }
        }
        for next in node.moves(self.setting.shape) {
            self.path.push(next);
            let (node, seen) = self.make(node, seen, next)?;
            orders += self.explore(&node, &seen, walk)?;
            self.path.pop();
            self.savepoint(&format!("ROLLBACK TO at_{depth}"));
        }
        self.known.walked.insert(key, orders);
        Ok(orders)
    }

    fn savepoint(&mut self, statement: &str) {
        self.real.transaction.batch_execute(statement).expect("savepoints work");
    }

    fn make(&mut self, node: &Node, seen: &Seen, next: Move) -> Result<(Node, Seen), String> {
        let mut node = node.clone();
        let act = match next {
            Move::Crash(number) => {
                node.workers[number].over = true;
                node.left.crashes -= 1;
                return Ok((node, seen.clone()));
            }
            Move::Next(number) => self.act_of(&node, number, self.setting.shape.steps()[node.workers[number].done]),
            Move::Late(number, step) => {
                node.left.late -= 1;
                self.act_of(&node, number, step)
            }
            Move::Expire => {
                node.left.expiries -= 1;
                Act::Expire
            }
            Move::Cancel => {
                node.left.cancels -= 1;
                Act::Cancel
            }
            Move::Settle => {
                node.left.settles -= 1;
                Act::Settle
            }
        };
        let (answer, seen) = self.act(&mut node.model, seen, act)?;
        if let Move::Next(number) = next {
            let worker = &mut node.workers[number];
            worker.done += 1;
            if let Answer::Claimed(epoch) = answer {
                worker.epoch = Some(epoch);
            }
            // An owner that was refused its effect goes on to its end: the worst that it may do.
            worker.over = worker.epoch.is_none() || worker.done == self.setting.shape.steps().len();
        }
        Ok((node, seen))
    }

    fn act_of(&self, node: &Node, number: usize, step: Step) -> Act {
        let (owner, epoch) = (self.setting.owners[number], node.workers[number].epoch.unwrap_or_default());
        match step {
            Step::Claim => Act::Claim { owner },
            Step::Effect => Act::Effect { owner, epoch },
            Step::Renew => Act::Renew { owner, epoch },
            Step::Finish => Act::Finish { owner, epoch },
        }
    }

    /// Does it in the database and in the model, and judges.
    fn act(&mut self, model: &mut Model, before: &Seen, act: Act) -> Result<(Answer, Seen), String> {
        self.known.steps += 1;
        let (attempts, with_effect) = (self.setting.attempts, self.setting.shape == Shape::Serve);
        let real = &mut self.real;
        let answer = match act {
            Act::Claim { owner } => real.claim(owner, attempts),
            Act::Effect { owner, epoch } => real.effect(owner, epoch),
            Act::Renew { owner, epoch } => real.renew(owner, epoch),
            Act::Finish { owner, epoch } => real.finish(owner, epoch, with_effect),
            Act::Cancel => real.cancel(),
            Act::Settle => real.settle(attempts),
            Act::Expire => real.expire().map(|()| Answer::Done),
        };
        let answer = answer.map_err(|error| {
            // Anything else is a fault of this test.
            let said = error.as_db_error().unwrap_or_else(|| panic!("{act:?}: {error:?}"));
            format!("{act:?} failed: {}", said.message())
        })?;
        let after = real.see().expect("the row is still there");
        laws::hold(before, &after, act, answer, attempts).map_err(|law| format!("{act:?}: {law}"))?;
        let expected = match act {
            Act::Claim { owner } => model.claim(owner, attempts),
            Act::Effect { owner, epoch } => model.effect(owner, epoch),
            Act::Renew { owner, epoch } => model.renew(owner, epoch),
            Act::Finish { owner, epoch } => model.finish(owner, epoch, with_effect),
            Act::Cancel => model.cancel(),
            Act::Settle => model.settle(attempts),
            Act::Expire => {
                model.expire();
                Answer::Done
            }
        };
        if answer != expected {
            return Err(format!("{act:?} answered {answer:?}, by the design {expected:?}"));
        }
        laws::is_as_modelled(&after.state, model).map_err(|difference| format!("{act:?}: {difference}"))?;
        Ok((answer, after))
    }

    /// Whoever is left lets its lease run out; a fresh worker comes, and then what settles the hopeless.
    fn converge(&mut self, node: &Node, seen: &Seen) -> Result<(), String> {
        let (mut model, mut seen) = (node.model.clone(), seen.clone());
        if model.lease == Lease::Holds {
            seen = self.act(&mut model, &seen, Act::Expire)?.1;
        }
        let (claimed, after) = self.act(&mut model, &seen, Act::Claim { owner: "fresh" })?;
        seen = after;
        if let Answer::Claimed(epoch) = claimed {
            if self.setting.shape == Shape::Run {
                seen = self.act(&mut model, &seen, Act::Effect { owner: "fresh", epoch })?.1;
            }
            seen = self.act(&mut model, &seen, Act::Finish { owner: "fresh", epoch })?.1;
        }
        seen = self.act(&mut model, &seen, Act::Settle)?.1;
        if model.terminal() { laws::end_well(&seen.state) } else { Err(format!("it never ends: {seen:?}")) }
    }
}

/// Two expiries, a crash and a cancel: chapter E08's dangers.
const DANGERS: Budget = Budget { expiries: 2, crashes: 1, cancels: 1, settles: 0, late: 0 };
/// Statements that arrive late or twice.
const STRAYS: Budget = Budget { expiries: 2, crashes: 1, cancels: 1, settles: 0, late: 1 };
/// Others that settle what they find.
const SETTLERS: Budget = Budget { expiries: 2, crashes: 1, cancels: 1, settles: 1, late: 1 };

fn settings(budget: Budget, attempts: i64) -> Vec<Setting> {
    let owners = [["A", "B"], ["A", "A"]];
    let with = |shape| owners.map(|owners| Setting { shape, owners, budget, attempts });
    [with(Shape::Run), with(Shape::Serve)].concat()
}

/// All settings. Where somebody settles, two attempts are all: there must be something to give up.
fn all_settings() -> Vec<(Setting, Walk)> {
    let each = settings(DANGERS, 5).into_iter().map(|setting| (setting, Walk::Each));
    let shared = [settings(STRAYS, 5), settings(SETTLERS, 2)].concat().into_iter();
    each.chain(shared.map(|setting| (setting, Walk::Shared))).collect()
}

#[test]
fn every_order_of_two_workers_keeps_the_laws_and_ends_well() {
    let (mut orders, mut steps, begun) = (0, 0, Instant::now());
    let database = Database::with_schema();
    for (setting, walk) in all_settings() {
        let started = Instant::now();
        let (some_orders, some_steps) = Enumeration::of(&database, setting, walk, &Texts::of_the_program())
            .unwrap_or_else(|violation| panic!("{setting:?}: {violation:?}"));
        println!("{some_orders} orders, {some_steps} steps, {:?}: {setting:?} {walk:?}", started.elapsed());
        orders += some_orders;
        steps += some_steps;
    }
    println!("all: {orders} orders, {steps} steps, {:?}", begun.elapsed());
}
