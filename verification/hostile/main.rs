//! Bad traffic against a running service, and what it costs: `hostile LISTEN ADMIN PID LEDGER SEED SECONDS`.
//!
//! Sixteen good clients work all the time; their throughput alone is compared with that beside 300 idle and half-sent
//! connections. Then everything in [`attacks`] comes for the given time. Threads, files and memory of the process are
//! looked at before and after. The tasks that the good clients were promised go to the file LEDGER, for the script to
//! compare with the database. Exit code 1 when something is worse than it may be.

mod attacks;
mod good;
mod vitals;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use taskstats::limits::{CREW_PERIOD, POOL_IDLE};

use attacks::{Attacker, hold};
use good::{Tally, Workforce};
use vitals::Vitals;

/// Connections held while the good clients are measured.
const HELD: usize = 300;
/// Good clients keep at least this share of their throughput beside them.
const SHARE: f64 = 0.8;
/// Measured alone and besieged by turns: a machine has moods.
const ROUNDS: u32 = 5;
const ROUND: Duration = Duration::from_secs(3);
/// Attackers at once; each has one connection at a time, some for seconds.
const ATTACKERS: u64 = 160;
/// Share of the attack that comes first, as a measure for the whole of it: what the allocator keeps for the busiest moment is
/// there afterwards.
const WARM_UP: u32 = 3;
/// More threads at the end than at the start: tiny_http keeps from none to four idle ones for each of the two listeners, as
/// chance has it.
const THREADS: u64 = 8;
/// More connections to the database: a service at rest asks now this, now that.
const DATABASES: u64 = 2;
/// More resident memory than at the start, bytes: stacks of threads that have worked now, and what the allocator keeps of a
/// burst for the next one.
const KEPT: u64 = 24 * 1024 * 1024;
/// More of it after the whole attack than after the first part, bytes: a leak of 50 bytes a connection shows.
const MORE: u64 = 4 * 1024 * 1024;

/// Idle connections of every kind had their time, and threads that nobody needed retired. The pool looks twice a minute.
const PATIENCE: Duration = Duration::from_secs(POOL_IDLE.as_secs() + 30 + 6 * CREW_PERIOD.as_secs());

struct Arguments {
    listen: SocketAddr,
    admin: SocketAddr,
    pid: u32,
    ledger: String,
    seed: u64,
    time: Duration,
}

fn arguments() -> Option<Arguments> {
    let mut given = std::env::args().skip(1);
    let mut next = || given.next();
    Some(Arguments {
        listen: next()?.parse().ok()?,
        admin: next()?.parse().ok()?,
        pid: next()?.parse().ok()?,
        ledger: next()?,
        seed: next()?.parse().ok()?,
        time: Duration::from_secs(next()?.parse().ok()?),
    })
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("usage: hostile LISTEN ADMIN PID LEDGER SEED SECONDS");
        return ExitCode::from(2);
    };
    let Arguments { pid, time, seed, .. } = arguments;
    let mut sound = true;
    let mut judge = |kept: bool, what: &str| {
        println!("{} {what}", if kept { "ok    " } else { "FAILED" });
        sound &= kept;
    };
    let (start, crew) = (Vitals::of(pid), Vitals::crew(pid));
    println!("       {:<24} {start}", "at the start");
    let (_, mut promised) = siege(&arguments, !seed, time / WARM_UP);
    let first = Vitals::settle(pid, &start, PATIENCE);
    println!("       {:<24} {first}", "after a smaller attack");

    let (alone, besieged) = measure(arguments.listen);
    let share = besieged.requests as f64 / alone.requests as f64;
    let (requests, failures) = (alone.requests + besieged.requests, alone.failures + besieged.failures);
    judge(share >= SHARE, &format!("beside {HELD} idle and half-sent connections: {share:.2} of the throughput alone"));
    judge(failures == 0, &format!("meanwhile {failures} of {requests} requests failed"));

    let (made, during) = siege(&arguments, seed, time);
    let rate = |tally: &Tally, time: Duration| tally.requests as f64 / time.as_secs_f64();
    let (usual, attacked) = (rate(&alone, ROUND * ROUNDS), rate(&during, time));
    println!("       {made} hostile connections in {} s, seed {seed}", time.as_secs());
    println!("       good clients: {usual:.0} requests/s alone, {attacked:.0} during the attack");
    // The attackers need most of the machine themselves, so only lost requests are judged.
    judge(during.failures == 0, &format!("during it {} of {} requests failed", during.failures, during.requests));

    let after = Vitals::settle(pid, &start, PATIENCE);
    println!("       {:<24} {after}", "after the whole attack");
    let threads_are_back = after.threads <= start.threads + THREADS;
    judge(threads_are_back, &format!("threads are as at the start, or at most {THREADS} more"));
    if !threads_are_back {
        println!("       {crew}\n       {}", Vitals::crew(pid));
    }
    judge(after.files <= start.files, "files are as at the start or fewer, but for the database's");
    let databases = after.databases <= start.databases + DATABASES;
    judge(databases, &format!("so are its connections, four files each, or at most {DATABASES} more"));
    let mib = |bytes: u64| bytes / 1024 / 1024;
    judge(after.memory <= start.memory + KEPT, &format!("memory is at most {} MiB more than at the start", mib(KEPT)));
    judge(
        after.memory <= first.memory + MORE,
        &format!("and at most {} MiB more than after the smaller one", mib(MORE)),
    );
    [alone, besieged, during].into_iter().for_each(|tally| promised.add(tally));
    judge(promised.write(&arguments.ledger).is_ok(), &format!("{} tasks were promised", promised.tasks.len()));
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The good clients alone, and beside held connections.
fn measure(listen: SocketAddr) -> (Tally, Tally) {
    let (mut alone, mut besieged) = (Tally::default(), Tally::default());
    for _ in 0..ROUNDS {
        alone.add(Workforce::start(listen).work_for(ROUND));
        let held = hold(listen, HELD);
        besieged.add(Workforce::start(listen).work_for(ROUND));
        drop(held);
    }
    (alone, besieged)
}

/// Attackers and good clients together; the number of hostile connections, and what the good ones got done.
fn siege(arguments: &Arguments, seed: u64, time: Duration) -> (u64, Tally) {
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let during = thread::scope(|scope| {
        for number in 0..ATTACKERS {
            let target = if number % 16 == 0 { arguments.admin } else { arguments.listen };
            let mut attacker = Attacker::new(seed.wrapping_add(number), target);
            let (stop, made) = (&stop, &made);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    attacker.attack();
                    made.fetch_add(1, Relaxed);
                }
            });
        }
        let during = Workforce::start(arguments.listen).work_for(time);
        stop.store(true, Relaxed);
        during
    });
    (made.load(Relaxed), during)
}
