//! The directory of the internal socket: fresh, ours alone (0700), with a name nobody can foresee, and gone when the
//! server is. Must never be shared or reused; what processes that were killed left behind is cleared away.

use std::env;
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process;

use crate::limits::{SOCKET_PATH_BYTES, SWEEP_AGE};

const PREFIX: &str = "taskstats-http-";
const SOCKET: &str = "http";

/// A directory for one socket; dropping it removes both.
pub struct PrivateDir {
    path: PathBuf,
}

impl PrivateDir {
    /// Makes the directory where sockets live for a while: the user's runtime directory, else a temporary one.
    pub fn create() -> io::Result<PrivateDir> {
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let places = runtime.into_iter().chain([env::temp_dir(), PathBuf::from("/tmp")]);
        let mut fault = io::Error::from(ErrorKind::NotFound);
        for place in places {
            sweep(&place);
            match Self::create_in(&place) {
                Ok(made) => return Ok(made),
                Err(e) => {
                    fault = io::Error::new(e.kind(), format!("no directory for a socket in {}: {e}", place.display()))
                }
            }
        }
        Err(fault)
    }

    fn create_in(place: &Path) -> io::Result<PrivateDir> {
        // Every RandomState is seeded afresh, so its hash of nothing is a random number.
        let name = format!("{PREFIX}{}-{:016x}", process::id(), RandomState::new().hash_one(()));
        let path = place.join(name);
        if path.join(SOCKET).as_os_str().len() >= SOCKET_PATH_BYTES {
            return Err(io::Error::new(ErrorKind::InvalidInput, "the path is too long for a socket"));
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        // Only now: dropping it removes what is there, and that must be ours.
        Ok(PrivateDir { path })
    }

    /// Where the socket belongs.
    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }
}

/// Removes what a killed process left in `place`: directories with our name whose socket nobody answers. Whether a process
/// lives is asked of its socket, since in another PID namespace its number would say nothing.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        // A young one may be about to listen.
        let old =
            |dir: &Path| fs::metadata(dir).and_then(|m| m.modified()).ok()?.elapsed().ok().map(|age| age > SWEEP_AGE);
        let socket = path.join(SOCKET);
        if ours && old(&path) == Some(true) {
            let refused = UnixStream::connect(&socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
            if refused {
                // Another process may be sweeping, too, and those of other users are theirs.
                let _ = fs::remove_file(&socket).and_then(|()| fs::remove_dir(&path));
            }
        }
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // tiny_http removes its socket itself; what cannot be removed harms nobody.
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::time::SystemTime;

    #[test]
    fn every_directory_is_fresh_private_and_short_lived() {
        let (one, two) = (PrivateDir::create().expect("one"), PrivateDir::create().expect("two"));
        assert_ne!(one.path, two.path);
        let mode = fs::metadata(&one.path).expect("it exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(one.socket(), "").expect("a file in it");
        let path = one.path.clone();
        drop(one);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_process_left_is_swept_and_what_lives_is_not() {
        let place = PrivateDir::create().expect("a place");
        let [dead, alive, young] = ["dead", "alive", "young"].map(|name| place.path.join(format!("{PREFIX}{name}")));
        for dir in [&dead, &alive, &young] {
            fs::create_dir(dir).expect("fresh");
        }
        drop(UnixListener::bind(dead.join(SOCKET)).expect("a socket that stays behind"));
        drop(UnixListener::bind(young.join(SOCKET)).expect("another"));
        let listener = UnixListener::bind(alive.join(SOCKET)).expect("a socket");
        let long_ago = SystemTime::now() - 2 * SWEEP_AGE;
        for dir in [&dead, &alive] {
            fs::File::open(dir).and_then(|dir| dir.set_modified(long_ago)).expect("may be backdated");
        }
        sweep(&place.path);
        assert_eq!([dead.exists(), alive.exists(), young.exists()], [false, true, true]);
        drop(listener);
        fs::remove_dir_all(&place.path).expect("cleared away");
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_before_it_is_made() {
        let place = env::temp_dir().join("x".repeat(SOCKET_PATH_BYTES));
        let refused = PrivateDir::create_in(&place).err().expect("too long");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
}
