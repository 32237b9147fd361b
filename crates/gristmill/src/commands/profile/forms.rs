//! How large samples are on their way through the recipe, and what a node near the data could save.
//!
//! Some samples, small and large in proportion, are brought to every form that can cross a link. Nothing is sent: this
//! runs before there is a node, and says whether one would be worth it.

use crate::output::{grouped, line, size};
use crate::progress::{Progress, Unit};
use crate::stop;
use anyhow::Result;
use gristmill_core::SampleId;
use gristmill_core::split::profile::stratified;
use gristmill_node::catalog::Catalog;
use gristmill_node::config::Settings;
use gristmill_node::loader::Data;
use gristmill_node::reader::Reader;
use gristmill_ops::{Draw, Encoding, Limits, Pipeline, Recipe, Scratch, Stage};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most samples that are looked at.
const SAMPLES_MAX: f64 = 256.0;
/// What running the ops of one sample may take of memory.
const SCRATCH_BYTES_MAX: usize = 1 << 30;
/// Samples that are read at once.
const AT_ONCE: usize = 16;
const TRIED: Unit = Unit::Things("sample", "samples", "tried");
/// The width of the longest bar.
const BAR: f64 = 30.0;
/// The forms that are tried, beside the raw one.
const FORMS: [Stage; 3] = [Stage::Cut, Stage::Cropped, Stage::Packed];

/// What was found, as printed and saved.
#[derive(Debug, Default, Serialize)]
pub(super) struct Forms {
    samples: u64,
    raw_bytes: f64,
    /// Mean bytes of a sample after each op.
    ops: Vec<OpSize>,
    stages: Vec<Form>,
    /// How many times less would cross a link if each sample came as the smallest of: the file, the crop (sophon).
    saves_sophon: f64,
    /// The same with the cut JPEG and the packed crop (best).
    saves_best: f64,
}

#[derive(Debug, Serialize)]
struct OpSize {
    op: &'static str,
    bytes: f64,
}

#[derive(Debug, Serialize)]
struct Form {
    stage: Stage,
    /// Mean bytes; of samples that cannot be brought there, those of the file.
    bytes: f64,
    /// The share of samples that are smaller so than as files.
    smaller_share: f64,
    /// CPU time of the node per sample.
    cpu_ms: f64,
}

/// Looks at some samples for at most so long; none where samples are bare pixels, which nobody makes smaller.
pub(super) fn forms(
    catalog: &Arc<Catalog>,
    recipe: &Recipe,
    settings: &Settings,
    time: Duration,
    quiet: bool,
) -> Result<Option<Forms>> {
    if catalog.encoding() != Encoding::Sniffed {
        return Ok(None);
    }
    let options = settings.loader();
    let limits = Limits { pixels_max: options.pixels_max, scratch_bytes_max: SCRATCH_BYTES_MAX };
    let pipeline = Pipeline::new(recipe, Encoding::Sniffed, limits)?;
    let sizes = catalog.sizes()?;
    let ids = stratified(sizes, SAMPLES_MAX / sizes.len().max(1) as f64, options.seed);
    let reader = Reader::new(Arc::clone(catalog), None, settings.clone())?;
    let mut found = Forms::default();
    let (mut scratch, mut out) = (Scratch::new(), Vec::new());
    let mut bar = Progress::new("forms", quiet);
    let end = Instant::now() + time;
    for chunk in ids.chunks(AT_ONCE) {
        if Instant::now() > end && found.samples > 0 {
            break;
        }
        bar.at(found.samples, Some(ids.len() as u64), TRIED, String::new);
        stop::check()?;
        let chunk: Vec<u32> = chunk.iter().map(|id| id.0).collect();
        let batch = reader.read(0, &chunk)?;
        let Data::Raw(all) = &batch.data else { break };
        for (&id, bytes) in batch.ids.iter().zip(all) {
            let draw = Draw { seed: options.seed, epoch: 0, sample: SampleId(id) };
            found.take(&pipeline, &mut scratch, draw, bytes, &mut out);
        }
    }
    bar.done();
    Ok(found.averaged())
}

impl Forms {
    /// Brings one sample to every form and adds what that came to.
    fn take(
        &mut self,
        pipeline: &Pipeline,
        scratch: &mut Scratch,
        draw: Draw,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) {
        let Some(facts) = pipeline.facts(bytes) else { return };
        if self.samples == 0 {
            let form = |stage| Form { stage, bytes: 0.0, smaller_share: 0.0, cpu_ms: 0.0 };
            self.stages = FORMS.map(form).into();
            let ops = pipeline.sizes_by_op(facts.width, facts.height);
            self.ops = ops.into_iter().map(|(op, _)| OpSize { op, bytes: 0.0 }).collect();
        }
        let raw = bytes.len() as f64;
        self.samples += 1;
        self.raw_bytes += raw;
        for (sum, (_, bytes)) in self.ops.iter_mut().zip(pipeline.sizes_by_op(facts.width, facts.height)) {
            sum.bytes += bytes as f64;
        }
        let mut smallest = raw;
        for form in &mut self.stages {
            let advanced = pipeline.advance(scratch, draw, bytes, form.stage, out);
            let came = if advanced.stage == form.stage { out.len() as f64 } else { raw };
            form.bytes += came;
            form.smaller_share += f64::from(came < raw);
            form.cpu_ms += advanced.cpu_ns as f64 / 1e6;
            smallest = smallest.min(came);
            if form.stage == Stage::Cropped {
                self.saves_sophon += raw.min(came);
            }
        }
        self.saves_best += smallest;
    }

    /// Sums made into means and ratios; none of nothing.
    fn averaged(mut self) -> Option<Forms> {
        if self.samples == 0 {
            return None;
        }
        let count = self.samples as f64;
        self.saves_sophon = self.raw_bytes / self.saves_sophon.max(1.0);
        self.saves_best = self.raw_bytes / self.saves_best.max(1.0);
        self.raw_bytes /= count;
        self.ops.iter_mut().for_each(|op| op.bytes /= count);
        for form in &mut self.stages {
            form.bytes /= count;
            form.smaller_share /= count;
            form.cpu_ms /= count;
        }
        Some(self)
    }

    /// Prints bars of sizes and what a node near the data would save.
    pub(super) fn show(&self) -> Result<()> {
        line(format_args!("size of a sample on its way (means of {} samples)", grouped(self.samples)))?;
        let ops = self.ops.iter().map(|op| (op.op, op.bytes));
        let rows: Vec<(&str, f64)> = std::iter::once(("in the store", self.raw_bytes)).chain(ops).collect();
        let forms = self.stages.iter().filter(|form| form.stage != Stage::Cropped);
        let widest = rows.iter().map(|row| row.1).fold(0.0, f64::max).max(1.0);
        let bar = |bytes: f64| "#".repeat((bytes / widest * BAR).ceil().max(1.0) as usize);
        for (label, bytes) in rows {
            line(format_args!("  {label:<19} {:>9}  {}", size(bytes as u64), bar(bytes)))?;
        }
        for form in forms {
            let label = if form.stage == Stage::Cut { "cut without loss" } else { "crop, packed" };
            line(format_args!(
                "  {label:<19} {:>9}  {:<30}  {:.1} ms of CPU, smaller than the file for {:.0} %",
                size(form.bytes as u64),
                bar(form.bytes),
                form.cpu_ms,
                form.smaller_share * 100.0
            ))?;
        }
        line(format_args!(
            "a node near the data would save: {:.2}x less over the link with split=best, {:.2}x with sophon",
            self.saves_best, self.saves_sophon
        ))
    }
}
