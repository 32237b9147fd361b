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
            format!("; fewer than else, since {:.0} % are predicted wrongly yet", 100.0 * wrong)
        } else if allowance > 1.0 {
            format!("; more than else, since only {:.1} % are predicted wrongly", 100.0 * wrong)
        } else {
            String::new()
        }
    );
    if noise == 0.0 && bounds.noise > 0.0 {
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
mod tests {
    use super::super::tests::{facts, learned, run, selector, train};
    use super::super::{Facts, Feedback, Norm, ReadTimes, Readings, Selector};
    use super::Weighted;
    use crate::math::exp2;
    use crate::rng::{Stream, key};

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
        let [few, some, many] = [0.09, 0.22, 0.25].map(|wrong| second(wrong, &[], None));
        assert!(few.0 < 3_300 && !few.1.contains("wrongly"), "{few:?}");
        assert!(some.0 > 3_400 && some.0 < 3_900 && some.1.contains("wrongly yet"), "{some:?}");
        assert_eq!(many.0, 4_000);
        assert!(many.1.starts_with("every sample: 25 % are predicted wrongly"), "{}", many.1);
        let off = second(0.25, &[("wrong_max", "1")], None);
        assert!(off.0 < 3_200 && !off.1.contains("wrongly"), "{off:?}");
        // In the second of many epochs there is time.
        assert!(second(0.25, &[], Some(60)).0 < 3_700);
        assert_eq!(second(0.25, &[], Some(3)).0, 4_000, "not in the second of few");
    }

    /// Trains `epochs` epochs of samples that look different at every visit, as under random crops: each has a share of
    /// visits at which it is hard. Gives the noise that skipping really added in the last half, against what `noise` allows.
    fn noise_found(samples: u32, epochs: u64, noise: f64) -> f64 {
        let options = [("wrong_max", "1"), ("full_share", "0"), ("noise", &noise.to_string())];
        let mut selector =
            selector("weighted", &options, facts(vec![0; samples as usize], 3, Some(epochs as u32)));
        let hard = |id: u32| f64::from(id % 64) / 640.0;
        let found = |epoch: u64, id: u32| {
            let unit = |purpose| Stream::from_key(key(&[epoch, id.into(), purpose])).unit();
            // Easy views are of many sizes, down to nothing; none of them tells how often the hard ones come.
            if unit(0) < hard(id) { 0.45 } else { exp2(-2.0 - 14.0 * unit(1)) as f32 }
        };
        let (mut added, mut all) = (0.0, 0.0);
        for epoch in 0..epochs {
            let chosen = selector.begin(epoch, &Readings::default()).unwrap().clone();
            let p_true: Vec<f32> = chosen.ids.iter().map(|&id| 1.0 - found(epoch, id)).collect();
            let p_rival: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
            let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
            let said =
                Feedback { ids: &chosen.ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
            selector.feedback(&said).unwrap();
            if epoch >= epochs / 2 {
                // A sample of weight w that comes once in w epochs adds (w - 1) of its square in each of them.
                let weight = |place: usize| f64::from(chosen.weights[place] / chosen.batch_share);
                let square = |place: usize| f64::from(found(epoch, chosen.ids[place])).powi(2);
                added +=
                    (0..chosen.ids.len()).map(|i| weight(i) * (weight(i) - 1.0) * square(i)).sum::<f64>();
                all += (0..samples).map(|id| f64::from(found(epoch, id)).powi(2)).sum::<f64>();
            }
        }
        added / all / noise
    }

    #[test]
    fn skipping_adds_the_noise_that_is_allowed_though_samples_look_different_at_every_visit() {
        // Few samples: most steps of their sizes have few visits, and what the last visit was says next to nothing.
        for (samples, noise) in [(2_000, 0.1), (2_000, 0.02), (20_000, 0.1)] {
            let found = noise_found(samples, 40, noise);
            assert!((0.4..2.0).contains(&found), "{samples} samples, {noise}: {found} times as much");
        }
    }

    #[test]
    fn before_any_sample_was_seen_twice_none_counts_for_more_than_two() {
        // Easy samples, and a model without batch norm, which may let them wait for long.
        let mut selector =
            selector("weighted", &[("weight_max", "20"), ("wrong_max", "1")], facts(vec![0; 4_000], 3, None));
        selector.norm(Norm::Absent);
        let chosen = run(&mut selector, 0..6, &Readings::default());
        let most = |epoch: usize| {
            let chosen = &chosen[epoch];
            chosen.weights.iter().copied().fold(0.0, f32::max) / chosen.batch_share
        };
        assert!(chosen[1].ids.len() < 4_000 && most(1) <= 2.001, "{}", most(1));
        assert!(most(5) > 3.0, "{}", most(5));
    }

    #[test]
    fn the_more_is_predicted_wrongly_the_less_noise_is_added() {
        let weighted = Weighted::default();
        let allowance = |wrong| weighted.allowance(1.0, wrong, 50, Some(100));
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(allowance(0.1), 1.0);
        near(allowance(0.02), 1.0);
        near(allowance(0.25), 0.0);
        assert!(allowance(0.15) < 0.7 && allowance(0.2) < 0.5 * allowance(0.15));
        let known = |wrong| weighted.allowance(4.0, wrong, 50, Some(100));
        near(known(0.1), 1.0);
        near(known(0.05), 2.0);
        near(known(0.001), 4.0);
        near(known(0.25), 0.0);
        near(Weighted { wrong_max: 1.0, ..weighted }.allowance(4.0, 0.001, 50, Some(100)), 1.0);
    }

    #[test]
    fn more_noise_is_added_where_batch_norm_goes_by_weights_and_few_are_predicted_wrongly() {
        let told = |options: &[(&str, &str)], norm, judged: bool| {
            let begin = || selector("weighted", options, facts(vec![0; 4_000], 3, Some(30)));
            let mut selector = begin();
            selector.norm(norm);
            if !judged {
                // A run that was stopped knows it when it goes on, in another process.
                selector.unjudged();
                let saved = selector.state();
                selector = begin();
                selector.restore(&saved).unwrap();
                selector.norm(norm);
            }
            let last = run(&mut selector, 0..9, &Readings::default()).pop().unwrap();
            (last.ids.len(), last.summary.reason.contains("more than else, since only"))
        };
        let kept = |options: &[(&str, &str)], norm| told(options, norm, true).0;
        let least = ("least", "0.1");
        let [weighed, unknown] = [Norm::Weighed, Norm::Unknown].map(|norm| kept(&[least], norm));
        assert!(6 * weighed < 5 * unknown, "{weighed} against {unknown}");
        assert_eq!(kept(&[least, ("easy", "1")], Norm::Weighed), unknown);
        assert_eq!(kept(&[least, ("easy", "4")], Norm::Unknown), weighed);
        assert!(told(&[], Norm::Weighed, true).1 && !told(&[], Norm::Unknown, true).1, "the reason says so");
        let blind = told(&[least], Norm::Weighed, false);
        assert_eq!(blind, (unknown, false), "nobody knows who was right");
    }

    /// A `weighted` that has seen every sample twice, each time with the same outcome.
    fn settled(options: &[(&str, &str)], facts: Facts) -> Selector {
        let options: Vec<_> = options.iter().copied().chain([("warmup", "2")]).collect();
        let mut selector = selector("weighted", &options, facts);
        for epoch in 0..2 {
            let all = selector.begin(epoch, &Readings::default()).unwrap().ids.clone();
            train(&mut selector, &all, 4);
        }
        selector
    }

    #[test]
    fn weighted_adds_the_noise_it_may_with_and_without_cost() {
        let mut times = ReadTimes::default();
        [(100, 0.001), (100_000, 1.0)].iter().for_each(|&(bytes, s)| times.note(bytes, s));
        for io_bound in [false, true] {
            // Sizes over three orders of magnitude, which have nothing to do with the difficulty.
            let sizes =
                (0..20_000_u32).map(|id| 100 << ((id.wrapping_mul(40_503) >> 7 & 1_023) / 103)).collect();
            let facts = Facts { sizes, ..facts(vec![0; 20_000], 3, None) };
            let options = [
                ("noise", "0.1"),
                ("batch_least", "1"),
                ("weight_max", "1000"),
                ("least", "0.01"),
                ("wrong_max", "1"),
            ];
            let mut selector = settled(&options, facts);
            let size = |id: u32| f64::from(1.0 - learned(id, 4).0).powi(2);
            let chosen = selector.begin(2, &Readings { io_bound, times, steps: 0 }).unwrap();
            // A sample with chance q is there with chance q and weight 1 / q: this is its noise on average.
            let pairs = chosen.ids.iter().zip(&chosen.weights).map(|(&id, &w)| (id, f64::from(w)));
            let added: f64 = pairs.map(|(id, w)| w * (w - 1.0) * size(id)).sum();
            let share = added / (0..20_000).map(size).sum::<f64>();
            assert!((share - 0.1).abs() < 0.03, "{share} with cost {io_bound}");
            assert!(chosen.ids.len() < 15_000, "{}", chosen.ids.len());
        }
    }

    #[test]
    fn weighted_may_add_more_noise_early_in_a_run_whose_end_is_known() {
        let kept = |early: &str, epoch: u64, epochs: Option<u32>| {
            let options = [("early", early), ("full_share", "0"), ("least", "0.01")];
            let mut selector = settled(&options, facts(vec![0; 4_000], 3, epochs));
            selector.begin(epoch, &Readings::default()).unwrap().ids.len()
        };
        let often = |early| [2, 50, 99].map(|epoch| kept(early, epoch, Some(100)));
        let [even, later @ ..] = often("1");
        assert_eq!(later, [even; 2]);
        let [first, middle, last] = often("8");
        assert!(first < middle && middle < last && 5 * first < 4 * even, "{first}, {middle}; else {even}");
        assert_eq!(last, even);
        assert_eq!(kept("8", 2, None), even, "nobody knows what is early");
    }

    #[test]
    fn batches_stay_whole_in_long_runs_whose_batch_norm_goes_by_weights() {
        let share = |epochs, norm| {
            let readings = Readings { steps: 200, ..Readings::default() };
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
