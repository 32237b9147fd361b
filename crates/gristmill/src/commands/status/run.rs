//! A training run as its page tells it: where it is, where the time goes, what was decided.

use crate::bars::{bar, spark};
use crate::commands::train::seconds;
use crate::glance::{self, decision_line, float, list, number, word};
use crate::output::{grouped, name, size};
use serde_json::Value;
use std::fmt::Write;

/// Epochs and decisions that are kept: what a page keeps.
const KEPT_MAX: usize = 1_000;
/// Epochs in a line of cells, and decisions below each other.
const CELLS: usize = 48;
const DECISIONS: usize = 8;
/// The width of a bar.
const BAR: usize = 24;

/// A run.
pub(super) struct RunView {
    url: String,
    facts: Value,
    epochs: Vec<Value>,
    decisions: Vec<Value>,
    live: Value,
    ended: bool,
    of: u64,
    /// The epochs and lines of decisions that were told in plain lines.
    told_epochs: Vec<u64>,
    told_lines: Vec<String>,
    told_end: bool,
}

impl RunView {
    pub(super) fn new(url: &str) -> RunView {
        RunView {
            url: url.to_string(),
            facts: Value::Null,
            epochs: Vec::new(),
            decisions: Vec::new(),
            live: Value::Null,
            ended: false,
            of: 0,
            told_epochs: Vec::new(),
            told_lines: Vec::new(),
            told_end: false,
        }
    }

    /// Whether the run is over.
    pub(super) fn is_over(&self) -> bool {
        self.ended
    }

    /// Takes what is new.
    pub(super) fn take(&mut self, news: &Value) {
        if news["whole"] == true || news["facts"]["boot"] != self.facts["boot"] {
            self.epochs.clear();
            self.decisions.clear();
        }
        self.facts = news["facts"].clone();
        self.live = news["live"].clone();
        self.ended = news["ended"] == true;
        self.of = number(news, "of");
        for epoch in list(news, "epochs") {
            self.epochs.retain(|known| known["report"]["epoch"] != epoch["report"]["epoch"]);
            self.epochs.push(epoch.clone());
        }
        for decision in list(news, "decisions") {
            let same =
                |known: &Value| known["epoch"] == decision["epoch"] && known["knob"] == decision["knob"];
            self.decisions.retain(|known| !same(known));
            self.decisions.push(decision.clone());
        }
        for kept in [&mut self.epochs, &mut self.decisions] {
            kept.drain(..kept.len().saturating_sub(KEPT_MAX));
        }
    }

    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let mut row = |label: &str, text: &str| {
            let _ = writeln!(out, "{label:<14}{text}");
        };
        let facts = &self.facts;
        row("run", &format!("{} ({})", name(&self.url), name(word(facts, "source"))));
        let (samples, bytes) = (grouped(number(facts, "samples")), size(number(facts, "bytes")));
        row(
            "data set",
            &format!("{samples} samples, {bytes}, {} classes", grouped(number(facts, "classes"))),
        );
        let progress = &self.live["progress"];
        row("epoch", &self.where_it_is());
        let (loss, right) = (float(progress, "loss"), float(progress, "accuracy"));
        if let (Some(loss), Some(right)) = (loss, right) {
            row("now", &format!("loss {loss:.3}, {:.1} % right in training", right * 100.0));
        }
        let last = if self.live.is_object() { Some(&self.live) } else { self.epochs.last() };
        if let Some(last) = last {
            for (label, text) in glance::rows(&last["report"]) {
                row(label, &text);
            }
        }
        for (label, most, value) in [
            ("samples/s", None, per_second as fn(&Value) -> Option<f64>),
            ("kept", Some(1.0), |epoch| glance::kept_share(&epoch["report"])),
            ("hits", Some(1.0), |epoch| glance::hit_ratio(&epoch["report"])),
            ("test right", Some(1.0), |epoch| float(&epoch["outcome"], "test_accuracy")),
        ] {
            let first = self.epochs.len().saturating_sub(CELLS);
            let values: Vec<Option<f64>> = self.epochs[first..].iter().map(value).collect();
            if let Some(latest) = values.iter().rev().find_map(|value| *value) {
                let words = match most {
                    Some(_) => format!("{:.1} %", latest * 100.0),
                    None => grouped(latest as u64),
                };
                row(label, &format!("{words:>8}  {}  epoch by epoch", spark(&values, most)));
            }
        }
        if self.decisions.is_empty() && self.epochs.len() > 1 {
            row("steering", "nothing was moved");
        }
        let mut latest: Vec<&Value> = self.decisions.iter().collect();
        latest.sort_by_key(|decision| number(decision, "epoch"));
        for (place, decision) in latest.iter().rev().take(DECISIONS).enumerate() {
            row(if place == 0 { "steering" } else { "" }, &decision_line(word(decision, "line")));
        }
        out
    }

    fn where_it_is(&self) -> String {
        let of = if self.of > 0 { format!(" of {}", grouped(self.of)) } else { String::new() };
        let progress = &self.live["progress"];
        if progress.is_object() {
            let (batch, batches) = (number(progress, "batch"), number(progress, "batches"));
            let share = batch as f64 / batches.max(1) as f64;
            let at = number(progress, "epoch").saturating_add(1);
            return format!("{at}{of} {} batch {} of {}", bar(share, BAR), grouped(batch), grouped(batches));
        }
        let done = self.epochs.last().map(|epoch| number(&epoch["report"], "epoch").saturating_add(1));
        match (done, self.ended) {
            (Some(done), true) => format!("{done}{of}: the run is over"),
            (None, true) => "the run is over".into(),
            (Some(done), false) => format!("{done}{of} done"),
            (None, false) => "not begun".into(),
        }
    }

    pub(super) fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        // A decision stands before the epoch that it is for, and its outcome after that one.
        for epoch in &self.epochs {
            let number = number(&epoch["report"], "epoch");
            if self.told_epochs.contains(&number) {
                continue;
            }
            self.told_epochs.push(number);
            let decided =
                list(&epoch["report"], "decisions").map(|decision| decision_line(word(decision, "line")));
            let new: Vec<String> = decided.filter(|line| !self.told_lines.contains(line)).collect();
            self.told_lines.extend(new.iter().cloned());
            lines.extend(new);
            lines.push(epoch_line(epoch));
        }
        for decision in list(&self.live["report"], "decisions") {
            let line = decision_line(word(decision, "line"));
            if !self.told_lines.contains(&line) {
                self.told_lines.push(line.clone());
                lines.push(line);
            }
        }
        self.told_lines.drain(..self.told_lines.len().saturating_sub(KEPT_MAX));
        self.told_epochs.drain(..self.told_epochs.len().saturating_sub(KEPT_MAX));
        if self.ended && !self.told_end {
            self.told_end = true;
            lines.push("the run is over".into());
        }
        lines
    }
}

fn per_second(epoch: &Value) -> Option<f64> {
    float(&epoch["report"], "samples_per_s")
}

/// One epoch in one line.
fn epoch_line(epoch: &Value) -> String {
    let (report, outcome) = (&epoch["report"], &epoch["outcome"]);
    let mut words = vec![format!(
        "epoch {}: {}, {} samples/s",
        number(report, "epoch").saturating_add(1),
        seconds(float(report, "wall_ms").unwrap_or(0.0)),
        grouped(per_second(epoch).unwrap_or(0.0) as u64)
    )];
    words.extend(float(outcome, "loss").map(|loss| format!("loss {loss:.4}")));
    for (key, what) in [("accuracy", "train right"), ("test_accuracy", "test right")] {
        words.extend(float(outcome, key).map(|share| format!("{what} {:.2} %", share * 100.0)));
    }
    let rows = glance::rows(report);
    let told = rows.iter().filter(|(label, _)| *label != "time");
    words.extend(waited(report));
    words.extend(told.map(|(label, text)| match *label {
        "data" | "knobs" => text.replace("  ", ", "),
        label => format!("{label}: {}", text.replace("  ", ", ")),
    }));
    words.join("; ")
}

/// How much of an epoch was waited, and for what most.
fn waited(report: &Value) -> Option<String> {
    let wall_ms = float(report, "wall_ms").filter(|ms| *ms > 0.0)?;
    let wait = report.get("wait")?;
    let share = |key: &str| float(wait, key).unwrap_or(0.0) / wall_ms * 100.0;
    let parts = [
        ("fetch_ms", "fetch"),
        ("decode_ms", "decode"),
        ("ops_ms", "other ops"),
        ("hand_over_ms", "hand-over"),
    ];
    let (most, word) =
        parts.map(|(key, word)| (share(key), word)).into_iter().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let most = if most >= 0.5 { format!(" ({most:.0} % for {word})") } else { String::new() };
    Some(format!("waited {:.0} %{most}", share("total_ms")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn news(change: u64, epochs: &[u64], ended: bool) -> Value {
        let moved = json!({"epoch": 1, "knob": "reads", "line": "epoch 1: 97 % of the time is waiting for the store; reads 1 -> 64, predicted 3.90x"});
        let epoch = |number: &u64| {
            json!({
                "report": {"epoch": number, "wall_ms": 1_000.0, "samples_per_s": 1_500.0, "threads": 2, "reads_in_flight": 64,
                    "prefetch_batches": 1, "bytes": 5_000, "wait": {"total_ms": 500.0, "fetch_ms": 450.0},
                    "decisions": if *number == 1 { vec![moved.clone()] } else { Vec::new() }},
                "outcome": {"loss": 0.5, "accuracy": 0.8, "test_accuracy": 0.75},
            })
        };
        json!({
            "change": change, "whole": change == 1, "of": 3, "ended": ended, "node": null,
            "facts": {"boot": "b", "source": "/data/\u{1b}x", "samples": 4_000, "bytes": 3_000_000, "classes": 10},
            "epochs": epochs.iter().map(epoch).collect::<Vec<_>>(),
            "decisions": if epochs.contains(&1) { vec![moved.clone()] } else { Vec::new() },
            "live": if ended { Value::Null } else {
                json!({"progress": {"epoch": 2, "batch": 5, "batches": 10, "loss": 0.4, "accuracy": 0.9},
                    "report": {"wall_ms": 10.0, "wait": {"fetch_ms": 5.0}, "threads": 1}})
            },
        })
    }

    #[test]
    fn a_run_in_a_terminal() {
        let mut run = RunView::new("http://127.0.0.1:7078/");
        run.take(&news(1, &[0, 1], false));
        let table = run.table();
        for words in [
            "4,000 samples, 3.0 MB, 10 classes",
            "3 of 3 ████████████░░░░░░░░░░░░ batch 5 of 10",
            "loss 0.400, 90.0 % right",
            "▓ fetch 50 %",
            "1,500  ██  epoch by epoch",
            "75.0 %  ▆▆",
            "epoch 2: 97 % of the time is waiting for the store; reads 1 -> 64",
        ] {
            assert!(table.contains(words), "{words:?} is missing in\n{table}");
        }
        assert!(!table.contains('\u{1b}'));
        run.take(&news(9, &[2], true));
        assert!(run.is_over() && run.table().contains("3 of 3: the run is over"));
        RunView::new("x").take(&json!({"epochs": [1, {"report": 2}], "decisions": [3], "live": "x"}));
    }

    #[test]
    fn plain_lines_are_told_once() {
        let mut run = RunView::new("http://127.0.0.1:7078/");
        run.take(&news(1, &[0, 1], false));
        let lines = run.lines();
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[0].starts_with("epoch 1: 1.0 s, 1,500 samples/s; loss 0.5000; train right 80.00 %"),
            "{}",
            lines[0]
        );
        assert!(
            lines[0].contains("waited 50 % (45 % for fetch); store 5.0 kB; 2 threads, 64 reads in flight"),
            "{}",
            lines[0]
        );
        assert!(lines[1].starts_with("epoch 2: 97 %") && lines[2].starts_with("epoch 2: 1.0 s"), "{lines:?}");
        run.take(&news(9, &[2], true));
        assert_eq!(run.lines().last().map(String::as_str), Some("the run is over"));
        assert!(run.lines().is_empty());
    }
}
