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
//! would have done, and there are as many steps as the learning rate was chosen for. (Not in long runs
//! whose batch norm goes by weights.)
//! What was predicted wrongly at its last visit has chance 1 at once. Where that is a good part of all samples, the model
//! is far from knowing its data, and skipping the rest costs more than it saves: less is skipped, or nothing. When training waits for I/O, what is dear to
//! fetch must be worth it: its chance is divided by the root of its relative cost (the fewest seconds for the noise).

use super::options::{Bounds, Weighted};
use super::{Context, Norm, Pick};
use crate::math::{exp2, log2};
use crate::rng::{Purpose, key};
use crate::score::{Scores, Threshold};

/// Four steps per halving, down to gradients that are nothing.
const STEPS: usize = 96;
/// Fewer visits than this say too little about a step.
const VISITS_MIN: u64 = 64;
/// The part of a run in which more may be predicted wrongly.
const YOUNG_PART: f64 = 0.3;
/// The part of [`Weighted::wrong_max`] over which the noise falls to nothing.
const UNLEARNED_PART: f64 = 1.0 / 3.0;
/// One, in the whole numbers that squares are added up in: sums are then the same in any order.
const ONE: f64 = (1_u64 << 32) as f64;

/// What is remembered from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Memory {
    /// The chance each sample has saved up, below 1.
    pub(super) saved: Vec<f32>,
    pub(super) threshold: Threshold,
    pub(super) drift: Drift,
}

/// How large gradients turned out to be that had been of a certain size at the visit before.
///
/// What a sample was is not what it is: the model has moved, and a random crop shows another part of it. So the size
/// that counts is the one that such samples turn out to have, learned from the feedback itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drift {
    /// Visits, and the sum of squares, for each step of the size before.
    pub(super) visits: Vec<u64>,
    pub(super) squares: Vec<u64>,
}

impl Drift {
    fn new() -> Drift {
        Drift { visits: vec![0; STEPS], squares: vec![0; STEPS] }
    }

    /// The step of a size from 0 to 1: by its exponent and the two highest bits behind it.
    fn step(size: f32) -> usize {
        let below_one = 1.0_f32.to_bits().saturating_sub(size.clamp(0.0, 1.0).to_bits());
        ((below_one >> 21) as usize).min(STEPS - 1)
    }

    /// Notes a visit: the size before and the size now.
    pub(super) fn note(&mut self, before: f32, now: f32) {
        let step = Drift::step(before);
        self.visits[step] += 1;
        self.squares[step] += (f64::from(now) * f64::from(now) * ONE) as u64;
    }

    /// Lets half of what is known go, so that it follows the training.
    fn fade(&mut self) {
        self.visits.iter_mut().chain(&mut self.squares).for_each(|sum| *sum /= 2);
    }

    /// The size that is to be expected, for each step; none where too little is known.
    fn expected(&self) -> Vec<Option<f32>> {
        let one = |(&visits, &squares): (&u64, &u64)| {
            (visits >= VISITS_MIN).then(|| (squares as f64 / ONE / visits as f64).sqrt() as f32)
        };
        self.visits.iter().zip(&self.squares).map(one).collect()
    }
}

impl Weighted {
    /// How much of the noise that is allowed may be used, 0 to 1, where this share of the samples is predicted wrongly.
    fn learned(&self, wrong: f64, epoch: u64, epochs: Option<u32>) -> f64 {
        if self.wrong_max >= 1.0 {
            return 1.0;
        }
        let part = epochs.map_or(1.0, |epochs| epoch as f64 / f64::from(epochs.max(1)));
        let most = self.wrong_max * (1.0 + (1.0 - part / YOUNG_PART).max(0.0));
        ((most - wrong) / (most * UNLEARNED_PART)).clamp(0.0, 1.0)
    }

    /// The noise that skipping may add in this epoch of a run of so many.
    fn noise_in(&self, bounds: Bounds, epoch: u64, epochs: Option<u32>) -> f64 {
        let last = epochs.map_or(0.0, |epochs| f64::from(epochs) - 1.0);
        let left = if last > 0.0 { (1.0 - epoch as f64 / last).max(0.0) } else { 0.0 };
        bounds.noise * (1.0 + (self.early - 1.0) * left)
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
    let learned = options.learned(wrong, context.epoch, context.facts.epochs);
    let (chances, threshold) = chances(options, memory, context, learned);
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
        if learned < 1.0 { "; fewer than else, since much is predicted wrongly yet" } else { "" }
    );
    if learned == 0.0 {
        let wrong = 100.0 * wrong;
        pick.reason =
            format!("every sample: {wrong:.0} % are predicted wrongly, and the model learns from all yet");
    }
    pick
}

impl Context<'_> {
    /// The share of the samples that were predicted wrongly at their last visit, of those that had one.
    fn wrong_share(&self) -> f64 {
        let seen = |id: &usize| self.scores.seen[*id] > 0;
        let (seen, wrong) = (0..self.samples())
            .filter(seen)
            .fold((0_u64, 0_u64), |(seen, wrong), id| (seen + 1, wrong + u64::from(self.scores.wrong(id))));
        wrong as f64 / seen.max(1) as f64
    }
}

/// The chance that each sample gets in this epoch, and the threshold it comes from, where so much is learned.
fn chances(options: &Weighted, memory: &Memory, context: &Context<'_>, learned: f64) -> (Vec<f32>, f64) {
    let samples = context.samples();
    if learned == 0.0 {
        return (vec![1.0; samples], 0.0);
    }
    let scores = context.scores;
    let by_cost = options.cost && context.readings.io_bound;
    let cost = if by_cost { context.readings.times.relative(&context.facts.sizes) } else { Vec::new() };
    let expected = memory.drift.expected();
    let size = |id: usize| {
        let last = 1.0 - scores.p_true[id];
        expected[Drift::step(last)].unwrap_or(last)
    };
    // What a sample is worth: the size of its gradient, where cost votes per root of the cost.
    let worth = |id: usize| if by_cost { size(id) / cost[id].max(1e-6).sqrt() } else { size(id) };
    let certain = |id: usize| scores.seen[id] == 0 || scores.wrong(id) || context.probe.has(id);
    let bounds = options.bounds(context.norm, context.facts.epochs);
    let noise = learned * options.noise_in(bounds, context.epoch, context.facts.epochs);
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
    let learned = options.learned(context.wrong_share(), context.epoch, context.facts.epochs);
    let (chances, _) = chances(options, memory, context, learned);
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
    let one = |&id: &u32| {
        let id_at = id as usize;
        let last = 1.0 - scores.p_true[id_at];
        let size = expected[Drift::step(last)].unwrap_or(last);
        match memory.threshold.value {
            _ if scores.seen[id_at] == 0 || scores.wrong(id_at) => 1.0,
            None => size,
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
    let (mut low, mut high) = (-60.0, log2(largest.max(1e-15) / least) + 1.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if added(exp2(middle)) <= noise * total { low = middle } else { high = middle }
    }
    exp2(low)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{facts, run, selector};
    use super::super::{Feedback, Norm, Readings};

    #[test]
    fn nothing_is_skipped_while_much_is_predicted_wrongly() {
        // What the second epoch trains, and why, if this share of 4,000 samples was wrong in the first.
        let second = |wrong: f32, options: &[(&str, &str)], epochs: Option<u32>| {
            let mut selector = selector("weighted", options, facts(vec![0; 4_000], 3, epochs));
            let ids: Vec<u32> = selector.begin(0, &Readings::default()).unwrap().ids.clone();
            let wrongly = |id: u32| (id as f32) < wrong * 4_000.0;
            let p_true: Vec<f32> = ids.iter().map(|&id| if wrongly(id) { 0.3 } else { 0.7 }).collect();
            let p_rival: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
            let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
            let said = Feedback { ids: &ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
            selector.feedback(&said).unwrap();
            let chosen = selector.begin(1, &Readings::default()).unwrap();
            (chosen.ids.len(), chosen.summary.reason.clone())
        };
        let [few, some, many] = [0.1, 0.22, 0.25].map(|wrong| second(wrong, &[], None));
        assert!(few.0 < 3_300 && !few.1.contains("wrongly"), "{few:?}");
        assert!(some.0 > 3_400 && some.0 < 3_900 && some.1.contains("wrongly yet"), "{some:?}");
        assert_eq!(many.0, 4_000);
        assert!(many.1.starts_with("every sample: 25 % are predicted wrongly"), "{}", many.1);
        let off = second(0.25, &[("wrong_max", "1")], None);
        assert!(off.0 < 3_200 && !off.1.contains("wrongly"), "{off:?}");
        // In the second of many epochs there is time.
        assert!(second(0.25, &[], Some(60)).0 < 3_200);
        assert_eq!(second(0.25, &[], Some(3)).0, 4_000, "not in the second of few");
    }

    #[test]
    fn batches_stay_whole_in_long_runs_whose_batch_norm_goes_by_weights() {
        let share = |epochs, norm| {
            let readings = Readings { steps: 63, ..Readings::default() };
            let mut selector = selector("weighted", &[], facts(vec![0; 4_000], 3, epochs));
            selector.norm(norm);
            run(&mut selector, 0..12, &readings).last().unwrap().batch_share
        };
        let (weighed, unknown) = (Norm::Weighed, Norm::Unknown);
        assert!(share(Some(30), weighed) > 0.999);
        for (epochs, norm) in [(Some(20), weighed), (None, weighed), (Some(30), unknown)] {
            assert!(share(epochs, norm) < 0.8, "{epochs:?} {norm:?}");
        }
    }
}
