//! Where the loader and its steering meet: what a setting changes, and what is known of the epoch ahead.

use super::check::claim_samples;
use super::swap::Swap;
use super::{Loader, LoaderOptions, Rules};
use crate::Result;
use crate::node::Ask;
use crate::selection::SelectionReport;
use crate::split::{Expected, Held, SplitMode, SplitOptions, Splitter, StagedAsk};
use crate::steer::{self, Ahead, Decision, Setting, Steering};
use futures::FutureExt;
use gristmill_core::SampleId;
use gristmill_core::plan::Plan;
use gristmill_core::rng::{Stream, key};
use gristmill_core::split::SplitPolicy;
use std::sync::{Arc, PoisonError};

/// Folded into the key of the draw of samples that are looked at, so that no other stream has it.
const LOOKED_AT: u64 = 0x4c4f_4f4b;

/// How the first epoch is read.
fn start(options: &LoaderOptions) -> Setting {
    Setting {
        threads: options.threads,
        reads: options.reads_in_flight,
        ahead: options.prefetch_batches,
        split: options.split.mode != SplitMode::None,
    }
}

/// The most threads and batches ahead that there may be.
pub(super) fn most(options: &LoaderOptions) -> (usize, usize) {
    steer::most(options.steer, start(options))
}

pub(super) fn steering(options: &LoaderOptions) -> Option<Arc<Steering>> {
    Steering::new(options.steer, start(options)).map(Arc::new)
}

/// How samples are split, if the steering may decide about it, too.
pub(super) fn split(options: &LoaderOptions) -> SplitOptions {
    let free = options.steer.on && !options.steer.pins.split;
    if free && options.split.mode == SplitMode::None {
        return SplitOptions { mode: SplitMode::Policy(SplitPolicy::Best), ..options.split };
    }
    options.split
}

/// What others than the pilot decided for the epoch before: told when it changes.
#[derive(Debug, Default)]
pub(super) struct Others {
    cost_votes: Option<bool>,
    fraction: Option<f64>,
}

impl Others {
    /// What they decided for an epoch, where that is news.
    fn news(
        &mut self,
        epoch: u64,
        selection: Option<&SelectionReport>,
        fraction: Option<f64>,
    ) -> Vec<Decision> {
        let mut news = Vec::new();
        if let Some(chosen) = selection {
            if !chosen.guard.is_empty() {
                news.push(Decision::told(epoch, "selection", chosen.kind, "every sample", &chosen.guard));
            }
            let before = self.cost_votes.replace(chosen.io_bound).unwrap_or(false);
            if before != chosen.io_bound {
                let word = |votes: bool| if votes { "votes" } else { "does not vote" };
                let (from, to) = (word(before), word(chosen.io_bound));
                news.push(Decision::told(epoch, "cost of fetching", from, to, &chosen.bottleneck));
            }
        }
        if let Some(now) = fraction {
            let before = self.fraction.replace(now).unwrap_or(now);
            if before.total_cmp(&now).is_ne() {
                let why = if now > before {
                    "slices differ more than chance would have it"
                } else {
                    "slices are as mixed as chance would have it"
                };
                news.push(Decision::told(epoch, "exchange", &before.to_string(), &now.to_string(), why));
            }
        }
        news
    }
}

impl Loader {
    /// What others than the pilot decided for this epoch.
    pub(super) fn news(
        &self,
        epoch: u64,
        selection: Option<&SelectionReport>,
        swap: Option<&Swap>,
    ) -> Vec<Decision> {
        let fraction = swap.and_then(|swap| swap.report(epoch)).map(|report| report.fraction);
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.news(epoch, selection, fraction)
    }

    /// How an epoch is to be read, and what was decided about it.
    pub(super) fn steer(&self, epoch: u64, plan: &Plan, from_batch: u32) -> (Setting, Vec<Decision>) {
        let Some(steering) = &self.steering else { return (start(&self.options), Vec::new()) };
        let order: Vec<u32> =
            (from_batch..plan.batches()).flat_map(|batch| plan.batch(batch)).map(|id| id.0).collect();
        let look = |reads: usize| self.look(epoch, &order, reads);
        let what_if = |threads: usize, link: Option<f64>| {
            let splitter = self.splitter()?;
            splitter.what_if(epoch, &order, self.access.as_ref(), threads, link)
        };
        let ahead = Ahead {
            epoch,
            samples: order.len() as u32,
            batch: self.options.shape.batch,
            cached: self.expected_hits(&order),
            can_direct: self.rules.can_direct,
            can_split: self.splitter().is_some() && self.has_node(),
            bytes: self.sizes(&order),
            jobs: self.access.as_ref().and_then(|access| access.report()).map_or(1, |node| node.jobs.len()),
            look: &look,
            what_if: &what_if,
        };
        steering.begin(&ahead)
    }

    /// Whether a split is held back at a setting.
    pub(super) fn held(&self, setting: Setting) -> Held {
        match &self.steering {
            _ if setting.split => Held::No,
            Some(steering) if steering.knows_nothing() => Held::UntilItPays,
            _ => Held::Back,
        }
    }

    /// The rules of an epoch at a setting.
    pub(super) fn rules_at(&self, setting: Setting) -> Result<Rules> {
        let mut rules = self.rules.clone();
        rules.direct = setting.reads == 0 && rules.can_direct;
        rules.reads_in_flight = if setting.reads == 0 { 64 } else { setting.reads };
        rules.open_batches_max = setting.ahead + 1;
        rules.claim_samples = claim_samples(&self.set, self.options.shape.batch, setting.threads)?;
        Ok(rules)
    }

    /// What cuts samples: where the steering decides about it, only with a node behind.
    pub(super) fn splitter(&self) -> Option<&Arc<Splitter>> {
        let asked_for = self.options.split.mode != SplitMode::None;
        self.split.as_ref().filter(|_| asked_for || self.has_node())
    }

    /// Whether there is a node behind that could run ops.
    fn has_node(&self) -> bool {
        match &self.access {
            Some(access) => access.offload().is_some(),
            None => self.set.upstream().is_some(),
        }
    }

    /// The share of samples that a cache is sure to have; none if that is not known.
    fn expected_hits(&self, order: &[u32]) -> Option<f64> {
        let access = self.access.as_ref()?;
        let here = access.expects(order).into_iter().filter(|one| *one == Expected::Here).count();
        (here > 0).then(|| here as f64 / order.len() as f64)
    }

    /// The mean size of samples, and how they spread as a share of it.
    fn sizes(&self, order: &[u32]) -> (f64, f64) {
        let (mut sum, mut squares) = (0.0, 0.0);
        for &id in order {
            let size = self.rules.size(SampleId(id)) as f64;
            sum += size;
            squares += size * size;
        }
        let mean = sum / (order.len().max(1) as f64);
        let variance = (squares / (order.len().max(1) as f64) - mean * mean).max(0.0);
        (mean, if mean > 0.0 { (variance.sqrt() / mean).min(2.0) } else { 0.0 })
    }

    /// Reads so many of the samples that this rank will read, whatever a cache has, to see how the store (or its slice, or the
    /// node behind) answers. No more at once than may be on their way in an epoch.
    fn look(&self, epoch: u64, order: &[u32], reads: usize) -> Option<steer::Answers> {
        let mut stream = Stream::from_key(key(&[self.options.seed, LOOKED_AT, epoch]));
        let drawn = (0..reads).filter_map(|_| order.get(stream.below(order.len().max(1) as u64) as usize));
        let ids: Vec<u32> = drawn.copied().collect();
        let largest = ids.iter().map(|id| self.rules.size(SampleId(*id))).max()?;
        let room = self.rules.raw_bytes_max / largest.max(1);
        let ids = &ids[..ids.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let client = match &self.access {
            Some(access) => access.offload().cloned(),
            None => None,
        };
        let read = |id: u32| {
            let (set, client) = (Arc::clone(&self.set), client.clone());
            async move {
                let Some(client) = client else {
                    return set.read(SampleId(id)).await.map(|bytes| bytes.len() as u64);
                };
                let ask = StagedAsk { ask: Ask { id: SampleId(id), cold: false }, wish: None };
                let came = client.fetch_staged(&[ask]).await?;
                came.into_iter()
                    .next()
                    .map_or(Ok(0), |one| one.map(|staged| staged.served.bytes.len() as u64))
            }
            .boxed()
        };
        steer::look(ids, &read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_decide_is_told_when_it_changes() {
        let chosen = |io_bound, guard: &str| SelectionReport {
            kind: "weighted",
            io_bound,
            guard: guard.into(),
            bottleneck: "fetching gives 10 samples/s".into(),
            ..SelectionReport::default()
        };
        let mut others = Others::default();
        let lines = |news: Vec<Decision>| news.into_iter().map(|one| one.line).collect::<Vec<_>>();
        assert!(others.news(0, Some(&chosen(false, "")), Some(0.1)).is_empty(), "nothing is new at first");
        assert_eq!(
            lines(others.news(1, Some(&chosen(true, "")), Some(0.2))),
            [
                "epoch 1: cost of fetching does not vote -> votes: fetching gives 10 samples/s",
                "epoch 1: exchange 0.1 -> 0.2: slices differ more than chance would have it"
            ]
        );
        let guarded = others.news(2, Some(&chosen(true, "the probe trails")), Some(0.2));
        assert_eq!(lines(guarded), ["epoch 2: selection weighted -> every sample: the probe trails"]);
        assert!(others.news(3, None, None).is_empty());
    }
}
