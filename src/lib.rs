//! taskstats: a durable task service on OS threads, with PostgreSQL as its only memory.
//!
//! A text comes in over HTTP, becomes a committed row, a worker thread counts its words, bytes and runes, and the
//! service can say — and prove from the database — what became of it.
//!
//! Imports point one way: `cli` → `http` → `service` → `store` → `task`. `private_postgres` is used
//! by `cli` alone; `limits`, `log`, `files` and `exit` by everybody. Start reading at [`task`], then `schema.sql`, [`store`],
//! [`service`], [`http`], and [`cli`] last.
#![forbid(unsafe_code)]

pub mod cli;
pub mod exit;
pub mod files;
pub mod http;
pub mod limits;
pub mod log;
pub mod private_postgres;
pub mod semaphore;
pub mod service;
pub mod shutdown;
pub mod store;
pub mod task;

/// Locks a mutex whose data stays valid whatever panics: ours guard plain values that are never left half written.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
