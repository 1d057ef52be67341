//! One request in hand, from the moment a handler thread has it whole until it is answered. Must never be lost without
//! an answer: dropped unanswered (a panic, a bug) it answers 500.

use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use tiny_http::{Header, Method, Request, Response};

use super::guest::{Guest, Guests};
use super::reply::Refusal;
pub use super::reply::Reply;

/// Carries the client's number among the guests from the door. The door drops whatever a client sends under this name, and
/// sends a request without it only as a ping.
pub(super) const GUEST_FIELD: &str = "X-Guest";

/// A request and the means to answer it. It may move to another thread and be answered there, later.
pub struct Exchange {
    method: Method,
    target: String,
    fields: Vec<Header>,
    body: Vec<u8>,
    guest: Arc<Guest>,
    answered: bool,
}

impl Exchange {
    /// Takes over a request and reads its whole body, so that the connection it came on is free for the next. None when
    /// there is nothing for a handler: a ping, answered here, a request whose end the door did not deliver, or one whose
    /// client was told that it is not waited for any more.
    pub(super) fn receive(mut request: Request, guests: &Guests) -> Option<Exchange> {
        let Some(number) = field(request.headers(), GUEST_FIELD) else {
            // A ping that cannot be answered is the door's to notice.
            let _ = request.respond(Response::empty(204));
            return None;
        };
        let guest = number.parse().ok().and_then(|number| guests.find(number));
        let mut body = vec![0; request.body_length().unwrap_or(0)];
        let whole = request.as_reader().read_exact(&mut body).is_ok();
        let (method, target, fields) = (request.method().clone(), request.url().to_owned(), request.headers().to_vec());
        // The answer goes to the guest: nothing is written here.
        drop(request.into_writer());
        let guest = guest.filter(|_| whole)?;
        Some(Exchange { method, target, fields, body, guest, answered: false })
    }

    /// The method, as sent: `GET`, `POST`, …
    pub fn method(&self) -> &str {
        self.method.as_str()
    }

    /// Path and query as the client sent them: starts with `/`, visible ASCII, nothing decoded.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The value of the first header of this name, in whatever case; None when there is none.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
    }

    /// The values of all headers of this name, in their order.
    pub fn headers<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        fields(&self.fields, name)
    }

    /// The whole body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The client's address; None: it is gone.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.guest.wire().peer()
    }

    /// Lets go of the body, and of its share of the bytes in flight: for a request that will be answered much later.
    pub fn free_body(&mut self) {
        self.body = Vec::new();
        self.guest.free_body();
    }

    /// Whether the client has gone, or at least closed its sending side.
    pub fn client_left(&self) -> bool {
        self.guest.has_left()
    }

    /// Answers. Does not wait for the client: a slow reader is left to a thread of its own.
    pub fn reply(mut self, reply: Reply) {
        self.answer(reply.checked());
    }

    fn answer(&mut self, reply: Reply) {
        if !mem::replace(&mut self.answered, true) {
            self.guest.answer(reply);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.answer(Refusal::UNANSWERED.into());
    }
}

fn field<'a>(headers: &'a [Header], name: &str) -> Option<&'a str> {
    fields(headers, name).next()
}

fn fields<'a>(headers: &'a [Header], name: &str) -> impl Iterator<Item = &'a str> {
    let found = headers.iter().filter(move |h| h.field.as_str().as_str().eq_ignore_ascii_case(name));
    found.map(|h| h.value.as_str())
}
