//! Ways that keep a sample by the percentile of its loss: biggest loser and iCACHE's sampling.
//!
//! A loss is compared with the last R losses; the share of them that is lower, to a power, is the chance of being
//! kept. Biggest loser (Jiang 2019) fetches and forwards everything and asks after the forward pass ([`keep`]);
//! with `staleness` it goes by the last known losses in between. iCACHE's sampling always goes by the last known
//! losses and therefore decides before anything is fetched, with a full epoch every now and then.

use super::options::{BiggestLoser, Iis};
use super::{Context, Pick};
use crate::math::power;
use crate::rng::{Purpose, Stream};

/// Samples that are judged against the same history.
const CHUNK: usize = 256;

/// The last losses, oldest first, and the same in ascending order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Losses {
    pub(super) queue: Vec<f32>,
    sorted: Vec<f32>,
    most: usize,
}

impl Losses {
    pub(super) fn new(most: usize) -> Losses {
        Losses { queue: Vec::new(), sorted: Vec::new(), most }
    }

    /// The same with what was saved in it.
    pub(super) fn with(&self, queue: Vec<f32>) -> Losses {
        let mut new = Losses::new(self.most);
        new.push(queue.into_iter());
        new
    }

    /// The share of the known losses that is strictly lower.
    pub(super) fn percentile(&self, loss: f32) -> f64 {
        let lower = self.sorted.partition_point(|known| known.total_cmp(&loss).is_lt());
        lower as f64 / self.sorted.len().max(1) as f64
    }

    fn full(&self) -> bool {
        self.queue.len() >= self.most
    }

    /// Adds a chunk; the oldest go.
    pub(super) fn push(&mut self, losses: impl Iterator<Item = f32>) {
        let before = self.queue.len();
        // NaN would break the order; it says as little as the largest loss.
        self.queue.extend(losses.map(|loss| if loss.is_nan() { f32::MAX } else { loss }));
        let over = self.queue.len().saturating_sub(self.most);
        let mut new: Vec<f32> = self.queue[before.max(over)..].to_vec();
        let mut old: Vec<f32> = self.queue.drain(..over).take(before).collect();
        new.sort_unstable_by(f32::total_cmp);
        old.sort_unstable_by(f32::total_cmp);
        // One walk over three sorted lists: what was known without what goes, merged with what comes.
        let mut old = old.into_iter().peekable();
        let stays =
            self.sorted.iter().filter(|known| old.next_if(|gone| gone.total_cmp(known).is_eq()).is_none());
        let mut new = new.into_iter().peekable();
        let mut merged = Vec::with_capacity(self.queue.len());
        for &known in stays {
            while let Some(loss) = new.next_if(|loss| loss.total_cmp(&known).is_lt()) {
                merged.push(loss);
            }
            merged.push(known);
        }
        merged.extend(new);
        self.sorted = merged;
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
    known.push(losses.iter().copied());
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
    let loss_of = |id: u32| match context.scores.seen[id as usize] {
        0 => f32::MAX,
        _ => context.scores.loss[id as usize],
    };
    let mut taken = vec![false; order.len()];
    let mut losses = [0.0; CHUNK];
    for chunk in order.chunks(CHUNK) {
        let full = known.full();
        for (place, &id) in chunk.iter().enumerate() {
            let loss = loss_of(id);
            losses[place] = loss;
            let lower = known.sorted.partition_point(|other| *other < loss);
            // A flip per sample, used or not, so that one sample's loss does not move another's coin.
            let flip = coins.unit();
            taken[id as usize] = !full || context.scores.seen[id as usize] == 0 || flip < chances[lower];
        }
        known.push(losses[..chunk.len()].iter().copied());
    }
    let ids = (0..order.len() as u32).filter(|&id| taken[id as usize]).collect();
    Pick { ids, reason: reason.into(), ..Pick::default() }
}
