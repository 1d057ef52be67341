//! The directory of the server's Unix socket. A socket's path is limited to 107 bytes and a data directory may be
//! longer, so it lies in /tmp under a short name.
//!
//! Must never: hand a directory to the server that anybody else can enter. The socket asks for no password; that is
//! safe only because of the directory's owner and mode.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::ClusterError;
use super::account::Account;
use super::initdb::random_name;
use crate::log;

const PARENT: &str = "/tmp";
const PREFIX: &str = "taskstats-pg-";

/// A directory for the socket of `pgdata` that only `account` can enter: the usual one of this cluster, or another one
/// when somebody else sits on its name or another server still uses it (one whose data directory was deleted under it).
pub(super) fn private_directory(pgdata: &Path, account: &Account) -> Result<PathBuf, ClusterError> {
    // Device and inode name a cluster more briefly than its path, and keep the name when it is moved.
    let found = fs::metadata(pgdata).map_err(ClusterError::io("look at", pgdata))?;
    let usual = Path::new(PARENT).join(format!("{PREFIX}{:x}-{:x}", found.dev(), found.ino()));
    if create(&usual, account)? || (is_private(&usual, account)? && !is_in_use(&usual)?) {
        return Ok(usual);
    }
    let other = Path::new(PARENT).join(format!("{PREFIX}{}", random_name()?));
    log::line(format_args!(
        "{} is in use or does not belong to user {account} alone: the server's socket goes to {}",
        usual.display(),
        other.display()
    ));
    match create(&other, account)? {
        true => Ok(other),
        false => Err(ClusterError::new(format_args!("{} exists already: try again", other.display()))),
    }
}

/// Removes the socket's directory after a stop, if it is one of ours. It is only litter then: not worth an error.
pub(super) fn remove_directory(directory: &Path) {
    let name = directory.file_name().and_then(|name| name.to_str());
    if directory.parent() == Some(Path::new(PARENT)) && name.is_some_and(|name| name.starts_with(PREFIX)) {
        let _ = fs::remove_dir(directory);
    }
}

/// False when the name is taken.
fn create(directory: &Path, account: &Account) -> Result<bool, ClusterError> {
    match DirBuilder::new().mode(0o700).create(directory) {
        // Nobody can have exchanged it before it is given away: it is ours, and /tmp is sticky.
        Ok(()) => account.give(directory).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(ClusterError::io("create", directory)(error)),
    }
}

fn is_private(directory: &Path, account: &Account) -> Result<bool, ClusterError> {
    let found = fs::symlink_metadata(directory).map_err(ClusterError::io("look at", directory))?;
    Ok(found.is_dir() && found.uid() == account.uid() && found.mode() & 0o777 == 0o700)
}

/// Whether a lock file in the directory names a living process. PostgreSQL would take that process for a server.
fn is_in_use(directory: &Path) -> Result<bool, ClusterError> {
    let alive = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    Ok(locks(directory)?.into_iter().any(|(_, pid)| alive(pid)))
}

/// Removes the lock file of a server that is proved dead although its pid is alive, as somebody else.
pub(super) fn remove_stale_lock(directory: &Path, dead: u32, account: &Account) -> Result<(), ClusterError> {
    if !directory.exists() || !is_private(directory, account)? {
        return Ok(());
    }
    for (lock, pid) in locks(directory)? {
        if pid == dead {
            fs::remove_file(&lock).map_err(ClusterError::io("remove the stale", &lock))?;
        }
    }
    Ok(())
}

/// The lock files beside sockets in a directory, and the process that each names.
fn locks(directory: &Path) -> Result<Vec<(PathBuf, u32)>, ClusterError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(ClusterError::io("read", directory))? {
        let path = entry.map_err(ClusterError::io("read", directory))?.path();
        if path.extension().is_some_and(|extension| extension == "lock") {
            let text = fs::read_to_string(&path).map_err(ClusterError::io("read", &path))?;
            found.extend(text.lines().next().and_then(|line| line.trim().parse().ok()).map(|pid| (path, pid)));
        }
    }
    Ok(found)
}
