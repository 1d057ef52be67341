//! A proxy between the service and PostgreSQL that can cut the connection around one chosen statement: after the server
//! has committed and before the client hears of it, or before the server hears of it, if ever. It speaks just enough of
//! the protocol to see which statement is executed.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A running proxy; its socket lies in a directory of its own.
pub struct Proxy {
    dir: PathBuf,
    plan: Arc<Plan>,
}

/// What is to be lost.
#[derive(Default)]
struct Plan {
    /// Part of the SQL of the statement that is cut next, and where.
    next: Mutex<Option<(&'static str, Cut)>>,
    /// Lets a statement with this marker go that is held back.
    late: Mutex<Option<(&'static str, Sender<()>)>>,
    lost: AtomicUsize,
    /// How often each statement was asked for, by its SQL.
    asked: Mutex<HashMap<String, usize>>,
    /// Nothing gets through, either way, and nobody is told.
    silent: Mutex<bool>,
    speaks: Condvar,
}

/// Where a statement's connection is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The server never hears of it.
    Request,
    /// The server has done it and committed, the client never hears of that.
    Answer,
    /// The server hears of it only after the client has given up and is about to ask again.
    Late,
}

impl Proxy {
    /// A proxy in front of the server whose socket is in `server`.
    pub fn before(server: &Path) -> Proxy {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let dir = PathBuf::from(format!("{}-proxy-{}", server.display(), NEXT.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir(&dir).expect("a fresh directory");
        let listener = UnixListener::bind(dir.join(".s.PGSQL.5432")).expect("a socket");
        let plan = Arc::new(Plan::default());
        let (server, for_thread) = (server.join(".s.PGSQL.5432"), plan.clone());
        // Ends with the test process: it waits in accept, and holds nothing that outlives it.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, plan) = (server.clone(), for_thread.clone());
                thread::spawn(move || {
                    if let Ok(server) = UnixStream::connect(server) {
                        relay(client, server, &plan);
                    }
                });
            }
        });
        Proxy { dir, plan }
    }

    /// Where `host=` points to reach the server through the proxy.
    pub fn socket_dir(&self) -> &Path {
        &self.dir
    }

    /// Loses the answer to the next statement whose SQL contains `marker`, and its connection with it.
    pub fn lose_next(&self, marker: &'static str) {
        *self.plan.next.lock().expect("no panic") = Some((marker, Cut::Answer));
    }

    /// Loses the next such statement itself, on its way to the server.
    pub fn lose_next_request(&self, marker: &'static str) {
        *self.plan.next.lock().expect("no panic") = Some((marker, Cut::Request));
    }

    /// Cuts the client off from the next such statement, and lets it get to the server just before the one after it.
    pub fn delay_next(&self, marker: &'static str) {
        *self.plan.next.lock().expect("no panic") = Some((marker, Cut::Late));
    }

    /// From now on nothing gets through, as behind a network that drops every packet; or it does again.
    pub fn silence(&self, silent: bool) {
        *self.plan.silent.lock().expect("no panic") = silent;
        self.plan.speaks.notify_all();
    }

    /// How often statements were asked for whose SQL contains `marker`.
    pub fn asked(&self, marker: &str) -> usize {
        let asked = self.plan.asked.lock().expect("no panic");
        asked.iter().filter(|(sql, _)| sql.contains(marker)).map(|(_, times)| times).sum()
    }

    /// Waits until so many connections were cut, each at its place: what the server did before a lost answer is seen by
    /// others at once. More of them are a fault.
    #[track_caller]
    pub fn until_lost(&self, wanted: usize) {
        let lost = || self.plan.lost.load(Ordering::SeqCst);
        super::until(&format!("{wanted} answers are lost"), || (lost() >= wanted).then_some(()));
        assert_eq!(lost(), wanted);
    }
}

impl Plan {
    fn wait_while_silent(&self) {
        drop(self.speaks.wait_while(self.silent.lock().expect("no panic"), |silent| *silent).expect("no panic"));
    }

    /// Called before a statement like it is passed on; returns when the server is through with the late one.
    fn let_the_late_go(&self, is_marked: impl Fn(&str) -> bool) {
        if let Some((_, go)) = self.late.lock().expect("no panic").take_if(|(marker, _)| is_marked(marker)) {
            let lost = self.lost.load(Ordering::SeqCst);
            go.send(()).expect("it waits");
            super::until("the late statement is done", || (self.lost.load(Ordering::SeqCst) > lost).then_some(()));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Carries bytes both ways until one side ends, or an answer is to be lost.
fn relay(client: UnixStream, server: UnixStream, plan: &Arc<Plan>) {
    let (mut from_server, mut to_client) = (server.try_clone().expect("clone"), client.try_clone().expect("clone"));
    let losing = Arc::new(Mutex::new(false));
    let (seen_by_answers, plan_of_answers) = (losing.clone(), plan.clone());
    let answers = thread::spawn(move || {
        let mut chunk = [0; 16 * 1024];
        while let Ok(length @ 1..) = from_server.read(&mut chunk) {
            plan_of_answers.wait_while_silent();
            // READY FOR QUERY outside a transaction: only after it is the statement committed for certain. A cut that
            // never gets there is not counted.
            if *seen_by_answers.lock().expect("no panic") {
                if chunk[..length].windows(6).any(|six| six == [b'Z', 0, 0, 0, 5, b'I']) {
                    plan_of_answers.lost.fetch_add(1, Ordering::SeqCst);
                    break;
                }
            } else if to_client.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = from_server.shutdown(Shutdown::Both);
    });
    let _ = requests(client, &server, plan, &losing);
    let _ = server.shutdown(Shutdown::Write);
    answers.join().expect("no panic");
}

/// What follows a BIND, with the SYNC that ends it.
fn rest_of_statement(client: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    loop {
        let mut head = [0; 5];
        client.read_exact(&mut head)?;
        let mut message = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        client.read_exact(&mut message)?;
        rest = [rest, head.to_vec(), message].concat();
        if head[0] == b'S' {
            return Ok(rest);
        }
    }
}

/// Passes the client's messages on, one by one, watching for the marked statement.
fn requests(mut client: UnixStream, mut server: &UnixStream, plan: &Plan, losing: &Mutex<bool>) -> std::io::Result<()> {
    let mut statements = HashSet::new();
    let mut starting = true; // the start-up message has no type byte
    loop {
        let mut head = vec![0; if starting { 4 } else { 5 }];
        client.read_exact(&mut head)?;
        let length = u32::from_be_bytes(head[head.len() - 4..].try_into().expect("four bytes")) as usize;
        let mut message = vec![0; length - 4];
        client.read_exact(&mut message)?;
        let kind = if starting { b'S' } else { head[0] };
        starting = false;
        let mut words = message.split(|&byte| byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
        let mut next = plan.next.lock().expect("no panic");
        match kind {
            // PARSE: name, SQL.
            b'P' => {
                let name = words.next().unwrap_or_default();
                statements.insert((name, words.next().unwrap_or_default()));
            }
            // BIND: portal, name.
            b'B' => {
                let name = words.nth(1).unwrap_or_default();
                let is_marked =
                    |wanted: &str| statements.iter().any(|(known, sql)| *known == name && sql.contains(wanted));
                if let Some((_, sql)) = statements.iter().find(|(known, _)| *known == name) {
                    *plan.asked.lock().expect("no panic").entry(sql.clone()).or_default() += 1;
                }
                plan.let_the_late_go(is_marked);
                if let Some((marker, cut)) = next.take_if(|(marker, _)| is_marked(marker)) {
                    if cut == Cut::Request {
                        plan.lost.fetch_add(1, Ordering::SeqCst);
                        return Ok(());
                    }
                    *losing.lock().expect("no panic") = true;
                    if cut == Cut::Late {
                        let (go, wait) = channel();
                        *plan.late.lock().expect("no panic") = Some((marker, go));
                        drop(next);
                        let rest = rest_of_statement(&mut client)?;
                        client.shutdown(Shutdown::Both)?;
                        let _ = wait.recv();
                        return server.write_all(&[head, message, rest].concat());
                    }
                }
            }
            _ => {}
        }
        drop(next);
        plan.wait_while_silent();
        server.write_all(&head)?;
        server.write_all(&message)?;
    }
}
