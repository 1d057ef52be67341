//! The inner loops of counting: one block at a time, over bytes, without decoding characters and without a branch that
//! depends on the text, so that the compiler turns each loop into vector instructions.
//!
//! Every loop looks only back, at most [`BACK`] bytes, and adds up in one small integer per lane. They must never be
//! the judge of what is UTF-8: [`suspicious`] may only ask for a closer look, `std::str::from_utf8` decides.

/// Bytes counted side by side: two registers of the smallest x86-64.
const ROW: usize = 32;
/// Bytes of one block. Small enough for the first-level cache; at most 255 rows, or a lane's `u8` would overflow.
pub(super) const BLOCK: usize = 128 * ROW;
/// Bytes before the current one that a loop looks at: a lead byte is at most three before its last continuation.
const BACK: usize = 3;

const _: () = assert!(BLOCK / ROW <= u8::MAX as usize);

type Buffer = [u8; BACK + BLOCK];
type Row = [u8; BACK + ROW];
/// One small sum per lane.
type Lanes = [u8; ROW];

/// What one block adds to a count.
pub(super) struct Tally {
    /// Words whose following white space is in this block.
    pub words_ended: u64,
    /// Unicode scalar values.
    pub runes: u64,
    /// Whether the block's last character belongs to a word.
    pub in_word: bool,
}

/// The memory of the loops: a block with what stands before it, and where its white space ends.
pub(super) struct Window {
    bytes: Buffer,
    /// For each byte: the length of the white space character that ends there, or 0.
    spaces: Buffer,
}

impl Window {
    pub fn new() -> Self {
        Window { bytes: [0; BACK + BLOCK], spaces: [0; BACK + BLOCK] }
    }

    /// Counts a block of 1 to [`BLOCK`] bytes that starts and ends with whole characters; `in_word`: whether the
    /// character before it belongs to a word. Err: how many bytes of it are valid.
    pub fn tally(&mut self, block: &[u8], in_word: bool) -> Result<Tally, usize> {
        let rows = block.len().div_ceil(ROW);
        let (before, body) = self.bytes.split_at_mut(BACK);
        // What stands before the block acts as the last character did; what fills up the last row ends no word.
        before.fill(if in_word { b'w' } else { b' ' });
        body[..block.len()].copy_from_slice(block);
        body[block.len()..rows * ROW].fill(b'w');

        let last = BACK + block.len() - 1;
        if block.is_ascii() {
            let words_ended = sum(&self.bytes, rows, |row, lane| {
                is_ascii_space(row[lane + BACK]) & !is_ascii_space(row[lane + BACK - 1])
            });
            return Ok(Tally { words_ended, runes: block.len() as u64, in_word: !is_ascii_space(self.bytes[last]) });
        }
        if suspicious(&self.bytes, rows) {
            std::str::from_utf8(block).map_err(|error| error.valid_up_to())?;
        }
        self.spaces[..BACK].fill(u8::from(!in_word));
        mark_spaces(&self.bytes, &mut self.spaces, rows);
        Ok(Tally { words_ended: words_ended(&self.spaces, rows), runes: runes(block), in_word: self.spaces[last] == 0 })
    }
}

/// Row `number` of a buffer, with the bytes before it.
fn row(buffer: &Buffer, number: usize) -> &Row {
    buffer[number * ROW..].first_chunk().expect("a row within the buffer")
}

/// Adds up `value` over every byte of the first `rows` rows. It gets the row and the byte's lane: the byte itself is
/// `row[lane + BACK]`.
#[inline(always)] // each loop is a kernel of its own: with a call per byte it could not become vector code
fn sum(buffer: &Buffer, rows: usize, value: impl Fn(&Row, usize) -> bool) -> u64 {
    let mut lanes: Lanes = [0; ROW];
    for number in 0..rows {
        let row = row(buffer, number);
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += u8::from(value(row, lane));
        }
    }
    lanes.iter().map(|&lane| u64::from(lane)).sum()
}

/// The six ASCII characters of White_Space.
#[inline(always)]
fn is_ascii_space(byte: u8) -> bool {
    (byte == b' ') | (byte.wrapping_sub(b'\t') < 5)
}

#[inline(always)]
fn is_continuation(byte: u8) -> bool {
    below(byte, 0xC0)
}

/// Whether `byte` is not ASCII and below `bound`. As signed numbers 0x80 to 0xFF come in the same order before all of
/// ASCII, and signed is the only order in which the smallest x86-64 compares bytes in one instruction.
#[inline(always)]
fn below(byte: u8, bound: u8) -> bool {
    (byte as i8) < (bound as i8)
}

/// Whether a buffer may hold something that is not UTF-8. Never misses a fault, given that the block ends with a whole
/// character: RFC 3629 section 4, restated as conditions on a byte and the three before it.
fn suspicious(bytes: &Buffer, rows: usize) -> bool {
    let faults = sum(bytes, rows, |row, lane| {
        let [b3, b2, b1, b0] = [row[lane], row[lane + 1], row[lane + 2], row[lane + 3]];
        // b1 >= 0xC0, or b2 >= 0xE0, or b3 >= 0xF0: a lead byte whose sequence includes this byte.
        let leads = b1.saturating_sub(0xBF) | b2.saturating_sub(0xDF) | b3.saturating_sub(0xEF);
        let misplaced = is_continuation(b0) == (leads == 0);
        let never = (b0 & 0xFE == 0xC0) | (b0 >= 0xF5);
        let overlong = ((b1 == 0xE0) & below(b0, 0xA0)) | ((b1 == 0xF0) & below(b0, 0x90));
        let surrogate = (b1 == 0xED) & !below(b0, 0xA0);
        let beyond = (b1 == 0xF4) & !below(b0, 0x90);
        misplaced | never | overlong | surrogate | beyond
    });
    faults > 0
}

/// Writes, for each byte, the length of the white space character that ends there, or 0: the 25 code points of
/// White_Space (Unicode PropList.txt) in UTF-8. `bytes` is UTF-8.
fn mark_spaces(bytes: &Buffer, spaces: &mut Buffer, rows: usize) {
    for (number, marks) in spaces[BACK..].chunks_exact_mut(ROW).take(rows).enumerate() {
        let row = row(bytes, number);
        for (lane, mark) in marks.iter_mut().enumerate() {
            let [b2, b1, b0] = [row[lane + 1], row[lane + 2], row[lane + 3]];
            // U+0085, U+00A0
            let two = (b1 == 0xC2) & ((b0 == 0x85) | (b0 == 0xA0));
            // U+2000 to U+200A, U+2028 and U+2029, U+202F: E2 80 and one of these
            let general = below(b0, 0x8B) | (b0 & 0xFE == 0xA8) | (b0 == 0xAF);
            // U+205F: E2 81 9F
            let e2 = (b2 == 0xE2) & (((b1 == 0x80) & general) | ((b1 == 0x81) & (b0 == 0x9F)));
            // U+1680: E1 9A 80; U+3000: E3 80 80
            let ends_80 = (b0 == 0x80) & (((b2 == 0xE1) & (b1 == 0x9A)) | ((b2 == 0xE3) & (b1 == 0x80)));
            *mark = u8::from(is_ascii_space(b0)) | (u8::from(two) * 2) | (u8::from(e2 | ends_80) * 3);
        }
    }
}

/// Characters of valid UTF-8: bytes that continue none.
fn runes(block: &[u8]) -> u64 {
    let ones = |piece: &[u8]| piece.iter().map(|&byte| u8::from(!is_continuation(byte))).sum::<u8>();
    // Pieces of whole rows whose sum a u8 can hold.
    block.chunks(7 * ROW).map(|piece| u64::from(ones(piece))).sum()
}

/// Words that end: white space characters that follow a character that is none. A mark of n says that the character
/// before this one ended n bytes earlier.
fn words_ended(spaces: &Buffer, rows: usize) -> u64 {
    sum(spaces, rows, |row, lane| {
        let [m3, m2, m1, m0] = [row[lane], row[lane + 1], row[lane + 2], row[lane + 3]];
        ((m0 == 1) & (m1 == 0)) | ((m0 == 2) & (m2 == 0)) | ((m0 == 3) & (m3 == 0))
    })
}
