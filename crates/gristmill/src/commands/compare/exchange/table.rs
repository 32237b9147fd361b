//! The outcome: accuracy by ranks and fraction, and the smallest fraction that is enough; as text, as JSON and as pictures.

use super::case::{Cases, part};
use crate::commands::compare::{deviation, mean, spread};
use crate::output::{counted, grouped};
use crate::plot::{Series, Words, beside, lines};
use gristmill_core::exchange::Choose;
use gristmill_train::ranks::{Fraction, Outcome};
use serde::{Serialize, Serializer};

/// How many points below global shuffling are as good.
const WITHIN_POINTS: f64 = 0.5;

/// One case's figures, as printed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    ranks: u32,
    #[serde(serialize_with = "number_or_name")]
    fraction: Fraction,
    partition: &'static str,
    choose: &'static str,
    accuracy: f64,
    accuracy_sd: Option<f64>,
    delta_points: f64,
    delta_points_sd: Option<f64>,
    moved_share: f64,
    divergence: Option<f64>,
    loss: f64,
    train_loss: f64,
    samples: usize,
    batch: u32,
    global_batch: u64,
    rate: f32,
    steps: u64,
    seeds: usize,
    epochs: u64,
}

/// Which fraction is enough.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Summary {
    #[serde(rename = "summary")]
    marked: bool,
    ranks: u32,
    partition: &'static str,
    choose: &'static str,
    smallest_fraction: Option<f64>,
    within_points: f64,
}

fn number_or_name<S: Serializer>(fraction: &Fraction, serializer: S) -> Result<S::Ok, S::Error> {
    match fraction {
        Fraction::Part(part) => serializer.serialize_f64(*part),
        Fraction::Global => serializer.serialize_str("global"),
    }
}

fn choose_name(choose: Choose) -> &'static str {
    Choose::NAMES.iter().find(|(_, known)| *known == choose).map_or("", |(name, _)| name)
}

pub(super) fn rows(cases: &Cases, outcomes: &[Vec<Outcome>], samples: usize) -> Vec<Row> {
    let row = |case: &super::case::Case| {
        let (own, base) = (&outcomes[case.run], &outcomes[case.base]);
        let each = |f: fn(&Outcome) -> f64| own.iter().map(f).collect::<Vec<f64>>();
        // Seed by seed: a good seed is good for every case.
        let deltas: Vec<f64> =
            own.iter().zip(base).map(|(own, base)| (own.accuracy - base.accuracy) * 100.0).collect();
        let accuracies = each(|o| o.accuracy);
        let apart: Option<Vec<f64>> = own.iter().map(|o| o.divergence).collect();
        Row {
            ranks: case.world.ranks,
            fraction: case.dealing.fraction,
            partition: case.dealing.partition.name(),
            choose: choose_name(case.dealing.choose),
            accuracy: mean(&accuracies),
            accuracy_sd: deviation(&accuracies),
            delta_points: mean(&deltas),
            delta_points_sd: deviation(&deltas),
            moved_share: mean(&each(|o| o.moved_share)),
            divergence: apart.map(|apart| mean(&apart)),
            loss: mean(&each(|o| o.loss)),
            train_loss: mean(&each(|o| o.train_loss)),
            samples,
            batch: case.world.batch,
            global_batch: case.world.global_batch(),
            rate: case.world.rate,
            steps: own.first().map_or(0, |o| o.steps),
            seeds: own.len(),
            epochs: case.world.epochs,
        }
    };
    cases.all.iter().map(row).collect()
}

/// The rows of one line of the table: those of its own choice, and those in which nothing is chosen.
fn line<'a>(rows: &'a [Row], of: &Summary) -> Vec<&'a Row> {
    let same = |row: &&Row| (row.ranks, row.partition) == (of.ranks, of.partition);
    let chosen = |row: &Row| matches!(row.fraction, Fraction::Part(part) if part > 0.0);
    let mut line: Vec<&Row> =
        rows.iter().filter(same).filter(|row| !chosen(row) || row.choose == of.choose).collect();
    line.sort_by(|a, b| part(a.fraction).total_cmp(&part(b.fraction)));
    line
}

/// The smallest fraction from which on all are as good as global shuffling, for every ranks, partition and choice.
pub(super) fn summaries(rows: &[Row]) -> Vec<Summary> {
    let mut found: Vec<Summary> = Vec::new();
    for row in rows {
        let Row { ranks, partition, choose, .. } = *row;
        if found.iter().any(|f| (f.ranks, f.partition, f.choose) == (ranks, partition, choose)) {
            continue;
        }
        let mut summary = Summary {
            marked: true,
            ranks,
            partition,
            choose,
            smallest_fraction: None,
            within_points: WITHIN_POINTS,
        };
        for row in line(rows, &summary).iter().rev() {
            match row.fraction {
                Fraction::Global => {}
                Fraction::Part(part) if row.delta_points >= -WITHIN_POINTS => {
                    summary.smallest_fraction = Some(part);
                }
                Fraction::Part(_) => break,
            }
        }
        found.push(summary);
    }
    found
}

pub(super) fn text(rows: &[Row], summaries: &[Summary]) -> Vec<String> {
    let mut out = Vec::new();
    let mut partitions: Vec<&str> = summaries.iter().map(|s| s.partition).collect();
    partitions.dedup();
    partitions.sort_unstable();
    partitions.dedup();
    for partition in partitions {
        let own: Vec<&Summary> = summaries.iter().filter(|s| s.partition == partition).collect();
        let widest = own.first().map(|summary| line(rows, summary)).unwrap_or_default();
        let mut head = format!("{:<9} {:>5} {:>8}  {:<10}", partition, "ranks", "each", "choose");
        for row in &widest {
            let name = match row.fraction {
                Fraction::Part(0.0) => "0 (local)".to_string(),
                other => other.to_string(),
            };
            head = format!("{head}  {name:>14}");
        }
        out.push(format!("{head}  smallest"));
        let mut before = None;
        for summary in own {
            let cells = line(rows, summary);
            let new = before.replace(summary.ranks) != Some(summary.ranks);
            let each = cells.first().map_or(0, |row| row.samples / row.ranks as usize);
            let (ranks, each) =
                if new { (grouped(summary.ranks.into()), grouped(each as u64)) } else { Default::default() };
            let mut line = format!("{:<9} {ranks:>5} {each:>8}  {:<10}", "", summary.choose);
            for row in cells {
                let shown = if new || matches!(row.fraction, Fraction::Part(part) if part > 0.0) {
                    format!("{:.2} ±{}", row.accuracy * 100.0, spread(row.accuracy_sd, 100.0))
                } else {
                    String::new()
                };
                line = format!("{line}  {shown:>14}");
            }
            let enough = summary.smallest_fraction.map_or_else(|| "none".into(), |f| f.to_string());
            out.push(format!("{line}  {enough:>8}"));
        }
        out.push(String::new());
    }
    if let Some(row) = rows.first() {
        out.push(format!(
            "right on test data in %, ± one standard deviation; {}, {}; smallest: the fraction from which on all are \
             within {WITHIN_POINTS} points of global",
            counted(row.samples as u64, "sample", "samples"),
            counted(row.seeds as u64, "seed", "seeds"),
        ));
    }
    let mut worlds: Vec<(u32, String)> = rows
        .iter()
        .map(|row| {
            (
                row.ranks,
                format!(
                    "{} x {} ({} epochs, {} steps, rate {:.1})",
                    grouped(row.ranks.into()),
                    row.batch,
                    row.epochs,
                    grouped(row.steps),
                    row.rate
                ),
            )
        })
        .collect();
    worlds.dedup();
    let worlds: Vec<String> = worlds.into_iter().map(|(_, words)| words).collect();
    out.push(format!("ranks x batch: {}", worlds.join(", ")));
    out
}

/// Accuracy against the fraction, one curve per number of ranks; one picture per partition and choice, beside each other.
pub(super) fn picture(rows: &[Row], seeds: u32) -> String {
    let summaries = summaries(rows);
    let mut pairs: Vec<(&str, &str)> = summaries.iter().map(|s| (s.partition, s.choose)).collect();
    let mut seen = Vec::new();
    pairs.retain(|pair| {
        !seen.contains(pair) && {
            seen.push(*pair);
            true
        }
    });
    // Global shuffling stands where everything is exchanged, or beyond it if that was tried too.
    let last = if rows.iter().any(|row| row.fraction == Fraction::Part(1.0)) { 1.1 } else { 1.0 };
    let plots: Vec<String> = pairs
        .iter()
        .map(|&(partition, choose)| {
            let own = summaries.iter().filter(|s| (s.partition, s.choose) == (partition, choose));
            let series: Vec<Series> = own
                .map(|summary| Series {
                    name: format!("{} ranks", grouped(summary.ranks.into())),
                    points: line(rows, summary)
                        .iter()
                        .map(|row| (part(row.fraction).min(last), row.accuracy * 100.0))
                        .collect(),
                })
                .collect();
            let title = format!(
                "{partition} partition, choose {choose} ({})",
                counted(seeds.into(), "seed", "seeds")
            );
            let x = format!("fraction exchanged per epoch; the points at {last} are global shuffling");
            lines(Words { title: &title, x: &x, y: "right on test data, %" }, &series)
        })
        .collect();
    let columns =
        pairs.iter().filter(|(partition, _)| Some(partition) == pairs.first().map(|(p, _)| p)).count();
    beside(&plots, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ranks: u32, fraction: &str, choose: &'static str, delta_points: f64) -> Row {
        Row {
            ranks,
            fraction: fraction.parse().unwrap(),
            partition: "sorted",
            choose,
            accuracy: 0.9 + delta_points / 100.0,
            accuracy_sd: Some(0.001),
            delta_points,
            delta_points_sd: None,
            moved_share: 0.0,
            divergence: None,
            loss: 0.0,
            train_loss: 0.0,
            samples: 800,
            batch: 4,
            global_batch: 32,
            rate: 0.1,
            steps: 10,
            seeds: 2,
            epochs: 5,
        }
    }

    fn all() -> Vec<Row> {
        vec![
            row(8, "0", "uniform", -20.0),
            row(8, "0.1", "uniform", -0.4),
            row(8, "0.3", "uniform", -0.7),
            row(8, "0.9", "uniform", 0.2),
            row(8, "global", "uniform", 0.0),
            row(8, "0.1", "class", -0.5),
            row(8, "0.3", "class", -0.1),
            row(8, "0.9", "class", -0.1),
        ]
    }

    #[test]
    fn a_fraction_is_enough_if_all_larger_ones_are_too() {
        let found: Vec<_> = summaries(&all()).into_iter().map(|s| (s.choose, s.smallest_fraction)).collect();
        assert_eq!(found, [("uniform", Some(0.9)), ("class", Some(0.1))]);
        let poor = [row(8, "0.9", "class", -3.0), row(8, "global", "class", 0.0)];
        assert_eq!(summaries(&poor)[0].smallest_fraction, None);
    }

    #[test]
    fn the_table_and_the_json_say_what_was_measured() {
        let rows = all();
        let lines = text(&rows, &summaries(&rows));
        assert!(lines[0].contains("0 (local)") && lines[0].ends_with("smallest"), "{}", lines[0]);
        assert!(lines[1].contains("70.00 ±0.10") && lines[1].ends_with("0.9"), "{}", lines[1]);
        assert!(lines[2].contains("class") && !lines[2].contains("70.00"), "shown once: {}", lines[2]);
        assert_eq!(lines[0].chars().count(), lines[2].chars().count());
        let json = |row: &Row| serde_json::to_value(row).unwrap()["fraction"].clone();
        assert_eq!((json(&rows[1]), json(&rows[4])), (0.1.into(), "global".into()));
        let plot = picture(&rows, 2);
        assert_eq!(plot.matches("<polyline").count(), 2, "uniform and class");
        assert!(plot.contains("global shuffling") && plot.ends_with("</svg>\n"));
    }
}
