//! A plain HTTP/1.1 client on one keep-alive connection: it shows what is on the wire and adds nothing.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::PATIENCE;
use super::contract::{self, Listener};

/// One answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body as lines of JSON.
    pub fn lines(&self) -> Vec<Value> {
        let body = std::str::from_utf8(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        body.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// A string member of the body.
    pub fn text(&self, member: &str) -> String {
        self.json()[member].as_str().unwrap_or_else(|| panic!("no {member}: {self:?}")).to_owned()
    }
}

/// One connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    listener: Listener,
    /// Method and target of requests whose answers were not read yet.
    asked: VecDeque<(String, String)>,
}

impl Client {
    /// Connects to the address of a listener.
    pub fn to(address: SocketAddr, listener: Listener) -> Client {
        let stream = TcpStream::connect(address).expect("the service listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client { stream: BufReader::new(stream), listener, asked: VecDeque::new() }
    }

    /// Sends a request and reads its answer. The Host is `localhost` unless the headers name another.
    pub fn request(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(method, target, headers, body);
        self.answer()
    }

    /// Sends a request; its answer may be long in coming.
    pub fn send(&mut self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut request = format!("{method} {target} HTTP/1.1\r\n");
        let named = headers.iter().any(|(name, _)| *name == "Host");
        let host = if named { &[][..] } else { &[("Host", "localhost")] };
        for (name, value) in host.iter().chain(headers) {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!("Content-Length: {}\r\n\r\n", body.len());
        let request = [request.as_bytes(), body].concat();
        self.stream.get_mut().write_all(&request).expect("send");
        self.asked.push_back((method.to_owned(), target.to_owned()));
    }

    /// Closes the sending side.
    pub fn send_no_more(&mut self) {
        self.stream.get_mut().shutdown(std::net::Shutdown::Write).expect("shutdown");
    }

    /// Reads the next answer, which must be one that `openapi.json` has.
    pub fn answer(&mut self) -> Reply {
        let (method, target) = self.asked.pop_front().expect("a request");
        let head_only = method == "HEAD";
        let mut line = || {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("a line of the head");
            assert!(!line.is_empty(), "the connection was closed without an answer");
            line.trim_end().to_owned()
        };
        let status = line().split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
        let mut headers = HashMap::new();
        loop {
            let line = line();
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_lowercase(), value.trim().to_owned());
        }
        let length: usize = headers["content-length"].parse().expect("a length");
        let mut body = vec![0; if head_only { 0 } else { length }];
        self.stream.read_exact(&mut body).expect("the whole body");
        let reply = Reply { status, headers, body };
        contract::check(self.listener, &method, &target, &reply);
        reply
    }

    /// GET.
    pub fn get(&mut self, target: &str) -> Reply {
        self.request("GET", target, &[], b"")
    }

    /// Submits a text.
    pub fn post_text(&mut self, text: &str) -> Reply {
        self.post_raw(json!({"text": text}).to_string().as_bytes())
    }

    /// POST to `/tasks` with this body.
    pub fn post_raw(&mut self, body: &[u8]) -> Reply {
        self.request("POST", "/tasks", &[("Content-Type", "application/json")], body)
    }

    /// Submits a text that must be accepted; its id.
    pub fn submit(&mut self, text: &str) -> String {
        let reply = self.post_text(text);
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.text("id")
    }

    /// Cancels a task.
    pub fn cancel(&mut self, id: &str) -> Reply {
        self.request("POST", &format!("/tasks/{id}/cancel"), &[], b"")
    }

    /// A task's JSON.
    pub fn task(&mut self, id: &str) -> Value {
        let reply = self.get(&format!("/tasks/{id}"));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// Waits until a task has a certain status; its JSON.
    pub fn wait_for(&mut self, id: &str, status: &str) -> Value {
        super::until(&format!("{id} becomes {status}"), || Some(self.task(id)).filter(|task| task["status"] == status))
    }
}
