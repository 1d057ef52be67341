//! The directory of the server's Unix socket. A socket's path is limited to 107 bytes and a data directory's path may be
//! longer, so it lies in /tmp under a short name.
//!
//! Never gives the server a directory that another account can enter: the socket asks for no password, and only the
//! directory's owner and mode protect it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::account::Account;
use super::{Error, Result};
use crate::limits::PG_SOCKET_DIRECTORIES;

/// Always PostgreSQL's default, whatever its configuration says: it is a part of the socket's name.
pub(super) const PORT: u16 = 5432;
const PARENT: &str = "/tmp";
const PREFIX: &str = "taskstats-pg-";

/// A directory that only `account` can enter, for the socket of the server of `pgdata`, which does not run: always the
/// first of its names, unless another account has taken that name, or another server uses it (one whose PGDATA was deleted while it
/// ran).
pub(super) fn private_directory(pgdata: &Path, account: &Account) -> Result<PathBuf> {
    // Device and inode are shorter than a path, and stay when it is renamed.
    let found = fs::metadata(pgdata).map_err(Error::io("look at", pgdata))?;
    let name = format!("{PARENT}/{PREFIX}{:x}-{:x}", found.dev(), found.ino());
    for number in 0..PG_SOCKET_DIRECTORIES {
        let directory = PathBuf::from(format!("{name}-{number}"));
        if make_usable(&directory, account)? {
            return Ok(directory);
        }
    }
    Err(error!("each of {name}-* is in use or does not belong to user {account} alone: remove them"))
}

/// Removes the empty directory after a stop, if it is one of ours. A failure leaves an empty directory, not an error.
pub(super) fn remove_directory(directory: &Path) {
    let name = directory.file_name().and_then(|name| name.to_str());
    if directory.parent() == Some(Path::new(PARENT)) && name.is_some_and(|name| name.starts_with(PREFIX)) {
        let _ = fs::remove_dir(directory);
    }
}

/// Creates the directory, or removes the lock of a dead server from it. False when it cannot be used.
fn make_usable(directory: &Path, account: &Account) -> Result<bool> {
    match DirBuilder::new().mode(0o700).create(directory) {
        // Only its owner can replace a directory in /tmp, and until now that is this process.
        Ok(()) => return account.give(directory).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create", directory)(error)),
    }
    let found = fs::symlink_metadata(directory).map_err(Error::io("look at", directory))?;
    let private = found.is_dir() && found.uid() == account.uid() && found.mode() & 0o777 == 0o700;
    let socket = directory.join(format!(".s.PGSQL.{PORT}"));
    if !private || UnixStream::connect(&socket).is_ok() {
        return Ok(false);
    }
    // The pid in the lock file may belong to another process by now: PostgreSQL would not start.
    let lock = directory.join(format!(".s.PGSQL.{PORT}.lock"));
    match fs::remove_file(&lock) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove the stale", &lock)(error)),
        _ => Ok(true),
    }
}
