//! What the split did in an epoch, for people and programs.

use super::{Begun, Shortfall};
use gristmill_core::split::{Resources, Times};
use gristmill_ops::Stage;
use serde::Serialize;
use std::fmt;

/// What came at one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StageUse {
    /// The stage.
    pub stage: Stage,
    /// Samples.
    pub samples: u64,
    /// Their bytes as they came.
    pub bytes: u64,
    /// Their bytes in the store.
    pub raw_bytes: u64,
}

/// Samples that came raw although a stage was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ShortfallUse {
    /// Why.
    pub why: Shortfall,
    /// The same in words.
    pub reason: &'static str,
    /// How many.
    pub samples: u64,
}

/// Seconds that each resource needs for the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Seconds {
    /// Of the link.
    pub link_s: f64,
    /// Of the node's cores.
    pub upstream_s: f64,
    /// Of the cores here.
    pub local_s: f64,
    /// Of the accelerator.
    pub accelerator_s: f64,
}

impl From<Times> for Seconds {
    fn from(times: Times) -> Seconds {
        let Times { link_s, upstream_s, local_s, accelerator_s } = times;
        Seconds { link_s, upstream_s, local_s, accelerator_s }
    }
}

/// How fast the resources were when it was decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Of the link.
    pub link_bytes_per_s: f64,
    /// Cores of the node's ops.
    pub upstream_cores: f64,
    /// Cores here.
    pub local_cores: f64,
    /// Of the accelerator; none when it is never waited for.
    pub accelerator_samples_per_s: Option<f64>,
}

impl From<Resources> for Rates {
    fn from(resources: Resources) -> Rates {
        let accelerator = resources.accelerator_samples_per_s;
        Rates {
            link_bytes_per_s: resources.link_bytes_per_s,
            upstream_cores: resources.upstream_cores,
            local_cores: resources.local_cores,
            accelerator_samples_per_s: accelerator.is_finite().then_some(accelerator),
        }
    }
}

/// What the split did in an epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SplitReport {
    /// What was asked for: a policy, `auto`, or a stage.
    pub mode: String,
    /// The policy that decided; `none` while everything comes raw.
    pub policy: String,
    /// Why, in one sentence.
    pub reason: String,
    /// What came over the link, by stage; empty without a node.
    pub stages: Vec<StageUse>,
    /// Samples for which a stage was wanted.
    pub wanted: u64,
    /// Samples that came raw although a stage was wanted, by reason.
    pub shortfalls: Vec<ShortfallUse>,
    /// Bytes that came over the link.
    pub bytes: u64,
    /// What they would have been as raw samples.
    pub raw_bytes: u64,
    /// CPU time of the node's ops.
    pub upstream_cpu_s: f64,
    /// How long the epoch was expected to take; none before there was a profile.
    pub predicted_s: Option<f64>,
    /// How long it was expected to take unsplit.
    pub predicted_raw_s: Option<f64>,
    /// How long it took.
    pub measured_s: f64,
    /// The time of each resource, as expected.
    pub predicted: Option<Seconds>,
    /// How fast the resources were.
    pub rates: Option<Rates>,
    /// Samples that a cache here has and that came prepared all the same, since decoding them here would take longer.
    pub past: u64,
    /// How many times longer it was to take because of what is done once, such as decoding pictures that the node keeps.
    pub once: f64,
    /// If it began inside an epoch that a steering left unsplit: what it was to bring, and what it brought.
    pub begun: Option<Begun>,
    /// Samples that were measured for the profile so far.
    pub profiled: u64,
    /// Bytes that were fetched beside the epoch to learn how fast the node is.
    pub calibration_bytes: u64,
}

impl SplitReport {
    /// How many times less came than raw samples would have been.
    pub fn traffic_ratio(&self) -> f64 {
        if self.bytes == 0 { 1.0 } else { self.raw_bytes as f64 / self.bytes as f64 }
    }
}

impl fmt::Display for SplitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "split {}: {}", self.mode, self.reason)?;
        if self.bytes > 0 {
            let (came, raw) = (self.bytes as f64 / 1e6, self.raw_bytes as f64 / 1e6);
            let ratio = self.traffic_ratio();
            write!(f, "\n    {came:.1} MB over the link instead of {raw:.1} ({ratio:.2}x less)")?;
            for StageUse { stage, samples, bytes, .. } in self.stages.iter().filter(|used| used.samples > 0) {
                write!(f, "; {samples} {} ({:.1} MB)", stage.name(), *bytes as f64 / 1e6)?;
            }
        }
        if self.past > 0 {
            let noun = if self.past == 1 { "sample" } else { "samples" };
            write!(
                f,
                "\n    {} {noun} of the cache came prepared: decoding here would take longer",
                self.past
            )?;
        }
        if self.calibration_bytes > 0 {
            let beside = self.calibration_bytes as f64 / 1e6;
            write!(f, "\n    {beside:.1} MB beside that, once, to learn how fast the node is")?;
        }
        if self.upstream_cpu_s > 0.0 {
            write!(f, "\n    {:.2} s of the node's CPU", self.upstream_cpu_s)?;
        }
        if let Some(predicted) = self.predicted_s {
            write!(f, "\n    predicted {predicted:.2} s, took {:.2} s", self.measured_s)?;
        }
        for ShortfallUse { reason, samples, .. } in &self.shortfalls {
            let noun = if *samples == 1 { "sample" } else { "samples" };
            write!(f, "\n    {samples} {noun} came raw: {reason}")?;
        }
        Ok(())
    }
}
