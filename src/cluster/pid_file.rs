//! postmaster.pid, in which a server tells who and where it is, and what the kernel knows about the processes it names.
//!
//! Must never: believe the file. It outlives a killed server, and its pid may belong to somebody else by now.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::ClusterError;

/// Name of the file in PGDATA.
pub(super) const NAME: &str = "postmaster.pid";

/// What the file says. A server writes it line by line while it starts: everything but the pid may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PidFile {
    pub(super) pid: u32,
    pub(super) port: Option<u16>,
    pub(super) socket_directory: Option<PathBuf>,
    /// Id of the System V segment that every process of the server is attached to.
    shared_memory: Option<u64>,
    ready: bool,
}

impl PidFile {
    /// None when there is none, or when it is just being written.
    pub(super) fn read(pgdata: &Path) -> Result<Option<PidFile>, ClusterError> {
        let path = pgdata.join(NAME);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(PidFile::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ClusterError::io("read", &path)(error)),
        }
    }

    /// Lines: pid, data directory, start time, port, socket directory, TCP address, shared memory (key and id), status
    /// (PostgreSQL's source, `pidfile.h`). A single-user server writes its pid negative.
    fn parse(text: &str) -> Option<PidFile> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let line = |number: usize| lines.get(number - 1).copied().filter(|line| !line.is_empty());
        Some(PidFile {
            pid: line(1)?.parse::<i32>().ok()?.unsigned_abs(),
            port: line(4).and_then(|port| port.parse().ok()),
            socket_directory: line(5).map(PathBuf::from),
            shared_memory: line(7).and_then(|memory| memory.split_whitespace().nth(1)?.parse().ok()),
            ready: line(8) == Some("ready"),
        })
    }

    /// The address, once the server takes connections.
    pub(super) fn ready_address(&self) -> Option<(&Path, u16)> {
        if !self.ready {
            return None;
        }
        Some((self.socket_directory.as_deref()?, self.port?))
    }

    /// Whether processes of the server that wrote the file still live, though the server itself may be dead. A second
    /// server beside them would destroy the data; this is the test by which PostgreSQL protects itself.
    pub(super) fn has_living_processes(&self) -> Result<bool, ClusterError> {
        const SEGMENTS: &str = "/proc/sysvipc/shm";
        let Some(id) = self.shared_memory else { return Ok(false) };
        let table = fs::read_to_string(SEGMENTS).map_err(ClusterError::io("read", SEGMENTS))?;
        Ok(attached(&table, id))
    }
}

/// Columns: key, shmid, perms, size, cpid, lpid, nattch, … (proc_sysvipc_shm).
fn attached(table: &str, id: u64) -> bool {
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().ok());
        fields.nth(1).flatten() == Some(id) && fields.nth(4).flatten().is_some_and(|processes| processes > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file_is_read() {
        let text = "4242\n/data/cluster\n1700000000\n5432\n/tmp/taskstats-1-2\n\n   163853    98310\nready   \n";
        let file = PidFile::parse(text).unwrap();
        assert_eq!((file.pid, file.shared_memory), (4242, Some(98310)));
        assert_eq!(file.ready_address(), Some((Path::new("/tmp/taskstats-1-2"), 5432)));
    }

    #[test]
    fn an_unfinished_file_is_not_ready() {
        assert_eq!(PidFile::parse(""), None);
        assert_eq!(PidFile::parse("42\n/data\n1700000000\n5432\n/tmp/x\n").unwrap().ready_address(), None);
        let starting = "42\n/data\n17\n5432\n/tmp/x\n\n 1 2\nstarting\n";
        assert_eq!(PidFile::parse(starting).unwrap().ready_address(), None);
        assert_eq!(PidFile::parse("-42\n").unwrap().pid, 42);
    }

    #[test]
    fn attached_processes_are_found_by_segment_id() {
        let table = "       key      shmid perms      size  cpid  lpid nattch   uid\n\
                     163853      98310   600        56  4242  4250      6   101\n\
                     163854      98311   600        56  4242  4250      0   101\n";
        assert!(attached(table, 98310));
        assert!(!attached(table, 98311) && !attached(table, 163853) && !attached(table, 7));
    }
}
