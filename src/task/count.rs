//! Counting words, bytes and runes (DESIGN section 2): the same numbers whatever pieces a text comes in, in constant
//! memory. What is not UTF-8 is an error with its place; it must never be counted as if it were text.

mod block;
#[cfg(test)]
mod tests;

use block::{BLOCK, Marks};

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

/// The place at which an input stops being UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidUtf8 {
    /// Bytes before the first sequence that is wrong or cut off by the end of the input.
    pub offset: u64,
}

impl std::fmt::Display for InvalidUtf8 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invalid UTF-8 at byte {}", self.offset)
    }
}

impl std::error::Error for InvalidUtf8 {}

/// A count under way.
#[derive(Debug, Default)]
pub struct Counter {
    /// Words that were seen to end, and all bytes and runes before the split character.
    counts: Counts,
    /// Whether the last character counted belongs to a word, which is not in `counts` yet.
    in_word: bool,
    /// The first bytes of a character whose others come with the next piece.
    split: [u8; 4],
    split_len: usize,
    /// Kept, so that nobody gets counts out of a counter that met a fault.
    fault: Option<InvalidUtf8>,
}

impl Counter {
    /// A counter that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece of the text; a character may be split between pieces.
    ///
    /// # Errors
    /// The input so far is not UTF-8. The counter is then of no more use: every later call gives the same error.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), InvalidUtf8> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let rest = self.complete_split(piece)?;
        let (whole, rest) = rest.split_at(whole_characters(rest));
        self.take(whole)?;
        self.split[self.split_len..][..rest.len()].copy_from_slice(rest);
        self.split_len += rest.len();
        Ok(())
    }

    /// Words that have begun so far. Never falls, so a limit that it passes is passed for good.
    pub fn words(&self) -> u64 {
        self.counts.words + u64::from(self.in_word)
    }

    /// The counts of the whole text.
    ///
    /// # Errors
    /// The input was not UTF-8, or ended within a character.
    pub fn finish(self) -> Result<Counts, InvalidUtf8> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.split_len > 0 => Err(InvalidUtf8 { offset: self.counts.bytes }),
            None => Ok(Counts { words: self.words(), ..self.counts }),
        }
    }

    /// Completes the split character, if there is one, from the head of `piece`; returns the rest of it.
    fn complete_split<'p>(&mut self, piece: &'p [u8]) -> Result<&'p [u8], InvalidUtf8> {
        if self.split_len == 0 {
            return Ok(piece);
        }
        let missing = announced(self.split[0]) - self.split_len;
        let (head, rest) = piece.split_at(missing.min(piece.len()));
        self.split[self.split_len..][..head.len()].copy_from_slice(head);
        self.split_len += head.len();
        if head.len() == missing {
            let (split, len) = (self.split, std::mem::take(&mut self.split_len));
            self.take(&split[..len])?;
        }
        Ok(rest)
    }

    /// Counts bytes that end with a whole character.
    fn take(&mut self, bytes: &[u8]) -> Result<(), InvalidUtf8> {
        let mut rest = validate(bytes).map_err(|valid| {
            let fault = InvalidUtf8 { offset: self.counts.bytes + valid as u64 };
            *self.fault.insert(fault)
        })?;
        let mut marks = Marks::new();
        while !rest.is_empty() {
            let (block, after) = rest.split_at(block_length(rest));
            let tally = marks.tally(block, self.in_word);
            self.counts.words += tally.words_ended;
            self.counts.runes += tally.runes;
            self.in_word = tally.in_word;
            rest = after;
        }
        self.counts.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Counts one text.
pub fn count(text: &str) -> Counts {
    let mut counter = Counter::new();
    counter.push(text.as_bytes()).and_then(|()| counter.finish()).expect("a str is UTF-8")
}

/// Err: how many bytes are valid. Only std knows the place, the fast judge says no more than yes or no.
fn validate(bytes: &[u8]) -> Result<&str, usize> {
    simdutf8::basic::from_utf8(bytes).or_else(|_| std::str::from_utf8(bytes).map_err(|error| error.valid_up_to()))
}

/// The length of the first block of a text: whole characters, at most [`BLOCK`] bytes of them.
fn block_length(text: &str) -> usize {
    let longest = text.len().min(BLOCK);
    (0..=longest).rev().find(|&length| text.is_char_boundary(length)).unwrap_or(0)
}

/// How many bytes a lead byte announces; 1 for everything that leads no sequence.
fn announced(lead: u8) -> usize {
    match lead {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => 1,
    }
}

/// The length of `bytes` without a sequence that announces more bytes than are there.
fn whole_characters(bytes: &[u8]) -> usize {
    let is_continuation = |byte: &u8| (0x80..0xC0).contains(byte);
    // Two are enough: with a third, the longest sequence would be complete.
    let after_lead = bytes.iter().rev().take(2).take_while(|byte| is_continuation(byte)).count();
    match bytes.len().checked_sub(after_lead + 1) {
        Some(lead) if announced(bytes[lead]) > after_lead + 1 => lead,
        _ => bytes.len(),
    }
}
