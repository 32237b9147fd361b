//! How much of the data a rank has seen so far: one bit per sample, for as many ranks as memory allows.

use gristmill_core::plan::Plan;
use gristmill_core::rng::{Stream, key};

/// The most bits that are kept.
const BITS_MAX: u64 = 1 << 32;
/// Folded into the key of what is drawn here, so that no other stream has it.
const FOLLOW: u64 = 0x464f_4c4c_4f57;

/// The share of the data set that ranks have seen.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SeenShare {
    /// Of the mean rank.
    pub mean: f64,
    /// Of the one that has seen the least.
    pub least: f64,
    /// Of the one that has seen the most.
    pub most: f64,
}

/// What some ranks have seen.
#[derive(Debug)]
pub(crate) struct Seen {
    samples: u32,
    /// Which ranks, ascending, and for each its bits and how many are set.
    ranks: Vec<(u32, Vec<u64>, u32)>,
}

impl Seen {
    /// Follows `follow` of the ranks, drawn from the seed; all if there are no more.
    pub(crate) fn new(samples: u32, world: u32, follow: u32, seed: u64) -> Seen {
        let room = (BITS_MAX / u64::from(samples.max(1))).max(1);
        let follow = u64::from(follow.clamp(1, world)).min(room) as usize;
        let mut ranks = Stream::from_key(key(&[seed, FOLLOW])).permutation(world);
        ranks.truncate(follow);
        ranks.sort_unstable();
        let words = (samples as usize).div_ceil(64);
        Seen { samples, ranks: ranks.into_iter().map(|rank| (rank, vec![0; words], 0)).collect() }
    }

    /// How many ranks are followed.
    pub(crate) fn followed(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Notes what the ranks train in an epoch.
    pub(crate) fn note(&mut self, plan: &Plan) {
        for (rank, bits, count) in &mut self.ranks {
            for batch in 0..plan.batches() {
                for id in plan.batch_of(*rank, batch).map(|id| id.0) {
                    let (word, bit) = (&mut bits[id as usize / 64], 1 << (id % 64));
                    *count += u32::from(*word & bit == 0);
                    *word |= bit;
                }
            }
        }
    }

    pub(crate) fn share(&self) -> SeenShare {
        let share = |count: u32| f64::from(count) / f64::from(self.samples.max(1));
        let counts = || self.ranks.iter().map(|(_, _, count)| *count);
        let sum: u64 = counts().map(u64::from).sum();
        SeenShare {
            mean: sum as f64 / f64::from(self.followed()) / f64::from(self.samples.max(1)),
            least: share(counts().min().unwrap_or(0)),
            most: share(counts().max().unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::plan::Shape;

    #[test]
    fn what_was_seen_counts_once() {
        let shape = Shape { world: 2, ..Shape::single(3) };
        let mut seen = Seen::new(12, 2, 64, 0);
        assert_eq!((seen.followed(), seen.share()), (2, SeenShare::default()));
        seen.note(&Plan::in_order(12, shape).unwrap());
        assert!((seen.share().mean - 0.5).abs() < 1e-12);
        seen.note(&Plan::in_order(12, shape).unwrap());
        assert!((seen.share().most - 0.5).abs() < 1e-12, "again is not more");
        seen.note(&Plan::of((0..12).rev().collect(), shape).unwrap());
        assert!((seen.share().least - 1.0).abs() < 1e-12);
    }

    #[test]
    fn some_of_many_ranks_are_followed() {
        let (a, b) = (Seen::new(10_000, 1_000, 64, 1), Seen::new(10_000, 1_000, 64, 2));
        assert_eq!(a.followed(), 64);
        let ranks = |seen: &Seen| seen.ranks.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>();
        assert!(ranks(&a).is_sorted() && ranks(&a) != ranks(&b));
    }
}
