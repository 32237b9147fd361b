//! `compare all --bad-start`: every knob begins wrong, and the steering must find what the best fixed settings have.
//!
//! Every epoch has all samples and nothing is cached, so that epochs differ by their knobs alone. The runs take turns by
//! seed, and of every epoch the median over seeds is shown.

use super::configuration::{Setting, naive};
use super::outcome::Told;
use super::scenario::Scenario;
use super::scene::Scene;
use super::table::median;
use crate::args::CompareAllArgs;
use crate::output::{json, line, say};
use crate::progress::{EPOCHS, Progress};
use anyhow::Result;
use gristmill_node::Error;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Mutex;

/// How much longer than the best an epoch may take.
const WITHIN: f64 = 1.10;
/// From which epoch on.
const EPOCHS_MAX: usize = 5;
/// Epochs at the beginning that are not held against a fixed setting: it may profile there.
const BEGINNING: usize = 2;

/// One way to set the knobs.
struct Side {
    name: &'static str,
    settings: Vec<Setting>,
    /// Epoch times, seed by seed.
    epoch_s: Vec<Vec<f64>>,
    decisions: Vec<Told>,
}

/// Its figures, as printed.
#[derive(Debug, Clone, Serialize)]
struct Row {
    scenario: &'static str,
    configuration: &'static str,
    bad_start: bool,
    epoch_s: Vec<f64>,
    /// The median epoch of the best fixed setting.
    best_s: f64,
    /// From which epoch on every one is within a tenth of the best; none if there is no such epoch.
    reached_epoch: Option<usize>,
    holds: bool,
    decisions: Vec<Told>,
}

pub(super) fn bad_start(args: &CompareAllArgs, scenarios: &[Scenario]) -> Result<ExitCode> {
    let quiet = args.ground.common.json;
    let several = |one: &&Scenario| matches!(one, Scenario::Jobs | Scenario::Ranks);
    if let Some(one) = scenarios.iter().find(several) {
        return Err(Error::config(format!("--bad-start is not for scenario {}", one.letter()))
            .hint("name some of a, b, c with --scenario")
            .into());
    }
    for &scenario in scenarios {
        let scene = Scene::open(args, scenario)?;
        if !quiet {
            say(format_args!("scenario {} ({}): {}", scenario.letter(), scenario.name(), scene.about));
        }
        let rows = rows(scenario, run(&scene, quiet)?);
        if quiet {
            rows.iter().try_for_each(json)?;
        } else {
            text(&rows).iter().try_for_each(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The sides: fixed ones, and last the one that begins badly.
fn sides(scene: &Scene<'_>) -> Vec<Side> {
    let node = scene.scenario == Scenario::Link;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let knobs = |threads: usize, reads: u32, ahead: u32| {
        vec![
            ("loader.threads", threads.to_string()),
            ("store.reads_in_flight", reads.to_string()),
            ("loader.prefetch_batches", ahead.to_string()),
        ]
    };
    let side = |name, split: &str, steer: &str, own: Vec<Setting>| {
        let mut settings = vec![("selection.kind", "uniform".to_string()), ("cache.size", "off".to_string())];
        settings.push(("steer.mode", steer.to_string()));
        settings.extend(node.then(|| ("split.policy", split.to_string())));
        settings.extend(own);
        Side { name, settings, epoch_s: Vec::new(), decisions: Vec::new() }
    };
    let mut sides = vec![
        side("workers", "none", "off", naive(scene.args.workers).to_vec()),
        side("16 reads", "none", "off", knobs(cores, 16, 8)),
        side("64 reads", "none", "off", knobs(cores, 64, 8)),
    ];
    if node {
        sides.push(side("split", "best", "off", knobs(cores, 64, 8)));
    }
    let mut bad = side("bad start", "none", "on", knobs(1, 1, 1));
    bad.settings.push(("steer.pin", "none".into()));
    sides.push(bad);
    sides
}

fn run(scene: &Scene<'_>, quiet: bool) -> Result<Vec<Side>> {
    let (seeds, epochs) = (scene.args.ground.seeds, scene.args.ground.model.epochs);
    let mut sides = sides(scene);
    let total = u64::from(seeds) * sides.len() as u64 * epochs;
    let bar = Mutex::new((Progress::new("compare", quiet), 0));
    let first = scene.first_seed;
    for round in 0..seeds {
        let seed = first.wrapping_add(round.into());
        for side in &mut sides {
            let outcome = scene.one_job(&side.settings, seed, &|| {
                let Ok(mut at) = bar.lock() else { return };
                at.1 += 1;
                let done = at.1;
                at.0.at(done, Some(total), EPOCHS, || {
                    format!("{}, seed {} of {seeds}", side.name, round + 1)
                });
            })?;
            side.epoch_s.extend(outcome.jobs.iter().map(|job| job.epochs.iter().map(|e| e.wall_s).collect()));
            side.decisions.extend(outcome.decisions().cloned());
        }
    }
    if let Ok((bar, _)) = bar.into_inner() {
        bar.done();
    }
    Ok(sides)
}

fn rows(scenario: Scenario, sides: Vec<Side>) -> Vec<Row> {
    let medians = |side: &Side| -> Vec<f64> {
        let epochs = side.epoch_s.iter().map(Vec::len).max().unwrap_or(0);
        (0..epochs)
            .map(|i| median(side.epoch_s.iter().filter_map(|one| one.get(i).copied()).collect()))
            .collect()
    };
    let later = |epoch_s: &[f64]| median(epoch_s[BEGINNING.min(epoch_s.len().saturating_sub(1))..].to_vec());
    let fixed = sides.len().saturating_sub(1);
    let best_s = sides[..fixed].iter().map(|side| later(&medians(side))).fold(f64::INFINITY, f64::min);
    let row = |(i, side): (usize, Side)| {
        let epoch_s = medians(&side);
        let last_far = epoch_s.iter().rposition(|s| *s > best_s * WITHIN);
        let reached = last_far.map_or(0, |last| last + 1);
        let reached_epoch = (reached < epoch_s.len()).then_some(reached);
        Row {
            scenario: scenario.letter(),
            configuration: side.name,
            bad_start: i == fixed,
            epoch_s,
            best_s,
            reached_epoch,
            holds: reached_epoch.is_some_and(|epoch| epoch <= EPOCHS_MAX),
            decisions: side.decisions,
        }
    };
    sides.into_iter().enumerate().map(row).collect()
}

fn text(rows: &[Row]) -> Vec<String> {
    let Some(bad) = rows.last() else { return Vec::new() };
    let cells = |name: &str, cells: Vec<String>| {
        let cells: Vec<String> = cells.into_iter().map(|cell| format!("{cell:>6}")).collect();
        format!("  {name:<10} {}", cells.join(" "))
    };
    let times = |row: &Row, by: f64| row.epoch_s.iter().map(|s| format!("{:.2}", s / by)).collect::<Vec<_>>();
    let mut out = vec![cells("epoch", (0..bad.epoch_s.len()).map(|epoch| epoch.to_string()).collect())];
    out.extend(rows.iter().map(|row| cells(row.configuration, times(row, 1.0))));
    out.push(cells("of best", times(bad, bad.best_s.max(1e-9))));
    out.extend(bad.decisions.iter().map(|told| format!("    seed {}, {}", told.seed, told.line)));
    out.push(match bad.reached_epoch {
        Some(epoch) => format!(
            "{}: within a tenth of the best fixed setting ({:.2} s) from epoch {epoch} on; by epoch {EPOCHS_MAX} is promised: {}",
            bad.scenario,
            bad.best_s,
            if bad.holds { "holds" } else { "DOES NOT HOLD" }
        ),
        None => format!(
            "{}: not within a tenth of the best fixed setting ({:.2} s) in the end: DOES NOT HOLD",
            bad.scenario, bad.best_s
        ),
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_a_tenth_and_there_to_stay() {
        let side = |name, epoch_s: &[f64]| Side {
            name,
            settings: Vec::new(),
            epoch_s: vec![epoch_s.to_vec()],
            decisions: Vec::new(),
        };
        let judged = |bad: &[f64]| {
            let sides =
                vec![side("x", &[9.0, 2.0, 2.0, 2.0]), side("y", &[1.0, 1.0, 3.0, 3.0]), side("bad", bad)];
            rows(Scenario::Link, sides).pop().unwrap()
        };
        for (bad, reached, holds) in [
            (&[9.0, 4.0, 2.1, 2.0][..], Some(2), true),
            (&[9.0, 2.0, 9.0, 2.0], Some(3), true),
            (&[2.0, 2.0, 2.0, 9.0], None, false),
            (&[9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 2.0], Some(6), false),
        ] {
            let row = judged(bad);
            assert_eq!((row.reached_epoch, row.holds), (reached, holds), "{bad:?}");
            assert!((row.best_s - 2.0).abs() < 1e-9 && row.bad_start);
        }
        assert!(text(&[judged(&[9.0, 2.0, 2.0])]).last().unwrap().contains("from epoch 1 on"));
    }
}
