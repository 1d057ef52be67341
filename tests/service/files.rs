//! A process that may open no more files: what is open goes on, and everything comes back when it may again.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::harness::{Client, Database, Serve, until};

/// Sets how many files the service may have open.
fn allow(serve: &Serve, files: usize) {
    let pid = serve.pid().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, &format!("--nofile={files}:")]).status();
    assert!(status.expect("prlimit").success());
}

fn open_files(serve: &Serve) -> usize {
    fs::read_dir(format!("/proc/{}/fd", serve.pid())).expect("/proc").count()
}

#[test]
fn running_out_of_files_costs_new_clients_their_answer_and_nothing_else() {
    let database = Database::new();
    let serve = Serve::on(&database, &[]);
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    let target = format!("/tasks/{id}");
    // A free file more each time: the lack shows at another place.
    for more in (0..24).chain(0..24).chain(0..24) {
        let mut inside = serve.client();
        assert_eq!(inside.get(&target).status, 200, "{more}");
        allow(&serve, open_files(&serve) + more);
        let mut crowd: Vec<Client> = (0..40).map(|_| serve.client()).collect();
        crowd.iter_mut().for_each(|client| client.send("GET", &target, &[], b""));
        let status = inside.get(&target).status;
        assert!([200, 503].contains(&status), "{more}: {status}");
        allow(&serve, 1024);
        for mut client in crowd {
            let status = client.answer().status;
            assert!([200, 503].contains(&status), "{more}: {status}");
        }
        // At once, so that new internal connections are needed.
        let mut crowd: Vec<Client> = (0..40).map(|_| serve.client()).collect();
        crowd.iter_mut().for_each(|client| client.send("GET", &target, &[], b""));
        assert!(crowd.iter_mut().all(|client| client.answer().status == 200), "{more}");
    }
    let id = serve.client().submit("still at work");
    serve.client().wait_for(&id, "SUCCEEDED");
    let log = serve.stderr().join("\n");
    assert!(log.contains("Too many open files"), "{log}");
}

/// A connection with a request on it.
fn ask(serve: &Serve, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(serve.listen).expect("the service listens");
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("the kernel takes it");
    stream
}

#[test]
fn with_64_files_there_is_room_for_a_few_and_a_crowd_does_no_harm() {
    let database = Database::new();
    let serve = Serve::with_files(&database, 64);
    let id = serve.client().submit("Go one");
    serve.client().wait_for(&id, "SUCCEEDED");
    let target = format!("/tasks/{id}");
    for _ in 0..20 {
        let crowd: Vec<TcpStream> = (0..100).map(|_| ask(&serve, &target)).collect();
        drop(crowd);
    }
    until("the crowd is gone and forgotten", || {
        let mut answer = String::new();
        // Closed or reset without an answer as long as there is no room.
        let _ = ask(&serve, &target).read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 200 ").then_some(())
    });
    let id = serve.client().submit("still at work");
    serve.client().wait_for(&id, "SUCCEEDED");
}
