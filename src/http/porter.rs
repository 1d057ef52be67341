//! The porter: sees off the clients for whom there is no seat, and closes the internal connections
//! that nobody uses any more. One thread for all of them; it must never wait for any single client.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::door::Door;
use super::reply::Refusal;
use crate::limits::{HTTP_STACK, LINGER_TIME, LINGERERS, UPSTREAM_IDLE};

const FULL: Refusal = Refusal { status: 503, detail: "this service has no room for one more connection" };
/// How often those being seen off are looked at.
const ROUND: Duration = Duration::from_millis(20);

/// Hands refused clients to the porter's thread, which ends when this is dropped.
pub struct Porter {
    refused: SyncSender<TcpStream>,
}

impl Porter {
    /// Starts the thread.
    pub fn start(door: Arc<Door>) -> io::Result<Porter> {
        let (refused, leaving) = sync_channel(LINGERERS);
        let thread = thread::Builder::new().name(format!("{}-porter", door.name)).stack_size(HTTP_STACK);
        thread.spawn(move || work(&leaving, &door))?;
        Ok(Porter { refused })
    }

    /// Tells the client that there is no seat, and closes once it has had the time to read that.
    pub fn see_off(&self, mut stream: TcpStream) {
        // A fresh socket's buffer takes these few bytes at once; if not, the client is just closed.
        let told = stream.set_nonblocking(true).and_then(|()| stream.write_all(&FULL.into_bytes(false)));
        if told.and_then(|()| stream.shutdown(Shutdown::Write)).is_ok() {
            // Too many at once: closing right away may lose the answer, but nothing else.
            let _ = self.refused.try_send(stream);
        }
    }
}

fn work(leaving: &Receiver<TcpStream>, door: &Door) {
    let mut lingering: Vec<(TcpStream, Instant)> = Vec::new();
    loop {
        let pause = if lingering.is_empty() { LINGER_TIME } else { ROUND };
        match leaving.recv_timeout(pause) {
            Ok(stream) if lingering.len() < LINGERERS => lingering.push((stream, Instant::now() + LINGER_TIME)),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => drop(door.pool.trim(UPSTREAM_IDLE)),
            Err(RecvTimeoutError::Disconnected) if lingering.is_empty() || door.closing.is_cut() => return,
            Err(RecvTimeoutError::Disconnected) => thread::sleep(ROUND),
        }
        lingering.retain_mut(|(stream, deadline)| Instant::now() < *deadline && is_still_sending(stream));
    }
}

/// Throws away what a client has sent; false when it has closed its side.
fn is_still_sending(stream: &mut TcpStream) -> bool {
    let mut scrap = [0; 4096];
    match stream.read(&mut scrap) {
        Ok(n) => n > 0,
        Err(e) => e.kind() == io::ErrorKind::WouldBlock,
    }
}
