//! The bearer token of the public listener: read once from a file that nobody else can read, compared without telling how
//! much of a guess was right. Must never get into a log line, an error or a reply.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fmt, io};

use crate::limits::{TOKEN_BYTES_MAX, TOKEN_BYTES_MIN};

/// Access of the file's group and of others.
const OTHERS: u32 = 0o077;

/// What clients have to know.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// Reads the token from a file: visible ASCII, with or without a newline at its end.
    ///
    /// # Errors
    /// Why this file will not do, and what to do about it.
    pub fn read(path: &Path) -> Result<Token, String> {
        let unreadable = |error: io::Error| format!("cannot be read: {error}");
        // Asked before it is opened: opening a pipe would wait for a writer.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err("is not a file".into());
        }
        let file = File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.mode();
        if mode & OTHERS != 0 {
            let mode = mode & 0o777;
            return Err(format!("has mode {mode:04o}: nobody but its owner may have access; chmod 600 it"));
        }
        let mut bytes = Vec::new();
        // One byte for the newline, and one to see that there is more.
        file.take(TOKEN_BYTES_MAX as u64 + 2).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::from_bytes(bytes)
    }

    fn from_bytes(mut bytes: Vec<u8>) -> Result<Token, String> {
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        if !bytes.iter().all(u8::is_ascii_graphic) {
            return Err("holds more than one line of visible ASCII without spaces".into());
        }
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&bytes.len()) {
            let expected = format!("expected {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}");
            return Err(format!("holds a token of {} bytes, {expected}: try `openssl rand -hex 32`", bytes.len()));
        }
        Ok(Token(bytes))
    }

    /// Whether the value of an `Authorization` field shows this token.
    pub fn is_shown_by(&self, authorization: &str) -> bool {
        let (scheme, shown) = authorization.split_once(' ').unwrap_or_default();
        scheme.eq_ignore_ascii_case("Bearer") && self.equals(shown.trim_start().as_bytes())
    }

    /// Takes the same time whichever bytes differ. That the length shows is no help against 32 random bytes.
    fn equals(&self, shown: &[u8]) -> bool {
        let mut difference = self.0.len() ^ shown.len();
        for (at, byte) in self.0.iter().enumerate() {
            difference |= usize::from(byte ^ shown.get(at).copied().unwrap_or_default());
        }
        // Hides from the compiler that the loop could end at the first difference.
        black_box(difference) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn token(text: &str) -> Result<Token, String> {
        Token::from_bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn one_newline_at_the_end_is_not_part_of_a_token() {
        for text in [SECRET.to_string(), format!("{SECRET}\n"), "x".repeat(TOKEN_BYTES_MAX) + "\n"] {
            assert_eq!(token(&text).expect("sound").0, text.trim_end().as_bytes());
        }
        let long = "x".repeat(TOKEN_BYTES_MAX + 1);
        let cases = [&SECRET[1..], "", "\n", &long, &long[..TOKEN_BYTES_MIN - 1]];
        for text in cases {
            assert!(token(text).expect_err(text).contains("bytes, expected 32 to 4096"));
        }
        for end in ["\n\n", "\r\n", " ", " x", "\0", "é", "\u{7f}"] {
            let why = token(&format!("{SECRET}{end}")).expect_err(end);
            assert!(why.contains("visible ASCII") && !why.contains(SECRET), "{why}");
        }
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = token(SECRET).expect("sound");
        for shown in ["Bearer ", "bearer ", "BEARER   "] {
            assert!(token.is_shown_by(&format!("{shown}{SECRET}")), "{shown:?}");
        }
        let (shorter, longer, other) = (&SECRET[..31], format!("{SECRET}0"), SECRET.replace('f', "e"));
        for shown in ["", shorter, &longer, &other, &SECRET.to_uppercase(), "Bearer"] {
            assert!(!token.is_shown_by(&format!("Bearer {shown}")), "{shown}");
        }
        for shown in ["", "Bearer", SECRET, &format!("Basic {SECRET}"), &format!("Bearer{SECRET}")] {
            assert!(!token.is_shown_by(shown), "{shown}");
        }
    }

    #[test]
    fn a_token_is_never_printed() {
        assert_eq!(format!("{:?}", token(SECRET)), "Ok(Token(…))");
    }
}
