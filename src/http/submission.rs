//! The body of `POST /tasks`: exactly `{"text": "…"}`. Anything else is refused with a reason: a field we would ignore
//! is a wish we would not fulfil, and of two equal fields we cannot know the right one.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};

/// A text to be counted: any Unicode string without NUL, which PostgreSQL cannot store.
#[derive(Debug, PartialEq, Eq)]
pub struct Submission {
    /// The text.
    pub text: String,
}

impl Submission {
    /// Reads one from JSON.
    ///
    /// # Errors
    /// A sentence that says what is wrong, and where.
    pub fn parse(body: &[u8]) -> Result<Submission, String> {
        let submission: Submission = serde_json::from_slice(body).map_err(|error| format!("body: {error}"))?;
        match submission.text.find('\0') {
            Some(at) => Err(format!("text: U+0000 at byte {at} cannot be stored")),
            None => Ok(submission),
        }
    }
}

impl<'de> Deserialize<'de> for Submission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not deserialize_map: a string would never come to the visitor, and be repeated in the error.
        deserializer.deserialize_any(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Submission;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the one field \"text\"")
    }

    /// Most likely the text itself, which no error may repeat.
    fn visit_str<E: Error>(self, _: &str) -> Result<Submission, E> {
        Err(E::invalid_type(Unexpected::Other("string"), &self))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Submission, M::Error> {
        let mut text = None;
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "text" if text.is_some() => return Err(M::Error::duplicate_field("text")),
                "text" => text = Some(map.next_value::<String>()?),
                other => return Err(M::Error::unknown_field(other, &["text"])),
            }
        }
        text.map(|text| Submission { text }).ok_or_else(|| M::Error::missing_field("text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(body: &[u8]) -> String {
        Submission::parse(body).expect_err("must be refused")
    }

    #[test]
    fn texts_are_taken_as_they_are() {
        for (body, text) in [
            (r#"{"text":"Go one"}"#, "Go one"),
            (r#"{"text":""}"#, ""),
            (r#" { "text" : "\ud83d\ude00\n" } "#, "\u{1f600}\n"),
            ("{\"text\":\"日本\u{a0}語\"}", "日本\u{a0}語"),
        ] {
            assert_eq!(Submission::parse(body.as_bytes()).expect(body).text, text);
        }
    }

    #[test]
    fn anything_else_is_refused_with_a_reason() {
        for (body, reason) in [
            (&b""[..], "EOF"),
            (b"{", "EOF"),
            (b"[]", "an object with the one field"),
            (b"\"text\"", "type: string, expected an object with the one field"),
            (b"{}", "missing field `text`"),
            (br#"{"text":1}"#, "expected a string"),
            (br#"{"text":null}"#, "expected a string"),
            (br#"{"text":"a","text":"b"}"#, "duplicate field `text`"),
            (br#"{"text":"a","more":1}"#, "unknown field `more`"),
            (br#"{"text":"a"} x"#, "trailing characters"),
            (br#"{"text":"a\u0000b"}"#, "U+0000 at byte 1"),
            (br#"{"text":"\ud800"}"#, "hex escape"),
            (b"{\"text\":\"\xf1\"}", "invalid unicode"),
            (b"{\"text\":\"\xc0\xaf\"}", "invalid unicode"),
            (b"{\"text\":\"\x01\"}", "control character"),
        ] {
            let said = error_of(body);
            assert!(said.contains(reason), "{} → {said}", String::from_utf8_lossy(body));
        }
        let nested = [br#"{"text":"#.to_vec(), vec![b'['; 10_000]].concat();
        assert!(error_of(&nested).contains("expected a string"));
    }
}
