//! `taskstats count`, as a shell sees it: the real binary, its output and its exit codes.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A directory of its own for one test, removed with it.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("taskstats-count-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        Directory(path)
    }
    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        fs::write(self.0.join(name), content).expect("a temporary file");
        self
    }
    /// Runs `taskstats count` here, with no stdin.
    fn count(&self, args: &[&str]) -> Output {
        command(args).current_dir(&self.0).stdin(Stdio::null()).output().expect("the binary runs")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskstats"));
    command.arg("count").args(args).env_remove("TASKSTATS_JSON").env_remove("TASKSTATS_MAX_WORDS");
    command
}

/// Runs a command with this stdin.
fn with_input(mut command: Command, input: &[u8]) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // A program that stops reading early closes the pipe; what it says then is the test's business.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().expect("the binary ends")
}

#[track_caller]
fn assert_output(output: &Output, code: i32, stdout: &str, stderr: &str) {
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout);
    assert_eq!(String::from_utf8_lossy(&output.stderr), stderr);
    assert_eq!(output.status.code(), Some(code));
}

#[test]
fn stdin_is_counted_without_a_name_or_as_a_dash() {
    assert_output(&with_input(command(&[]), b"Go one"), 0, "      2       6       6\n", "");
    assert_output(&with_input(command(&["-"]), b"Go one"), 0, "      2       6       6 -\n", "");
    assert_output(&with_input(command(&[]), b""), 0, "      0       0       0\n", "");
}

#[test]
fn files_have_a_line_each_and_a_total() {
    let here = Directory::new("files");
    here.file("a", "Go one").file("字", "我\u{3000}们\r\n");
    assert_output(&here.count(&["a"]), 0, "      2       6       6 a\n", "");
    let lines = "      2       6       6 a\n      2      11       5 字\n      4      17      11 total\n";
    assert_output(&here.count(&["a", "字"]), 0, lines, "");
}

#[test]
fn columns_widen_for_large_files() {
    let here = Directory::new("wide");
    here.file("large", "word ".repeat(2_000_001));
    assert_output(&here.count(&["large"]), 0, " 2000001 10000005 10000005 large\n", "");
}

#[test]
fn characters_may_straddle_reads() {
    let input = "é字🦀\u{3000}".repeat(100_000);
    assert_output(&with_input(command(&[]), input.as_bytes()), 0, " 100000 1200000  400000\n", "");
}

#[test]
fn a_large_file_counts_like_the_same_stream() {
    let here = Directory::new("large");
    let text = "Go one\u{3000}é字🦀\u{A0}x\n".repeat(400_000);
    here.file("large", &text);
    let counts = "1600000 8800000 5200000";
    assert_output(&here.count(&["large"]), 0, &format!("{counts} large\n"), "");
    assert_output(&here.count(&["--max-words", "1600000", "large"]), 0, &format!("{counts} large\n"), "");
    assert_output(&with_input(command(&[]), text.as_bytes()), 0, &format!("{counts}\n"), "");
    let fault = here.file("bad", [text.as_bytes(), b"\xFF"].concat()).count(&["bad"]);
    let stderr = "taskstats: bad: invalid UTF-8 at byte 8800000: not counted, convert it to UTF-8 first (see iconv)\n";
    assert_output(&fault, 1, "", stderr);
}

#[test]
fn lines_of_many_small_files_come_in_order_before_what_follows_them() {
    let here = Directory::new("many");
    let names: Vec<String> = (0..500).map(|number| format!("file-{number:03}")).collect();
    for name in &names {
        here.file(name, "Go one");
    }
    let mut args: Vec<&str> = names.iter().map(String::as_str).collect();
    args.insert(250, "missing");
    // Both into one file, so that the order of lines and complaints shows.
    let both = fs::File::create(here.0.join("both")).expect("a file");
    let mut command = command(&args);
    command.current_dir(&here.0).stdin(Stdio::null()).stderr(both.try_clone().expect("a second handle")).stdout(both);
    assert_eq!(command.status().expect("the binary runs").code(), Some(1));
    let mut expected: Vec<String> = names.iter().map(|name| format!("      2       6       6 {name}")).collect();
    expected.insert(250, "taskstats: missing: cannot be opened: No such file or directory (os error 2)".into());
    expected.push("   1000    3000    3000 total".into());
    let text = fs::read_to_string(here.0.join("both")).expect("a file");
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn json_has_an_object_per_line() {
    let here = Directory::new("json");
    here.file("a", "Go one").file("quote\"", "é");
    let output = here.count(&["--json", "a", "quote\""]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let expected = [
        json!({"file": "a", "words": 2, "bytes": 6, "runes": 6}),
        json!({"file": "quote\"", "words": 1, "bytes": 2, "runes": 1}),
        json!({"file": "total", "words": 3, "bytes": 8, "runes": 7}),
    ];
    assert_eq!(objects, expected);
    let output = with_input(command(&["--json"]), b"x");
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(object, json!({"file": "-", "words": 1, "bytes": 1, "runes": 1}));
}

#[test]
fn what_cannot_be_counted_is_named_and_the_others_go_on() {
    let here = Directory::new("faults");
    here.file("bad", b"ab\xFFcd").file("cut", "abc字".as_bytes().split_last().expect("not empty").1).file("good", "x");
    fs::create_dir(here.0.join("directory")).expect("a directory");
    let stdout = "      1       1       1 good\n      1       1       1 total\n";
    let stderr = "\
taskstats: bad: invalid UTF-8 at byte 2: not counted, convert it to UTF-8 first (see iconv)
taskstats: cut: invalid UTF-8 at byte 3: not counted, convert it to UTF-8 first (see iconv)
taskstats: missing: cannot be opened: No such file or directory (os error 2)
taskstats: directory: cannot be read: Is a directory (os error 21)
";
    assert_output(&here.count(&["bad", "cut", "missing", "directory", "good"]), 1, stdout, stderr);
    let stderr = "taskstats: stdin: invalid UTF-8 at byte 1: not counted, convert it to UTF-8 first (see iconv)\n";
    assert_output(&with_input(command(&[]), b"a\x80"), 1, "", stderr);
}

#[test]
fn a_limit_allows_what_it_names_and_refuses_more() {
    let here = Directory::new("limit");
    here.file("three", "a b c").file("four", "a b c d");
    let stdout = "      3       5       5 three\n      3       5       5 total\n";
    let stderr = "taskstats: four: has more words than the 3 that --max-words allows: not counted\n";
    assert_output(&here.count(&["--max-words", "3", "four", "three"]), 1, stdout, stderr);
    assert_output(&here.count(&["--max-words=4", "four"]), 0, "      4       7       7 four\n", "");
}

#[test]
fn a_limit_ends_an_endless_input() {
    let mut child = command(&["--max-words", "1000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    while stdin.write_all(&b"word ".repeat(1000)).is_ok() {}
    assert_eq!(child.wait().expect("the binary ends").code(), Some(1));
}

#[test]
fn the_environment_stands_in_for_flags_and_loses_to_them() {
    let with = |name: &str, value: &str, args: &[&str]| {
        let mut command = command(args);
        command.env(name, value);
        with_input(command, b"a b")
    };
    let counted = "      2       3       3\n";
    let refused = "taskstats: stdin: has more words than the 1 that --max-words allows: not counted\n";
    assert_output(&with("TASKSTATS_MAX_WORDS", "1", &[]), 1, "", refused);
    assert_output(&with("TASKSTATS_MAX_WORDS", "1", &["--max-words", "2"]), 0, counted, "");
    let wrong = "taskstats: TASKSTATS_MAX_WORDS \"many\": must be a whole number from 0 to 18446744073709551615\n";
    assert_output(&with("TASKSTATS_MAX_WORDS", "many", &[]), 2, "", wrong);
    assert!(with("TASKSTATS_JSON", "1", &[]).stdout.starts_with(b"{"));
    assert_output(&with("TASKSTATS_JSON", "0", &[]), 0, counted, "");
    let wrong = "taskstats: TASKSTATS_JSON \"maybe\": must be 1, true, 0 or false\n";
    assert_output(&with("TASKSTATS_JSON", "maybe", &[]), 2, "", wrong);
}

#[test]
fn wrong_usage_names_flag_and_value() {
    let here = Directory::new("usage");
    let cases: [(&[&str], &str); 6] = [
        (&["--wrong"], "unknown flag --wrong"),
        (&["-x"], "invalid option '-x'"),
        (&["--json=yes"], "unexpected argument for option '--json': \"yes\""),
        (&["--max-words"], "--max-words needs a value"),
        (&["--max-words", "-1"], "--max-words \"-1\": must be a whole number"),
        (&["--max-words", "3x"], "--max-words \"3x\": must be a whole number"),
    ];
    for (args, message) in cases {
        let output = here.count(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("taskstats: ") && stderr.contains(message), "{args:?}: {stderr}");
        assert_eq!((output.status.code(), stderr.lines().count(), output.stdout.len()), (Some(2), 1, 0), "{args:?}");
    }
}

#[test]
fn help_is_short_and_goes_to_stdout() {
    let output = Directory::new("help").count(&["--help"]);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("usage: taskstats count [--json] [--max-words N] [FILE...]"), "{text}");
}

#[test]
fn a_reader_who_closes_stdout_ends_the_command_quietly() {
    let here = Directory::new("closed");
    here.file("a", "Go one");
    let mut child = command(&["a", "-", "a"])
        .current_dir(&here.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    // Like `head -n 1`: takes the first line and leaves, while the command still waits for its stdin.
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut [0; 26]).expect("the first line");
    drop(stdout);
    drop(child.stdin.take());
    assert_output(&child.wait_with_output().expect("the binary ends"), 0, "", "");
}

#[test]
fn a_full_disk_is_an_error() {
    let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = command(&[]).stdin(Stdio::null()).stdout(full).output().expect("the binary runs");
    assert_output(&output, 1, "", "taskstats: cannot write to stdout: No space left on device (os error 28)\n");
}
