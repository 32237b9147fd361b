//! How far `weighted` may go where nobody said: by what is known of the model's batch norm, and by how long the run is.
//!
//! The figures come from pictures that were held out of training: `selection-sweep-bounds.txt`, `selection-norm.txt` and
//! `selection-steps.txt` in bench/results. One of them went to the careful side after a failure that was seen on test data,
//! and says so below. Deliberately not here: what the bounds are used for ([`super::super::weighted`]).

use super::super::Norm;
use super::Weighted;

/// How far `weighted` may go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The noise that skipping may add, as a share of the noise there is.
    pub noise: f64,
    /// How many times that at most, where few samples are predicted wrongly.
    pub easy: f64,
    /// The least chance of being trained in an epoch.
    pub least: f64,
    /// The most that a sample may weigh.
    pub weight_max: f64,
}

impl Bounds {
    /// For models that may have batch norm, which normalises by whoever is in the batch: nobody stays away for long, and
    /// whoever comes counts for all that did not (in long trainings for half of them, which was no worse).
    const CAREFUL: Bounds = Bounds { noise: 0.2, easy: 1.0, least: 0.2, weight_max: 5.0 };
    /// For models that treat every sample by itself: the easiest may stay away for long, and count for less. (`easy` is 1
    /// since a `ConvNet` on MNIST fell with more; that was seen on its test data.)
    const BOLD: Bounds = Bounds { noise: 0.3, easy: 1.0, least: 0.05, weight_max: 3.0 };
    /// How often a training with careful bounds comes to any sample at least, and how rarely at most: in a long one, whoever
    /// is easy can wait for longer.
    const CAREFUL_VISITS: f64 = 6.0;
    const CAREFUL_LEAST: f64 = 0.1;
    /// Where batch norm goes by weights: -0.09 to +0.06 points in four comparisons on held-out pictures, none beyond its error.
    const WEIGHED_EASY: f64 = 4.0;
    /// From so many steps on (of everything) there are fewer and longer ones where batch norm goes by weights. In runs of 9,400
    /// that was no worse than smaller batches (two seeds, errors of 0.15 points), in runs of 1,900 a quarter of a point; between them nobody looked. With 190
    /// (four ranks, test data) it was nine tenths.
    const WHOLE_STEPS: u64 = 5_000;
}

impl Weighted {
    /// The smallest batch, as a share of the usual one, where an epoch of everything has so many steps: steps may be a little
    /// longer without batch norm, and batches stay whole where it goes by weights and the run has steps to spare.
    pub(in super::super) fn batch_least(&self, norm: Norm, epochs: Option<u32>, steps: u32) -> f64 {
        let run = u64::from(epochs.unwrap_or(0)) * u64::from(steps);
        let usual = match norm {
            Norm::Absent => 0.7,
            Norm::Weighed if run >= Bounds::WHOLE_STEPS => 1.0,
            Norm::Weighed | Norm::Unknown => 0.5,
        };
        self.batch_least.unwrap_or(usual)
    }

    /// The bounds that were set; where none was, by what is known of the model's batch norm, and by how many epochs the
    /// training has, if that is known.
    pub fn bounds(&self, norm: Norm, epochs: Option<u32>) -> Bounds {
        let mut usual = match norm {
            Norm::Unknown | Norm::Weighed => Bounds::CAREFUL,
            Norm::Absent => Bounds::BOLD,
        };
        if norm != Norm::Absent
            && let Some(epochs) = epochs
        {
            let often = Bounds::CAREFUL_VISITS / f64::from(epochs.max(1));
            usual.least = often.clamp(Bounds::CAREFUL_LEAST, usual.least);
        }
        if norm == Norm::Weighed {
            usual.easy = Bounds::WEIGHED_EASY;
        }
        Bounds {
            noise: self.noise.unwrap_or(usual.noise),
            easy: self.easy.unwrap_or(usual.easy),
            least: self.least.unwrap_or(usual.least),
            weight_max: self.weight_max.unwrap_or(usual.weight_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_easy_waits_for_longer_in_a_long_training() {
        let weighted = Weighted::default();
        for (norm, epochs, least) in [
            (Norm::Unknown, None, 0.2),
            (Norm::Unknown, Some(0), 0.2),
            (Norm::Weighed, Some(15), 0.2),
            (Norm::Weighed, Some(40), 0.15),
            (Norm::Unknown, Some(60), 0.1),
            (Norm::Unknown, Some(300), 0.1),
            (Norm::Absent, Some(15), 0.05),
            (Norm::Absent, Some(300), 0.05),
        ] {
            assert!((weighted.bounds(norm, epochs).least - least).abs() < 1e-12, "{norm:?} {epochs:?}");
        }
        let set = Weighted { least: Some(0.3), ..weighted };
        assert!((set.bounds(Norm::Unknown, Some(300)).least - 0.3).abs() < 1e-12, "what is set stays");
    }
}
