//! A run's figures as Prometheus reads them.

use crate::report::{EpochReport, TierUse};
use crate::selection::SelectionReport;
use crate::serve::metrics::Text;

/// The last report in the text format of Prometheus.
pub(super) fn text(report: Option<&EpochReport>, epochs: u64) -> String {
    let mut out = Text::default();
    out.counter("run_epochs_total", "Epochs that are done.", epochs);
    let Some(report) = report else { return out.end() };
    out.gauge("run_epoch", "The running epoch, or the last one.", report.epoch);
    out.gauge("run_samples_per_second", "Samples handed over per second of the epoch.", report.samples_per_s);
    out.gauge("run_wait_share", "The part of the epoch that training waited.", report.wait_share());
    let kept = report.selection.as_ref().map_or(1.0, SelectionReport::kept_share);
    out.gauge("run_kept_share", "The part of the data set that the epoch trains on.", kept);
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
