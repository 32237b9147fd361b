//! What a training came to: the summary at its end, and the reports it writes.

use super::display::Shown;
use super::steered::Steered;
use super::write_file;
use crate::output::{json, line, size};
use crate::plot::{Series, Words, lines};
use anyhow::{Context, Result};
use gristmill_node::Error;
use gristmill_train::{EpochRow, Trainer};
use serde_json::{Value, json};
use std::path::Path;

/// The figures of a whole training.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Total {
    accuracy: f64,
    tested: bool,
    kept_share: f64,
    trained_share: f64,
    wall_ms: f64,
    cpu_ms: f64,
    /// Time waited for fetch, decode, other ops and hand-over.
    waits_ms: [f64; 4],
    bytes: u64,
}

impl Total {
    fn of(history: &[EpochRow]) -> Total {
        let sum = |f: fn(&EpochRow) -> f64| history.iter().map(f).sum::<f64>();
        let last = history.last();
        let tested = last.is_some_and(|row| row.test_accuracy.is_some());
        let samples = sum(|row| row.samples as f64).max(1.0);
        Total {
            accuracy: last.map_or(0.0, |row| row.test_accuracy.unwrap_or(row.accuracy)),
            tested,
            kept_share: sum(|row| row.served as f64) / samples,
            trained_share: sum(|row| row.trained as f64) / samples,
            wall_ms: sum(|row| row.wall_ms),
            cpu_ms: sum(|row| row.cpu_ms),
            waits_ms: [
                sum(|row| row.wait.fetch_ms),
                sum(|row| row.wait.decode_ms),
                sum(|row| row.wait.ops_ms),
                sum(|row| row.wait.hand_over_ms),
            ],
            bytes: history.iter().map(|row| row.bytes).sum(),
        }
    }

    fn json(&self, trainer: &mut Trainer, steered: &Steered) -> Value {
        let [fetch, decode, ops, hand_over] = self.waits_ms;
        json!({
            "total": true, "epochs": trainer.history().len(), "accuracy": self.accuracy, "tested": self.tested,
            "kept_share": self.kept_share, "trained_share": self.trained_share,
            "wall_ms": self.wall_ms, "cpu_ms": self.cpu_ms, "wait_ms": self.waits_ms.iter().sum::<f64>(),
            "wait_fetch_ms": fetch, "wait_decode_ms": decode, "wait_ops_ms": ops, "wait_hand_over_ms": hand_over,
            "bytes": self.bytes, "decisions": steered.all(), "fingerprint": format!("{:016x}", trainer.fingerprint()),
        })
    }
}

/// Prints what the training came to.
pub(super) fn conclude(trainer: &mut Trainer, steered: &Steered, as_json: bool) -> Result<()> {
    let total = Total::of(trainer.history());
    if as_json {
        let value = total.json(trainer, steered);
        return json(&value);
    }
    let waited: f64 = total.waits_ms.iter().sum();
    let model = (total.wall_ms - waited).max(0.0);
    let on = if total.tested { "the test data" } else { "the training data" };
    line(format_args!(
        "\n{:.2} % of {on} right after {} epochs; {:.0} % of the samples loaded, {:.0} % trained; {} read",
        total.accuracy * 100.0,
        trainer.history().len(),
        total.kept_share * 100.0,
        total.trained_share * 100.0,
        size(total.bytes)
    ))?;
    line(format_args!(
        "{} of training ({} of CPU), which went to",
        seconds(total.wall_ms),
        seconds(total.cpu_ms)
    ))?;
    let [fetch, decode, ops, hand_over] = total.waits_ms;
    for (what, ms) in [
        ("the model", model),
        ("waiting for bytes", fetch),
        ("waiting for decoding", decode),
        ("waiting for other ops", ops),
        ("waiting for the hand-over", hand_over),
    ] {
        let share = if total.wall_ms > 0.0 { ms / total.wall_ms } else { 0.0 };
        let bar = "#".repeat((share * 30.0).round() as usize);
        let row = format!("  {what:<26} {:>8} {:>4.0} %  {bar}", seconds(ms), share * 100.0);
        line(row.trim_end())?;
    }
    steered.summary().iter().try_for_each(line)
}

/// Whether a report can be written there, before hours are spent on it.
pub(super) fn check(path: &Path) -> Result<()> {
    if !matches!(path.extension().and_then(|ending| ending.to_str()), Some("html" | "svg" | "json")) {
        return Err(Error::config(format!(
            "--report {} ends in none of .html, .svg and .json",
            path.display()
        ))
        .hint(".html is the page, .svg a picture of accuracy over time, .json holds all figures")
        .into());
    }
    if super::page::is_page(path) {
        super::page::check(path);
        return Ok(());
    }
    super::check_folder("--report", path)
}

/// Writes a report in the form that its name asks for.
pub(super) fn write(path: &Path, trainer: &mut Trainer, steered: &Steered) -> Result<()> {
    if path.extension().is_some_and(|ending| ending == "json") {
        let total = Total::of(trainer.history()).json(trainer, steered);
        let rows: Vec<Shown<'_>> = trainer.history().iter().map(|row| Shown::new(row, steered)).collect();
        let whole = json!({ "total": total, "epochs": rows });
        let text = serde_json::to_string_pretty(&whole).context("cannot write JSON")?;
        return write_file(path, &(text + "\n"));
    }
    write_file(path, &picture(trainer.history()))
}

/// Accuracy over the time of training.
fn picture(history: &[EpochRow]) -> String {
    let line = |name: &str, value: fn(&EpochRow) -> Option<f64>| Series {
        name: name.into(),
        points: history.iter().filter_map(|row| Some((row.elapsed_ms / 1e3, value(row)? * 100.0))).collect(),
    };
    let words = Words { title: "Accuracy over time", x: "seconds of training", y: "right, %" };
    let series = [line("test", |row| row.test_accuracy), line("training", |row| Some(row.accuracy))];
    lines(words, &series)
}

/// A time as people read it.
pub(crate) fn seconds(ms: f64) -> String {
    let s = ms / 1e3;
    match s {
        _ if ms < 1.0 => format!("{ms:.1} ms"),
        _ if s < 1.0 => format!("{ms:.0} ms"),
        _ if s < 100.0 => format!("{s:.1} s"),
        _ if s < 3_600.0 => format!("{}:{:02} min", s as u64 / 60, s as u64 % 60),
        _ => format!("{}:{:02} h", s as u64 / 3_600, s as u64 / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_read_them() {
        let times = [0.5, 12.4, 1_500.0, 125_000.0, 7_260_000.0].map(seconds);
        assert_eq!(times, ["0.5 ms", "12 ms", "1.5 s", "2:05 min", "2:01 h"]);
    }

    #[test]
    fn a_training_in_figures() {
        let row = EpochRow {
            samples: 100,
            served: 100,
            trained: 50,
            accuracy: 0.5,
            wall_ms: 10.0,
            ..EpochRow::default()
        };
        let last = EpochRow { served: 50, test_accuracy: Some(0.9), bytes: 7, ..row.clone() };
        let total = Total::of(&[row, last]);
        assert_eq!(
            (total.accuracy, total.tested, total.kept_share, total.trained_share),
            (0.9, true, 0.75, 0.5)
        );
        assert_eq!((total.wall_ms, total.bytes), (20.0, 7));
    }
}
