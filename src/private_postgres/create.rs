//! Making a new PGDATA: initdb and the database `taskstats` under another name, then a rename. So PGDATA exists completely
//! or not at all, at whatever moment the process is killed.
//!
//! When root's unprivileged account cannot enter the data directory (below /root, for example), PGDATA is made in
//! /var/lib/taskstats and `DIR/cluster` is a symbolic link to it. PostgreSQL changes to the absolute path of PGDATA under
//! its own account, so a path that only root can walk is of no use to it.
//!
//! Never runs without the lock, and never deletes anything except what an interrupted run left behind.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::UNIX_EPOCH;

use super::account::Account;
use super::programs::Programs;
use super::{Error, PGDATA, Result, poll};
use crate::limits::PG_ORPHAN_TIMEOUT;
use crate::log;

/// Prefix of a PGDATA in the making. No two runs have the same name: an initdb whose taskstats was killed writes on for a
/// moment.
const FRESH: &str = "cluster.new-";
/// Parent of each PGDATA whose data directory its account cannot enter.
const SHARED_HOME: &str = "/var/lib/taskstats";
/// Every new file system has it.
const LOST_AND_FOUND: &str = "lost+found";

/// UTF8 because texts are any Unicode string; locale C because ids are sorted bytewise. Trust is for the Unix socket,
/// which lies in a directory that no other account can enter; TCP is rejected even if a user switches it on.
const INITDB_OPTIONS: [&str; 5] =
    ["--username=postgres", "--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject"];

/// Makes the PGDATA of a data directory that has none. The caller holds the directory's lock.
pub(super) fn create(data: &Path, programs: &Programs, account: &Account) -> Result<()> {
    for left_over in left_overs(data)? {
        remove_left_over(&left_over)?;
    }
    let run = format!("{:x}", UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos()));
    let fresh = data.join(format!("{FRESH}{run}"));
    if account.can_enter(data)? {
        create_private_directory(&fresh, account)?;
    } else {
        let home = shared_home(account)?.join(&run);
        // The link first: the next start finds whatever an interruption leaves.
        symlink(&home, &fresh).map_err(Error::io("create the link", &fresh))?;
        create_private_directory(&home, account)?;
        let (data, home) = (data.display(), home.display());
        log::line(format_args!(
            "user {account} cannot enter {data}: the private PostgreSQL is created in {home}, and {data}/{PGDATA} links to it"
        ));
    }
    let outcome = fill(&fresh, programs, account).and_then(|()| {
        fs::rename(&fresh, data.join(PGDATA)).map_err(Error::io("rename", &fresh))?;
        // The name must survive a power cut, as initdb's own files do.
        File::open(data).and_then(|dir| dir.sync_all()).map_err(Error::io("sync", data))
    });
    if outcome.is_err() {
        // The first error is reported; the next start removes what cannot be removed now.
        let _ = remove_left_over(&fresh);
    }
    outcome
}

/// What interrupted runs left in a data directory without PGDATA.
///
/// # Errors
/// It has another entry, which the error names: then it is not a data directory of taskstats.
fn left_overs(data: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data).map_err(Error::io("read", data))? {
        let entry = entry.map_err(Error::io("read", data))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(FRESH) {
            found.push(entry.path());
        } else if name != LOST_AND_FOUND {
            return Err(error!(
                "{} is not a data directory of taskstats, it contains {name}: name an empty or a new directory with \
                 --data",
                data.display()
            ));
        }
    }
    Ok(found)
}

/// Runs initdb in the directory, and creates the database with the server's single-user mode.
fn fill(fresh: &Path, programs: &Programs, account: &Account) -> Result<()> {
    let pgdata = fs::canonicalize(fresh).map_err(Error::io("enter", fresh))?;
    let mut initdb = account.command(programs.initdb());
    run(initdb.arg("-D").arg(&pgdata).args(INITDB_OPTIONS), "", &pgdata, account)?;
    let mut postgres = account.command(programs.postgres());
    postgres.args(["--single", "-c", "exit_on_error=on", "-D"]).arg(&pgdata).arg("postgres");
    run(&mut postgres, "CREATE DATABASE taskstats TEMPLATE template0\n", &pgdata, account)
}

fn run(command: &mut Command, input: &str, pgdata: &Path, account: &Account) -> Result<()> {
    let program = PathBuf::from(command.get_program());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.spawn().and_then(|mut child| {
        // A program that ends without reading its input prints why: that is the error to report.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        child.wait_with_output()
    });
    let output = output.map_err(|error| error!("cannot run {} as user {account}: {error}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(error!(
        "{} failed in {}: {}",
        program.file_name().unwrap_or_default().to_string_lossy(),
        pgdata.display(),
        reason(&output)
    ))
}

/// The first line with an error. The lines after it are its consequences, and initdb's removal of its files.
fn reason(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_error = |line: &&str| ["error:", "ERROR:", "FATAL:", "PANIC:"].iter().any(|mark| line.contains(mark));
    match lines().find(is_error).or_else(|| lines().next_back()) {
        Some(line) => line.to_owned(),
        None => format!("it ended with {} and no message", output.status),
    }
}

fn create_private_directory(path: &Path, account: &Account) -> Result<()> {
    DirBuilder::new().mode(0o700).create(path).map_err(Error::io("create", path))?;
    account.give(path)
}

/// [`SHARED_HOME`], created when missing.
fn shared_home(account: &Account) -> Result<&'static Path> {
    let home = Path::new(SHARED_HOME);
    match DirBuilder::new().create(home) {
        // Whatever the umask.
        Ok(()) => fs::set_permissions(home, Permissions::from_mode(0o755))
            .map_err(Error::io("set the permissions of", home))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::io("create", home)(error)),
    }
    let found = fs::symlink_metadata(home).map_err(Error::io("look at", home))?;
    if !found.is_dir() || found.uid() != 0 || !account.can_enter(home)? {
        return Err(error!(
            "{SHARED_HOME} is not a directory of root that user {account} can enter: choose a data directory that \
             this user can enter with --data"
        ));
    }
    Ok(home)
}

/// Removes what an interrupted run left: a directory, or a link into [`SHARED_HOME`] with its target.
fn remove_left_over(fresh: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(fresh) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(Error::io("look at", fresh))?,
    };
    if !found.is_symlink() {
        return remove_tree(fresh);
    }
    let target = fs::read_link(fresh).map_err(Error::io("read the link", fresh))?;
    // Through a foreign link root would delete foreign data.
    if found.uid() != 0 || target.parent() != Some(Path::new(SHARED_HOME)) {
        return Err(error!(
            "{} is a link that taskstats did not make: remove it, or choose another directory with --data",
            fresh.display()
        ));
    }
    remove_tree(&target)?;
    fs::remove_file(fresh).map_err(Error::io("remove the left-over", fresh))
}

/// Tries again while an initdb whose taskstats was killed still creates files: it ends with its next message.
fn remove_tree(directory: &Path) -> Result<()> {
    let error = Error::io("remove the left-over", directory);
    let outcome = poll(PG_ORPHAN_TIMEOUT, || match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Ok(()))),
        outcome => Ok(Some(outcome)),
    })?;
    outcome.unwrap_or_else(|| Err(io::ErrorKind::DirectoryNotEmpty.into())).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn reason_of(stderr: &str) -> String {
        reason(&Output { status: ExitStatus::from_raw(256), stdout: Vec::new(), stderr: stderr.into() })
    }

    #[test]
    fn the_reason_is_the_first_error_or_the_last_line() {
        let full = "running bootstrap script ... FATAL:  could not write: No space left on device\n\
                    PANIC:  cannot abort transaction 1, it was already committed\nAborted\n\
                    initdb: removing contents of data directory \"/d\"\n";
        assert_eq!(reason_of(full), "running bootstrap script ... FATAL:  could not write: No space left on device");
        assert_eq!(reason_of("first\nlast\n"), "last");
        assert_eq!(reason_of(""), "it ended with exit status: 1 and no message");
    }

    #[test]
    fn a_foreign_link_is_never_followed() {
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
