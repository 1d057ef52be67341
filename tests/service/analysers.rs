//! Analysers that are held, that fail oddly, that panic; and cancels while they run.

use std::panic::panic_any;
use std::thread;
use std::time::Instant;

use taskstats::service::{Event, Service};
use taskstats::store::Cancelled;
use taskstats::task::{Analyser, Analysis, CountAnalyser, Counts, Stop, TaskId};

use crate::harness::inside::{Held, Inside};
use crate::harness::{Database, PATIENCE, until};

const TWO_WORDS: Analysis = Analysis::Counted(Counts { words: 2, bytes: 6, runes: 6 });

fn ended(service: &Service, id: &TaskId) -> String {
    until(&format!("{id} ends"), || {
        let row = service.look_up(id).expect("an answer").expect("a row");
        (row.finished_at.is_some()).then_some(row.status)
    })
}

#[test]
fn a_running_task_is_cancelled_only_when_its_analyser_has_stopped() {
    let database = Database::with_schema();
    // The analyser stops early, ends as if nothing had been asked, or fails: the cancel holds all the same.
    for result in [Analysis::Stopped, TWO_WORDS, Analysis::Failed("too late to matter".into())] {
        let (held, holder) = Held::pair();
        let inside = Inside::on(&database, held, 1);
        let id = inside.service.submit("Go one".into()).expect("accepted").id;
        let stop = holder.begun.recv().expect("it begins");
        assert!(!stop.requested());
        assert_eq!(inside.service.cancel(&id), Ok(Cancelled::Requested));
        assert!(stop.requested(), "the analyser is told");
        let row = format!("SELECT status, cancel_requested, words FROM go_tasks WHERE id = '{id}'");
        assert_eq!(database.rows(&row), "RUNNING|true|0");
        assert_eq!(inside.service.cancel(&id), Ok(Cancelled::Requested), "asking twice is no error");
        holder.results.send(result).expect("the analyser waits");
        assert_eq!(ended(&inside.service, &id), "CANCELED");
        let row = format!(
            "SELECT status, words, bytes, runes, failure_reason IS NULL AS none FROM go_tasks WHERE id = '{id}'"
        );
        assert_eq!(database.rows(&row), "CANCELED|0|0|0|true");
        assert_eq!(inside.service.cancel(&id), Ok(Cancelled::TooLate));
    }
}

#[test]
fn a_long_analysis_holds_nothing_up_and_no_more_tasks_run_than_there_are_workers() {
    let (tasks, workers) = (10, 3);
    let database = Database::with_schema();
    database.run(&format!(
        "INSERT INTO go_tasks (id, text, status) SELECT 'task[' || n || ']', 'Go one', 'QUEUED' FROM generate_series(1, {tasks}) n"
    ));
    let (held, holder) = Held::pair();
    let inside = Inside::on(&database, held, workers);
    let count = |status: &str| {
        database
            .rows(&format!("SELECT count(*) FROM go_tasks WHERE status = '{status}'"))
            .parse::<usize>()
            .expect("a number")
    };
    // Whichever is let go, the others are still at it when its row says so, and when the next one begins.
    (0..workers).for_each(|_| drop(holder.begun.recv().expect("it begins")));
    for ended in 0..tasks {
        assert_eq!(count("RUNNING"), workers.min(tasks - ended));
        holder.results.send(TWO_WORDS).expect("an analyser waits");
        until("one has ended", || (count("SUCCEEDED") == ended + 1).then_some(()));
        if ended + workers < tasks {
            holder.begun.recv().expect("the next one begins");
        }
    }
    drop(inside);
}

/// Does what its text says.
struct Odd;

impl Analyser for Odd {
    fn analyse(&self, text: &str, _stop: &Stop) -> Analysis {
        match text {
            "panic" => panic!("odd\0 text"),
            "nul" => Analysis::Failed("a\0b".into()),
            "long" => Analysis::Failed("é".repeat(1 << 19)),
            _ => TWO_WORDS,
        }
    }
}

#[test]
fn odd_failures_are_stored_and_cost_no_worker() {
    let database = Database::with_schema();
    let inside = Inside::on(&database, Odd, 1);
    for (text, reason) in [("panic", "analyser panicked: odd\u{fffd} text"), ("nul", "a\u{fffd}b")] {
        let id = inside.service.submit(text.into()).expect("accepted").id;
        assert_eq!(ended(&inside.service, &id), "FAILED");
        let row = inside.service.look_up(&id).expect("an answer").expect("a row");
        assert_eq!((row.failure_reason.as_deref(), row.counts), (Some(reason), Counts::default()));
    }
    let id = inside.service.submit("long".into()).expect("accepted").id;
    assert_eq!(ended(&inside.service, &id), "FAILED");
    let kept = format!("SELECT length(failure_reason) FROM go_tasks WHERE id = '{id}'");
    assert_eq!(database.rows(&kept), "512");
    let id = inside.service.submit("fine".into()).expect("accepted").id;
    assert_eq!(ended(&inside.service, &id), "SUCCEEDED");
}

/// A panic's payload whose end is a panic, too: nobody expects it.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the payload, too");
    }
}

/// Kills its worker.
struct Deadly;

impl Analyser for Deadly {
    fn analyse(&self, _text: &str, _stop: &Stop) -> Analysis {
        panic_any(Bomb)
    }
}

#[test]
fn a_thread_that_dies_ends_the_service() {
    let database = Database::with_schema();
    let inside = Inside::on(&database, Deadly, 2);
    let id = inside.service.submit("Go one".into()).expect("accepted").id;
    let event = inside.events.recv_timeout(PATIENCE).expect("an event");
    assert!(matches!(&event, Event::ThreadDied(name) if name.starts_with("worker-")), "{event:?}");
    assert!(inside.service.not_ready().iter().any(|reason| reason.contains("worker-")), "claims nothing any more");
    // What it had in hand is the next start's.
    let began = Instant::now();
    assert_eq!(inside.service.drain(PATIENCE), 1);
    assert!(began.elapsed() < PATIENCE, "waited for the dead");
    assert_eq!(database.task(id.as_str()), "RUNNING|0|0|0");
}

#[test]
fn ten_thousand_cancels_at_random_moments_are_never_lost() {
    const CLIENTS: u64 = 16;
    const EACH: u64 = 625;
    let database = Database::with_schema();
    let inside = Inside::on(&database, CountAnalyser::default(), 8);
    let service = &inside.service;
    let told: Vec<(TaskId, Cancelled)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let mut random = client + 1;
                    (0..EACH)
                        .map(|_| {
                            let id = service.submit("Go one".into()).expect("16 clients fit into 64 places").id;
                            // xorshift: a delay from nothing to about the time that a task takes.
                            random ^= random << 13;
                            random ^= random >> 7;
                            random ^= random << 17;
                            thread::sleep(std::time::Duration::from_micros(random % 6_000));
                            let cancelled = service.cancel(&id).expect("an answer");
                            ended(service, &id);
                            (id, cancelled)
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    let mut counts = [0; 3];
    for (id, cancelled) in &told {
        let (slot, expected) = match cancelled {
            Cancelled::Canceled => (0, "CANCELED"),
            Cancelled::Requested => (1, "CANCELED"),
            Cancelled::TooLate => (2, "SUCCEEDED"),
            Cancelled::NotOurs | Cancelled::Unknown => panic!("{id} vanished: {cancelled:?}"),
        };
        counts[slot] += 1;
        let row = service.look_up(id).expect("an answer").expect("a row");
        assert_eq!(row.status, expected, "{id} was told {cancelled:?}");
    }
    println!("canceled, requested, too late: {counts:?}");
    assert!(counts.iter().all(|&count| count > 0), "the moments must cover a task's whole life: {counts:?}");
    let zeros = "SELECT count(*) FROM go_tasks WHERE status = 'CANCELED' AND words + bytes + runes > 0";
    assert_eq!(database.rows(zeros), "0");
}
