//! The body of a batch, `application/x-ndjson`: on each line what the body of a single `POST /tasks` would be. All of it is
//! good or none of it is taken.

use super::submission::Submission;

/// How many lines the body has; the last may end with the body.
pub fn lines(body: &[u8]) -> usize {
    let unended = body.last().is_some_and(|&byte| byte != b'\n');
    body.iter().filter(|&&byte| byte == b'\n').count() + usize::from(unended)
}

/// Reads the texts.
///
/// # Errors
/// A sentence that names the first bad line and says what is wrong with it.
pub fn parse(body: &[u8]) -> Result<Vec<String>, String> {
    let count = lines(body);
    if count == 0 {
        return Err("body: an empty batch; send a line {\"text\": \"…\"} for each task".into());
    }
    let texts = body.split(|&byte| byte == b'\n').take(count).enumerate().map(|(index, line)| {
        Submission::parse(line).map(|submission| submission.text).map_err(|why| {
            // The parser counts lines, too, and knows of one only.
            format!("line {}: {}", index + 1, why.replace(" at line 1 column ", " at column "))
        })
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_text() {
        for body in ["{\"text\":\"a\"}\n{\"text\":\"\\n\"}\n", "{\"text\":\"a\"}\r\n {\"text\":\"\\n\"}"] {
            assert_eq!(parse(body.as_bytes()), Ok(vec!["a".into(), "\n".into()]), "{body:?}");
            assert_eq!(lines(body.as_bytes()), 2);
        }
    }

    #[test]
    fn the_first_bad_line_is_named() {
        for (body, reason) in [
            ("", "an empty batch"),
            ("\n", "line 1: body: EOF"),
            ("{\"text\":\"a\"}\n\n", "line 2: body: EOF"),
            (
                "{\"text\":\"a\"}\n{\"text\":1}\n{",
                "line 2: body: invalid type: integer `1`, expected a string at column 9",
            ),
            ("{\"text\":\"a\"}\n{\"text\":\"b\\u0000\"}", "line 2: text: U+0000 at byte 1"),
            ("[{\"text\":\"a\"},\n{\"text\":\"b\"}]", "line 1: "),
            ("{\"text\":\"a\"}{\"text\":\"b\"}", "line 1: body: trailing characters at column 13"),
        ] {
            let said = parse(body.as_bytes()).expect_err(body);
            assert!(said.contains(reason), "{body:?} → {said}");
        }
    }
}
