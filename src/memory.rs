//! Memory: what a burst has freed goes back to the system. glibc keeps freed memory in arenas, up to eight for each core, and
//! gives back the end of an arena only: one small thing that lives on there keeps all that is free below it. The one place
//! with `unsafe`: no crate has a safe name for this call.

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
