//! Ways that keep a sample by the percentile of its loss: biggest loser and iCACHE's sampling.
//!
//! A loss is compared with the last R losses; the share of them that is lower, to a power, is the chance of being
//! kept. Biggest loser (Jiang 2019) fetches and forwards everything and asks after the forward pass ([`keep`]);
//! with `staleness` it goes by the last known losses in between. iCACHE's sampling always goes by the last known
//! losses and therefore decides before anything is fetched, with a full epoch every now and then.

use super::options::{BiggestLoser, Iis};
use super::{Context, Pick};
use crate::bits::Bits;
use crate::math::power;
use crate::rng::{Purpose, Stream};

/// Samples that are judged against the same history.
const CHUNK: usize = 256;
/// The same where there are so many samples that it makes no difference, but for the time that it takes.
const LARGE_CHUNK: usize = 1_024;
const MANY_SAMPLES: usize = 1 << 20;
/// The level of a sample that was never seen; no loss has it.
const UNSEEN: u32 = u32::MAX;

/// A number whose order is that of the losses; what is not a number says as little as the largest loss.
pub(super) fn level(loss: f32) -> u32 {
    let bits = if loss.is_nan() { f32::MAX.to_bits() } else { loss.to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The loss of a level.
fn loss_of(level: u32) -> f32 {
    f32::from_bits(if level >> 31 == 1 { level & !(1 << 31) } else { !level })
}

/// The last losses, oldest first, and the same in ascending order; as levels, which are compared in one step.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Losses {
    queue: Vec<u32>,
    sorted: Vec<u32>,
    most: usize,
    /// Room for the next `sorted`, and for what goes and comes.
    spare: [Vec<u32>; 3],
}

impl Losses {
    pub(super) fn new(most: usize) -> Losses {
        Losses { most, ..Losses::default() }
    }

    /// The same with what was saved in it.
    pub(super) fn with(&self, queue: &[f32]) -> Losses {
        let mut new = Losses::new(self.most);
        new.push(queue);
        new
    }

    /// The losses, oldest first.
    pub(super) fn queue(&self) -> Vec<f32> {
        self.queue.iter().map(|&level| loss_of(level)).collect()
    }

    /// The share of the known losses that is strictly lower.
    pub(super) fn percentile(&self, loss: f32) -> f64 {
        self.lower(level(loss)) as f64 / self.sorted.len().max(1) as f64
    }

    /// How many of the known losses are strictly lower.
    fn lower(&self, level: u32) -> usize {
        self.sorted.partition_point(|&known| known < level)
    }

    fn full(&self) -> bool {
        self.queue.len() >= self.most
    }

    /// Adds a chunk; the oldest go.
    pub(super) fn push(&mut self, losses: &[f32]) {
        let levels: Vec<u32> = losses.iter().map(|&loss| level(loss)).collect();
        self.push_levels(&levels);
    }

    fn push_levels(&mut self, levels: &[u32]) {
        let before = self.queue.len();
        self.queue.extend_from_slice(levels);
        let over = self.queue.len().saturating_sub(self.most);
        let [merged, going, coming] = &mut self.spare;
        [&mut *merged, &mut *going, &mut *coming].into_iter().for_each(Vec::clear);
        coming.extend_from_slice(&self.queue[before.max(over)..]);
        going.extend(self.queue.drain(..over).take(before));
        coming.sort_unstable();
        going.sort_unstable();
        // One walk over three sorted lists: what was known without what goes, merged with what comes.
        let (mut gone, mut come) = (0, 0);
        for &known in &self.sorted {
            if going.get(gone) == Some(&known) {
                gone += 1;
                continue;
            }
            while let Some(&new) = coming.get(come).filter(|&&new| new < known) {
                merged.push(new);
                come += 1;
            }
            merged.push(known);
        }
        merged.extend_from_slice(&coming[come..]);
        std::mem::swap(&mut self.sorted, merged);
    }
}

/// The chance of a percentile, to a power.
pub(super) fn chance(percentile: f64, to_the: f64) -> f64 {
    power(percentile, to_the)
}

/// Whether every sample of this epoch is forwarded and judged by its new loss.
pub(super) fn forwards_all(options: &BiggestLoser, epoch: u64) -> bool {
    epoch >= options.warmup.into() && !is_stale(options, epoch)
}

pub(super) fn is_stale(options: &BiggestLoser, epoch: u64) -> bool {
    let since = epoch.saturating_sub(options.warmup.into());
    epoch >= options.warmup.into() && !since.is_multiple_of(u64::from(options.staleness) + 1)
}

/// Which of the samples just forwarded are trained on.
pub(super) fn keep(
    options: &BiggestLoser,
    known: &mut Losses,
    seed: u64,
    epoch: u64,
    ids: &[u32],
    losses: &[f32],
) -> Vec<bool> {
    let flip = |id: u32| Stream::new(seed, epoch, Purpose::Selection, &[id.into()]).unit();
    let decide = |(&id, &loss): (&u32, &f32)| {
        loss.is_nan() || !known.full() || flip(id) < chance(known.percentile(loss), options.power)
    };
    let kept = ids.iter().zip(losses).map(decide).collect();
    known.push(losses);
    kept
}

/// Biggest loser before the epoch: everything is to be forwarded, or what the last known losses say.
pub(super) fn stale(options: &BiggestLoser, context: &Context<'_>) -> Pick {
    if !is_stale(options, context.epoch) {
        let what = if forwards_all(options, context.epoch) {
            "forwarded, for the biggest losses to be trained"
        } else {
            "trained"
        };
        return Pick::all(context.samples(), format!("everything is {what}"));
    }
    take(context, options.history as usize, options.power, "by the last known losses")
}

/// Whether iCACHE's sampling takes everything in this epoch.
pub(super) fn is_full(options: &Iis, epoch: u64) -> bool {
    epoch < options.warmup.into() || epoch.is_multiple_of(u64::from(options.reuse))
}

/// iCACHE's sampling.
pub(super) fn iis(options: &Iis, context: &Context<'_>) -> Pick {
    if is_full(options, context.epoch) {
        let reason = format!("a full epoch: the first {} are, and one in {}", options.warmup, options.reuse);
        return Pick::all(context.samples(), reason);
    }
    take(context, options.history as usize, options.power, "by the percentile of the last known loss")
}

fn take(context: &Context<'_>, history: usize, to_the: f64, reason: &str) -> Pick {
    let order = Stream::new(context.facts.seed, context.epoch, Purpose::Selection, &[0])
        .permutation(context.samples() as u32);
    let mut coins = context.coins();
    let mut known = Losses::new(history);
    // The chance has few values: one per count of lower losses.
    let chances: Vec<f64> =
        (0..=history).map(|lower| chance(lower as f64 / history as f64, to_the)).collect();
    // What was never seen is above every loss. In one list, so that looking up a sample waits for memory once.
    let facts = context.scores.seen.iter().zip(&context.scores.loss);
    let levels: Vec<u32> = facts.map(|(&seen, &loss)| if seen == 0 { UNSEEN } else { level(loss) }).collect();
    // One bit per sample: few enough to stay near the processor while they are set in random order.
    let mut taken = Bits::new(order.len());
    let mut of_chunk = [0; LARGE_CHUNK];
    for chunk in order.chunks(if order.len() < MANY_SAMPLES { CHUNK } else { LARGE_CHUNK }) {
        // By itself: reads that nothing depends on are under way together.
        let of_chunk = &mut of_chunk[..chunk.len()];
        of_chunk.iter_mut().zip(chunk).for_each(|(level, &id)| *level = levels[id as usize]);
        let full = known.full();
        for (&id, &level) in chunk.iter().zip(&*of_chunk) {
            // A flip per sample, used or not, so that one sample's loss does not move another's coin.
            let flip = coins.unit();
            let take = !full || level == UNSEEN || flip < chances[known.lower(level)];
            taken.set(id, take);
        }
        known.push_levels(of_chunk);
    }
    let ids = (0..order.len() as u32).filter(|&id| taken.has(id)).collect();
    Pick { ids, reason: reason.into(), ..Pick::default() }
}
