//! Memory: what a burst has freed goes back to the system. glibc stands in the way of that twice. It keeps freed memory in
//! arenas, up to eight for each core, and gives back the end of an arena only: one small thing that lives on there keeps all
//! that is free below it. And each thread keeps some of what it freed for itself: with 256 workers that is a piece of
//! thousands of pages. The one place with `unsafe`: no crate has a safe name for malloc_trim().

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// glibc reads its settings here, before main().
const TUNABLES: &str = "GLIBC_TUNABLES";
const NO_CACHES: &str = "glibc.malloc.tcache_count=0";

/// Sees to it that threads keep nothing they freed for themselves: starts this program anew in the same process, with that
/// setting, unless it has it or another one of the kind. To be called before anything is read or begun. Where the program
/// cannot be found any more it goes on as it is: more memory is the only price.
pub fn without_thread_caches() {
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return;
    }
    let mut arguments = env::args_os();
    let start = (tunables_to_set(env::var_os(TUNABLES)), env::current_exe(), arguments.next());
    if let (Some(tunables), Ok(program), Some(name)) = start {
        let _ = Command::new(program).arg0(name).args(arguments).env(TUNABLES, tunables).exec();
    }
}

/// What to add to settings of the user's own; None: nothing, they decide about the caches.
fn tunables_to_set(own: Option<OsString>) -> Option<OsString> {
    let own = own.unwrap_or_default();
    if own.to_string_lossy().contains("glibc.malloc.tcache_count") {
        return None;
    }
    let all = [own.as_os_str(), OsStr::new(NO_CACHES)];
    Some(all[usize::from(own.is_empty())..].join(OsStr::new(":")))
}

/// Gives free pages back, wherever they lie. Takes milliseconds: for moments of rest. Other allocators than glibc's do so on
/// their own account, or not at all.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // The reason is that of the module.
    #[allow(unsafe_code)]
    // SAFETY: malloc_trim() has no preconditions, may be called by any thread, and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    const BYTES: usize = 64 << 20;
    const PIECE: usize = 4000;

    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("in every status");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") * 1024
    }

    #[test]
    fn settings_of_the_user_stay() {
        let set = |own: Option<&str>| tunables_to_set(own.map(OsString::from));
        assert_eq!(set(None), Some(NO_CACHES.into()));
        assert_eq!(set(Some("")), Some(NO_CACHES.into()));
        assert_eq!(set(Some("glibc.malloc.perturb=1")), Some(format!("glibc.malloc.perturb=1:{NO_CACHES}").into()));
        assert_eq!(set(Some("glibc.malloc.tcache_count=7")), None);
    }

    #[test]
    fn what_is_free_below_something_that_lives_goes_back() {
        let burst: Vec<Vec<u8>> = (0..BYTES / PIECE).map(|_| vec![1; PIECE]).collect();
        let lives = vec![1_u8; PIECE];
        drop(burst);
        let kept = resident();
        give_back();
        // Half of it: other tests use memory, too.
        assert!(resident() + BYTES / 2 < kept, "{kept} bytes were resident, and {} are", resident());
        drop(lives);
    }
}
