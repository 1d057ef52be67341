//! 1.7 million inputs for everything that reads a client's bytes: none panics, and what is accepted means one
//! thing only. The same inputs in every run; `FUZZ_SEED=7 FUZZ_TIMES=20 cargo test --release --test fuzz` tries others, and
//! more of them.

mod bodies;
mod dice;
mod heads;
mod ids;
