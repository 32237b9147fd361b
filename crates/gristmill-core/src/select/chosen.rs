//! What a selection decided for an epoch: who is trained, with what weight, in what order, in batches of what size.
//!
//! Deliberately not here: how it was decided (the ways to select), and the plan that is made of it.

use crate::bits::Bits;
use crate::plan::Shape;
use crate::rng::{Purpose, Stream};

/// The samples of one epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// The epoch.
    pub epoch: u64,
    /// The ids in ascending order; a way that draws with replacement may repeat one.
    pub ids: Vec<u32>,
    /// What each one's loss is multiplied by; empty when all are 1.
    pub weights: Vec<f32>,
    /// The size of a batch as a share of the usual one, above 0 and at most 1.
    pub batch_share: f32,
    /// What was decided, in numbers.
    pub summary: Summary,
}

/// What was decided, in numbers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Samples of the data set.
    pub samples: u32,
    /// Samples of this epoch, each counted once.
    pub kept: u32,
    /// Resting samples that came back.
    pub recalled: u32,
    /// Samples that were added because their class would have had too few.
    pub for_classes: u32,
    /// Reports of the trainer that were no numbers, so far.
    pub unknown: u64,
    /// The threshold in use, if there is one.
    pub threshold: Option<f64>,
    /// Whether a small model is to be trained in this epoch.
    pub proxy: bool,
    /// Samples that were added because they are never skipped.
    pub for_probe: u32,
    /// The accuracy on those in the epoch before, 0 to 1, if it was told.
    pub probe: Option<f64>,
    /// Why this epoch has everything, if the guard asked for that; else empty.
    pub guard: String,
    /// Why, in one line.
    pub reason: String,
}

impl Chosen {
    /// How the epoch is cut: as usual, but for smaller batches where fewer samples are to make as many steps, and for ones that
    /// leave no sample alone. How long an epoch is, is the selection's doing, and batch norm ends a training over a last batch
    /// of one. (In an epoch of everything such a batch is the user's, as with any loader.)
    #[must_use]
    pub fn shape(&self, usual: Shape) -> Shape {
        let batch = (f64::from(usual.batch) * f64::from(self.batch_share)).ceil() as u32;
        let batch = batch.clamp(1, usual.batch.max(1));
        let samples = self.ids.len() as u32;
        let alone = |batch: u32| Shape { batch, ..usual }.cut(samples).1 == 1;
        // A quarter less has one that will do, but where the length is one more than a multiple of all of these: a few
        // lengths, of small batches.
        let mut others = (batch - batch / 4..batch).rev();
        let everything = self.summary.kept == self.summary.samples && samples == self.summary.samples;
        let other = if usual.drop_last || everything || !alone(batch) {
            None
        } else {
            others.find(|&batch| !alone(batch))
        };
        Shape { batch: other.unwrap_or(batch), ..usual }
    }

    /// The same with only these samples; how many that are, the caller knows.
    pub(super) fn only(&self, stays: impl Fn(u32) -> bool) -> Chosen {
        let weights =
            self.ids.iter().zip(&self.weights).filter(|(id, _)| stays(**id)).map(|(_, weight)| *weight);
        let weights = weights.collect();
        let ids = self.ids.iter().copied().filter(|&id| stays(id)).collect();
        Chosen {
            epoch: self.epoch,
            ids,
            weights,
            batch_share: self.batch_share,
            summary: self.summary.clone(),
        }
    }

    /// The order in which the epoch is trained, and the weights in that order (empty when all are 1).
    ///
    /// It is the one shuffle of the whole data set with those left out that are not chosen. So two jobs of one seed
    /// that choose differently still meet the samples they have in common in the same order, and a cache that they share
    /// reads those once.
    pub fn shuffled(&self, seed: u64) -> (Vec<u32>, Vec<f32>) {
        let stream = Stream::new(seed, self.epoch, Purpose::TrainingOrder, &[]);
        if !self.ids.is_sorted_by(|a, b| a < b) {
            // Repeats in the same place of the shuffle would end up in one batch.
            let places = stream.permutation(self.ids.len() as u32);
            let weight = |&place: &u32| self.weights.get(place as usize).copied();
            let weights = places.iter().filter_map(weight).collect();
            return (places.into_iter().map(|place| self.ids[place as usize]).collect(), weights);
        }
        let samples = self.summary.samples;
        let mut chosen = Bits::new(samples as usize);
        self.ids.iter().for_each(|&id| _ = chosen.set(id, true));
        let mut order = stream.permutation(samples);
        order.retain(|&id| chosen.has(id));
        if self.weights.is_empty() {
            return (order, Vec::new());
        }
        let mut by_id = vec![0.0; samples as usize];
        self.ids.iter().zip(&self.weights).for_each(|(id, weight)| by_id[*id as usize] = *weight);
        let weights = order.iter().map(|id| by_id[*id as usize]).collect();
        (order, weights)
    }
}
