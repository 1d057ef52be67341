//! Chance that can be repeated.

use std::{env, thread};

/// SplitMix64: small, and good enough to wander through bytes with.
pub struct Dice(u64);

impl Dice {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.number() % n as u64) as usize
    }

    pub fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }

    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.number() as u8).collect()
    }

    /// Changes bytes here and there, or puts one of `spice` in.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>, spice: &[&[u8]]) {
        for _ in 0..self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(5) {
                0 => bytes.truncate(at),
                1 | 2 => drop(bytes.splice(at..at, self.one_of(spice).iter().copied())),
                _ if at == bytes.len() => bytes.push(self.number() as u8),
                3 => drop(bytes.remove(at)),
                _ => bytes[at] = self.number() as u8,
            }
        }
    }
}

/// Which input is being tried: said when the test fails with it.
struct Trial {
    seed: u64,
    number: usize,
}

impl Drop for Trial {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("input {} of FUZZ_SEED={}", self.number, self.seed);
        }
    }
}

/// Calls `trial` this many times with dice of its own each time, or as many times more as `FUZZ_TIMES` says.
pub fn repeat(times: usize, mut trial: impl FnMut(&mut Dice)) {
    let asked = |name| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seed = asked("FUZZ_SEED").unwrap_or(1);
    let times = times * asked("FUZZ_TIMES").unwrap_or(1) as usize;
    println!("FUZZ_SEED={seed}, {times} inputs");
    let mut dice = Dice(seed);
    for number in 0..times {
        let running = Trial { seed, number };
        trial(&mut Dice(dice.number()));
        drop(running);
    }
}
