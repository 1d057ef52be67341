//! Open files, of which a process may have only so many. tiny_http's accepting thread and the postgres crate die when they
//! find none left, so before they need some we see whether there are enough. Must never keep any for itself.

use std::fs::File;
use std::io;
use std::sync::Mutex;

use crate::limits::FILES_AT_HAND;
use crate::lock;

/// Held while files that were seen to be free are being used up.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `open`, which may open a few files and must not meet a lack of them; an error when there is one.
pub fn with_enough<T>(open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _turn = lock(&TURN);
    look()?;
    open()
}

/// The same for what may take long to open: files may be missing all the same, but hardly ever.
pub fn are_enough() -> io::Result<()> {
    let _turn = lock(&TURN);
    look()
}

/// Waits while files are being used up: who opens one as clients come asks before each.
pub fn wait_for_turn() {
    drop(lock(&TURN));
}

fn look() -> io::Result<()> {
    (0..FILES_AT_HAND).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<File>>>().map(drop)
}
