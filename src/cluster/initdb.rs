//! Making a new cluster: initdb works under another name, and a rename makes its result the cluster. So a cluster
//! exists wholly or not at all, wherever the process is killed.
//!
//! As root, when the unprivileged account cannot enter the data directory (below /root, say), the cluster is made in
//! /var/lib/taskstats instead and `DIR/cluster` becomes a symbolic link to it.
//!
//! Must never: run without the lock, or delete anything but what an interrupted run of itself left behind.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;
use std::thread;
use std::time::Instant;

use super::account::Account;
use super::layout::Layout;
use super::programs::Programs;
use super::{ClusterError, ORPHAN_PATIENCE, POLL};
use crate::log;

/// Home of clusters whose data directory their account cannot reach.
const SHARED_HOME: &str = "/var/lib/taskstats";

/// UTF8 because texts are any Unicode string; locale C because ids are sorted bytewise. Trust is for the Unix socket
/// alone, which lies in a directory nobody else can enter; TCP is refused should somebody switch it on.
const OPTIONS: [&str; 5] =
    ["--username=postgres", "--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject"];

/// Makes the cluster of a data directory that has none. The caller holds the directory's lock.
pub(super) fn create_cluster(layout: &Layout, programs: &Programs, account: &Account) -> Result<(), ClusterError> {
    for left_over in layout.left_overs()? {
        remove_left_over(&left_over)?;
    }
    let run = random_name()?;
    let fresh = layout.fresh(&run);
    if account.can_enter(layout.data())? {
        create_private_directory(&fresh, account)?;
    } else {
        let home = shared_home(account)?.join(&run);
        // The link first: an interruption after it leaves nothing that the next start does not find.
        symlink(&home, &fresh).map_err(ClusterError::io("create the link", &fresh))?;
        create_private_directory(&home, account)?;
        log::line(format_args!(
            "user {account} cannot enter {}: the cluster is created in {}, and {} links to it",
            layout.data().display(),
            home.display(),
            layout.pgdata().display()
        ));
    }
    let outcome = run_initdb(&fresh, programs, account).and_then(|()| {
        fs::rename(&fresh, layout.pgdata()).map_err(ClusterError::io("give its name to", &fresh))?;
        // The name must survive a power cut, as initdb's own files do.
        File::open(layout.data()).and_then(|dir| dir.sync_all()).map_err(ClusterError::io("sync", layout.data()))
    });
    if outcome.is_err() {
        // The first error is the one to tell; what cannot be removed now is removed by the next start.
        let _ = remove_left_over(&fresh);
    }
    outcome
}

fn run_initdb(fresh: &Path, programs: &Programs, account: &Account) -> Result<(), ClusterError> {
    let pgdata = fs::canonicalize(fresh).map_err(ClusterError::io("enter", fresh))?;
    let output = account.command(programs.initdb()).arg("-D").arg(&pgdata).args(OPTIONS).output().map_err(|error| {
        ClusterError::new(format_args!("cannot run {} as user {account}: {error}", programs.initdb().display()))
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(ClusterError::new(format_args!("initdb failed in {}: {}", pgdata.display(), reason(&output))))
}

/// The first line that tells an error: what follows are its consequences and how initdb cleans up.
fn reason(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tells = |line: &&str| ["error:", "FATAL:", "PANIC:"].iter().any(|mark| line.contains(mark));
    match lines().find(tells).or_else(|| lines().next_back()) {
        Some(line) => line.to_owned(),
        None => format!("it ended with {} and said nothing", output.status),
    }
}

/// A new directory of the account's own.
fn create_private_directory(path: &Path, account: &Account) -> Result<(), ClusterError> {
    DirBuilder::new().mode(0o700).create(path).map_err(ClusterError::io("create", path))?;
    account.give(path)
}

/// [`SHARED_HOME`], created when missing.
fn shared_home(account: &Account) -> Result<&'static Path, ClusterError> {
    let home = Path::new(SHARED_HOME);
    match DirBuilder::new().create(home) {
        // Ours, so its mode is ours to choose, whatever the umask.
        Ok(()) => fs::set_permissions(home, Permissions::from_mode(0o755))
            .map_err(ClusterError::io("set the permissions of", home))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(ClusterError::io("create", home)(error)),
    }
    let found = fs::symlink_metadata(home).map_err(ClusterError::io("look at", home))?;
    if !found.is_dir() || found.uid() != 0 || !account.can_enter(home)? {
        return Err(ClusterError::new(format_args!(
            "{SHARED_HOME} is not a directory of root that user {account} can enter: choose a data directory that \
             this user can enter with --data"
        )));
    }
    Ok(home)
}

/// 16 random hexadecimal digits.
pub(super) fn random_name() -> Result<String, ClusterError> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(ClusterError::io("read", "/dev/urandom"))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}

/// Removes what an interrupted initdb left: a directory, or a link of ours into [`SHARED_HOME`] with its target.
fn remove_left_over(fresh: &Path) -> Result<(), ClusterError> {
    let found = match fs::symlink_metadata(fresh) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(ClusterError::io("look at", fresh))?,
    };
    if !found.is_symlink() {
        return remove_tree(fresh);
    }
    let target = fs::read_link(fresh).map_err(ClusterError::io("read the link", fresh))?;
    // Somebody else's link could make root delete somebody's cluster.
    if found.uid() != 0 || target.parent() != Some(Path::new(SHARED_HOME)) {
        return Err(ClusterError::new(format_args!(
            "{} is a link that taskstats did not make: remove it, or choose another directory with --data",
            fresh.display()
        )));
    }
    remove_tree(&target)?;
    fs::remove_file(fresh).map_err(ClusterError::io("remove the left-over", fresh))
}

/// An initdb whose taskstats was killed writes until it next wants to say something: it may fill a directory that is
/// being emptied.
fn remove_tree(directory: &Path) -> Result<(), ClusterError> {
    let deadline = Instant::now() + ORPHAN_PATIENCE;
    loop {
        match fs::remove_dir_all(directory) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && Instant::now() < deadline => {
                thread::sleep(POLL);
            }
            Err(error) => return Err(ClusterError::io("remove the left-over", directory)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn said(stderr: &str) -> String {
        reason(&Output { status: ExitStatus::from_raw(256), stdout: Vec::new(), stderr: stderr.into() })
    }

    #[test]
    fn the_reason_is_the_first_error_or_the_last_line() {
        let full = "running bootstrap script ... FATAL:  could not write: No space left on device\n\
                    PANIC:  cannot abort transaction 1, it was already committed\nAborted\n\
                    initdb: removing contents of data directory \"/d\"\n";
        assert_eq!(said(full), "running bootstrap script ... FATAL:  could not write: No space left on device");
        assert_eq!(said("first\nlast\n"), "last");
        assert_eq!(said(""), "it ended with exit status: 1 and said nothing");
    }

    #[test]
    fn a_link_of_somebody_else_is_never_followed() {
        let dir = std::env::temp_dir().join(format!("taskstats-left-over-{}", std::process::id()));
        let victim = dir.join("victim");
        fs::create_dir_all(&victim).unwrap();
        let link = dir.join("cluster.new-1");
        symlink(&victim, &link).unwrap();
        let outcome = remove_left_over(&link);
        let survived = victim.is_dir();
        fs::remove_dir_all(&dir).unwrap();
        assert!(survived && outcome.unwrap_err().to_string().contains("did not make"));
    }
}
