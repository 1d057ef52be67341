//! The inner loops of counting: one block of valid UTF-8 at a time, without decoding characters and without a branch
//! that depends on the text but one, so that the compiler turns each loop into vector instructions.
//!
//! Text has far more ASCII white space than other, so that every block is looked over for the six ASCII characters, and
//! for the others only where [`may_hold_wide_spaces`] cannot rule them out.

/// Bytes of one block, the unit in which wide white space is ruled out. Small, so that one dash or quotation mark makes
/// little of a text slow; large beside what a call costs.
pub(super) const BLOCK: usize = 1024;
/// The most ones that are added up in the `u8` of a vector's lane: whole vectors of any size, and at most 255.
const SUM: usize = 224;

/// What one block adds to a count.
pub(super) struct Tally {
    /// Words whose following white space is in this block.
    pub words_ended: u64,
    /// Unicode scalar values.
    pub runes: u64,
    /// Whether the block's last character belongs to a word.
    pub in_word: bool,
}

/// For each byte of a block 1 where it belongs to white space, else 0; before them stands the mark of the byte before
/// the block. Made once and used for many blocks, as clearing it would take longer than some of the loops.
pub(super) struct Marks([u8; 1 + BLOCK]);

impl Marks {
    pub fn new() -> Self {
        Marks([0; 1 + BLOCK])
    }

    /// Counts a block of at most [`BLOCK`] bytes; `in_word`: whether the character before it belongs to a word.
    pub fn tally(&mut self, block: &str, in_word: bool) -> Tally {
        let block = block.as_bytes();
        let marks = &mut self.0[..=block.len()];
        marks[0] = u8::from(!in_word);
        mark_ascii_spaces(block, &mut marks[1..]);
        if may_hold_wide_spaces(block) {
            mark_wide_spaces(block, &mut marks[1..]);
        }
        Tally { words_ended: words_ended(marks), runes: runes(block), in_word: marks[block.len()] == 0 }
    }
}

/// Whether `byte` is not ASCII and below `bound`. As signed numbers 0x80 to 0xFF come in the same order before all of
/// ASCII, and signed is the only order in which the smallest x86-64 compares bytes in one instruction.
fn below(byte: u8, bound: u8) -> bool {
    (byte as i8) < (bound as i8)
}

/// Marks the six ASCII characters of White_Space.
fn mark_ascii_spaces(block: &[u8], marks: &mut [u8]) {
    for (mark, &byte) in marks.iter_mut().zip(block) {
        *mark = u8::from((byte == b' ') | (byte.wrapping_sub(b'\t') < 5));
    }
}

/// False only where no white space is wider than a byte: by the first byte, or the first two where the first alone is
/// one of many letters. These 19 code points begin with C2, E2, E1 9A or E3 80; C2 and E2 differ in one bit.
fn may_hold_wide_spaces(block: &[u8]) -> bool {
    let pairs = block.iter().zip(block.iter().skip(1));
    let seen = pairs.fold(0, |seen, (&a, &b)| {
        seen | u8::from((a & 0xDF == 0xC2) | ((a == 0xE1) & (b == 0x9A)) | ((a == 0xE3) & (b == 0x80)))
    });
    seen != 0
}

/// Marks all bytes of the white space characters that are not ASCII: the other 19 code points of White_Space (Unicode
/// PropList.txt) in UTF-8.
fn mark_wide_spaces(block: &[u8], marks: &mut [u8]) {
    // Zeros behind the block let every byte have two after it.
    let mut bytes = [0; BLOCK + 2];
    bytes[..block.len()].copy_from_slice(block);
    // The length of the wide space that begins at a byte, or 0; zeros before the block let every byte have two before it.
    let mut lengths = [0; 2 + BLOCK];
    let triples = bytes.iter().zip(&bytes[1..]).zip(&bytes[2..]);
    for (length, ((&a, &b), &c)) in lengths[2..].iter_mut().zip(triples) {
        *length = wide_space(a, b, c);
    }
    let back = lengths[2..].iter().zip(&lengths[1..]).zip(&lengths);
    for (mark, ((&here, &one_back), &two_back)) in marks.iter_mut().zip(back) {
        *mark |= u8::from((here > 0) | (one_back > 0) | (two_back == 3));
    }
}

/// The length of the white space character that begins with the first of these bytes, or 0 where none does.
fn wide_space(a: u8, b: u8, c: u8) -> u8 {
    // U+0085, U+00A0
    let two = (a == 0xC2) & ((b == 0x85) | (b == 0xA0));
    // U+2000 to U+200A, U+2028 and U+2029, U+202F: E2 80 and one of these
    let general = below(c, 0x8B) | (c & 0xFE == 0xA8) | (c == 0xAF);
    // U+205F: E2 81 9F
    let e2 = (a == 0xE2) & (((b == 0x80) & general) | ((b == 0x81) & (c == 0x9F)));
    // U+1680: E1 9A 80; U+3000: E3 80 80
    let ends_80 = (c == 0x80) & (((a == 0xE1) & (b == 0x9A)) | ((a == 0xE3) & (b == 0x80)));
    (u8::from(two) * 2) | (u8::from(e2 | ends_80) * 3)
}

/// Words that end: bytes of white space that follow a byte of none.
fn words_ended(marks: &[u8]) -> u64 {
    let ends = |now: &[u8], before: &[u8]| now.iter().zip(before).map(|(now, before)| now & !before).sum::<u8>();
    marks[1..].chunks(SUM).zip(marks.chunks(SUM)).map(|(now, before)| u64::from(ends(now, before))).sum()
}

/// Characters: bytes that continue none.
fn runes(block: &[u8]) -> u64 {
    let leads = |piece: &[u8]| piece.iter().map(|&byte| u8::from(!below(byte, 0xC0))).sum::<u8>();
    block.chunks(SUM).map(|piece| u64::from(leads(piece))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks by decoding, with std's idea of White_Space.
    fn plain_marks(block: &str) -> Vec<u8> {
        block.chars().flat_map(|c| std::iter::repeat_n(u8::from(c.is_whitespace()), c.len_utf8())).collect()
    }

    fn marks(block: &str, mark: impl Fn(&[u8], &mut [u8])) -> Vec<u8> {
        let mut marks = vec![0; block.len()];
        mark(block.as_bytes(), &mut marks);
        marks
    }

    /// Blocks that hold every character there is but ASCII, in order.
    fn blocks_of_all_characters() -> Vec<String> {
        let all: Vec<char> = ('\u{80}'..=char::MAX).collect();
        all.chunks(BLOCK / 4).map(|block| block.iter().collect()).collect()
    }

    #[test]
    fn below_is_unsigned_order_among_bytes_that_are_not_ascii() {
        for bound in 0x80..=0xFF {
            for byte in 0..=0xFF {
                assert_eq!(below(byte, bound), (0x80..bound).contains(&byte), "{byte:#x} {bound:#x}");
            }
        }
    }

    #[test]
    fn ascii_spaces_are_the_six() {
        let ascii: String = ('\0'..='\x7F').collect();
        let found = marks(&ascii, mark_ascii_spaces);
        assert_eq!(found, plain_marks(&ascii));
        assert_eq!(found.iter().map(|&mark| u32::from(mark)).sum::<u32>(), 6);
    }

    #[test]
    fn wide_spaces_are_marked_whole_and_nothing_else_is() {
        for block in blocks_of_all_characters() {
            assert_eq!(marks(&block, mark_wide_spaces), plain_marks(&block), "{block:?}");
        }
    }

    #[test]
    fn no_wide_space_is_ruled_out() {
        let wide: Vec<char> = ('\u{80}'..=char::MAX).filter(|c| c.is_whitespace()).collect();
        assert_eq!(wide.len(), 19);
        for space in wide {
            for block in [format!("{space}"), format!("é{space}"), format!("字{space}x")] {
                assert!(may_hold_wide_spaces(block.as_bytes()), "{block:?}");
            }
        }
    }

    #[test]
    fn ordinary_letters_of_all_scripts_rule_them_out() {
        let words = "x Zwölf naïve œufs Съешь Ξεσκ שט كَمِ いろは カナ 天地 키스 ऋषि Việt ქართული 🦊";
        for block in words.split(' ').chain([""]) {
            assert!(!may_hold_wide_spaces(block.as_bytes()), "{block:?}");
        }
    }

    #[test]
    fn sums_do_not_overflow_in_a_full_block() {
        let block = "x".repeat(BLOCK);
        assert_eq!(runes(block.as_bytes()), BLOCK as u64);
        let tally = Marks::new().tally(&"x ".repeat(BLOCK / 2), false);
        assert_eq!((tally.words_ended, tally.runes, tally.in_word), (BLOCK as u64 / 2, BLOCK as u64, false));
    }

    #[test]
    fn what_was_before_a_block_decides_about_its_first_white_space() {
        let mut marks = Marks::new();
        for (block, before, words_ended, in_word) in [
            (" ", true, 1, false),
            (" ", false, 0, false),
            ("a", false, 0, true),
            ("a", true, 0, true),
            ("", true, 0, true),
        ] {
            let tally = marks.tally(block, before);
            assert_eq!((tally.words_ended, tally.in_word), (words_ended, in_word), "{block:?} {before}");
        }
    }
}
