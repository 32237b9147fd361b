//! `gristmill bench scale`: what a catalog of very many samples costs to open, hold and order.
//!
//! A synthetic catalog is written and then measured in a process of its own, so that memory which the writing
//! freed is not taken for the catalog's.

use crate::args::ScaleArgs;
use crate::output::{counted, grouped, json, line, say};
use anyhow::Result;
use gristmill_core::SampleId;
use gristmill_core::plan::{Plan, Shape};
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
    if as_json {
        return json(&json!({
            "samples": samples, "open_ms": open_ms, "verify_ms": verify_ms, "locate_ns": locate_ns,
            "order_ms": order_ms, "memory_bytes_per_sample": beside, "file_bytes_per_sample": file,
        }));
    }
    line(format_args!("samples                 {:>12}", grouped(samples.into())))?;
    line(format_args!("open the catalog        {open_ms:>12.3} ms"))?;
    line(format_args!("verify every byte       {verify_ms:>12.1} ms   (done block by block at first use)"))?;
    line(format_args!("find one sample         {locate_ns:>12.0} ns"))?;
    line(format_args!(
        "an epoch's order        {order_ms:>12.1} ms   ({} batches)",
        grouped(plan.batches().into())
    ))?;
    line(format_args!("memory beside the map   {beside:>12.2} bytes per sample, the order included"))?;
    line(format_args!("catalog on disk         {file:>12.1} bytes per sample"))
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
