//! The last minute of a node, from the reports that came in it: rates, and how they went.

use crate::bars::spark;
use crate::glance::{float, list, number};
use crate::output::{grouped, size};
use gristmill_node::node::Tier;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How far back it goes.
const SPAN: Duration = Duration::from_mins(1);

/// What is counted in a report.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: Instant,
    up_s: f64,
    samples: u64,
    bytes: u64,
    /// Requests, and those of them that needed nothing from behind the node.
    requests: u64,
    hits: u64,
    cpu_s: f64,
}

impl Point {
    fn new(at: Instant, report: &Value) -> Point {
        let served = |behind: bool| -> u64 {
            let sets = list(report, "sets").filter_map(|set| set.get("node"));
            let tiers = sets.flat_map(|node| list(node, "served").zip(Tier::ALL));
            let counted = tiers.filter(|(_, tier)| !behind || tier.is_behind());
            counted.map(|(count, _)| count.as_u64().unwrap_or(0)).sum()
        };
        Point {
            at,
            up_s: float(report, "up_s").unwrap_or(0.0),
            samples: number(report, "samples"),
            bytes: number(report, "bytes"),
            requests: served(false),
            hits: served(false) - served(true),
            cpu_s: report.get("ops").and_then(|ops| float(ops, "cpu_s")).unwrap_or(0.0),
        }
    }
}

/// What happened from one report to the next, per second.
#[derive(Debug, Clone, Copy)]
struct Rates {
    samples: f64,
    bytes: f64,
    /// None if nothing was asked for.
    hits: Option<f64>,
    cores: f64,
}

/// The reports of the last minute.
#[derive(Debug, Default)]
pub(super) struct Minute {
    points: VecDeque<Point>,
    cores: f64,
    waiting: u64,
}

impl Minute {
    pub(super) fn take(&mut self, now: Instant, report: &Value) {
        let point = Point::new(now, report);
        // A node that was started again counts from 0.
        if self.points.back().is_some_and(|last| point.up_s < last.up_s) {
            self.points.clear();
        }
        self.points.push_back(point);
        while self.points.front().is_some_and(|first| now.duration_since(first.at) > SPAN) {
            self.points.pop_front();
        }
        let ops = report.get("ops").unwrap_or(&Value::Null);
        self.cores = float(ops, "cores").unwrap_or(0.0);
        self.waiting = number(ops, "queue");
    }

    fn rates(&self) -> Vec<Rates> {
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        pairs
            .map(|(then, now)| {
                let time = now.at.duration_since(then.at).as_secs_f64().max(1e-3);
                let gained = |of: fn(&Point) -> u64| of(now).saturating_sub(of(then)) as f64;
                let requests = gained(|point| point.requests);
                Rates {
                    samples: gained(|point| point.samples) / time,
                    bytes: gained(|point| point.bytes) / time,
                    hits: (requests > 0.0).then(|| gained(|point| point.hits) / requests),
                    cores: (now.cpu_s - then.cpu_s).max(0.0) / time,
                }
            })
            .collect()
    }

    /// The minute as rows of a table; none after the first report.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let rates = self.rates();
        let Some(now) = rates.last() else { return Vec::new() };
        let drawn = |most: Option<f64>, of: fn(&Rates) -> Option<f64>| {
            spark(&rates.iter().map(of).collect::<Vec<_>>(), most)
        };
        let mut rows = vec![
            (
                "requests",
                format!(
                    "{}  {} samples/s now",
                    drawn(None, |one| Some(one.samples)),
                    grouped(now.samples as u64)
                ),
            ),
            ("bytes", format!("{}  {}/s now", drawn(None, |one| Some(one.bytes)), size(now.bytes as u64))),
        ];
        let hits =
            now.hits.map_or("nothing was asked for now".into(), |hits| format!("{:.1} % now", hits * 100.0));
        rows.push(("hits", format!("{}  {hits}", drawn(Some(1.0), |one| one.hits))));
        if self.cores > 0.0 {
            let busy = format!("{:.2} of {} cores now", now.cores, self.cores);
            rows.push(("ops busy", format!("{}  {busy}", drawn(Some(self.cores), |one| Some(one.cores)))));
        }
        rows
    }

    /// How it is now, in words.
    pub(super) fn now(&self) -> Vec<String> {
        let rates = self.rates();
        let Some(now) = rates.last() else { return Vec::new() };
        let mut words = vec![
            format!("{} samples/s", grouped(now.samples as u64)),
            format!("{}/s", size(now.bytes as u64)),
        ];
        words.push(now.hits.map_or("hits -".into(), |hits| format!("hits {:.1} %", hits * 100.0)));
        if self.cores > 0.0 {
            let waiting =
                if self.waiting > 0 { format!(" ({} wait)", grouped(self.waiting)) } else { String::new() };
            words.push(format!("ops {:.2} of {} cores{waiting}", now.cores, self.cores));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(up_s: u64, samples: u64, hits: u64) -> Value {
        let node = json!({"served": [hits, 0, 0, 0, samples - hits]});
        json!({"up_s": up_s, "samples": samples, "bytes": samples * 1_000, "sets": [{"node": node}]})
    }

    #[test]
    fn a_minute_moves_on_and_begins_anew_with_the_node() {
        let mut minute = Minute::default();
        let begun = Instant::now();
        assert!(minute.rows().is_empty() && minute.now().is_empty());
        for second in 0..200 {
            minute.take(begun + Duration::from_secs(second), &report(second, second * 100, second * 50));
        }
        assert_eq!(minute.points.len(), 61);
        assert_eq!(minute.now(), ["100 samples/s", "100.0 kB/s", "hits 50.0 %"]);
        assert_eq!(minute.rows()[2].1.chars().filter(|c| *c == '▅').count(), 60);
        minute.take(begun + Duration::from_secs(201), &report(1, 0, 0));
        assert!(minute.rows().is_empty(), "it was started again");
        minute.take(begun + Duration::from_secs(202), &report(2, 0, 0));
        assert_eq!(minute.now(), ["0 samples/s", "0 B/s", "hits -"]);
    }
}
