//! Whether what is promised of the steered run holds in a scenario, and why not.

use super::configuration::Configuration;
use super::outcome::Told;
use super::scenario::{Promise, Scenario};
use super::table::Row;
use serde::Serialize;

/// How far a prediction may be from what was measured.
const OFF_MAX: f64 = 0.15;
/// A difference of accuracies that is none, where there are too few seeds for a spread.
const SPREAD_LEAST: f64 = 0.0025;

/// What came of the promise of one scenario.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Verdict {
    promise: bool,
    scenario: &'static str,
    pub(super) holds: bool,
    reason: String,
    /// Whether the steered run ends within the spread of plain, or better.
    accuracy_holds: bool,
    accuracy_reason: String,
    decisions: usize,
    /// Decisions with a prediction and a measurement, and how many of them are too far apart.
    predictions: usize,
    predictions_off: usize,
}

/// The verdict on one scenario; none if nothing was steered in it.
pub(super) fn verdict(rows: &[Row]) -> Option<Verdict> {
    let plain = rows.iter().find(|row| row.which.1 == Configuration::Plain)?;
    let all = rows.iter().find(|row| row.which.1 == Configuration::All)?;
    let scenario: Scenario = all.which.0;
    let (holds, reason) = match scenario.promise() {
        Promise::Sooner { times, than_any } => sooner(rows, all, times, than_any),
        Promise::NotSlower { times } => {
            let ratio = all.speedup_epochs;
            (
                ratio >= times,
                format!("all epochs {ratio:.2}x as fast as plain, at least {times}x is promised"),
            )
        }
        Promise::AsGood { times } => as_good(rows, all, times),
    };
    let spread = [plain.accuracy_sd, all.accuracy_sd].into_iter().flatten().fold(SPREAD_LEAST, f64::max);
    let figures: Vec<(f64, f64)> = all.decisions.iter().filter_map(predicted).collect();
    let off = |(predicted, measured): &&(f64, f64)| (predicted / measured - 1.0).abs() > OFF_MAX;
    Some(Verdict {
        promise: true,
        scenario: all.scenario,
        holds,
        reason,
        accuracy_holds: all.accuracy >= plain.accuracy - spread,
        accuracy_reason: format!("{:+.2} points, spread {:.2}", all.delta_points, spread * 100.0),
        decisions: all.decisions.len(),
        predictions: figures.len(),
        predictions_off: figures.iter().filter(off).count(),
    })
}

fn predicted(told: &Told) -> Option<(f64, f64)> {
    Some((told.predicted?, told.measured.filter(|measured| *measured > 0.0)?))
}

fn sooner(rows: &[Row], all: &Row, times: f64, than_any: bool) -> (bool, String) {
    let Some(own) = all.speedup else { return (false, "plain's accuracy was not reached".into()) };
    let alone = rows.iter().filter(|row| row.which.1.is_alone());
    let best = alone.filter_map(|row| Some((row.speedup?, row.configuration)));
    let best = best.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|_| than_any);
    let beaten = best.is_none_or(|(best, _)| own > best);
    let others =
        best.map_or_else(String::new, |(best, name)| format!("; the best alone is {name}, {best:.2}x"));
    (own >= times && beaten, format!("{own:.2}x, at least {times}x is promised{others}"))
}

fn as_good(rows: &[Row], all: &Row, times: f64) -> (bool, String) {
    let Some(own) = all.time_to_s else { return (false, "plain's accuracy was not reached".into()) };
    let others = rows.iter().filter(|row| row.which.1 != Configuration::All);
    let best = others.filter_map(|row| Some((row.time_to_s?, row.configuration)));
    let Some((best, name)) = best.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        return (true, "nothing to compare with".into());
    };
    let most = (times - 1.0) * 100.0;
    let reason = format!(
        "{:+.0} % against {name}, the best that was set by hand; at most +{most:.0} % is promised",
        (own / best.max(1e-9) - 1.0) * 100.0
    );
    (own <= best * times, reason)
}

/// All verdicts in words.
pub(super) fn text(verdicts: &[Verdict]) -> Vec<String> {
    let word = |holds: bool| if holds { "holds" } else { "DOES NOT HOLD" };
    let one = |verdict: &Verdict| {
        let Verdict { scenario, holds, reason, accuracy_holds, accuracy_reason, .. } = verdict;
        let predictions = match verdict.predictions {
            0 => format!("{} decisions, none with a measured prediction", verdict.decisions),
            some => format!("{} of {some} predictions off by more than 15 %", verdict.predictions_off),
        };
        format!(
            "{scenario}: {} ({reason}); accuracy {} ({accuracy_reason}); {predictions}",
            word(*holds),
            word(*accuracy_holds)
        )
    };
    verdicts.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::table::{rows, tests::entry};
    use super::*;

    fn judged(scenario: Scenario, others: &[(Configuration, f64)], all_s: f64) -> Verdict {
        let mut entries = vec![entry(scenario, Configuration::Plain, &[(0.8, 4.0)])];
        entries.extend(others.iter().map(|(one, wall_s)| entry(scenario, *one, &[(0.8, *wall_s)])));
        entries.push(entry(scenario, Configuration::All, &[(0.8, all_s)]));
        verdict(&rows(&entries, "")).unwrap()
    }

    #[test]
    fn promises_by_scenario() {
        use Configuration::{Hand, Split};
        for (scenario, others, all_s, holds) in [
            (Scenario::Link, vec![(Split, 2.0)], 0.9, true),
            (Scenario::Link, vec![(Split, 2.0)], 1.1, false),
            (Scenario::Link, vec![(Split, 0.8)], 0.9, false),
            (Scenario::Latency, vec![(Split, 0.8)], 1.3, true),
            (Scenario::Compute, vec![], 4.03, true),
            (Scenario::Compute, vec![], 4.2, false),
            (Scenario::Jobs, vec![(Hand, 1.0)], 1.09, true),
            (Scenario::Ranks, vec![(Hand, 1.0)], 1.2, false),
        ] {
            let verdict = judged(scenario, &others, all_s);
            assert_eq!(verdict.holds, holds, "{scenario:?} {others:?} {all_s}: {}", verdict.reason);
            assert!(verdict.accuracy_holds);
        }
    }

    #[test]
    fn predictions_are_held_against_measurements() {
        let mut entries = vec![
            entry(Scenario::Link, Configuration::Plain, &[(0.8, 4.0)]),
            entry(Scenario::Link, Configuration::All, &[(0.7, 1.0)]),
        ];
        let told = |predicted, measured| Told { predicted, measured, ..Told::default() };
        entries[1].outcomes[0].jobs[0].decisions =
            vec![told(Some(2.0), Some(1.9)), told(Some(2.0), Some(1.5)), told(Some(2.0), None)];
        let verdict = verdict(&rows(&entries, "")).unwrap();
        assert_eq!((verdict.decisions, verdict.predictions, verdict.predictions_off), (3, 2, 1));
        assert!(!verdict.accuracy_holds && !verdict.holds);
        let text = text(&[verdict]).join("");
        assert!(text.contains("1 of 2 predictions") && text.contains("DOES NOT HOLD"), "{text}");
    }
}
