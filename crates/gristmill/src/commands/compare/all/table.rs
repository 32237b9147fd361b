//! Figures over seeds: one row per scenario and configuration; as text, as JSON and as a picture.

use super::configuration::Configuration;
use super::outcome::{Course, Outcome, Reached, Told};
use super::scenario::Scenario;
use crate::commands::compare::{deviation, mean, spread};
use crate::output::size;
use crate::plot::{Series, Words, beside, lines};
use serde::Serialize;

/// How far below plain's accuracy counts as there, at least: half a point.
const TOLERANCE_LEAST: f64 = 0.005;
/// Plots beside each other.
const COLUMNS: usize = 2;

/// One configuration in one scenario, seed after seed.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) scenario: Scenario,
    pub(super) configuration: Configuration,
    pub(super) outcomes: Vec<Outcome>,
}

/// Its figures, as printed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) scenario: &'static str,
    pub(super) configuration: &'static str,
    /// How many times sooner it had plain's accuracy: the median over seeds; none if that was not reached.
    pub(super) speedup: Option<f64>,
    pub(super) speedup_least: Option<f64>,
    pub(super) speedup_most: Option<f64>,
    /// The same for when it was there to stay, which chance moves less.
    pub(super) speedup_settled: Option<f64>,
    /// How many times sooner it had trained all epochs.
    pub(super) speedup_epochs: f64,
    pub(super) accuracy: f64,
    pub(super) accuracy_sd: Option<f64>,
    pub(super) delta_points: f64,
    pub(super) seconds: f64,
    pub(super) time_to_s: Option<f64>,
    pub(super) epoch_s: Vec<f64>,
    pub(super) trained_share: f64,
    pub(super) wait_share: f64,
    pub(super) bytes_read: u64,
    pub(super) seeds: usize,
    pub(super) epochs: usize,
    pub(super) ground: String,
    pub(super) decisions: Vec<Told>,
    #[serde(skip)]
    pub(super) which: (Scenario, Configuration),
    #[serde(skip)]
    curve: Vec<(f64, f64)>,
}

/// The middle one; of two the mean, and the lower if one of them is none at all. What never ends is infinite.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n if values[n / 2 - 1] <= 0.0 => 0.0,
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// The rows of one scenario, whose first entry is plain.
pub(super) fn rows(entries: &[Entry], ground: &str) -> Vec<Row> {
    let Some(plain) = entries.first() else { return Vec::new() };
    let ends: Vec<f64> = plain.outcomes.iter().map(Outcome::accuracy).collect();
    let tolerance = deviation(&ends).unwrap_or(0.0).max(TOLERANCE_LEAST);
    entries.iter().map(|entry| row(entry, plain, tolerance, ground)).collect()
}

fn row(entry: &Entry, plain: &Entry, tolerance: f64, ground: &str) -> Row {
    let outcomes = &entry.outcomes;
    let each = |f: fn(&Outcome) -> f64| outcomes.iter().map(f).collect::<Vec<f64>>();
    let pairs = || outcomes.iter().zip(&plain.outcomes);
    let there = |own: &Outcome, plain: &Outcome, reached| {
        own.time_to(plain, tolerance, reached).unwrap_or(f64::INFINITY)
    };
    // What never gets there is infinitely slow, which a median can bear and a mean cannot.
    let ratios = |reached| -> Vec<f64> {
        pairs().map(|(own, base)| there(base, base, reached) / there(own, base, reached).max(1e-9)).collect()
    };
    let (settled, ratios) = (ratios(Reached::ToStay), ratios(Reached::First));
    let reached = |value: f64| (value.is_finite() && value > 0.0).then_some(value);
    let times = median(pairs().map(|(own, base)| there(own, base, Reached::First)).collect());
    let wholes = pairs().map(|(own, base)| base.seconds() / own.seconds().max(1e-9));
    let accuracies = each(Outcome::accuracy);
    let deltas: Vec<f64> = pairs().map(|(own, base)| (own.accuracy() - base.accuracy()) * 100.0).collect();
    let jobs = || outcomes.iter().flat_map(|outcome| &outcome.jobs);
    let epochs = jobs().map(|job| job.epochs.len()).max().unwrap_or(0);
    let at = |i: usize, of: fn(&Course, usize) -> Option<f64>| {
        median(jobs().filter_map(|job| of(job, i)).collect())
    };
    let wall_s = |job: &Course, i: usize| job.epochs.get(i).map(|epoch| epoch.wall_s);
    let elapsed_s = |job: &Course, i: usize| job.epochs.get(i).map(|epoch| epoch.elapsed_s);
    let accuracy = |job: &Course, i: usize| job.epochs.get(i).map(|epoch| epoch.accuracy);
    let whole = |of: fn(&super::outcome::Epoch) -> f64| {
        mean(&outcomes.iter().map(|outcome| outcome.mean(of)).collect::<Vec<_>>())
    };
    Row {
        scenario: entry.scenario.letter(),
        configuration: entry.configuration.name(),
        speedup: reached(median(ratios.clone())),
        speedup_least: reached(ratios.iter().copied().fold(f64::INFINITY, f64::min)),
        speedup_most: reached(ratios.iter().copied().fold(0.0, f64::max)),
        speedup_settled: reached(median(settled)),
        speedup_epochs: median(wholes.collect()),
        accuracy: mean(&accuracies),
        accuracy_sd: deviation(&accuracies),
        delta_points: mean(&deltas),
        seconds: mean(&each(Outcome::seconds)),
        time_to_s: reached(times),
        epoch_s: (0..epochs).map(|i| at(i, wall_s)).collect(),
        trained_share: whole(|epoch| epoch.trained_share),
        wait_share: whole(|epoch| epoch.wait_s / epoch.wall_s.max(1e-9)),
        bytes_read: mean(&each(|outcome| outcome.bytes_read as f64)) as u64,
        seeds: outcomes.len(),
        epochs,
        ground: ground.into(),
        decisions: outcomes.iter().flat_map(Outcome::decisions).cloned().collect(),
        which: (entry.scenario, entry.configuration),
        curve: (0..epochs).map(|i| (at(i, elapsed_s), at(i, accuracy) * 100.0)).collect(),
    }
}

/// The rows of one scenario in words.
pub(super) fn text(rows: &[Row]) -> Vec<String> {
    let Some(first) = rows.first() else { return Vec::new() };
    let mut out = vec![
        format!("{}: {}; {}", first.scenario, first.which.0.name(), first.ground),
        format!(
            "  {:<13} {:>8} {:>13} {:>8}  {:>9} {:>9} {:>7}  {:>8} {:>6} {:>7}  {:>7} {:>6} {:>9}",
            "configuration",
            "sooner",
            "",
            "to stay",
            "there",
            "all",
            "",
            "accuracy",
            "spread",
            "points",
            "trained",
            "waited",
            "read"
        ),
    ];
    for row in rows {
        let times = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2}x"));
        let from_to = match (row.speedup_least, row.speedup_most) {
            (_, None) => String::new(),
            (least, most) => format!("{}..{}", times(least), times(most)),
        };
        let there = row.time_to_s.map_or_else(|| "never".into(), |s| format!("{s:.1} s"));
        out.push(format!(
            "  {:<13} {:>8} {from_to:>13} {:>8}  {there:>9} {:>7.1} s {:>6.2}x  {:>6.2} % {:>6} {:>+7.2}  {:>5.0} % {:>4.0} % {:>9}",
            row.configuration,
            times(row.speedup),
            times(row.speedup_settled),
            row.seconds,
            row.speedup_epochs,
            row.accuracy * 100.0,
            spread(row.accuracy_sd, 100.0),
            row.delta_points,
            row.trained_share * 100.0,
            row.wait_share * 100.0,
            size(row.bytes_read),
        ));
    }
    out
}

/// Decisions in words, those of the first seed that has any.
pub(super) fn told(row: &Row) -> Vec<String> {
    let seed = row.decisions.first().map(|told| told.seed);
    let one = |told: &Told| format!("    {}", told.line);
    row.decisions.iter().filter(|told| Some(told.seed) == seed).map(one).collect()
}

/// Accuracy over time, one plot per scenario.
pub(super) fn picture(rows: &[Row]) -> String {
    let plot = |scenario: &Scenario| {
        let of = rows.iter().filter(|row| row.which.0 == *scenario);
        let series: Vec<Series> =
            of.map(|row| Series { name: row.configuration.into(), points: row.curve.clone() }).collect();
        let title = format!("{}: {}", scenario.letter(), scenario.name());
        let words = Words { title: &title, x: "seconds of training", y: "right on test data, %" };
        (!series.is_empty()).then(|| lines(words, &series))
    };
    beside(&Scenario::ALL.iter().filter_map(plot).collect::<Vec<_>>(), COLUMNS)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::outcome::Epoch;
    use super::*;

    /// A run whose accuracy rises evenly to `accuracy` in four epochs of `wall_s`.
    pub(in super::super) fn ran(accuracy: f64, wall_s: f64) -> Outcome {
        let epoch = |i: u32| Epoch {
            wall_s,
            elapsed_s: wall_s * f64::from(i),
            accuracy: accuracy * f64::from(i) / 4.0,
            ..Epoch::default()
        };
        let course = Course { epochs: (1..=4).map(epoch).collect(), ..Course::default() };
        Outcome { jobs: vec![course], bytes_read: 1_000 }
    }

    pub(in super::super) fn entry(
        scenario: Scenario,
        configuration: Configuration,
        runs: &[(f64, f64)],
    ) -> Entry {
        let outcomes = runs.iter().map(|(accuracy, wall_s)| ran(*accuracy, *wall_s)).collect();
        Entry { scenario, configuration, outcomes }
    }

    #[test]
    fn medians_over_seeds_against_the_same_seed_of_plain() {
        let entries = [
            entry(Scenario::Link, Configuration::Plain, &[(0.80, 4.0), (0.81, 4.0), (0.82, 4.0)]),
            entry(Scenario::Link, Configuration::All, &[(0.80, 1.0), (0.40, 1.0), (0.90, 2.0)]),
            entry(Scenario::Link, Configuration::Cache, &[(0.1, 1.0), (0.1, 1.0), (0.82, 4.0)]),
        ];
        let rows = rows(&entries, "slow");
        let near = |a: Option<f64>, b: f64| assert!((a.unwrap() - b).abs() < 1e-9, "{a:?} {b}");
        near(rows[0].speedup, 1.0);
        // One never gets there, one in a quarter, one in half of the time.
        near(rows[1].speedup, 2.0);
        near(rows[1].speedup_most, 4.0);
        assert_eq!(rows[1].speedup_least, None);
        near(Some(rows[1].speedup_epochs), 4.0);
        assert_eq!((rows[2].speedup, rows[2].time_to_s), (None, None));
        assert_eq!(rows[1].epoch_s, [1.0; 4]);
        let text = text(&rows).join("\n");
        assert!(text.contains("2.00x") && text.contains("never") && text.contains("slow"), "{text}");
        assert_eq!(picture(&rows).matches("<polyline").count(), 3);
        assert_eq!((median(vec![3.0, 1.0]), median(Vec::new())), (2.0, 0.0));
    }
}
