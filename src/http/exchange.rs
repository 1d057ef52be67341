//! One request in hand, from the moment a handler thread has it whole until it is answered. Must never be lost without
//! an answer: dropped unanswered (a panic, a bug) it answers 500.

use std::net::SocketAddr;
use std::sync::Arc;

use tiny_http::{Request, Response};

use super::guest::{Guest, Guests};
use super::reply::Refusal;
pub use super::reply::Reply;

/// Carries the client's address and its number among the guests from the door. The door drops whatever a client sends under this name, and sends a
/// request without it only as a ping.
pub(super) const PEER_FIELD: &str = "X-Peer";

/// A request and the means to answer it. It may move to another thread and be answered there, later.
pub struct Exchange {
    request: Option<Request>,
    body: Vec<u8>,
    guest: Option<Arc<Guest>>,
}

impl Exchange {
    /// Takes over a request and reads its whole body: a reply to a half-read one could block both sides. None when there
    /// is nothing for a handler: a ping, answered here, or a request whose end the door did not deliver.
    pub(super) fn receive(mut request: Request, guests: &Guests) -> Option<Exchange> {
        let Some(peer) = field(&request, PEER_FIELD) else {
            // A ping that cannot be answered is the door's to notice.
            let _ = request.respond(Response::empty(204));
            return None;
        };
        let guest = peer.split_once(' ').and_then(|(_, number)| guests.find(number.parse().ok()?));
        let mut body = vec![0; request.body_length().unwrap_or(0)];
        request.as_reader().read_exact(&mut body).ok()?;
        Some(Exchange { request: Some(request), body, guest })
    }

    /// The method, as sent: `GET`, `POST`, …
    pub fn method(&self) -> &str {
        self.request().method().as_str()
    }

    /// Path and query as the client sent them: starts with `/`, visible ASCII, nothing decoded.
    pub fn target(&self) -> &str {
        self.request().url()
    }

    /// The value of the first header of this name, in whatever case; None when there is none.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(self.request(), name)
    }

    /// The values of all headers of this name, in their order.
    pub fn headers<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        fields(self.request(), name)
    }

    /// The whole body.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The client's address.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.header(PEER_FIELD)?.split(' ').next()?.parse().ok()
    }

    /// Lets go of the body, and of its share of the bytes in flight: for a request that will be answered much later.
    pub fn free_body(&mut self) {
        self.body = Vec::new();
        if let Some(guest) = &self.guest {
            guest.set_body(None);
        }
    }

    /// Whether the client has gone, or at least closed its sending side; known within the door's [`LONG_TICK`] and a moment.
    ///
    /// [`LONG_TICK`]: crate::limits::LONG_TICK
    pub fn client_left(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| guest.has_left())
    }

    /// Answers. Does not wait for the client: the door takes the reply in at once and deals with slow readers.
    pub fn reply(mut self, reply: Reply) {
        self.answer(reply.checked());
    }

    fn request(&self) -> &Request {
        self.request.as_ref().expect("only reply and drop take the request out, and nothing comes after them")
    }

    fn answer(&mut self, reply: Reply) {
        if let Some(request) = self.request.take() {
            // A door that does not listen any more has told its client so.
            let _ = request.respond(reply.into_response());
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.request.is_some() {
            self.answer(Refusal::UNANSWERED.into());
        }
    }
}

fn field<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    fields(request, name).next()
}

fn fields<'a>(request: &'a Request, name: &str) -> impl Iterator<Item = &'a str> {
    let found = request.headers().iter().filter(move |h| h.field.as_str().as_str().eq_ignore_ascii_case(name));
    found.map(|h| h.value.as_str())
}
