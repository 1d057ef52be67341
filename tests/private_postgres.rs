//! The private PostgreSQL with real PostgreSQL programs: through the library where one process is enough, through the
//! binary where the process that started the server matters, or its end.
//!
//! Each test has its own directory and removes it with the server in it, also when it fails. Root's tests also act as an
//! ordinary user; for an ordinary user the tests that need root pass without a check.

#[path = "private_postgres/errors.rs"]
mod errors;
#[path = "private_postgres/losses.rs"]
mod losses;
#[path = "private_postgres/scratch.rs"]
mod scratch;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;

use scratch::*;
use taskstats::private_postgres::{PrivatePostgres, Started};

// ------------------------------------------------------------------ one server, from the first start to the last stop

#[test]
fn the_first_start_makes_a_private_and_durable_server() {
    let scratch = Scratch::new("first");
    let started = start(&scratch.data());
    assert!(!started.already_running);
    let mut client = connect(&started.url);
    for (setting, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
    ] {
        assert_eq!(query(&mut client, &format!("SELECT current_setting('{setting}')")), value, "{setting}");
    }
    assert_eq!(query(&mut client, "SELECT current_user::text || ' ' || current_database()"), "postgres taskstats");
    assert_eq!(query(&mut client, "SELECT min(x) FROM (VALUES ('a' COLLATE \"default\"), ('B'), ('é')) v(x)"), "B");

    let pgdata = fs::metadata(scratch.data().join("cluster")).unwrap();
    let socket = fs::symlink_metadata(socket_directory(&started.url)).unwrap();
    assert!(socket.is_dir() && socket.uid() == pgdata.uid() && socket.mode() & 0o777 == 0o700);
    assert!(pgdata.uid() != 0, "PostgreSQL never runs as root");
    assert_eq!(fs::metadata(format!("/proc/{}", server_pid(&scratch.data()))).unwrap().uid(), pgdata.uid());
}

#[test]
fn the_url_is_good_for_psql_whatever_its_environment() {
    let scratch = Scratch::new("psql");
    let started = start(&scratch.data());
    let mut psql = Command::new("psql");
    psql.args([&started.url, "-XAtc", "SELECT 6 * 7"]).env("PGPORT", "1").env("PGHOST", "/nowhere");
    let output = output(psql);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("42\n", ""));
}

#[test]
fn a_stop_is_complete_and_the_next_start_finds_the_data() {
    let scratch = Scratch::new("stop");
    let started = start(&scratch.data());
    connect(&started.url).batch_execute("CREATE TABLE kept AS SELECT 'here'::text AS t").unwrap();
    let pid = server_pid(&scratch.data());
    assert!(stop(&scratch.data()));
    assert!(!runs(pid) && !socket_directory(&started.url).exists());
    assert!(!stop(&scratch.data()), "it does not run any more");
    let error = PrivatePostgres::open(&scratch.data()).unwrap().url().unwrap_err().to_string();
    assert!(error.contains("not running") && error.contains("taskstats db start --data"), "{error}");

    let again = start(&scratch.data());
    assert!(!again.already_running);
    assert_eq!(query(&mut connect(&again.url), "SELECT t FROM kept"), "here");
}

#[test]
fn a_second_start_uses_the_running_server() {
    let scratch = Scratch::new("second");
    let first = start(&scratch.data());
    let pid = server_pid(&scratch.data());
    let second = start(&scratch.data());
    assert_eq!(second, Started { url: first.url.clone(), already_running: true });
    assert_eq!(server_pid(&scratch.data()), pid);
    assert_eq!(PrivatePostgres::open(&scratch.data()).unwrap().url().unwrap(), first.url);
}

#[test]
fn a_missing_directory_is_neither_started_nor_created_by_asking() {
    let scratch = Scratch::new("asking");
    let postgres = PrivatePostgres::open(&scratch.data()).unwrap();
    assert!(!postgres.stop().unwrap());
    assert!(postgres.url().unwrap_err().to_string().contains("taskstats db start --data"));
    assert!(!scratch.data().exists());
}

#[test]
fn concurrent_starts_share_one_server() {
    let scratch = Scratch::new("concurrent");
    let children: Vec<Child> = (0..2)
        .map(|_| db("start", &scratch.data()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let data = scratch.data();
    let started: Vec<Started> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| start(&data))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let url = PrivatePostgres::open(&scratch.data()).unwrap().url().unwrap();
    for child in children {
        let output = collect(child);
        assert_eq!((text(&output.stdout), text(&output.stderr)), (format!("{url}\n").as_str(), ""));
    }
    assert!(started.iter().all(|started| started.url == url));
    assert!(started.iter().filter(|started| !started.already_running).count() <= 1);
    let entries: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(entries, ["cluster"], "no left-overs");
}

// ------------------------------------------------------------------ processes that come and go

#[test]
fn the_server_outlives_its_starter_and_keeps_nothing_of_it() {
    let scratch = Scratch::new("outlives");
    // Descriptor 3 is one more end of the pipe that we read to its end.
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "exec 3>&1; \"$0\" db start --data \"$1\"; exec sleep 1000"])
        .arg(env!("CARGO_BIN_EXE_taskstats"))
        .arg(scratch.data())
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let shell = shell.spawn().unwrap();
    let group = i64::from(shell.id());
    wait_until("the server runs", || {
        PrivatePostgres::open(&scratch.data()).and_then(|postgres| postgres.url()).is_ok()
    });
    let pid = server_pid(&scratch.data());
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!((fields[2], fields[3]), (pid.to_string().as_str(), pid.to_string().as_str()), "own group and session");

    wait_until("taskstats has ended", || {
        fs::read_to_string(format!("/proc/{group}/comm")).is_ok_and(|name| name == "sleep\n")
    });
    kill(-group);
    let output = collect(shell);
    let url = PrivatePostgres::open(&scratch.data()).unwrap().url().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), (format!("{url}\n").as_str(), ""));
    assert_eq!(server_pid(&scratch.data()), pid);
}

#[test]
fn a_killed_server_is_started_anew() {
    let scratch = Scratch::new("killed");
    let first = start(&scratch.data());
    let _session = connect(&first.url);
    kill(server_pid(&scratch.data()).into());
    let second = start(&scratch.data());
    assert_eq!(second, Started { url: first.url, already_running: false });
    assert_eq!(query(&mut connect(&second.url), "SELECT 'well'::text"), "well");
}

#[test]
fn the_pid_of_another_server_in_the_pid_file_is_harmless() {
    let scratch = Scratch::new("reused");
    let (ours, other) = (scratch.path("ours"), scratch.path("other"));
    start(&other);
    let url = start(&ours).url;
    kill(server_pid(&ours).into());
    let file = ours.join("cluster/postmaster.pid");
    let stale = fs::read_to_string(&file).unwrap();
    let (_, rest) = stale.split_once('\n').unwrap();
    fs::write(&file, format!("{}\n{rest}", server_pid(&other))).unwrap();
    let lock = socket_directory(&url).join(".s.PGSQL.5432.lock");
    fs::write(&lock, fs::read_to_string(&file).unwrap()).unwrap();

    assert!(PrivatePostgres::open(&ours).unwrap().url().unwrap_err().to_string().contains("not running"));
    assert!(!stop(&ours));
    assert_eq!(start(&ours), Started { url, already_running: false });
    assert!(start(&other).already_running, "the other server is untouched");
}

#[test]
fn an_initdb_that_was_killed_leaves_nothing() {
    let scratch = Scratch::new("interrupted");
    let mut child = db("start", &scratch.data()).stdout(Stdio::null()).spawn().unwrap();
    let left_overs = || {
        let names = fs::read_dir(scratch.data()).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("cluster.new-")).collect::<Vec<_>>()
    };
    wait_until("initdb writes", || left_overs().iter().any(|name| scratch.data().join(name).join("base").exists()));
    kill(child.id().into());
    child.wait().unwrap();
    assert!(!scratch.data().join("cluster").exists() && !left_overs().is_empty());
    assert!(!start(&scratch.data()).already_running);
    assert!(left_overs().is_empty());
}

// ------------------------------------------------------------------ places

#[test]
fn a_long_and_odd_path_is_a_path_like_any_other() {
    let scratch = Scratch::new("odd");
    let data = scratch.path(format!("it's \"odd\" $HOME `x` {}", "long ".repeat(30)));
    let started = start(&data);
    assert_eq!(query(&mut connect(&started.url), "SELECT current_database()::text"), "taskstats");
    assert!(data.join("cluster/postgresql.log").exists());
    assert!(stop(&data));
}

#[test]
fn a_foreign_socket_directory_is_not_used() {
    let scratch = Scratch::new("obstacle");
    let usual = socket_directory(&start(&scratch.data()).url);
    stop(&scratch.data());
    for kind in ["open", "link"] {
        let _obstacle = Obstacle(usual.clone());
        match kind {
            "open" => fs::DirBuilder::new().mode(0o755).create(&usual).unwrap(),
            _ => symlink(scratch.path("data"), &usual).unwrap(),
        }
        let url = start(&scratch.data()).url;
        let chosen = socket_directory(&url);
        assert_ne!(chosen, usual, "{kind}");
        assert_eq!(fs::symlink_metadata(&chosen).unwrap().mode() & 0o777, 0o700);
        connect(&url);
        assert!(stop(&scratch.data()));
        assert!(!chosen.exists() && fs::symlink_metadata(&usual).is_ok(), "ours is removed, theirs is not");
    }
}

#[test]
fn root_puts_pgdata_elsewhere_when_its_account_cannot_enter() {
    if !am_root() {
        return;
    }
    let scratch = Scratch::new("unreachable");
    let locked = scratch.path("locked");
    fs::DirBuilder::new().mode(0o700).create(&locked).unwrap();
    let data = locked.join("data");
    let output = output(db("start", &data));
    let error = text(&output.stderr);
    assert!(
        error.contains("cannot enter") && error.contains("/var/lib/taskstats/") && error.lines().count() == 1,
        "{error}"
    );
    let target = fs::read_link(data.join("cluster")).unwrap();
    assert!(target.starts_with("/var/lib/taskstats/"));
    assert_ne!(fs::metadata(&target).unwrap().uid(), 0);
    assert_eq!(fs::metadata(&locked).unwrap().mode() & 0o777, 0o700, "its permissions are unchanged");

    let again = start(&data);
    assert_eq!((again.already_running, format!("{}\n", again.url).as_str()), (true, text(&output.stdout)));
    assert!(stop(&data));
    fs::remove_dir_all(&target).unwrap();
    let error = start_error(&data);
    assert!(error.contains("which is gone") && error.contains("remove the link"), "{error}");
    fs::remove_file(data.join("cluster")).unwrap();
}

#[test]
fn an_ordinary_user_runs_it_and_root_may_use_it_later() {
    let scratch = Scratch::new("ordinary");
    let data = scratch.owned_by_nobody("home").join("data");
    let output = scratch.as_nobody("start", &data);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let owner = fs::metadata(data.join("cluster")).unwrap().uid();
    assert_eq!(owner, fs::metadata(data.parent().unwrap()).unwrap().uid());
    assert_eq!(start(&data), Started { url: text(&output.stdout).trim_end().to_owned(), already_running: true });
    assert!(stop(&data));
    assert!(!start(&data).already_running);
    assert_eq!(fs::metadata(format!("/proc/{}", server_pid(&data))).unwrap().uid(), owner);
}
