//! An epoch's report at a glance: a few rows for a terminal, of a training in this process or behind a page.
//!
//! It reads the report as JSON, which is what a page sends, so that both show the same. What a report lacks is left out.

use crate::bars::parts;
use crate::output::{counted, grouped, name, size};
use serde_json::Value;

/// What the time goes to: the key in `wait`, its word, its cell in the bar.
const WAITS: [(&str, &str, char); 4] = [
    ("fetch_ms", "fetch", '▓'),
    ("decode_ms", "decode", '▒'),
    ("ops_ms", "other ops", '░'),
    ("hand_over_ms", "hand-over", '·'),
];
/// The cells of the bar.
const BAR: usize = 24;

pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

pub(crate) fn float(value: &Value, key: &str) -> Option<f64> {
    value.get(key).and_then(Value::as_f64).filter(|value| value.is_finite())
}

pub(crate) fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// The rows of an epoch's report: what each is about, and what there is to say.
pub(crate) fn rows(report: &Value) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    rows.extend(time(report).map(|text| ("time", text)));
    rows.push(("data", data(report)));
    if let Some(split) = report.get("split").filter(|split| split.is_object()) {
        rows.push(("split", split_words(split)));
    }
    if let Some(exchange) = report.get("exchange").filter(|exchange| exchange.is_object()) {
        let wait_ms = float(exchange, "wait_ms").unwrap_or(0.0);
        rows.push((
            "exchange",
            format!(
                "sent {}, received {}, waited {wait_ms:.0} ms",
                size(number(exchange, "bytes_sent")),
                size(number(exchange, "bytes_received"))
            ),
        ));
    }
    rows.push(("knobs", knobs(report)));
    rows
}

/// Where the time goes, as a bar and in words; none before there is any.
fn time(report: &Value) -> Option<String> {
    let wall_ms = float(report, "wall_ms").filter(|ms| *ms > 0.0)?;
    let wait = report.get("wait")?;
    let shares = WAITS.map(|(key, word, cell)| (word, cell, float(wait, key).unwrap_or(0.0) / wall_ms));
    let waited: f64 = shares.iter().map(|(.., share)| share).sum();
    let all = [("training", '█', (1.0 - waited).max(0.0))].into_iter().chain(shares);
    let drawn: Vec<(char, f64)> = all.clone().map(|(_, cell, share)| (cell, share)).collect();
    let told = all.filter(|(.., share)| *share >= 0.005);
    let words: Vec<String> =
        told.map(|(word, cell, share)| format!("{cell} {word} {:.0} %", share * 100.0)).collect();
    Some(format!("[{}] {}", parts(&drawn, BAR), words.join("  ")))
}

/// The share of samples that did not come from the store; none without a cache.
pub(crate) fn hit_ratio(report: &Value) -> Option<f64> {
    let samples = |behind: bool| -> u64 {
        let tiers = list(report, "tiers");
        let counts = tiers.filter(|one| !behind || matches!(word(one, "tier"), "store" | "upstream"));
        counts.map(|one| number(one, "samples")).sum()
    };
    let all = samples(false);
    (all > 0).then(|| 1.0 - samples(true) as f64 / all as f64)
}

/// The share of the data set that is trained; none if nothing is selected.
pub(crate) fn kept_share(report: &Value) -> Option<f64> {
    let selection = report.get("selection").filter(|selection| selection.is_object())?;
    Some(number(selection, "kept") as f64 / number(selection, "samples").max(1) as f64)
}

/// What is trained, what a cache had of it, and which tier gave how much.
fn data(report: &Value) -> String {
    let mut words = Vec::new();
    words.extend(kept_share(report).map(|share| format!("kept {:.0} %", share * 100.0)));
    words.extend(hit_ratio(report).map(|ratio| format!("hits {:.0} %", ratio * 100.0)));
    if let Some(regions) = report.get("regions").filter(|regions| regions.is_object()) {
        let all = list(report, "tiers").map(|one| number(one, "samples")).sum::<u64>().max(1) as f64;
        let share = |key: &str| number(regions, key) as f64 / all * 100.0;
        words.push(format!("hot {:.0} %, cold {:.0} %", share("hot"), share("cold")));
    }
    let tiers: Vec<String> = list(report, "tiers")
        .filter(|one| number(one, "bytes") > 0)
        .map(|one| format!("{} {}", name(word(one, "tier")), size(number(one, "bytes"))))
        .collect();
    if tiers.is_empty() {
        let held = report.get("from_memory").and_then(Value::as_bool).unwrap_or(false);
        words.push(format!("{} {}", if held { "memory" } else { "store" }, size(number(report, "bytes"))));
    }
    words.extend(tiers);
    words.join("  ")
}

/// In which form samples crossed the link, and what that saved.
fn split_words(split: &Value) -> String {
    let stages = list(split, "stages").filter(|stage| number(stage, "samples") > 0);
    let mut words: Vec<String> = stages
        .map(|stage| {
            format!("{} {}", name(word(stage, "stage")).to_lowercase(), grouped(number(stage, "samples")))
        })
        .collect();
    let (came, raw) = (number(split, "bytes"), number(split, "raw_bytes"));
    if came > 0 {
        words.push(format!("{} over the link instead of {}", size(came), size(raw)));
    }
    if words.is_empty() { name(word(split, "reason")) } else { words.join("  ") }
}

/// How the epoch is read: what the steering moves.
fn knobs(report: &Value) -> String {
    let reads = match number(report, "reads_in_flight") {
        0 => "threads read for themselves".to_string(),
        many => counted(many, "read in flight", "reads in flight"),
    };
    format!(
        "{}  {reads}  {}",
        counted(number(report, "threads"), "thread", "threads"),
        counted(number(report, "prefetch_batches"), "batch ahead", "batches ahead")
    )
}

/// A decision's line, its epoch counted from 1 as everything that people are shown.
pub(crate) fn decision_line(line: &str) -> String {
    let numbered = line.strip_prefix("epoch ").and_then(|rest| rest.split_once(": "));
    match numbered.and_then(|(epoch, rest)| Some((epoch.parse::<u64>().ok()?, rest))) {
        Some((epoch, rest)) => format!("epoch {}: {}", epoch.saturating_add(1), name(rest)),
        None => name(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_at_a_glance() {
        let report = json!({
            "wall_ms": 1_000.0, "threads": 1, "reads_in_flight": 64, "prefetch_batches": 4,
            "wait": {"fetch_ms": 600.0, "decode_ms": 100.0, "ops_ms": 1.0, "hand_over_ms": 0.0},
            "selection": {"kept": 45, "samples": 100},
            "regions": {"hot": 40, "cold": 20},
            "tiers": [{"tier": "memory", "samples": 80, "bytes": 8_000}, {"tier": "store", "samples": 20, "bytes": 2_000},
                {"tier": "disk", "samples": 0, "bytes": 0}],
            "split": {"stages": [{"stage": "Cut", "samples": 1_200}, {"stage": "raw", "samples": 0}], "bytes": 100, "raw_bytes": 300},
            "exchange": {"bytes_sent": 10, "bytes_received": 20, "wait_ms": 3.2},
        });
        let rows = rows(&report);
        for (row, (label, words)) in rows.iter().zip([
            ("time", "[███████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▒▒▒] █ training 30 %  ▓ fetch 60 %  ▒ decode 10 %"),
            ("data", "kept 45 %  hits 80 %  hot 40 %, cold 20 %  memory 8.0 kB  store 2.0 kB"),
            ("split", "cut 1,200  100 B over the link instead of 300 B"),
            ("exchange", "sent 10 B, received 20 B, waited 3 ms"),
            ("knobs", "1 thread  64 reads in flight  4 batches ahead"),
        ]) {
            assert_eq!((row.0, row.1.as_str()), (label, words));
        }
        let odd = super::rows(
            &json!({"wait": 3, "tiers": "x", "split": {"reason": "no\u{1b}de"}, "wall_ms": -1.0}),
        );
        assert!(odd.iter().all(|(_, text)| !text.contains('\u{1b}')), "{odd:?}");
        assert_eq!(super::rows(&Value::Null).len(), 2);
    }

    #[test]
    fn epochs_are_counted_from_1() {
        assert_eq!(decision_line("epoch 4: split none -> best kept"), "epoch 5: split none -> best kept");
        assert_eq!(decision_line("epoch x: a\u{1b}"), "epoch x: a\\u{1b}");
    }
}
