//! How alike the slices are, and whether the fraction is enough for them to become so.

use super::Owners;
use super::pick::class_counts;

/// How far the classes of the slices are from those of the whole data set.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Divergence {
    /// The mean over ranks of the total variation distance: 0 for slices like the whole, near 1 for strangers.
    pub mean: f64,
    /// What slices drawn at random would have: a small one cannot be like the whole.
    pub expected: f64,
}

impl Divergence {
    /// How much more it is than chance.
    pub fn excess(&self) -> f64 {
        (self.mean - self.expected).max(0.0)
    }
}

/// How far the slices are from the whole, by label.
pub fn divergence(owners: &Owners, labels: &[u32]) -> Divergence {
    let totals = class_counts(labels);
    let samples = f64::from(owners.samples());
    let shares: Vec<f64> = totals.iter().map(|&total| f64::from(total) / samples).collect();
    let mut counts = vec![0_u32; totals.len()];
    let (mut sum, mut expected) = (0.0, 0.0);
    // Slices have one of two lengths, and those of one length come together.
    let (mut chance_len, mut chance) = (0, 0.0);
    for rank in 0..owners.world() {
        let held = owners.held(rank);
        counts.fill(0);
        for &id in held {
            if let Some(count) = labels.get(id as usize).and_then(|&label| counts.get_mut(label as usize)) {
                *count += 1;
            }
        }
        let here = held.len() as f64;
        let apart = |(&count, &share): (&u32, &f64)| (f64::from(count) / here - share).abs();
        sum += counts.iter().zip(&shares).map(apart).sum::<f64>() / 2.0;
        if held.len() != chance_len {
            // The mean absolute deviation of a count drawn without replacement, by its normal approximation.
            let without = (samples - here) / (samples - 1.0).max(1.0);
            let spread =
                |share: &f64| (2.0 * share * (1.0 - share) * without / (std::f64::consts::PI * here)).sqrt();
            (chance_len, chance) = (held.len(), shares.iter().map(spread).sum::<f64>() / 2.0);
        }
        expected += chance;
    }
    let ranks = f64::from(owners.world());
    Divergence { mean: sum / ranks, expected: expected / ranks }
}

/// The fraction that a run begins with when it is to find out how much is needed.
pub const FIRST_FRACTION: f64 = 0.1;
/// The excess above which more has to be exchanged.
const EXCESS_MAX: f64 = 0.1;

/// How much to exchange in the next epoch: more, one notch at a time, while the slices are further apart than chance would
/// have them.
pub fn next_fraction(current: f64, divergence: Divergence) -> f64 {
    if divergence.excess() <= EXCESS_MAX {
        return current;
    }
    [0.3, 0.9].into_iter().find(|&next| next > current).unwrap_or(current)
}
