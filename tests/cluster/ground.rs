//! What the tests of the cluster stand on: a directory of one's own that is cleared away, users, processes, questions.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use taskstats::cluster::{Cluster, Started};

/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Uid and gid of `nobody`, by convention everywhere.
pub const NOBODY: u32 = 65534;

/// A test's directory, which everybody can enter. Dropping it stops the servers in it and removes everything.
pub struct Ground {
    /// Its path.
    pub dir: PathBuf,
}

impl Ground {
    pub fn new(name: &str) -> Ground {
        let dir = PathBuf::from(format!("/tmp/cluster-test-{}-{name}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        Ground { dir }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// The data directory of tests that need only one.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// A directory that belongs to `nobody` when we are root, to us otherwise.
    pub fn owned_by_nobody(&self, name: &str) -> PathBuf {
        let dir = self.path(name);
        fs::create_dir(&dir).unwrap();
        if am_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        dir
    }

    /// `taskstats db` as an ordinary user: a copy of the binary, because the original may lie where that user cannot go.
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
                if let Err(error) = Cluster::new(&path).and_then(|cluster| cluster.stop()) {
                    eprintln!("left running: {error}");
                }
            } else if path.is_dir() {
                Ground::stop_servers_below(&path);
            }
        }
    }

    /// What root's clusters in unreachable places link to.
    fn remove_link_targets_below(directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match fs::read_link(entry.path()) {
                Ok(target) if target.starts_with("/var/lib/taskstats/") => fs::remove_dir_all(target).unwrap(),
                _ if entry.path().is_dir() => Ground::remove_link_targets_below(&entry.path()),
                _ => {}
            }
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        Ground::stop_servers_below(&self.dir);
        Ground::remove_link_targets_below(&self.dir);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A directory outside of a test's ground, removed with what is in it.
pub struct Squat(pub PathBuf);

impl Drop for Squat {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0).or_else(|_| fs::remove_dir_all(&self.0));
    }
}

pub fn am_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub fn start(data: &Path) -> Started {
    Cluster::new(data).and_then(|cluster| cluster.start()).unwrap()
}

pub fn stop(data: &Path) -> bool {
    Cluster::new(data).and_then(|cluster| cluster.stop()).unwrap()
}

/// Why a start fails: one line.
pub fn refusal(data: &Path) -> String {
    let error = Cluster::new(data).and_then(|cluster| cluster.start()).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

pub fn connect(url: &str) -> Client {
    Client::connect(url, NoTls).unwrap()
}

pub fn ask(client: &mut Client, query: &str) -> String {
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

/// Whether a process runs; one that only waits to be reaped does not.
pub fn runs(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Sends SIGKILL to a process, or to the group of a negative id.
pub fn kill(id: i64) {
    assert!(Command::new("kill").args(["-KILL", "--", &id.to_string()]).status().unwrap().success());
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub fn db(action: &str, data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskstats"));
    command.args(["db", action, "--data"]).arg(data);
    command
}

/// All output of a command, which must end it: whoever keeps the pipe open makes this fail.
pub fn output(mut command: Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    collect(child)
}

pub fn collect(child: Child) -> Output {
    let (report, outcome) = mpsc::channel();
    thread::spawn(move || report.send(child.wait_with_output()));
    outcome.recv_timeout(PATIENCE).expect("its output has no end").unwrap()
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Stderr of a command that must have failed with this code and said why on one line.
pub fn complaint(output: &Output, code: i32) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty() && said.starts_with("taskstats: ") && said.lines().count() == 1, "{said}");
    said.to_owned()
}
