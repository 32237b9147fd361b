//! The decision of an epoch: what each sample could come to, put to the core.

use super::facts::Pictures;
use super::learn::is_decoded;
use super::report::SplitReport;
use super::running::{PAST, Table};
use super::splitter::Splitter;
use super::{Expected, SplitMode};
use gristmill_core::SampleId;
use gristmill_core::split::profile::Profile;
use gristmill_core::split::{Candidates, Choice, Decided, Resource, Resources, Roles, SplitPolicy, decide};
use gristmill_ops::{Draw, Pipeline, Stage};

/// The stages that may be chosen; all pixels are never fewer bytes than the file or the crop.
const STAGES: [Stage; 4] = [Stage::Cut, Stage::Cropped, Stage::Packed, Stage::Finished];
/// What the core calls them.
const ROLES: Roles =
    Roles { decoded: Stage::Decoded as u8, cropped: Stage::Cropped as u8, finished: Stage::Finished as u8 };

/// What a picture costs to decode is shared by so many epochs, where the node keeps it and so many are left: most trainings
/// have more.
const EPOCHS: u32 = 8;

/// A form that saves, but fewer bytes, is none of ours unless somebody said how fast the link is: where samples are so small it
/// is requests that take the time, or the store behind the node, whose rate looks like a link's.
const SAVED_LEAST: f64 = 1_024.0;

/// What is known when it is decided.
struct Known {
    pictures: Pictures,
    profile: Profile,
    same_machine: bool,
    /// CPU seconds of this machine for a byte that crosses the link, and for training a sample.
    beside_s: [f64; 2],
    /// Bytes of pictures that the node may still keep.
    room: u64,
    /// Whether the decision is ours, and how fast the link is was measured.
    doubts: bool,
    /// Whether what is here may come prepared all the same: decoding it every time can take longer.
    past: bool,
}

/// A decision, ready to be used and told.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) table: Table,
    pub(super) decided: Decided,
    policy: SplitPolicy,
    resources: Resources,
}

impl Chosen {
    /// Puts it into the report of an epoch of which so much is over.
    pub(super) fn tell(&self, report: &mut SplitReport, elapsed_s: f64) {
        report.policy = self.policy.name().into();
        report.reason.clone_from(&self.decided.reason);
        report.predicted_s = Some(elapsed_s + self.decided.after.epoch_s());
        report.predicted_raw_s = Some(elapsed_s + self.decided.before.epoch_s());
        report.predicted = Some(self.decided.after.into());
        report.once = self.decided.after.epoch_s() / self.decided.lasting.epoch_s().max(1e-9);
        report.rates = Some(self.resources.into());
    }
}

impl Splitter {
    /// Decides for these samples; the error says why it cannot be decided.
    pub(super) fn choose(
        &self,
        epoch: u64,
        order: &[u32],
        expected: Option<&[Expected]>,
        resources: Resources,
    ) -> Result<Chosen, String> {
        let (policy, decided) = self.decided(epoch, order, expected, &resources)?;
        let mut table = vec![Stage::Raw as u8; self.set.catalog().len() as usize];
        for (at, (&id, &stage)) in order.iter().zip(&decided.stages).enumerate() {
            let here = expected.is_some_and(|expected| expected[at] == Expected::Here);
            table[id as usize] = if here && stage != Stage::Raw as u8 { stage | PAST } else { stage };
        }
        Ok(Chosen { table: Table::Each(table), decided, policy, resources })
    }

    /// What the core decides for these samples.
    pub(super) fn decided(
        &self,
        epoch: u64,
        order: &[u32],
        expected: Option<&[Expected]>,
        resources: &Resources,
    ) -> Result<(SplitPolicy, Decided), String> {
        let Some(pipeline) = &self.pipeline else { return Err("there is no recipe".into()) };
        // Copies, so that the threads that measure are not held up.
        let state = self.lock();
        let known = Known {
            pictures: state.pictures.clone(),
            profile: state.profile.clone(),
            same_machine: state.same_machine,
            beside_s: if self.is_ours() { state.beside_s() } else { [0.0; 2] },
            room: state.pixels.free_bytes(),
            doubts: self.is_ours() && self.options.link_bytes_per_s.is_none(),
            past: self.is_ours() && self.set.upstream().is_some() && self.set.held().is_none(),
        };
        drop(state);
        let parts = if self.is_ours() { self.parts(pipeline, &known, epoch, order) } else { Vec::new() };
        let candidates = self.candidates(pipeline, &known, epoch, order, expected, &parts)?;
        let decide = |policy| decide(policy, &candidates, resources, ROLES).map_err(|e| e.to_string());
        let (policy, decided) = if let SplitMode::Policy(policy) = self.options.mode {
            (policy, decide(policy)?)
        } else {
            let best = decide(SplitPolicy::Best)?;
            if best.before.bottleneck() == Resource::Link {
                (SplitPolicy::Best, best)
            } else {
                let mut none = decide(SplitPolicy::None)?;
                let limit = best.before.bottleneck().name();
                none.reason = format!("the {limit} is the bottleneck and not the link, so nothing is split");
                (SplitPolicy::None, none)
            }
        };
        let once_s = self.once_s(pipeline, &known, epoch, order, &decided.stages, &parts);
        let local_s = if known.same_machine { once_s } else { 0.0 };
        Ok((policy, decided.with_once(policy, once_s, local_s, resources)))
    }

    /// Whether the decision is ours: published policies know of nothing that is kept.
    pub(super) fn is_ours(&self) -> bool {
        matches!(self.options.mode, SplitMode::Auto | SplitMode::Policy(SplitPolicy::Best))
    }

    /// Of what the node does once for each picture, the part that this epoch is charged with: nothing where that is done, all of
    /// it where the picture would find no room.
    fn parts(&self, pipeline: &Pipeline, known: &Known, epoch: u64, order: &[u32]) -> Vec<f32> {
        let left = self.epochs.map_or(EPOCHS, |epochs| u64::from(epochs).saturating_sub(epoch) as u32);
        let part = 1.0 / left.clamp(1, EPOCHS) as f32;
        let mut room = known.room;
        let one = |&id: &u32| {
            let id = SampleId(id);
            if known.pictures.was_decoded(id) {
                return 0.0;
            }
            let facts = known.pictures.of(id, self.raw_bytes(id));
            let bytes = pipeline.stage_bytes(Stage::Decoded, facts.width, facts.height).unwrap_or(u64::MAX);
            let fits = bytes <= room;
            room -= if fits { bytes } else { 0 };
            if fits { part } else { 1.0 }
        };
        order.iter().map(one).collect()
    }

    /// CPU seconds of the node that other epochs are charged with, and that fall due in this one.
    fn once_s(
        &self,
        pipeline: &Pipeline,
        known: &Known,
        epoch: u64,
        order: &[u32],
        stages: &[u8],
        parts: &[f32],
    ) -> f64 {
        let due = |((&id, &stage), &part): ((&u32, &u8), &f32)| {
            if part == 0.0 || part >= 1.0 || !Stage::from_u8(stage).is_some_and(is_decoded) {
                return 0.0;
            }
            let draw = Draw { seed: self.seed, epoch, sample: SampleId(id) };
            let shape = Splitter::shape(&known.pictures, pipeline, draw, self.raw_bytes(draw.sample));
            let first_s =
                known.profile.choices(&shape, &[stage]).last().map_or(0.0, |choice| choice.upstream_s);
            let again_s = known.profile.again_s(&shape, stage).unwrap_or(first_s);
            f64::from(1.0 - part) * (first_s - again_s).max(0.0)
        };
        order.iter().zip(stages).zip(parts).map(due).sum()
    }

    /// All forms of all samples; without `parts` the node does everything every time.
    fn candidates(
        &self,
        pipeline: &Pipeline,
        known: &Known,
        epoch: u64,
        order: &[u32],
        expected: Option<&[Expected]>,
        parts: &[f32],
    ) -> Result<Candidates, String> {
        let Known { pictures, profile, same_machine, beside_s: [per_byte_s, step_cpu_s], .. } = known;
        let mut stages: Vec<u8> = STAGES.map(|stage| stage as u8).to_vec();
        stages.extend(self.options.lossy.then_some(Stage::Lossy as u8));
        let mut candidates = Candidates::with_capacity(order.len(), stages.len() + 1);
        let mut kept: Vec<Choice> = Vec::with_capacity(stages.len() + 1);
        for (at, &id) in order.iter().enumerate() {
            let id = SampleId(id);
            let raw_bytes = self.raw_bytes(id);
            let draw = Draw { seed: self.seed, epoch, sample: id };
            let shape = Splitter::shape(pictures, pipeline, draw, raw_bytes);
            let choices = profile.choices(&shape, &stages);
            let expected = expected.map_or(Expected::Missed, |expected| expected[at]);
            let can_cut = pictures.of(id, raw_bytes).can_cut;
            kept.clear();
            for choice in choices.iter() {
                let Some(stage) = Stage::from_u8(choice.stage) else { continue };
                let all_the_same = known.past && expected == Expected::Here;
                if stage != Stage::Raw && expected != Expected::Missed && !all_the_same {
                    continue;
                }
                // What follows from the recipe need not be estimated.
                let exact = pipeline.stage_bytes(stage, shape.width, shape.height);
                let bytes = match stage {
                    Stage::Raw if all_the_same => 0.0,
                    Stage::Cropped | Stage::Finished => exact.map_or(choice.bytes, |bytes| bytes as f64),
                    _ => choice.bytes,
                };
                // The node would send it raw, or it is not worth asking for.
                let no_smaller = matches!(stage, Stage::Cut | Stage::Packed) && bytes >= f64::from(raw_bytes);
                let saved = f64::from(raw_bytes) - bytes;
                let little = known.doubts && saved > 0.0 && saved < SAVED_LEAST;
                let pointless = no_smaller || little && !all_the_same;
                if !(pointless || stage == Stage::Cut && !can_cut) {
                    let part = parts.get(at).copied().filter(|part| *part < 1.0 && is_decoded(stage));
                    let again_s = part.and_then(|part| Some((part, profile.again_s(&shape, choice.stage)?)));
                    let upstream_s = again_s.map_or(choice.upstream_s, |(part, again_s)| {
                        again_s + f64::from(part) * (choice.upstream_s - again_s).max(0.0)
                    });
                    // On one machine the node's work is done by the cores that do ours, and so are moving bytes and the model's.
                    let shared_s = if *same_machine { upstream_s } else { 0.0 };
                    let moved = if expected == Expected::Here && !all_the_same { 0.0 } else { bytes };
                    let local_s = choice.local_s + shared_s + per_byte_s * moved + step_cpu_s;
                    kept.push(Choice { bytes, local_s, upstream_s, ..*choice });
                }
            }
            if kept.is_empty() {
                return Err("too few samples were measured to decide anything".into());
            }
            candidates.push(if expected == Expected::Here && !known.past { 0.0 } else { 1.0 }, &kept);
        }
        Ok(candidates)
    }
}
