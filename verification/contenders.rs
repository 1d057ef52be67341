//! Two stores, each with connections of its own, claim one new task at the same moment; again and again. One line for each
//! round, `task[7] A`: the task, and whoever was told that it is theirs. The winner ends the task.
//!
//! usage: contenders DSN ROUNDS

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use taskstats::limits::DB_TIMEOUT;
use taskstats::store::{Effect, Finish, Lease, LeasedTask, Store, StoreConfig, StoreError};
use taskstats::task::{Analyser, Analysis, CountAnalyser, Status, Stop, TaskId};

/// What every task holds.
const TEXT: &str = "contest";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dsn, rounds] = &arguments[..] else {
        eprintln!("usage: contenders DSN ROUNDS");
        return ExitCode::from(2);
    };
    match rounds.parse().map_err(Into::into).and_then(|rounds| contest(dsn, rounds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("contenders: {error}");
            ExitCode::FAILURE
        }
    }
}

fn contest(dsn: &str, rounds: usize) -> Result<(), Box<dyn Error>> {
    let lease = Lease { ttl: Duration::from_secs(60), max_attempts: 5, effect_at_end: false };
    let mut stores = Vec::new();
    for name in ["A", "B"] {
        let config = StoreConfig { dsn: dsn.parse()?, timeout: DB_TIMEOUT, owner: name.into(), lease: Some(lease) };
        stores.push((name, Arc::new(Store::open(&config))));
    }
    for _ in 0..rounds {
        let id = stores[0].1.submit(TEXT.into()).map_err(failure)?;
        let winners = round(&stores, &id)?;
        println!("{id} {}", winners.join(","));
    }
    Ok(())
}

/// Both claim; who won.
fn round<'a>(stores: &[(&'a str, Arc<Store>)], id: &TaskId) -> Result<Vec<&'a str>, Box<dyn Error>> {
    let start = Barrier::new(stores.len());
    let claims = thread::scope(|scope| {
        let claim = |store: &Arc<Store>| {
            let (store, start) = (store.clone(), &start);
            scope.spawn(move || {
                start.wait();
                store.claim(id)
            })
        };
        let contenders: Vec<_> = stores.iter().map(|(_, store)| claim(store)).collect();
        contenders.into_iter().map(|contender| contender.join().expect("a claim does not panic")).collect::<Vec<_>>()
    });
    let mut winners = Vec::new();
    for ((name, store), claimed) in stores.iter().zip(claims) {
        if let Some(claimed) = claimed.map_err(failure)? {
            winners.push(*name);
            end(store, &LeasedTask { id: id.clone(), epoch: claimed.epoch }, &claimed.text)?;
        }
    }
    Ok(winners)
}

/// Effect and terminal state, as `lease run` writes them.
fn end(store: &Store, task: &LeasedTask, text: &str) -> Result<(), Box<dyn Error>> {
    let Analysis::Counted(counts) = CountAnalyser::default().analyse(text, &Stop::default()) else {
        return Err("the count ended without counts".into());
    };
    let effect = store.write_effect(task, counts.words).map_err(failure)?;
    let finish = Finish { id: task.id.clone(), epoch: task.epoch, analysis: Analysis::Counted(counts) };
    let status = store.finish(&finish).map_err(failure)?;
    if (effect, status) == (Effect::New, Some(Status::Succeeded)) {
        Ok(())
    } else {
        Err(format!("{}: effect {effect:?}, end {status:?}", task.id).into())
    }
}

fn failure(error: StoreError) -> Box<dyn Error> {
    error.to_string().into()
}
