//! The table of a comparison of caches: means over epochs and seeds; as text, as JSON and as a picture.

use super::link::Link;
use super::side::{DEFAULT, Side};
use crate::commands::compare::{deviation, mean, spread};
use crate::output::counted;
use crate::plot::{Named, Series, Words, lines, scatter};
use gristmill_core::cache::Policy;
use gristmill_node::node::{NodeReport, Tier};
use gristmill_train::EpochRow;
use serde::Serialize;

/// What one epoch came to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Tally {
    hits: u64,
    requests: u64,
    stand_ins: u64,
    bytes: u64,
    io_wait_s: f64,
    wait_s: f64,
    epoch_s: f64,
    loaded_share: f64,
}

impl Tally {
    /// An epoch of training, and what its node had done before and after it.
    pub(super) fn of(row: &EpochRow, before: &NodeReport, after: &NodeReport) -> Tally {
        let (hits, requests) = hits(before, after);
        Tally {
            hits,
            requests,
            stand_ins: after.stand_ins - before.stand_ins,
            bytes: row.bytes,
            io_wait_s: row.wait.fetch_ms / 1e3,
            wait_s: row.wait.total_ms / 1e3,
            epoch_s: row.wall_ms / 1e3,
            loaded_share: row.served as f64 / row.samples.max(1) as f64,
        }
    }
}

/// Requests between two reports of a node that the store was not asked for, and all of them.
pub(super) fn hits(before: &NodeReport, after: &NodeReport) -> (u64, u64) {
    let served = |tier: Tier| after.served[tier as usize] - before.served[tier as usize];
    let all = Tier::ALL.map(served).iter().sum::<u64>();
    (all - served(Tier::Store), all)
}

/// What one training came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Outcome {
    pub(super) accuracy: f64,
    pub(super) epochs: Vec<Tally>,
}

impl Outcome {
    /// The mean over epochs from the one numbered `from` on.
    fn mean(&self, from: usize, f: fn(&Tally) -> f64) -> f64 {
        mean(&self.epochs.iter().skip(from).map(f).collect::<Vec<_>>())
    }

    fn hit_ratio(&self, from: usize) -> f64 {
        let (hits, requests) =
            self.epochs.iter().skip(from).fold((0, 0), |sum, e| (sum.0 + e.hits, sum.1 + e.requests));
        hits as f64 / requests.max(1) as f64
    }
}

/// One side's figures, as printed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    policy: &'static str,
    size: String,
    selection: &'static str,
    cache: &'static str,
    hit_ratio: f64,
    hit_ratio_later: f64,
    bytes_read: u64,
    io_wait_s: f64,
    io_wait_s_later: f64,
    wait_s: f64,
    epoch_s: f64,
    epoch_s_later: f64,
    accuracy: f64,
    accuracy_sd: Option<f64>,
    delta_points: f64,
    io_wait_ratio: f64,
    epoch_ratio: f64,
    loaded_share: f64,
    stand_ins: f64,
    seeds: usize,
    epochs: u64,
    #[serde(flatten)]
    link: Link,
    /// The share of the data that fits, for the axis of the picture.
    #[serde(skip)]
    share: f64,
}

/// One side with one size of cache, seed after seed.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) side: Side,
    pub(super) size: String,
    /// How much of the data set the cache takes.
    pub(super) share: f64,
    pub(super) outcomes: Vec<Outcome>,
}

/// One row per entry; each is compared with the default that has the same size.
pub(super) fn rows(entries: &[Entry], epochs: u64, link: Link) -> Vec<Row> {
    let one = |entry: &Entry| {
        let each = |f: &dyn Fn(&Outcome) -> f64| entry.outcomes.iter().map(f).collect::<Vec<f64>>();
        let over = |from: usize, f: fn(&Tally) -> f64| mean(&each(&|o| o.mean(from, f)));
        let same = |other: &&Entry| other.side.name == DEFAULT && other.size == entry.size;
        // Without a cache there is no size: any default will do, and the first is the smallest.
        let base =
            entries.iter().find(same).or_else(|| entries.iter().find(|other| other.side.name == DEFAULT));
        let base = base.map_or(&[][..], |base| &base.outcomes);
        let ratio = |f: fn(&Tally) -> f64| {
            let own: f64 = entry.outcomes.iter().map(|o| o.mean(0, f)).sum();
            if own > 0.0 { base.iter().map(|o| o.mean(0, f)).sum::<f64>() / own } else { 0.0 }
        };
        let pairs = entry.outcomes.iter().zip(base);
        let deltas: Vec<f64> = pairs.map(|(own, base)| (own.accuracy - base.accuracy) * 100.0).collect();
        let accuracies = each(&|o| o.accuracy);
        Row {
            policy: entry.side.name,
            size: entry.size.clone(),
            selection: entry.side.selection,
            cache: entry.side.policy.map_or("none", Policy::name),
            hit_ratio: mean(&each(&|o| o.hit_ratio(0))),
            hit_ratio_later: mean(&each(&|o| o.hit_ratio(1))),
            bytes_read: over(0, |e| e.bytes as f64) as u64,
            io_wait_s: over(0, |e| e.io_wait_s),
            io_wait_s_later: over(1, |e| e.io_wait_s),
            wait_s: over(0, |e| e.wait_s),
            epoch_s: over(0, |e| e.epoch_s),
            epoch_s_later: over(1, |e| e.epoch_s),
            accuracy: mean(&accuracies),
            accuracy_sd: deviation(&accuracies),
            delta_points: mean(&deltas),
            io_wait_ratio: ratio(|e| e.io_wait_s),
            epoch_ratio: ratio(|e| e.epoch_s),
            loaded_share: over(0, |e| e.loaded_share),
            stand_ins: over(0, |e| e.stand_ins as f64),
            seeds: entry.outcomes.len(),
            epochs,
            link,
            share: entry.share,
        }
    };
    entries.iter().map(one).collect()
}

/// The table in words.
pub(super) fn text(rows: &[Row], epochs: u64, seeds: u32, link: Link) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<8} {:>6}  {:>7}  {:>6}  {:>9}  {:>8}  {:>6}  {:>8}  {:>6}  {:>8}  {:>6}  {:>6}",
        "policy",
        "size",
        "hits",
        "loaded",
        "read",
        "I/O wait",
        "",
        "epoch",
        "",
        "accuracy",
        "spread",
        "points"
    )];
    for row in rows {
        lines.push(format!(
            "{:<8} {:>6}  {:>5.1} %  {:>4.0} %  {:>6.1} MB  {:>6.2} s  {:>5.2}x  {:>6.2} s  {:>5.2}x  {:>6.2} %  {:>6}  {:>+6.2}",
            row.policy,
            row.size,
            row.hit_ratio * 100.0,
            row.loaded_share * 100.0,
            row.bytes_read as f64 / 1e6,
            row.io_wait_s,
            row.io_wait_ratio,
            row.epoch_s,
            row.epoch_ratio,
            row.accuracy * 100.0,
            spread(row.accuracy_sd, 100.0),
            row.delta_points,
        ));
    }
    lines.push(format!(
        "{}, {}; means per epoch, the first one included; x: how many times less than default",
        counted(epochs, "epoch", "epochs"),
        counted(seeds.into(), "seed", "seeds"),
    ));
    lines.push(format!("the store: {link}"));
    lines
}

/// With one size accuracy against the speed-up of epochs, else the time waited by size.
pub(super) fn picture(rows: &[Row], seeds: u32) -> String {
    let mut sizes: Vec<&str> =
        rows.iter().filter(|row| row.share > 0.0).map(|row| row.size.as_str()).collect();
    sizes.dedup();
    if sizes.len() < 2 {
        let point = |row: &Row| Named {
            name: row.policy.into(),
            x: row.epoch_ratio,
            y: row.accuracy * 100.0,
            y_error: row.accuracy_sd.unwrap_or(0.0) * 100.0,
        };
        let title = format!(
            "Accuracy against speed-up ({}, bars: one standard deviation)",
            counted(seeds.into(), "seed", "seeds")
        );
        let words =
            Words { title: &title, x: "speed-up of epochs against default", y: "right on test data, %" };
        return scatter(words, &rows.iter().map(point).collect::<Vec<_>>());
    }
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let point = (row.share * 100.0, row.io_wait_s);
        match series.iter_mut().find(|line| line.name == row.policy) {
            Some(line) => line.points.push(point),
            None => series.push(Series { name: row.policy.into(), points: vec![point] }),
        }
    }
    let words = Words {
        title: "Time waited for bytes by size of the cache",
        x: "cache, % of the data set",
        y: "seconds waited per epoch",
    };
    lines(words, &series)
}

#[cfg(test)]
mod tests {
    use super::super::side::parse;
    use super::*;

    #[test]
    fn means_and_ratios_against_the_default_of_the_same_size() {
        let tally =
            |hits, io_wait_s| Tally { hits, requests: 100, io_wait_s, epoch_s: 2.0, ..Tally::default() };
        let outcome = |accuracy, hits, wait: f64| Outcome {
            accuracy,
            epochs: vec![tally(0, 2.0 * wait), tally(hits, wait), tally(hits, wait)],
        };
        let sides = parse(Some("ours,none")).unwrap();
        let entry = |side: usize, size: &str, outcomes| Entry {
            side: sides[side],
            size: size.into(),
            share: if size == "off" { 0.0 } else { 0.2 },
            outcomes,
        };
        let entries = [
            entry(0, "20%", vec![outcome(0.9, 20, 4.0), outcome(0.8, 20, 4.0)]),
            entry(1, "20%", vec![outcome(0.91, 50, 1.0), outcome(0.83, 70, 1.0)]),
            entry(0, "40%", vec![outcome(0.9, 40, 2.0), outcome(0.8, 40, 2.0)]),
            entry(1, "40%", vec![outcome(0.9, 50, 1.0), outcome(0.8, 50, 1.0)]),
            entry(2, "off", vec![outcome(0.9, 0, 8.0), outcome(0.8, 0, 8.0)]),
        ];
        let link = Link { bytes_per_s: Some(5_000_000), latency_ms: 1, ..Link::default() };
        let rows = rows(&entries, 3, link);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(rows[1].hit_ratio, 0.4);
        near(rows[1].hit_ratio_later, 0.6);
        near(rows[1].io_wait_s, 4.0 / 3.0);
        near(rows[1].io_wait_s_later, 1.0);
        near(rows[1].io_wait_ratio, 4.0);
        near(rows[3].io_wait_ratio, 2.0);
        near(rows[4].io_wait_ratio, 0.5);
        near(rows[1].delta_points, 2.0);
        near(rows[1].accuracy_sd.unwrap(), 0.08 / 2.0_f64.sqrt());
        let lines = text(&rows, 3, 2, link);
        assert!(lines[2].starts_with("ours") && lines[2].contains("4.00x"), "{lines:?}");
        assert!(lines.last().unwrap().contains("5.0 MB per second"), "{lines:?}");
        assert!(picture(&rows, 2).contains("seconds waited"));
        assert!(picture(&rows[..2], 2).contains("speed-up"));
    }
}
