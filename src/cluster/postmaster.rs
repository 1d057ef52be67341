//! The running server of a cluster: whether there is one, starting it, stopping it.
//!
//! Must never: take a process for the server because its pid is in a file, let the server inherit anything of ours
//! (its session, its pipes, its environment), or remove a pid file while processes of its server live.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use super::account::Account;
use super::layout::LOG;
use super::pid_file::{self, PidFile};
use super::programs::Programs;
use super::{ClusterError, ORPHAN_PATIENCE, POLL, START_PATIENCE, STOP_PATIENCE, socket};
use crate::log;

/// pg_ctl gives the server its own session and /dev/null and the log for its standard streams. Descriptors 3 to 9 are
/// left: a script's locks and pipes, systemd's sockets. Kept open by the server they would hang their other end.
const WITHOUT_OUR_DESCRIPTORS: &str = r#"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec "$@""#;
/// Lines of the server's log that an error quotes.
const QUOTED_LINES: usize = 3;
/// How much of the end of the log is searched for them, bytes.
const LOG_TAIL: u64 = 64 * 1024;

/// The server of one cluster, running or not.
#[derive(Debug)]
pub(super) struct Postmaster<'a> {
    /// Without links, as the kernel shows it.
    pub(super) pgdata: PathBuf,
    /// What people know the cluster by.
    pub(super) data: &'a Path,
    pub(super) programs: &'a Programs,
    pub(super) account: &'a Account,
}

/// A server that takes connections.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) pid: u32,
    pub(super) socket_directory: PathBuf,
    pub(super) port: u16,
}

impl Server {
    /// The DSN of its database `taskstats`. The port is named even though it is usually the default: PGPORT of
    /// somebody's shell would replace a missing one.
    pub(super) fn url(&self) -> String {
        let mut host = String::new();
        for byte in self.socket_directory.as_os_str().as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => host.push(char::from(*byte)),
                _ => write!(host, "%{byte:02X}").expect("a string takes everything"),
            }
        }
        format!("postgresql://postgres@{host}:{}/taskstats", self.port)
    }
}

/// What postmaster.pid and the kernel say together.
enum Found {
    Nothing,
    Stale(PidFile),
    Alive(PidFile),
}

impl Postmaster<'_> {
    /// The server if it takes connections, None if there is none.
    ///
    /// # Errors
    /// It is starting or stopping just now.
    pub(super) fn server(&self) -> Result<Option<Server>, ClusterError> {
        let Found::Alive(file) = self.find()? else { return Ok(None) };
        match ready(&file) {
            Some(server) => Ok(Some(server)),
            None => Err(ClusterError::new(format_args!(
                "the cluster in {} is just starting or stopping (process {}): try again",
                self.data.display(),
                file.pid
            ))),
        }
    }

    /// Starts the server unless it runs; waits until it takes connections. True when it ran before. The caller holds
    /// the directory's lock.
    pub(super) fn start(&self) -> Result<(Server, bool), ClusterError> {
        let deadline = Instant::now() + START_PATIENCE;
        let mut launched = false;
        loop {
            match self.find()? {
                Found::Alive(file) => match ready(&file) {
                    Some(server) => return Ok((server, !launched)),
                    // Somebody else's start or stop: wait for its end.
                    None if Instant::now() < deadline => thread::sleep(POLL),
                    None => return Err(self.not_ready_in_time(file.pid)),
                },
                _ if launched => return Err(self.did_not_start("it ended as soon as it was ready")),
                Found::Stale(file) => {
                    self.clear(&file)?;
                    launched = self.launch()?;
                }
                Found::Nothing => launched = self.launch()?,
            }
        }
    }

    /// Stops the server, and waits until its process is gone. False when it did not run. The caller holds the
    /// directory's lock.
    pub(super) fn stop(&self) -> Result<bool, ClusterError> {
        let Found::Alive(file) = self.find()? else { return Ok(false) };
        let patience = STOP_PATIENCE.as_secs().to_string();
        let mut command = self.account.command(self.programs.pg_ctl());
        command.args(["stop", "-m", "fast", "-w", "-t", &patience]).env("PGDATA", &self.pgdata);
        let output = self.run(&mut command)?;
        // pg_ctl looks at the pid file; the process itself ends a moment later.
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.is_server(file.pid) {
            if !output.status.success() || Instant::now() >= deadline {
                return Err(ClusterError::new(format_args!(
                    "the server of {} (process {}) did not stop within {patience} s: {}; its log is {}",
                    self.data.display(),
                    file.pid,
                    last_line(&output.stderr).unwrap_or_else(|| "its process is still there".to_owned()),
                    self.log().display()
                )));
            }
            thread::sleep(POLL);
        }
        if let Some(directory) = &file.socket_directory {
            socket::remove_directory(directory);
        }
        Ok(true)
    }

    fn find(&self) -> Result<Found, ClusterError> {
        Ok(match PidFile::read(&self.pgdata)? {
            None => Found::Nothing,
            Some(file) if self.is_server(file.pid) => Found::Alive(file),
            Some(file) => Found::Stale(file),
        })
    }

    /// Whether the process is a PostgreSQL whose working directory is our PGDATA. A zombie has none.
    fn is_server(&self, pid: u32) -> bool {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let Ok(name) = fs::read_to_string(process.join("comm")) else { return false };
        if !matches!(name.trim_end(), "postgres" | "postmaster") {
            return false;
        }
        let link = process.join("cwd");
        match fs::read_link(&link) {
            Ok(directory) => directory == self.pgdata,
            // Root in a container may lack the right to look into other accounts' processes: the account itself has it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let answer = self.account.command("readlink").arg("-n").arg(&link).output();
                answer.is_ok_and(|answer| answer.stdout == self.pgdata.as_os_str().as_bytes())
            }
            Err(_) => false,
        }
    }

    /// Makes a start possible after a server that was killed.
    fn clear(&self, stale: &PidFile) -> Result<(), ClusterError> {
        let deadline = Instant::now() + ORPHAN_PATIENCE;
        while stale.has_living_processes()? {
            if Instant::now() >= deadline {
                return Err(ClusterError::new(format_args!(
                    "the server of {} (process {}) is dead, but processes it started still use the data: find them \
                     with `ps -C postgres` and end them, then try again",
                    self.data.display(),
                    stale.pid
                )));
            }
            thread::sleep(POLL);
        }
        // The files of a dead process PostgreSQL removes by itself, and safely. Only a pid that lives again, as
        // somebody else, misleads it (or one that nobody has reaped).
        if Path::new(&format!("/proc/{}", stale.pid)).exists() {
            let path = self.pgdata.join(pid_file::NAME);
            log::line(format_args!("process {} is not the server that {} names: removed", stale.pid, path.display()));
            fs::remove_file(&path).map_err(ClusterError::io("remove the stale", &path))?;
            if let Some(directory) = &stale.socket_directory {
                socket::remove_stale_lock(directory, stale.pid, self.account)?;
            }
        }
        Ok(())
    }

    /// Runs `pg_ctl start`. False when it failed because a server runs that somebody started meanwhile.
    fn launch(&self) -> Result<bool, ClusterError> {
        let socket_directory = socket::private_directory(&self.pgdata, self.account)?;
        let options = format!(
            "-c listen_addresses= -c unix_socket_directories={} -c unix_socket_permissions=0700 -c cluster_name=taskstats",
            socket_directory.display()
        );
        let log_length = fs::metadata(self.log()).map_or(0, |log| log.len());
        // pg_ctl puts -D and -l into a shell command without quoting them: the paths go in as PGDATA and working
        // directory instead.
        let mut command = self.account.command("/bin/sh");
        command
            .args(["-c", WITHOUT_OUR_DESCRIPTORS, "sh"])
            .arg(self.programs.pg_ctl())
            .args(["start", "-w", "-t", &START_PATIENCE.as_secs().to_string(), "-l", LOG, "-o", &options])
            .env("PGDATA", &self.pgdata)
            .current_dir(&self.pgdata);
        let output = self.run(&mut command)?;
        if output.status.success() {
            return Ok(true);
        }
        if let Found::Alive(_) = self.find()? {
            return Ok(false);
        }
        socket::remove_directory(&socket_directory);
        let words = last_words(&self.log(), log_length);
        let words = words.or_else(|| last_line(&output.stderr));
        Err(self.did_not_start(words.as_deref().unwrap_or("it said nothing")))
    }

    fn run(&self, command: &mut Command) -> Result<Output, ClusterError> {
        command.output().map_err(|error| {
            ClusterError::new(format_args!(
                "cannot run {} as user {}: {error}",
                self.programs.pg_ctl().display(),
                self.account
            ))
        })
    }

    fn log(&self) -> PathBuf {
        self.pgdata.join(LOG)
    }

    fn did_not_start(&self, why: &str) -> ClusterError {
        ClusterError::new(format_args!(
            "PostgreSQL did not start in {}: {why}; its log is {}",
            self.data.display(),
            self.log().display()
        ))
    }

    fn not_ready_in_time(&self, pid: u32) -> ClusterError {
        ClusterError::new(format_args!(
            "the server of {} (process {pid}) is not ready after {} s, it may be recovering from a crash: see its log \
             {} and try again",
            self.data.display(),
            START_PATIENCE.as_secs(),
            self.log().display()
        ))
    }
}

fn ready(file: &PidFile) -> Option<Server> {
    let (directory, port) = file.ready_address()?;
    Some(Server { pid: file.pid, socket_directory: directory.to_path_buf(), port })
}

/// The last fatal lines that the log gained, on one line; without any, its last line.
fn last_words(log: &Path, from: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let from = from.max(file.metadata().ok()?.len().saturating_sub(LOG_TAIL));
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let fatal = |line: &'_ str| ["FATAL:", "PANIC:"].iter().find_map(|mark| line.find(mark));
    let lines: Vec<&str> = text.lines().filter_map(|line| Some(line[fatal(line)?..].trim())).collect();
    match lines.len() {
        0 => last_line(&bytes),
        n => Some(lines[n.saturating_sub(QUOTED_LINES)..].join("; ")),
    }
}

fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_escapes_the_socket_directory() {
        let server = Server { pid: 1, socket_directory: PathBuf::from("/tmp/taskstats-1 2"), port: 5432 };
        assert_eq!(server.url(), "postgresql://postgres@%2Ftmp%2Ftaskstats-1%202:5432/taskstats");
    }

    #[test]
    fn the_last_words_are_the_new_fatal_lines() {
        let log = std::env::temp_dir().join(format!("taskstats-last-words-{}", std::process::id()));
        let old = "FATAL:  old\n";
        fs::write(&log, format!("{old}2025 [7] LOG:  x\n2025 [7] FATAL:  lock\n2025 [7] LOG:  down\n")).unwrap();
        let words = last_words(&log, old.len() as u64);
        let all = last_words(&log, 0);
        fs::write(&log, "first\nlast\n\n").unwrap();
        let plain = last_words(&log, 0);
        fs::remove_file(&log).unwrap();
        assert_eq!(words.as_deref(), Some("FATAL:  lock"));
        assert_eq!(all.as_deref(), Some("FATAL:  old; FATAL:  lock"));
        assert_eq!(plain.as_deref(), Some("last"));
        assert_eq!(last_words(&log, 0), None);
    }
}
