//! Task ids: `task[n]`, and how any id stands in a URL. Must never turn one id into another: what cannot be read
//! exactly is an error.

#[cfg(test)]
mod tests;

use std::fmt;

/// Decimal digits of the largest number in a legal id: with 18, it and its successor fit PostgreSQL's bigint.
const MAX_DIGITS: usize = 18;

/// The id of a row. Rows of other programs may have any text here; only `task[n]` is numbered by us.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(String);

/// Why a path segment is no task id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadSegment {
    /// `%` and two characters that are not both hexadecimal digits (shown with escapes).
    Malformed(String),
    /// `%` with fewer than two characters after it.
    Incomplete(String),
    /// The decoded bytes are not text.
    InvalidUtf8,
    /// A NUL, raw or encoded: no text in PostgreSQL can hold one.
    Nul,
}

impl TaskId {
    /// Any id, as the database or a client spells it.
    pub fn new(id: impl Into<String>) -> Self {
        TaskId(id.into())
    }

    /// `task[n]`.
    pub fn from_number(number: i64) -> Self {
        TaskId(format!("task[{number}]"))
    }

    /// The spelling in the database.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The n of a legal `task[n]`, None for every other id. The same rule in SQL:
    /// `^task\[(0|[1-9][0-9]{0,17})\]$`.
    pub fn number(&self) -> Option<i64> {
        let digits = self.0.strip_prefix("task[")?.strip_suffix(']')?;
        let canonical = digits == "0" || !digits.starts_with('0');
        // Digits only: parse alone would take a sign.
        let legal = canonical && digits.len() <= MAX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
        if legal { digits.parse().ok() } else { None }
    }

    /// The id as one segment of a URL's path: RFC 3986's unreserved characters as they are, all others
    /// percent-encoded.
    pub fn to_segment(&self) -> String {
        let mut segment = String::with_capacity(self.0.len() + 4);
        for byte in self.0.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => segment.push(char::from(byte)),
                _ => segment.push_str(&format!("%{byte:02X}")),
            }
        }
        segment
    }

    /// The id that one segment of a URL's path spells, raw, percent-encoded or mixed (`task[0]`, `task%5B0%5D`).
    /// A `+` is a plus: only query strings write spaces so.
    ///
    /// # Errors
    /// The segment spells no id; the error says why.
    pub fn from_segment(segment: &str) -> Result<Self, BadSegment> {
        let mut bytes = Vec::with_capacity(segment.len());
        let mut rest = segment.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if byte != b'%' {
                bytes.push(byte);
                continue;
            }
            let Some((digits, after)) = after.split_first_chunk() else {
                return Err(BadSegment::Incomplete(format!("%{}", after.escape_ascii())));
            };
            bytes
                .push(hexadecimal(digits).ok_or_else(|| BadSegment::Malformed(format!("%{}", digits.escape_ascii())))?);
            rest = after;
        }
        if bytes.contains(&0) {
            return Err(BadSegment::Nul);
        }
        String::from_utf8(bytes).map(TaskId).map_err(|_| BadSegment::InvalidUtf8)
    }
}

/// The byte that two hexadecimal digits of either case name.
fn hexadecimal(&[high, low]: &[u8; 2]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for BadSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSegment::Malformed(what) => {
                write!(f, "task id has {what}, which is no percent-encoding: write a plain % as %25")
            }
            BadSegment::Incomplete(what) => {
                write!(f, "task id ends with the incomplete percent-encoding {what}: write a plain % as %25")
            }
            BadSegment::InvalidUtf8 => f.write_str("task id is not UTF-8 once its percent-encoding is decoded"),
            BadSegment::Nul => f.write_str("task id contains NUL, which no id does"),
        }
    }
}

impl std::error::Error for BadSegment {}
