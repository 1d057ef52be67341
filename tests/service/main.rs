//! The service as its users meet it: the real binary, a real PostgreSQL, real sockets and signals.

mod harness;

mod admission;
mod analysers;
mod batches;
mod campaign;
mod claims;
mod drain;
mod estimates;
mod files;
mod foreign_rows;
mod guards;
mod interleavings;
mod keys;
mod leaks;
mod lease_run;
mod leases;
mod life;
mod long_faults;
mod lost_answers;
mod lost_database;
mod lost_leases;
mod requests;
mod start;
mod threads;
mod waits;
