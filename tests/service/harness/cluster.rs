//! A private PostgreSQL cluster on a Unix socket. One is shared by the tests of this process, each with a database of its
//! own; a test that stops the server starts its own cluster.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A running cluster. It ends with this value, or with this process however that ends.
pub struct PgCluster {
    dir: PathBuf,
    programs: PathBuf,
    account: Option<(u32, u32)>,
    /// Waits for the end of its standard input, then stops the server and removes the directory.
    undertaker: Child,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl PgCluster {
    /// The cluster that the tests of this process share.
    pub fn shared() -> &'static PgCluster {
        static SHARED: OnceLock<PgCluster> = OnceLock::new();
        SHARED.get_or_init(PgCluster::own)
    }

    /// A cluster for one test.
    pub fn own() -> PgCluster {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("/tmp/taskstats-test-{}-{number}", std::process::id()));
        fs::create_dir(&dir).expect("a fresh directory");
        let account = unprivileged_account();
        if let Some((uid, gid)) = account {
            chown(&dir, Some(uid), Some(gid)).expect("root may give its directory away");
        }
        let programs = programs();
        let script = format!(
            "cat; '{}/pg_ctl' -D '{dir}/data' -m immediate stop; rm -rf '{dir}'",
            programs.display(),
            dir = dir.display()
        );
        let undertaker = as_account(Command::new("sh").arg("-c").arg(script), account)
            .process_group(0) // Ctrl-C ends the tests, and so its input, but not the undertaker itself
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh");
        let cluster = PgCluster { dir, programs, account, undertaker };
        // Tests end servers in many ways, but never the machine: no fsync is needed.
        cluster
            .run("initdb", &["-D", &cluster.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]);
        cluster.start();
        cluster
    }

    fn data(&self) -> String {
        self.dir.join("data").display().to_string()
    }

    /// Starts the server.
    pub fn start(&self) {
        let options = format!(
            "-c listen_addresses='' -c unix_socket_directories='{}' -c fsync=off -c max_connections=400 -c shared_buffers=64MB",
            self.dir.display()
        );
        let log = self.dir.join("log").display().to_string();
        self.run("pg_ctl", &["-D", &self.data(), "-w", "-o", &options, "-l", &log, "start"]);
    }

    /// Stops the server: `fast` ends sessions in order, `immediate` is a crash.
    pub fn stop(&self, mode: &str) {
        self.run("pg_ctl", &["-D", &self.data(), "-w", "-m", mode, "stop"]);
    }

    /// User and group under which the server runs, if they are not our own.
    pub fn account(&self) -> Option<(u32, u32)> {
        self.account
    }

    /// The directory of the server's socket.
    pub fn socket_dir(&self) -> &Path {
        &self.dir
    }

    fn run(&self, program: &str, args: &[&str]) {
        let output = as_account(Command::new(self.programs.join(program)).args(args), self.account)
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .expect("PostgreSQL's programs");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for PgCluster {
    fn drop(&mut self) {
        drop(self.undertaker.stdin.take());
        let _ = self.undertaker.wait();
    }
}

/// The newest installed PostgreSQL; without one the tests fail, they never skip.
fn programs() -> PathBuf {
    let installed =
        fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL must be installed: apt-get install postgresql");
    let version = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest =
        installed.flatten().map(|entry| entry.path()).filter(|path| version(path).is_some()).max_by_key(version);
    newest.expect("a version of PostgreSQL").join("bin")
}

/// initdb refuses root: root runs it as `postgres`.
fn unprivileged_account() -> Option<(u32, u32)> {
    let id = |args: &[&str]| {
        let output = Command::new("id").args(args).output().expect("id");
        String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().expect("a number")
    };
    (id(&["-u"]) == 0).then(|| (id(&["-u", "postgres"]), id(&["-g", "postgres"])))
}

fn as_account(command: &mut Command, account: Option<(u32, u32)>) -> &mut Command {
    match account {
        Some((uid, gid)) => command.gid(gid).uid(uid),
        None => command,
    }
}
