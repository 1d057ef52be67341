//! Counting one large file with two threads. Each counts a part that ends with ASCII white space: no character and no
//! word goes across such a cut, so that the counts of the parts just add up. A part that finds no such place ends where
//! the file does, which is slower and nothing worse.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use super::{BUFFER, both, count_stream};
use crate::task::Counts;

/// Bytes of a part, about. Starting a thread costs little beside counting so many, and one that meets a fault waits only
/// for the other part.
const PART: u64 = 16 * 1024 * 1024;
/// Length from which a file is counted so.
pub const WORTHWHILE: u64 = PART / 4;
/// Bytes in which a cut is looked for; what has no white space in so many is hardly text.
const LOOK: usize = 16 * 1024;

/// Counts a file from its beginning to its end. Err: the first thing that is wrong with it.
pub fn count(file: &File, length: u64) -> Result<Counts, String> {
    // A file that is shorter than two parts has its cut in the middle.
    count_by(file, PART.min(length / 2))
}

fn count_by(file: &File, part: u64) -> Result<Counts, String> {
    let mut total = Counts::default();
    let mut begin = Some(0);
    while let Some(at) = begin {
        let middle = cut(file, at + part);
        let end = middle.and_then(|middle| cut(file, middle + part));
        let first = Part { file, at, end: middle };
        let second = middle.map(|at| Part { file, at, end });
        for counted in count_both(first, second) {
            total += counted?;
        }
        begin = end;
    }
    Ok(total)
}

/// Counts two parts at once. In the order of the file, for of two faults the first is the file's.
fn count_both(first: Part, second: Option<Part>) -> Vec<Result<Counts, String>> {
    let Some(second) = second else { return vec![first.count()] };
    let (first, second) = both(|| first.count(), || second.count());
    vec![first, second]
}

/// The first place from `from` on that is right behind ASCII white space. None: there is none near, or the file is not
/// so long, or cannot be read there, which whoever counts that part will find out.
fn cut(file: &File, from: u64) -> Option<u64> {
    let mut bytes = [0; LOOK];
    let length = file.read_at(&mut bytes, from).ok()?;
    let space = bytes[..length].iter().position(u8::is_ascii_whitespace)?;
    Some(from + space as u64 + 1)
}

/// What of a file is still to be read, by one of those who read it at the same time. None: up to the file's end.
#[derive(Clone, Copy)]
struct Part<'f> {
    file: &'f File,
    at: u64,
    end: Option<u64>,
}

impl Part<'_> {
    fn count(self) -> Result<Counts, String> {
        count_stream(self, self.at, None, &mut vec![0; BUFFER])
    }
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = self.end.map_or(u64::MAX, |end| end - self.at).min(buffer.len() as u64);
        let length = self.file.read_at(&mut buffer[..wanted as usize], self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task;

    /// A file with this content, whose name is gone already.
    fn file(test: &str, content: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("taskstats-parts-{test}-{}", std::process::id()));
        std::fs::write(&path, content).expect("a temporary file");
        let file = File::open(&path).expect("just written");
        std::fs::remove_file(&path).expect("just written");
        file
    }

    #[test]
    fn parts_do_not_show_in_the_counts() {
        let text = "Go one\r\n  é字🦀\u{3000}\u{A0}字 \t\u{2003}x ".repeat(40);
        let whole = task::count(&text);
        let file = file("lengths", text.as_bytes());
        for part in (1..300).chain([text.len() as u64 / 2, text.len() as u64, u64::MAX / 4]) {
            assert_eq!(count_by(&file, part), Ok(whole), "parts of {part}");
        }
        assert_eq!(count(&file, text.len() as u64), Ok(whole));
    }

    #[test]
    fn a_text_without_a_cut_is_one_part() {
        let text = "字".repeat(LOOK);
        assert_eq!(count_by(&file("no-cut", text.as_bytes()), 10), Ok(task::count(&text)));
        assert_eq!(count_by(&file("empty", b""), 10), Ok(Counts::default()));
    }

    #[test]
    fn of_two_faults_the_first_is_told_with_its_place_in_the_file() {
        for (first, second) in [(3, 57), (57, 3), (24, 26), (99, 0)] {
            let mut bytes = b"word ".repeat(20);
            bytes[first] = 0xFF;
            bytes[second] = 0xFF;
            let place = format!("invalid UTF-8 at byte {}:", first.min(second));
            for part in [1, 20, 50, 1000] {
                let fault = count_by(&file("faults", &bytes), part).unwrap_err();
                assert!(fault.starts_with(&place), "{fault}, not {place}; parts of {part}");
            }
        }
    }

    #[test]
    fn a_character_that_a_cut_would_complete_is_a_fault() {
        let bytes = "aaaaa 字".as_bytes();
        let fault = count_by(&file("unfinished", &[&bytes[..8], &b" bbbbb"[..]].concat()), 7).unwrap_err();
        assert!(fault.starts_with("invalid UTF-8 at byte 6:"), "{fault}");
    }

    #[test]
    fn a_file_that_was_cut_short_is_counted_to_where_it_ends_now() {
        let part = Part { file: &file("short", b"one two"), at: 4, end: Some(100) };
        assert_eq!(part.count(), Ok(Counts { words: 1, bytes: 3, runes: 3 }));
    }
}
