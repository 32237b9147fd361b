//! Randomness as a pure function.
//!
//! Every random choice is drawn from a stream whose state is a hash of what the choice belongs to: seed, epoch,
//! what the stream is for, and then rank, sample or op. Nothing is carried from one choice to the next, so the
//! number of threads, the place where an op runs and a restart change nothing.
//!
//! The generator is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Deliberately not here: any source of entropy, any global
//! generator, floating-point distributions beyond the uniform one (they would tie plans to a maths library).

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// One SplitMix64 step: a bijection of 64 bits that mixes them well.
#[inline]
pub const fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Folds any number of words into one key.
#[inline]
pub fn key(words: &[u64]) -> u64 {
    words.iter().fold(0, |hash, &word| mix(hash ^ word))
}

/// What a stream of random numbers is used for. The numbers are part of every plan: never reuse or renumber them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Who sends to whom in one step of the exchange.
    ExchangeRanks = 1,
    /// Which local samples are exchanged, per rank.
    ExchangeOrder = 2,
    /// The order in which an epoch is trained.
    TrainingOrder = 3,
    /// Coin flips of selection.
    Selection = 4,
    /// Bringing resting samples back.
    Recall = 5,
    /// The order of cold packs.
    PackOrder = 6,
    /// Random ops; followed by sample and op.
    Augmentation = 7,
}

/// A stream of random numbers that belongs to one seed, epoch and purpose.
#[derive(Debug, Clone)]
pub struct Stream {
    state: u64,
}

impl Stream {
    /// The stream of `purpose` in this epoch; `rest` narrows it to a rank, a step, or a sample and an op.
    pub fn new(seed: u64, epoch: u64, purpose: Purpose, rest: &[u64]) -> Stream {
        let state = key(&[seed, epoch, purpose as u64]);
        Stream::from_key(rest.iter().fold(state, |hash, &word| mix(hash ^ word)))
    }

    /// The stream that starts at a key computed by [`key`].
    pub fn from_key(key: u64) -> Stream {
        Stream { state: key }
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let out = mix(self.state);
        self.state = self.state.wrapping_add(GOLDEN);
        out
    }

    /// A number below `n`, by taking the high half of a 128-bit product. `n` must not be 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no number is below 0");
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number in [0, 1), with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A random order of 0..n (Fisher-Yates from the end).
    pub fn permutation(mut self, n: u32) -> Vec<u32> {
        self.next_permutation(n)
    }

    /// The same, for a stream that goes on afterwards.
    pub fn next_permutation(&mut self, n: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n).collect();
        for i in (1..order.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            order.swap(i, j);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(1), 0x910a_2dec_8902_5cc1);
        assert_eq!(key(&[42, 0, 1, 0]), 0x79ac_3b16_dbc3_b641);
        let order = Stream::new(42, 0, Purpose::ExchangeOrder, &[0]).permutation(8);
        assert_eq!(order, [3, 5, 2, 6, 0, 4, 7, 1]);
    }

    #[test]
    fn rank_permutations_of_the_exchange() {
        let steps =
            |epoch| [0, 1, 2].map(|s| Stream::new(42, epoch, Purpose::ExchangeRanks, &[s]).permutation(4));
        assert_eq!(steps(0), [[0, 1, 3, 2], [0, 3, 2, 1], [3, 0, 1, 2]]);
        assert_eq!(steps(1), [[1, 3, 0, 2], [1, 3, 2, 0], [0, 2, 3, 1]]);
    }

    #[test]
    fn every_first_place_is_equally_likely() {
        // 6,000 permutations of 6: each value leads 1,000 times, give or take 5 standard deviations (29 each).
        let mut first = [0_i32; 6];
        for seed in 0..6_000 {
            first[Stream::new(seed, 0, Purpose::TrainingOrder, &[]).permutation(6)[0] as usize] += 1;
        }
        assert!(first.iter().all(|n| (n - 1_000).abs() < 145), "{first:?}");
    }

    #[test]
    fn unit_and_below_stay_in_range() {
        let mut stream = Stream::from_key(7);
        for n in 1..2_000 {
            assert!(stream.below(n) < n);
            let u = stream.unit();
            assert!((0.0..1.0).contains(&u));
        }
    }
}
