//! Starting and stopping the server: one at a time for a data directory, both by `pg_ctl`, which waits for readiness and
//! for the end. `postmaster.pid` is read for the server's address, and for the one thing that `pg_ctl status` gets wrong:
//! it takes any living process with the recorded pid for the server, and after a crash that pid may belong to another
//! process, or to a zombie that no parent reaps.
//!
//! Never signals a process that is not proved to be the server, never lets the server inherit descriptors, a session or
//! an environment, and never removes postmaster.pid: PostgreSQL finds by it what is left of a dead server.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::Instant;

use super::{Error, PrivatePostgres, Result, Started, poll, socket};
use crate::limits::{
    PG_EXIT_TIMEOUT, PG_LOCK_TIMEOUT, PG_LOG_TAIL_BYTES, PG_ORPHAN_TIMEOUT, PG_POLL_INTERVAL, PG_START_TIMEOUT,
    PG_STOP_TIMEOUT,
};
use crate::log;

/// The server's log, in PGDATA: the server's account writes it there, and root opens no file for another account.
const LOG: &str = "postgresql.log";
const PID_FILE: &str = "postmaster.pid";
/// pg_ctl gives the server a session, /dev/null and the log. Descriptors 3 to 9 (a script's locks and pipes, systemd's
/// sockets) would stay open in the server and block the process at their other end.
const WITHOUT_OUR_DESCRIPTORS: &str = r#"exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec "$@""#;
/// No process has this pid: Linux' largest is 2^22.
const NO_PID: &str = "2147483647";
/// Lines of the server's log that an error quotes.
const QUOTED_LINES: usize = 3;
/// PostgreSQL's words for processes of a killed server that still use its shared memory.
const ORPHANS: &str = "is still in use";

/// One start or stop at a time on a data directory, over all processes of the host. The lock is a name in Linux' abstract
/// socket namespace: the kernel releases it when the process ends. It only orders starts and stops: processes in
/// different network namespaces do not see each other's, and then postmaster.pid decides.
#[derive(Debug)]
pub(super) struct Lock {
    _name: UnixDatagram,
}

impl Lock {
    /// Waits for the lock of the directory, which must exist.
    pub(super) fn take(data: &Path) -> Result<Lock> {
        // Device and inode: the same directory has the same lock under any path.
        let found = fs::metadata(data).map_err(Error::io("look at", data))?;
        let name = format!("taskstats-private-postgres-{}-{}", found.dev(), found.ino());
        let address = SocketAddr::from_abstract_name(&name).map_err(Error::io("lock", data))?;
        let lock = poll(PG_LOCK_TIMEOUT, || match UnixDatagram::bind_addr(&address) {
            Ok(socket) => Ok(Some(Lock { _name: socket })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(Error::io("lock", data)(error)),
        })?;
        lock.ok_or_else(|| {
            error!(
                "another process has been starting or stopping the private PostgreSQL in {} for {PG_LOCK_TIMEOUT:?}: \
                 find it with `ss -xp | grep {name}`, end it and try again",
                data.display()
            )
        })
    }
}

/// The content of postmaster.pid. The server writes it line by line while it starts.
#[derive(Debug, PartialEq, Eq)]
struct Postmaster {
    pid: u32,
    /// Socket directory and port, once the server accepts connections.
    address: Option<(PathBuf, u16)>,
}

impl Postmaster {
    /// Lines: pid, data directory, start time, port, socket directory, TCP address, shared memory, status (`pidfile.h` in
    /// PostgreSQL's source). A single-user server writes its pid negative.
    fn parse(text: &str) -> Option<Postmaster> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let pid = lines.first()?.parse::<i32>().ok()?.unsigned_abs();
        let ready = lines.get(7) == Some(&"ready");
        let address = || Some((PathBuf::from(lines.get(4)?), lines.get(3)?.parse().ok()?));
        Some(Postmaster { pid, address: if ready { address() } else { None } })
    }
}

/// The server of one data directory, running or not.
#[derive(Debug)]
pub(super) struct Control<'a> {
    postgres: &'a PrivatePostgres,
    /// PGDATA without symbolic links: the server's account may not be able to enter the directory of the link.
    pgdata: PathBuf,
}

impl Control<'_> {
    pub(super) fn new(postgres: &PrivatePostgres) -> Result<Control<'_>> {
        let pgdata = postgres.pgdata();
        let pgdata = fs::canonicalize(&pgdata).map_err(Error::io("enter", &pgdata))?;
        Ok(Control { postgres, pgdata })
    }

    /// The DSN of the running server.
    pub(super) fn url(&self) -> Result<String> {
        let data = self.postgres.data.display();
        match self.running()? {
            Some(Postmaster { address: Some(address), .. }) => Ok(url(&address)),
            Some(Postmaster { pid, .. }) => {
                Err(error!("the private PostgreSQL in {data} is just starting or stopping (process {pid}): try again"))
            }
            None => Err(error!(
                "the private PostgreSQL in {data} is not running: start it with `taskstats db start --data {data}`"
            )),
        }
    }

    /// Starts the server unless it runs, and waits until it accepts connections. The caller holds the [`Lock`].
    pub(super) fn start(&self) -> Result<Started> {
        let mut launched = false;
        let address = poll(PG_START_TIMEOUT, || {
            if self.running()?.is_none() {
                if launched {
                    return Err(self.did_not_start("it ended as soon as it was ready"));
                }
                launched = self.launch()?;
            }
            // A server without an address is starting or stopping for another process.
            Ok(self.running()?.and_then(|server| server.address))
        })?;
        match address {
            Some(address) => Ok(Started { url: url(&address), already_running: !launched }),
            None => Err(self.did_not_start(&format!(
                "it is not ready after {PG_START_TIMEOUT:?}, it may be recovering from a crash (then try again)"
            ))),
        }
    }

    /// Stops the server and waits for the end of its process. False when it did not run. The caller holds the [`Lock`].
    pub(super) fn stop(&self) -> Result<bool> {
        let Some(server) = self.running()? else { return Ok(false) };
        let limit = PG_STOP_TIMEOUT.as_secs().to_string();
        let output = self.pg_ctl(&["stop", "-m", "fast", "-w", "-t", &limit])?;
        // pg_ctl waits for the end of the pid file; the process ends a moment later.
        let gone = poll(PG_EXIT_TIMEOUT, || Ok((!self.is_server(server.pid)?).then_some(())))?;
        if gone.is_none() {
            return Err(error!(
                "the server of {} (process {}) did not stop within {limit} s: {}; its log is {}",
                self.postgres.data.display(),
                server.pid,
                last_line(&output.stderr).unwrap_or_else(|| "its process is still there".to_owned()),
                self.log().display()
            ));
        }
        if let Some((directory, _)) = &server.address {
            socket::remove_directory(directory);
        }
        Ok(true)
    }

    /// The server, if it runs.
    fn running(&self) -> Result<Option<Postmaster>> {
        match self.pid_file()?.and_then(|text| Postmaster::parse(&text)) {
            Some(server) if self.is_server(server.pid)? => Ok(Some(server)),
            _ => Ok(None),
        }
    }

    fn pid_file(&self) -> Result<Option<String>> {
        let path = self.pgdata.join(PID_FILE);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// Whether the process is a PostgreSQL that works in PGDATA; a zombie works nowhere. Root without CAP_SYS_PTRACE, as
    /// in a container, may not see this; the server's own account may.
    fn is_server(&self, pid: u32) -> Result<bool> {
        let directory = PathBuf::from(format!("/proc/{pid}/cwd"));
        let name = fs::read_to_string(directory.with_file_name("comm")).unwrap_or_default();
        Ok(name == "postgres\n"
            && self.postgres.account.test(&[directory.as_os_str(), "-ef".as_ref(), self.pgdata.as_os_str()])?)
    }

    /// Runs `pg_ctl start`. False when it failed and a server runs nevertheless: another process started it, or pg_ctl was killed.
    fn launch(&self) -> Result<bool> {
        self.correct_pid_file()?;
        let socket_directory = socket::private_directory(&self.pgdata, &self.postgres.account)?;
        let options = format!(
            "-c listen_addresses= -c port={} -c unix_socket_directories={} -c unix_socket_permissions=0700 \
             -c cluster_name=taskstats",
            socket::PORT,
            socket_directory.display()
        );
        let deadline = Instant::now() + PG_ORPHAN_TIMEOUT;
        loop {
            let old_log = fs::metadata(self.log()).map_or(0, |log| log.len());
            let limit = PG_START_TIMEOUT.as_secs().to_string();
            let output = self.pg_ctl(&["start", "-w", "-t", &limit, "-l", LOG, "-o", &options])?;
            if output.status.success() {
                return Ok(true);
            }
            if self.running()?.is_some() {
                return Ok(false);
            }
            let why = reason_in(&self.log(), old_log).or_else(|| last_line(&output.stderr)).unwrap_or_default();
            if !why.contains(ORPHANS) || Instant::now() >= deadline {
                socket::remove_directory(&socket_directory);
                return Err(self.did_not_start(&why));
            }
            thread::sleep(PG_POLL_INTERVAL);
        }
    }

    /// Makes a start possible when a living process has the pid of a dead server, and PostgreSQL would take it for the
    /// server. The file keeps its other lines: by the shared memory in them PostgreSQL finds processes
    /// that still use the data, and does not start. All other pid files of dead servers are left to PostgreSQL.
    fn correct_pid_file(&self) -> Result<()> {
        let Some(text) = self.pid_file()? else { return Ok(()) };
        let Some(Postmaster { pid, .. }) = Postmaster::parse(&text) else { return Ok(()) };
        if !Path::new("/proc").join(pid.to_string()).exists() {
            return Ok(());
        }
        let path = self.pgdata.join(PID_FILE);
        log::line(format_args!("process {pid} is not the server that {} names", path.display()));
        let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
        // As the account: it could have replaced the file by a link, which root must not follow.
        let mut command = self.postgres.account.command("/bin/sh");
        command.args(["-c", "printf %s \"$2\" >\"$1\"", "sh", PID_FILE, &format!("{NO_PID}\n{rest}")]);
        let written = command.current_dir(&self.pgdata).status();
        match written.map_err(Error::io("correct", &path))? {
            status if status.success() => Ok(()),
            status => Err(error!("cannot correct {}: {status}", path.display())),
        }
    }

    /// pg_ctl puts -D and -l into a shell command in which `$` and backquotes keep their meaning: the paths reach it as
    /// PGDATA and working directory.
    fn pg_ctl(&self, arguments: &[&str]) -> Result<Output> {
        let PrivatePostgres { account, programs, .. } = self.postgres;
        let mut command = account.command("/bin/sh");
        command.args(["-c", WITHOUT_OUR_DESCRIPTORS, "sh"]).arg(programs.pg_ctl()).args(arguments);
        command
            .env("PGDATA", &self.pgdata)
            .current_dir(&self.pgdata)
            .output()
            .map_err(|error| error!("cannot run {} as user {account}: {error}", programs.pg_ctl().display()))
    }

    fn log(&self) -> PathBuf {
        self.pgdata.join(LOG)
    }

    fn did_not_start(&self, why: &str) -> Error {
        error!(
            "PostgreSQL did not start in {}: {why}; its log is {}",
            self.postgres.data.display(),
            self.log().display()
        )
    }
}

/// The DSN of the database `taskstats`. The port is always written: PGPORT of a user's shell would replace a missing one.
fn url((socket_directory, port): &(PathBuf, u16)) -> String {
    let mut host = String::new();
    for byte in socket_directory.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => host.push(char::from(*byte)),
            _ => write!(host, "%{byte:02X}").expect("a string accepts all writes"),
        }
    }
    format!("postgresql://postgres@{host}:{port}/taskstats")
}

/// The last fatal lines after byte `from` of the log, on one line; without any, its last line.
fn reason_in(log: &Path, from: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    file.seek(SeekFrom::Start(from.max(file.metadata().ok()?.len().saturating_sub(PG_LOG_TAIL_BYTES)))).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let fatal = |line: &&str| ["FATAL:", "PANIC:", "HINT:"].iter().find_map(|mark| line.find(mark));
    let lines: Vec<&str> = text.lines().filter_map(|line| Some(line[fatal(&line)?..].trim())).collect();
    match lines.len() {
        0 => last_line(&bytes),
        count => Some(lines[count.saturating_sub(QUOTED_LINES)..].join("; ")),
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
        let address = (PathBuf::from("/tmp/taskstats-1 2"), 5432);
        assert_eq!(url(&address), "postgresql://postgres@%2Ftmp%2Ftaskstats-1%202:5432/taskstats");
    }

    #[test]
    fn a_complete_pid_file_has_the_address() {
        let text = "4242\n/data/cluster\n1700000000\n5432\n/tmp/taskstats-1-2\n\n   163853    98310\nready   \n";
        let address = Some((PathBuf::from("/tmp/taskstats-1-2"), 5432));
        assert_eq!(Postmaster::parse(text), Some(Postmaster { pid: 4242, address }));
    }

    #[test]
    fn an_unfinished_pid_file_has_no_address() {
        let starting = "42\n/data\n17\n5432\n/tmp/x\n\n 1 2\nstarting\n";
        for text in ["42\n/data\n1700000000\n5432\n/tmp/x\n", starting, "-42\n"] {
            assert_eq!(Postmaster::parse(text), Some(Postmaster { pid: 42, address: None }), "{text}");
        }
        assert_eq!(Postmaster::parse(""), None);
    }

    #[test]
    fn the_reason_is_in_the_new_fatal_lines() {
        let log = std::env::temp_dir().join(format!("taskstats-reason-{}", std::process::id()));
        let old = "FATAL:  old\n";
        fs::write(&log, format!("{old}2025 [7] LOG:  x\n2025 [7] FATAL:  lock\n2025 [7] LOG:  down\n")).unwrap();
        let new = reason_in(&log, old.len() as u64);
        let all = reason_in(&log, 0);
        fs::write(&log, "first\nlast\n\n").unwrap();
        let plain = reason_in(&log, 0);
        fs::remove_file(&log).unwrap();
        assert_eq!(new.as_deref(), Some("FATAL:  lock"));
        assert_eq!(all.as_deref(), Some("FATAL:  old; FATAL:  lock"));
        assert_eq!(plain.as_deref(), Some("last"));
        assert_eq!(reason_in(&log, 0), None);
    }
}
