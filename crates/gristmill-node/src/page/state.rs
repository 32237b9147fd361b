//! What a page keeps of a run: epochs, decisions, how the running epoch goes, and a node's life.
//!
//! Everything has the number of the change that brought it. A browser says which change it has seen and is sent what
//! came after, so a page that nothing happens on costs nothing. All lists are bounded: the last epochs and decisions
//! are kept, and a node's points grow sparser as it grows older, so that its whole life is there.

use crate::node::{NodeReport, Tier};
use crate::report::EpochReport;
use crate::serve::ServerReport;
use crate::steer::Decision;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// The most epochs that are kept.
pub(super) const EPOCHS_MAX: usize = 1_000;
/// The most decisions that are kept.
pub(super) const DECISIONS_MAX: usize = 1_000;
/// The most points of a node's life.
pub(super) const POINTS_MAX: usize = 600;
/// The most characters of a text from elsewhere.
const TEXT_MAX: usize = 2_000;

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Progress {
    /// The running epoch, counted from 0.
    pub epoch: u64,
    /// Of how many; 0 if that is not known.
    pub epochs: u64,
    /// Batches of it that are done.
    pub batch: u32,
    /// Of how many.
    pub batches: u32,
    /// The mean loss so far, if it is known.
    pub loss: Option<f64>,
    /// The share that was right so far, if it is known.
    pub accuracy: Option<f64>,
}

/// What an epoch taught, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The mean loss.
    pub loss: Option<f64>,
    /// The share that was right in training.
    pub accuracy: Option<f64>,
    /// The share of the test data that was right.
    pub test_accuracy: Option<f64>,
    /// The part of the data set that the epoch had.
    pub kept_share: Option<f64>,
    /// Time of the epoch with selecting and stepping, where that is more than the loader's.
    pub wall_ms: Option<f64>,
}

/// Something and the change that brought it.
#[derive(Debug)]
struct Kept {
    change: u64,
    value: Value,
}

/// What a page keeps.
#[derive(Debug)]
pub(super) struct State {
    change: u64,
    epochs: VecDeque<Kept>,
    decisions: VecDeque<Kept>,
    points: Points,
    live: Option<Kept>,
    node: Option<Value>,
    ended: bool,
    /// How many epochs the run has; 0 if that is not known.
    of: u64,
    /// The last report as it was told, for metrics.
    last: Option<EpochReport>,
    epochs_told: u64,
}

impl Default for State {
    fn default() -> State {
        State {
            change: 1,
            epochs: VecDeque::new(),
            decisions: VecDeque::new(),
            points: Points::default(),
            live: None,
            node: None,
            ended: false,
            of: 0,
            last: None,
            epochs_told: 0,
        }
    }
}

impl State {
    /// The number of the last change.
    pub(super) fn change(&self) -> u64 {
        self.change
    }

    /// Notes that something else changed.
    pub(super) fn changed(&mut self) {
        self.change += 1;
    }

    pub(super) fn live(&mut self, progress: &Progress, report: &EpochReport) {
        self.change += 1;
        self.of = progress.epochs;
        let value = json!({ "progress": progress, "report": report });
        self.live = Some(Kept { change: self.change, value });
        self.last = Some(report.clone());
    }

    pub(super) fn epoch(&mut self, report: &EpochReport, outcome: &Outcome) {
        self.change += 1;
        let value = json!({ "report": report, "outcome": outcome });
        // A run that goes on from a checkpoint may come by an epoch again.
        let before = self.epochs.len();
        self.epochs.retain(|kept| kept.value["report"]["epoch"] != report.epoch);
        // One that is told again, with its accuracy, say, is not one more.
        self.epochs_told += u64::from(self.epochs.len() == before);
        self.epochs.push_back(Kept { change: self.change, value });
        while self.epochs.len() > EPOCHS_MAX {
            self.epochs.pop_front();
        }
        self.live = None;
        self.last = Some(report.clone());
    }

    pub(super) fn decided(&mut self, decision: &Decision) {
        self.change += 1;
        let mut decision = decision.clone();
        let Decision { knob, from, to, action, reason, line, .. } = &mut decision;
        [knob, from, to, action, reason, line].into_iter().for_each(shorten);
        let moved = |kept: &&Kept| {
            kept.value["epoch"] == decision.epoch
                && kept.value["knob"] == decision.knob
                && kept.value["action"] == "moved"
        };
        if let Some(moved) = self.decisions.iter().find(moved).filter(|_| decision.measured.is_some()) {
            // What came of a move is shown with the move: from where to where, and why.
            let text = |key: &str| moved.value[key].as_str().unwrap_or_default().to_string();
            let (from, to, why) = (text("from"), text("to"), text("reason"));
            let reason = format!("{why}; {}", decision.reason);
            decision = Decision { from, to, reason, ..decision };
        }
        self.decisions
            .retain(|kept| kept.value["epoch"] != decision.epoch || kept.value["knob"] != decision.knob);
        self.decisions.push_back(Kept { change: self.change, value: json!(decision) });
        while self.decisions.len() > DECISIONS_MAX {
            self.decisions.pop_front();
        }
    }

    pub(super) fn node(&mut self, report: &ServerReport) {
        self.change += 1;
        self.node = Some(json!(report));
        let sets = || report.sets.iter().map(|set| &set.node);
        let tiers = |of: fn(&NodeReport) -> [u64; Tier::ALL.len()]| {
            Tier::ALL.map(|tier| sets().map(|node| of(node)[tier as usize]).sum::<u64>())
        };
        let value = json!({
            "up_s": report.up_s,
            "served": tiers(|node| node.served),
            "served_bytes": tiers(|node| node.served_bytes),
            "region_hits": [
                sets().filter_map(|node| node.regions).map(|regions| regions.hot_hits).sum::<u64>(),
                sets().filter_map(|node| node.regions).map(|regions| regions.cold_hits).sum::<u64>(),
            ],
            "memory_bytes": sets().map(|node| node.memory_bytes).sum::<u64>(),
            "disk_bytes": sets().map(|node| node.disk_bytes).sum::<u64>(),
            "connections": report.connections,
            "op_cpu_s": report.ops.cpu_s,
        });
        self.points.add(report.up_s, Kept { change: self.change, value });
    }

    pub(super) fn ended(&mut self) {
        self.change += 1;
        self.ended = true;
        self.live = None;
    }

    /// The last report and how many epochs were told.
    pub(super) fn last(&self) -> (Option<&EpochReport>, u64) {
        (self.last.as_ref(), self.epochs_told)
    }

    /// What came after change `seen`; none if nothing did. A change that never was is taken for 0.
    pub(super) fn after(&self, seen: u64) -> Option<Value> {
        if seen == self.change {
            return None;
        }
        let seen = if seen > self.change { 0 } else { seen };
        let new = |kept: &VecDeque<Kept>| -> Vec<Value> {
            kept.iter().filter(|one| one.change > seen).map(copy).collect()
        };
        Some(json!({
            "change": self.change,
            "whole": seen == 0,
            "epochs": new(&self.epochs),
            "decisions": new(&self.decisions),
            "live": self.live.as_ref().map(|live| &live.value),
            "node": self.node,
            "points": self.points.kept.iter().filter(|one| one.change > seen).map(copy).collect::<Vec<_>>(),
            "ended": self.ended,
            "of": self.of,
        }))
    }
}

fn copy(kept: &Kept) -> Value {
    kept.value.clone()
}

/// Cuts a text where it becomes a burden.
fn shorten(text: &mut String) {
    if let Some((at, _)) = text.char_indices().nth(TEXT_MAX) {
        text.truncate(at);
        text.push('…');
    }
}

/// A node's life in points that grow sparser.
#[derive(Debug)]
struct Points {
    every_s: f64,
    last_s: f64,
    kept: Vec<Kept>,
}

impl Default for Points {
    fn default() -> Points {
        Points { every_s: 0.9, last_s: f64::NEG_INFINITY, kept: Vec::new() }
    }
}

impl Points {
    fn add(&mut self, at_s: f64, point: Kept) {
        if at_s - self.last_s < self.every_s {
            return;
        }
        self.last_s = at_s;
        self.kept.push(point);
        if self.kept.len() > POINTS_MAX {
            let mut place = 0;
            self.kept.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.every_s *= 2.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(epoch: u64) -> EpochReport {
        EpochReport { epoch, samples: 10, wall_ms: 100.0, ..EpochReport::default() }
    }

    fn len(value: &Value, list: &str) -> usize {
        value[list].as_array().unwrap().len()
    }

    #[test]
    fn what_was_seen_is_not_sent_again() {
        let mut state = State::default();
        assert!(state.after(1).is_none());
        state.epoch(&report(0), &Outcome::default());
        let first = state.after(0).unwrap();
        assert_eq!((len(&first, "epochs"), &first["whole"]), (1, &true.into()));
        let seen = first["change"].as_u64().unwrap();
        assert!(state.after(seen).is_none());
        state.live(&Progress::default(), &report(1));
        let live = state.after(seen).unwrap();
        assert_eq!((len(&live, "epochs"), &live["live"]["report"]["epoch"]), (0, &1.into()));
        state.epoch(&report(1), &Outcome { loss: Some(0.5), ..Outcome::default() });
        let second = state.after(seen).unwrap();
        assert_eq!((len(&second, "epochs"), &second["live"]), (1, &Value::Null));
        assert_eq!(second["epochs"][0]["outcome"]["loss"], 0.5);
        // Another page was here before: its numbers say nothing.
        assert_eq!(len(&state.after(1_000_000).unwrap(), "epochs"), 2);
        state.ended();
        assert_eq!(state.after(seen).unwrap()["ended"], true);
    }

    #[test]
    fn lists_are_bounded_and_the_last_stay() {
        let mut state = State::default();
        for epoch in 0..EPOCHS_MAX as u64 + 50 {
            state.epoch(&report(epoch), &Outcome::default());
            state.decided(&Decision { epoch, knob: "split".into(), ..Decision::default() });
        }
        state.epoch(&report(60), &Outcome::default());
        let all = state.after(0).unwrap();
        assert_eq!((len(&all, "epochs"), len(&all, "decisions")), (EPOCHS_MAX, DECISIONS_MAX));
        assert_eq!(all["epochs"][0]["report"]["epoch"], 50);
        assert_eq!(all["epochs"][EPOCHS_MAX - 1]["report"]["epoch"], 60);
    }

    #[test]
    fn a_decision_is_completed_and_long_texts_are_cut() {
        let mut state = State::default();
        let before = Decision { epoch: 3, knob: "split".into(), predicted: Some(1.9), ..Decision::default() };
        state.decided(&Decision {
            from: "none".into(),
            to: "best".into(),
            action: "moved".into(),
            reason: "the link is slow".into(),
            ..before.clone()
        });
        let undone = Decision {
            from: "best".into(),
            to: "none".into(),
            action: "undone".into(),
            measured: Some(0.9),
            reason: "it does not help".into(),
            ..before.clone()
        };
        state.decided(&undone);
        let shown = &state.after(0).unwrap()["decisions"][0];
        for (key, words) in [
            ("from", "none"),
            ("to", "best"),
            ("action", "undone"),
            ("reason", "the link is slow; it does not help"),
        ] {
            assert_eq!(shown[key], words, "a verdict stands with its move");
        }
        let reason = "ä".repeat(TEXT_MAX * 2);
        state.decided(&Decision { measured: Some(1.8), reason, ..before });
        let all = state.after(0).unwrap();
        assert_eq!((len(&all, "decisions"), &all["decisions"][0]["measured"]), (1, &1.8.into()));
        assert_eq!(all["decisions"][0]["reason"].as_str().unwrap().chars().count(), TEXT_MAX + 1);
    }

    #[test]
    fn a_long_life_has_as_many_points_as_a_short_one() {
        let mut points = Points::default();
        for second in 0..100_000_u32 {
            points.add(second.into(), Kept { change: 1, value: second.into() });
        }
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&points.kept.len()), "{}", points.kept.len());
        assert_eq!(points.kept[0].value, 0);
        assert!(points.kept.last().unwrap().value.as_u64().unwrap() > 99_000);
    }
}
