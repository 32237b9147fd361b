//! What the steering did in a training: every decision as it is taken, and what came of each at the end.

use crate::glance::decision_line;
use crate::output::{counted, name};
use gristmill_node::steer::{Decision, Pins, SteerOptions};

/// The decisions of a training so far.
#[derive(Debug)]
pub(super) struct Steered {
    options: SteerOptions,
    decisions: Vec<Decision>,
}

/// A move and what came of it.
#[derive(Debug, Clone, Copy)]
struct Move<'a> {
    moved: &'a Decision,
    verdict: Option<&'a Decision>,
}

impl Steered {
    /// None so far, for a loader with these options.
    pub(super) fn new(options: SteerOptions) -> Steered {
        Steered { options, decisions: Vec::new() }
    }

    /// Takes what was decided before an epoch.
    pub(super) fn note(&mut self, decisions: &[Decision]) {
        self.decisions.extend_from_slice(decisions);
    }

    /// What was decided before this epoch.
    pub(super) fn before(&self, epoch: u64) -> Vec<&Decision> {
        self.decisions.iter().filter(|decision| decision.epoch == epoch).collect()
    }

    /// Everything that was decided.
    pub(super) fn all(&self) -> &[Decision] {
        &self.decisions
    }

    /// Moves in their order, each with its verdict: the first one about its knob after it.
    fn moves(&self) -> Vec<Move<'_>> {
        let numbered = self.decisions.iter().enumerate();
        let moved = numbered.filter(|(_, decision)| decision.action == "moved");
        let verdict = |at: usize, knob: &str| {
            self.decisions[at + 1..].iter().find(|later| later.knob == knob && later.measured.is_some())
        };
        moved.map(|(at, moved)| Move { moved, verdict: verdict(at, &moved.knob) }).collect()
    }

    /// What it came to, as lines for the end of a training.
    pub(super) fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let moves = self.moves();
        if !self.options.on {
            lines.push("steering: off".into());
        } else if moves.is_empty() {
            let pinned = if self.options.pins == Pins::ALL { ": every knob is pinned" } else { "" };
            lines.push(format!("steering: nothing was moved{pinned}"));
        } else {
            let undone = moves.iter().filter(|one| one.verdict.is_some_and(|v| v.action == "undone")).count();
            let back = if undone > 0 { format!(", {undone} of them undone") } else { String::new() };
            lines.push(format!("steering: {}{back}", counted(moves.len() as u64, "move", "moves")));
            lines.push(format!(
                "  {:>5}  {:<8} {:<18} {:>9}  {:>8}  outcome",
                "epoch", "knob", "from -> to", "predicted", "measured"
            ));
            lines.extend(moves.iter().map(row));
        }
        let told = self.decisions.iter().filter(|decision| decision.action == "told");
        lines.extend(told.map(|decision| format!("  {}", decision_line(&decision.line))));
        lines
    }
}

fn row(one: &Move<'_>) -> String {
    let Move { moved, verdict } = one;
    let times = |times: Option<f64>| times.map_or("-".to_string(), |times| format!("{times:.2}x"));
    format!(
        "  {:>5}  {:<8} {:<18} {:>9}  {:>8}  {}",
        moved.epoch.saturating_add(1),
        name(&moved.knob),
        format!("{} -> {}", name(&moved.from), name(&moved.to)),
        times(moved.predicted),
        times(verdict.and_then(|verdict| verdict.measured)),
        verdict.map_or("not tried to the end".to_string(), |verdict| name(&verdict.action)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(epoch: u64, knob: &str, action: &str, measured: Option<f64>) -> Decision {
        Decision {
            epoch,
            knob: knob.into(),
            from: "1".into(),
            to: "64".into(),
            action: action.into(),
            predicted: Some(3.9),
            measured,
            line: format!("epoch {epoch}: words"),
            ..Decision::default()
        }
    }

    #[test]
    fn every_move_has_what_came_of_it() {
        let mut steered = Steered::new(SteerOptions { on: true, pins: Pins::default() });
        assert_eq!(steered.summary(), ["steering: nothing was moved"]);
        steered.note(&[decision(1, "reads", "moved", None)]);
        steered.note(&[decision(2, "reads", "kept", Some(3.7)), decision(2, "ahead", "moved", None)]);
        steered.note(&[decision(3, "ahead", "undone", Some(0.9)), decision(3, "guard", "told", None)]);
        steered.note(&[decision(4, "reads", "moved", None)]);
        let lines = steered.summary();
        assert_eq!(lines[0], "steering: 3 moves, 1 of them undone");
        assert_eq!(lines[2], "      2  reads    1 -> 64                3.90x     3.70x  kept");
        assert_eq!(lines[3], "      3  ahead    1 -> 64                3.90x     0.90x  undone");
        assert!(lines[4].ends_with("3.90x         -  not tried to the end"), "{}", lines[4]);
        assert_eq!(lines[5], "  epoch 4: words");
        assert_eq!(steered.before(2).len(), 2);
    }

    #[test]
    fn what_cannot_move_is_said() {
        let pinned = SteerOptions { on: true, pins: Pins::ALL };
        assert_eq!(Steered::new(pinned).summary(), ["steering: nothing was moved: every knob is pinned"]);
        let mut off = Steered::new(SteerOptions::default());
        assert_eq!(off.summary(), ["steering: off"]);
        off.note(&[decision(3, "exchange", "told", None)]);
        assert_eq!(
            off.summary(),
            ["steering: off", "  epoch 4: words"],
            "what others decide is told all the same"
        );
    }
}
