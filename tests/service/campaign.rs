//! The campaign: four instances on one database, thousands of tasks, and every few hundred milliseconds one of them is killed
//! and replaced, stopped for a while, or robbed of its connections. At the end every task has ended once, with one effect,
//! and the history of each explains how.
//!
//! What is done to whom comes from a seed (CAMPAIGN_SEEDS=1,2,3); when a process is hit is up to the machine.
//! verification/campaign.sh runs the long one.

mod fleet;
mod history;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fleet::{Death, Dice, Fleet};
use history::{Change, EffectRow, Summary, Takeover, check};

use crate::harness::{Database, until_within};

const LEASE: Duration = Duration::from_secs(2);
/// Beyond the lease, until an instance that is not overloaded has a dead one's task.
const NOTICED: Duration = Duration::from_secs(1);
const INSTANCES: usize = 4;
const CLIENTS: usize = 6;

/// Each change of each row, in its order: the trigger runs under the row's lock.
const TRIGGER: &str = "
    CREATE TABLE changes (seq bigserial PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(), id text, status text,
                          owner text, epoch bigint, lease_until timestamptz, words bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO changes (id, status, owner, epoch, lease_until, words)
        VALUES (NEW.id, NEW.status, NEW.lease_owner, NEW.lease_epoch, NEW.lease_until, NEW.words);
        RETURN NULL;
    END $$;
    CREATE TRIGGER note AFTER INSERT OR UPDATE ON go_tasks FOR EACH ROW EXECUTE FUNCTION note()";

/// Rows whose counters are not those of their text, which is words of one letter.
const WRONG_COUNTERS: &str = "SELECT count(*) FROM go_tasks WHERE status = 'SUCCEEDED' AND
    (words, bytes, runes) IS DISTINCT FROM ((length(text) + 1) / 2, length(text)::bigint, length(text)::bigint)";

/// A text that its counters can be told from.
fn text(number: usize) -> String {
    vec!["w"; number % 40 + 1].join(" ")
}

/// Submits once; the id it was answered, or None: refused, or nobody answered.
fn try_submit(address: SocketAddr, text: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let body = format!("{{\"text\":\"{text}\"}}");
    let head = "POST /tasks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    if !reply.starts_with("HTTP/1.1 202") {
        return None;
    }
    let rest = reply.split_once("\"id\":\"")?.1;
    Some(rest.split_once('"')?.0.to_owned())
}

/// Disturbs the fleet while clients submit, until `tasks` were accepted; their ids.
fn run_through(fleet: &mut Fleet, tasks: usize, seed: u64) -> Vec<String> {
    let (accepted, given) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let addresses = Mutex::new(fleet.addresses());
    let mut dice = Dice::of(seed);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (accepted, given, addresses) = (&accepted, &given, &addresses);
                scope.spawn(move || {
                    let mut dice = Dice::of(seed + 1_000 * (client as u64 + 1));
                    while given.fetch_add(1, Ordering::SeqCst) < tasks {
                        let text = text(dice.below(40) as usize);
                        let id = loop {
                            let address = addresses.lock().expect("no panic")[dice.below(INSTANCES as u64) as usize];
                            match try_submit(address, &text) {
                                Some(id) => break id,
                                // Full, or dead: another one may do. Not at once, or the clients are all the load there is.
                                None => thread::sleep(Duration::from_millis(5)),
                            }
                        };
                        accepted.lock().expect("no panic").push(id);
                    }
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            thread::sleep(Duration::from_millis(200 + dice.below(300))); // the pace of the disturbances
            fleet.disturb(&mut dice);
            *addresses.lock().expect("no panic") = fleet.addresses();
        }
    });
    fleet.wake(None);
    accepted.into_inner().expect("no panic")
}

fn read_history(database: &Database) -> (Vec<Change>, Vec<EffectRow>) {
    let mut client = database.connect();
    let micros = |column: &str| format!("(extract(epoch FROM {column}) * 1000000)::bigint");
    let (at, until) = (micros("at"), micros("lease_until"));
    let sql = format!("SELECT id, {at}, status, owner, epoch, {until}, words FROM changes ORDER BY seq");
    let changes = client.query(&sql, &[]).expect("the history").into_iter().map(|row| Change {
        id: row.get(0),
        at: row.get(1),
        status: row.get(2),
        owner: row.get(3),
        epoch: row.get(4),
        lease_until: row.get(5),
        words: row.get(6),
    });
    let effects = client.query("SELECT task_id, lease_owner, lease_epoch, words FROM go_task_effects", &[]);
    let effects = effects.expect("the effects").into_iter().map(|row| EffectRow {
        id: row.get(0),
        owner: row.get(1),
        epoch: row.get(2),
        words: row.get(3),
    });
    (changes.collect(), effects.collect())
}

/// From an owner's death, where it died, else from the end of its lease less the lease, to its successor's claim.
fn worst_delay(takeovers: &[Takeover], deaths: &[Death]) -> Duration {
    let delay = |takeover: &Takeover| {
        let died = deaths.iter().find(|death| takeover.from.contains(&format!(":{}:", death.pid)));
        let since = died.map_or(takeover.over - LEASE.as_micros() as i64, |death| death.at);
        Duration::from_micros((takeover.at - since).max(0) as u64)
    };
    takeovers.iter().map(delay).max().unwrap_or_default()
}

/// One campaign; panics where a promise is broken.
fn campaign(tasks: usize, seed: u64) {
    println!("campaign: CAMPAIGN_SEEDS={seed}, {tasks} tasks, {INSTANCES} instances, lease {LEASE:?}");
    let database = Database::with_schema();
    database.run(TRIGGER);
    let begun = Instant::now();
    let mut fleet = Fleet::start(&database, INSTANCES, LEASE);
    let accepted = run_through(&mut fleet, tasks, seed);
    let open = "SELECT count(*) FROM go_tasks WHERE status IN ('QUEUED', 'RUNNING')";
    until_within(Duration::from_secs(60), "every task ends", || (database.rows(open) == "0").then_some(()));
    let (took, deeds) = (begun.elapsed(), &fleet.deeds);
    let (changes, effects) = read_history(&database);
    let summary = check(&changes, &effects).unwrap_or_else(|law| panic!("seed {seed}: {law}"));
    let worst = worst_delay(&summary.takeovers, &deeds.deaths);
    let Summary { succeeded, failed, canceled, renewals, takeovers } = summary;
    println!(
        "seed {seed}: {succeeded} succeeded, {failed} failed, {canceled} canceled, {} accepted, {} kills, {} stops, \
         {} terminations, {} takeovers, {renewals} renewals, {} changes, worst takeover {worst:.3?} (bound {:?}), {took:.1?}",
        accepted.len(),
        deeds.deaths.len(),
        deeds.stops,
        deeds.terminations,
        takeovers.len(),
        changes.len(),
        LEASE + NOTICED,
    );
    // More rows than accepted ones: answers were lost with those who were to give them.
    assert!(succeeded >= tasks && (failed, canceled) == (0, 0), "seed {seed}");
    assert_eq!(database.rows("SELECT count(*) FROM go_tasks"), succeeded.to_string(), "seed {seed}");
    let stored: i64 = database
        .connect()
        .query_one("SELECT count(*) FROM go_tasks WHERE id = ANY ($1)", &[&accepted])
        .expect("a count")
        .get(0);
    assert_eq!(stored as usize, accepted.len(), "seed {seed}: an accepted task is not there, or two have one id");
    assert_eq!(database.rows(WRONG_COUNTERS), "0", "seed {seed}");
    assert!(!takeovers.is_empty(), "seed {seed}: nothing was taken over, so nothing was tried");
    assert!(worst <= LEASE + NOTICED, "seed {seed}: {worst:?}");
}

#[test]
fn every_task_ends_once_whatever_happens_to_the_instances() {
    campaign(1_500, 1);
}

/// As many tasks and as many seeds as the environment says.
#[test]
#[ignore = "takes minutes: verification/campaign.sh"]
fn full() {
    let asked = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let tasks = asked("CAMPAIGN_TASKS", "20000").parse().expect("CAMPAIGN_TASKS is a number");
    for seed in asked("CAMPAIGN_SEEDS", "1,2,3").split(',') {
        campaign(tasks, seed.parse().expect("CAMPAIGN_SEEDS are numbers"));
    }
}
