//! `gristmill bench load`: reads a data set as a training would and says what that costs.

use super::{bench_ranks, catalogued, ranks};
use crate::args::LoadArgs;
use crate::output::{json, line, name, say};
use crate::progress::{BATCHES, Progress};
use crate::stop;
use anyhow::Result;
use gristmill_node::config::Config;
use gristmill_node::exchange::ExchangeReport;
use gristmill_node::loader::{Batch, Loader, Polled};
use gristmill_node::open;
use gristmill_node::report::EpochReport;
use gristmill_node::{Error, Kind};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest pretended step: an hour.
const STEP_MS_MAX: f64 = 3_600_000.0;

/// One epoch's figures, as printed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) epoch: u64,
    /// Which rank, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
    pub(super) samples: u64,
    batches: u32,
    samples_per_s: f64,
    /// CPU time of the whole process per sample that was processed, those included that were only prefetched.
    cpu_ms_per_sample: Option<f64>,
    wall_ms: f64,
    pub(super) wait_ms: f64,
    wait_fetch_ms: f64,
    wait_decode_ms: f64,
    wait_ops_ms: f64,
    wait_hand_over_ms: f64,
    /// For the exchange, when the epoch was over.
    pub(super) wait_exchange_ms: f64,
    pub(super) bytes: u64,
    retries: u64,
    skipped: u64,
    ready_batches_mean: f64,
    fetched_samples_mean: f64,
    threads: usize,
    /// What the exchange did, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<ExchangeReport>,
}

pub(super) fn load(args: &LoadArgs) -> Result<ExitCode> {
    let config = args.common.config(&[
        ("recipe.name", args.recipe.as_ref()),
        ("loader.batch", args.batch.as_ref()),
        ("loader.threads", args.threads.as_ref()),
        ("loader.seed", args.seed.as_ref()),
        ("store.throttle_latency_ms", args.latency_ms.as_ref()),
        ("store.throttle_bytes_per_s", args.bytes_per_s.as_ref()),
        ("store.throttle_requests_per_s", args.requests_per_s.as_ref()),
        ("store.fault_share", args.faults.as_ref()),
        ("exchange.fraction", fraction(args).as_ref()),
        ("exchange.hold", args.hold.as_ref()),
    ])?;
    if args.epochs == 0 {
        return Err(Error::config("--epochs is 0; it must be at least 1").into());
    }
    let Some(end) = args.from_epoch.checked_add(args.epochs) else {
        let (from, epochs) = (args.from_epoch, args.epochs);
        return Err(Error::config(format!("--from-epoch {from} leaves no room for --epochs {epochs}"))
            .hint(format!("epochs count to {}", u64::MAX))
            .into());
    };
    if !(0.0..=STEP_MS_MAX).contains(&args.step_ms) {
        let given = args.step_ms;
        return Err(
            Error::config(format!("--step-ms {given} is not a time from 0 to {STEP_MS_MAX} ms")).into()
        );
    }
    if ranks::launched(config.settings().exchange().is_some()) {
        return ranks::load(args, &config, args.from_epoch..end);
    }
    if args.ranks.is_some()
        && config.settings().exchange().is_none()
        && (args.hold.is_some() || args.link.is_some())
    {
        let option = if args.hold.is_some() { "--hold" } else { "--link" };
        return Err(Error::config(format!("{option} is of no use: the ranks do not exchange anything"))
            .hint("give a fraction with --exchange, such as 0.3, or leave it out")
            .into());
    }
    if let Some(world) = args.ranks {
        return bench_ranks::load(args, &config, world, args.from_epoch..end);
    }
    if config.settings().exchange().is_some() || args.link.is_some() {
        return Err(Error::config("an exchange needs ranks to exchange with")
            .hint("say how many with --ranks, as threads of this process; or start as many with mpirun")
            .into());
    }
    let loader = open_loader(args, &config)?;
    let mut trace = args.batches_out.as_ref().map(|path| Trace::new(path)).transpose()?;
    let mut rows = Vec::new();
    for epoch in args.from_epoch..end {
        let from_batch = if epoch == args.from_epoch { args.from_batch } else { 0 };
        let (row, report) = one_epoch(&loader, args, epoch, from_batch, trace.as_mut())?;
        if args.common.json {
            json(&row)?;
        } else {
            line(format_args!("{report}\n  {} of CPU per sample", cpu(row.cpu_ms_per_sample)))?;
        }
        rows.push(row);
        stop::check()?;
    }
    if rows.len() > 1 {
        total(&rows, args.common.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The setting that `--exchange` means.
fn fraction(args: &LoadArgs) -> Option<String> {
    let typed = args.exchange.as_deref()?;
    Some(if matches!(typed, "global" | "none") { "off" } else { typed }.to_string())
}

fn open_loader(args: &LoadArgs, config: &Config) -> Result<Loader> {
    let settings = config.settings();
    let recipe = open::recipe(settings.recipe())?;
    let opened = catalogued(&args.source, args.kind, config, Some(args.rebuild), args.common.json)?;
    let set = open::data_set(opened.catalog, settings, &stop::asked)?;
    let set = Arc::new(set);
    let access = open::access(&set, settings, "gristmill bench load")?;
    Ok(Loader::new(set, recipe.as_ref(), settings.loader())?.with_access(access))
}

fn one_epoch(
    loader: &Loader,
    args: &LoadArgs,
    number: u64,
    from_batch: u32,
    mut trace: Option<&mut Trace>,
) -> Result<(Row, EpochReport)> {
    let cpu_before = process_cpu_ms();
    let mut epoch = loader.epoch(number, from_batch)?;
    let last = args.batches.map_or(epoch.batches(), |n| epoch.batches().min(from_batch.saturating_add(n)));
    if epoch.batches() == 0 {
        let shape = loader.options().shape;
        say(format_args!(
            "warning: epoch {number} has no batch for rank {} of {}: too few samples for loader.batch = {}",
            shape.rank, shape.world, shape.batch
        ));
    }
    let mut bar = Progress::new(&format!("epoch {number}"), args.common.json);
    let mut at = from_batch;
    let stall = Duration::from_millis(loader.options().stall_ms_max);
    let mut since = Instant::now();
    while at < last {
        match epoch.poll(Duration::from_millis(100))? {
            Polled::Batch(batch) => {
                at += 1;
                for bad in batch.skipped.iter().filter(|_| !args.common.json) {
                    say(format_args!("skipped: {}", name(&bad.reason)));
                }
                if let Some(trace) = trace.as_mut() {
                    trace.write(&batch)?;
                }
                drop(batch);
                stop::sleep(Duration::from_secs_f64(args.step_ms / 1e3));
                since = Instant::now();
            }
            Polled::Pending if since.elapsed() > stall => return Err(epoch.stalled().into()),
            Polled::Pending => {}
            Polled::Done => break,
        }
        bar.at(at.into(), Some(last.into()), BATCHES, || {
            let report = epoch.report();
            format!("{:.0} samples/s, waiting {:.0} %", report.samples_per_s, report.wait_share() * 100.0)
        });
        if stop::asked() {
            break;
        }
    }
    epoch.end();
    bar.done();
    let report = epoch.report();
    let row = Row::new(&report, process_cpu_ms() - cpu_before);
    Ok((row, report))
}

impl Row {
    /// The row of one rank of several: CPU time is the process's, and nobody's alone.
    pub(super) fn of_rank(report: &EpochReport, rank: u32) -> Row {
        Row { rank: Some(rank), cpu_ms_per_sample: None, ..Row::new(report, 0.0) }
    }

    fn new(report: &EpochReport, cpu_ms: f64) -> Row {
        Row {
            epoch: report.epoch,
            rank: None,
            samples: report.samples,
            batches: report.batches,
            samples_per_s: report.samples_per_s,
            cpu_ms_per_sample: (report.processed > 0).then(|| cpu_ms / report.processed as f64),
            wall_ms: report.wall_ms,
            wait_ms: report.wait.total_ms,
            wait_fetch_ms: report.wait.fetch_ms,
            wait_decode_ms: report.wait.decode_ms,
            wait_ops_ms: report.wait.ops_ms,
            wait_hand_over_ms: report.wait.hand_over_ms,
            wait_exchange_ms: report.exchange.as_ref().map_or(0.0, |exchange| exchange.wait_ms),
            bytes: report.bytes,
            retries: report.retries,
            skipped: report.skipped,
            ready_batches_mean: report.ready_batches_mean,
            fetched_samples_mean: report.fetched_samples_mean,
            threads: report.threads,
            exchange: report.exchange.clone(),
        }
    }
}

fn total(rows: &[Row], as_json: bool) -> Result<()> {
    let rate = median(rows.iter().map(|row| row.samples_per_s)).unwrap_or_default();
    let cpu_ms = median(rows.iter().filter_map(|row| row.cpu_ms_per_sample));
    let wait = median(rows.iter().map(|row| row.wait_ms));
    let samples: u64 = rows.iter().map(|row| row.samples).sum();
    let bytes: u64 = rows.iter().map(|row| row.bytes).sum();
    if as_json {
        return json(&json!({
            "total": true, "epochs": rows.len(), "samples": samples, "bytes": bytes,
            "samples_per_s": rate, "cpu_ms_per_sample": cpu_ms, "wait_ms": wait,
            "retries": rows.iter().map(|row| row.retries).sum::<u64>(),
            "skipped": rows.iter().map(|row| row.skipped).sum::<u64>(),
            "threads": rows[0].threads,
        }));
    }
    line(format_args!(
        "{} epochs, medians: {rate:.0} samples/s, {} of CPU per sample",
        rows.len(),
        cpu(cpu_ms)
    ))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// One line per batch, for comparing runs.
pub(super) struct Trace {
    path: String,
    out: BufWriter<File>,
}

impl Trace {
    pub(super) fn new(path: &std::path::Path) -> Result<Trace> {
        let file = File::create(path).map_err(|e| Error::io("write", path.display(), e))?;
        Ok(Trace { path: path.display().to_string(), out: BufWriter::new(file) })
    }

    pub(super) fn write(&mut self, batch: &Batch) -> Result<()> {
        let value = json!({
            "epoch": batch.epoch, "batch": batch.index, "ids": batch.ids, "labels": batch.labels,
            "fingerprint": format!("{:016x}", batch.fingerprint()),
        });
        // Whole lines only, so that a run that is killed leaves a trace that can be continued.
        let text = serde_json::to_string(&value).map_err(|e| Error::new(Kind::Io, e.to_string()))?;
        let written = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
        Ok(written.map_err(|e| Error::io("write", &self.path, e))?)
    }
}

/// CPU time per sample, in the unit that shows it.
fn cpu(ms: Option<f64>) -> String {
    match ms {
        None => "-".into(),
        Some(ms) if ms < 0.1 => format!("{:.2} µs", ms * 1e3),
        Some(ms) => format!("{ms:.3} ms"),
    }
}

fn process_cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
