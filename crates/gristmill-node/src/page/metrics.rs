//! A run's figures as Prometheus reads them.

use crate::report::{EpochReport, TierUse};
use crate::selection::SelectionReport;
use crate::serve::metrics::Text;

/// The last report in the text format of Prometheus.
pub(crate) fn text(report: Option<&EpochReport>, epochs: u64) -> String {
    let mut out = Text::default();
    out.counter("run_epochs_total", "Epochs that are done.", epochs);
    let Some(report) = report else { return out.end() };
    out.gauge("run_epoch", "The running epoch, or the last one.", report.epoch);
    out.gauge("run_samples_per_second", "Samples handed over per second of the epoch.", report.samples_per_s);
    out.gauge("run_wait_share", "The part of the epoch that training waited.", report.wait_share());
    let kept = report.selection.as_ref().map_or(1.0, SelectionReport::kept_share);
    out.gauge("run_kept_share", "The part of the data set that the epoch trains on.", kept);
    if let Some(accuracy) = report.selection.as_ref().and_then(|selection| selection.probe) {
        let help = "The accuracy on the samples that are never skipped, in the epoch before.";
        out.gauge("run_probe_accuracy", help, accuracy);
    }
    let shares = report.selection.iter().flat_map(|selection| &selection.class_shares);
    if let Some(least) = shares.copied().reduce(f32::min) {
        out.gauge("run_class_kept_share_least", "The least that a class has of its samples.", least);
    }
    if let Some(ratio) = report.hit_ratio() {
        out.gauge("run_hit_ratio", "The part of the samples that did not come from the store.", ratio);
    }
    out.gauge("run_epoch_bytes", "Bytes read in the epoch.", report.bytes);
    out.head("run_wait_seconds", "gauge", "Time that training waited in the epoch, by what for.");
    let wait = report.wait;
    for (what, ms) in [
        ("fetch", wait.fetch_ms),
        ("decode", wait.decode_ms),
        ("ops", wait.ops_ms),
        ("hand_over", wait.hand_over_ms),
    ] {
        out.line(format_args!("gristmill_run_wait_seconds{{what=\"{what}\"}} {}", ms / 1e3));
    }
    if !report.tiers.is_empty() {
        out.head("run_tier_samples", "gauge", "Samples of the epoch, by tier.");
        for TierUse { tier, samples, .. } in &report.tiers {
            out.line(format_args!("gristmill_run_tier_samples{{tier=\"{tier}\"}} {samples}"));
        }
    }
    out.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Tier;
    use crate::report::Wait;
    use crate::serve;
    use std::collections::BTreeSet;

    fn run() -> String {
        let tiers = Tier::ALL.map(|tier| TierUse { tier, samples: 1, bytes: 1 })[..5].to_vec();
        let wait = Wait { total_ms: 500.0, fetch_ms: 500.0, ..Wait::default() };
        text(Some(&EpochReport { epoch: 2, wall_ms: 1_000.0, wait, tiers, ..EpochReport::default() }), 3)
    }

    #[test]
    fn a_run_in_figures() {
        let text = run();
        for line in [
            "gristmill_run_epochs_total 3",
            "gristmill_run_epoch 2",
            "gristmill_run_wait_share 0.5",
            "gristmill_run_hit_ratio 0.6",
            "gristmill_run_wait_seconds{what=\"fetch\"} 0.5",
            "gristmill_run_tier_samples{tier=\"store\"} 1",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
        }
        assert_eq!(super::text(None, 0).lines().count(), 3);
    }

    /// The names of figures in a text.
    fn names(text: &str) -> BTreeSet<String> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        text.split(|c| !word(c)).filter(|name| name.starts_with("gristmill_")).map(String::from).collect()
    }

    #[test]
    fn the_dashboard_asks_for_what_there_is() {
        let there = names(&(run() + &serve::metrics::text(&crate::metrics::server())));
        let dashboard = include_str!("../../../../docs/grafana/gristmill.json");
        let panels: serde_json::Value = serde_json::from_str(dashboard).unwrap();
        let mut asked = BTreeSet::new();
        for panel in panels["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                asked.append(&mut names(target["expr"].as_str().unwrap()));
            }
        }
        assert!(asked.len() > 20);
        assert_eq!(asked.difference(&there).collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
