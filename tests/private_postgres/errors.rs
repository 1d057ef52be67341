//! Errors of the private PostgreSQL: one line with the cause, and nothing is changed. And the output of `taskstats db`.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::process::Command;

use taskstats::private_postgres::PrivatePostgres;

use crate::scratch::*;

#[test]
fn a_file_is_no_data_directory() {
    let scratch = Scratch::new("file");
    fs::write(scratch.data(), "text").unwrap();
    assert!(start_error(&scratch.data()).contains("is not a directory"));
    assert_eq!(fs::read_to_string(scratch.data()).unwrap(), "text");
}

#[test]
fn a_foreign_directory_is_not_changed() {
    let scratch = Scratch::new("foreign");
    fs::create_dir(scratch.data()).unwrap();
    fs::write(scratch.data().join("thesis.txt"), "text").unwrap();
    let error = start_error(&scratch.data());
    assert!(error.contains("not a data directory of taskstats") && error.contains("thesis.txt"), "{error}");
    assert_eq!(fs::read_dir(scratch.data()).unwrap().count(), 1);

    let other = scratch.path("other");
    fs::create_dir_all(other.join("cluster/of stars")).unwrap();
    let error = start_error(&other);
    assert!(error.contains("is not a PostgreSQL data directory"), "{error}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let scratch = Scratch::new("readonly");
    let closed = scratch.path("closed");
    fs::DirBuilder::new().mode(0o555).create(&closed).unwrap();
    for data in [closed.join("data"), closed.clone()] {
        let output = scratch.as_nobody("start", &data);
        let error = error_line(&output, 1);
        assert!(error.contains(closed.to_str().unwrap()) && error.contains("Permission denied"), "{error}");
    }
}

#[test]
fn the_directory_of_another_user_is_refused() {
    if !am_root() {
        return;
    }
    let scratch = Scratch::new("owner");
    start(&scratch.data());
    for action in ["start", "url", "stop"] {
        let output = scratch.as_nobody(action, &scratch.data());
        let error = error_line(&output, 1);
        assert!(error.contains("belongs to user") && error.contains("we are nobody"), "{error}");
    }
    chown(scratch.data().join("cluster"), Some(0), Some(0)).unwrap();
    let error = PrivatePostgres::open(&scratch.data()).unwrap_err().to_string();
    chown(scratch.data().join("cluster"), Some(fs::metadata(scratch.data().join("cluster/base")).unwrap().uid()), None)
        .unwrap();
    assert!(error.contains("belongs to root"), "{error}");
}

#[test]
fn the_error_of_initdb_is_quoted() {
    let scratch = Scratch::new("full");
    // A limit on the size of files fails like a full disk.
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "ulimit -f 64; exec \"$0\" db start --data \"$1\""])
        .arg(env!("CARGO_BIN_EXE_taskstats"))
        .arg(scratch.data());
    let error = error_line(&output(shell), 1);
    assert!(error.contains("initdb failed in") && error.contains("could not write"), "{error}");
    assert_eq!(fs::read_dir(scratch.data()).unwrap().count(), 0, "nothing half done stays");
}

#[test]
fn the_error_of_a_server_that_does_not_start_is_quoted() {
    let scratch = Scratch::new("broken");
    start(&scratch.data());
    stop(&scratch.data());
    let file = scratch.data().join("cluster/postgresql.conf");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{good}\nno_such_setting = 1\n")).unwrap();
    let error = start_error(&scratch.data());
    assert!(error.contains("PostgreSQL did not start") && error.contains("FATAL:  configuration file"), "{error}");
    assert!(error.contains(scratch.data().join("cluster/postgresql.log").to_str().unwrap()), "{error}");
    fs::write(&file, good).unwrap();
    assert!(!start(&scratch.data()).already_running);
}

#[test]
fn missing_and_misfitting_programs_are_named_in_one_line() {
    let scratch = Scratch::new("programs");
    let mut command = db("start", &scratch.data());
    command.env("TASKSTATS_PG_BIN", scratch.path("nowhere"));
    let error = error_line(&output(command), 1);
    assert!(error.contains("TASKSTATS_PG_BIN=") && error.contains("apt-get install postgresql"), "{error}");
    assert!(!scratch.data().exists());

    let old = scratch.owned_by_nobody("data").join("cluster");
    fs::create_dir(&old).unwrap();
    if am_root() {
        chown(&old, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::write(old.join("PG_VERSION"), "9.6\n").unwrap();
    let error = error_line(&output(db("start", &scratch.data())), 1);
    assert!(error.contains("made by PostgreSQL 9.6"), "{error}");
    fs::remove_dir_all(old).unwrap();
}

// ------------------------------------------------------------------ the command line

#[test]
fn db_prints_for_scripts() {
    let scratch = Scratch::new("script");
    let error = error_line(&output(db("url", &scratch.data())), 1);
    assert!(error.contains("taskstats db start --data"), "{error}");
    let started = output(db("start", &scratch.data()));
    assert_eq!(text(&started.stderr), "");
    let mut url = Command::new(env!("CARGO_BIN_EXE_taskstats"));
    url.args(["db", "url"]).env("TASKSTATS_DATA", scratch.data());
    assert_eq!(text(&output(url).stdout), text(&started.stdout));
    assert_eq!(text(&started.stdout).lines().count(), 1);

    let stopped = output(db("stop", &scratch.data()));
    assert_eq!((stopped.status.code(), stopped.stdout.len(), stopped.stderr.len()), (Some(0), 0, 0));
    let stopped = output(db("stop", &scratch.data()));
    assert_eq!((stopped.status.code(), stopped.stdout.len()), (Some(0), 0));
    assert!(text(&stopped.stderr).contains("was not running"));
}

#[test]
fn db_names_the_wrong_argument() {
    for (arguments, named) in [
        (&["db"][..], "start, stop and url"),
        (&["db", "restart"], "restart"),
        (&["db", "start", "stop"], "stop"),
        (&["db", "start", "--dta", "x"], "--dta"),
        (&["db", "start", "--data"], "--data"),
        (&["db", "start", "--data", ""], "--data"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_taskstats"));
        command.args(arguments);
        let error = error_line(&output(command), 2);
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
    let mut help = Command::new(env!("CARGO_BIN_EXE_taskstats"));
    help.args(["db", "--help"]);
    let help = output(help);
    assert!(help.status.success() && text(&help.stdout).starts_with("usage: taskstats db start|stop|url"));
}
