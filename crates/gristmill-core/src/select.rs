//! Which samples an epoch trains on, and with what weight.
//!
//! A [`Selector`] is told what the trainer learned ([`Selector::feedback`]) and decides at the epoch boundary, before
//! anything is fetched, which ids the next epoch has ([`Selector::begin`]). How it decides is one closed enum,
//! [`Selection`]: the plain epoch, IOWA's buckets, the published baselines and our own `weighted`.
//!
//! Whatever the way, three promises hold. No class vanishes: each keeps a share of its samples. No epoch is empty.
//! And the decision is a pure function of the scores, the seed and the epoch, computed in the order of ids, so all
//! ranks decide alike and a restart changes nothing.
//!
//! Deliberately not here: batches and ranks (`plan`), who is a near-duplicate of whom (`family`), the trainer.

mod baselines;
mod bucket;
mod chosen;
mod drift;
mod floor;
mod options;
mod percentile;
#[cfg(test)]
mod pinned;
mod probe;
mod standing;
mod state;
#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these values are exact")]
mod tests;
mod weighted;

pub use chosen::{Chosen, Summary};
pub use options::{
    ActiveBias, BiggestLoser, Bounds, Bucket, Criteria, Iis, InfoBatch, Online, Proxy, Selection, Weighted,
};
pub use standing::Standing;

use crate::Invalid;
use crate::bits::Bits;
use crate::family::Families;
use crate::rng::{Purpose, Stream};
use crate::score::{EntropyForm, Feedback, ReadTimes, Scores};

/// What does not change during a run.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Every sample's label.
    pub labels: Vec<u32>,
    /// Every sample's bytes in the store.
    pub sizes: Vec<u32>,
    /// Where all randomness comes from.
    pub seed: u64,
    /// How many epochs the run has, if that is known: the last ones may train on everything.
    pub epochs: Option<u32>,
    /// The share of its samples that every class keeps, at least one.
    pub class_floor: f64,
}

/// What the loader saw since the last epoch began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Readings {
    /// Whether training waits for the store.
    pub io_bound: bool,
    /// How long reads from the store take.
    pub times: ReadTimes,
    /// Steps of an epoch that trains everything; 0 if that is not known.
    pub steps: u32,
}

/// What a way to select gives: ids in ascending order, weights beside them (or none), and why.
#[derive(Debug, Default)]
struct Pick {
    ids: Vec<u32>,
    weights: Vec<f32>,
    /// The size of a batch as a share of the usual one; none is the usual one.
    batch_share: Option<f32>,
    threshold: Option<f64>,
    recalled: u32,
    reason: String,
}

impl Pick {
    /// Everything, for this reason.
    fn all(samples: usize, reason: impl Into<String>) -> Pick {
        Pick { ids: (0..samples as u32).collect(), reason: reason.into(), ..Pick::default() }
    }
}

/// Why an epoch that the guard asked for has everything.
const GUARDED: &str = "everything, because the guard of accuracy asks for it";

/// What each way has to remember beside the scores.
#[derive(Debug, Clone, PartialEq)]
enum Memory {
    Nothing,
    Bucket(bucket::Memory),
    History(baselines::History),
    Losses(percentile::Losses, floor::Judged),
    Fixed(Vec<u32>),
    Weighted(weighted::Memory),
}

/// Decides, epoch by epoch, who is trained.
#[derive(Debug, Clone)]
pub struct Selector {
    selection: Selection,
    facts: Facts,
    classes: u32,
    mean_bytes: f64,
    scores: Scores,
    memory: Memory,
    chosen: Option<Chosen>,
    /// Who is served in this epoch.
    served: Bits,
    probe: probe::Probe,
    norm: Norm,
}

/// What is known of the batch norm of the model that is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Norm {
    /// Nothing: it may go by whoever is in the batch.
    #[default]
    Unknown,
    /// There is none: the model treats every sample by itself.
    Absent,
    /// It goes by the weights of the samples.
    Weighed,
}

impl Norm {
    /// All of them, each at the place of its number.
    pub const ALL: [Norm; 3] = [Norm::Unknown, Norm::Absent, Norm::Weighed];

    /// Its one word, as front ends say it.
    pub fn name(self) -> &'static str {
        ["unknown", "absent", "weighed"][self as usize]
    }
}

impl Selector {
    /// A selector that has heard nothing yet.
    pub fn new(selection: Selection, facts: Facts) -> Result<Selector, Invalid> {
        let samples = facts.labels.len();
        if samples == 0 {
            return Err(Invalid("there is nothing to select from: the data set has no samples".into()));
        }
        if facts.sizes.len() != samples {
            return Err(Invalid(format!("{samples} labels but {} sizes", facts.sizes.len())));
        }
        if !(0.0..=1.0).contains(&facts.class_floor) {
            return Err(Invalid(format!("selection.class_floor = {} is not from 0 to 1", facts.class_floor)));
        }
        if facts.epochs == Some(0) {
            return Err(Invalid("selection.epochs is 0; it must be at least 1".into()));
        }
        let last = facts.labels.iter().copied().max();
        if let Some(label) = last.filter(|&label| label as usize >= samples.max(1 << 24)) {
            return Err(Invalid(format!("a label is {label}, which is more than any data set has")));
        }
        let classes = last.map_or(0, |label| label + 1);
        let form = match &selection {
            Selection::Bucket(bucket) => bucket.entropy,
            _ => EntropyForm::Ce,
        };
        let memory = match &selection {
            Selection::Uniform | Selection::Online(_) | Selection::InfoBatch(_) | Selection::Iis(_) => {
                Memory::Nothing
            }
            Selection::Bucket(_) => Memory::Bucket(bucket::Memory::new(samples)),
            Selection::ActiveBias(_) => Memory::History(baselines::History::new(samples)),
            Selection::BiggestLoser(s) => {
                let known = percentile::Losses::new(s.history as usize);
                Memory::Losses(known, floor::Judged::new(classes))
            }
            Selection::Proxy(_) => Memory::Fixed(Vec::new()),
            Selection::Weighted(_) => Memory::Weighted(weighted::Memory::new(samples, facts.seed)),
        };
        let scores = Scores::new(samples, form);
        let served = Bits::new(samples);
        let mean_bytes = facts.sizes.iter().map(|&size| f64::from(size)).sum::<f64>() / samples as f64;
        let (chosen, probe) = (None, probe::Probe::default());
        let norm = Norm::Unknown;
        Ok(Selector { selection, facts, classes, mean_bytes, scores, memory, chosen, served, probe, norm })
    }

    /// What is known of the model's batch norm, which would go by whoever is in the batch. Counts from the next epoch that
    /// begins.
    pub fn norm(&mut self, norm: Norm) {
        self.norm = norm;
    }

    /// How it selects.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// The last known facts of every sample.
    pub fn scores(&self) -> &Scores {
        &self.scores
    }

    /// The samples of the epoch that began last.
    pub fn chosen(&self) -> Option<&Chosen> {
        self.chosen.as_ref()
    }

    /// Refuses what cannot be about samples of this epoch.
    pub fn check(&self, said: &Feedback<'_>) -> Result<(), Invalid> {
        let Some(chosen) = &self.chosen else {
            return Err(Invalid("feedback before the first epoch: no sample was served yet".into()));
        };
        let epoch = chosen.epoch;
        let strange = |&&id: &&u32| {
            let known = (id as usize) < self.scores.len();
            known && !self.served.has(id)
        };
        if let Some(id) = said.ids.iter().find(strange) {
            return Err(Invalid(format!(
                "feedback names sample {id}, which was not served in epoch {epoch}"
            )));
        }
        self.scores.check(said)
    }

    /// Writes down what the trainer says about samples of this epoch. On an error nothing is written.
    pub fn feedback(&mut self, said: &Feedback<'_>) -> Result<(), Invalid> {
        self.check(said)?;
        let epoch = self.chosen.as_ref().map_or(0, |chosen| chosen.epoch);
        // One that filled up a rank's last batch, or stood in for another, comes twice in an epoch, which is no second visit.
        // Where samples are drawn with replacement the two cannot be told apart, and both count.
        let drawn =
            self.chosen.as_ref().is_some_and(|chosen| chosen.ids.len() > chosen.summary.kept as usize);
        let now = u32::try_from(epoch + 1).unwrap_or(u32::MAX);
        let visits = matches!(&self.memory, Memory::Weighted(_) | Memory::History(_));
        let numbers = said.ids.iter().zip(said.p_true).filter(|(_, p)| visits && p.is_finite());
        for (&id, &p) in numbers {
            let before = std::mem::replace(&mut self.scores.seen[id as usize], now);
            match &mut self.memory {
                Memory::Weighted(memory) if before > 0 && before != now => {
                    memory.drift.note(1.0 - self.scores.p_true[id as usize], 1.0 - p.clamp(0.0, 1.0));
                }
                Memory::History(history) if before != now || drawn => history.visit(id, p),
                _ => {}
            }
        }
        self.scores.feedback(said, epoch)?;
        Ok(())
    }

    /// In how many epochs at the beginning a small model is trained: fewer than the run has.
    pub fn proxy_epochs(&self) -> u64 {
        match &self.selection {
            Selection::Proxy(options) => options.epochs(self.facts.epochs).into(),
            _ => 0,
        }
    }

    /// Whether the samples of this epoch are to be forwarded first and trained on only if [`Selector::keep`] says so.
    pub fn judges(&self) -> bool {
        let epoch = self.chosen.as_ref().map_or(0, |chosen| chosen.epoch);
        let guarded = self.chosen.as_ref().is_some_and(|chosen| !chosen.summary.guard.is_empty());
        !guarded
            && matches!(&self.selection, Selection::BiggestLoser(options) if percentile::forwards_all(options, epoch))
    }

    /// Which of the samples that were just forwarded are to be trained on; all of them but for `biggest-loser`.
    pub fn keep(&mut self, ids: &[u32], losses: &[f32]) -> Result<Vec<bool>, Invalid> {
        if ids.len() != losses.len() {
            return Err(Invalid(format!("{} ids but {} losses", ids.len(), losses.len())));
        }
        let epoch = self.chosen.as_ref().map_or(0, |chosen| chosen.epoch);
        let judges = self.judges();
        let (Selection::BiggestLoser(options), Memory::Losses(known, of_classes)) =
            (&self.selection, &mut self.memory)
        else {
            return Ok(vec![true; ids.len()]);
        };
        if !judges {
            return Ok(vec![true; ids.len()]);
        }
        let samples = self.scores.len();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= samples) {
            return Err(Invalid(format!("sample {id} was judged, but the data set has {samples} samples")));
        }
        let mut kept = percentile::keep(options, known, self.facts.seed, epoch, ids, losses);
        for (kept, &id) in kept.iter_mut().zip(ids) {
            *kept |= self.probe.has(id as usize);
            *kept = of_classes.keep(&self.facts, id, *kept);
        }
        Ok(kept)
    }

    /// Decides which samples `epoch` has. Asking again for the same epoch gives the same answer.
    pub fn begin(&mut self, epoch: u64, readings: &Readings) -> Result<&Chosen, Invalid> {
        let before = self.chosen.as_ref().map(|chosen| chosen.epoch);
        if self.selection.needs_feedback() && before.is_some_and(|before| epoch < before) {
            let now = before.unwrap_or(0);
            return Err(Invalid(format!(
                "epoch {epoch} is past: selection has learned up to epoch {now}; start anew or load a saved state"
            )));
        }
        if before != Some(epoch) {
            self.scores.settle();
            let (accuracy, alarm) = self.heed();
            if let Memory::Losses(_, judged) = &mut self.memory {
                *judged = floor::Judged::new(self.classes);
            }
            let guard = alarm.map_or(String::new(), |alarm| alarm.reason);
            let mut pick = self.pick(epoch, before, readings, &guard);
            let for_probe = self.probe.keep(&mut pick);
            let for_classes = floor::keep_classes(&self.facts, self.classes, &self.scores, &mut pick);
            let summary = Summary { for_probe, for_classes, probe: accuracy, guard, ..Summary::default() };
            self.remember(epoch, pick, summary);
        }
        self.chosen.as_ref().ok_or_else(|| Invalid("no epoch has begun".into()))
    }

    fn pick(&mut self, epoch: u64, before: Option<u64>, readings: &Readings, guard: &str) -> Pick {
        let samples = self.scores.len();
        if self.selection.needs_feedback() && self.scores.seen.iter().all(|&seen| seen == 0) {
            let first = "the first epoch trains on everything";
            let silent =
                "everything, because the trainer has said nothing: call loader.loss or loader.feedback";
            return Pick::all(samples, if before.is_none() { first } else { silent });
        }
        let (facts, scores, probe) = (&self.facts, &self.scores, &self.probe);
        let context = Context { facts, scores, epoch, before, readings, probe, guard, norm: self.norm };
        match (&self.selection, &mut self.memory) {
            // Its buckets move on in a full epoch, too.
            (Selection::Bucket(options), Memory::Bucket(memory)) => {
                bucket::pick(&probe.raised(options), memory, &context)
            }
            _ if !guard.is_empty() => Pick::all(samples, GUARDED),
            (Selection::Online(options), _) => baselines::online(options, &context),
            (Selection::ActiveBias(options), Memory::History(history)) => {
                baselines::active_bias(options, history, &context)
            }
            (Selection::BiggestLoser(options), _) => percentile::stale(options, &context),
            (Selection::Proxy(options), Memory::Fixed(ids)) => baselines::proxy(options, ids, &context),
            (Selection::Iis(options), _) => percentile::iis(options, &context),
            (Selection::InfoBatch(options), _) => baselines::infobatch(options, &context),
            (Selection::Weighted(options), Memory::Weighted(memory)) => {
                weighted::pick(options, memory, &context)
            }
            _ => Pick::all(samples, "every sample, once"),
        }
    }

    fn remember(&mut self, epoch: u64, pick: Pick, added: Summary) {
        let proxy = epoch < self.proxy_epochs();
        let kept = self.mark_served(&pick.ids);
        let summary = Summary {
            samples: self.scores.len() as u32,
            kept,
            recalled: pick.recalled,
            unknown: self.scores.unknown,
            threshold: pick.threshold,
            proxy,
            reason: pick.reason,
            ..added
        };
        let batch_share = pick.batch_share.unwrap_or(1.0);
        self.chosen = Some(Chosen { epoch, ids: pick.ids, weights: pick.weights, batch_share, summary });
    }

    /// The epoch that began last with at most one member of each family, but for the probe, all of which stays, and what
    /// classes would lack.
    pub fn without_relatives(&self, families: &Families) -> Option<Chosen> {
        let chosen = self.chosen.as_ref()?;
        let mut stay = families.remove(&chosen.ids, chosen.epoch, self.facts.seed, self.probe());
        stay.dedup();
        let mut stays = Bits::new(self.scores.len());
        stay.iter().for_each(|&id| _ = stays.set(id, true));
        let different = chosen.ids.chunk_by(|a, b| a == b).map(|same| same[0]);
        let left = different.filter(|&id| !stays.has(id));
        let back = floor::come_back(&self.facts, self.classes, chosen.epoch, &stay, left);
        back.iter().for_each(|&id| _ = stays.set(id, true));
        let mut less = chosen.only(|id| stays.has(id));
        less.summary.kept = (stay.len() + back.len()) as u32;
        less.summary.for_classes += back.len() as u32;
        Some(less)
    }

    /// Which share of each class's samples is among these ids, which are in ascending order; a class without samples has 1.
    pub fn class_shares(&self, ids: &[u32]) -> Vec<f32> {
        let mut counts = vec![(0_u32, 0_u32); self.classes as usize]; // samples, among them
        self.facts.labels.iter().for_each(|&label| counts[label as usize].0 += 1);
        for ids in ids.chunk_by(|a, b| a == b) {
            counts[self.facts.labels[ids[0] as usize] as usize].1 += 1;
        }
        let share = |&(all, among): &(u32, u32)| if all == 0 { 1.0 } else { among as f32 / all as f32 };
        counts.iter().map(share).collect()
    }

    /// Notes who is served in this epoch. Returns how many different ones.
    fn mark_served(&mut self, ids: &[u32]) -> u32 {
        self.served.clear();
        let mut kept = 0;
        for &id in ids {
            kept += u32::from(!self.served.set(id, true));
        }
        kept
    }
}

/// What a way to select may look at.
struct Context<'a> {
    facts: &'a Facts,
    scores: &'a Scores,
    epoch: u64,
    /// The epoch that was trained last.
    before: Option<u64>,
    readings: &'a Readings,
    probe: &'a probe::Probe,
    /// Why the epoch has everything, if the guard asks for that.
    guard: &'a str,
    norm: Norm,
}

impl Context<'_> {
    fn samples(&self) -> usize {
        self.scores.len()
    }

    /// Everything, while nothing or too little is known, and at the end of the run.
    fn whole(&self, warmup: u32, full_share: f64) -> Option<Pick> {
        if !self.guard.is_empty() {
            return Some(Pick::all(self.samples(), GUARDED));
        }
        if self.epoch < warmup.into() {
            let reason = format!("epoch {} of {warmup} that train on everything first", self.epoch + 1);
            return Some(Pick::all(self.samples(), reason));
        }
        let epochs = self.facts.epochs?;
        let last = self.epoch as f64 >= (f64::from(epochs) * (1.0 - full_share)).floor() && full_share > 0.0;
        last.then(|| Pick::all(self.samples(), "the last epochs train on everything"))
    }

    /// A stream of coin flips for this epoch.
    fn coins(&self) -> Stream {
        Stream::new(self.facts.seed, self.epoch, Purpose::Selection, &[])
    }
}
