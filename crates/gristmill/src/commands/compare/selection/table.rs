//! The table of a comparison: means, spreads, ratios; as text, as JSON and as a picture.

use super::method::Method;
use crate::commands::compare::{deviation, mean, spread};
use crate::output::counted;
use crate::plot::{Named, Words, scatter};
use gristmill_train::EpochRow;
use serde::Serialize;

/// What one training came to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Outcome {
    accuracy: f64,
    cpu_ms: f64,
    wall_ms: f64,
    begin_ms: f64,
    trained_share: f64,
    io_saved_share: f64,
}

impl Outcome {
    /// From the rows of a training on data of `bytes` bytes.
    pub(super) fn of(history: &[EpochRow], bytes: u64) -> Outcome {
        let sum = |f: fn(&EpochRow) -> f64| history.iter().map(f).sum::<f64>();
        let whole = bytes as f64 * history.len() as f64;
        Outcome {
            accuracy: history.last().and_then(|row| row.test_accuracy).unwrap_or(0.0),
            cpu_ms: sum(|row| row.cpu_ms),
            wall_ms: sum(|row| row.wall_ms),
            begin_ms: sum(|row| row.begin_ms),
            trained_share: sum(|row| row.trained as f64) / sum(|row| row.samples as f64).max(1.0),
            io_saved_share: if whole > 0.0 { 1.0 - sum(|row| row.bytes as f64) / whole } else { 0.0 },
        }
    }
}

/// One method's figures, as printed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    method: String,
    accuracy: f64,
    accuracy_sd: Option<f64>,
    delta_points: f64,
    delta_points_sd: Option<f64>,
    speedup: f64,
    wall_speedup: f64,
    trained_share: f64,
    io_saved_share: f64,
    /// The part of the time that went to selecting and to starting epochs.
    begin_share: f64,
    seeds: usize,
    epochs: u64,
}

/// Outcomes by method, seed after seed.
pub(super) struct Table {
    names: Vec<String>,
    outcomes: Vec<Vec<Outcome>>,
}

impl Table {
    pub(super) fn new(methods: &[Method]) -> Table {
        let names: Vec<String> = methods.iter().map(|method| method.name.clone()).collect();
        let outcomes = vec![Vec::new(); names.len()];
        Table { names, outcomes }
    }

    pub(super) fn add(&mut self, method: usize, outcome: Outcome) {
        self.outcomes[method].push(outcome);
    }

    /// One row per method; the first method is what the others are compared with.
    pub(super) fn rows(&self, epochs: u64) -> Vec<Row> {
        let base = &self.outcomes[0];
        let rows = self.names.iter().zip(&self.outcomes).map(|(name, outcomes)| {
            let each = |f: fn(&Outcome) -> f64| outcomes.iter().map(f).collect::<Vec<f64>>();
            let ratio = |f: fn(&Outcome) -> f64| {
                let own: f64 = outcomes.iter().map(f).sum();
                if own > 0.0 { base.iter().map(f).sum::<f64>() / own } else { 0.0 }
            };
            // Seed by seed: a good seed is good for every method.
            let deltas: Vec<f64> =
                outcomes.iter().zip(base).map(|(own, base)| (own.accuracy - base.accuracy) * 100.0).collect();
            let accuracies = each(|o| o.accuracy);
            Row {
                method: name.clone(),
                accuracy: mean(&accuracies),
                accuracy_sd: deviation(&accuracies),
                delta_points: mean(&deltas),
                delta_points_sd: deviation(&deltas),
                speedup: ratio(|o| o.cpu_ms),
                wall_speedup: ratio(|o| o.wall_ms),
                trained_share: mean(&each(|o| o.trained_share)),
                io_saved_share: mean(&each(|o| o.io_saved_share)),
                begin_share: mean(&each(|o| o.begin_ms)) / mean(&each(|o| o.wall_ms)).max(1e-9),
                seeds: outcomes.len(),
                epochs,
            }
        });
        rows.collect()
    }
}

/// The table in words.
pub(super) fn text(rows: &[Row], epochs: u64, seeds: u32) -> Vec<String> {
    let width = rows.iter().map(|row| row.method.chars().count()).max().unwrap_or(0).max(6);
    let mut lines = vec![format!(
        "{:<width$}  accuracy  spread  points  spread  speed-up  on the clock  trained  reading saved",
        "method"
    )];
    for row in rows {
        lines.push(format!(
            "{:<width$}  {:>6.2} %  {:>6}  {:>+6.2}  {:>6}  {:>6.2} x  {:>10.2} x  {:>5.1} %  {:>11.1} %",
            row.method,
            row.accuracy * 100.0,
            spread(row.accuracy_sd, 100.0),
            row.delta_points,
            spread(row.delta_points_sd, 1.0),
            row.speedup,
            row.wall_speedup,
            row.trained_share * 100.0,
            row.io_saved_share * 100.0,
        ));
    }
    let most = rows.iter().map(|row| row.begin_share).fold(0.0, f64::max);
    lines.push(format!(
        "{}, {}; speed-up is of CPU time; selecting and starting epochs took at most {:.2} % \
         of the time",
        counted(epochs, "epoch", "epochs"),
        counted(seeds.into(), "seed", "seeds"),
        most * 100.0
    ));
    lines
}

/// Accuracy against speed-up, one point per method.
pub(super) fn picture(rows: &[Row], seeds: u32) -> String {
    let points: Vec<Named> = rows
        .iter()
        .map(|row| Named {
            name: row.method.clone(),
            x: row.speedup,
            y: row.accuracy * 100.0,
            y_error: row.accuracy_sd.unwrap_or(0.0) * 100.0,
        })
        .collect();
    let title = format!(
        "Accuracy against speed-up ({}, bars: one standard deviation)",
        counted(seeds.into(), "seed", "seeds")
    );
    scatter(
        Words { title: &title, x: "speed-up (CPU time of training)", y: "right on test data, %" },
        &points,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::compare::selection::method::parse;

    #[test]
    fn means_spreads_and_ratios() {
        let mut table = Table::new(&parse("bucket").unwrap());
        let run = |accuracy, cpu_ms| Outcome { accuracy, cpu_ms, wall_ms: 10.0, ..Outcome::default() };
        for (method, outcome) in
            [(0, run(0.90, 100.0)), (1, run(0.91, 40.0)), (0, run(0.92, 100.0)), (1, run(0.93, 60.0))]
        {
            table.add(method, outcome);
        }
        let rows = table.rows(5);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(rows[1].accuracy, 0.92);
        near(rows[1].accuracy_sd.unwrap(), 0.014_142_135_623_730_963);
        near(rows[1].delta_points, 1.0);
        near(rows[1].delta_points_sd.unwrap(), 0.0);
        near(rows[1].speedup, 2.0);
        near(rows[0].speedup, 1.0);
        assert_eq!(deviation(&[1.0]), None);
        let lines = text(&rows, 5, 2);
        assert!(lines[2].starts_with("bucket") && lines[2].contains("+1.00") && lines[2].contains("2.00 x"));
    }
}
