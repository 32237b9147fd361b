//! Ours: skip what adds least, and let the survivors carry its weight.
//!
//! How much a sample moves the model is about `g = 1 - p_true`, the size of its gradient at the output. Training it
//! with chance `q` and weight `1 / q` changes nothing on average and adds noise of `g^2 (1 / q - 1)`. The fewest
//! samples for a given noise are trained with `q = g / threshold` below a threshold and always above it. The
//! threshold is the one at which the added noise is the share `noise` of what the full epoch has: easy data is
//! skipped boldly, hard data hardly, without a constant to tune for each. Buckets, then: below the threshold a sample
//! may be skipped, above it may not.
//!
//! Chances are not coin flips. Each sample saves up its chance and is trained when it has saved a whole one, so a
//! sample with a chance of a quarter is trained every fourth epoch, not sometimes twice and sometimes never.
//! Weights are bounded: a sample that was easy when its chance was set and is hard when its turn comes would
//! otherwise move the model by a multiple of what any sample of a plain epoch does, and that can end a run.
//! Fewer samples make smaller batches rather than fewer of them: a step then still estimates what the full batch
//! would have done, and there are as many steps as the learning rate was chosen for.
//! What was predicted wrongly at its last visit has chance 1 at once. When training waits for I/O, what is dear to
//! fetch must be worth it: its chance is divided by the root of its relative cost (the fewest seconds for the noise).

use super::options::Weighted;
use super::{Context, Pick};
use crate::rng::{Purpose, key};
use crate::score::Threshold;

/// Steps in which the sizes of gradients are counted when the threshold is sought.
const BINS: usize = 4_096;

/// What is remembered from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Memory {
    /// The chance each sample has saved up, below 1.
    pub(super) saved: Vec<f32>,
    pub(super) threshold: Threshold,
}

impl Memory {
    pub(super) fn new(samples: usize, seed: u64) -> Memory {
        // Different beginnings, so that equal samples take turns.
        let begin = |id: usize| {
            let bits = key(&[seed, Purpose::Selection as u64, id as u64]) >> 40;
            bits as f32 / (1_u64 << 24) as f32
        };
        Memory { saved: (0..samples).map(begin).collect(), threshold: Threshold::default() }
    }
}

/// The samples whose turn it is.
pub(super) fn pick(options: &Weighted, memory: &mut Memory, context: &Context<'_>) -> Pick {
    if let Some(whole) = context.whole(options.warmup, options.full_share) {
        return whole;
    }
    let samples = context.samples();
    let scores = context.scores;
    let by_cost = options.cost && context.readings.io_bound;
    let cost = if by_cost { context.readings.times.relative(&context.facts.sizes) } else { Vec::new() };
    // The size of the gradient; where cost votes, per root of the cost.
    let worth = |id: usize| {
        let size = 1.0 - scores.p_true[id];
        if by_cost { size / cost[id].max(1e-6).sqrt() } else { size }
    };
    let certain = |id: usize| scores.seen[id] == 0 || scores.wrong(id);
    let found = threshold((0..samples).map(|id| (worth(id), certain(id))), options);
    let threshold = memory.threshold.follow(found, options.smoothing);
    let mut pick = Pick { threshold: Some(threshold), ..Pick::default() };
    let mut skippable = 0_u32;
    for id in 0..samples {
        let chance = if certain(id) { 1.0 } else { chance(worth(id), threshold, options.least) };
        skippable += u32::from(chance < 1.0);
        let saved = memory.saved[id] + chance;
        let turn = saved >= 1.0 || chance >= 1.0;
        memory.saved[id] = if turn { (saved - 1.0).clamp(0.0, 1.0 - f32::EPSILON) } else { saved };
        if turn {
            pick.ids.push(id as u32);
            pick.weights.push((1.0 / chance).min(options.weight_max as f32));
        }
    }
    // As many steps as a full epoch has, as far as batches may shrink: each then estimates what the full batch would
    // have done. What they may not shrink is made up by the weight.
    let share = (pick.ids.len() as f64 / samples as f64).clamp(options.batch_least, 1.0) as f32;
    pick.weights.iter_mut().for_each(|weight| *weight *= share);
    pick.batch_share = Some(share);
    let why = if by_cost { "gradient for its cost" } else { "gradient" };
    let skipped = samples - pick.ids.len();
    pick.reason = format!(
        "{skipped} of {skippable} whose {why} is below {threshold:.3} are skipped, the others carry their weight"
    );
    pick
}

fn chance(worth: f32, threshold: f64, least: f64) -> f32 {
    if threshold <= 0.0 {
        return 1.0;
    }
    (f64::from(worth) / threshold).clamp(least, 1.0) as f32
}

/// The threshold at which skipping adds the share `noise` of the noise there is, to within one step of a count.
fn threshold(worths: impl Iterator<Item = (f32, bool)>, options: &Weighted) -> f64 {
    let mut counts = vec![0_u64; BINS + 1]; // of what may be skipped
    let mut total = 0.0;
    for (worth, certain) in worths {
        total += f64::from(worth) * f64::from(worth);
        if !certain {
            counts[((worth * BINS as f32) as usize).min(BINS)] += 1;
        }
    }
    let middle = |bin: usize| (bin as f64 + 0.5) / BINS as f64;
    let added = |threshold: f64| -> f64 {
        let one = |(bin, &count): (usize, &u64)| {
            let worth = middle(bin);
            let chance = (worth / threshold).clamp(options.least, 1.0);
            count as f64 * worth * worth * (1.0 / chance - 1.0)
        };
        counts.iter().enumerate().filter(|(_, count)| **count > 0).map(one).sum()
    };
    // More threshold is more noise: halve the interval until it is one step.
    let (mut low, mut high) = (0.0, 2.0);
    while high - low > 0.5 / BINS as f64 {
        let middle = f64::midpoint(low, high);
        if added(middle) <= options.noise * total { low = middle } else { high = middle }
    }
    low
}
