//! Tests that need a process of their own, because they count what a process has or end it.

use std::process::Command;
use std::time::Instant;
use std::{env, fs, thread};

use crate::house::{PATIENCE, PAUSE};

/// Set in a child process that runs one test alone.
const ALONE: &str = "FRONT_DOOR_TEST_ALONE";

/// Runs the named test in a process of its own and returns its exit code and what it wrote; None inside that process.
pub fn alone(test: &str) -> Option<(Option<i32>, String)> {
    if env::var_os(ALONE).is_some() {
        return None;
    }
    let program = env::current_exe().expect("this program");
    // Few files, so that a test can run out of them.
    let script = "ulimit -n 512 && exec \"$0\" --exact \"$1\" --nocapture";
    let child = Command::new("sh").args(["-c", script]).arg(program).arg(test).env(ALONE, "1").output();
    let output = child.expect("a child");
    let written = [output.stdout, output.stderr].concat();
    Some((output.status.code(), String::from_utf8_lossy(&written).into_owned()))
}

/// Open files and threads of this process.
pub fn files_and_threads() -> (usize, usize) {
    let count = |what: &str| fs::read_dir(format!("/proc/self/{what}")).expect("/proc").count();
    (count("fd"), count("task"))
}

/// Waits until there are no more of them than before.
pub fn until_back_to(before: (usize, usize)) {
    let began = Instant::now();
    loop {
        let now = files_and_threads();
        if now.0 <= before.0 && now.1 <= before.1 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "files and threads: {before:?} at first, {now:?} at the end");
        thread::sleep(PAUSE);
    }
}

/// The most memory this process ever had, bytes.
pub fn peak_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    peak.map(|kib: usize| kib * 1024).expect("a peak")
}
