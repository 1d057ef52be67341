//! What lies where in a data directory:
//!
//! | path | what |
//! |---|---|
//! | `DIR/cluster` | PGDATA, or a symbolic link to it (see [`super::initdb`]) |
//! | `DIR/cluster.new-*` | the same while initdb is at work; a left-over when no start is under way |
//! | `DIR/cluster/postgresql.log` | the server's log, written by the server's own account |
//!
//! Must never: call a directory ours that holds anything else, or change a directory that it did not create.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::ClusterError;

/// The server's log, in PGDATA: there its own account writes it, without root opening files for somebody else.
pub(super) const LOG: &str = "postgresql.log";
/// initdb's mark of a cluster, which names the major version that made it.
const VERSION: &str = "PG_VERSION";
const CLUSTER: &str = "cluster";
const FRESH: &str = "cluster.new-";
/// What a new file system brings along.
const LOST_AND_FOUND: &str = "lost+found";

/// The paths of one data directory.
#[derive(Debug)]
pub(super) struct Layout {
    data: PathBuf,
}

impl Layout {
    /// The layout of `data`, made absolute. The directory need not exist, but must be one if it does.
    pub(super) fn new(data: &Path) -> Result<Layout, ClusterError> {
        let data = std::path::absolute(data).map_err(ClusterError::io("make absolute the path", data))?;
        match fs::metadata(&data) {
            Ok(found) if !found.is_dir() => Err(ClusterError::new(format_args!(
                "{} is not a directory: choose another one with --data",
                data.display()
            ))),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ClusterError::io("look at", &data)(error)),
            _ => Ok(Layout { data }),
        }
    }

    /// The data directory, absolute.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    pub(super) fn pgdata(&self) -> PathBuf {
        self.data.join(CLUSTER)
    }

    /// Where one run of initdb works before its result gets its name. No two runs share it: an initdb whose taskstats
    /// was killed may go on writing for a moment.
    pub(super) fn fresh(&self, run: &str) -> PathBuf {
        self.data.join(format!("{FRESH}{run}"))
    }

    /// PGDATA without links in its path, as the kernel shows it in /proc.
    pub(super) fn real_pgdata(&self) -> Result<PathBuf, ClusterError> {
        let pgdata = self.pgdata();
        fs::canonicalize(&pgdata).map_err(ClusterError::io("enter", &pgdata))
    }

    /// Creates the data directory, with its parents, when it does not exist.
    pub(super) fn create_data(&self) -> Result<(), ClusterError> {
        fs::create_dir_all(&self.data).map_err(ClusterError::io("create", &self.data))
    }

    /// Uid and gid of PGDATA's owner; None when there is no cluster yet.
    ///
    /// # Errors
    /// What bears its name is not a cluster.
    pub(super) fn cluster_owner(&self) -> Result<Option<(u32, u32)>, ClusterError> {
        let pgdata = self.pgdata();
        match fs::symlink_metadata(&pgdata) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ClusterError::io("look at", &pgdata)(error)),
            Ok(_) => {}
        }
        match fs::metadata(&pgdata) {
            // A cluster that we may not look into is one: its owner is all we can tell.
            Ok(found) => match fs::metadata(pgdata.join(VERSION)) {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(not_a_cluster(&pgdata)),
                _ => Ok(Some((found.uid(), found.gid()))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ClusterError::new(format_args!(
                "the link {0} points to {1}, which is gone: bring that back, or remove the link to begin with an \
                 empty cluster",
                pgdata.display(),
                fs::read_link(&pgdata).unwrap_or_default().display()
            ))),
            Err(error) => Err(ClusterError::io("look at", &pgdata)(error)),
        }
    }

    /// The major version that made the cluster, from its PG_VERSION; None when there is no cluster yet.
    pub(super) fn cluster_version(&self) -> Result<Option<String>, ClusterError> {
        if self.cluster_owner()?.is_none() {
            return Ok(None);
        }
        let file = self.pgdata().join(VERSION);
        let version = fs::read_to_string(&file).map_err(ClusterError::io("read", &file))?;
        Ok(Some(version.trim().to_owned()))
    }

    /// What interrupted runs of initdb left in a data directory that has no cluster.
    ///
    /// # Errors
    /// Something else is in it: then it is not ours. Names it.
    pub(super) fn left_overs(&self) -> Result<Vec<PathBuf>, ClusterError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.data).map_err(ClusterError::io("read", &self.data))? {
            let entry = entry.map_err(ClusterError::io("read", &self.data))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(FRESH) {
                found.push(entry.path());
            } else if name != LOST_AND_FOUND {
                return Err(ClusterError::new(format_args!(
                    "{} is not a data directory of taskstats, it contains {name}: name an empty or a new directory \
                     with --data",
                    self.data.display()
                )));
            }
        }
        Ok(found)
    }
}

fn not_a_cluster(pgdata: &Path) -> ClusterError {
    ClusterError::new(format_args!(
        "{} is not a PostgreSQL cluster (it has no file {VERSION}): choose another directory with --data",
        pgdata.display()
    ))
}
