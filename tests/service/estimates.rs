//! What a client is told to expect, against what then happened in the same run: within a factor of two at a steady load.

use std::thread;
use std::time::{Duration, Instant};

use taskstats::service::{Accepted, Rejected};
use taskstats::task::{Analyser, Analysis, CountAnalyser, Counts, Stop};

use crate::harness::inside::Inside;
use crate::harness::{Database, until};

/// Takes its time over every text.
struct Slow(Duration);

impl Analyser for Slow {
    fn analyse(&self, _text: &str, _stop: &Stop) -> Analysis {
        thread::sleep(self.0);
        Analysis::Counted(Counts::default())
    }
}

fn submit(inside: &Inside, count: usize) -> Vec<Accepted> {
    (0..count).map(|n| inside.service.submit(format!("text {n}")).expect("there is room")).collect()
}

/// How often the machine may spoil a comparison: a load that others change in the middle of it is not steady.
const TRIES: usize = 3;

/// Compares until it is right once.
fn steadily(compare: impl Fn() -> Result<(), String>) {
    let tries: Vec<String> = (0..TRIES).map_while(|_| compare().err()).collect();
    assert!(tries.len() < TRIES, "{tries:#?}");
}

/// Submits more than the workers can begin at once, and compares.
fn compare_waits(database: &Database, inside: &Inside, workers: usize) -> Result<(), String> {
    let ended = || database.rows("SELECT count(*) FROM go_tasks WHERE finished_at IS NULL") == "0";
    submit(inside, 20);
    until("the pace is known", || ended().then_some(()));
    let accepted = submit(inside, 60);
    until("all have ended", || ended().then_some(()));
    let mut told = Vec::new();
    for task in &accepted {
        if task.position < 2 * workers {
            continue; // what these wait is less than the time of one task: chance
        }
        let wait = format!(
            "SELECT extract(epoch FROM started_at - created_at) * 1000 AS ms FROM go_tasks WHERE id = '{}'",
            task.id
        );
        let waited: f64 = database.rows(&wait).parse().expect("a number");
        told.push((task.position, task.expected_wait.as_secs_f64() * 1000.0, waited));
    }
    assert!(told.len() > 20, "most had to queue: {told:?}");
    let within = |&&(_, told, waited): &&(usize, f64, f64)| (0.5..=2.0).contains(&(told / waited));
    let good = told.iter().filter(within).count();
    let said = format!("{good} of {} within a factor of two; position, told ms, waited ms: {told:.0?}", told.len());
    println!("{said}");
    if good * 10 >= told.len() * 9 { Ok(()) } else { Err(said) }
}

#[test]
fn the_wait_is_as_told_where_the_analyser_is_slow() {
    let database = Database::with_schema();
    for workers in [1, 3] {
        let inside = Inside::on(&database, Slow(Duration::from_millis(20)), workers);
        steadily(|| compare_waits(&database, &inside, workers));
    }
}

#[test]
fn the_wait_is_as_told_where_the_database_is_slow() {
    let database = Database::with_schema();
    database.run(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END $$;
         CREATE TRIGGER slow BEFORE UPDATE ON go_tasks FOR EACH ROW EXECUTE FUNCTION slow()",
    );
    let inside = Inside::on(&database, CountAnalyser::default(), 4);
    steadily(|| compare_waits(&database, &inside, 4));
}

/// Fills the service and measures when everything before a refused submission has begun.
fn compare_refusal(database: &Database, inside: &Inside) -> Result<(), String> {
    while inside.service.submit("fills".into()).is_ok() {}
    let refused = Instant::now();
    let Err(Rejected::Full(told)) = inside.service.submit("refused".into()) else { panic!("there was room") };
    until("all have begun", || {
        (database.rows("SELECT count(*) FROM go_tasks WHERE status = 'QUEUED'") == "0").then_some(())
    });
    let measured = refused.elapsed();
    let said = format!("told {told:?}, measured {measured:?}");
    println!("{said}");
    if (0.5..=2.0).contains(&(told.as_secs_f64() / measured.as_secs_f64())) { Ok(()) } else { Err(said) }
}

#[test]
fn a_refusal_names_the_time_that_the_queue_takes() {
    let database = Database::with_schema();
    let inside = Inside::on(&database, Slow(Duration::from_millis(30)), 2);
    submit(&inside, 20);
    steadily(|| compare_refusal(&database, &inside));
}

/// A backlog, with some of it done, so that there is a pace, and most of it not.
fn compare_behind_backlog() -> Result<(), String> {
    let database = Database::with_schema();
    database.run(
        "INSERT INTO go_tasks (id, text, status, created_at)
         SELECT 'task[' || n || ']', '', 'QUEUED', now() - interval '1 minute' FROM generate_series(0, 299) n",
    );
    let inside = Inside::on(&database, Slow(Duration::from_millis(20)), 2);
    until("a pace", || {
        let done: u32 = database.rows("SELECT count(*) FROM go_tasks WHERE status = 'SUCCEEDED'").parse().ok()?;
        (done > 20).then_some(())
    });
    compare_refusal(&database, &inside)
}

#[test]
fn a_refusal_counts_a_backlog_that_waits_for_places_of_its_own() {
    steadily(compare_behind_backlog);
}
