//! Ours: skip what adds least, and let the survivors carry its weight.
//!
//! How much a sample moves the model is about `g = 1 - p_true`, the size of its gradient at the output. Training it
//! with chance `q` and weight `1 / q` changes nothing on average and adds noise of `g^2 (1 / q - 1)`. The fewest
//! samples for a given noise are trained with `q = g / threshold` below a threshold and always above it. The
//! threshold is the one at which the added noise is the share `noise` of what the full epoch has (less where much is
//! predicted wrongly, and more where hardly anything is and batch norm goes by weights): easy data is skipped boldly, hard
//! data hardly, without a constant to tune for each. Buckets, then: below the threshold a sample may be skipped, above it
//! may not.
//!
//! Chances are not coin flips. Each sample saves up its chance and is trained when it has saved a whole one, so a
//! sample with a chance of a quarter is trained every fourth epoch, not sometimes twice and sometimes never.
//! Weights are bounded: a sample that was easy when its chance was set and is hard when its turn comes would
//! otherwise move the model by a multiple of what any sample of a plain epoch does, and that can end a run.
//! Fewer samples make smaller batches rather than fewer of them: a step then still estimates what the full batch
//! would have done, and there are as many steps as the learning rate was chosen for. (Not in long runs
//! whose batch norm goes by weights.)
//! What was predicted wrongly at its last visit has chance 1 at once. Where that is a good part of all samples, the model
//! is far from knowing its data, and skipping the rest costs more than it saves: less is skipped, or nothing. When training waits for I/O, what is dear to
//! fetch must be worth it: its chance is divided by the root of its relative cost (the fewest seconds for the noise).

use super::drift::{Drift, Expected};
use super::options::{Bounds, Weighted};
use super::{Context, Norm, Pick};
use crate::math::{exp2, log2};
use crate::rng::{Purpose, key};
use crate::score::{Scores, Threshold};

/// At this share of wrong predictions the noise is what [`Weighted::noise`] says: errors fall as a power of the training's
/// length, so what noise costs is in proportion to the errors there are. (Where fewer are wrong it is more only if batch norm
/// goes by weights, [`Bounds::easy`]: a model without it lost, in a few steps, what took the guard to mend.)
const WRONG_USUAL: f64 = 0.1;
/// The part of a run in which more may be predicted wrongly.
const YOUNG_PART: f64 = 0.3;
/// The part of [`Weighted::wrong_max`] over which the noise falls to nothing.
const UNLEARNED_PART: f64 = 1.0 / 3.0;
/// The least chance while nothing is known of how sizes change, in the epoch after the first one: half of the samples that
/// were easy once come again at once.
const LEAST_UNKNOWN: f64 = 0.5;

/// What is remembered from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Memory {
    /// The chance each sample has saved up, below 1.
    pub(super) saved: Vec<f32>,
    pub(super) threshold: Threshold,
    pub(super) drift: Drift,
}

impl Weighted {
    /// The noise that skipping may add in this epoch, where this share of the samples is predicted wrongly; and how many times
    /// that is what it may add where nothing is known of predictions.
    fn noise_in(&self, bounds: Bounds, context: &Context<'_>, wrong: f64) -> (f64, f64) {
        let (epoch, epochs) = (context.epoch, context.facts.epochs);
        let last = epochs.map_or(0.0, |epochs| f64::from(epochs) - 1.0);
        let left = if last > 0.0 { (1.0 - epoch as f64 / last).max(0.0) } else { 0.0 };
        let noise = bounds.noise * (1.0 + (self.early - 1.0) * left);
        // Feedback that does not say who was right is no reason to be bold.
        let easy = if context.probe.unjudged { 1.0 } else { bounds.easy };
        let allowance = self.allowance(easy, wrong, epoch, epochs);
        (noise * allowance, allowance)
    }

    /// How many times that may be added, where this share of the samples is predicted wrongly: in inverse proportion, nothing
    /// from [`Weighted::wrong_max`] on, and at most `easy` times.
    fn allowance(&self, easy: f64, wrong: f64, epoch: u64, epochs: Option<u32>) -> f64 {
        if self.wrong_max >= 1.0 {
            return 1.0;
        }
        let part = epochs.map_or(1.0, |epochs| epoch as f64 / f64::from(epochs.max(1)));
        let most = self.wrong_max * (1.0 + (1.0 - part / YOUNG_PART).max(0.0));
        let learned = ((most - wrong) / (most * UNLEARNED_PART)).clamp(0.0, 1.0);
        learned * (WRONG_USUAL / wrong.max(WRONG_USUAL / easy))
    }
}

impl Memory {
    pub(super) fn new(samples: usize, seed: u64) -> Memory {
        // Different beginnings, so that equal samples take turns.
        let begin = |id: usize| {
            let bits = key(&[seed, Purpose::Selection as u64, id as u64]) >> 40;
            bits as f32 / (1_u64 << 24) as f32
        };
        let saved = (0..samples).map(begin).collect();
        Memory { saved, threshold: Threshold::default(), drift: Drift::new() }
    }
}

/// The samples whose turn it is.
pub(super) fn pick(options: &Weighted, memory: &mut Memory, context: &Context<'_>) -> Pick {
    if let Some(whole) = context.whole(options.warmup, options.full_share) {
        return whole;
    }
    let samples = context.samples();
    let by_cost = options.cost && context.readings.io_bound;
    let bounds = options.bounds(context.norm, context.facts.epochs);
    let wrong = context.wrong_share();
    let (noise, allowance) = options.noise_in(bounds, context, wrong);
    let (chances, threshold) = chances(options, memory, context, noise);
    memory.threshold.value = Some(threshold);
    memory.drift.fade();
    let mut pick = Pick { threshold: Some(threshold), ..Pick::default() };
    let mut skippable = 0_u32;
    for (id, chance) in chances.into_iter().enumerate() {
        skippable += u32::from(chance < 1.0);
        let saved = memory.saved[id] + chance;
        let turn = saved >= 1.0 || chance >= 1.0;
        memory.saved[id] = if turn { (saved - 1.0).clamp(0.0, 1.0 - f32::EPSILON) } else { saved };
        if turn {
            pick.ids.push(id as u32);
            pick.weights.push((1.0 / chance).min(bounds.weight_max as f32));
        }
    }
    // As many steps as a full epoch has, as far as batches may shrink: each then estimates what the full batch would
    // have done. What they may not shrink is made up by the weight.
    let batch_least = options.batch_least(context.norm, context.facts.epochs, context.readings.steps);
    let share = (pick.ids.len() as f64 / samples as f64).clamp(batch_least, 1.0) as f32;
    pick.weights.iter_mut().for_each(|weight| *weight *= share);
    pick.batch_share = Some(share);
    let why = if by_cost { "gradient for its cost" } else { "gradient" };
    let skipped = samples - pick.ids.len();
    pick.reason = format!(
        "{skipped} of {skippable} whose {why} is below {threshold:.3} are skipped, the others carry their weight{}{}",
        if context.norm == Norm::Absent {
            "; the model has no batch norm, so more may wait for longer"
        } else {
            ""
        },
        if allowance < 1.0 {
            format!("; fewer than else, since {:.0} % {} yet", 100.0 * wrong, context.badly())
        } else if allowance > 1.0 {
            format!("; more than else, since only {:.1} % are predicted wrongly", 100.0 * wrong)
        } else {
            String::new()
        }
    );
    if noise == 0.0 && bounds.noise > 0.0 {
        let (wrong, badly) = (100.0 * wrong, context.badly());
        pick.reason = format!("every sample: {wrong:.0} % {badly}, and the model learns from all yet");
    }
    pick
}

impl Context<'_> {
    /// What is said of those that count as predicted wrongly. Of a loss that does not tell who was right it is those that
    /// would be, were it a cross entropy; for another loss that bound may mean nothing, so it is named.
    fn badly(&self) -> &'static str {
        if self.probe.unjudged {
            "have a loss above 0.69 (selection.wrong_max goes by that; 1 switches it off)"
        } else {
            "are predicted wrongly"
        }
    }

    /// The share of the samples that were predicted wrongly at their last visit, of those that had one.
    fn wrong_share(&self) -> f64 {
        let seen = |id: &usize| self.scores.seen[*id] > 0;
        let (seen, wrong) = (0..self.samples())
            .filter(seen)
            .fold((0_u64, 0_u64), |(seen, wrong), id| (seen + 1, wrong + u64::from(self.scores.wrong(id))));
        wrong as f64 / seen.max(1) as f64
    }
}

/// The chance that each sample gets in this epoch, and the threshold it comes from, where so much noise may be added.
fn chances(options: &Weighted, memory: &Memory, context: &Context<'_>, noise: f64) -> (Vec<f32>, f64) {
    let samples = context.samples();
    if noise == 0.0 {
        return (vec![1.0; samples], 0.0);
    }
    let scores = context.scores;
    let by_cost = options.cost && context.readings.io_bound;
    let cost = if by_cost { context.readings.times.relative(&context.facts.sizes) } else { Vec::new() };
    let expected = memory.drift.expected();
    let size = |id: usize| size(expected.as_ref(), 1.0 - scores.p_true[id]);
    // What a sample is worth: the size of its gradient, where cost votes per root of the cost.
    let worth = |id: usize| if by_cost { size(id) / cost[id].max(1e-6).sqrt() } else { size(id) };
    let certain = |id: usize| scores.seen[id] == 0 || scores.wrong(id) || context.probe.has(id);
    let bounds = options.bounds(context.norm, context.facts.epochs).known(expected.is_some());
    let found = threshold((0..samples).map(|id| (size(id), worth(id), certain(id))), noise, bounds.least);
    let threshold = { memory.threshold }.follow(found, options.smoothing);
    let one = |id: usize| if certain(id) { 1.0 } else { chance(worth(id), threshold, bounds.least) };
    ((0..samples).map(one).collect(), threshold)
}

/// How likely each sample is trained in this epoch: 1 if its turn has come, else one part in the epochs until then.
///
/// That is also what holding it is worth, epoch by epoch: one use in so many.
pub(super) fn wanted(options: &Weighted, memory: &Memory, context: &Context<'_>) -> Vec<f32> {
    if context.whole(options.warmup, options.full_share).is_some() {
        return vec![1.0; context.samples()];
    }
    let bounds = options.bounds(context.norm, context.facts.epochs);
    let (noise, _) = options.noise_in(bounds, context, context.wrong_share());
    let (chances, _) = chances(options, memory, context, noise);
    chances.into_iter().zip(&memory.saved).map(|(chance, &saved)| outlook(chance, saved)).collect()
}

/// The same for a few samples whose feedback has just come, by the threshold of the epoch under way. `cost` is what a
/// sample's read costs beside the mean. Before there is a threshold, the size of the gradient says as much as there is.
pub(super) fn wanted_of(
    memory: &Memory,
    bounds: Bounds,
    scores: &Scores,
    ids: &[u32],
    cost: impl Fn(u32) -> f32,
) -> Vec<f32> {
    let expected = memory.drift.expected();
    let bounds = bounds.known(expected.is_some());
    let one = |&id: &u32| {
        let id_at = id as usize;
        let size = size(expected.as_ref(), 1.0 - scores.p_true[id_at]);
        match memory.threshold.value {
            _ if scores.seen[id_at] == 0 || scores.wrong(id_at) => 1.0,
            None => outlook(size.max(bounds.least as f32), memory.saved[id_at]),
            Some(threshold) => {
                let worth = size / cost(id).max(1e-6).sqrt();
                outlook(chance(worth, threshold, bounds.least), memory.saved[id_at])
            }
        }
    };
    ids.iter().map(one).collect()
}

/// How likely a sample with this chance is trained, that has saved so much.
fn outlook(chance: f32, saved: f32) -> f32 {
    // In epochs until its turn, from 0. A turn that has only just come may yet move, since chances fall as the model
    // learns; one that would have come with half the chance will not.
    let until = (1.0 - saved) / chance.max(1e-6);
    match chance >= 1.0 {
        true => 1.0,
        false if until <= 1.0 => 1.0 - 0.2 * until,
        false => 0.8 / until.ceil(),
    }
}

impl Bounds {
    /// The same while it is not known how sizes change: who was easy once is trained every second time.
    fn known(self, known: bool) -> Bounds {
        Bounds { least: if known { self.least } else { self.least.max(LEAST_UNKNOWN) }, ..self }
    }
}

/// The size that is to be expected of a sample's gradient, which was this at its last visit.
fn size(expected: Option<&Expected>, last: f32) -> f32 {
    expected.map_or(last, |expected| expected.of(last))
}

fn chance(worth: f32, threshold: f64, least: f64) -> f32 {
    if threshold <= 0.0 {
        return 1.0;
    }
    (f64::from(worth) / threshold).clamp(least, 1.0) as f32
}

/// The threshold at which skipping adds the share `noise` of the noise there is.
fn threshold(samples: impl Iterator<Item = (f32, f32, bool)>, noise: f64, least: f64) -> f64 {
    // Counted by worth in steps of a thirty-second of an octave: the noise, the number and the sum of worths.
    let mut steps = vec![(0.0_f64, 0_u64, 0.0_f64); 1 << 13];
    let mut total = 0.0;
    for (size, worth, certain) in samples {
        let own = f64::from(size) * f64::from(size);
        total += own;
        if !certain {
            let step = &mut steps[(worth.max(0.0).to_bits() >> 18) as usize];
            *step = (step.0 + own, step.1 + 1, step.2 + f64::from(worth));
        }
    }
    steps.retain(|(_, count, _)| *count > 0);
    let added = |threshold: f64| -> f64 {
        let one = |&(own, count, worths): &(f64, u64, f64)| {
            let chance = (worths / count as f64 / threshold).clamp(least, 1.0);
            own * (1.0 / chance - 1.0)
        };
        steps.iter().map(one).sum()
    };
    let largest = steps.last().map_or(0.0, |(_, count, worths)| worths / *count as f64);
    // More threshold is more noise, until all have the least chance: halve the interval of exponents.
    let (mut low, mut high) = (-60.0, log2(largest.max(1e-15) / least));
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if added(exp2(middle)) <= noise * total { low = middle } else { high = middle }
    }
    exp2(low)
}

#[cfg(test)]
mod tests;
