//! `Prefer: wait=N` (RFC 7240): how long a client likes to wait for the end of a task. A preference is never an error: what
//! cannot be understood is ignored, and what was heeded is said in `Preference-Applied`.

use std::time::Duration;

use super::exchange::{Exchange, Reply};
use crate::limits::WAIT_MAX;

/// How long the client wants to wait; longer than [`WAIT_MAX`] counts as that.
pub fn wait(exchange: &Exchange) -> Option<Duration> {
    read(exchange.headers("Prefer"))
}

/// Says in the reply that the wait was heeded; an error says nothing of it.
pub fn applied(mut reply: Reply, wait: Duration) -> Reply {
    if reply.status < 300 {
        reply.headers.push(("Preference-Applied", format!("wait={}", wait.as_secs())));
    }
    reply
}

/// The first `wait` counts, as the RFC has it, also when it is malformed.
fn read<'a>(fields: impl Iterator<Item = &'a str>) -> Option<Duration> {
    let mut preferences = fields.flat_map(|field| split(field, b','));
    let value = preferences.find_map(|preference| {
        // Parameters of a preference come after semicolons; wait has none that we know.
        let (name, value) = split(preference, b';').next()?.split_once('=')?;
        name.trim().eq_ignore_ascii_case("wait").then(|| value.trim())
    })?;
    let digits = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Digits that do not fit into a number are a wait beyond every limit.
    Some(digits.parse().map_or(WAIT_MAX, Duration::from_secs).min(WAIT_MAX))
}

/// The parts of a list; a separator within quotes separates nothing.
fn split(list: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut rest = Some(list);
    std::iter::from_fn(move || {
        let list = rest?;
        let (mut quoted, mut escaped) = (false, false);
        let end = list.bytes().position(|byte| {
            let ends = byte == separator && !quoted;
            quoted ^= byte == b'"' && !escaped;
            escaped = byte == b'\\' && quoted && !escaped;
            ends
        });
        rest = end.map(|end| &list[end + 1..]);
        Some(list[..end.unwrap_or(list.len())].trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_found_as_the_rfc_writes_them() {
        for (fields, seconds) in [
            (&["wait=10"][..], 10),
            (&["WAIT = 10"], 10),
            (&["wait=\"10\""], 10),
            (&["respond-async, wait=7"], 7),
            (&["respond-async", "foo; some=\"a,wait=1;b\\\",wait=2\", wait=7"], 7),
            (&["wait=3, wait=9"], 3),
            (&["wait=3; x=y"], 3),
            (&["wait=0"], 0),
            (&["wait=0060"], 60),
            (&["wait=61"], 60),
            (&["wait=99999999999999999999999"], 60),
        ] {
            assert_eq!(read(fields.iter().copied()), Some(Duration::from_secs(seconds)), "{fields:?}");
        }
    }

    #[test]
    fn what_is_no_wait_is_ignored() {
        for fields in [
            &[][..],
            &[""],
            &["wait"],
            &["wait="],
            &["wait=\"\""],
            &["wait=-1"],
            &["wait=+1"],
            &["wait=1.5"],
            &["wait=1s"],
            &["wait=\"5"],
            &["await=5"],
            &["x; wait=5"],
            &["wait=x, wait=5"],
            &[",;,\"", "\\"],
        ] {
            assert_eq!(read(fields.iter().copied()), None, "{fields:?}");
        }
    }
}
