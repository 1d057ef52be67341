//! `taskstats count`: the service's counting, for files and pipes, as wc does it. Streams in constant memory; must never
//! count part of a text: a file that cannot be read to its end, is not UTF-8 or is over the limit gets no line.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, StdoutLock, Write};

use lexopt::Arg::{Long, Short, Value};
use serde_json::json;

use super::exit::{FAILED, Failure};
use super::flags;
use crate::log;
use crate::task::{Counter, Counts};

const HELP: &str = "\
Counts words, bytes and runes of UTF-8 text.

Usage: taskstats count [--json] [--max-words N] [FILE...]

Without FILE, or with -, reads stdin. Prints one line per file: words, bytes,
runes, name; then a line with the total if there is more than one file.

  --json          one JSON object per line   (or TASKSTATS_JSON=1)
  --max-words N   refuse longer texts        (or TASKSTATS_MAX_WORDS=N)
  -h, --help      this text

Exit code: 0 all files counted, 1 some not (stderr says why), 2 wrong usage.
";

/// Bytes per read: large enough that the system call costs little beside the counting.
const BUFFER: usize = 256 * 1024;
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
    let mut out = io::stdout().lock();
    let mut all_counted = true;
    let written = match Options::parse(args)? {
        None => out.write_all(HELP.as_bytes()).and_then(|()| out.flush()),
        Some(options) => count_all(&options, &mut out, &mut all_counted),
    };
    match written {
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

impl Options {
    /// None: help was asked for. A flag wins over its environment twin, which is then not even looked at.
    fn parse(args: &mut lexopt::Parser) -> Result<Option<Options>, Failure> {
        let (mut json, mut max_words, mut files) = (None, None, Vec::new());
        while let Some(arg) = args.next().map_err(usage)? {
            match arg {
                Long("json") => json = Some(true),
                Long("max-words") => max_words = Some(number(&args.value().map_err(usage)?, "--max-words")?),
                Short('h') | Long("help") => return Ok(None),
                Value(file) => files.push(file),
                _ => return Err(usage(arg.unexpected())),
            }
        }
        if json.is_none() {
            json = std::env::var_os("TASKSTATS_JSON").map(|text| switch(&text, "TASKSTATS_JSON")).transpose()?;
        }
        if max_words.is_none() {
            max_words =
                std::env::var_os("TASKSTATS_MAX_WORDS").map(|text| number(&text, "TASKSTATS_MAX_WORDS")).transpose()?;
        }
        Ok(Some(Options { json: json.unwrap_or(false), max_words, files }))
    }
}

fn usage(error: lexopt::Error) -> Failure {
    Failure::usage(format_args!("count: {error}; see taskstats count --help"))
}

/// `source`: the flag or variable that says `text`.
fn number(text: &OsStr, source: &str) -> Result<u64, Failure> {
    let parse = flags::number(0..=u64::MAX);
    parse(&text.to_string_lossy()).map_err(|why| Failure::usage(format_args!("count: {source} {text:?}: {why}")))
}

fn switch(text: &OsStr, source: &str) -> Result<bool, Failure> {
    match text.to_str() {
        Some("1" | "true") => Ok(true),
        Some("0" | "false") => Ok(false),
        _ => Err(Failure::usage(format_args!("count: {source} {text:?}: must be 1, true, 0 or false"))),
    }
}

/// Counts every file in turn and prints its line at once. Err: stdout failed; a file's failure only clears
/// `all_counted`.
fn count_all(options: &Options, out: &mut StdoutLock, all_counted: &mut bool) -> io::Result<()> {
    let mut report = Report { out, json: options.json, column: column(&options.files) };
    // Only JSON has a name for the stdin that nobody named: its objects all have the same keys.
    let named = options.json || !options.files.is_empty();
    let unnamed_stdin = [OsString::from(STDIN)];
    let files = if options.files.is_empty() { &unnamed_stdin } else { &options.files[..] };
    let mut total = Counts::default();
    for file in files {
        match count_file(file, options.max_words) {
            Ok(counts) => {
                total.words += counts.words;
                total.bytes += counts.bytes;
                total.runes += counts.runes;
                let name = if named { file } else { OsStr::new("") };
                report.line(name, counts)?;
            }
            Err(problem) => {
                let name = if file == STDIN { "stdin".into() } else { file.to_string_lossy() };
                log::line(format_args!("{name}: {problem}"));
                *all_counted = false;
            }
        }
    }
    if files.len() > 1 { report.line(OsStr::new("total"), total) } else { Ok(()) }
}

/// Counts one file or stdin. Err: why it is not counted, and what to do.
fn count_file(file: &OsStr, max_words: Option<u64>) -> Result<Counts, String> {
    if file == STDIN {
        return count_stream(io::stdin().lock(), max_words);
    }
    let opened = File::open(file).map_err(|error| format!("cannot be opened: {error}"))?;
    count_stream(opened, max_words)
}

fn count_stream(mut input: impl Read, max_words: Option<u64>) -> Result<Counts, String> {
    let invalid = |fault| format!("{fault}: not counted, convert it to UTF-8 first (see iconv)");
    let mut counter = Counter::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return counter.finish().map_err(invalid),
            Ok(length) => counter.push(&buffer[..length]).map_err(invalid)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot be read: {error}")),
        }
        // Not counted to the end, unlike the service's texts: a pipe may have none.
        if let Some(limit) = max_words.filter(|&limit| counter.words() > limit) {
            return Err(format!("has more words than the {limit} that --max-words allows: not counted"));
        }
    }
}

/// The width of a column that fits the total of all regular files. Only looks: a file that grows or cannot be seen
/// makes a ragged line, not a wrong one.
fn column(files: &[OsString]) -> usize {
    let sizes = files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|metadata| metadata.len());
    let total = sizes.fold(0, u64::saturating_add);
    total.to_string().len().max(COLUMN)
}

/// Writes the lines.
struct Report<'a, 'out> {
    out: &'a mut StdoutLock<'out>,
    json: bool,
    column: usize,
}

impl Report<'_, '_> {
    /// One line, with the name as it was given; an empty name is left out of the plain output.
    fn line(&mut self, name: &OsStr, Counts { words, bytes, runes }: Counts) -> io::Result<()> {
        if self.json {
            // JSON is Unicode: bytes of a name that are not show as U+FFFD.
            let file = name.to_string_lossy();
            writeln!(self.out, "{}", json!({"file": file, "words": words, "bytes": bytes, "runes": runes}))?;
        } else {
            let column = self.column;
            write!(self.out, "{words:>column$} {bytes:>column$} {runes:>column$}")?;
            if !name.is_empty() {
                self.out.write_all(b" ")?;
                self.out.write_all(name.as_encoded_bytes())?;
            }
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }
}
