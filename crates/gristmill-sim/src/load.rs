//! What is trained on: so many samples of these sizes and classes, and what each costs to prepare and to learn.
//!
//! Only a few figures of a data set are needed. The size of each sample is drawn once from the seed, around the mean and
//! with the spread that were given, so that large samples are large in every epoch and on every rank. Time to decode
//! is proportional to size.

use crate::machine::check_seconds;
use gristmill_core::Invalid;
use gristmill_core::math::exp2;
use gristmill_core::rng::{Stream, key};

/// The most samples that are simulated.
pub const SAMPLES_MAX: u32 = 100_000_000;
/// The largest sample.
const BYTES_MAX: f64 = 1e12;
/// Folded into the keys of what is drawn here, so that no other stream has them.
const SIZES: u64 = 0x5153_4d49_5a45;

/// Who holds which labels at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Labels {
    /// Every rank has about the same of every class.
    #[default]
    Even,
    /// Samples lie sorted by class, so that a rank has few classes: the worst case.
    Sorted,
}

impl Labels {
    /// Every partition by its name.
    pub const NAMES: [(&'static str, Labels); 2] = [("even", Labels::Even), ("sorted", Labels::Sorted)];
}

/// A data set and a model, as figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// How many samples there are.
    pub samples: u32,
    /// Mean size of a sample.
    pub bytes: f64,
    /// Standard deviation of sizes, as a share of their mean.
    pub spread: f64,
    /// How many classes there are, all equally large.
    pub classes: u32,
    /// Who holds which of them at first.
    pub labels: Labels,
    /// Samples per batch of one rank.
    pub batch: u32,
    /// CPU time that preparing a sample takes.
    pub cpu_s: f64,
    /// Time that the accelerator takes for a batch, the exchange of gradients included.
    pub step_s: f64,
}

impl Default for Load {
    /// ImageNet-like pictures in batches of 64.
    fn default() -> Load {
        Load {
            samples: 128_000,
            bytes: 110_000.0,
            spread: 0.0,
            classes: 1_000,
            labels: Labels::Even,
            batch: 64,
            cpu_s: 5e-3,
            step_s: 0.2,
        }
    }
}

impl Load {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.samples == 0 || self.samples > SAMPLES_MAX {
            return Err(Invalid(format!("samples {} is not from 1 to {SAMPLES_MAX}", self.samples)));
        }
        if !(0.0..=BYTES_MAX).contains(&self.bytes) {
            return Err(Invalid(format!("bytes {} is not a size up to {BYTES_MAX}", self.bytes)));
        }
        if !(0.0..=10.0).contains(&self.spread) {
            return Err(Invalid(format!("spread {} is not from 0 to 10", self.spread)));
        }
        if self.classes == 0 || self.classes > self.samples {
            return Err(Invalid(format!("classes {} is not from 1 to {}", self.classes, self.samples)));
        }
        if self.batch == 0 || self.batch > 1 << 20 {
            return Err(Invalid(format!("batch {} is not from 1 to {}", self.batch, 1 << 20)));
        }
        check_seconds("the CPU time of a sample", self.cpu_s)?;
        check_seconds("the step", self.step_s)
    }

    /// The label of every sample.
    pub(crate) fn labels(&self) -> Vec<u32> {
        (0..self.samples).map(|id| id % self.classes).collect()
    }

    /// The size of every sample relative to the mean; empty when all are alike.
    pub(crate) fn relative_sizes(&self, seed: u64) -> Vec<f32> {
        if self.spread == 0.0 {
            return Vec::new();
        }
        // Log-normal, as sizes of compressed pictures nearly are; its sigma in powers of two.
        let variance_ln =
            gristmill_core::math::log2(1.0 + self.spread * self.spread) * std::f64::consts::LN_2;
        let sigma = variance_ln.sqrt() / std::f64::consts::LN_2;
        let one = |id: u32| {
            let mut stream = Stream::from_key(key(&[seed, SIZES, id.into()]));
            // The sum of twelve uniform numbers is as normal as this needs.
            let normal = (0..12).map(|_| stream.unit()).sum::<f64>() - 6.0;
            exp2(sigma * normal)
        };
        let drawn: Vec<f64> = (0..self.samples).map(one).collect();
        let mean = drawn.iter().sum::<f64>() / f64::from(self.samples);
        drawn.iter().map(|size| (size / mean) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_mean_and_the_spread_that_were_asked_for() {
        for spread in [0.2, 0.5, 1.0] {
            let load = Load { samples: 20_000, spread, ..Load::default() };
            let sizes = load.relative_sizes(7);
            let n = f64::from(load.samples);
            let mean = sizes.iter().map(|s| f64::from(*s)).sum::<f64>() / n;
            let variance = sizes.iter().map(|s| (f64::from(*s) - mean).powi(2)).sum::<f64>() / n;
            assert!((mean - 1.0).abs() < 1e-5, "{mean}");
            assert!((variance.sqrt() / spread - 1.0).abs() < 0.1, "{spread}: {}", variance.sqrt());
            assert_eq!(sizes, load.relative_sizes(7));
            assert_ne!(sizes, load.relative_sizes(8));
        }
        assert!(Load::default().relative_sizes(7).is_empty());
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let with = |change: fn(&mut Load)| {
            let mut load = Load::default();
            change(&mut load);
            load.check().unwrap_err().0
        };
        assert!(with(|l| l.samples = 0).contains("samples 0"));
        assert!(with(|l| l.bytes = f64::NAN).contains("bytes NaN"));
        assert!(with(|l| l.spread = -0.1).contains("spread -0.1"));
        assert!(with(|l| l.classes = 0).contains("classes 0"));
        assert!(with(|l| l.batch = 0).contains("batch 0"));
        assert!(with(|l| l.step_s = -1.0).contains("the step: -1"));
        assert_eq!(Load::default().check(), Ok(()));
    }
}
