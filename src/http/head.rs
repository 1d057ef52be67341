//! Request heads: finds where one ends, refuses everything two readers could understand differently, and rewrites the
//! rest for tiny_http. Must never panic on any bytes, and never pass on framing, hop-by-hop or guest fields of a client.

use std::ops::Range;

use super::exchange::GUEST_FIELD;
use super::reply::{Refusal, Terms};
use crate::limits::{HEAD_BYTES, HEAD_FIELDS};

/// A head that was read whole and found sound.
#[derive(Debug)]
pub struct Head {
    /// Its bytes, with the empty line.
    pub size: usize,
    /// Bytes of body that follow it.
    pub body: usize,
    /// How it is to be answered: the connection goes on if the client wants that.
    pub terms: Terms,
    /// The client waits for a `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The head for tiny_http, as HTTP/1.0 with keep-alive.
    pub forward: Vec<u8>,
    /// Where in `forward` it says what a guard asks for.
    method: Range<usize>,
    host: Option<Range<usize>>,
    authorization: Option<Range<usize>>,
}

/// What a guard asks for. All of it is empty when [`Head::forward`] has been taken.
impl Head {
    /// The method, as sent: `GET`, `POST`, …
    pub fn method(&self) -> &str {
        self.text(&self.method).unwrap_or_default()
    }

    /// The value of the `Host` field.
    pub fn host(&self) -> Option<&str> {
        self.text(self.host.as_ref()?)
    }

    /// The value of the `Authorization` field.
    pub fn authorization(&self) -> Option<&str> {
        self.text(self.authorization.as_ref()?)
    }

    fn text(&self, place: &Range<usize>) -> Option<&str> {
        std::str::from_utf8(self.forward.get(place.clone())?).ok()
    }
}

/// Fields that mean one thing only; which of two would count is anybody's guess.
const SINGLE: [&str; 5] = ["host", "content-length", "content-type", "authorization", "idempotency-key"];

/// Where the head that begins `bytes` ends, if it has arrived whole; the first `seen` bytes were looked through before.
/// Only CR LF ends a line, and the first line is not empty.
pub fn find_end(bytes: &[u8], seen: usize) -> Result<Option<usize>, Refusal> {
    let bytes = &bytes[..bytes.len().min(HEAD_BYTES)];
    let mut from = seen;
    while let Some(at) = bytes.get(from..).and_then(|rest| rest.iter().position(|&b| b == b'\n')).map(|n| from + n) {
        match bytes[..at] {
            [.., b'\n', b'\r'] => return Ok(Some(at + 1)),
            [.., _, b'\r'] => from = at + 1,
            _ => return Err(bad("a line of the head does not end in CR LF, or the first one is empty")),
        }
    }
    if bytes.len() < HEAD_BYTES { Ok(None) } else { Err(too_large("the request's head is too long")) }
}

/// Reads the head that begins `bytes`; None while it is not complete. `guest` is the client's number.
pub fn parse(bytes: &[u8], guest: &str, body_limit: usize) -> Result<Option<Head>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; HEAD_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let size = match request.parse(bytes) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(e) => return Err(unreadable(e)),
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    if !target.starts_with('/') || !target.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(bad("the request target is not a path of visible ASCII that begins with a slash"));
    }
    let is_old = request.version == Some(0);
    let mut reading = Reading::new(size);
    reading.forward(&[
        method,
        " ",
        target,
        " HTTP/1.0\r\nConnection: keep-alive\r\n",
        GUEST_FIELD,
        ": ",
        guest,
        "\r\n",
    ]);
    for field in request.headers.iter() {
        reading.field(field.name, visible(field.value)?, body_limit)?;
    }
    if !is_old && reading.host.is_none() {
        return Err(bad("an HTTP/1.1 request needs a Host field"));
    }
    let body = reading.length.unwrap_or(0);
    reading.forward(&["Content-Length: ", &body.to_string(), "\r\n\r\n"]);
    Ok(Some(Head {
        size,
        body,
        terms: Terms {
            head_only: method == "HEAD",
            keep_alive: !reading.close && (!is_old || reading.keep_alive),
            is_old,
        },
        expects_continue: reading.expects_continue && !is_old,
        forward: reading.forward,
        method: 0..method.len(),
        host: reading.host,
        authorization: reading.authorization,
    }))
}

/// What the fields have said so far.
struct Reading {
    /// How often each of [`SINGLE`] came.
    seen: [u8; SINGLE.len()],
    length: Option<usize>,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
    forward: Vec<u8>,
    host: Option<Range<usize>>,
    authorization: Option<Range<usize>>,
}

impl Reading {
    fn new(size: usize) -> Reading {
        // Room for what is added: the guest, keep-alive and the length.
        let forward = Vec::with_capacity(size + 160);
        Reading {
            seen: [0; SINGLE.len()],
            length: None,
            close: false,
            keep_alive: false,
            expects_continue: false,
            forward,
            host: None,
            authorization: None,
        }
    }

    fn field(&mut self, name: &str, value: &str, body_limit: usize) -> Result<(), Refusal> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if let Some(at) = SINGLE.iter().position(|single| is(single)) {
            self.seen[at] += 1;
            if self.seen[at] > 1 {
                return Err(bad("a field that may come once came twice"));
            }
        }
        if is("content-length") {
            self.length = Some(body_length(value, body_limit)?);
        } else if is("transfer-encoding") {
            return Err(Refusal {
                status: 411,
                detail: "a body is announced by Content-Length here, not by Transfer-Encoding",
            });
        } else if is("expect") {
            if !value.eq_ignore_ascii_case("100-continue") {
                return Err(Refusal { status: 417, detail: "only 100-continue can be expected here" });
            }
            self.expects_continue = true;
        } else if is("connection") {
            for token in value.split(',').map(str::trim) {
                self.close |= token.eq_ignore_ascii_case("close");
                self.keep_alive |= token.eq_ignore_ascii_case("keep-alive");
            }
        } else if !["keep-alive", "te", "trailer", "upgrade", "proxy-connection", GUEST_FIELD].iter().any(|hop| is(hop))
        {
            if is("host") && !value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~:[]%".contains(&b)) {
                return Err(bad("the Host field is not a name with an optional port"));
            }
            let start = self.forward.len() + name.len() + 2;
            self.forward(&[name, ": ", value, "\r\n"]);
            let place = start..start + value.len();
            if is("host") {
                self.host = Some(place);
            } else if is("authorization") {
                self.authorization = Some(place);
            }
        }
        Ok(())
    }

    fn forward(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.forward.extend_from_slice(part.as_bytes()));
    }
}

fn body_length(value: &str, limit: usize) -> Result<usize, Refusal> {
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad("Content-Length is not a number"));
    }
    // Digits that do not fit into a usize are a length beyond every limit.
    let fitting = value.parse().ok().filter(|length| *length <= limit);
    fitting.ok_or(Refusal { status: 413, detail: "the request's body is longer than this service takes" })
}

/// A field's value without the blanks around it.
fn visible(value: &[u8]) -> Result<&str, Refusal> {
    let value = std::str::from_utf8(value.trim_ascii()).ok();
    let sound = value.filter(|text| text.bytes().all(|b| b == b' ' || b == b'\t' || b.is_ascii_graphic()));
    sound.ok_or(bad("a field's value holds bytes that are not visible ASCII"))
}

fn unreadable(e: httparse::Error) -> Refusal {
    match e {
        httparse::Error::Version => Refusal { status: 505, detail: "only HTTP/1.0 and HTTP/1.1 are spoken here" },
        httparse::Error::TooManyHeaders => too_large("the request's head has too many fields"),
        httparse::Error::HeaderName => bad("a field's name is malformed, or a field is folded over two lines"),
        httparse::Error::HeaderValue => bad("a field's value holds bytes that are not visible ASCII"),
        _ => bad("this is not an HTTP request"),
    }
}

fn bad(detail: &'static str) -> Refusal {
    Refusal { status: 400, detail }
}

fn too_large(detail: &'static str) -> Refusal {
    Refusal { status: 431, detail }
}

#[cfg(test)]
mod tests;
