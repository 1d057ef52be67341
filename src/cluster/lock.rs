//! One start or stop at a time on a data directory, over all processes of the host. The lock is a name in Linux'
//! abstract socket namespace: the kernel gives it to one process only and takes it back when that process ends,
//! however it ends — a lock file could not be told from a left-over.
//!
//! Must never: be the only protection of the data. Anybody on the host can take the name and so delay a start, and
//! processes in different network namespaces do not see each other's; then PostgreSQL's own postmaster.pid decides.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::thread;
use std::time::Instant;

use super::{ClusterError, LOCK_PATIENCE, POLL};

/// Held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _name: UnixDatagram,
}

impl Lock {
    /// Waits for the lock of the directory, which must exist.
    pub(super) fn take(data: &Path) -> Result<Lock, ClusterError> {
        // Device and inode: the same directory has the same lock under whatever path.
        let found = fs::metadata(data).map_err(ClusterError::io("look at", data))?;
        let name = format!("taskstats-cluster-{}-{}", found.dev(), found.ino());
        let address = SocketAddr::from_abstract_name(&name).map_err(ClusterError::io("lock", data))?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            match UnixDatagram::bind_addr(&address) {
                Ok(socket) => return Ok(Lock { _name: socket }),
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    return Err(ClusterError::io("lock", data)(error));
                }
                Err(_) if Instant::now() < deadline => thread::sleep(POLL),
                Err(_) => {
                    return Err(ClusterError::new(format_args!(
                        "another process has been starting or stopping the cluster in {} for {} s: find it with \
                         `ss -xp | grep {name}`, end it and try again",
                        data.display(),
                        LOCK_PATIENCE.as_secs()
                    )));
                }
            }
        }
    }
}
