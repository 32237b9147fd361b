//! The epoch's decisions as one value: which samples, in which order, in which batch, on which rank.
//!
//! A plan is a pure function of its [`Shape`], the seed and the epoch, so every rank computes the same one and
//! no message is needed. The order is one global shuffle. It is cut into *global batches* (one batch per rank),
//! and each rank takes its own part of every global batch. Two properties follow: the same global batch size on
//! another number of ranks trains the same global batches, and a rank's position is just a batch number.
//!
//! Where the number of samples does not divide, the end of the epoch is evened out ([`Uneven`]): every rank gets
//! equally many samples and so equally many batches, always, because a rank that waits alone hangs a job.
//!
//! Deliberately not here: which samples are worth training (`select` hands its list and weights to
//! [`Plan::weighted`]), where they lie, and the bytes.

use crate::rng::{Purpose, Stream};
use crate::{Invalid, SampleId};
use std::ops::Range;

/// What to do when the samples cannot be dealt out equally to the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uneven {
    /// Leave out fewer than `world` samples this epoch.
    Drop,
    /// Train fewer than `world` samples a second time, taken from the beginning of the epoch.
    Pad,
}

/// How an epoch is cut into batches and shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Samples per batch on one rank.
    pub batch: u32,
    /// Which rank this is, below `world`.
    pub rank: u32,
    /// How many ranks there are.
    pub world: u32,
    /// How the shares are made equal.
    pub uneven: Uneven,
    /// Whether a last batch with fewer than `batch` samples is left out.
    pub drop_last: bool,
}

impl Shape {
    /// One rank, batches of `batch`, everything kept.
    pub fn single(batch: u32) -> Shape {
        Shape { batch, rank: 0, world: 1, uneven: Uneven::Pad, drop_last: false }
    }

    /// Full batches per rank, and samples per rank in the one after them.
    pub(crate) fn cut(&self, samples: u32) -> (u32, u32) {
        let world = u64::from(self.world);
        let global = u64::from(self.batch) * world;
        let rest = u64::from(samples) % global;
        let share = match self.uneven {
            Uneven::Drop => rest / world,
            Uneven::Pad => rest.div_ceil(world),
        };
        ((u64::from(samples) / global) as u32, share as u32)
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.batch == 0 {
            return Err(Invalid("batch is 0; it must be at least 1".into()));
        }
        if self.world == 0 || self.rank >= self.world {
            return Err(Invalid(format!("rank {} of world {} does not exist", self.rank, self.world)));
        }
        Ok(())
    }
}

/// How many batches every rank trains in an epoch of `samples`, known without making its order.
pub fn batches(samples: u32, shape: Shape) -> u32 {
    let (full, rest) = shape.cut(samples);
    full + u32::from(rest > 0 && !shape.drop_last)
}

/// The order of one epoch and this rank's part of it.
#[derive(Debug, Clone)]
pub struct Plan {
    order: Vec<u32>,
    /// What each sample's loss is multiplied by, in the same order; empty when all are 1.
    weights: Vec<f32>,
    /// Positions at which a sample is served that was served before, and for how many times; ascending.
    again: Vec<(u32, u32)>,
    shape: Shape,
}

impl Plan {
    /// All of `samples` in one global shuffle: the neutral plan, the plain loader.
    pub fn shuffled(samples: u32, seed: u64, epoch: u64, shape: Shape) -> Result<Plan, Invalid> {
        Plan::of(Stream::new(seed, epoch, Purpose::TrainingOrder, &[]).permutation(samples), shape)
    }

    /// All of `samples` in the order of their ids.
    pub fn in_order(samples: u32, shape: Shape) -> Result<Plan, Invalid> {
        Plan::of((0..samples).collect(), shape)
    }

    /// A given order of sample ids.
    pub fn of(order: Vec<u32>, shape: Shape) -> Result<Plan, Invalid> {
        shape.check()?;
        if order.len() > u32::MAX as usize {
            return Err(Invalid(format!("{} samples are more than an epoch can hold", order.len())));
        }
        Ok(Plan { order, weights: Vec::new(), again: Vec::new(), shape })
    }

    /// A given order of sample ids, each with its weight; no weights are all 1.
    pub fn weighted(order: Vec<u32>, weights: Vec<f32>, shape: Shape) -> Result<Plan, Invalid> {
        if !weights.is_empty() && weights.len() != order.len() {
            return Err(Invalid(format!("{} samples but {} weights", order.len(), weights.len())));
        }
        Ok(Plan { weights, ..Plan::of(order, shape)? })
    }

    /// The same, knowing which samples are served more than once: their random ops then differ each time.
    #[must_use]
    pub fn with_repeats(mut self) -> Plan {
        let mut times = vec![0_u32; self.order.iter().max().map_or(0, |id| *id as usize + 1)];
        for (position, &id) in self.order.iter().enumerate() {
            let before = &mut times[id as usize];
            if *before > 0 {
                self.again.push((position as u32, *before));
            }
            *before += 1;
        }
        self
    }

    /// How many times the sample at this place was served before in the epoch. Panics outside of the plan.
    pub fn again(&self, batch: u32, slot: usize) -> u32 {
        if self.again.is_empty() {
            return 0;
        }
        let position = self.position(batch, slot);
        let found = self.again.binary_search_by_key(&position, |(position, _)| *position);
        found.map_or(0, |at| self.again[at].1)
    }

    /// The shape this plan was made for.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The samples of the whole epoch, of all ranks, in order.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// How many batches this rank, and every other, trains this epoch.
    pub fn batches(&self) -> u32 {
        batches(self.order.len() as u32, self.shape)
    }

    /// How many samples this rank, and every other, trains this epoch.
    pub fn samples(&self) -> u32 {
        let (full, rest) = self.cut();
        full * self.shape.batch + if self.shape.drop_last { 0 } else { rest }
    }

    /// The samples of this rank's batch `batch`, in order; empty past the end.
    pub fn batch(&self, batch: u32) -> impl ExactSizeIterator<Item = SampleId> + '_ {
        self.batch_of(self.shape.rank, batch)
    }

    /// How many samples batch `batch` has; 0 past the end.
    pub fn batch_len(&self, batch: u32) -> usize {
        self.places(batch).len()
    }

    /// Sample `slot` of batch `batch`. Panics outside of the plan.
    pub fn sample(&self, batch: u32, slot: usize) -> SampleId {
        let places = self.places(batch);
        assert!(slot < places.len(), "slot {slot} of batch {batch} is not in the plan");
        self.at(places.start + slot)
    }

    /// The samples of batch `batch` of another rank, in order; empty past the end.
    pub fn batch_of(&self, rank: u32, batch: u32) -> impl ExactSizeIterator<Item = SampleId> + '_ {
        self.places_of(rank, batch).map(|place| self.at(place))
    }

    /// Sample `slot` of batch `batch` of another rank. Panics outside of the plan.
    pub fn sample_of(&self, rank: u32, batch: u32, slot: usize) -> SampleId {
        let places = self.places_of(rank, batch);
        assert!(slot < places.len(), "slot {slot} of batch {batch} is not in the plan");
        self.at(places.start + slot)
    }

    /// Where in the order of the whole epoch sample `slot` of batch `batch` stands. Panics outside of the plan.
    pub fn position(&self, batch: u32, slot: usize) -> u32 {
        let places = self.places(batch);
        assert!(slot < places.len(), "slot {slot} of batch {batch} is not in the plan");
        ((places.start + slot) % self.order.len()) as u32
    }

    /// What the loss of sample `slot` of batch `batch` is multiplied by. Panics outside of the plan.
    pub fn weight(&self, batch: u32, slot: usize) -> f32 {
        let places = self.places(batch);
        assert!(slot < places.len(), "slot {slot} of batch {batch} is not in the plan");
        self.weights.get((places.start + slot) % self.order.len()).copied().unwrap_or(1.0)
    }

    /// Whether every weight is 1.
    pub fn is_plain(&self) -> bool {
        self.weights.is_empty()
    }

    fn cut(&self) -> (u32, u32) {
        self.shape.cut(self.order.len() as u32)
    }

    /// The sample at a place of the global order, which begins again past its end.
    #[inline]
    fn at(&self, place: usize) -> SampleId {
        // Hardly any place is past the end, and a division takes longer than all the rest.
        let place = if place < self.order.len() { place } else { place % self.order.len() };
        SampleId(self.order[place])
    }

    /// Where in the global order (wrapping past its end) this rank's batch lies.
    fn places(&self, batch: u32) -> Range<usize> {
        self.places_of(self.shape.rank, batch)
    }

    fn places_of(&self, rank: u32, batch: u32) -> Range<usize> {
        let (full, rest) = self.cut();
        let share = if batch < full {
            self.shape.batch
        } else if batch == full && !self.shape.drop_last {
            rest
        } else {
            return 0..0;
        };
        let global = self.shape.batch as usize * self.shape.world as usize;
        let start = batch as usize * global + rank as usize * share as usize;
        start..start + share as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(plan: &Plan) -> Vec<u32> {
        (0..plan.batches()).flat_map(|b| plan.batch(b).map(|id| id.0).collect::<Vec<_>>()).collect()
    }

    fn worlds(samples: u32, world: u32, batch: u32, uneven: Uneven, drop_last: bool) -> Vec<Plan> {
        (0..world)
            .map(|rank| {
                Plan::shuffled(samples, 3, 5, Shape { batch, rank, world, uneven, drop_last }).unwrap()
            })
            .collect()
    }

    #[test]
    fn one_rank_sees_everything_once_in_a_shuffled_order() {
        let plan = Plan::shuffled(1_000, 0, 0, Shape::single(64)).unwrap();
        let mut seen = ids(&plan);
        assert_eq!((plan.batches(), plan.samples()), (16, 1_000));
        assert_ne!(seen, (0..1_000).collect::<Vec<_>>());
        assert_ne!(seen, ids(&Plan::shuffled(1_000, 0, 1, Shape::single(64)).unwrap()), "epochs differ");
        assert_ne!(seen, ids(&Plan::shuffled(1_000, 1, 0, Shape::single(64)).unwrap()), "seeds differ");
        seen.sort_unstable();
        assert_eq!(seen, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn the_same_global_batch_on_other_worlds_trains_the_same_samples() {
        let global = |world: u32, b: u32| {
            let mut all: Vec<u32> = worlds(960, world, 48 / world, Uneven::Drop, false)
                .iter()
                .flat_map(|plan| plan.batch(b).map(|id| id.0).collect::<Vec<_>>())
                .collect();
            all.sort_unstable();
            all
        };
        for b in [0, 7, 19] {
            assert_eq!(global(1, b), global(2, b));
            assert_eq!(global(1, b), global(8, b));
        }
    }

    #[test]
    fn a_weight_goes_with_its_sample() {
        let shape = Shape { world: 2, rank: 1, ..Shape::single(2) };
        let plan = Plan::weighted(vec![7, 8, 9, 4, 5], vec![1.0, 2.0, 3.0, 4.0, 5.0], shape).unwrap();
        assert_eq!(ids(&plan), [9, 4, 7], "padded with the first");
        let weights = [plan.weight(0, 0), plan.weight(0, 1), plan.weight(1, 0)];
        assert!([3.0, 4.0, 1.0].iter().zip(weights).all(|(a, b): (&f32, f32)| a.to_bits() == b.to_bits()));
        assert!(Plan::weighted(vec![1, 2], vec![1.0], shape).is_err());
        let twice = Plan::of(vec![3, 1, 3, 3], Shape::single(2)).unwrap().with_repeats();
        let again = [twice.again(0, 0), twice.again(0, 1), twice.again(1, 0), twice.again(1, 1)];
        assert_eq!(again, [0, 0, 1, 2]);
    }

    #[test]
    fn nonsense_is_refused() {
        let shape = Shape::single(4);
        assert!(Plan::in_order(9, Shape { batch: 0, ..shape }).is_err());
        assert!(Plan::in_order(9, Shape { world: 0, ..shape }).is_err());
        assert!(Plan::in_order(9, Shape { rank: 2, world: 2, ..shape }).is_err());
        assert_eq!(Plan::in_order(0, shape).unwrap().batches(), 0);
    }

    proptest! {
        /// Against the definition: shares are equal, disjoint and complete up to the stated remainder.
        #[test]
        fn shares_are_equal_disjoint_and_complete(
            samples in 0_u32..400, world in 1_u32..9, batch in 1_u32..40, pad: bool, drop_last: bool,
        ) {
            let uneven = if pad { Uneven::Pad } else { Uneven::Drop };
            let plans = worlds(samples, world, batch, uneven, drop_last);
            for plan in &plans {
                prop_assert_eq!(plan.batches(), plans[0].batches());
                prop_assert_eq!(plan.samples(), plans[0].samples());
                prop_assert_eq!(ids(plan).len() as u32, plan.samples());
                for b in 0..plan.batches() {
                    prop_assert_eq!(plan.batch(b).len(), plan.batch_len(b));
                    prop_assert!(plan.batch_len(b) > 0);
                    for (slot, id) in plan.batch(b).enumerate() {
                        prop_assert_eq!(plan.sample(b, slot), id);
                        prop_assert_eq!(plans[0].sample_of(plan.shape().rank, b, slot), id);
                    }
                    let short = plan.batch_len(b) < batch as usize;
                    prop_assert!(!short || (b + 1 == plan.batches() && !drop_last));
                }
                prop_assert_eq!(plan.batch_len(plan.batches()), 0);
            }
            let mut times = vec![0_u32; samples as usize];
            plans.iter().flat_map(ids).for_each(|id| times[id as usize] += 1);
            let missing = times.iter().filter(|&&n| n == 0).count() as u32;
            let again: u32 = times.iter().map(|n| n.saturating_sub(1)).sum();
            match uneven {
                Uneven::Pad => prop_assert!(again < world),
                Uneven::Drop => prop_assert_eq!(again, 0),
            }
            match uneven {
                _ if drop_last => prop_assert!(missing < batch * world),
                Uneven::Pad => prop_assert_eq!(missing, 0),
                Uneven::Drop => prop_assert!(missing < world),
            }
        }
    }
}
