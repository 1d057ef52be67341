//! The counter beside a naive one: every code point, every split, invalid sequences, random texts in random pieces. No test
//! reads a file.

use super::*;

/// White_Space=yes, all 25 code points of it, copied from Unicode's PropList.txt: `char::is_whitespace` reads the same
/// property, but from tables that the counter could share a mistake with.
const WHITE_SPACE: [u32; 25] = [
    0x0009, 0x000A, 0x000B, 0x000C, 0x000D, 0x0020, 0x0085, 0x00A0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
    0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
];

/// One character at a time, by the table.
fn naive(text: &str) -> Counts {
    let mut counts = Counts { words: 0, bytes: text.len() as u64, runes: 0 };
    let mut in_word = false;
    for character in text.chars() {
        let space = WHITE_SPACE.contains(&u32::from(character));
        counts.words += u64::from(!space && !in_word);
        counts.runes += 1;
        in_word = !space;
    }
    counts
}

/// Counts one text.
fn count(text: &str) -> Counts {
    by_pieces([text.as_bytes()]).expect("a str is UTF-8")
}

/// The counts by pieces, or the fault.
fn by_pieces<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Result<Counts, InvalidUtf8> {
    let mut counter = Counter::new();
    for piece in pieces {
        counter.push(piece)?;
    }
    counter.finish()
}

/// What the whole input must give: std says where UTF-8 ends, the naive count the rest.
fn expected(input: &[u8]) -> Result<Counts, InvalidUtf8> {
    match std::str::from_utf8(input) {
        Ok(text) => Ok(naive(text)),
        Err(error) => Err(InvalidUtf8 { offset: error.valid_up_to() as u64 }),
    }
}

/// Checks an input whole and byte by byte.
fn check(input: &[u8]) {
    let expected = expected(input);
    assert_eq!(by_pieces([input]), expected, "whole: {}", input.escape_ascii());
    assert_eq!(by_pieces(input.chunks(1)), expected, "byte by byte: {}", input.escape_ascii());
}

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
    /// Cuts the input into pieces of random lengths, none of them empty.
    fn pieces<'i>(&mut self, mut input: &'i [u8]) -> Vec<&'i [u8]> {
        let mut pieces = Vec::new();
        while !input.is_empty() {
            let (piece, after) = input.split_at(1 + self.below(input.len()));
            pieces.push(piece);
            input = after;
        }
        pieces
    }
}

#[test]
fn examples() {
    let cases = [
        ("", 0, 0, 0),
        ("Go one", 2, 6, 6),
        (" ", 0, 1, 1),
        ("a", 1, 1, 1),
        (" a ", 1, 3, 3),
        ("one\r\ntwo\r\n\r\n", 2, 12, 12),
        ("e\u{301}cole", 1, 7, 6),
        // A combining mark alone, after a space, is a word: it has not the property.
        ("a \u{301}", 2, 4, 3),
        ("👩\u{200D}👩\u{200D}👧 🇩🇪 👍🏽", 3, 18 + 1 + 8 + 1 + 8, 5 + 1 + 2 + 1 + 2),
        ("我\u{3000}们", 2, 9, 3),
        ("我们在这里", 1, 15, 5),
        ("10\u{A0}000\u{202F}€", 3, 5 + 2 + 3 + 3, 8),
        // NUL is a character like others; the zero-width and the Mongolian one look like spaces and are none.
        ("a\0b", 1, 3, 3),
        ("a\u{200B}b\u{FEFF}c\u{180E}d\u{2060}e", 1, 5 + 4 * 3, 9),
    ];
    for (text, words, bytes, runes) in cases {
        assert_eq!(count(text), Counts { words, bytes, runes }, "{text:?}");
        check(text.as_bytes());
    }
}

#[test]
fn every_code_point_alone_between_letters() {
    for code_point in 0..=0x10_FFFF {
        let Some(character) = char::from_u32(code_point) else {
            assert!((0xD800..=0xDFFF).contains(&code_point));
            continue;
        };
        let words = if WHITE_SPACE.contains(&code_point) { 2 } else { 1 };
        let text = format!("a{character}b");
        assert_eq!(count(&text), Counts { words, bytes: text.len() as u64, runes: 3 }, "U+{code_point:04X}");
    }
}

#[test]
fn every_pair_of_white_space_and_neighbours() {
    // The neighbours share lead and continuation bytes with the property's code points.
    let spaces = WHITE_SPACE.into_iter();
    let near = spaces.flat_map(|space| [space.wrapping_sub(1), space, space + 1, space + 0x40, space + 0x1000]);
    let near: Vec<char> = near.filter_map(char::from_u32).collect();
    for &first in &near {
        for &second in &near {
            for text in [format!("{first}{second}"), format!("a{first}{second}b")] {
                assert_eq!(count(&text), naive(&text), "{text:?}");
            }
        }
    }
}

#[test]
fn every_split_of_a_mixed_text() {
    let text =
        "Go\u{85}one\u{A0}é\u{1680}字\u{3000}\u{2028}🦀 \u{205F}\r\n\u{202F}e\u{301}\u{200A}\u{10FFFF}x".as_bytes();
    let whole = expected(text);
    for first in 0..=text.len() {
        for second in first..=text.len() {
            let pieces = [&text[..first], &text[first..second], &text[second..]];
            assert_eq!(by_pieces(pieces), whole, "split at {first} and {second}");
        }
    }
}

#[test]
fn every_length_around_vectors_and_blocks() {
    let text = "ab\u{3000}é 字\u{A0}🦀".repeat(2 * BLOCK / 16);
    let ascii = "ab c\t".repeat(2 * BLOCK / 5);
    for length in (0..100).chain(BLOCK - 40..BLOCK + 40) {
        for input in [&text.as_bytes()[..length], &ascii.as_bytes()[..length]] {
            assert_eq!(by_pieces([input]), expected(input), "{length} bytes");
        }
    }
}

#[test]
fn invalid_sequences_and_their_offsets() {
    let faults: [&[u8]; 24] = [
        b"\x80",
        b"\xBF",
        b"\xC0\x80",
        b"\xC1\xBF",
        b"\xC2",
        b"\xC2\x41",
        b"\xC2\xC2\x80",
        b"\xE0\x80\x80",
        b"\xE0\x9F\xBF",
        b"\xE2\x82",
        b"\xE2\x82\x41",
        b"\xE2\x41\x80",
        b"\xED\xA0\x80",
        b"\xED\xBF\xBF",
        b"\xF0\x80\x80\x80",
        b"\xF0\x8F\xBF\xBF",
        b"\xF0\x9F\xA6",
        b"\xF0\x9F\xA6\x41",
        b"\xF0\x9F\x41\x80",
        b"\xF4\x90\x80\x80",
        b"\xF5\x80\x80\x80",
        b"\xF8\x88\x80\x80\x80",
        b"\xFE",
        b"\xFF",
    ];
    for before in ["", "a", "é ", "字", "🦀", &"x".repeat(BLOCK - 2), &"é".repeat(BLOCK / 2)] {
        for fault in faults {
            for after in ["", "z", "é", " 🦀"] {
                let input = [before.as_bytes(), fault, after.as_bytes()].concat();
                assert_eq!(expected(&input), Err(InvalidUtf8 { offset: before.len() as u64 }));
                check(&input);
            }
        }
    }
    assert_eq!(InvalidUtf8 { offset: 7 }.to_string(), "invalid UTF-8 at byte 7");
}

#[test]
fn every_two_and_three_byte_input() {
    for first in 0x80..=0xFF_u8 {
        for second in 0..=0xFF_u8 {
            assert_eq!(by_pieces([&[first, second][..]]), expected(&[first, second]));
            for third in [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xF0, 0xFF] {
                let input = [first, second, third, 0x80];
                assert_eq!(by_pieces([&input[..]]), expected(&input), "{}", input.escape_ascii());
            }
        }
    }
}

#[test]
fn a_character_cut_off_by_the_end_is_a_fault_at_its_first_byte() {
    for cut in [&b"ab\xF0\x9F\xA6"[..], b"ab\xE2", b"ab\xC3"] {
        let mut counter = Counter::new();
        assert_eq!(counter.push(cut), Ok(()), "the rest may come");
        assert_eq!(counter.finish(), Err(InvalidUtf8 { offset: 2 }));
    }
}

#[test]
fn a_fault_is_not_forgotten() {
    let fault = Err(InvalidUtf8 { offset: 1 });
    let mut counter = Counter::new();
    assert_eq!(counter.push(b"a\xFFb"), fault);
    assert_eq!(counter.push(b"good text"), fault);
    assert_eq!(counter.finish(), Err(InvalidUtf8 { offset: 1 }));
}

#[test]
fn words_so_far_include_the_one_under_way() {
    let mut counter = Counter::new();
    let mut words = Vec::new();
    for piece in ["", " ", "a", "b", " ", "c d", "\u{3000}"] {
        counter.push(piece.as_bytes()).expect("valid");
        words.push(counter.words());
    }
    assert_eq!(words, [0, 0, 1, 1, 1, 3, 3]);
}

#[test]
fn random_inputs_in_random_pieces() {
    let letters: Vec<char> = "aZ9.é字🦀\u{301}\u{200D}\u{2027}\u{200B}\u{3001}\u{84}\u{10FFFF}".chars().collect();
    let spaces: Vec<char> = WHITE_SPACE.into_iter().filter_map(char::from_u32).collect();
    let mut random = Random(20_250_101);
    for round in 0..3000 {
        let size = random.of(&[3, 40, 300, 3 * BLOCK]);
        let length = random.below(size);
        // Long runs of one class make ASCII blocks beside mixed ones.
        let ascii_only = random.below(3) == 0;
        let mut text: String = (0..length)
            .map(|_| match (random.below(3), ascii_only) {
                (0, false) => random.of(&spaces),
                (0, true) => random.of(&[' ', '\n', '\t']),
                (_, false) => random.of(&letters),
                (_, true) => random.of(&['x', 'y']),
            })
            .collect();
        text.push_str(random.of(&["", "é", " "]));
        let mut input = text.into_bytes();
        if random.below(3) == 0 && !input.is_empty() {
            let place = random.below(input.len());
            input[place] = random.next() as u8;
        }
        let pieces = random.pieces(&input);
        assert_eq!(by_pieces(pieces), expected(&input), "round {round}");
    }
}

/// Sentences of many scripts, with the white space that people type between them, as long and in such pieces as chance
/// has it, beside how std splits the whole.
#[test]
fn mixed_scripts_in_random_pieces_count_as_std_splits_them() {
    let sentences = [
        "The quick brown fox — “jumps” over the lazy dog…",
        "Il dit\u{202F}: «\u{A0}Où est l’œuvre\u{202F}?\u{A0}»",
        "Съешь же ещё этих мягких французских булок",
        "صِف خَلقَ خَودِ\tكَمِثلِ",
        "天地玄黃，宇宙洪荒。\u{3000}日月盈昃、辰宿列張",
        "いろはにほへと\u{2003}ちりぬるを",
        "키스의 고유조건은 ᚠᚢᚦ\u{1680}ᚨᚱ",
        "ऋषियों को सताने वाले 🦊\u{200D}🐕\u{2028}",
    ];
    let mut random = Random(15);
    for round in 0..200 {
        let lines = random.below(4 * BLOCK / 64);
        let ends = ["\n", "\r\n", "", " ", "\u{85}", "\u{2029}", "\u{3000}"];
        let text: String = (0..lines).flat_map(|_| [random.of(&sentences), random.of(&ends)]).collect();
        let expected = Counts {
            words: text.split(char::is_whitespace).filter(|word| !word.is_empty()).count() as u64,
            bytes: text.len() as u64,
            runes: text.chars().count() as u64,
        };
        assert_eq!(by_pieces(random.pieces(text.as_bytes())), Ok(expected), "round {round}");
    }
}
