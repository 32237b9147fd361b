//! `gristmill compare all`: everything at once and steered, against a plain loop and each technique alone.
//!
//! In every scenario ([`scenario`]) each configuration ([`configuration`]) is really trained, from several seeds that take
//! turns. What counts is the time until the plain run's final accuracy is reached.

mod bad_start;
mod configuration;
mod outcome;
mod promise;
mod run;
mod scenario;
mod scene;
mod table;

use super::keep::Kept;
use crate::args::CompareAllArgs;
use crate::commands::train;
use crate::output::{json, line, name, say};
use crate::progress::{EPOCHS, Progress};
use crate::stop;
use anyhow::Result;
use configuration::Configuration;
use gristmill_node::{Error, Kind};
use outcome::Outcome;
use scenario::Scenario;
use scene::Scene;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use table::{Entry, Row};

/// The most workers of a plain loop.
const WORKERS_MAX: u32 = 256;
/// The fastest accelerator that is pretended.
const ACCELERATOR_MAX: f64 = 1e9;
/// The longest that a store, or a link, may take to begin.
const LATENCY_MS_MAX: u64 = 60_000;

pub(in crate::commands) fn all(args: &CompareAllArgs) -> Result<ExitCode> {
    check(args)?;
    let scenarios = scenario::parse(&args.scenario)?;
    let asked = configuration::parse(args.configurations.as_deref())?;
    if args.bad_start {
        return bad_start::bad_start(args, &scenarios);
    }
    let quiet = args.ground.common.json;
    let mut kept = args.keep.as_deref().map(Kept::open).transpose()?;
    let rounds = scenarios.iter().map(|one| configuration::of(*one, asked.as_deref()).0.len());
    let per_training = u64::from(args.ground.seeds) * args.ground.model.epochs;
    let doubled = |scenario: &Scenario| if *scenario == Scenario::Jobs { 2 } else { 1 };
    let total = rounds.zip(&scenarios).map(|(many, one)| many as u64 * per_training * doubled(one)).sum();
    let work = Work { args, asked: asked.as_deref(), total, bar: Mutex::new(Bar::new(quiet)) };
    let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
    for scenario in scenarios {
        let found = match work.scenario(scenario, kept.as_mut()) {
            Err(error) if stop::asked() && args.keep.is_some() => {
                let hint = "the same command goes on from what is kept";
                return Err(Error::new(Kind::Stopped, error.to_string()).hint(hint).into());
            }
            other => other?,
        };
        // Said as soon as it is known: the next scenario takes minutes.
        if quiet {
            found.iter().try_for_each(json)?;
        } else {
            table::text(&found).iter().try_for_each(line)?;
            found.iter().flat_map(table::told).try_for_each(line)?;
            line("")?;
        }
        verdicts.extend(promise::verdict(&found));
        rows.extend(found);
    }
    work.bar.into_inner().unwrap_or_else(PoisonError::into_inner).shown.done();
    if quiet {
        verdicts.iter().try_for_each(json)?;
    } else {
        promise::text(&verdicts).iter().try_for_each(line)?;
    }
    if let Some(path) = &args.svg {
        train::write_file(path, &table::picture(&rows))?;
        if !quiet {
            say(format_args!("picture written to {}", name(path.display())));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses what makes no sense, before anything is opened.
fn check(args: &CompareAllArgs) -> Result<()> {
    args.ground.check()?;
    args.svg.iter().try_for_each(|path| train::check_folder("--svg", path))?;
    args.keep.iter().try_for_each(|path| train::check_folder("--keep", path))?;
    let wrong = |text: String| Err(Error::config(text).into());
    if args.ground.model.epochs == 0 {
        return Err(Error::config("0 epochs train nothing").hint("ask for at least 1").into());
    }
    if args.workers == 0 || args.workers > WORKERS_MAX {
        return wrong(format!("--workers {} is not from 1 to {WORKERS_MAX}", args.workers));
    }
    for (name, ms) in [("--latency-ms", args.latency_ms), ("--round-trip-ms", args.round_trip_ms)] {
        if ms > LATENCY_MS_MAX {
            return wrong(format!("{name} {ms} is not from 0 to {LATENCY_MS_MAX}"));
        }
    }
    if let Some(rate) = args.accelerator.filter(|rate| !(0.0..=ACCELERATOR_MAX).contains(rate)) {
        return wrong(format!("--accelerator {rate} is not from 0 to {ACCELERATOR_MAX}"));
    }
    Ok(())
}

/// Progress over everything, told by any thread.
struct Bar {
    shown: Progress,
    done: u64,
    words: String,
}

impl Bar {
    fn new(quiet: bool) -> Bar {
        Bar { shown: Progress::new("compare", quiet), done: 0, words: String::new() }
    }
}

/// What is to be done.
struct Work<'a> {
    args: &'a CompareAllArgs,
    asked: Option<&'a [Configuration]>,
    /// Epochs in all.
    total: u64,
    bar: Mutex<Bar>,
}

impl Work<'_> {
    /// Trains everything in one scenario.
    fn scenario(&self, scenario: Scenario, mut kept: Option<&mut Kept<Outcome>>) -> Result<Vec<Row>> {
        let (args, seeds) = (self.args, self.args.ground.seeds);
        let scene = Scene::open(args, scenario)?;
        let (there, left_out) = configuration::of(scenario, self.asked);
        if !args.ground.common.json {
            say(format_args!("scenario {} ({}): {}", scenario.letter(), scenario.name(), scene.about));
            for (one, why) in left_out {
                say(format_args!("  without {}: {why}", one.name()));
            }
        }
        let entry = |configuration| Entry { scenario, configuration, outcomes: Vec::new() };
        let mut entries: Vec<Entry> = there.into_iter().map(entry).collect();
        let (first, identity) = (scene.first_seed, scene.identity());
        for round in 0..seeds {
            let seed = first.wrapping_add(round.into());
            for entry in &mut entries {
                let configuration = entry.configuration;
                let settings = configuration.settings(scenario, args.workers);
                let training = format!(
                    "{} {} {} seed {seed} {settings:?} {identity}",
                    env!("CARGO_PKG_VERSION"),
                    scenario.letter(),
                    configuration.name()
                );
                let words =
                    format!("{} {}, seed {} of {seeds}", scenario.letter(), configuration.name(), round + 1);
                self.at(0, Some(words));
                if let Some(before) = kept.as_deref().and_then(|kept| kept.find(&training)) {
                    self.at(before.jobs.iter().map(|job| job.epochs.len() as u64).sum(), None);
                    entry.outcomes.push(before);
                    continue;
                }
                let outcome = scene.train(configuration, seed, &|| self.at(1, None))?;
                if let Some(kept) = kept.as_deref_mut() {
                    kept.add(training, outcome.clone())?;
                }
                entry.outcomes.push(outcome);
            }
        }
        Ok(table::rows(&entries, &scene.about))
    }

    /// Notes that more epochs are done, or what is done now.
    fn at(&self, more: u64, words: Option<String>) {
        let mut at = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        at.done += more;
        let Bar { shown, done, words: now } = &mut *at;
        *now = words.unwrap_or_else(|| std::mem::take(now));
        shown.at(*done, Some(self.total), EPOCHS, || now.clone());
    }
}
