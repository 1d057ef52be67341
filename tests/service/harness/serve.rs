//! The real binary, started as `taskstats serve`.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use super::contract::Listener;
use super::{Client, Database, until};

/// A running service; killed when dropped, or when the test's thread ends.
pub struct Serve {
    child: Child,
    /// The whole `ready` line.
    pub ready: String,
    /// The public listener.
    pub listen: SocketAddr,
    /// The admin listener.
    pub admin: SocketAddr,
    stderr: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_taskstats");

/// The example `gated`, of the same profile as the binary. Cargo builds examples for a run of all tests, but not for one of
/// these alone.
fn gated_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let profile_dir = Path::new(BINARY).parent().expect("the directory of its profile");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "--example", "gated", "--target-dir"]);
        build.arg(profile_dir.parent().expect("the target directory"));
        if profile_dir.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo").success());
        profile_dir.join("examples/gated")
    })
}

/// How a process ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Code(i32),
    Signal(i32),
}

impl Serve {
    /// Starts the service on a database with free ports, and waits until it is ready.
    pub fn on(database: &Database, flags: &[&str]) -> Serve {
        Serve::start(&database.dsn(), flags).unwrap_or_else(|(end, stderr)| panic!("not ready: {end:?}: {stderr}"))
    }

    /// Starts the service; how it ended and what it said, when it did not become ready.
    pub fn start(dsn: &str, flags: &[&str]) -> Result<Serve, (End, String)> {
        Serve::launch(Command::new("setpriv").args(["--pdeathsig", "KILL", BINARY, "serve"]), dsn, flags)
    }

    /// Starts the service with a limit of open files, which must be enough to start with.
    pub fn with_files(database: &Database, files: usize) -> Serve {
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={files}")).args(["setpriv", "--pdeathsig", "KILL", BINARY, "serve"]);
        Serve::launch(&mut command, &database.dsn(), &[]).unwrap_or_else(|failed| panic!("{failed:?}"))
    }

    /// Starts it with an analyser that holds every task while the file `gate` exists (verification/gated.rs).
    pub fn gated(dsn: &str, gate: &Path, flags: &[&str]) -> Serve {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(gated_program()).env("GATE", gate);
        Serve::launch(&mut command, dsn, flags).unwrap_or_else(|failed| panic!("{failed:?}"))
    }

    /// Starts the service with a command line of the caller's own, to which the flags are added.
    pub fn launch(command: &mut Command, dsn: &str, flags: &[&str]) -> Result<Serve, (End, String)> {
        let defaults = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--dsn", dsn];
        // A test that is killed takes its service along.
        let mut child = command
            .args(defaults)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (pipe, into) = (child.stderr.take().expect("piped"), lines.clone());
        let reader = thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                into.lock().expect("no panic").push(line);
            }
        });
        let mut ready = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut ready).expect("stdout");
        if ready.is_empty() {
            let status = child.wait().expect("wait");
            reader.join().expect("no panic");
            let said = lines.lock().expect("no panic").join("\n");
            return Err((end_of(status), said));
        }
        let ready = ready.trim_end().to_owned();
        let listen = field(&ready, "listen").parse().expect("an address");
        let admin = field(&ready, "admin").parse().expect("an address");
        Ok(Serve { child, ready, listen, admin, stderr: lines, reader: Some(reader) })
    }

    /// A connection to the public listener.
    pub fn client(&self) -> Client {
        Client::to(self.listen, Listener::Public)
    }

    /// A connection to the admin listener.
    pub fn admin_client(&self) -> Client {
        Client::to(self.admin, Listener::Admin)
    }

    /// A field of the ready line.
    pub fn reported(&self, name: &str) -> String {
        field(&self.ready, name)
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, signal: &str) {
        assert!(send_signal(self.pid(), signal), "{} has ended before SIG{signal}", self.pid());
    }

    /// Waits for the end.
    pub fn wait(&mut self) -> End {
        let status = until("the service ends", || self.child.try_wait().expect("wait"));
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no panic");
        }
        end_of(status)
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(&mut self) -> End {
        self.signal("TERM");
        self.wait()
    }

    /// SIGKILL, and wait until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
        assert_eq!(self.wait(), End::Signal(9));
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().expect("no panic").clone()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("stderr of the service:\n{}", self.stderr().join("\n"));
        }
    }
}

/// Runs the binary to its end.
pub fn run(args: &[&str]) -> Output {
    Command::new(BINARY).args(args).stdin(Stdio::null()).output().expect("the binary")
}

/// Sends a signal to a process of ours; false: there is no such process.
pub fn send_signal(pid: u32, signal: &str) -> bool {
    // The shell's own kill: a small machine has no other.
    let command = format!("kill -{signal} {pid}");
    Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).status().expect("sh").success()
}

fn end_of(status: std::process::ExitStatus) -> End {
    match status.signal() {
        Some(signal) => End::Signal(signal),
        None => End::Code(status.code().expect("a code or a signal")),
    }
}

fn field(line: &str, name: &str) -> String {
    let prefix = format!("{name}=");
    let value = line.split(' ').find_map(|part| part.strip_prefix(&prefix));
    value.unwrap_or_else(|| panic!("no {name} in {line:?}")).to_owned()
}
