//! Who may ask at a listener at all: a rule for heads, that the door knows before it reads a body or calls a handler. Must
//! never say how close a wrong token was.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::exchange::Reply;
use super::head::Head;
use super::problem;
use super::token::Token;

/// The rule of one listener.
pub enum Guard {
    /// Public, and everybody who reaches it may ask.
    Anyone,
    /// Public, for those who show the token.
    Bearer(Token),
    /// Admin: reading only, by programs and people of this host that meant this host. A page on the internet can make a
    /// browser here ask us by a name that it lets point to 127.0.0.1 (DNS rebinding), but the name it asked for tells.
    Loopback,
}

impl Guard {
    /// The reply to a request that this rule turns away.
    pub fn refusal(&self, head: &Head) -> Option<Reply> {
        match self {
            Guard::Anyone => None,
            Guard::Bearer(token) => match head.authorization() {
                Some(shown) if token.is_shown_by(shown) => None,
                Some(_) => Some(problem::unauthorized("this is not the bearer token of the service")),
                None => Some(problem::unauthorized("send the service's bearer token in an Authorization field")),
            },
            // HTTP/1.0 may come without a Host field; no browser does.
            Guard::Loopback if head.host().is_some_and(|host| !is_loopback(host)) => {
                Some(problem::misdirected("the admin listener answers to localhost, 127.0.0.1 and [::1] only"))
            }
            Guard::Loopback if !["GET", "HEAD"].contains(&head.method()) => {
                Some(problem::method_not_allowed(head.method(), "GET, HEAD".into()))
            }
            Guard::Loopback => None,
        }
    }
}

/// Whether a Host field names this host as only this host can be meant: no other name, whatever it resolves to.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        // The last colon of a bare [::1] is part of the address.
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    let name_is_ours = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()),
        None => {
            name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
        }
    };
    name_is_ours && port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_cannot_be_bent_are_loopback() {
        let ours = ["localhost", "LocalHost:8081", "127.0.0.1", "127.0.0.1:8081", "127.1.2.3:1", "[::1]", "[::1]:8081"];
        for host in ours.into_iter().chain(["localhost:", "[0:0:0:0:0:0:0:1]:80"]) {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            ":8081",
            "example.com",
            "localhost.example.com",
            "localhost.",
            "127.0.0.1.nip.io",
            "127.0.0.1.:80",
            "0x7f000001",
            "2130706433",
            "127.1",
            "0.0.0.0",
            "[::]",
            "::1",
            "[::1",
            "[::1]x",
            "[::1%25lo]",
            "[127.0.0.1]",
            "192.168.0.1:8081",
            "localhost:80:80",
            "localhost:x",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
