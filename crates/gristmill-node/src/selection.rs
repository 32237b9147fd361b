//! Selection at work: a selector of the core, fed by trainers and ranks.
//!
//! [`Choice`] holds the selector behind a lock, turns its decision into an epoch's plan and notes what the loader saw.
//! With one rank feedback is written down at once. With several it waits until the ranks have shared it
//! ([`Choice::pending`] on each, [`Choice::merge`] of all, in the order of ranks), so that all of them select alike;
//! the transport is the caller's.
//!
//! Deliberately not here: how samples are chosen (`gristmill_core::select`).

mod heard;
mod lay_out;
mod saved;

use crate::access::Access;
use crate::report::EpochReport;
use crate::{Error, Result};
use gristmill_core::exchange::{LaidOut, Owners};
use gristmill_core::family::{Families, StandIns};
use gristmill_core::plan::{self, Plan, Shape};
use gristmill_core::score::{EntropyForm, Feedback, ReadTimes};
use gristmill_core::select::{Facts, Norm, Readings, Selection, Selector, Standing, Summary};
use gristmill_core::steer::{Profile, Steer, guard};
use heard::{Heard, Spent};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The shares of so many classes are told one by one.
pub const CLASSES_TOLD_MAX: usize = 1_000;

/// What is done with near-duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyUse {
    /// Nothing.
    Off,
    /// One member of each family per epoch, and more only where a class would fall below its floor: less to compute.
    Remove,
    /// A member that is still in memory is trained again instead of fetching a relative: less to fetch.
    Repeat,
    /// `Repeat` when training waits for the store, else `Remove`.
    Auto,
}

impl FamilyUse {
    /// The names users write.
    pub const NAMES: [(&str, FamilyUse); 4] = [
        ("off", FamilyUse::Off),
        ("remove", FamilyUse::Remove),
        ("repeat", FamilyUse::Repeat),
        ("auto", FamilyUse::Auto),
    ];
}

/// How samples are selected, before the data set is known.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectionOptions {
    /// The way.
    pub selection: Selection,
    /// How many epochs the run has, if that is known.
    pub epochs: Option<u32>,
    /// The share of its samples that every class keeps.
    pub class_floor: f64,
    /// What is done with near-duplicates, once they are known.
    pub families: FamilyUse,
    /// The share of samples that is in every epoch, so that accuracy can be compared; 0 watches nothing.
    pub probe_share: f64,
}

impl Default for SelectionOptions {
    fn default() -> SelectionOptions {
        let families = FamilyUse::Off;
        let (selection, probe_share) = (Selection::Uniform, guard::PROBE_SHARE);
        SelectionOptions { selection, epochs: None, class_floor: 0.05, families, probe_share }
    }
}

/// Near-duplicates and what is done with them.
#[derive(Debug, Clone)]
pub struct Relatives {
    /// Who they are.
    pub families: Arc<Families>,
    /// What is done.
    pub families_use: FamilyUse,
    /// Bytes of raw samples that may be held for it.
    pub held_bytes_max: u64,
}

/// An epoch, decided.
#[derive(Debug)]
pub struct Decided {
    /// Which samples, in which order, with which weights.
    pub plan: Plan,
    /// Whose bytes are needed again.
    pub holds: StandIns,
    /// What was selected.
    pub report: SelectionReport,
    /// Where ranks hold slices: what evening them out left and repeated; its order is the plan's.
    pub laid: LaidOut,
    /// The ids that were selected, ascending.
    pub active: Vec<u32>,
}

/// What was selected for an epoch, as reports show it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SelectionReport {
    /// The way.
    pub kind: &'static str,
    /// Samples of the data set.
    pub samples: u32,
    /// Samples of the epoch.
    pub kept: u32,
    /// Resting samples that came back.
    pub recalled: u32,
    /// Samples added because their class would have had too few.
    pub for_classes: u32,
    /// Samples added because they are never skipped: how training does on them is compared from epoch to epoch.
    pub for_probe: u32,
    /// The accuracy on those in the epoch before, 0 to 1; none without a probe, or before it was told.
    pub probe: Option<f64>,
    /// Why this epoch has every sample, if the guard of accuracy asked for it; else empty.
    pub guard: String,
    /// Reports of the trainer that were no numbers, so far.
    pub unknown: u64,
    /// The threshold in use, if there is one.
    pub threshold: Option<f64>,
    /// Samples left out because a relative of theirs is trained.
    pub removed: u32,
    /// Samples served in the place of a relative that would have had to be fetched.
    pub stand_ins: u32,
    /// The share of its samples that each class has in the epoch; of the first [`CLASSES_TOLD_MAX`] classes.
    pub class_shares: Vec<f32>,
    /// Whether the cost of fetching had a vote.
    pub io_bound: bool,
    /// Whether a small model is to be trained in this epoch.
    pub proxy: bool,
    /// Why, in one line.
    pub reason: String,
    /// What training waited for before this epoch, in one line; empty before anything was measured.
    pub bottleneck: String,
}

impl SelectionReport {
    /// The share of the data set that the epoch trains on.
    pub fn kept_share(&self) -> f64 {
        f64::from(self.kept) / f64::from(self.samples.max(1))
    }
}

#[derive(Debug)]
struct State {
    selector: Selector,
    heard: Heard,
    /// Whether the ranks have shared what they heard since the last epoch began.
    merged: bool,
    readings: Readings,
    steer: Steer,
    /// What is done with families in the epoch that began last: fixed then, whatever is measured meanwhile.
    families_use: FamilyUse,
    /// The epoch that was laid out last, as reports show it.
    report: Option<SelectionReport>,
    /// Its batches.
    batches: Option<u32>,
    /// Why the bottleneck is what it is.
    bottleneck: String,
}

/// A selector that several threads may tell and ask.
#[derive(Debug)]
pub struct Choice {
    state: Mutex<State>,
    relatives: Option<Relatives>,
    sizes: Vec<u32>,
    seed: u64,
    world: u32,
    /// The node that is told of what feedback teaches.
    node: OnceLock<Arc<dyn Access>>,
}

impl Choice {
    /// A choice among samples with these labels and sizes, shared by `world` ranks.
    pub fn new(
        options: &SelectionOptions,
        labels: &[u32],
        sizes: &[u32],
        seed: u64,
        world: u32,
    ) -> Result<Choice> {
        let facts = Facts {
            labels: labels.to_vec(),
            sizes: sizes.to_vec(),
            seed,
            epochs: options.epochs,
            class_floor: options.class_floor,
        };
        let probe = probe(options, labels, seed)?;
        let selector = Selector::new(options.selection.clone(), facts)?.with_probe(probe)?;
        let state = State {
            selector,
            heard: Heard::default(),
            merged: false,
            readings: Readings::default(),
            steer: Steer::new(),
            families_use: FamilyUse::Off,
            report: None,
            batches: None,
            bottleneck: String::new(),
        };
        let node = OnceLock::new();
        Ok(Choice { state: Mutex::new(state), relatives: None, sizes: Vec::new(), seed, world, node })
    }

    /// The same with near-duplicates in mind.
    #[must_use]
    pub fn with_relatives(mut self, relatives: Relatives, sizes: &[u32]) -> Choice {
        self.relatives = Some(relatives).filter(|relatives| relatives.families_use != FamilyUse::Off);
        self.sizes = sizes.to_vec();
        self
    }

    /// Tells this node, from now on, what feedback teaches about the next epoch.
    pub(crate) fn tell(&self, node: Arc<dyn Access>) {
        // A loader has one node for its whole life.
        let _ = self.node.set(node);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Everything that can fail does so before the state is changed, so a poisoned one is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the ranks must tell each other what they heard before an epoch can begin.
    pub fn shares(&self) -> bool {
        let auto = self.relatives.as_ref().is_some_and(|relatives| relatives.families_use == FamilyUse::Auto);
        self.world > 1 && (auto || self.lock().selector.selection().needs_feedback())
    }

    /// Whether they have, since the epoch that began last.
    pub fn shared(&self) -> bool {
        self.lock().merged
    }

    /// Decides the samples of `epoch`, once, and lays them out. Without a shuffle they are in the order of ids.
    pub fn decide(&self, epoch: u64, usual: Shape, shuffle: bool) -> Result<Decided> {
        self.decide_held(epoch, usual, shuffle, None)
    }

    /// The same where each rank trains what it holds, if `owners` says who holds what.
    pub fn decide_held(
        &self,
        epoch: u64,
        usual: Shape,
        shuffle: bool,
        owners: Option<&Owners>,
    ) -> Result<Decided> {
        let shares = self.shares();
        let mut state = self.lock();
        let begun = state.selector.chosen().map(|chosen| chosen.epoch);
        if shares && begun.is_some_and(|begun| begun < epoch) && !state.merged {
            return Err(Error::config(format!(
                "epoch {epoch} cannot begin: the {} ranks have not shared their feedback",
                self.world
            ))
            .hint("start the ranks with torchrun, so that the loader finds their process group"));
        }
        let steps = plan::batches(state.selector.scores().len() as u32, usual);
        let readings = Readings { steps, ..state.readings };
        state.selector.begin(epoch, &readings)?;
        if begun != Some(epoch) {
            state.merged = false;
            state.families_use = match self.relatives.as_ref().map(|relatives| relatives.families_use) {
                None => FamilyUse::Off,
                Some(FamilyUse::Auto) if readings.io_bound => FamilyUse::Repeat,
                Some(FamilyUse::Auto) => FamilyUse::Remove,
                Some(fixed) => fixed,
            };
        }
        let decided = self.lay_out(&state, usual, shuffle, owners)?;
        state.report = Some(decided.report.clone());
        state.batches = Some(decided.plan.batches());
        Ok(decided)
    }

    /// The samples that are in every epoch, ascending.
    pub fn probe(&self) -> Vec<u32> {
        self.lock().selector.probe().to_vec()
    }

    /// How every sample stands: its last score, and its chance of being chosen for the next epoch.
    pub fn standing(&self) -> Standing {
        let state = self.lock();
        state.selector.standing(&state.readings)
    }

    /// The epoch that began last.
    pub fn epoch(&self) -> Option<u64> {
        self.lock().selector.chosen().map(|chosen| chosen.epoch)
    }

    /// How long reads from the store took so far, on all ranks that told of it; what a cache answers is not in it.
    pub fn read_times(&self) -> ReadTimes {
        self.lock().readings.times
    }

    /// In how many epochs at the beginning a small model is to be trained.
    pub fn proxy_epochs(&self) -> u64 {
        self.lock().selector.proxy_epochs()
    }

    /// Whether feedback must have the entropy of predictions.
    pub fn wants_entropy(&self) -> bool {
        self.lock().selector.scores().form() == EntropyForm::Shannon
    }

    /// What was selected for the epoch that began last, and what is known by now.
    pub fn chosen(&self) -> Option<SelectionReport> {
        let state = self.lock();
        let unknown = state.selector.scores().unknown;
        state.report.clone().map(|report| SelectionReport { unknown, ..report })
    }

    /// Batches of the epoch that began last, on every rank; those of a full one before the first.
    pub fn batches(&self, usual: Shape) -> u32 {
        let state = self.lock();
        state.batches.unwrap_or_else(|| plan::batches(state.selector.scores().len() as u32, usual))
    }

    /// Samples of a batch of the epoch that began last, on every rank: a selection may make it smaller than the usual one.
    pub fn batch(&self, usual: Shape) -> u32 {
        self.lock().selector.chosen().map_or(usual.batch, |chosen| chosen.shape(usual).batch)
    }

    /// What the trainer said is of a loss that does not tell who was right: from now on accuracy is not watched. With
    /// several ranks one of them is enough, once all of them know.
    pub fn unjudged(&self) {
        let mut state = self.lock();
        if self.world == 1 {
            state.selector.unjudged();
        } else {
            state.heard.unjudged = true;
        }
    }

    /// What is known of the batch norm of this rank's model. With several ranks it counts when all of them say the same.
    pub fn norm(&self, norm: Norm) {
        let mut state = self.lock();
        if self.world == 1 {
            state.selector.norm(norm);
        } else {
            state.heard.norm = Some(norm);
        }
    }

    /// Takes what the trainer says about a batch.
    pub fn feedback(&self, said: &Feedback<'_>) -> Result<()> {
        let mut state = self.lock();
        if self.world == 1 {
            state.selector.feedback(said)?;
            if let Some(node) = self.node.get() {
                let wanted = state.selector.wanted_of(said.ids, &state.readings);
                drop(state);
                node.learn(said.ids, &wanted);
            }
            return Ok(());
        }
        state.selector.check(said)?;
        let form = state.selector.scores().form();
        let heard = &mut state.heard;
        heard.ids.extend_from_slice(said.ids);
        // Kept only if it is used: columns of different lengths could not be told apart.
        let entropy = said.entropy.filter(|_| form == EntropyForm::Shannon).unwrap_or(&[]);
        let columns = [said.p_true, said.p_rival, said.loss, entropy];
        heard.columns.iter_mut().zip(columns).for_each(|(all, new)| all.extend_from_slice(new));
        Ok(())
    }

    /// Whether the samples of this epoch are to be forwarded first and trained on only if [`Choice::keep`] says so.
    pub fn judges(&self) -> bool {
        self.lock().selector.judges()
    }

    /// Which of the samples that were just forwarded are to be trained on.
    pub fn keep(&self, ids: &[u32], losses: &[f32]) -> Result<Vec<bool>> {
        Ok(self.lock().selector.keep(ids, losses)?)
    }

    /// Notes what an epoch that ended (or was left) cost.
    pub(crate) fn observe(&self, report: &EpochReport, reads_at_once: usize, times: &ReadTimes) {
        let mut state = self.lock();
        let heard = &mut state.heard;
        heard.times.merge(times);
        heard.spent.note(report, reads_at_once);
        if self.world == 1 {
            let heard = std::mem::take(&mut state.heard);
            state.read([&heard].into_iter());
        }
    }

    /// What this rank heard since the last merge, to be sent to the others.
    pub fn pending(&self) -> Vec<u8> {
        self.lock().heard.pack()
    }

    /// Takes what all ranks heard, in the order of ranks. All of them then know the same.
    pub fn merge(&self, packs: &[Vec<u8>]) -> Result<()> {
        if packs.len() != self.world as usize {
            return Err(Error::config(format!(
                "feedback of {} ranks, but there are {}",
                packs.len(),
                self.world
            )));
        }
        let damaged = |rank: usize| Error::corrupt(format!("the feedback of rank {rank} is damaged"));
        let heard = packs
            .iter()
            .enumerate()
            .map(|(rank, pack)| Heard::unpack(pack).ok_or_else(|| damaged(rank)))
            .collect::<Result<Vec<Heard>>>()?;
        let mut state = self.lock();
        for one in &heard {
            state.selector.check(&one.said())?;
        }
        for one in &heard {
            state.selector.feedback(&one.said())?;
        }
        // Whoever says nothing, while others do, says that it does not know.
        if let Some(norm) = heard.iter().find_map(|one| one.norm) {
            let all = heard.iter().all(|one| one.norm == Some(norm));
            state.selector.norm(if all { norm } else { Norm::Unknown });
        }
        if heard.iter().any(|one| one.unjudged) {
            state.selector.unjudged();
        }
        state.read(heard.iter());
        state.heard = Heard::default();
        state.merged = true;
        Ok(())
    }
}

/// Who is in every epoch. Where nothing is skipped there is nothing to watch.
fn probe(options: &SelectionOptions, labels: &[u32], seed: u64) -> Result<Vec<u32>> {
    let share = options.probe_share;
    if !(0.0..=1.0).contains(&share) {
        let larger = if share > 1.0 { ": the probe would be larger than the data" } else { "" };
        return Err(Error::config(format!("steer.probe_share = {share} is not from 0 to 1{larger}"))
            .hint("0 watches nothing; 0.01 is one sample of a hundred, and at least one of every class"));
    }
    let watched = share > 0.0 && options.selection.needs_feedback();
    if watched { Ok(guard::probe(labels, share, seed)?) } else { Ok(Vec::new()) }
}

impl State {
    /// What the core decided, in the form of reports.
    fn describe(&self, summary: &Summary) -> SelectionReport {
        SelectionReport {
            kind: self.selector.selection().name(),
            samples: summary.samples,
            kept: summary.kept,
            recalled: summary.recalled,
            for_classes: summary.for_classes,
            for_probe: summary.for_probe,
            probe: summary.probe,
            guard: summary.guard.clone(),
            unknown: summary.unknown,
            threshold: summary.threshold,
            removed: 0,
            stand_ins: 0,
            class_shares: Vec::new(),
            io_bound: self.readings.io_bound,
            proxy: summary.proxy,
            reason: summary.reason.clone(),
            bottleneck: self.bottleneck.clone(),
        }
    }

    /// Takes the measurements of all ranks.
    fn read<'a>(&mut self, heard: impl Iterator<Item = &'a Heard>) {
        let mut spent = Spent::default();
        for one in heard {
            self.readings.times.merge(&one.times);
            spent.merge(&one.spent);
        }
        let profile = spent.profile();
        if profile != Profile::default() {
            let verdict = self.steer.observe(&profile);
            self.readings.io_bound = verdict.bound.cost_votes();
            self.bottleneck = verdict.reason;
        }
    }
}
