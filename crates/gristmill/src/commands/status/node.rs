//! A node in a terminal: what it has, what it did, and how the last minute went.

use super::minute::{Minute, cores};
use crate::bars::bar;
use crate::glance::{number, word};
use crate::output::{grouped, name, size};
use gristmill_node::node::Tier;
use serde_json::Value;
use std::fmt::Write;
use std::time::Instant;

/// The width of a bar.
const BAR: usize = 24;

/// A node.
pub(super) struct NodeView {
    url: String,
    report: Value,
    minute: Minute,
}

impl NodeView {
    pub(super) fn new(url: &str) -> NodeView {
        NodeView { url: url.to_string(), report: Value::Null, minute: Minute::default() }
    }

    /// Takes a report.
    pub(super) fn take(&mut self, now: Instant, report: Value) {
        self.minute.take(now, &report);
        self.report = report;
    }

    pub(super) fn table(&self) -> String {
        table(&self.url, &self.report, &self.minute)
    }

    /// How it is now, in one line.
    pub(super) fn lines(&mut self) -> Vec<String> {
        let up = self.report.get("up_s").and_then(Value::as_f64).unwrap_or(0.0);
        let sets = || self.report.get("sets").and_then(Value::as_array).into_iter().flatten();
        let sum = |key: &str| sets().map(|set| number(&set["node"], key)).sum::<u64>();
        let jobs: usize = sets().map(|set| set["node"]["jobs"].as_array().map_or(0, Vec::len)).sum();
        let mut words = vec![format!("up {}", span(up))];
        words.extend(self.minute.now());
        for what in ["memory", "disk"] {
            let most = sum(&format!("{what}_bytes_max"));
            if most > 0 {
                words.push(format!("{what} {} of {}", size(sum(&format!("{what}_bytes"))), size(most)));
            }
        }
        words.push(crate::output::counted(jobs as u64, "job", "jobs"));
        vec![words.join(", ")]
    }
}

/// The report for people, with what happened in the last minute.
fn table(url: &str, report: &Value, minute: &Minute) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let mut row = |label: &str, text: String| {
        let _ = writeln!(out, "{label:<14}{text}");
    };
    let up = report.get("up_s").and_then(Value::as_f64).unwrap_or(0.0);
    let draining = report.get("draining").and_then(Value::as_bool).unwrap_or(false);
    let state = if draining { ", shutting down" } else { "" };
    row("node", format!("{} (version {}), up {}{state}", name(url), name(word(report, "version")), span(up)));
    row(
        "connections",
        format!(
            "{} of {}; {} refused, {} cut off",
            grouped(number(report, "connections")),
            grouped(number(report, "connections_max")),
            grouped(number(report, "refused")),
            grouped(number(report, "cut_off"))
        ),
    );
    let (samples, bytes) = (number(report, "samples"), number(report, "bytes"));
    let lanes = match number(report, "lane_bytes") {
        0 => String::new(),
        bytes => format!(", {} of it through shared memory", size(bytes)),
    };
    row(
        "sent",
        format!(
            "{} samples, {} in {} messages{lanes}",
            grouped(samples),
            size(bytes),
            grouped(number(report, "messages"))
        ),
    );
    let (held, limit) = (number(report, "bytes_in_flight"), number(report, "bytes_in_flight_max"));
    row("in flight", format!("{} of {}", size(held), size(limit)));
    if let Some(ops) = report.get("ops") {
        for (label, text) in op_rows(ops) {
            row(label, text);
        }
    }
    for (label, text) in minute.rows() {
        row(label, text);
    }
    for set in report.get("sets").and_then(Value::as_array).into_iter().flatten() {
        let _ = write!(out, "\n{}", one_set(set));
    }
    out
}

/// What ran near the data for clients; nothing on a node that runs no ops.
fn op_rows(ops: &Value) -> Vec<(&'static str, String)> {
    let float = |key: &str| ops.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    if float("cores") <= 0.0 {
        return Vec::new();
    }
    let first = format!(
        "{}, {:.1} s of CPU; {} of {} wait; {} sent raw because busy, {} because raw suits them",
        cores(float("cores")),
        float("cpu_s"),
        grouped(number(ops, "queue")),
        grouped(number(ops, "queue_max")),
        grouped(number(ops, "busy")),
        grouped(number(ops, "unsuited"))
    );
    let mut rows = vec![("ops", first)];
    if number(ops, "pixels_entries") > 0 {
        let kept = format!(
            "{} pictures stay decoded, {} of {}; {} samples needed no decoding",
            grouped(number(ops, "pixels_entries")),
            size(number(ops, "pixels_bytes")),
            size(number(ops, "pixels_bytes_max")),
            grouped(number(ops, "pixels_hits"))
        );
        rows.push(("", kept));
    }
    let stages = ops.get("stages").and_then(Value::as_array).into_iter().flatten();
    let sent: Vec<String> = stages
        .filter(|sent| number(sent, "samples") > 0)
        .map(|sent| {
            let (samples, bytes) = (grouped(number(sent, "samples")), size(number(sent, "bytes")));
            format!("{samples} {} ({bytes})", name(word(sent, "stage")))
        })
        .collect();
    if !sent.is_empty() {
        rows.push(("stages", sent.join(", ")));
    }
    rows
}

fn one_set(set: &Value) -> String {
    let nothing = Value::Null;
    let node = set.get("node").unwrap_or(&nothing);
    let mut out = String::new();
    let mut row = |label: &str, text: String| {
        let _ = writeln!(out, "{label:<14}{text}");
    };
    let digest = word(set, "digest");
    row(
        "data set",
        format!(
            "{} ({} samples, digest {})",
            name(word(set, "name")),
            grouped(number(node, "samples")),
            name(digest.get(..12).unwrap_or(digest))
        ),
    );
    for (what, entries) in [("memory", "memory_entries"), ("disk", "disk_entries")] {
        let (held, most) =
            (number(node, &format!("{what}_bytes")), number(node, &format!("{what}_bytes_max")));
        if most > 0 {
            let share = held as f64 / most as f64;
            row(
                what,
                format!(
                    "{} {} of {}, {} samples",
                    bar(share, BAR),
                    size(held),
                    size(most),
                    grouped(number(node, entries))
                ),
            );
        }
    }
    if let Some(regions) = node.get("regions").filter(|regions| regions.is_object()) {
        let part = |what: &str| {
            let sizes =
                [format!("{what}_bytes"), format!("{what}_bytes_max")].map(|key| size(number(regions, &key)));
            let hits = grouped(number(regions, &format!("{what}_hits")));
            format!("{what} {} of {}, {hits} hits", sizes[0], sizes[1])
        };
        row("regions", format!("{}; {}", part("hot"), part("cold")));
    }
    if let Some(why) = node.get("disk_off").and_then(Value::as_str) {
        row("disk", format!("off: {}", name(why)));
    }
    let list = |key: &str| -> Vec<u64> {
        let values = node.get(key).and_then(Value::as_array);
        values.into_iter().flatten().map(|value| value.as_u64().unwrap_or(0)).collect()
    };
    let (served, served_bytes) = (list("served"), list("served_bytes"));
    let all: u64 = served.iter().sum();
    for (place, tier) in Tier::ALL.iter().enumerate() {
        let (many, bytes) = (served.get(place).copied(), served_bytes.get(place).copied());
        if let (Some(many @ 1..), Some(bytes)) = (many, bytes) {
            let tier = format!("{tier:?}").to_ascii_lowercase();
            let share = many as f64 / all as f64;
            row(
                &format!("from {tier}"),
                format!(
                    "{} {:>5.1} %  {} samples, {}",
                    bar(share, BAR),
                    share * 100.0,
                    grouped(many),
                    size(bytes)
                ),
            );
        }
    }
    for (label, key, what) in [
        ("stand-ins", "stand_ins", "samples served in the place of another"),
        ("shared", "shared_reads", "requests that waited for a read of somebody else"),
        ("prefetched", "prefetched", "samples read ahead"),
        ("damaged", "disk_damaged", "entries of the disk tier"),
    ] {
        if number(node, key) > 0 {
            row(label, format!("{} {what}", grouped(number(node, key))));
        }
    }
    let jobs: Vec<&Value> = node.get("jobs").and_then(Value::as_array).into_iter().flatten().collect();
    if !jobs.is_empty() {
        let _ =
            writeln!(out, "\n{:<24}{:>8}{:>14}{:>9}{:>10}", "job", "epoch", "requests", "hits", "benefit");
    }
    for job in jobs {
        let (requests, hits) = (number(job, "requests"), number(job, "hits"));
        let share = if requests == 0 { 0.0 } else { hits as f64 / requests as f64 * 100.0 };
        let benefit = job.get("benefit").and_then(Value::as_f64);
        let _ = writeln!(
            out,
            "{:<24}{:>8}{:>14}{:>7.1} %{:>10}",
            name(word(job, "name")).chars().take(23).collect::<String>(),
            number(job, "epoch"),
            grouped(requests),
            share,
            benefit.map_or_else(|| "-".into(), |benefit| format!("{benefit:.2}"))
        );
    }
    out
}

fn span(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_report_reads_well_and_an_odd_one_does_no_harm() {
        let report = json!({
            "version": "0.1.0", "up_s": 3_725.0, "connections": 2, "connections_max": 4_096, "samples": 3_000,
            "bytes": 9_000_000_u64, "messages": 94, "bytes_in_flight": 0, "bytes_in_flight_max": 268_435_456_u64,
            "ops": {"cores": 1.5, "cpu_s": 2.25, "queue": 3, "queue_max": 256, "busy": 7, "unsuited": 1,
                "pixels_entries": 1_500, "pixels_bytes": 140_000_000_u64, "pixels_bytes_max": 536_870_912_u64, "pixels_hits": 9_000,
                "stages": [{"stage": "cut", "samples": 2_000, "bytes": 5_000_000_u64}, {"stage": "raw", "samples": 0}]},
            "sets": [{"name": "train", "digest": "00112233445566778899aabbccddeeff", "node": {
                "samples": 60_000, "served": [750, 0, 0, 0, 250], "served_bytes": [7_500, 0, 0, 0, 2_500],
                "memory_bytes": 50, "memory_bytes_max": 100, "memory_entries": 5,
                "regions": {"hot_bytes": 30, "hot_bytes_max": 60, "hot_hits": 7, "cold_bytes": 20, "cold_bytes_max": 40, "cold_hits": 3},
                "jobs": [{"name": "resnet\u{1b}[2J", "epoch": 3, "requests": 1_000, "hits": 750, "benefit": 0.5}],
            }}],
        });
        let mut view = NodeView::new("grist://h:1");
        let then = Instant::now();
        view.take(
            then,
            json!({"up_s": 3_723.0, "samples": 1_000, "bytes": 1_000_000, "ops": {"cpu_s": 1.25},
            "sets": [{"node": {"served": [500, 0, 0, 0, 100]}}]}),
        );
        view.take(then + Duration::from_secs(2), report);
        let text = view.table();
        for words in [
            "up 1 h 2 min",
            "2 of 4,096",
            "1,000 samples/s now",
            "4.0 MB/s now",
            "62.5 % now",
            "0.50 of 1.5 cores now",
            "hot 30 B of 60 B, 7 hits; cold 20 B of 40 B, 3 hits",
            "1.5 cores, 2.2 s of CPU; 3 of 256 wait; 7 sent raw",
            "2,000 cut (5.0 MB)",
            "1,500 pictures stay decoded, 140.0 MB of 536.9 MB; 9,000 samples needed no decoding",
            "train (60,000 samples, digest 001122334455)",
            "50 B of 100 B, 5 samples",
            "75.0 %  750 samples, 7.5 kB",
            "75.0 %      0.50",
        ] {
            assert!(text.contains(words), "{words:?} is missing in\n{text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains("from disk"), "{text}");
        assert_eq!(
            view.lines(),
            [
                "up 1 h 2 min, 1,000 samples/s, 4.0 MB/s, hits 62.5 %, ops 0.50 of 1.5 cores (3 wait), memory 50 B of 100 B, 1 job"
            ]
        );
        let mut odd = NodeView::new("x");
        odd.take(then, json!({"sets": [1, {"node": {"served": ["a"], "jobs": [2]}}]}));
        assert!(odd.table().contains('x') && odd.lines().len() == 1);
    }
}
