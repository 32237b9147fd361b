//! `gristmill bench load --ranks`: several ranks that train together, and what they wait for.
//!
//! Ranks are threads of this process, each with a loader, its share of the memory and (with an exchange) a slice of its
//! own; they step together, as synchronous training does. All read the same store, so that what slows it down is
//! shared. Messages of the exchange go from thread to thread, over links of a given speed if one is given.

use super::bench::{Row, Trace};
use super::catalogued;
use crate::args::LoadArgs;
use crate::output::{json, line, say};
use crate::stop;
use anyhow::{Result, anyhow};
use gristmill_core::plan::Shape;
use gristmill_node::config::{Config, parse_bytes};
use gristmill_node::dataset::DataSet;
use gristmill_node::exchange::{Local, Transport, refusal};
use gristmill_node::loader::{Loader, LoaderOptions, Polled};
use gristmill_node::report::EpochReport;
use gristmill_node::steer::SteerOptions;
use gristmill_node::{Error, Kind, open};
use gristmill_ops::Recipe;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most ranks that are threads of one process.
const RANKS_MAX: u32 = 256;
/// How long a rank waits for a batch before it looks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What all ranks do.
pub(super) struct Job<'a> {
    args: &'a LoadArgs,
    recipe: Option<Recipe>,
    options: LoaderOptions,
    epochs: Range<u64>,
}

/// What one rank did in an epoch, as it travels to who prints it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Done {
    rank: u32,
    epoch: u64,
    samples: u64,
    bytes: u64,
    /// From the beginning of the epoch to the end of its exchange.
    wall_ms: f64,
    wait_ms: f64,
    wait_exchange_ms: f64,
    exchanged_bytes: u64,
    exchanged: u32,
    /// The epoch that slices on disk were ready for.
    resumes_at: Option<u64>,
    notes: Vec<String>,
    /// Its row as JSON, and its report in words.
    row: String,
    words: String,
}

/// How an epoch is printed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Printing {
    /// One block for all ranks.
    Brief,
    /// What each rank did as well.
    Verbose,
    /// A line per rank, and one for all.
    Json,
}

impl Printing {
    /// As it was asked for.
    pub(super) fn of(args: &LoadArgs) -> Printing {
        match (args.common.json, args.verbose) {
            (true, _) => Printing::Json,
            (false, true) => Printing::Verbose,
            (false, false) => Printing::Brief,
        }
    }
}

impl Done {
    fn new(rank: u32, report: &EpochReport, wall: Duration, resumes_at: Option<u64>) -> Result<Done> {
        let row = Row::of_rank(report, rank);
        let swap = report.exchange.as_ref();
        Ok(Done {
            rank,
            epoch: row.epoch,
            samples: row.samples,
            bytes: row.bytes,
            wall_ms: wall.as_secs_f64() * 1e3,
            wait_ms: row.wait_ms,
            wait_exchange_ms: row.wait_exchange_ms,
            exchanged_bytes: swap.map_or(0, |swap| swap.bytes_sent),
            exchanged: swap.map_or(0, |swap| swap.sent),
            resumes_at,
            notes: swap.map(|swap| swap.notes.clone()).unwrap_or_default(),
            row: serde_json::to_string(&row)?,
            words: report.to_string(),
        })
    }
}

impl<'a> Job<'a> {
    /// The job that was typed, of `world` ranks, of which `here` share this machine.
    pub(super) fn new(
        args: &'a LoadArgs,
        config: &Config,
        (world, here): (u32, u32),
        epochs: Range<u64>,
    ) -> Result<Job<'a>> {
        let settings = config.settings();
        // Ranks in one process have one machine: what each finds out about it the others change.
        let mut options = LoaderOptions { steer: SteerOptions::default(), ..settings.loader() };
        options.shape = Shape { rank: 0, world, ..options.shape };
        options.memory_bytes_max /= u64::from(here.max(1));
        if args.threads.is_none() {
            options.threads = (options.threads / here.max(1) as usize).max(1);
        }
        Ok(Job { args, recipe: open::recipe(settings.recipe())?, options, epochs })
    }

    /// Runs one rank: fills its slice, trains, tells of every epoch.
    pub(super) fn rank(
        &self,
        rank: u32,
        set: Arc<DataSet>,
        transport: Option<Box<dyn Transport>>,
        step: &dyn Fn() -> bool,
        tell: &Sender<Done>,
    ) -> Result<()> {
        let options = LoaderOptions { shape: Shape { rank, ..self.options.shape }, ..self.options.clone() };
        let loader = match (Loader::new(set, self.recipe.as_ref(), options), transport) {
            (Ok(loader), Some(transport)) => loader.with_transport(transport)?,
            (Ok(loader), None) => loader,
            (Err(error), transport) => return Err(self.refuse(rank, transport, error.into())),
        };
        let resumes_at = loader.exchanger().map(|exchanger| exchanger.resumes_at());
        if let Some(exchanger) = loader.exchanger() {
            let filled = exchanger.fill(self.epochs.start, &mut |_| !stop::asked());
            stop::check()?;
            // What went wrong comes again when the epoch begins, and is then told to all ranks.
            if let (0, false, Ok(filled)) = (rank, self.args.common.json, filled) {
                let (kept, read, mb) = (filled.kept, filled.read, filled.bytes as f64 / 1e6);
                say(format_args!(
                    "slice of rank 0: ready for epoch {}; {kept} samples were there, {read} were read ({mb:.1} MB)",
                    exchanger.resumes_at()
                ));
            }
        }
        let out = self.args.batches_out.as_ref().map(|path| {
            let mut name = path.clone().into_os_string();
            name.push(format!(".{rank}"));
            name.into()
        });
        let mut trace = out.map(|path: std::path::PathBuf| Trace::new(&path)).transpose()?;
        for epoch in self.epochs.clone() {
            if !step() {
                return Ok(());
            }
            let start = Instant::now();
            let Some(report) = self.epoch(&loader, epoch, trace.as_mut(), step)? else {
                return Ok(());
            };
            // Whoever prints may have stopped after another rank's error.
            let _ = tell.send(Done::new(rank, &report, start.elapsed(), resumes_at)?);
        }
        Ok(())
    }

    /// Whether ranks hold slices.
    pub(super) fn exchanges(&self) -> bool {
        self.options.exchange.is_some()
    }

    /// Tells the other ranks why this one cannot begin, so that none waits for it; gives the reason back.
    pub(super) fn refuse(
        &self,
        rank: u32,
        transport: Option<Box<dyn Transport>>,
        error: anyhow::Error,
    ) -> anyhow::Error {
        if let (Some(mut transport), Some(exchange)) = (transport, &self.options.exchange) {
            let patience = Duration::from_millis(exchange.patience_ms);
            // Whether they heard it changes nothing here.
            let _ = transport.gather(&refusal(rank, &error.to_string()), patience);
        }
        error
    }

    /// One epoch of one rank; none if another rank cannot go on.
    fn epoch(
        &self,
        loader: &Loader,
        number: u64,
        mut trace: Option<&mut Trace>,
        step: &dyn Fn() -> bool,
    ) -> Result<Option<EpochReport>> {
        let from_batch = if number == self.epochs.start { self.args.from_batch } else { 0 };
        let mut epoch = loader.epoch(number, from_batch)?;
        let last = self.args.batches.map_or(u32::MAX, |n| from_batch.saturating_add(n));
        let stall = Duration::from_millis(loader.options().stall_ms_max);
        let (mut at, mut since) = (from_batch, Instant::now());
        while at < last {
            stop::check()?;
            match epoch.poll(LOOK_EVERY)? {
                Polled::Batch(batch) => {
                    at += 1;
                    if let Some(trace) = trace.as_mut() {
                        trace.write(&batch)?;
                    }
                    drop(batch);
                    // As in training: each computes, and then all of them add up what came of it.
                    stop::sleep(Duration::from_secs_f64(self.args.step_ms / 1e3));
                    if !step() {
                        return Ok(None);
                    }
                    since = Instant::now();
                }
                Polled::Pending if since.elapsed() > stall => return Err(epoch.stalled().into()),
                Polled::Pending => {}
                Polled::Done => break,
            }
        }
        epoch.end();
        Ok(Some(epoch.report()))
    }
}

/// Reads a data set with `world` ranks at once.
pub(super) fn load(args: &LoadArgs, config: &Config, world: u32, epochs: Range<u64>) -> Result<ExitCode> {
    if world == 0 || world > RANKS_MAX {
        return Err(Error::config(format!("--ranks {world} is not a number from 1 to {RANKS_MAX}")).into());
    }
    let link = args.link.as_deref().map(rate).transpose()?;
    let opened = catalogued(&args.source, args.kind, config, Some(args.rebuild), args.common.json)?;
    let set = Arc::new(open::data_set(opened.catalog, config.settings(), &stop::asked)?);
    let job = Job::new(args, config, (world, world), epochs)?;
    let exchanges = job.exchanges();
    let gate = Gate::new(world);
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for end in Local::ranks(world, link) {
            let rank = end.rank();
            // With slices nobody may have what others hold.
            let set = if exchanges { Arc::new(set.beside()) } else { Arc::clone(&set) };
            let (job, gate, tell) = (&job, &gate, tell.clone());
            threads.push(scope.spawn(move || {
                let end = exchanges.then(|| Box::new(end) as Box<dyn Transport>);
                let outcome = job.rank(rank, set, end, &|| gate.pass(), &tell);
                if outcome.is_err() {
                    gate.close();
                }
                outcome
            }));
        }
        drop(tell);
        let printed = print(&told, world, Printing::of(args));
        if printed.is_err() {
            gate.close();
        }
        let outcomes: Vec<Result<()>> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a rank panicked"))))
            .collect();
        // Those who only lost the others say less than the one who has a reason.
        let weight = |error: &anyhow::Error| {
            error.downcast_ref::<Error>().is_some_and(|error| error.kind() == Kind::Unavailable)
        };
        let mut errors: Vec<anyhow::Error> = outcomes.into_iter().filter_map(Result::err).collect();
        errors.sort_by_key(weight);
        match errors.into_iter().next() {
            Some(error) => Err(error),
            None => printed,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints every epoch once all ranks are through with it.
fn print(told: &Receiver<Done>, world: u32, how: Printing) -> Result<()> {
    let mut waiting: Vec<Done> = Vec::new();
    while let Ok(done) = told.recv() {
        let epoch = done.epoch;
        waiting.push(done);
        let (mut all, rest): (Vec<Done>, Vec<Done>) = waiting.drain(..).partition(|done| done.epoch == epoch);
        waiting = rest;
        if all.len() < world as usize {
            waiting.extend(all);
            continue;
        }
        all.sort_by_key(|done| done.rank);
        summary(&all, how)?;
    }
    Ok(())
}

/// Prints one epoch of all ranks.
pub(super) fn summary(all: &[Done], how: Printing) -> Result<()> {
    let wall_ms = all.iter().map(|done| done.wall_ms).fold(0.0, f64::max);
    let samples: u64 = all.iter().map(|done| done.samples).sum();
    let bytes: u64 = all.iter().map(|done| done.bytes).sum();
    let mean = |of: &dyn Fn(&Done) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
    let (wait_ms, exchange_ms) = (mean(&|done| done.wait_ms), mean(&|done| done.wait_exchange_ms));
    let moved: u64 = all.iter().map(|done| done.exchanged_bytes).sum();
    let rate = if wall_ms > 0.0 { samples as f64 * 1e3 / wall_ms } else { 0.0 };
    let share = if wall_ms > 0.0 { exchange_ms / wall_ms } else { 0.0 };
    let epoch = all[0].epoch;
    if let Printing::Json = how {
        all.iter().try_for_each(|done| line(format_args!("{}", done.row)))?;
        return json(&json!({
            "total": true, "epoch": epoch, "ranks": all.len(), "samples": samples, "bytes": bytes,
            "wall_ms": wall_ms, "samples_per_s": rate, "wait_ms": wait_ms, "wait_exchange_ms": exchange_ms,
            "wait_exchange_share": share, "exchanged_bytes": moved, "resumes_at": all[0].resumes_at,
        }));
    }
    if let Printing::Verbose = how {
        all.iter().try_for_each(|done| line(format_args!("rank {}, {}", done.rank, done.words)))?;
    }
    // The mean of the ranks, and the one that waited longest.
    let slowest = |of: &dyn Fn(&Done) -> f64| {
        let most = all.iter().max_by(|a, b| of(a).total_cmp(&of(b)));
        most.map_or(String::new(), |done| format!("rank {} {:.1} ms", done.rank, of(done)))
    };
    line(format_args!(
        "epoch {epoch}, {} ranks: {samples} samples in {:.2} s, {rate:.0} samples/s, {:.1} MB from the store\n  waited \
         {wait_ms:.1} ms for batches ({})",
        all.len(),
        wall_ms / 1e3,
        bytes as f64 / 1e6,
        slowest(&|done| done.wait_ms),
    ))?;
    if all[0].resumes_at.is_some() {
        let samples: u32 = all.iter().map(|done| done.exchanged).sum();
        line(format_args!(
            "  exchanged {samples} samples ({:.1} MB); waited {exchange_ms:.1} ms for it, {:.2} % of the epoch ({})",
            moved as f64 / 1e6,
            share * 100.0,
            slowest(&|done| done.wait_exchange_ms),
        ))?;
    }
    let mut notes: Vec<&String> = all.iter().flat_map(|done| &done.notes).collect();
    notes.sort_unstable();
    notes.dedup();
    notes.into_iter().try_for_each(|note| line(format_args!("  note: {note}")))
}

/// Bytes per second, from what people write: `1Gbit`, `100Mbit`, `60MB`.
fn rate(text: &str) -> Result<u64> {
    let bits = [("Gbit", 1e9), ("Mbit", 1e6), ("Kbit", 1e3)].iter().find_map(|(unit, scale)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some((number * scale / 8.0) as u64)
    });
    let found = bits.or_else(|| parse_bytes(text)).filter(|rate| *rate > 0);
    let wrong =
        || Error::config(format!("--link {text:?} is not a speed")).hint("write 1Gbit, 100Mbit or 60MB");
    Ok(found.ok_or_else(wrong)?)
}

/// Where ranks wait for each other before every step; none passes once one has given up.
struct Gate {
    ranks: u32,
    state: Mutex<(u32, u64, bool)>,
    turned: Condvar,
}

impl Gate {
    fn new(ranks: u32) -> Gate {
        Gate { ranks, state: Mutex::new((0, 0, false)), turned: Condvar::new() }
    }

    /// Waits until all ranks are here; false if one will not come.
    fn pass(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = state.1;
        state.0 += 1;
        if state.0 == self.ranks {
            (state.0, state.1) = (0, turn + 1);
            self.turned.notify_all();
        }
        while state.1 == turn && !state.2 && !stop::asked() {
            state = self.turned.wait_timeout(state, stop::SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.2
    }

    fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).2 = true;
        self.turned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_as_people_write_them() {
        for (text, expect) in
            [("1Gbit", 125_000_000), ("100Mbit", 12_500_000), ("60MB", 60_000_000), ("8 Kbit", 1_000)]
        {
            assert_eq!(rate(text).unwrap(), expect, "{text}");
        }
        assert!(["", "fast", "0", "-1Gbit", "Gbit"].iter().all(|text| rate(text).is_err()));
    }
}
