//! What cannot be is refused with one line that says why, and nothing is touched; and how `taskstats db` speaks.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::process::Command;

use taskstats::cluster::Cluster;

use crate::ground::*;

#[test]
fn a_file_is_no_data_directory() {
    let ground = Ground::new("file");
    fs::write(ground.data(), "text").unwrap();
    assert!(refusal(&ground.data()).contains("is not a directory"));
    assert_eq!(fs::read_to_string(ground.data()).unwrap(), "text");
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let ground = Ground::new("foreign");
    fs::create_dir(ground.data()).unwrap();
    fs::write(ground.data().join("thesis.txt"), "text").unwrap();
    let error = refusal(&ground.data());
    assert!(error.contains("not a data directory of taskstats") && error.contains("thesis.txt"), "{error}");
    assert_eq!(fs::read_dir(ground.data()).unwrap().count(), 1);

    let other = ground.path("other");
    fs::create_dir_all(other.join("cluster/of stars")).unwrap();
    let error = refusal(&other);
    assert!(error.contains("is not a PostgreSQL cluster"), "{error}");
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let ground = Ground::new("readonly");
    let closed = ground.path("closed");
    fs::DirBuilder::new().mode(0o555).create(&closed).unwrap();
    for data in [closed.join("data"), closed.clone()] {
        let output = ground.as_nobody("start", &data);
        let said = complaint(&output, 1);
        assert!(said.contains(closed.to_str().unwrap()) && said.contains("Permission denied"), "{said}");
    }
}

#[test]
fn the_cluster_of_another_user_is_refused() {
    if !am_root() {
        return;
    }
    let ground = Ground::new("owner");
    start(&ground.data());
    for action in ["start", "url", "stop"] {
        let output = ground.as_nobody(action, &ground.data());
        let said = complaint(&output, 1);
        assert!(said.contains("belongs to user") && said.contains("we are nobody"), "{said}");
    }
    chown(ground.data().join("cluster"), Some(0), Some(0)).unwrap();
    let error = Cluster::new(&ground.data()).unwrap_err().to_string();
    chown(ground.data().join("cluster"), Some(fs::metadata(ground.data().join("cluster/base")).unwrap().uid()), None)
        .unwrap();
    assert!(error.contains("belongs to root"), "{error}");
}

#[test]
fn initdb_says_itself_why_it_could_not() {
    let ground = Ground::new("full");
    // A limit on the size of files is met where a full disk is.
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "ulimit -f 64; exec \"$0\" db start --data \"$1\""])
        .arg(env!("CARGO_BIN_EXE_taskstats"))
        .arg(ground.data());
    let said = complaint(&output(shell), 1);
    assert!(said.contains("initdb failed in") && said.contains("could not write"), "{said}");
    assert_eq!(fs::read_dir(ground.data()).unwrap().count(), 0, "nothing half done stays");
}

#[test]
fn a_server_that_does_not_start_is_quoted() {
    let ground = Ground::new("broken");
    start(&ground.data());
    stop(&ground.data());
    let file = ground.data().join("cluster/postgresql.conf");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{good}\nno_such_setting = 1\n")).unwrap();
    let error = refusal(&ground.data());
    assert!(error.contains("PostgreSQL did not start") && error.contains("FATAL:  configuration file"), "{error}");
    assert!(error.contains(ground.data().join("cluster/postgresql.log").to_str().unwrap()), "{error}");
    fs::write(&file, good).unwrap();
    assert!(!start(&ground.data()).already_running);
}

#[test]
fn missing_and_misfitting_programs_are_told_in_one_line() {
    let ground = Ground::new("programs");
    let mut command = db("start", &ground.data());
    command.env("TASKSTATS_PG_BIN", ground.path("nowhere"));
    let said = complaint(&output(command), 1);
    assert!(said.contains("TASKSTATS_PG_BIN=") && said.contains("apt-get install postgresql"), "{said}");
    assert!(!ground.data().exists());

    let old = ground.owned_by_nobody("data").join("cluster");
    fs::create_dir(&old).unwrap();
    if am_root() {
        chown(&old, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::write(old.join("PG_VERSION"), "9.6\n").unwrap();
    let said = complaint(&output(db("start", &ground.data())), 1);
    assert!(said.contains("made by PostgreSQL 9.6"), "{said}");
    fs::remove_dir_all(old).unwrap();
}

// ------------------------------------------------------------------ the command line

#[test]
fn db_speaks_to_scripts() {
    let ground = Ground::new("script");
    let said = complaint(&output(db("url", &ground.data())), 1);
    assert!(said.contains("taskstats db start --data"), "{said}");
    let started = output(db("start", &ground.data()));
    assert_eq!(text(&started.stderr), "");
    let mut url = Command::new(env!("CARGO_BIN_EXE_taskstats"));
    url.args(["db", "url"]).env("TASKSTATS_DATA", ground.data());
    assert_eq!(text(&output(url).stdout), text(&started.stdout));
    assert_eq!(text(&started.stdout).lines().count(), 1);

    let stopped = output(db("stop", &ground.data()));
    assert_eq!((stopped.status.code(), stopped.stdout.len(), stopped.stderr.len()), (Some(0), 0, 0));
    let stopped = output(db("stop", &ground.data()));
    assert_eq!((stopped.status.code(), stopped.stdout.len()), (Some(0), 0));
    assert!(text(&stopped.stderr).contains("was not running"));
}

#[test]
fn db_names_what_it_does_not_understand() {
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
        let said = complaint(&output(command), 2);
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
    let mut help = Command::new(env!("CARGO_BIN_EXE_taskstats"));
    help.args(["db", "--help"]);
    let help = output(help);
    assert!(help.status.success() && text(&help.stdout).starts_with("usage: taskstats db start|stop|url"));
}
