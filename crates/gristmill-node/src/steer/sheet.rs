//! What an epoch came to, in the figures that the next one is predicted from.

use crate::cores;
use crate::report::{EpochReport, Wait};
use crate::split::{Shortfall, SplitReport};
use rustix::time::{ClockId, clock_gettime};

/// An epoch shorter than this says nothing that could be relied on.
const WALL_MS_MIN: f64 = 30.0;
const BATCHES_MIN: u32 = 8;
/// Waiting less than this is not worth moving anything.
pub(super) const WAIT_SHARE_MIN: f64 = 0.04;

/// CPU time of this machine so far, or of this process where only that is known.
pub(super) fn busy_s() -> f64 {
    cores::machine_busy_s().unwrap_or_else(|| {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
    })
}

/// One epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sheet {
    pub(super) epoch: u64,
    pub(super) seconds_per_sample: f64,
    /// What the consumer takes for a batch.
    pub(super) step_s: f64,
    /// CPU time of the loader's threads per sample.
    pub(super) cpu_s: f64,
    /// Time that a thread that reads for itself stands still for a sample.
    pub(super) blocked_s: f64,
    /// Time that a read in flight takes.
    pub(super) flight_s: f64,
    /// Cores that others than the loader's threads had.
    pub(super) busy_cores: f64,
    /// The share of samples that a cache gave.
    pub(super) cached: f64,
    pub(super) wait_share: f64,
    /// Of the time, what was waited for bytes.
    pub(super) fetch_share: f64,
    /// What was waited for, as a clause.
    pub(super) cause: String,
}

impl Sheet {
    /// The sheet of an epoch that was read to its end; none if it is too short to say anything, or if the node was away in it:
    /// that says nothing of how samples are cut. `link` is what bytes come over.
    pub(super) fn new(report: &EpochReport, busy_s: f64, link: &str) -> Option<Sheet> {
        if report.wall_ms < WALL_MS_MIN || report.batches < BATCHES_MIN || report.samples == 0 {
            return None;
        }
        let away = |split: &SplitReport| {
            split.shortfalls.iter().any(|one| one.why == Shortfall::Away && one.samples > 0)
        };
        if report.split.as_ref().is_some_and(away) {
            return None;
        }
        let (samples, processed) = (report.samples as f64, report.processed.max(1) as f64);
        let wall_s = report.wall_ms / 1e3;
        let cpu_s = report.loader_cpu_ms / 1e3;
        let worked_s = (report.fetch_ms + report.decode_ms + report.ops_ms) / 1e3;
        let cached = report.hit_ratio().unwrap_or(if report.from_memory { 1.0 } else { 0.0 });
        let reads = (processed * (1.0 - cached)).max(1.0);
        let Wait { total_ms, fetch_ms, .. } = report.wait;
        Some(Sheet {
            epoch: report.epoch,
            seconds_per_sample: wall_s / samples,
            step_s: ((report.wall_ms - total_ms) / 1e3 / f64::from(report.batches)).max(0.0),
            cpu_s: cpu_s / processed,
            blocked_s: (worked_s - cpu_s).max(0.0) / processed,
            flight_s: report.fetch_ms / 1e3 / reads,
            busy_cores: ((busy_s - cpu_s) / wall_s).max(0.0),
            cached,
            wait_share: report.wait_share(),
            fetch_share: (fetch_ms / report.wall_ms).min(1.0),
            cause: cause(report, link),
        })
    }
}

impl Sheet {
    /// Whether its times differ from another epoch's by no more than this share of them; shares and cores by no more than
    /// that much. How long a read was under way is left out: it says how many there were.
    pub(super) fn is_like(&self, other: &Sheet, share: f64) -> bool {
        let times = [
            (self.seconds_per_sample, other.seconds_per_sample),
            (self.step_s, other.step_s),
            (self.cpu_s, other.cpu_s),
        ];
        let shares = [
            (self.cached, other.cached),
            (self.busy_cores, other.busy_cores),
            (self.fetch_share, other.fetch_share),
        ];
        times.iter().all(|(a, b)| (a - b).abs() <= share * b)
            && shares.iter().all(|(a, b)| (a - b).abs() <= share)
    }
}

/// What training waited for most, as a clause with its share.
fn cause(report: &EpochReport, link: &str) -> String {
    let Wait { total_ms, fetch_ms, decode_ms, ops_ms, hand_over_ms } = report.wait;
    let share = |ms: f64| (ms / report.wall_ms.max(1e-9) * 100.0).min(100.0);
    let causes = [
        (fetch_ms, link),
        (decode_ms, "decoding"),
        (ops_ms, "the other ops"),
        (hand_over_ms, "the hand-over"),
    ];
    let most = causes.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    match most {
        Some((ms, what)) if ms > 0.0 => format!("{:.0} % of the time is waiting for {what}", share(ms)),
        _ => format!("{:.0} % of the time is waiting", share(total_ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::ShortfallUse;

    #[test]
    fn an_epoch_is_taken_apart() {
        let wait = Wait { total_ms: 1_500.0, fetch_ms: 1_420.0, decode_ms: 80.0, ..Wait::default() };
        let report = EpochReport {
            epoch: 3,
            batches: 10,
            samples: 100,
            processed: 100,
            wall_ms: 2_000.0,
            loader_cpu_ms: 400.0,
            fetch_ms: 3_000.0,
            decode_ms: 300.0,
            ops_ms: 100.0,
            wait,
            ..EpochReport::default()
        };
        let sheet = Sheet::new(&report, 1.4, "the link").unwrap();
        assert_eq!(sheet.cause, "71 % of the time is waiting for the link");
        for (what, is, should) in [
            ("per sample", sheet.seconds_per_sample, 0.02),
            ("step", sheet.step_s, 0.05),
            ("cpu", sheet.cpu_s, 0.004),
            ("blocked", sheet.blocked_s, 0.03),
            ("flight", sheet.flight_s, 0.03),
            ("others", sheet.busy_cores, 0.5),
            ("fetch", sheet.fetch_share, 0.71),
        ] {
            assert!((is - should).abs() < 1e-9, "{what}: {is}");
        }
        let slower = Sheet { seconds_per_sample: 0.0215, ..sheet.clone() };
        assert!(slower.is_like(&sheet, 0.1) && !slower.is_like(&sheet, 0.05));
        assert!(!Sheet { cached: 0.3, ..sheet.clone() }.is_like(&sheet, 0.2));
        assert_eq!(Sheet::new(&EpochReport { wall_ms: 20.0, ..report.clone() }, 1.0, ""), None, "too short");
        assert_eq!(
            Sheet::new(&EpochReport { batches: 2, ..report.clone() }, 1.0, ""),
            None,
            "too few batches"
        );
        let split = |why| {
            let shortfalls = vec![ShortfallUse { why, reason: "", samples: 1 }];
            EpochReport {
                split: Some(SplitReport { shortfalls, ..SplitReport::default() }),
                ..report.clone()
            }
        };
        assert_eq!(Sheet::new(&split(Shortfall::Away), 1.0, ""), None, "without its node");
        assert!(Sheet::new(&split(Shortfall::Busy), 1.0, "").is_some());
    }
}
