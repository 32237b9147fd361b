//! What a training shows while it runs: a line that moves in a terminal, and one row per epoch that stays.

use super::outcome::seconds;
use crate::output::{json, line, name, say, size};
use gristmill_node::report::Wait;
use gristmill_node::{Error, Kind, Result};
use gristmill_train::{EpochRow, Event, Live};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::Instant;

/// Shows a training.
pub(super) struct Display {
    bar: Option<ProgressBar>,
    json: bool,
    started: Instant,
    /// How much of the training was done when this run began.
    began_at: Option<f64>,
}

/// A row as JSON: the trainer's figures and the shares made from them.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    #[serde(flatten)]
    row: &'a EpochRow,
    kept_share: f64,
    trained_share: f64,
    wait_share: f64,
}

impl<'a> Shown<'a> {
    pub(super) fn new(row: &'a EpochRow) -> Shown<'a> {
        Shown {
            row,
            kept_share: row.kept_share(),
            trained_share: row.trained_share(),
            wait_share: row.wait_share(),
        }
    }
}

impl Display {
    /// `json` prints objects and no words.
    pub(super) fn new(json: bool) -> Display {
        let bar = (!json && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{prefix} [{bar:12}] {wide_msg}");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10))
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "))
        });
        Display { bar, json, started: Instant::now(), began_at: None }
    }

    /// Prints the head of the table, and the epochs that a resumed training has behind it.
    pub(super) fn begin(&mut self, history: &[EpochRow]) -> anyhow::Result<()> {
        if self.json {
            return Ok(());
        }
        line("epoch    loss  train right  test right   kept  trained  waited     time      read")?;
        history.iter().try_for_each(|row| line(words(row)))
    }

    /// Shows what happened.
    pub(super) fn show(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Batch(live) => {
                let done = part_done(live);
                let began = *self.began_at.get_or_insert(done);
                if let Some(bar) = &self.bar {
                    bar.update(|state| {
                        state.set_len(live.batches.into());
                        state.set_pos(live.batch.into());
                    });
                    bar.set_prefix(format!("epoch {} of {}", live.epoch + 1, live.epochs));
                    bar.set_message(self.live(live, done, began));
                }
            }
            Event::Skipped(bad) if !self.json => {
                self.above(|| {
                    say(format_args!("skipped: {}", name(&bad.reason)));
                    Ok(())
                })?;
            }
            Event::Skipped(_) | Event::Began(_) | Event::Learned { .. } => {}
            Event::Epoch(row, _) if self.json => said(json(&Shown::new(row)))?,
            Event::Epoch(row, _) => self.above(|| said(line(words(row))))?,
        }
        Ok(())
    }

    /// Removes the line that moves.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn above(&self, print: impl FnOnce() -> Result<()>) -> Result<()> {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn live(&self, live: &Live, done: f64, began: f64) -> String {
        let gained = done - began;
        let left = if gained > 0.0 {
            format!("{} left", seconds(self.started.elapsed().as_secs_f64() * (1.0 - done) / gained * 1e3))
        } else {
            String::new()
        };
        let hits = live.report.hit_ratio();
        format!(
            "{left}  loss {:.3}  right {:.1} %  kept {:.0} %  waiting {:.0} %{}  {:.0} samples/s{}",
            live.loss,
            live.accuracy * 100.0,
            live.kept_share * 100.0,
            live.wait_share * 100.0,
            waiting_for(&live.report.wait).map_or(String::new(), |what| format!(" for {what}")),
            live.samples_per_s,
            hits.map_or(String::new(), |ratio| format!("  hits {:.0} %", ratio * 100.0)),
        )
    }
}

/// What most of a wait was for; none if there was none.
fn waiting_for(wait: &Wait) -> Option<&'static str> {
    let parts = [
        ("fetch", wait.fetch_ms),
        ("decode", wait.decode_ms),
        ("ops", wait.ops_ms),
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

/// One epoch as a row of the table.
fn words(row: &EpochRow) -> String {
    let test = row.test_accuracy.map_or("-".to_string(), |share| format!("{:.2} %", share * 100.0));
    format!(
        "{:>5}  {:>6.4}  {:>9.2} %  {test:>10}  {:>3.0} %  {:>5.0} %  {:>4.0} %  {:>7}  {:>8}",
        row.epoch + 1,
        row.loss,
        row.accuracy * 100.0,
        row.kept_share() * 100.0,
        row.trained_share() * 100.0,
        row.wait_share() * 100.0,
        seconds(row.wall_ms),
        size(row.bytes)
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
}
