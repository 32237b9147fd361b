//! `gristmill profile`: how fast fetching, preprocessing and the model are, and which of them training waits for.
//!
//! With a recipe for pictures it also says how large samples are after each op, and what a node near the data would save
//! ([`forms`]).
//!
//! Two short epochs are read: one of raw bytes, which gives the rate of the store as the loader asks it, and one with
//! the recipe, which gives the CPU time that a sample takes. What the model takes must be told. The decision and its
//! sentence are the steering's own.
//!
//! What is saved is what a simulation needs to know about the data, this machine and the store.
//!
//! Deliberately not here: emptying the system's file cache. Local files that were read lately come from memory, here
//! as in a training.

mod forms;

use super::catalogued;
use crate::args::ProfileArgs;
use crate::output::{grouped, json, line, name, size};
use crate::progress::{Progress, Unit};
use crate::stop;
use anyhow::Result;
use forms::Forms;
use gristmill_core::steer::{Bound, Profile, Steer, Verdict};
use gristmill_node::Error;
use gristmill_node::catalog::Catalog;
use gristmill_node::config::{Config, Settings};
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Loader, Polled};
use gristmill_node::open;
use gristmill_node::reader::Reader;
use gristmill_node::report::EpochReport;
use gristmill_ops::Recipe;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const READ: Unit = Unit::Things("sample", "samples", "read");
/// The longest measurement.
const SECONDS_MAX: f64 = 3_600.0;
/// The width of the longest bar.
const BAR: f64 = 30.0;
/// The number of the JSON fields' meaning; it changes when one of them does.
pub(super) const SCHEMA: u32 = 2;

/// The most reads that are made one at a time.
const ALONE_READS: u32 = 16;

/// What was measured, as printed and saved.
#[derive(Debug, Serialize)]
struct Measured {
    schema: u32,
    source: String,
    digest: String,
    samples: u32,
    data: Data,
    recipe: Option<String>,
    batch: u32,
    threads: usize,
    /// Cores of this machine.
    cores: usize,
    prefetch_batches: usize,
    fetch: Fetch,
    prep: Option<Prep>,
    /// Sizes by op and what offloading would save; none without a recipe or for bare pixels.
    forms: Option<Forms>,
    compute_per_s: Option<f64>,
    bound: &'static str,
    cost_votes: bool,
    reason: String,
}

/// What the catalog says about the samples.
#[derive(Debug, Serialize)]
struct Data {
    bytes_mean: f64,
    /// Standard deviation of sizes, as a share of the mean.
    bytes_spread: f64,
    classes: usize,
    /// The share of the largest class.
    class_share_max: f64,
}

#[derive(Debug, Serialize)]
struct Fetch {
    samples_per_s: Option<f64>,
    bytes_per_s: f64,
    bytes_per_sample: f64,
    /// Mean duration of one read; reads in flight overlap.
    read_ms: f64,
    /// Median duration of a read when nothing else is read.
    alone_ms: Option<f64>,
    /// Reads kept in flight; 0 where the threads read for themselves.
    reads_in_flight: usize,
    from_memory: bool,
    measured_samples: u64,
    measured_ms: f64,
}

#[derive(Debug, Serialize)]
struct Prep {
    samples_per_s: f64,
    cpu_ms_per_sample: f64,
    /// Threads that can run at once.
    parallel: usize,
    measured_samples: u64,
}

pub(super) fn profile(args: &ProfileArgs) -> Result<ExitCode> {
    let config = args.common.config(&[
        ("recipe.name", args.recipe.as_ref()),
        ("loader.batch", args.batch.as_ref()),
        ("loader.threads", args.threads.as_ref()),
        ("store.throttle_latency_ms", args.latency_ms.as_ref()),
        ("store.throttle_bytes_per_s", args.bytes_per_s.as_ref()),
    ])?;
    let settings = config.settings();
    let compute_per_s = compute_rate(args, settings)?;
    if !(args.seconds > 0.0 && args.seconds <= SECONDS_MAX) {
        let given = args.seconds;
        return Err(Error::config(format!(
            "--seconds {given} is not a time above 0 and up to {SECONDS_MAX} s"
        ))
        .into());
    }
    let recipe = open::recipe(settings.recipe())?;
    let opened = catalogued(&args.source, None, &config, None, args.common.json)?;
    let catalog = Arc::clone(&opened.catalog);
    let set = Arc::new(open::data_set(opened.catalog, settings, &stop::asked)?);
    let fetch = fetch(args, &config, &set, &catalog)?;
    let prep = recipe.as_ref().map(|recipe| prep(args, &config, &set, recipe)).transpose()?.flatten();
    let seconds = Duration::from_secs_f64(args.seconds);
    let forms = recipe
        .as_ref()
        .map(|recipe| forms::forms(&catalog, recipe, settings, seconds, args.common.json))
        .transpose()?
        .flatten();
    let profile = Profile {
        compute_per_s,
        prep_per_s: prep.as_ref().map(|prep| prep.samples_per_s),
        // What is held in memory is fetched no more.
        io_per_s: fetch.samples_per_s.filter(|_| !fetch.from_memory),
        stall: None,
    };
    let Verdict { bound, reason, .. } = Steer::new().observe(&profile);
    let loader = settings.loader();
    let measured = Measured {
        schema: SCHEMA,
        source: set.catalog().source().to_string(),
        digest: set.catalog().digest().to_string(),
        samples: set.catalog().len(),
        data: data(&catalog)?,
        recipe: recipe.map(|_| settings.recipe().to_string()),
        batch: loader.shape.batch,
        threads: loader.threads,
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        prefetch_batches: loader.prefetch_batches,
        fetch,
        prep,
        forms,
        compute_per_s,
        bound: bound.name(),
        cost_votes: bound.cost_votes(),
        reason,
    };
    if let Some(path) = &args.save {
        let text = serde_json::to_string_pretty(&measured)? + "\n";
        std::fs::write(path, text).map_err(|e| Error::io("write the profile", path.display(), e))?;
    }
    if args.common.json {
        json(&measured)?;
    } else {
        show(&measured, &profile, bound)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The model's rate as it was told.
fn compute_rate(args: &ProfileArgs, settings: &Settings) -> Result<Option<f64>> {
    let positive = |option: &str, value: f64| {
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(Error::config(format!("{option} {value} is not above 0")))
        }
    };
    let batch = f64::from(settings.loader().shape.batch);
    Ok(match (args.step_ms, args.compute) {
        (Some(ms), _) => Some(batch * 1e3 / positive("--step-ms", ms)?),
        (None, Some(rate)) => Some(positive("--compute", rate)?),
        (None, None) => None,
    })
}

/// Sizes and classes, as far as a simulation needs them.
fn data(catalog: &Catalog) -> Result<Data> {
    let (sizes, counts) = (catalog.sizes()?, catalog.class_counts()?);
    let samples = sizes.len().max(1) as f64;
    let mean = sizes.iter().map(|&size| f64::from(size)).sum::<f64>() / samples;
    let variance = sizes.iter().map(|&size| (f64::from(size) - mean).powi(2)).sum::<f64>() / samples;
    Ok(Data {
        bytes_mean: mean,
        bytes_spread: if mean > 0.0 { variance.sqrt() / mean } else { 0.0 },
        classes: counts.len(),
        class_share_max: f64::from(counts.iter().copied().max().unwrap_or(0)) / samples,
    })
}

/// How long a read takes when nothing else is read: some samples, spread over the data set, one at a time.
fn alone(args: &ProfileArgs, config: &Config, catalog: &Arc<Catalog>) -> Result<Option<f64>> {
    let reader = Reader::new(Arc::clone(catalog), None, config.settings().clone())?;
    let end = Instant::now() + Duration::from_secs_f64(args.seconds / 4.0);
    let (samples, mut took) = (catalog.len(), Vec::new());
    for id in (0..samples).step_by((samples / ALONE_READS).max(1) as usize).take(ALONE_READS as usize) {
        let start = Instant::now();
        // One that cannot be read says nothing about the store; fetching has met and told it.
        if reader.read(0, &[id]).is_ok() {
            took.push(start.elapsed().as_secs_f64() * 1e3);
        }
        stop::check()?;
        if Instant::now() > end {
            break;
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(took.get(took.len() / 2).copied())
}

fn fetch(args: &ProfileArgs, config: &Config, set: &Arc<DataSet>, catalog: &Arc<Catalog>) -> Result<Fetch> {
    let options = config.settings().loader();
    let reads_in_flight = match options.reads_in_flight {
        0 if set.immediate() => 0,
        0 => 64,
        n => n,
    };
    let report = measure("fetching", args, &Loader::new(set.clone(), None, options)?)?;
    let (samples, seconds) = (report.processed as f64, report.wall_ms / 1e3);
    Ok(Fetch {
        samples_per_s: (samples > 0.0 && seconds > 0.0).then(|| samples / seconds),
        bytes_per_s: if seconds > 0.0 { report.bytes as f64 / seconds } else { 0.0 },
        bytes_per_sample: report.bytes as f64 / samples.max(1.0),
        read_ms: report.fetch_ms / samples.max(1.0),
        alone_ms: alone(args, config, catalog)?,
        reads_in_flight,
        from_memory: report.from_memory,
        measured_samples: report.processed,
        measured_ms: report.wall_ms,
    })
}

fn prep(args: &ProfileArgs, config: &Config, set: &Arc<DataSet>, recipe: &Recipe) -> Result<Option<Prep>> {
    let loader = Loader::new(set.clone(), Some(recipe), config.settings().loader())?;
    let report = measure("preprocessing", args, &loader)?;
    // Threads that share a core take longer by the clock, and those that read for themselves have more CPU time than
    // the ops: the smaller of both is nearest to the ops' own.
    let ms = report.loader_cpu_ms.min(report.decode_ms + report.ops_ms);
    if report.processed == 0 || ms <= 0.0 {
        return Ok(None);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parallel = report.threads.min(cores);
    let cpu_ms_per_sample = ms / report.processed as f64;
    Ok(Some(Prep {
        samples_per_s: parallel as f64 * 1e3 / cpu_ms_per_sample,
        cpu_ms_per_sample,
        parallel,
        measured_samples: report.processed,
    }))
}

/// Reads as much of an epoch as the time allows, as fast as it comes.
fn measure(what: &str, args: &ProfileArgs, loader: &Loader) -> Result<EpochReport> {
    let mut bar = Progress::new(what, args.common.json);
    let mut epoch = loader.epoch(0, 0)?;
    let end = Instant::now() + Duration::from_secs_f64(args.seconds);
    let samples = loader.set().catalog().len().into();
    while Instant::now() < end {
        match epoch.poll(stop::SLICE)? {
            Polled::Batch(_) | Polled::Pending => {}
            Polled::Done => break,
        }
        bar.at(epoch.report().samples, Some(samples), READ, String::new);
        stop::check()?;
    }
    epoch.end();
    bar.done();
    Ok(epoch.report())
}

fn show(measured: &Measured, profile: &Profile, bound: Bound) -> Result<()> {
    let Measured { fetch, prep, .. } = measured;
    line(format_args!(
        "{}: {} samples, recipe {}, batch {}, {} threads",
        name(&measured.source),
        grouped(measured.samples.into()),
        name(measured.recipe.as_deref().unwrap_or("none")),
        measured.batch,
        measured.threads
    ))?;
    let fetching = if fetch.from_memory {
        "held in memory".to_string()
    } else {
        let reads = match fetch.reads_in_flight {
            0 => "the threads read for themselves".to_string(),
            n => format!("up to {n} reads in flight"),
        };
        format!("{}/s, {:.1} ms a read, {reads}", size(fetch.bytes_per_s as u64), fetch.read_ms)
    };
    let preparing = prep.as_ref().map_or_else(
        || "no recipe, or no sample was finished".to_string(),
        |prep| format!("{:.3} ms of CPU per sample, {} at once", prep.cpu_ms_per_sample, prep.parallel),
    );
    let modelling = match measured.compute_per_s {
        Some(rate) => format!("{:.1} ms per batch", f64::from(measured.batch) * 1e3 / rate),
        None => "not told (--step-ms or --compute)".to_string(),
    };
    let rates = [fetch.samples_per_s, profile.prep_per_s, profile.compute_per_s];
    let widest = rates.iter().flatten().copied().fold(0.0, f64::max);
    let rows = [("fetching", fetching), ("preprocessing", preparing), ("the model", modelling)];
    for ((label, detail), rate) in rows.into_iter().zip(rates) {
        let shown = rate.map_or("?".to_string(), |rate| grouped(rate.round() as u64));
        let bar = rate.map_or(0.0, |rate| (rate / widest * BAR).ceil().max(1.0)) as usize;
        line(format_args!("  {label:<14} {shown:>10} samples/s  {:<30}  {detail}", "#".repeat(bar)))?;
    }
    if let Some(forms) = &measured.forms {
        forms.show()?;
    }
    line(&measured.reason)?;
    let data = [Bound::Io, Bound::Prep]
        .iter()
        .filter_map(|bound| profile.rate(*bound))
        .fold(f64::INFINITY, f64::min);
    match measured.compute_per_s {
        _ if !data.is_finite() => Ok(()),
        None => line(format_args!(
            "a model that takes more than {} samples/s (a batch of {} in under {:.1} ms) waits for data",
            grouped(data as u64),
            measured.batch,
            f64::from(measured.batch) * 1e3 / data
        )),
        Some(rate) if bound != Bound::Compute => line(format_args!(
            "with all data at hand, training would be up to {:.1} times as fast",
            rate / data
        )),
        Some(rate) => line(format_args!("the data side could feed {:.1} times this model", data / rate)),
    }
}
