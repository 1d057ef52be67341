//! `taskstats count`: counts files and stdin one after another with the counter of the service, in constant memory. Never
//! counts part of a text: a file that cannot be read to its end, is not UTF-8 or exceeds the limit gets no line.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};

use serde_json::json;

use super::exit::{FAILED, Failure};
use super::flags::{Flag, Flags, number, switch};
use crate::log;
use crate::task::{Counter, Counts, InvalidUtf8};

const USAGE: &str = "\
usage: taskstats count [--json] [--max-words N] [FILE...]

Counts words, bytes and runes of UTF-8 text. Without FILE, or with -, reads stdin. Prints one line per file: words, bytes,
runes, name; then a line with the total if there is more than one file.

exit codes: 0 all files counted, 1 some not (stderr says why), 2 wrong usage";

const FLAGS: &[Flag] = &[
    Flag { name: "json", value: "", help: "one JSON object per line" },
    Flag { name: "max-words", value: "N", help: "refuse longer texts" },
];

/// Bytes per read: large enough that the system call costs little beside the counting.
const BUFFER: usize = 256 * 1024;
/// Narrowest column of the plain output, as in traditional wc; larger files make it wider.
const COLUMN: usize = 7;
/// How arguments and JSON spell stdin.
const STDIN: &str = "-";

/// Runs `taskstats count` with the arguments that follow the command's name.
///
/// # Errors
/// Wrong usage; a file was not counted (reported on stderr already, the message is empty); stdout cannot be written. A reader
/// that closes stdout early is no error.
pub fn run(args: &mut lexopt::Parser) -> Result<(), Failure> {
    let Some(flags) = Flags::read_with_values(args, USAGE, FLAGS)? else { return Ok(()) };
    let options = Options {
        json: flags.get("json", switch)?.unwrap_or(false),
        max_words: flags.get("max-words", number(0..=u64::MAX))?,
        files: flags.values,
    };
    let mut all_counted = true;
    match count_all(&options, &mut all_counted) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format_args!("cannot write to stdout: {error}")))
        }
        _ if all_counted => Ok(()),
        _ => Err(Failure { code: FAILED, message: String::new() }),
    }
}

/// What the arguments and the environment ask for.
struct Options {
    json: bool,
    max_words: Option<u64>,
    files: Vec<OsString>,
}

/// Counts every file and writes its line. Err: stdout failed. The failure of a file only clears `all_counted`.
fn count_all(options: &Options, all_counted: &mut bool) -> io::Result<()> {
    let unnamed_stdin = [OsString::from(STDIN)];
    let files = if options.files.is_empty() { &unnamed_stdin } else { &options.files[..] };
    // Only JSON has a name for the stdin that no argument names: all its objects have the same keys.
    let named = options.json || !options.files.is_empty();
    let column = if options.json { None } else { Some(column(files)) };
    let (mut buffer, mut total) = (vec![0; BUFFER], Counts::default());
    for file in files {
        match count_file(file, options.max_words, &mut buffer) {
            Ok(counts) => {
                total += counts;
                write_line(column, if named { file } else { OsStr::new("") }, counts)?;
            }
            Err(problem) => {
                let name = if file == STDIN { "stdin".into() } else { file.to_string_lossy() };
                log::line(format_args!("{name}: {problem}"));
                *all_counted = false;
            }
        }
    }
    if files.len() > 1 { write_line(column, OsStr::new("total"), total) } else { Ok(()) }
}

/// Counts a file or stdin. Err: why it is not counted, and what to do. `buffer` only saves allocations.
fn count_file(name: &OsStr, max_words: Option<u64>, buffer: &mut [u8]) -> Result<Counts, String> {
    if name == STDIN {
        return count_stream(io::stdin().lock(), max_words, buffer);
    }
    let file = File::open(name).map_err(|error| format!("cannot be opened: {error}"))?;
    count_stream(file, max_words, buffer)
}

fn count_stream(mut input: impl Read, max_words: Option<u64>, buffer: &mut [u8]) -> Result<Counts, String> {
    let not_text = |fault: InvalidUtf8| format!("{fault}: not counted, convert it to UTF-8 first (see iconv)");
    let mut counter = Counter::new();
    loop {
        match input.read(buffer) {
            Ok(0) => return counter.finish().map_err(not_text),
            Ok(length) => counter.push(&buffer[..length]).map_err(not_text)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
        // Unlike a text of the service, a pipe may have no end, so the count stops at the limit.
        if let Some(limit) = max_words.filter(|&limit| counter.words() > limit) {
            return Err(format!("has more words than the {limit} that --max-words allows: not counted"));
        }
    }
}

/// The width of a column that fits the total of all regular files. A file that grows meanwhile makes a wider line, not a
/// wrong one.
fn column(files: &[OsString]) -> usize {
    let size = |name: &OsString| fs::metadata(name).ok().filter(fs::Metadata::is_file).map(|metadata| metadata.len());
    let total = files.iter().filter(|&name| name != STDIN).filter_map(size).fold(0, u64::saturating_add);
    total.to_string().len().max(COLUMN)
}

/// Writes one line with the name as it was given, without it if it is empty. `column`: the width of the plain output's
/// columns; None: JSON. Stdout writes a line when it is complete, so the line precedes what follows it on stderr.
fn write_line(column: Option<usize>, name: &OsStr, counts: Counts) -> io::Result<()> {
    let Counts { words, bytes, runes } = counts;
    let mut out = io::stdout().lock();
    let Some(column) = column else {
        // JSON is Unicode: bytes of a name that are not show as U+FFFD.
        let file = name.to_string_lossy();
        return writeln!(out, "{}", json!({"file": file, "words": words, "bytes": bytes, "runes": runes}));
    };
    write!(out, "{words:>column$} {bytes:>column$} {runes:>column$}")?;
    if !name.is_empty() {
        out.write_all(b" ")?;
        out.write_all(name.as_encoded_bytes())?;
    }
    out.write_all(b"\n")
}
