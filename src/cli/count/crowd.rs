//! Counting many small files with two threads: opening and reading them takes longer than counting. In their order: the
//! results, and so the lines, are as if they had been counted one after the other.

use super::{BUFFER, Input, both};
use crate::task::Counts;

/// Files that are counted before their lines are written: no more than anybody waits for.
const CROWD: usize = 256;
/// So few are not worth a second thread.
const FEW: usize = 8;

/// Counts the first of `inputs`, and those after it as long as all are small: one result for each, in their order. `buffer` is
/// only lent.
pub fn count(inputs: &[Input], max_words: Option<u64>, buffer: &mut [u8]) -> Vec<Result<Counts, String>> {
    let small = inputs.iter().take(CROWD).take_while(|input| input.is_small()).count();
    let count = |inputs: &[Input], buffer: &mut [u8]| -> Vec<_> {
        inputs.iter().map(|input| input.count(max_words, buffer)).collect()
    };
    if small < FEW {
        return count(&inputs[..small.max(1)], buffer);
    }
    let (ours, theirs) = inputs[..small].split_at(small / 2);
    let (mut results, others) = both(|| count(ours, buffer), || count(theirs, &mut vec![0; BUFFER]));
    results.extend(others);
    results
}
