//! Stock tiny_http that answers a constant: what the library alone can do, for verification/bench.sh to compare with. It
//! listens on a free port of loopback, prints the address, and runs until it is killed.

use std::process::ExitCode;

use tiny_http::{Response, Server};

fn main() -> ExitCode {
    let server = match Server::http("127.0.0.1:0") {
        Ok(server) => server,
        Err(error) => {
            eprintln!("constant: cannot listen on 127.0.0.1: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", server.server_addr());
    for request in server.incoming_requests() {
        // A client that went away needs no answer.
        let _ = request.respond(Response::from_string("ok\n"));
    }
    ExitCode::SUCCESS
}
