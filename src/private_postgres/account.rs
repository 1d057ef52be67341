//! The account that runs PostgreSQL. initdb and postgres refuse root, so root runs them as an unprivileged account; every
//! other user runs them under its own account.
//!
//! Never gives the environment of this process (it may hold secrets) to the other account, and never infers from
//! permission bits what that account can reach.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Error, Result};

/// Accounts that root uses for a new PGDATA, in order of preference.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];
/// The environment variables that the programs get. The server's and libpq's `PG*` would redirect them, and systemd's
/// `LISTEN_*` are for this process.
const KEPT_ENVIRONMENT: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "TZ"];

/// The account that owns PGDATA and runs PostgreSQL's programs.
#[derive(Debug)]
pub(super) struct Account {
    user: User,
    /// This process runs as root, and its programs change to the account.
    switch: bool,
}

#[derive(Debug, Clone)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    /// The account for a new PGDATA.
    pub(super) fn of_new() -> Result<Account> {
        let (uid, gid) = ourselves()?;
        let users = users()?;
        if uid != 0 {
            return Ok(Account { user: user(&users, uid, gid), switch: false });
        }
        let found = UNPRIVILEGED.iter().find_map(|name| users.iter().find(|user| user.name == *name && user.uid != 0));
        let user = found.cloned().ok_or_else(|| {
            error!(
                "PostgreSQL refuses to run as root, and /etc/passwd has neither a user `postgres` nor `nobody`: run \
                 taskstats as an ordinary user"
            )
        })?;
        Ok(Account { user, switch: true })
    }

    /// The account of an existing PGDATA: PostgreSQL runs as its owner only.
    pub(super) fn of_owner(uid: u32, gid: u32, pgdata: &Path) -> Result<Account> {
        let (own_uid, own_gid) = ourselves()?;
        let users = users()?;
        let owner = user(&users, uid, gid);
        let pgdata = pgdata.display();
        if uid == 0 {
            return Err(error!(
                "{pgdata} belongs to root, as whom PostgreSQL refuses to run: give it to an ordinary user with chown -R"
            ));
        }
        if own_uid != 0 && own_uid != uid {
            return Err(error!(
                "{pgdata} belongs to user {}, we are {}: run it as that user, or choose another directory with --data",
                owner.name,
                user(&users, own_uid, own_gid).name
            ));
        }
        Ok(Account { user: owner, switch: own_uid == 0 })
    }

    pub(super) fn uid(&self) -> u32 {
        self.user.uid
    }

    /// A command that runs as this account, with a small environment, English messages, no input, and a working directory
    /// that every account can enter. With the uid go the supplementary groups (std calls setgroups).
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().current_dir("/").stdin(Stdio::null());
        for name in KEPT_ENVIRONMENT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("LC_ALL", "C");
        if self.switch {
            command.gid(self.user.gid).uid(self.user.uid);
        }
        command
    }

    /// The result of the shell's `test` under this account.
    pub(super) fn test(&self, arguments: &[&OsStr]) -> Result<bool> {
        let mut command = self.command("/bin/sh");
        command.args(["-c", "test \"$@\"", "sh"]).args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        command
            .status()
            .map(|status| status.success())
            .map_err(|error| error!("cannot run /bin/sh as user {self}: {error}: run taskstats as an ordinary user"))
    }

    /// Whether this account can enter the directory. The kernel decides: permission bits do not show ACLs, root squashing
    /// and security modules.
    pub(super) fn can_enter(&self, directory: &Path) -> Result<bool> {
        if !self.switch {
            return Ok(true);
        }
        self.test(&["-x".as_ref(), directory.as_os_str()])
    }

    /// Gives a file that this process has just created to this account.
    pub(super) fn give(&self, path: &Path) -> Result<()> {
        if self.switch {
            lchown(path, Some(self.user.uid), Some(self.user.gid))
                .map_err(Error::io("give to the unprivileged user", path))?;
        }
        Ok(())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.user.name)
    }
}

/// Uid and gid of this process.
fn ourselves() -> Result<(u32, u32)> {
    let metadata = fs::metadata("/proc/self").map_err(Error::io("look at", "/proc/self"))?;
    Ok((metadata.uid(), metadata.gid()))
}

fn users() -> Result<Vec<User>> {
    let text = fs::read("/etc/passwd").map_err(Error::io("read", "/etc/passwd"))?;
    Ok(parse_passwd(&String::from_utf8_lossy(&text)))
}

/// Ignores lines that are not `name:password:uid:gid:…`.
fn parse_passwd(text: &str) -> Vec<User> {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(User { name, uid, gid })
    };
    text.lines().filter_map(user).collect()
}

/// The user with this uid; `gid` is its group if /etc/passwd does not list it.
fn user(users: &[User], uid: u32, gid: u32) -> User {
    let found = users.iter().find(|user| user.uid == uid).cloned();
    found.unwrap_or_else(|| User { name: format!("with uid {uid}"), uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_lines_are_read_and_others_ignored() {
        let users = parse_passwd("root:x:0:0:root:/root:/bin/sh\n# note\nbad:x:y:z\n\npg:x:101:104:a,b:/v:/bin/sh\n");
        let seen: Vec<_> = users.iter().map(|u| (u.name.as_str(), u.uid, u.gid)).collect();
        assert_eq!(seen, [("root", 0, 0), ("pg", 101, 104)]);
        assert_eq!((user(&users, 101, 7).name.as_str(), user(&users, 101, 7).gid), ("pg", 104));
        assert_eq!((user(&users, 5, 7).name.as_str(), user(&users, 5, 7).gid), ("with uid 5", 7));
    }

    #[test]
    fn a_directory_of_root_is_refused() {
        let error = Account::of_owner(0, 0, Path::new("/data/cluster")).unwrap_err().to_string();
        assert!(error.contains("/data/cluster belongs to root"), "{error}");
    }
}
