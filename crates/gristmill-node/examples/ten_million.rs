//! How long a large catalog takes to open and what it costs in memory: `cargo run --release --example ten_million`.
//!
//! Writes a synthetic catalog of ten million files (or as many as the first argument says), opens it, reads every
//! column, and makes an epoch's order. Memory is what the process holds beside the map.
#![expect(clippy::print_stdout, reason = "an example that prints what it measured")]

use gristmill_core::SampleId;
use gristmill_core::plan::{Plan, Shape};
use gristmill_node::catalog::{Catalog, Draft, SourceKind};
use gristmill_node::store::ObjectInfo;
use gristmill_node::{Error, Result};
use gristmill_ops::Encoding;
use std::path::Path;
use std::time::Instant;

const CLASSES: u32 = 1_000;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    if let Some(path) = words.next().filter(|word| word.contains('/')) {
        return measure(Path::new(&path));
    }
    let samples: u32 = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10_000_000);
    let folder = tempfile::tempdir().map_err(|e| Error::io("make", "a temporary folder", e))?;
    let path = folder.path().join("large.grist");
    let start = Instant::now();
    let mut draft = Draft::of_files("s3://bucket/train", SourceKind::Folder, Encoding::Sniffed);
    draft.set_classes((0..CLASSES).map(|class| format!("n{class:08}")).collect());
    for id in 0..samples {
        let label = (u64::from(id) * u64::from(CLASSES) / u64::from(samples)) as u32;
        let path = format!("n{label:08}/n{label:08}_{id:08}.JPEG");
        let bytes = 50_000 + u64::from(id % 100_003);
        draft.push_file(&ObjectInfo { path, bytes, version: u64::from(id) }, label)?;
    }
    draft.write(&path)?;
    println!("make and write      {:9.1} ms", ms(start));
    // In a process of its own, so that the draft's freed memory is not taken for the catalog's.
    let failed = |e| Error::io("start", "this program again", e);
    let program = std::env::current_exe().map_err(failed)?;
    let status = std::process::Command::new(program).arg(&path).status().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(Error::corrupt("measuring failed")) }
}

fn measure(path: &Path) -> Result<()> {
    let before = resident_anonymous_bytes();
    let start = Instant::now();
    let catalog = Catalog::open(path)?;
    let samples = catalog.len();
    println!("open                {:9.3} ms", ms(start));
    let start = Instant::now();
    catalog.locate(SampleId(samples / 2))?;
    println!("first locate        {:9.3} ms", ms(start));
    let start = Instant::now();
    catalog.verify()?;
    println!("verify every byte   {:9.1} ms", ms(start));
    let start = Instant::now();
    let mut sum = 0;
    for id in 0..samples {
        sum += catalog.locate(SampleId(id))?.range.end;
    }
    println!(
        "locate every sample {:9.1} ms ({:.0} ns each)",
        ms(start),
        ms(start) * 1e6 / f64::from(samples)
    );
    if sum != catalog.total_bytes()? {
        return Err(Error::corrupt("places and sizes disagree"));
    }
    let beside = resident_anonymous_bytes().saturating_sub(before);
    println!("memory beside map   {beside:9} bytes ({:.3} per sample)", beside as f64 / f64::from(samples));
    println!("file                {:9.1} bytes per sample", catalog.file_bytes() as f64 / f64::from(samples));

    let start = Instant::now();
    let plan = Plan::shuffled(samples, 0, 0, Shape::single(256))?;
    println!("an epoch's order    {:9.1} ms ({} batches)", ms(start), plan.batches());
    Ok(())
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// Memory of this process that is not a file's: pages of a map can be dropped at any time and are not counted.
fn resident_anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}
