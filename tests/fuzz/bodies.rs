//! Bodies of `POST /tasks`: `Submission::parse`, compared with what serde_json's own reader of any JSON makes of them, and
//! `batch::parse`, compared with its lines read one by one.

use serde_json::{Value, json};
use taskstats::http::batch;
use taskstats::http::submission::Submission;

use crate::dice::{Dice, repeat};

const BODIES: [&str; 12] = [
    r#"{"text":"Go one"}"#,
    r#"{"text":""}"#,
    r#" { "text" : "\ud83d\ude00\n\\\"" } "#,
    "{\"text\":\"日本\u{a0}語 é\"}",
    r#"{"text":"a","text":"b"}"#,
    r#"{"text":"a","more":[1,{"b":null}]}"#,
    r#"{"te\u0078t":"a"}"#,
    r#"{"text":1e400}"#,
    r#"["text","a"]"#,
    r#""text""#,
    r#"{}"#,
    r#"{"text":["a"]}"#,
];
const SPICE: [&[u8]; 20] = [
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\0",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xff",
    b"\n",
    b"\xef\xbb\xbf",
    b"\"text\":\"",
    b"-1e9999",
    b"null",
];

fn generate(dice: &mut Dice) -> Vec<u8> {
    match dice.below(100) {
        0 => dice.bytes(100),
        1 => [b"{\"text\":".to_vec(), dice.one_of(&SPICE).repeat(dice.below(1000))].concat(),
        _ => {
            let mut bytes = dice.one_of(&BODIES).as_bytes().to_vec();
            if dice.below(3) > 0 {
                dice.mutate(&mut bytes, &SPICE);
            }
            bytes
        }
    }
}

/// The text, when a reader that keeps the last of equal fields finds one field and nothing else.
fn text_of(any: &Value) -> Option<&str> {
    let object = any.as_object().filter(|object| object.len() == 1)?;
    object.get("text")?.as_str().filter(|text| !text.contains('\0'))
}

#[test]
fn a_body_is_refused_or_holds_one_text() {
    let (mut accepted, mut refused) = (0, 0);
    repeat(500_000, |dice| {
        let body = generate(dice);
        let shown = body.escape_ascii().to_string();
        let any = serde_json::from_slice::<Value>(&body).ok();
        match Submission::parse(&body) {
            Ok(submission) => {
                accepted += 1;
                assert_eq!(any.as_ref().and_then(text_of), Some(submission.text.as_str()), "{shown}");
                let again = json!({"text": submission.text}).to_string();
                assert_eq!(Submission::parse(again.as_bytes()), Ok(submission), "{shown}");
            }
            Err(why) => {
                refused += 1;
                let only_doubled = why.contains("duplicate field");
                assert!(only_doubled || any.as_ref().and_then(text_of).is_none(), "{shown}: {why}");
            }
        }
    });
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 50_000 && refused > 50_000, "the inputs miss something");
}

#[test]
fn a_batch_is_refused_or_each_of_its_lines_is_a_body() {
    let (mut accepted, mut refused) = (0, 0);
    repeat(200_000, |dice| {
        let lines: Vec<Vec<u8>> = (0..dice.below(5)).map(|_| generate(dice)).collect();
        let body = [lines.join(&b'\n'), dice.one_of(&[b"".as_slice(), b"\n", b"\r\n", b"\n\n"]).to_vec()].concat();
        let shown = body.escape_ascii().to_string();
        // A mutated body may have line ends of its own, so the lines are looked for anew.
        let whole = body.strip_suffix(b"\n").unwrap_or(&body);
        let one_by_one: Result<Vec<String>, usize> = whole
            .split(|&byte| byte == b'\n')
            .enumerate()
            .map(|(index, line)| Submission::parse(line).map(|one| one.text).map_err(|_| index + 1))
            .collect();
        match (batch::parse(&body), one_by_one) {
            (Ok(texts), Ok(expected)) => {
                accepted += 1;
                assert_eq!(texts, expected, "{shown}");
                assert_eq!(batch::lines(&body), texts.len(), "{shown}");
            }
            (Err(why), Err(line)) => {
                refused += 1;
                assert!(body.is_empty() || why.starts_with(&format!("line {line}: ")), "{shown}: {why}");
            }
            (ours, theirs) => panic!("{shown}: {ours:?}, but {theirs:?}"),
        }
    });
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 5_000 && refused > 50_000, "the inputs miss something");
}
