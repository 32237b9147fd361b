//! What one training came to, as it is kept and compared.

use gristmill_node::report::EpochReport;
use gristmill_node::steer::Decision;
use gristmill_train::EpochRow;
use serde::{Deserialize, Serialize};

/// One epoch.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Epoch {
    pub(super) wall_s: f64,
    /// Training time from the beginning to the end of this epoch.
    pub(super) elapsed_s: f64,
    pub(super) wait_s: f64,
    /// The share of the test data that the model then has right.
    pub(super) accuracy: f64,
    pub(super) trained_share: f64,
}

/// A decision of the steering.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) seed: u64,
    pub(super) epoch: u64,
    pub(super) knob: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) action: String,
    pub(super) predicted: Option<f64>,
    pub(super) measured: Option<f64>,
    pub(super) reason: String,
    /// All of it in one line.
    pub(super) line: String,
}

impl Told {
    fn of(seed: u64, decision: &Decision) -> Told {
        let Decision { epoch, knob, from, to, action, predicted, measured, reason, line, .. } =
            decision.clone();
        Told { seed, epoch, knob, from, to, action, predicted, measured, reason, line }
    }
}

/// One job from beginning to end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Course {
    pub(super) epochs: Vec<Epoch>,
    pub(super) decisions: Vec<Told>,
}

/// One training of one configuration from one seed: a job, or two of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) jobs: Vec<Course>,
    pub(super) bytes_read: u64,
}

impl Course {
    /// Adds an epoch and what was decided before it.
    pub(super) fn add(&mut self, row: &EpochRow, report: &EpochReport, seed: u64) {
        self.epochs.push(Epoch {
            wall_s: row.wall_ms / 1e3,
            elapsed_s: row.elapsed_ms / 1e3,
            wait_s: row.wait.total_ms / 1e3,
            accuracy: row.test_accuracy.unwrap_or(0.0),
            trained_share: row.trained_share(),
        });
        self.decisions.extend(report.decisions.iter().map(|decision| Told::of(seed, decision)));
    }

    pub(super) fn accuracy(&self) -> f64 {
        self.epochs.last().map_or(0.0, |epoch| epoch.accuracy)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.epochs.last().map_or(0.0, |epoch| epoch.elapsed_s)
    }

    /// When it had this accuracy.
    fn time_to(&self, accuracy: f64, reached: Reached) -> Option<f64> {
        let at = match reached {
            Reached::First => self.epochs.iter().position(|epoch| epoch.accuracy >= accuracy)?,
            Reached::ToStay => {
                self.epochs.iter().rposition(|epoch| epoch.accuracy < accuracy).map_or(0, |last| last + 1)
            }
        };
        self.epochs.get(at).map(|epoch| epoch.elapsed_s)
    }
}

/// When an accuracy counts as reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// The first time; by chance that may be early.
    First,
    /// When it is not below it again until the end.
    ToStay,
}

impl Outcome {
    /// Until the slowest job was done.
    pub(super) fn seconds(&self) -> f64 {
        self.jobs.iter().map(Course::seconds).fold(0.0, f64::max)
    }

    /// The mean over the jobs.
    pub(super) fn accuracy(&self) -> f64 {
        self.jobs.iter().map(Course::accuracy).sum::<f64>() / self.jobs.len().max(1) as f64
    }

    /// Until every job was as good as the same job of `plain` in the end, but for `tolerance`.
    pub(super) fn time_to(&self, plain: &Outcome, tolerance: f64, reached: Reached) -> Option<f64> {
        let pairs = self.jobs.iter().zip(&plain.jobs);
        let times = pairs.map(|(own, plain)| own.time_to(plain.accuracy() - tolerance, reached));
        times.collect::<Option<Vec<f64>>>().map(|times| times.into_iter().fold(0.0, f64::max))
    }

    /// The mean over all epochs of all jobs.
    pub(super) fn mean(&self, of: fn(&Epoch) -> f64) -> f64 {
        let all: Vec<f64> = self.jobs.iter().flat_map(|job| &job.epochs).map(of).collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    }

    pub(super) fn decisions(&self) -> impl Iterator<Item = &Told> {
        self.jobs.iter().flat_map(|job| &job.decisions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(accuracies: &[f64], wall_s: f64) -> Course {
        let epoch = |(i, accuracy): (usize, &f64)| Epoch {
            wall_s,
            elapsed_s: wall_s * (i + 1) as f64,
            accuracy: *accuracy,
            ..Epoch::default()
        };
        Course { epochs: accuracies.iter().enumerate().map(epoch).collect(), decisions: Vec::new() }
    }

    #[test]
    fn the_slower_job_counts_and_each_has_its_own_measure() {
        let plain =
            Outcome { jobs: vec![course(&[0.5, 0.8], 4.0), course(&[0.5, 0.6], 3.0)], ..Outcome::default() };
        assert_eq!((plain.seconds(), plain.time_to(&plain, 0.0, Reached::First)), (8.0, Some(8.0)));
        let fast = Outcome {
            jobs: vec![course(&[0.7, 0.79, 0.85], 1.0), course(&[0.61, 0.6, 0.7], 1.0)],
            ..Outcome::default()
        };
        assert_eq!(fast.time_to(&plain, 0.0, Reached::First), Some(3.0));
        assert_eq!(fast.time_to(&plain, 0.011, Reached::First), Some(2.0));
        let dips = Outcome { jobs: vec![course(&[0.9, 0.7, 0.9], 1.0)], ..Outcome::default() };
        let times = [Reached::First, Reached::ToStay].map(|how| dips.time_to(&plain, 0.0, how));
        assert_eq!(times, [Some(1.0), Some(3.0)]);
        let never = Outcome { jobs: vec![course(&[0.9], 1.0), course(&[0.1], 1.0)], ..Outcome::default() };
        for how in [Reached::First, Reached::ToStay] {
            assert_eq!(never.time_to(&plain, 0.0, how), None);
        }
        assert!((fast.accuracy() - 0.775).abs() < 1e-9);
    }
}
