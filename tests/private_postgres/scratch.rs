//! Helpers of the tests of the private PostgreSQL: a scratch directory, users, processes, queries.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use taskstats::private_postgres::{PrivatePostgres, Started};

/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Uid and gid of `nobody`, by convention everywhere.
pub const NOBODY: u32 = 65534;

/// A test's directory, which every account can enter. Dropping it stops the servers in it and removes everything.
pub struct Scratch {
    /// Its path.
    pub dir: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let dir = PathBuf::from(format!("/tmp/private-postgres-test-{}-{name}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        Scratch { dir }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// The data directory of tests that need only one.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// A directory of `nobody` for root's tests, of the test's own account otherwise.
    pub fn owned_by_nobody(&self, name: &str) -> PathBuf {
        let dir = self.path(name);
        fs::create_dir(&dir).unwrap();
        if am_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        dir
    }

    /// `taskstats db` as an ordinary user: a copy of the binary, because that user may not be able to reach the original.
    pub fn as_nobody(&self, action: &str, data: &Path) -> Output {
        let copy = self.path("taskstats");
        if !copy.exists() {
            fs::copy(env!("CARGO_BIN_EXE_taskstats"), &copy).unwrap();
        }
        let mut command = Command::new(copy);
        command.args(["db", action, "--data"]).arg(data).current_dir("/");
        if am_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        output(command)
    }

    fn stop_servers_below(directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.join("cluster/PG_VERSION").exists() {
                if let Err(error) = PrivatePostgres::open(&path).and_then(|postgres| postgres.stop()) {
                    eprintln!("left running: {error}");
                }
            } else if path.is_dir() {
                Scratch::stop_servers_below(&path);
            }
        }
    }

    /// The targets of the links that root's starts make in directories that PostgreSQL's account cannot enter.
    fn remove_link_targets_below(directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match fs::read_link(entry.path()) {
                Ok(target) if target.starts_with("/var/lib/taskstats/") => fs::remove_dir_all(target).unwrap(),
                _ if entry.path().is_dir() => Scratch::remove_link_targets_below(&entry.path()),
                _ => {}
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        Scratch::stop_servers_below(&self.dir);
        Scratch::remove_link_targets_below(&self.dir);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A file outside of a test's directory, removed with its content.
pub struct Obstacle(pub PathBuf);

impl Drop for Obstacle {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0).or_else(|_| fs::remove_dir_all(&self.0));
    }
}

pub fn am_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub fn start(data: &Path) -> Started {
    PrivatePostgres::open(data).and_then(|postgres| postgres.start()).unwrap()
}

pub fn stop(data: &Path) -> bool {
    PrivatePostgres::open(data).and_then(|postgres| postgres.stop()).unwrap()
}

/// The one line with which a start fails.
pub fn start_error(data: &Path) -> String {
    let error = PrivatePostgres::open(data).and_then(|postgres| postgres.start()).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

pub fn connect(url: &str) -> Client {
    Client::connect(url, NoTls).unwrap()
}

pub fn query(client: &mut Client, query: &str) -> String {
    client.query_one(query, &[]).unwrap().get(0)
}

pub fn server_pid(data: &Path) -> u32 {
    let file = fs::read_to_string(data.join("cluster/postmaster.pid")).unwrap();
    file.lines().next().unwrap().parse().unwrap()
}

pub fn socket_directory(url: &str) -> PathBuf {
    let host = url.split(['@', ':']).nth(2).unwrap();
    PathBuf::from(host.replace("%2F", "/"))
}

/// Whether a process runs. A zombie does not.
pub fn runs(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Sends a signal to a process, or to the group of a negative id.
pub fn signal(name: &str, id: i64) {
    assert!(Command::new("kill").args([name, "--", &id.to_string()]).status().unwrap().success());
}

pub fn kill(id: i64) {
    signal("-KILL", id);
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not within the limit: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub fn db(action: &str, data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskstats"));
    command.args(["db", action, "--data"]).arg(data);
    command
}

/// All output of a command. Fails when a process keeps the pipe open.
pub fn output(mut command: Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    collect(child)
}

pub fn collect(child: Child) -> Output {
    let (report, outcome) = mpsc::channel();
    thread::spawn(move || report.send(child.wait_with_output()));
    outcome.recv_timeout(TIMEOUT).expect("its output has no end").unwrap()
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Stderr of a command that must have failed with this code: one line.
pub fn error_line(output: &Output, code: i32) -> String {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(output.stdout.is_empty() && error.starts_with("taskstats: ") && error.lines().count() == 1, "{error}");
    error.to_owned()
}
