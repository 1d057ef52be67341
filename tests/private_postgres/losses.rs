//! What ends unexpectedly around the server: pg_ctl, `serve`, the postmaster without its backends. No data is lost.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use taskstats::private_postgres::PrivatePostgres;

use crate::scratch::*;

/// A directory with PostgreSQL's programs, except that its pg_ctl is killed after its work.
fn programs_with_a_mortal_pg_ctl(dir: &Path) -> PathBuf {
    let real = ["pg_ctl", "initdb", "postgres"].map(|name| {
        let found =
            output(shell(&format!("readlink -f \"$(command -v {name} || ls /usr/lib/postgresql/*/bin/{name})\"")));
        text(&found.stdout).trim_end().to_owned()
    });
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(&real[1], bin.join("initdb")).unwrap();
    symlink(&real[2], bin.join("postgres")).unwrap();
    let script = format!("#!/bin/sh\n'{}' \"$@\"\nkill -KILL $$\n", real[0]);
    fs::write(bin.join("pg_ctl"), script).unwrap();
    fs::set_permissions(bin.join("pg_ctl"), fs::Permissions::from_mode(0o755)).unwrap();
    bin
}

/// A stopped process. Dropping it lets the process continue, also when the test fails.
struct Stopped(i64);

impl Stopped {
    fn new(pid: i64) -> Stopped {
        signal("-STOP", pid);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-CONT", &self.0.to_string()]).status();
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

#[test]
fn the_loss_of_pg_ctl_loses_no_data() {
    let scratch = Scratch::new("pg-ctl");
    let bin = programs_with_a_mortal_pg_ctl(&scratch.dir);
    let mortal = |action: &str| {
        let mut command = db(action, &scratch.data());
        command.env("TASKSTATS_PG_BIN", &bin);
        output(command)
    };
    let started = mortal("start");
    assert!(started.status.success(), "{}", text(&started.stderr));
    let url = text(&started.stdout).trim_end().to_owned();
    connect(&url).batch_execute("CREATE TABLE kept AS SELECT 'here'::text AS t").unwrap();
    let pid = server_pid(&scratch.data());
    let stopped = mortal("stop");
    assert!(stopped.status.success() && !runs(pid), "{}", text(&stopped.stderr));
    let again = start(&scratch.data());
    assert_eq!((again.url.as_str(), again.already_running), (url.as_str(), false));
    assert_eq!(query(&mut connect(&url), "SELECT t FROM kept"), "here");

    fs::remove_file(bin.join("pg_ctl")).unwrap();
    let error = error_line(&mortal("stop"), 1);
    assert!(error.contains("apt-get install postgresql"), "{error}");
    assert_eq!(query(&mut connect(&url), "SELECT t FROM kept"), "here");
}

#[test]
fn no_server_starts_beside_the_backends_of_a_killed_one() {
    let scratch = Scratch::new("orphans");
    let data = scratch.data();
    let mut session = connect(&start(&data).url);
    let backend: i64 = query(&mut session, "SELECT pg_backend_pid()::text").parse().unwrap();
    let stopped = Stopped::new(backend);
    kill(server_pid(&data).into());
    // A living process, this one, has the pid of the dead server.
    let file = data.join("cluster/postmaster.pid");
    let stale = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{}\n{}", std::process::id(), stale.split_once('\n').unwrap().1)).unwrap();
    thread::scope(|scope| {
        let starter = scope.spawn(|| start(&data));
        wait_until("PostgreSQL finds the backend", || {
            fs::read_to_string(data.join("cluster/postgresql.log")).unwrap().contains("is still in use")
        });
        let too_early = PrivatePostgres::open(&data).unwrap().url().is_ok();
        drop(stopped);
        assert!(!too_early && !starter.join().unwrap().already_running);
    });
    assert!(!runs(backend.try_into().unwrap()));
}

#[test]
fn serve_starts_the_private_server_and_leaves_it_running() {
    let scratch = Scratch::new("serve");
    let mut pids = Vec::new();
    for _ in 0..2 {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_taskstats"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data"]).arg(scratch.data());
        let mut serve = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(serve.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        signal("-TERM", serve.id().into());
        let status = serve.wait().unwrap();
        assert!(ready.starts_with("ready ") && status.success(), "{ready}{status}");
        pids.push(server_pid(&scratch.data()));
        assert!(runs(pids[0]));
    }
    assert_eq!(pids[0], pids[1], "the second one uses the server of the first");
}
