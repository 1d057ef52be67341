//! Who runs PostgreSQL. initdb and postgres refuse root, so root steps down to an unprivileged account; everybody else
//! stays who they are.
//!
//! Must never: hand our environment (it may hold secrets) to the other account, or guess what that account may reach:
//! the kernel is asked.

use std::fmt;
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::ClusterError;

/// Accounts that root steps down to for a new cluster, in order.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];
/// What the programs keep of our environment. Everything else is dropped, above all libpq's and the server's `PG*`
/// variables, which would redirect them, and systemd's `LISTEN_*`.
const KEPT_ENVIRONMENT: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "TZ"];

/// The account that owns the cluster and runs its programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    uid: u32,
    gid: u32,
    name: String,
    /// We are root and must become this account; otherwise we are it.
    step_down: bool,
}

impl Account {
    /// The account for a cluster that does not exist yet.
    pub(super) fn of_new_cluster() -> Result<Account, ClusterError> {
        let (uid, gid) = ourselves()?;
        let users = users()?;
        if uid != 0 {
            return Ok(Account { uid, gid, name: name_of(&users, uid), step_down: false });
        }
        let found = UNPRIVILEGED.iter().find_map(|name| users.iter().find(|user| user.name == *name && user.uid != 0));
        match found {
            Some(user) => Ok(Account { uid: user.uid, gid: user.gid, name: user.name.clone(), step_down: true }),
            None => Err(ClusterError::new(
                "PostgreSQL refuses to run as root, and /etc/passwd has neither a user `postgres` nor `nobody`: \
                 run taskstats as an ordinary user",
            )),
        }
    }

    /// The account of an existing cluster: PostgreSQL runs as the owner of its directory or not at all.
    pub(super) fn of_cluster(owner: u32, group: u32, pgdata: &Path) -> Result<Account, ClusterError> {
        let (uid, gid) = ourselves()?;
        let users = users()?;
        if owner == 0 {
            return Err(ClusterError::new(format_args!(
                "{} belongs to root, as whom PostgreSQL refuses to run: give it to an ordinary user with chown -R",
                pgdata.display()
            )));
        }
        if uid == owner {
            return Ok(Account { uid, gid, name: name_of(&users, uid), step_down: false });
        }
        if uid != 0 {
            return Err(ClusterError::new(format_args!(
                "{} belongs to user {}, we are {}: run it as that user, or choose another directory with --data",
                pgdata.display(),
                name_of(&users, owner),
                name_of(&users, uid)
            )));
        }
        let gid = users.iter().find(|user| user.uid == owner).map_or(group, |user| user.gid);
        Ok(Account { uid: owner, gid, name: name_of(&users, owner), step_down: true })
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    /// A command that runs as this account, with a clean environment, English messages, no input, and a working
    /// directory that everybody can enter. Supplementary groups are given up with the uid (std calls setgroups).
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().current_dir("/").stdin(Stdio::null());
        for name in KEPT_ENVIRONMENT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("LC_ALL", "C");
        if self.step_down {
            command.gid(self.gid).uid(self.uid);
        }
        command
    }

    /// Whether this account may enter the directory. Asked by doing it: permission bits alone do not tell (ACLs, root
    /// squashing, security modules).
    pub(super) fn can_enter(&self, directory: &Path) -> Result<bool, ClusterError> {
        if !self.step_down {
            return Ok(true);
        }
        let status = self
            .command("/bin/sh")
            .args(["-c", "cd -- \"$1\"", "sh"])
            .arg(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|error| {
                ClusterError::new(format_args!(
                    "cannot run anything as user {self}: {error}: run taskstats as an ordinary user"
                ))
            })?;
        Ok(status.success())
    }

    /// Gives a file system object that we just created to this account.
    pub(super) fn give(&self, path: &Path) -> Result<(), ClusterError> {
        if self.step_down {
            lchown(path, Some(self.uid), Some(self.gid))
                .map_err(ClusterError::io("give to the unprivileged user", path))?;
        }
        Ok(())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Our own uid and gid, from the kernel's own book-keeping.
fn ourselves() -> Result<(u32, u32), ClusterError> {
    let metadata = fs::metadata("/proc/self").map_err(ClusterError::io("look at", "/proc/self"))?;
    Ok((metadata.uid(), metadata.gid()))
}

/// One line of /etc/passwd.
struct User {
    name: String,
    uid: u32,
    gid: u32,
}

fn users() -> Result<Vec<User>, ClusterError> {
    let text = fs::read("/etc/passwd").map_err(ClusterError::io("read", "/etc/passwd"))?;
    Ok(parse_passwd(&String::from_utf8_lossy(&text)))
}

/// Lines that are not `name:password:uid:gid:…` are none of ours.
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

fn name_of(users: &[User], uid: u32) -> String {
    users.iter().find(|user| user.uid == uid).map_or_else(|| format!("with uid {uid}"), |user| user.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwd_lines_are_read_and_others_left_alone() {
        let users = parse_passwd("root:x:0:0:root:/root:/bin/sh\n# note\nbad:x:y:z\n\npg:x:101:104:a,b:/v:/bin/sh\n");
        let seen: Vec<_> = users.iter().map(|u| (u.name.as_str(), u.uid, u.gid)).collect();
        assert_eq!(seen, [("root", 0, 0), ("pg", 101, 104)]);
        assert_eq!(name_of(&users, 101), "pg");
        assert_eq!(name_of(&users, 5), "with uid 5");
    }

    #[test]
    fn a_cluster_of_root_is_refused() {
        let error = Account::of_cluster(0, 0, Path::new("/data/cluster")).unwrap_err().to_string();
        assert!(error.contains("/data/cluster belongs to root"), "{error}");
    }
}
