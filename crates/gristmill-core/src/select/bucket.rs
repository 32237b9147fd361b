//! IOWA's buckets: samples are active or resting.
//!
//! After every epoch the thresholds follow the scores, and the trained samples that the criteria call unimportant go
//! to rest. The lag of the thresholds is what adapts the rate: a model that learns fast drops its samples below
//! them, one that struggles does not. When the accuracy stagnates, a random share of the resting samples is
//! recalled. Guards keep the epoch from shrinking too far or too fast.
//!
//! The paper leaves several constants open; `options` has ours, and `docs/internals/papers.md` says which readings
//! of it are implemented.

use super::options::{Bucket, Criteria};
use super::{Context, Pick, floor};
use crate::rng::{Purpose, Stream, key};
use crate::score::{Threshold, majority, median};

/// How much better the accuracy must be to count as better.
const BETTER: f64 = 1e-4;

/// What is remembered from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Memory {
    pub(super) resting: Vec<bool>,
    /// Entropy, margin, cost.
    pub(super) thresholds: [Threshold; 3],
    pub(super) best: f64,
    pub(super) stagnating: u32,
}

impl Memory {
    pub(super) fn new(samples: usize) -> Memory {
        Memory {
            resting: vec![false; samples],
            thresholds: [Threshold::default(); 3],
            best: -1.0,
            stagnating: 0,
        }
    }
}

/// Moves samples between the buckets as the last epoch says, and gives the active ones.
pub(super) fn pick(options: &Bucket, memory: &mut Memory, context: &Context<'_>) -> Pick {
    let samples = context.samples();
    let mut recalled = 0;
    let mut out = 0;
    if let Some(before) = context.before {
        let vote = match options.criteria {
            Criteria::Auto => context.readings.io_bound,
            Criteria::Entropy => false,
            Criteria::Vote => true,
        };
        if before + 1 >= options.warmup.into() {
            out = rest(options, memory, context, before, vote);
        }
        if options.recall && stagnates(options, memory, context, before) {
            recalled = recall(options, memory, context);
        }
    }
    if let Some(whole) = context.whole(options.warmup, options.full_share) {
        return whole;
    }
    let active = memory.resting.iter().filter(|resting| !**resting).count();
    let threshold = memory.thresholds[0].value;
    let below = threshold.map_or(String::new(), |t| format!(" below an entropy of {t:.3}"));
    let reason = format!("{out} went to rest{below}, {recalled} were recalled, {} rest", samples - active);
    if options.soft == 0.0 {
        let ids = (0..samples as u32).filter(|&id| !memory.resting[id as usize]).collect();
        return Pick { ids, threshold, recalled, reason, ..Pick::default() };
    }
    let mut coins = context.coins();
    let weight = (1.0 / (1.0 - options.soft)) as f32;
    let mut pick = Pick { threshold, recalled, reason, ..Pick::default() };
    for (id, &resting) in memory.resting.iter().enumerate() {
        let flip = coins.unit();
        if !resting || flip >= options.soft {
            pick.ids.push(id as u32);
            pick.weights.push(if resting { weight } else { 1.0 });
        }
    }
    pick
}

/// Samples that never rest, so that the accuracy over them means the same in every epoch.
fn in_probe(seed: u64, id: u32, share: f64) -> bool {
    ((key(&[seed, Purpose::Recall as u64, id.into()]) >> 11) as f64) < share * (1_u64 << 53) as f64
}

/// Sends the unimportant among the samples trained in `before` to rest. Returns how many.
fn rest(options: &Bucket, memory: &mut Memory, context: &Context<'_>, before: u64, vote: bool) -> u32 {
    let samples = context.samples();
    let scores = context.scores;
    let cost = if vote { context.readings.times.cheapness(&context.facts.sizes) } else { Vec::new() };
    let lists: [&[f32]; 3] = [&scores.entropy, &scores.margin, &cost];
    let known: Vec<u32> = (0..samples as u32).filter(|&id| scores.seen[id as usize] > 0).collect();
    let mut column: Vec<f32> = Vec::with_capacity(known.len());
    for (place, list) in lists.iter().enumerate().take(if vote { 3 } else { 1 }) {
        column.clear();
        column.extend(known.iter().map(|&id| list[id as usize]));
        let target = if options.quantile > 0.0 {
            quantile(&mut column, options.quantile)
        } else {
            median(&mut column) * if place == 2 { options.relax_cost } else { options.relax }
        };
        memory.thresholds[place].follow(target, options.smoothing);
    }
    let thresholds = memory.thresholds.map(|threshold| threshold.value.unwrap_or(f64::NEG_INFINITY));
    let important = |id: usize| {
        let says = |list: usize| options.polarity.important(lists[list][id], thresholds[list]);
        if vote { majority([0, 1, 2].map(says)) } else { says(0) }
    };
    let mut candidates: Vec<u32> = (0..samples as u32)
        .filter(|&id| {
            let i = id as usize;
            !memory.resting[i]
                && u64::from(scores.seen[i]) == before + 1
                && !important(i)
                && !in_probe(context.facts.seed, id, options.probe)
                && !context.probe.has(i)
        })
        .collect();
    let active = memory.resting.iter().filter(|resting| !**resting).count();
    let stay = ((samples as f64 * options.floor).ceil() as usize).max(1);
    let most = ((samples as f64 * options.out_max) as usize).min(active.saturating_sub(stay));
    let by_score =
        |a: &u32, b: &u32| scores.entropy[*a as usize].total_cmp(&scores.entropy[*b as usize]).then(a.cmp(b));
    if candidates.len() > most {
        if most > 0 {
            candidates.select_nth_unstable_by(most - 1, by_score);
        }
        candidates.truncate(most);
    }
    let mut out = 0;
    let room = class_room(context, memory);
    let mut leaving = vec![0_u32; room.len()];
    let label = |id: u32| context.facts.labels[id as usize] as usize;
    candidates.iter().for_each(|&id| leaving[label(id)] += 1);
    if leaving.iter().zip(&room).any(|(leaving, room)| leaving > room) {
        candidates.sort_unstable_by(by_score); // the least important of a class go first
    }
    let mut room = room;
    for id in candidates {
        if room[label(id)] > 0 {
            room[label(id)] -= 1;
            memory.resting[id as usize] = true;
            out += 1;
        }
    }
    out
}

/// How many samples of each class may still go to rest.
fn class_room(context: &Context<'_>, memory: &Memory) -> Vec<u32> {
    let classes = context.facts.labels.iter().max().map_or(0, |label| *label as usize + 1);
    let mut counts = vec![(0_u32, 0_u32); classes]; // samples, active
    for (&label, &resting) in context.facts.labels.iter().zip(&memory.resting) {
        counts[label as usize].0 += 1;
        counts[label as usize].1 += u32::from(!resting);
    }
    let share = context.facts.class_floor;
    counts.iter().map(|&(all, active)| active.saturating_sub(floor::least(all, share))).collect()
}

fn quantile(column: &mut [f32], share: f64) -> f64 {
    match column.len() {
        0 => 0.0,
        len => {
            let place = ((len as f64 * share) as usize).min(len - 1);
            f64::from(*column.select_nth_unstable_by(place, f32::total_cmp).1)
        }
    }
}

/// Whether the accuracy has not grown for long enough; starts counting anew when it says so.
fn stagnates(options: &Bucket, memory: &mut Memory, context: &Context<'_>, before: u64) -> bool {
    let probe = |id: crate::SampleId| in_probe(context.facts.seed, id.0, options.probe);
    let scores = context.scores;
    let accuracy = scores.accuracy(before, probe).or_else(|| scores.accuracy(before, |_| true));
    let Some(accuracy) = accuracy else { return false };
    if accuracy > memory.best + BETTER {
        (memory.best, memory.stagnating) = (accuracy, 0);
    } else {
        memory.stagnating += 1;
    }
    let stagnates = memory.stagnating >= options.stagnation;
    if stagnates {
        memory.stagnating = 0;
    }
    stagnates
}

/// Brings a random share of the resting samples back. They cannot leave before they were trained once more, since
/// only what was trained in the last epoch can go to rest.
fn recall(options: &Bucket, memory: &mut Memory, context: &Context<'_>) -> u32 {
    let mut resting: Vec<u32> =
        (0..context.samples() as u32).filter(|&id| memory.resting[id as usize]).collect();
    if resting.is_empty() {
        return 0;
    }
    let back = ((resting.len() as f64 * options.recall_share).round() as usize).clamp(1, resting.len());
    let mut stream = Stream::new(context.facts.seed, context.epoch, Purpose::Recall, &[]);
    for i in 0..back {
        let j = i + stream.below((resting.len() - i) as u64) as usize;
        resting.swap(i, j);
        memory.resting[resting[i] as usize] = false;
    }
    back as u32
}
