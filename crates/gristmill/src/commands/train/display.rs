//! What a training shows while it runs: in a terminal a few lines that move, and everywhere one row per epoch and one line
//! per decision of the steering, which stay.

use super::outcome::seconds;
use super::steered::Steered;
use crate::glance;
use crate::output::{json, line, name, say, size};
use crate::screen::{columns, cut};
use gristmill_node::report::{EpochReport, Wait};
use gristmill_node::steer::{Decision, SteerOptions};
use gristmill_node::{Error, Kind, Result};
use gristmill_train::{EpochRow, Event, Live};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the lines that move are made anew; batches may be far more frequent.
const EVERY: Duration = Duration::from_millis(100);
/// The first line, and below it what the report says.
const TEMPLATE: &str = "{prefix} [{bar:12}] {wide_msg}\n{glance}";

/// Shows a training.
pub(super) struct Display {
    bar: Option<Bar>,
    json: bool,
    started: Instant,
    /// How much of the training was done when this run began.
    began_at: Option<f64>,
    steered: Steered,
}

/// The lines that move.
struct Bar {
    progress: ProgressBar,
    /// What is below the first one.
    glance: Arc<Mutex<String>>,
    drawn: Option<Instant>,
}

/// A row as JSON: the trainer's figures, the shares made from them, and what the steering decided before it.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    #[serde(flatten)]
    row: &'a EpochRow,
    kept_share: f64,
    trained_share: f64,
    wait_share: f64,
    decisions: Vec<&'a Decision>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(row: &'a EpochRow, steered: &'a Steered) -> Shown<'a> {
        Shown {
            row,
            kept_share: row.kept_share(),
            trained_share: row.trained_share(),
            wait_share: row.wait_share(),
            decisions: steered.before(row.epoch),
        }
    }
}

impl Bar {
    fn new() -> Bar {
        let glance = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&glance);
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let style =
            style.progress_chars("=> ").with_key("glance", move |_: &ProgressState, out: &mut dyn Write| {
                // A bar that cannot be drawn is not worth a word.
                let _ = out.write_str(&lock(&shown));
            });
        let target = ProgressDrawTarget::stderr_with_hz(10);
        Bar { progress: ProgressBar::with_draw_target(None, target).with_style(style), glance, drawn: None }
    }

    /// Whether it is time to draw.
    fn is_due(&mut self, live: &Live) -> bool {
        let due = live.batch == live.batches || self.drawn.is_none_or(|at| at.elapsed() >= EVERY);
        if due {
            self.drawn = Some(Instant::now());
        }
        due
    }
}

impl Display {
    /// `json` prints objects and no words.
    pub(super) fn new(json: bool, steer: SteerOptions) -> Display {
        let bar = (!json && std::io::stderr().is_terminal()).then(Bar::new);
        Display { bar, json, started: Instant::now(), began_at: None, steered: Steered::new(steer) }
    }

    /// What was decided so far.
    pub(super) fn steered(&self) -> &Steered {
        &self.steered
    }

    /// Prints the head of the table, and the epochs that a resumed training has behind it.
    pub(super) fn begin(&mut self, history: &[EpochRow]) -> anyhow::Result<()> {
        if self.json {
            return Ok(());
        }
        line(
            "epoch    loss  train right  test right   kept  trained   hits  waited     time      read  mostly for",
        )?;
        history.iter().try_for_each(|row| line(words(row, None)))
    }

    /// Shows what happened.
    pub(super) fn show(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Began(epoch) => {
                let decisions = epoch.report().decisions;
                self.steered.note(&decisions);
                if !self.json {
                    let lines = decisions.iter().map(|decision| glance::decision_line(&decision.line));
                    self.above(|| lines.map(line).try_for_each(said))?;
                }
            }
            Event::Batch(live) => self.batch(live),
            Event::Skipped(bad) if !self.json => {
                self.above(|| {
                    say(format_args!("skipped: {}", name(&bad.reason)));
                    Ok(())
                })?;
            }
            Event::Skipped(_) | Event::Learned { .. } => {}
            Event::Epoch(row, _) if self.json => said(json(&Shown::new(row, &self.steered)))?,
            Event::Epoch(row, report) => self.above(|| said(line(words(row, Some(report)))))?,
        }
        Ok(())
    }

    /// Removes the lines that move.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.progress.finish_and_clear();
        }
    }

    fn above(&self, print: impl FnOnce() -> Result<()>) -> Result<()> {
        match &self.bar {
            Some(bar) => bar.progress.suspend(print),
            None => print(),
        }
    }

    fn batch(&mut self, live: &Live) {
        let done = part_done(live);
        let gained = done - *self.began_at.get_or_insert(done);
        let Some(bar) = self.bar.as_mut() else { return };
        if !bar.is_due(live) {
            return;
        }
        let left = if gained > 0.0 {
            format!("{} left  ", seconds(self.started.elapsed().as_secs_f64() * (1.0 - done) / gained * 1e3))
        } else {
            String::new()
        };
        *lock(&bar.glance) = below(&live.report, columns());
        // Length and position in one go: each change may draw, and words and bar must agree.
        bar.progress.update(|state| {
            state.set_len(live.batches.into());
            state.set_pos(live.batch.into());
        });
        bar.progress.set_prefix(format!("epoch {} of {}", live.epoch + 1, live.epochs));
        bar.progress.set_message(format!(
            "{left}loss {:.3}  right {:.1} %  {:.0} samples/s",
            live.loss,
            live.accuracy * 100.0,
            live.samples_per_s,
        ));
    }
}

/// What a report says at a glance, as lines that do not wrap.
fn below(report: &EpochReport, columns: usize) -> String {
    let report = serde_json::to_value(report).unwrap_or_default();
    let rows = glance::rows(&report);
    let lines: Vec<String> =
        rows.iter().map(|(label, text)| cut(&format!("  {label:<9}{text}"), columns)).collect();
    lines.join("\n")
}

/// What is behind the lock is only ever replaced whole, so a poisoned one is sound.
fn lock(text: &Mutex<String>) -> MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What most of a wait was for; none if there was none.
fn waiting_for(wait: &Wait) -> Option<&'static str> {
    let parts = [
        ("fetch", wait.fetch_ms),
        ("decode", wait.decode_ms),
        ("other ops", wait.ops_ms),
        ("hand-over", wait.hand_over_ms),
    ];
    let most = parts.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.filter(|(_, ms)| *ms > 0.0).map(|(what, _)| what)
}

/// The part of the training that is done.
fn part_done(live: &Live) -> f64 {
    let within = f64::from(live.batch) / f64::from(live.batches.max(1));
    (live.epoch as f64 + within) / live.epochs.max(1) as f64
}

/// A printing error as the trainer's.
fn said(printed: anyhow::Result<()>) -> Result<()> {
    printed.map_err(|error| Error::new(Kind::Io, error.to_string()))
}

/// One epoch as a row of the table. The report is not known of epochs before a checkpoint.
fn words(row: &EpochRow, report: Option<&EpochReport>) -> String {
    let share = |share: Option<f64>, digits: usize| {
        share.map_or("-".to_string(), |share| format!("{:.digits$} %", share * 100.0))
    };
    format!(
        "{:>5}  {:>6.4}  {:>9.2} %  {:>10}  {:>3.0} %  {:>5.0} %  {:>5}  {:>4.0} %  {:>7}  {:>8}  {}",
        row.epoch + 1,
        row.loss,
        row.accuracy * 100.0,
        share(row.test_accuracy, 2),
        row.kept_share() * 100.0,
        row.trained_share() * 100.0,
        share(report.and_then(EpochReport::hit_ratio), 0),
        row.wait_share() * 100.0,
        seconds(row.wall_ms),
        size(row.bytes),
        waiting_for(&row.wait).filter(|_| row.wait_share() >= 0.005).unwrap_or("-"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_of_a_wait_is_named() {
        let wait = Wait { decode_ms: 3.0, fetch_ms: 1.0, ..Wait::default() };
        assert_eq!((waiting_for(&wait), waiting_for(&Wait::default())), (Some("decode"), None));
    }

    #[test]
    fn what_moves_fits_the_terminal() {
        let report = EpochReport { wall_ms: 10.0, threads: 2, ..EpochReport::default() };
        let lines = below(&report, 30);
        assert!(
            lines.starts_with("  time     [████████████████") && lines.contains("\n  knobs    2 threads")
        );
        assert!(lines.lines().all(|line| line.chars().count() < 30), "{lines}");
    }
}
