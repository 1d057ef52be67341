//! What a process has: threads, open files, memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use taskstats::limits::CREW_PERIOD;

/// A socket, and the runtime's own: an eventfd, and two descriptors of one epoll.
const FILES_PER_DATABASE: u64 = 4;
/// The service gives memory back a moment after the last threads of a burst have gone.
const REST: Duration = Duration::from_secs(CREW_PERIOD.as_secs() + 5);

pub struct Vitals {
    pub threads: u64,
    /// Open files but those of `databases`.
    pub files: u64,
    /// Connections to the database: the pool opens them when it needs more, and closes those that nobody needs.
    pub databases: u64,
    /// Resident, bytes.
    pub memory: u64,
}

impl Vitals {
    pub fn of(pid: u32) -> Vitals {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the service runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("in every status");
            line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
        };
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("the service is ours").flatten();
        let open: Vec<_> = open.filter_map(|file| fs::read_link(file.path()).ok()).collect();
        // Each has one of these to wake its runtime, and nobody else has any.
        let databases = open.iter().filter(|file| file.as_os_str() == "anon_inode:[eventfd]").count() as u64;
        let files = (open.len() as u64).saturating_sub(databases * FILES_PER_DATABASE);
        Vitals { threads: field("Threads:"), files, databases, memory: field("VmRSS:") * 1024 }
    }

    /// The names of the threads that there are now, with their numbers.
    pub fn crew(pid: u32) -> String {
        let mut names = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).expect("the service is ours").flatten() {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            *names.entry(name.trim().to_owned()).or_insert(0) += 1;
        }
        format!("{names:?}")
    }

    /// Waits until threads and files are what they were and memory shrinks no more, at most for a while; what there is then.
    pub fn settle(pid: u32, before: &Vitals, patience: Duration) -> Vitals {
        let began = Instant::now();
        let (mut least, mut shrank) = (u64::MAX, Instant::now());
        loop {
            let now = Vitals::of(pid);
            let back = now.threads <= before.threads && now.files <= before.files && now.databases <= before.databases;
            if !back || now.memory < least {
                (least, shrank) = (now.memory, Instant::now());
            }
            if shrank.elapsed() >= REST || began.elapsed() >= patience {
                return now;
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl fmt::Display for Vitals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Vitals { threads, files, databases, memory } = self;
        let mib = *memory as f64 / 1024.0 / 1024.0;
        write!(f, "{threads:>4} threads, {files:>4} files and {databases:>2} database connections, {mib:>6.1} MiB")
    }
}
