//! A wire: one client's socket. Its calls come back at least every tick, to look at their deadline and at a shutdown. Must
//! never wait for a client without a deadline.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::closing::Closing;
use crate::limits::{LINGER_BYTES, LINGER_TIME, SHORT_TICK, TICK};
use crate::lock;

/// Linux: this call does not wait.
const MSG_DONTWAIT: i32 = 0x40;

/// The socket of a client inside the door.
pub struct Wire {
    stream: TcpStream,
    closing: Arc<Closing>,
    /// For the client to take a whole answer.
    write_time: Duration,
    /// The socket's read timeout.
    tick: Mutex<Duration>,
}

/// What a read brought.
pub enum Heard {
    /// So many bytes.
    Bytes(usize),
    /// Nothing, for a tick.
    Nothing,
    /// The client has closed its sending side, or is gone.
    End,
}

impl Wire {
    /// For an accepted socket, whose client must take a whole answer within `write_time`.
    pub fn new(stream: TcpStream, write_time: Duration, closing: Arc<Closing>) -> io::Result<Wire> {
        stream.set_read_timeout(Some(TICK))?;
        stream.set_write_timeout(Some(TICK))?;
        stream.set_nodelay(true)?;
        Ok(Wire { stream, closing, write_time, tick: Mutex::new(TICK) })
    }

    /// Whether it is to be closed after the next answer.
    pub fn is_closing(&self) -> bool {
        self.closing.is_begun()
    }

    /// The client's address; None: it is gone.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    /// One read, of a tick at most.
    pub fn hear(&self, into: &mut [u8], tick: Duration) -> Heard {
        if self.set_tick(tick.max(SHORT_TICK)).is_err() {
            return Heard::End;
        }
        match (&self.stream).read(into) {
            Ok(0) => Heard::End,
            Ok(n) => Heard::Bytes(n),
            Err(e) if is_tick(&e) => Heard::Nothing,
            Err(_) => Heard::End,
        }
    }

    fn set_tick(&self, tick: Duration) -> io::Result<()> {
        let mut set = lock(&self.tick);
        if *set != tick {
            self.stream.set_read_timeout(Some(tick))?;
            *set = tick;
        }
        Ok(())
    }

    /// Sends as much as the socket has room for, without waiting; how many bytes.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        match SockRef::from(&self.stream).send_with_flags(bytes, MSG_DONTWAIT) {
            Err(e) if is_tick(&e) => Ok(0),
            sent => sent,
        }
    }

    /// Sends all of it, waiting for a slow reader as long as one may take.
    pub fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + self.write_time;
        loop {
            match (&self.stream).write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if is_tick(&e) => {}
                Err(e) => return Err(e),
            }
            if bytes.is_empty() {
                return Ok(());
            }
            if self.closing.is_cut() || Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Nothing more will be sent: the client sees the end of the connection.
    pub fn finish(&self) {
        // Fails when the client has gone, who needs no end.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Wakes whoever reads here: the client is heard out, as far as it has spoken, and no further.
    pub fn wake(&self) {
        // Fails when the client has gone, which wakes its thread as well.
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    /// After the last answer: reads on for a moment, because closing a socket with unread bytes resets it, and the
    /// client might lose the answer.
    pub fn linger(&self, scrap: &mut [u8]) {
        self.finish();
        let deadline = Instant::now() + LINGER_TIME;
        let mut thrown_away = 0;
        while thrown_away < LINGER_BYTES && Instant::now() < deadline {
            match self.hear(scrap, TICK) {
                Heard::Bytes(n) => thrown_away += n,
                Heard::Nothing if !self.is_closing() => {}
                Heard::Nothing | Heard::End => return,
            }
        }
    }
}

/// Whether a socket call came back only to have its deadline looked at.
pub(super) fn is_tick(e: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(e.kind(), WouldBlock | TimedOut | Interrupted)
}
