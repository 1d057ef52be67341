//! What a server allows: sizes, counts and deadlines. Must never promise more clients than there are file descriptors:
//! tiny_http does not survive running out of them.

use std::fs;
use std::time::Duration;

use crate::limits::*;

/// The limits of one server. The defaults are those of the public listener; tests shorten the times.
#[derive(Debug, Clone)]
pub struct DoorLimits {
    /// Client connections at once; beyond it 503 and closed.
    pub connections: usize,
    /// Longest body of one request, bytes; beyond it 413.
    pub body: usize,
    /// Bodies of all requests in flight together, bytes; beyond it 503.
    pub bodies: usize,
    /// From the first byte of a head to its last.
    pub head_time: Duration,
    /// From the end of the head to the end of the body.
    pub body_time: Duration,
    /// The same when over half of the bytes for bodies are in use.
    pub body_time_crowded: Duration,
    /// Between two requests.
    pub idle_time: Duration,
    /// The same when over half of the connections are in use.
    pub idle_time_crowded: Duration,
    /// For a client to take a whole answer.
    pub write_time: Duration,
    /// For a handler to answer.
    pub handler_time: Duration,
}

impl Default for DoorLimits {
    fn default() -> Self {
        DoorLimits {
            connections: CONNECTIONS.min(affordable_connections()),
            body: BODY_BYTES,
            bodies: BODIES_BYTES,
            head_time: HEAD_TIME,
            body_time: BODY_TIME,
            body_time_crowded: BODY_TIME_CROWDED,
            idle_time: IDLE_TIME,
            idle_time_crowded: IDLE_TIME_CROWDED,
            write_time: WRITE_TIME,
            handler_time: HANDLER_TIME,
        }
    }
}

impl DoorLimits {
    /// The limits of the admin listener, whose connections the default leaves room for.
    pub fn admin() -> Self {
        DoorLimits { connections: ADMIN_CONNECTIONS, ..DoorLimits::default() }
    }
}

/// How many clients of the public listener the file descriptors of this process suffice for.
fn affordable_connections() -> usize {
    // Without /proc there is no telling; 1024 is what a process gets by default.
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    connections_within(open_files(&limits).unwrap_or(1024))
}

fn connections_within(open_files: usize) -> usize {
    (open_files.saturating_sub(FD_RESERVE) / FDS_PER_CONNECTION).saturating_sub(ADMIN_CONNECTIONS).max(CREW_MIN)
}

/// The soft limit of open files in the text of `/proc/self/limits`.
fn open_files(limits: &str) -> Option<usize> {
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
    if soft == "unlimited" { Some(usize::MAX) } else { soft.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_found() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             7823                 7823                 processes \n\
                    Max open files            1024                 524288               files     \n";
        assert_eq!(open_files(text), Some(1024));
        assert_eq!(
            open_files("Max open files            unlimited            unlimited            files"),
            Some(usize::MAX)
        );
        assert_eq!(open_files(""), None);
    }

    #[test]
    fn clients_fit_into_the_open_files() {
        assert_eq!(connections_within(0), CREW_MIN);
        for open_files in [1024, 4096, 65_536] {
            let clients = connections_within(open_files) + ADMIN_CONNECTIONS;
            assert!(clients * FDS_PER_CONNECTION + FD_RESERVE <= open_files);
        }
        assert!(connections_within(usize::MAX) > CONNECTIONS);
    }
}
