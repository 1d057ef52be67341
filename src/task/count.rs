//! Counts the words, bytes and runes of a UTF-8 text (DESIGN section 2). The text may come in pieces of any length; the counts
//! are the same, and the memory is constant. Never counts bytes that are not UTF-8: they are an error with an offset.

#[cfg(test)]
mod tests;

use simdutf8::compat::from_utf8;

/// Bytes of text that take one of the two ways to count words. At most 255, because a `u8` holds the words of a block, which
/// lets the compiler use vector instructions.
const BLOCK: usize = 128;

/// The words, bytes and runes of one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Maximal runs of characters without the Unicode White_Space property.
    pub words: u64,
    /// Length in UTF-8.
    pub bytes: u64,
    /// Unicode scalar values.
    pub runes: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.words += other.words;
        self.bytes += other.bytes;
        self.runes += other.runes;
    }
}

/// The input is not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidUtf8 {
    /// Bytes before the first sequence that is wrong or that the end of the input cuts off.
    pub offset: u64,
}

impl std::fmt::Display for InvalidUtf8 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invalid UTF-8 at byte {}", self.offset)
    }
}

impl std::error::Error for InvalidUtf8 {}

/// Counts one text.
#[derive(Debug, Default)]
pub struct Counter {
    /// Of all whole characters so far. A word counts from its first character on.
    counts: Counts,
    /// Whether the last character belongs to a word.
    in_word: bool,
    /// The first bytes of a character that the next piece continues.
    split: [u8; 4],
    split_len: usize,
    /// The error that every call after it returns.
    fault: Option<InvalidUtf8>,
}

impl Counter {
    /// A counter of an empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts the next piece of the text. A piece may end within a character.
    ///
    /// # Errors
    /// The input so far is not UTF-8. Every later call returns the same error.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), InvalidUtf8> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let mut rest = piece;
        while self.split_len > 0 && !rest.is_empty() {
            let (mut split, length) = (self.split, self.split_len);
            split[length] = rest[0];
            rest = &rest[1..];
            self.take(&split[..=length])?;
        }
        // A character that is still incomplete stays as it is.
        if rest.is_empty() { Ok(()) } else { self.take(rest) }
    }

    /// The words so far, including a last one that is not complete. Never falls.
    pub fn words(&self) -> u64 {
        self.counts.words
    }

    /// The counts of the whole text.
    ///
    /// # Errors
    /// The input was not UTF-8, or ended within a character.
    pub fn finish(self) -> Result<Counts, InvalidUtf8> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.split_len > 0 => Err(InvalidUtf8 { offset: self.counts.bytes }),
            None => Ok(self.counts),
        }
    }

    /// Counts the whole characters of `bytes` and keeps a character that their end splits.
    fn take(&mut self, bytes: &[u8]) -> Result<(), InvalidUtf8> {
        let (text, split) = match from_utf8(bytes) {
            Ok(text) => (text, &[][..]),
            Err(error) if error.error_len().is_none() => {
                let (whole, split) = bytes.split_at(error.valid_up_to());
                (from_utf8(whole).expect("valid up to here"), split)
            }
            Err(error) => {
                let offset = self.counts.bytes + error.valid_up_to() as u64;
                return Err(*self.fault.insert(InvalidUtf8 { offset }));
            }
        };
        self.count(text);
        self.split[..split.len()].copy_from_slice(split);
        self.split_len = split.len();
        Ok(())
    }

    fn count(&mut self, text: &str) {
        self.counts.bytes += text.len() as u64;
        self.counts.runes += text.chars().count() as u64;
        let mut rest = text;
        while !rest.is_empty() {
            let (block, after) = rest.split_at(block_length(rest));
            self.counts.words += if may_hold_wide_space(block.as_bytes()) {
                words_by_character(block, &mut self.in_word)
            } else {
                words_by_byte(block.as_bytes(), &mut self.in_word)
            };
            rest = after;
        }
    }
}

/// The length of the first block of a text: whole characters, at most [`BLOCK`] bytes.
fn block_length(text: &str) -> usize {
    let longest = text.len().min(BLOCK);
    (0..=longest).rev().find(|&length| text.is_char_boundary(length)).unwrap_or(0)
}

/// Whether a block, which is not empty, may hold a White_Space character that is not ASCII. In UTF-8 each of these begins with
/// C2, E2, E1 9A or E3 80. E1 and E3 alone begin too many letters.
fn may_hold_wide_space(block: &[u8]) -> bool {
    let pairs = block.iter().zip(&block[1..]);
    pairs.fold(false, |found, (&a, &b)| {
        found | (a == 0xC2) | (a == 0xE2) | ((a == 0xE1) & (b == 0x9A)) | ((a == 0xE3) & (b == 0x80))
    })
}

/// Counts the words that begin in `block`. `in_word`: whether the character before the block belongs to a word; then, whether
/// the last character of the block does.
fn words_by_character(block: &str, in_word: &mut bool) -> u64 {
    let mut words = 0;
    for character in block.chars() {
        let is_space = character.is_whitespace();
        words += u64::from(!is_space && !*in_word);
        *in_word = !is_space;
    }
    words
}

/// The same for a block in which only ASCII characters are White_Space: the fast path. The block is not empty.
fn words_by_byte(block: &[u8], in_word: &mut bool) -> u64 {
    let is_space = |byte: u8| (byte == b' ') | (byte.wrapping_sub(b'\t') < 5);
    let (first, last) = (block[0], block[block.len() - 1]);
    let begins = |(&before, &byte): (&u8, &u8)| u8::from(is_space(before) & !is_space(byte));
    let after_first: u8 = block.iter().zip(&block[1..]).map(begins).sum();
    let at_first = !*in_word & !is_space(first);
    *in_word = !is_space(last);
    u64::from(at_first) + u64::from(after_first)
}
