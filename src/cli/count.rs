//! `taskstats count`: the service's counting, for files and pipes, as wc does it. In constant memory, whatever it reads; must never
//! count part of a text: a file that cannot be read to its end, is not UTF-8 or is over the limit gets no line.

mod crowd;
mod parts;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, StdoutLock, Write};
use std::panic::resume_unwind;
use std::thread;

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
/// Bytes of lines that are written at once, about: no more than a pipe takes whole, beside the lines of other processes.
const LINES: usize = 3 * 1024;
/// Narrowest column of the plain output, as in traditional wc; larger files make it wider.
const COLUMN: usize = 7;
/// How arguments and JSON spell stdin.
const STDIN: &str = "-";

/// Runs `taskstats count` with the arguments that follow the command's name.
///
/// # Errors
/// Wrong usage; some file was not counted (said on stderr already, the message is empty); stdout cannot be written. A
/// reader who closed stdout has seen enough: that is no error.
pub fn run(args: &mut lexopt::Parser) -> Result<(), Failure> {
    let Some(flags) = Flags::read_with_values(args, USAGE, FLAGS)? else { return Ok(()) };
    let options = Options {
        json: flags.get("json", switch)?.unwrap_or(false),
        max_words: flags.get("max-words", number(0..=u64::MAX))?,
        files: flags.values,
    };
    let (mut out, mut all_counted) = (io::stdout().lock(), true);
    match count_all(&options, &mut out, &mut all_counted) {
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

/// Counts every input in turn and gives each its line. Err: stdout failed; an input's failure only clears `all_counted`.
fn count_all(options: &Options, out: &mut StdoutLock, all_counted: &mut bool) -> io::Result<()> {
    let unnamed_stdin = [OsString::from(STDIN)];
    let files = if options.files.is_empty() { &unnamed_stdin } else { &options.files[..] };
    let inputs: Vec<Input> = files.iter().map(|file| Input::new(file)).collect();
    let mut report = Report { out, json: options.json, column: column(&inputs), unwritten: Vec::new() };
    // Only JSON has a name for the stdin that nobody named: its objects all have the same keys.
    let named = options.json || !options.files.is_empty();
    let (mut buffer, mut total) = (vec![0; BUFFER], Counts::default());
    let mut left = &inputs[..];
    while let [next, ..] = left {
        if !next.is_small() {
            report.write_out()?;
        }
        let results = crowd::count(left, options.max_words, &mut buffer);
        let (counted, rest) = left.split_at(results.len());
        left = rest;
        for (input, result) in counted.iter().zip(results) {
            match result {
                Ok(counts) => {
                    total += counts;
                    report.line(if named { input.name } else { OsStr::new("") }, counts)?;
                }
                Err(problem) => {
                    report.write_out()?;
                    let name = if input.name == STDIN { "stdin".into() } else { input.name.to_string_lossy() };
                    log::line(format_args!("{name}: {problem}"));
                    *all_counted = false;
                }
            }
        }
    }
    if inputs.len() > 1 {
        report.line(OsStr::new("total"), total)?;
    }
    report.write_out()
}

/// A file or stdin.
struct Input<'a> {
    name: &'a OsStr,
    /// Of a regular file; pipes and others have none. Only looked at beforehand: a file that grows makes a ragged line or
    /// a late one, not a wrong one.
    size: Option<u64>,
}

impl Input<'_> {
    fn new(name: &OsStr) -> Input<'_> {
        let metadata = if name == STDIN { None } else { std::fs::metadata(name).ok() };
        Input { name, size: metadata.filter(Metadata::is_file).map(|metadata| metadata.len()) }
    }

    /// Whether counting it takes no time that anybody waits for. A size of 0 promises nothing: the kernel gives it to its
    /// own files, some of which never end.
    fn is_small(&self) -> bool {
        self.size.is_some_and(|size| (1..=BUFFER as u64).contains(&size))
    }

    /// Err: why it is not counted, and what to do. `buffer` is only lent.
    fn count(&self, max_words: Option<u64>, buffer: &mut [u8]) -> Result<Counts, String> {
        if self.name == STDIN {
            return count_stream(io::stdin().lock(), 0, max_words, buffer);
        }
        let file = File::open(self.name).map_err(|error| format!("cannot be opened: {error}"))?;
        match self.size {
            // With a limit the count may end long before the file does.
            Some(size) if size >= parts::WORTHWHILE && max_words.is_none() => parts::count(&file, size),
            _ => count_stream(file, 0, max_words, buffer),
        }
    }
}

/// Counts what `input` has; it begins at byte `begin` of what it is a part of.
fn count_stream(mut input: impl Read, begin: u64, max_words: Option<u64>, buffer: &mut [u8]) -> Result<Counts, String> {
    let not_text = |InvalidUtf8 { offset }| {
        let fault = InvalidUtf8 { offset: begin + offset };
        format!("{fault}: not counted, convert it to UTF-8 first (see iconv)")
    };
    let mut counter = Counter::new();
    loop {
        match input.read(buffer) {
            Ok(0) => return counter.finish().map_err(not_text),
            Ok(length) => counter.push(&buffer[..length]).map_err(not_text)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
        // Not counted to the end, unlike the service's texts: a pipe may have none.
        if let Some(limit) = max_words.filter(|&limit| counter.words() > limit) {
            return Err(format!("has more words than the {limit} that --max-words allows: not counted"));
        }
    }
}

/// Does both at once, or one after the other where there is no second thread to be had.
fn both<T: Send>(first: impl FnOnce() -> T, second: impl Fn() -> T + Sync) -> (T, T) {
    thread::scope(|scope| {
        let helper = thread::Builder::new().spawn_scoped(scope, &second);
        let first = first();
        let second = match helper {
            Ok(helper) => helper.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => second(),
        };
        (first, second)
    })
}

/// The width of a column that fits the total of all regular files.
fn column(inputs: &[Input]) -> usize {
    let total = inputs.iter().filter_map(|input| input.size).fold(0, u64::saturating_add);
    total.to_string().len().max(COLUMN)
}

/// Writes the lines. Those of small files wait for each other, as a system call takes longer than a line is worth.
struct Report<'a, 'out> {
    out: &'a mut StdoutLock<'out>,
    json: bool,
    column: usize,
    /// Whole lines.
    unwritten: Vec<u8>,
}

impl Report<'_, '_> {
    /// One line, with the name as it was given; an empty name is left out of the plain output.
    fn line(&mut self, name: &OsStr, Counts { words, bytes, runes }: Counts) -> io::Result<()> {
        let line = &mut self.unwritten;
        if self.json {
            // JSON is Unicode: bytes of a name that are not show as U+FFFD.
            let file = name.to_string_lossy();
            writeln!(line, "{}", json!({"file": file, "words": words, "bytes": bytes, "runes": runes}))?;
        } else {
            let column = self.column;
            write!(line, "{words:>column$} {bytes:>column$} {runes:>column$}")?;
            if !name.is_empty() {
                line.push(b' ');
                line.extend(name.as_encoded_bytes());
            }
            line.push(b'\n');
        }
        if self.unwritten.len() < LINES { Ok(()) } else { self.write_out() }
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.out.write_all(&self.unwritten)?;
        self.unwritten.clear();
        self.out.flush()
    }
}
