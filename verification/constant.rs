//! What verification/bench.sh compares GET /healthz with: stock tiny_http that answers a constant. With the argument
//! `behind-a-door`, the least that the service's arrangement costs: a thread for each client passes its requests on over a
//! Unix socket, without a look at them, and a handler answers at the client's own socket. Both listen on a free port of
//! loopback, print the address, and run until they are killed.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{self, ExitCode};
use std::sync::{Arc, Mutex};
use std::{env, thread};

use tiny_http::{Response, Server};

const ANSWER: &str = "ok\n";
const WHOLE_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nok\n";
/// As many as the service's crew has at least.
const HANDLERS: usize = 4;

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let ended = match env::args().nth(1).as_deref() {
        None => stock(),
        Some("behind-a-door") => behind_a_door(),
        Some(other) => Err(format!("unknown argument {other}; usage: constant [behind-a-door]").into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("constant: {error}");
            ExitCode::FAILURE
        }
    }
}

fn stock() -> Outcome {
    let server = Server::http("127.0.0.1:0")?;
    println!("{}", server.server_addr());
    for request in server.incoming_requests() {
        // A client that went away needs no answer.
        let _ = request.respond(Response::from_string(ANSWER));
    }
    Ok(())
}

fn behind_a_door() -> Outcome {
    let path = env::temp_dir().join(format!("constant-{}", process::id()));
    let server = Arc::new(Server::from_listener(UnixListener::bind(&path)?, None)?);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let clients = Arc::<Mutex<Vec<TcpStream>>>::default();
    for _ in 0..HANDLERS {
        let (server, clients) = (Arc::clone(&server), Arc::clone(&clients));
        thread::spawn(move || {
            for request in server.incoming_requests() {
                let number = request.headers().iter().find(|header| header.field.equiv("X-Client"));
                let number = number.and_then(|header| header.value.as_str().parse::<usize>().ok());
                drop(request.into_writer());
                let clients = clients.lock().expect("nobody panics with it");
                if let Some(mut client) = number.and_then(|number| clients.get(number)) {
                    let _ = client.write_all(WHOLE_ANSWER);
                }
            }
        });
    }
    // One after the other, and each with its connection to tiny_http made: it can lose those that come together.
    for client in listener.incoming() {
        let (client, upstream) = (client?, UnixStream::connect(&path)?);
        client.set_nodelay(true)?;
        let number = {
            let mut clients = clients.lock().map_err(|_| "a handler has panicked")?;
            clients.push(client.try_clone()?);
            clients.len() - 1
        };
        thread::spawn(move || pass_on(client, upstream, number));
    }
    Ok(())
}

fn pass_on(mut client: TcpStream, mut upstream: UnixStream, number: usize) -> io::Result<()> {
    let request = format!("GET / HTTP/1.0\r\nConnection: keep-alive\r\nX-Client: {number}\r\n\r\n");
    let mut inbox = vec![0; 4096];
    while client.read(&mut inbox)? > 0 {
        upstream.write_all(request.as_bytes())?;
    }
    Ok(())
}
