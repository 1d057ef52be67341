//! The front door, seen from outside: real sockets, hostile and hasty clients, a small handler behind it.

mod alone;
mod closing;
mod crowd;
mod guarded;
mod hostile;
mod house;
mod manners;
mod siege;
