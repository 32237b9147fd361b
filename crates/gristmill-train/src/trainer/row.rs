//! What an epoch of training came to.

use gristmill_node::report::{EpochReport, Wait};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::time::Instant;

/// One epoch's outcome. Times and bytes are of training alone, without the evaluation on test data.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EpochRow {
    /// Which epoch, counted from 0.
    pub epoch: u64,
    /// The learning rate after any warm-up.
    pub rate: f64,
    /// The mean weighted loss of the samples served.
    pub loss: f64,
    /// The share of them that the model had right when it met them.
    pub accuracy: f64,
    /// The mean loss on the test data, if there is any.
    pub test_loss: Option<f64>,
    /// The share of the test data that the model has right after the epoch.
    pub test_accuracy: Option<f64>,
    /// Samples in the data set.
    pub samples: u64,
    /// Samples of the epoch, each counted once.
    pub kept: u64,
    /// Samples that were loaded and looked at, repeats counted.
    pub served: u64,
    /// Samples that a step was made with.
    pub trained: u64,
    /// Steps.
    pub steps: u64,
    /// Bytes of raw samples read.
    pub bytes: u64,
    /// Time of the epoch, with its selection.
    pub wall_ms: f64,
    /// The part of it that went to selecting samples and starting threads.
    pub begin_ms: f64,
    /// Time of training from the first epoch to the end of this one.
    pub elapsed_ms: f64,
    /// CPU time of the whole process in the epoch: training, loading and selecting.
    pub cpu_ms: f64,
    /// How long training waited for samples, and for what.
    pub wait: Wait,
    /// Samples left out because they are bad.
    pub skipped: u64,
    /// Reads that were tried again.
    pub retries: u64,
    /// Whether a small model was trained, to select by.
    pub proxy: bool,
    /// Why the epoch had these samples, in one line; empty if it had all.
    pub reason: String,
}

impl EpochRow {
    /// The part of the data set that the epoch had.
    pub fn kept_share(&self) -> f64 {
        share(self.kept, self.samples)
    }

    /// The part of the data set that a step was made with.
    pub fn trained_share(&self) -> f64 {
        share(self.trained, self.samples)
    }

    /// The part of the time that was spent waiting.
    pub fn wait_share(&self) -> f64 {
        if self.wall_ms > 0.0 { (self.wait.total_ms / self.wall_ms).min(1.0) } else { 0.0 }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What an epoch came to so far. Kept in checkpoints, so that a resumed epoch counts what came before.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Sums {
    pub(super) loss: f64,
    pub(super) correct: u64,
    pub(super) served: u64,
    pub(super) trained: u64,
    pub(super) steps: u64,
    /// What earlier parts of an interrupted epoch cost.
    pub(super) cost: Cost,
}

/// Time and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Cost {
    pub(super) wall_ms: f64,
    pub(super) begin_ms: f64,
    pub(super) cpu_ms: f64,
    pub(super) wait: Wait,
    pub(super) bytes: u64,
    pub(super) skipped: u64,
    pub(super) retries: u64,
}

impl Cost {
    /// This and what a part of an epoch cost.
    pub(super) fn with(self, report: &EpochReport, watch: &Watch) -> Cost {
        Cost {
            wall_ms: self.wall_ms + watch.started.elapsed().as_secs_f64() * 1e3,
            begin_ms: self.begin_ms + watch.begin_ms,
            cpu_ms: self.cpu_ms + process_cpu_ms() - watch.cpu_ms,
            wait: Wait {
                total_ms: self.wait.total_ms + report.wait.total_ms,
                fetch_ms: self.wait.fetch_ms + report.wait.fetch_ms,
                decode_ms: self.wait.decode_ms + report.wait.decode_ms,
                ops_ms: self.wait.ops_ms + report.wait.ops_ms,
                hand_over_ms: self.wait.hand_over_ms + report.wait.hand_over_ms,
            },
            bytes: self.bytes + report.bytes,
            skipped: self.skipped + report.skipped,
            retries: self.retries + report.retries,
        }
    }
}

/// Measures a part of an epoch.
#[derive(Debug)]
pub(super) struct Watch {
    started: Instant,
    cpu_ms: f64,
    begin_ms: f64,
}

impl Watch {
    pub(super) fn start() -> Watch {
        Watch { started: Instant::now(), cpu_ms: process_cpu_ms(), begin_ms: 0.0 }
    }

    /// Notes that the epoch has begun: its samples are selected.
    pub(super) fn begun(&mut self) {
        self.begin_ms = self.started.elapsed().as_secs_f64() * 1e3;
    }
}

fn process_cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

impl Sums {
    /// The mean loss and accuracy so far.
    pub(super) fn means(&self) -> (f64, f64) {
        let count = self.served.max(1) as f64;
        (self.loss / count, self.correct as f64 / count)
    }
}
