//! `gristmill bench scale`: what very many samples cost to open, hold, order, select from and split.
//!
//! A synthetic catalog is written and then measured in a process of its own, so that memory which the writing
//! freed is not taken for the catalog's.

use crate::args::ScaleArgs;
use crate::output::{counted, grouped, json, line, say};
use anyhow::Result;
use gristmill_core::SampleId;
use gristmill_core::plan::{Plan, Shape};
use gristmill_core::rng::mix;
use gristmill_core::score::Feedback;
use gristmill_core::select::{Facts, Readings, Selection, Selector};
use gristmill_core::split::{Candidates, Choice, Resources, Roles, SplitPolicy, decide};
use gristmill_node::Error;
use gristmill_node::catalog::{Catalog, Draft, SourceKind};
use gristmill_node::store::ObjectInfo;
use gristmill_ops::Encoding;
use serde_json::json;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

const CLASSES: u32 = 1_000;

pub(super) fn scale(args: &ScaleArgs) -> Result<ExitCode> {
    if let Some(path) = &args.measure {
        measure(path, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.samples == 0 {
        return Err(Error::config("--samples is 0; it must be at least 1").into());
    }
    let folder = tempfile::tempdir().map_err(|e| Error::io("make", "a temporary folder", e))?;
    let path = folder.path().join("large.catalog");
    if !args.json {
        say(format_args!("writing a catalog of {} …", counted(args.samples.into(), "sample", "samples")));
    }
    write(&path, args.samples)?;
    let failed = |e| Error::io("start", "this program again", e);
    let program = std::env::current_exe().map_err(failed)?;
    let mut again = Command::new(program);
    again.args(["bench", "scale", "--measure"]).arg(&path);
    if args.json {
        again.arg("--json");
    }
    let status = again.status().map_err(failed)?;
    Ok(ExitCode::from(u8::from(!status.success())))
}

fn write(path: &Path, samples: u32) -> Result<()> {
    let mut draft = Draft::of_files("s3://bucket/train", SourceKind::Folder, Encoding::Sniffed);
    draft.set_classes((0..CLASSES).map(|class| format!("n{class:08}")).collect());
    for id in 0..samples {
        let label = (u64::from(id) * u64::from(CLASSES) / u64::from(samples)) as u32;
        let path = format!("n{label:08}/n{label:08}_{id:08}.JPEG");
        let bytes = 50_000 + u64::from(id % 100_003);
        draft.push_file(&ObjectInfo { path, bytes, version: id.into() }, label)?;
    }
    Ok(draft.write(path)?)
}

fn measure(path: &Path, as_json: bool) -> Result<()> {
    let before = anonymous_bytes();
    let start = Instant::now();
    let catalog = Catalog::open(path)?;
    let open_ms = ms(start);
    let samples = catalog.len();
    let start = Instant::now();
    catalog.verify()?;
    let verify_ms = ms(start);
    let start = Instant::now();
    let mut sum = 0;
    for id in 0..samples {
        sum += catalog.locate(SampleId(id))?.range.end;
    }
    let locate_ns = ms(start) * 1e6 / f64::from(samples);
    if sum != catalog.total_bytes()? {
        return Err(Error::corrupt("places and sizes disagree").into());
    }
    let start = Instant::now();
    let plan = Plan::shuffled(samples, 0, 0, Shape::single(256))?;
    let order_ms = ms(start);
    let beside = anonymous_bytes().saturating_sub(before) as f64 / f64::from(samples);
    let file = catalog.file_bytes() as f64 / f64::from(samples);
    drop(plan);
    let ways = Selection::NAMES.iter().filter(|name| **name != "uniform");
    let selects = ways.map(|name| select(&catalog, name)).collect::<Result<Vec<Selecting>>>()?;
    let splits = SplitPolicy::ALL
        .map(|policy| Ok((policy.name(), split(&catalog, policy)?)))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    if as_json {
        return json(&json!({
            "samples": samples, "open_ms": open_ms, "verify_ms": verify_ms, "locate_ns": locate_ns,
            "order_ms": order_ms, "memory_bytes_per_sample": beside, "file_bytes_per_sample": file,
            "selections": selects.iter().map(|s| json!({
                "kind": s.kind, "select_ms": s.select_ms, "order_ms": s.order_ms, "feedback_ns_per_sample": s.feedback_ns,
                "kept_share": s.kept_share, "memory_bytes_per_sample": s.memory_bytes,
            })).collect::<Vec<_>>(),
            "splits": splits.iter().map(|(policy, ms)| json!({ "policy": policy, "decide_ms": ms })).collect::<Vec<_>>(),
        }));
    }
    line(format_args!("samples                 {:>12}", grouped(samples.into())))?;
    line(format_args!("open the catalog        {open_ms:>12.3} ms"))?;
    line(format_args!("verify every byte       {verify_ms:>12.1} ms   (done block by block at first use)"))?;
    line(format_args!("find one sample         {locate_ns:>12.0} ns"))?;
    line(format_args!(
        "an epoch's order        {order_ms:>12.1} ms   ({} batches)",
        grouped(gristmill_core::plan::batches(samples, Shape::single(256)).into())
    ))?;
    line(format_args!("memory beside the map   {beside:>12.2} bytes per sample, the order included"))?;
    line(format_args!("catalog on disk         {file:>12.1} bytes per sample"))?;
    line(format_args!("\nselect an epoch's samples, and put them in order"))?;
    for s in selects {
        line(format_args!(
            "  {:<22}{:>12.1} ms and {:>5.1} ms   {:>5.1} % kept; feedback {:>3.0} ns and memory {:>3.0} bytes per sample",
            s.kind,
            s.select_ms,
            s.order_ms,
            100.0 * s.kept_share,
            s.feedback_ns,
            s.memory_bytes
        ))?;
    }
    line(format_args!("\ndecide where each sample is cut, of 4 forms each"))?;
    splits.iter().try_for_each(|(policy, ms)| line(format_args!("  {policy:<22}{ms:>12.1} ms")))
}

/// How long it takes to decide the split of an epoch over a link that is the bottleneck.
fn split(catalog: &Catalog, policy: SplitPolicy) -> Result<f64> {
    let samples = catalog.len();
    let mut candidates = Candidates::with_capacity(samples as usize, 4);
    for id in 0..samples {
        let raw = f64::from(catalog.size(SampleId(id))?);
        // A cut carries a part that differs from draw to draw.
        let part = 0.1 + 0.9 * (mix(id.into()) >> 11) as f64 / (1_u64 << 53) as f64;
        let choice = |stage, bytes, upstream_s, local_s| Choice { stage, bytes, upstream_s, local_s };
        let choices = [
            choice(0, raw, 0.0, raw * 15e-9),
            choice(1, raw * part, raw * 30e-9, raw * part * 15e-9),
            choice(2, 150_528.0, raw * 15e-9, 1e-4),
            choice(3, 65_000.0, raw * 15e-9 + 6e-3, 5e-3),
        ];
        candidates.push(1.0, &choices);
    }
    let resources = Resources {
        link_bytes_per_s: 54e6,
        upstream_cores: 4.0,
        local_cores: 8.0,
        accelerator_samples_per_s: 3_000.0,
    };
    let roles = Roles { decoded: 4, cropped: 2, finished: 2 };
    let start = Instant::now();
    decide(policy, &candidates, &resources, roles).map_err(|e| Error::config(e.to_string()))?;
    Ok(ms(start))
}

/// What one way to select costs.
struct Selecting {
    kind: &'static str,
    select_ms: f64,
    order_ms: f64,
    feedback_ns: f64,
    kept_share: f64,
    memory_bytes: f64,
}

/// Epochs that a selector hears of before it is timed: past every warm-up, and past the histories that some ways keep.
const HEARD: u64 = 7;

/// Tells a selector about every sample, epoch by epoch, and times a decision of its usual kind, with the cost of fetching
/// voting.
fn select(catalog: &Catalog, kind: &'static str) -> Result<Selecting> {
    let samples = catalog.len();
    let before = anonymous_bytes();
    let facts = Facts {
        labels: catalog.labels()?.to_vec(),
        sizes: catalog.sizes()?.to_vec(),
        seed: 0,
        epochs: Some(90),
        class_floor: 0.05,
    };
    let mut selector = Selector::new(Selection::named(kind)?, facts)?;
    let mut readings = Readings { io_bound: true, ..Readings::default() };
    [(1_000, 0.004), (100_000, 0.005), (1_000_000, 0.014)]
        .iter()
        .for_each(|&(b, s)| readings.times.note(b, s));
    let (mut told_ns, mut told) = (0.0, 0_u64);
    for epoch in 0..HEARD {
        // Whom the epoch has, each once: that is what a trainer can tell of.
        let mut served = selector.begin(epoch, &readings)?.ids.clone();
        served.dedup();
        for ids in served.chunks(1 << 20) {
            let p_true: Vec<f32> = ids.iter().map(|&id| learned(id, epoch)).collect();
            let p_rival: Vec<f32> = p_true.iter().map(|p| (1.0 - p) * 0.8).collect();
            let loss: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
            let said = Feedback { ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
            let start = Instant::now();
            selector.feedback(&said)?;
            told_ns += ms(start) * 1e6;
        }
        told += served.len() as u64;
    }
    let start = Instant::now();
    let chosen = selector.begin(HEARD, &readings)?;
    let select_ms = ms(start);
    let start = Instant::now();
    let (order, weights) = chosen.shuffled(0);
    let order_ms = ms(start);
    let kept = f64::from(chosen.summary.kept);
    drop((order, weights));
    Ok(Selecting {
        kind,
        select_ms,
        order_ms,
        feedback_ns: told_ns / told.max(1) as f64,
        kept_share: kept / f64::from(samples),
        memory_bytes: anonymous_bytes().saturating_sub(before) as f64 / f64::from(samples),
    })
}

/// A probability of the true label as a model that learns gives them: most near 1, few anywhere, none the same twice.
fn learned(id: u32, epoch: u64) -> f32 {
    let unit = |bits: u64| (mix(bits) >> 40) as f32 / (1 << 24) as f32;
    let (hard, wobble) = (unit(id.into()), unit(u64::from(id) | (epoch + 1) << 32));
    1.0 - hard * hard * hard * (0.8 + 0.2 * wobble) / (1.0 + 0.2 * epoch as f32)
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Memory of this process that is not a file's: pages of a map can be dropped at any time and are not counted.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() * 1_024
}
