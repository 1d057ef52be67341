//! Counting many small files with two threads: opening and reading them takes longer than counting. In their order: the
//! results, and so the lines, are as if they had been counted one after the other.

use std::panic::resume_unwind;
use std::thread;

use super::{BUFFER, Input};
use crate::task::Counts;

/// Files that are counted before their lines are written: no more than anybody waits for.
const CROWD: usize = 256;
/// So few are not worth a second thread.
const FEW: usize = 8;

/// The buffers of the two threads, which are used from crowd to crowd.
pub struct Crowd {
    buffers: [Vec<u8>; 2],
}

impl Crowd {
    /// The second buffer costs nothing until there is a crowd: what was never written to is not resident.
    pub fn new() -> Crowd {
        Crowd { buffers: [vec![0; BUFFER], vec![0; BUFFER]] }
    }

    /// Counts the first of `inputs`, and those after it as long as all are small: one result for each, in their order.
    pub fn count(&mut self, inputs: &[Input], max_words: Option<u64>) -> Vec<Result<Counts, String>> {
        let small = inputs.iter().take(CROWD).take_while(|input| input.is_small()).count();
        let (ours, theirs) = inputs[..small.max(1)].split_at(if small < FEW { small.max(1) } else { small / 2 });
        let count = |inputs: &[Input], buffer: &mut [u8]| -> Vec<_> {
            inputs.iter().map(|input| input.count(max_words, buffer)).collect()
        };
        let [buffer, other] = &mut self.buffers;
        if theirs.is_empty() {
            return count(ours, buffer);
        }
        thread::scope(|scope| {
            let helper = thread::Builder::new().spawn_scoped(scope, || count(theirs, other));
            let mut results = count(ours, buffer);
            results.extend(match helper {
                Ok(helper) => helper.join().unwrap_or_else(|panic| resume_unwind(panic)),
                Err(_) => count(theirs, buffer),
            });
            results
        })
    }
}
