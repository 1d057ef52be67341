//! Finding PostgreSQL's programs: the directories to search, and the major version that fits PGDATA.
//!
//! Never searches another directory than TASKSTATS_PG_BIN when that is set, and never uses another major version than the
//! one that made PGDATA.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::account::Account;
use super::{Error, Result};

/// One directory must have all of them.
const NEEDED: [&str; 3] = ["pg_ctl", "initdb", "postgres"];

/// The directories to search, in order of preference.
#[derive(Debug)]
pub(super) struct Places {
    /// TASKSTATS_PG_BIN: the only directory to search.
    pub(super) pinned: Option<PathBuf>,
    /// PATH.
    pub(super) path: Option<OsString>,
    /// The root of the file system with the packagers' directories; another one in unit tests.
    pub(super) root: PathBuf,
}

impl Places {
    pub(super) fn from_env() -> Places {
        let pinned = env::var_os("TASKSTATS_PG_BIN").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        Places { pinned, path: env::var_os("PATH"), root: PathBuf::from("/") }
    }

    fn directories(&self) -> Vec<PathBuf> {
        if let Some(dir) = &self.pinned {
            return vec![dir.clone()];
        }
        let mut found = Vec::new();
        if let Some(path) = &self.path {
            found.extend(env::split_paths(path).filter(|dir| dir.is_absolute()));
        }
        found.extend(versioned(&self.root.join("usr/lib/postgresql"), ""));
        found.extend(versioned(&self.root.join("usr"), "pgsql-"));
        found.push(self.root.join("usr/local/pgsql/bin"));
        found
    }
}

/// `parent/<prefix><version>/bin`, highest version first.
fn versioned(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_prefix(prefix)?.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort_by(|a, b| b.0.cmp(&a.0));
    found.into_iter().map(|(_, dir)| dir).collect()
}

/// The programs of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Programs {
    dir: PathBuf,
}

impl Programs {
    /// The first complete installation that `account` can reach, of the major version `wanted` if that is given.
    pub(super) fn find(places: &Places, wanted: Option<&str>, account: &Account, data: &Path) -> Result<Programs> {
        let mut out_of_reach = None;
        let mut others = Vec::new();
        for dir in places.directories().into_iter().filter(|dir| is_complete(dir)) {
            if !account.can_enter(&dir)? {
                out_of_reach = Some(dir);
                continue;
            }
            let Some(wanted) = wanted else { return Ok(Programs { dir }) };
            match installed_version(&dir, account) {
                Some(version) if has_major(&version, wanted) => return Ok(Programs { dir }),
                version => others.push(format!("{} in {}", version.as_deref().unwrap_or("unknown"), dir.display())),
            }
        }
        Err(match (wanted, out_of_reach) {
            (Some(wanted), _) if !others.is_empty() => misfit(wanted, &others, data),
            (_, Some(dir)) => error!(
                "user {account}, which runs PostgreSQL for root, cannot enter {}: install PostgreSQL where every user can \
                 reach it, or run taskstats as an ordinary user",
                dir.display()
            ),
            _ => missing(places),
        })
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }

    pub(super) fn pg_ctl(&self) -> PathBuf {
        self.dir.join("pg_ctl")
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }
}

fn misfit(wanted: &str, others: &[String], data: &Path) -> Error {
    error!(
        "the private PostgreSQL in {} was made by PostgreSQL {wanted}, found is only {}: install PostgreSQL {wanted} \
         (apt-get install postgresql-{wanted}) or name its directory in TASKSTATS_PG_BIN",
        data.display(),
        others.join(", ")
    )
}

fn missing(places: &Places) -> Error {
    let place = match &places.pinned {
        Some(dir) => format!("TASKSTATS_PG_BIN={}", dir.display()),
        None => "PATH, /usr/lib/postgresql/*/bin, /usr/pgsql-*/bin or /usr/local/pgsql/bin".to_owned(),
    };
    error!(
        "PostgreSQL's programs pg_ctl, initdb and postgres are not in {place}: install the package `postgresql` \
         (apt-get install postgresql), or name a server of your own with --dsn"
    )
}

fn is_complete(dir: &Path) -> bool {
    let executable = |path: PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    NEEDED.iter().all(|name| executable(dir.join(name)))
}

/// `15.18` of `postgres (PostgreSQL) 15.18 (Debian …)`; None when the program does not print it.
fn installed_version(dir: &Path, account: &Account) -> Option<String> {
    let output = account.command(dir.join("postgres")).arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).split_whitespace().nth(2).map(str::to_owned)
}

/// Whether a version (`15.18`, `17beta1`, `9.6.24`) has the major version of a PG_VERSION (`15`, `17`, `9.6`).
fn has_major(version: &str, major: &str) -> bool {
    version.strip_prefix(major).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A fake file system with installations whose `postgres` only prints its version.
    struct Tree(PathBuf);

    impl Tree {
        fn new(installations: &[(&str, &str)]) -> Tree {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let root = env::temp_dir().join(format!("taskstats-programs-{}-{n}", std::process::id()));
            for (dir, version) in installations {
                fs::create_dir_all(root.join(dir)).unwrap();
                for name in NEEDED {
                    let file = root.join(dir).join(name);
                    fs::write(&file, format!("#!/bin/sh\necho '{name} (PostgreSQL) {version}'\n")).unwrap();
                    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
                }
            }
            Tree(root)
        }

        fn find(&self, pinned: Option<&str>, path: &str, wanted: Option<&str>) -> std::result::Result<String, String> {
            let path = env::join_paths(path.split(':').map(|dir| self.0.join(dir))).unwrap();
            let places = Places { pinned: pinned.map(|dir| self.0.join(dir)), path: Some(path), root: self.0.clone() };
            let account = Account::of_new().unwrap();
            let found = Programs::find(&places, wanted, &account, Path::new("/data"));
            found
                .map(|programs| programs.dir.strip_prefix(&self.0).unwrap().display().to_string())
                .map_err(|error| error.to_string())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_path_comes_first_then_the_highest_packaged_version() {
        let tree = Tree::new(&[("opt/pg", "14.1"), ("usr/lib/postgresql/9.6/bin", "9.6.24")]);
        assert_eq!(tree.find(None, "bin:opt/pg", None).unwrap(), "opt/pg");
        let tree = Tree::new(&[
            ("usr/lib/postgresql/9.6/bin", "9.6.24"),
            ("usr/lib/postgresql/15/bin", "15.18 (Debian)"),
            ("usr/lib/postgresql/9.10/bin", "9.10.0"),
            ("usr/pgsql-17/bin", "17beta1"),
        ]);
        assert_eq!(tree.find(None, "bin", None).unwrap(), "usr/lib/postgresql/15/bin");
        assert_eq!(tree.find(None, "bin", Some("9.6")).unwrap(), "usr/lib/postgresql/9.6/bin");
        assert_eq!(tree.find(None, "bin", Some("17")).unwrap(), "usr/pgsql-17/bin");
    }

    #[test]
    fn an_incomplete_installation_does_not_count() {
        let tree = Tree::new(&[("opt/pg", "16.0"), ("usr/local/pgsql/bin", "15.1")]);
        fs::remove_file(tree.0.join("opt/pg/initdb")).unwrap();
        assert_eq!(tree.find(None, "opt/pg", None).unwrap(), "usr/local/pgsql/bin");
    }

    #[test]
    fn the_named_directory_is_the_only_one_looked_at() {
        let tree = Tree::new(&[("usr/lib/postgresql/15/bin", "15.1"), ("mine", "14.2")]);
        assert_eq!(tree.find(Some("mine"), "bin", None).unwrap(), "mine");
        let error = tree.find(Some("empty"), "bin", None).unwrap_err();
        assert!(error.contains("TASKSTATS_PG_BIN=") && error.contains("apt-get install postgresql"), "{error}");
    }

    #[test]
    fn another_major_version_is_refused() {
        let tree = Tree::new(&[("usr/lib/postgresql/15/bin", "15.1")]);
        let error = tree.find(None, "bin", Some("12")).unwrap_err();
        assert!(error.contains("made by PostgreSQL 12") && error.contains("found is only 15.1 in"), "{error}");
    }

    #[test]
    fn nothing_found_names_the_package() {
        let error = Tree::new(&[]).find(None, "bin", None).unwrap_err();
        assert!(error.contains("apt-get install postgresql") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_version_has_the_major_version_of_pg_version() {
        for (version, major) in [("15.18", "15"), ("9.6.24", "9.6"), ("18devel", "18"), ("17beta1", "17"), ("15", "15")]
        {
            assert!(has_major(version, major), "{version} {major}");
        }
        for (version, major) in [("15.18", "1"), ("9.10.0", "9.1"), ("15.18", "18"), ("", "15")] {
            assert!(!has_major(version, major), "{version} {major}");
        }
    }
}
