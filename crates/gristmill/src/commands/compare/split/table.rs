//! The table of a comparison of splits: of each policy the epoch of median length; as text, as JSON and as a picture.

use crate::output::counted;
use crate::plot::{Series, Words, lines};
use gristmill_core::split::SplitPolicy;
use gristmill_node::split::SplitReport;
use serde::Serialize;
use std::collections::BTreeMap;

/// What all sides have in common.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Setting {
    pub(super) link_bytes_per_s: u64,
    pub(super) link: &'static str,
    pub(super) accelerator_samples_per_s: Option<f64>,
    pub(super) epochs: u64,
}

/// One epoch of one policy.
#[derive(Debug, Clone, Default)]
pub(super) struct Ran {
    pub(super) epoch_s: f64,
    pub(super) local_cpu_s: f64,
    pub(super) samples: u64,
    pub(super) digest: u64,
    pub(super) split: SplitReport,
}

/// One policy's figures with one number of cores, as printed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    policy: &'static str,
    upstream_cores: f64,
    traffic_bytes: u64,
    traffic_ratio: f64,
    epoch_s: f64,
    predicted_s: Option<f64>,
    speedup: f64,
    upstream_cpu_s: f64,
    local_cpu_s: f64,
    stages: BTreeMap<&'static str, u64>,
    fallbacks: u64,
    samples: u64,
    #[serde(flatten)]
    setting: Setting,
    reason: String,
}

/// One row per policy; the first is what the others are compared with.
pub(super) fn rows(
    cores: f64,
    setting: Setting,
    sides: impl Iterator<Item = (SplitPolicy, Vec<Ran>)>,
) -> Vec<Row> {
    let mut first = None;
    let one = |(policy, ran): (SplitPolicy, Vec<Ran>)| {
        let Ran { epoch_s, local_cpu_s, samples, split, .. } = median(ran);
        let used = split.stages.iter().filter(|used| used.samples > 0);
        Row {
            policy: policy.name(),
            upstream_cores: cores,
            traffic_bytes: split.bytes,
            traffic_ratio: split.traffic_ratio(),
            epoch_s,
            predicted_s: split.predicted_s,
            speedup: *first.get_or_insert(epoch_s) / epoch_s.max(1e-9),
            upstream_cpu_s: split.upstream_cpu_s,
            local_cpu_s,
            stages: used.map(|used| (used.stage.name(), used.samples)).collect(),
            fallbacks: split.shortfalls.iter().map(|short| short.samples).sum(),
            samples,
            setting,
            reason: split.reason,
        }
    };
    sides.map(one).collect()
}

/// The epoch of median length: all figures of a row are those of one epoch.
fn median(mut ran: Vec<Ran>) -> Ran {
    ran.sort_by(|a, b| a.epoch_s.total_cmp(&b.epoch_s));
    let middle = ran.len().saturating_sub(1) / 2;
    ran.into_iter().nth(middle).unwrap_or_default()
}

pub(super) fn text(rows: &[Row], setting: Setting) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<9} {:>5}  {:>9} {:>7}  {:>8} {:>7}  {:>9} {:>6}  {:>8}  {:>8}  {}",
        "policy", "cores", "traffic", "", "epoch", "", "predicted", "", "node CPU", "own CPU", "came as"
    )];
    let mut cores = None;
    for row in rows {
        if cores
            .replace(row.upstream_cores)
            .is_some_and(|before| before.to_bits() != row.upstream_cores.to_bits())
        {
            lines.push(String::new());
        }
        let (predicted, off) = row.predicted_s.map_or_else(
            || ("-".into(), String::new()),
            |s| (format!("{s:.2} s"), format!("{:+.0} %", (s / row.epoch_s.max(1e-9) - 1.0) * 100.0)),
        );
        let stages: Vec<String> =
            row.stages.iter().map(|(stage, samples)| format!("{samples} {stage}")).collect();
        let fallbacks =
            if row.fallbacks > 0 { format!(" ({} fell back to raw)", row.fallbacks) } else { String::new() };
        lines.push(format!(
            "{:<9} {:>5}  {:>6.1} MB {:>6.2}x  {:>6.2} s {:>6.2}x  {predicted:>9} {off:>6}  {:>6.2} s  {:>6.2} s  {}{fallbacks}",
            row.policy,
            row.upstream_cores,
            row.traffic_bytes as f64 / 1e6,
            row.traffic_ratio,
            row.epoch_s,
            row.speedup,
            row.upstream_cpu_s,
            row.local_cpu_s,
            stages.join(", "),
        ));
    }
    let accelerator = setting
        .accelerator_samples_per_s
        .map_or_else(|| "no accelerator".into(), |rate| format!("an accelerator of {rate} samples/s"));
    lines.push(format!(
        "{}, the median of {} after two that profile; x: traffic less than raw, epochs faster than none; all batches alike",
        counted(rows.first().map_or(0, |row| row.samples), "sample", "samples"),
        counted(setting.epochs, "epoch", "epochs"),
    ));
    let how = match setting.link {
        "namespace" => "a network namespace with a rate limit",
        _ => "paced by the client",
    };
    lines.push(format!(
        "a link of {:.0} Mbit/s ({how}), {accelerator}, node and client on one machine",
        setting.link_bytes_per_s as f64 * 8e-6
    ));
    lines
}

/// Epoch time by cores, one line per policy.
pub(super) fn picture(rows: &[Row]) -> String {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let point = (row.upstream_cores, row.epoch_s);
        match series.iter_mut().find(|line| line.name == row.policy) {
            Some(line) => line.points.push(point),
            None => series.push(Series { name: row.policy.into(), points: vec![point] }),
        }
    }
    series.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let words = Words {
        title: "Epoch time by what the node may compute",
        x: "cores of the node for ops",
        y: "seconds per epoch",
    };
    lines(words, &series)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_against_none() {
        let ran = |epoch_s, bytes, predicted_s| Ran {
            epoch_s,
            samples: 10,
            split: SplitReport { bytes, raw_bytes: 300, predicted_s, ..SplitReport::default() },
            ..Ran::default()
        };
        let setting = Setting {
            link_bytes_per_s: 62_500_000,
            link: "throttle",
            accelerator_samples_per_s: None,
            epochs: 3,
        };
        let sides = [
            (SplitPolicy::None, vec![ran(3.0, 300, Some(3.1)); 3]),
            (
                SplitPolicy::Best,
                vec![ran(1.0, 100, Some(1.1)), ran(9.0, 100, Some(1.1)), ran(1.5, 100, Some(1.2))],
            ),
        ];
        let rows = rows(0.5, setting, sides.into_iter());
        let best = &rows[1];
        assert_eq!((best.epoch_s, best.speedup, best.traffic_ratio), (1.5, 2.0, 3.0));
        assert_eq!((best.traffic_bytes, best.predicted_s), (100, Some(1.2)));
        let text = text(&rows, setting).join("\n");
        assert!(text.contains("500 Mbit/s (paced by the client)") && text.contains("-20 %"), "{text}");
        assert!(picture(&rows).contains("best"));
    }
}
