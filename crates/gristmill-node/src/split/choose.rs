//! The decision of an epoch: what each sample could come to, put to the core.

use super::learn::is_decoded;
use super::report::SplitReport;
use super::running::Table;
use super::splitter::Splitter;
use super::{Expected, SplitMode};
use gristmill_core::SampleId;
use gristmill_core::split::{Candidates, Choice, Decided, Resource, Resources, Roles, SplitPolicy, decide};
use gristmill_ops::{Draw, Stage};

/// The stages that may be chosen; all pixels are never fewer bytes than the file or the crop.
const STAGES: [Stage; 4] = [Stage::Cut, Stage::Cropped, Stage::Packed, Stage::Finished];
/// What the core calls them.
const ROLES: Roles =
    Roles { decoded: Stage::Decoded as u8, cropped: Stage::Cropped as u8, finished: Stage::Finished as u8 };

/// What a picture costs to decode is shared by so many epochs, where the node keeps it: most trainings have more.
const EPOCHS: f64 = 8.0;

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
        for (&id, &stage) in order.iter().zip(&decided.stages) {
            table[id as usize] = stage;
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
        // Published policies know of nothing that is kept.
        let shared = if matches!(self.options.mode, SplitMode::Auto | SplitMode::Policy(SplitPolicy::Best)) {
            1.0 / EPOCHS
        } else {
            1.0
        };
        let candidates = self.candidates(epoch, order, expected, shared)?;
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
        let once_s = self.once_s(epoch, order, &decided.stages, 1.0 - shared);
        let local_s = if self.lock().same_machine { once_s } else { 0.0 };
        Ok((policy, decided.with_once(policy, once_s, local_s, resources)))
    }

    /// CPU seconds of the node that other epochs were charged with, and that fall due in this one.
    fn once_s(&self, epoch: u64, order: &[u32], stages: &[u8], part: f64) -> f64 {
        let (Some(pipeline), true) = (&self.pipeline, part > 0.0) else { return 0.0 };
        let guard = self.lock();
        let (pictures, profile) = (&guard.pictures, &guard.profile);
        let due = |(&id, &stage): (&u32, &u8)| {
            let id = SampleId(id);
            if pictures.was_decoded(id) || !Stage::from_u8(stage).is_some_and(is_decoded) {
                return 0.0;
            }
            let draw = Draw { seed: self.seed, epoch, sample: id };
            let shape = Splitter::shape(pictures, pipeline, draw, self.raw_bytes(id));
            let first_s = profile.choices(&shape, &[stage]).last().map_or(0.0, |choice| choice.upstream_s);
            (first_s - profile.again_s(&shape, stage).unwrap_or(first_s)).max(0.0)
        };
        part * order.iter().zip(stages).map(due).sum::<f64>()
    }

    /// All forms of all samples. Of what the node does once for a picture this epoch is charged with the part `shared`.
    fn candidates(
        &self,
        epoch: u64,
        order: &[u32],
        expected: Option<&[Expected]>,
        shared: f64,
    ) -> Result<Candidates, String> {
        let Some(pipeline) = &self.pipeline else { return Err("there is no recipe".into()) };
        // Copies, so that the threads that measure are not held up.
        let guard = self.lock();
        let (pictures, profile) = (guard.pictures.clone(), guard.profile.clone());
        let (same_machine, per_byte_s) = (guard.same_machine, guard.per_byte_s());
        drop(guard);
        let mut stages: Vec<u8> = STAGES.map(|stage| stage as u8).to_vec();
        stages.extend(self.options.lossy.then_some(Stage::Lossy as u8));
        let mut candidates = Candidates::with_capacity(order.len(), stages.len() + 1);
        let mut kept: Vec<Choice> = Vec::with_capacity(stages.len() + 1);
        for (at, &id) in order.iter().enumerate() {
            let id = SampleId(id);
            let raw_bytes = self.raw_bytes(id);
            let draw = Draw { seed: self.seed, epoch, sample: id };
            let shape = Splitter::shape(&pictures, pipeline, draw, raw_bytes);
            let choices = profile.choices(&shape, &stages);
            let expected = expected.map_or(Expected::Missed, |expected| expected[at]);
            let can_cut = pictures.of(id, raw_bytes).can_cut;
            kept.clear();
            for choice in choices.iter() {
                let Some(stage) = Stage::from_u8(choice.stage) else { continue };
                if stage != Stage::Raw && expected != Expected::Missed {
                    continue;
                }
                // What follows from the recipe need not be estimated.
                let exact = pipeline.stage_bytes(stage, shape.width, shape.height);
                let bytes = match stage {
                    Stage::Cropped | Stage::Finished => exact.map_or(choice.bytes, |bytes| bytes as f64),
                    _ => choice.bytes,
                };
                // The node would send it raw.
                let pointless = matches!(stage, Stage::Cut | Stage::Packed) && bytes >= f64::from(raw_bytes);
                if !(pointless || stage == Stage::Cut && !can_cut) {
                    let again_s = profile.again_s(&shape, choice.stage).filter(|_| is_decoded(stage));
                    let part = if pictures.was_decoded(id) { 0.0 } else { shared };
                    let upstream_s = again_s.map_or(choice.upstream_s, |again_s| {
                        again_s + part * (choice.upstream_s - again_s).max(0.0)
                    });
                    // On one machine the node's work is done by the cores that do ours, and so is moving bytes.
                    let shared_s = if same_machine { upstream_s } else { 0.0 };
                    let moved = if expected == Expected::Here { 0.0 } else { bytes };
                    let local_s = choice.local_s + shared_s + per_byte_s * moved;
                    kept.push(Choice { bytes, local_s, upstream_s, ..*choice });
                }
            }
            if kept.is_empty() {
                return Err("too few samples were measured to decide anything".into());
            }
            candidates.push(if expected == Expected::Here { 0.0 } else { 1.0 }, &kept);
        }
        Ok(candidates)
    }
}
