//! Least squares in running sums.
//!
//! Means and co-moments are updated one measurement at a time (Welford), so that large values lose no digits. The line
//! passes through the means; a slight ridge, stronger while little was measured, keeps regressors that move together
//! or not at all from blowing up, and lets the fit fall back to the mean.

/// How many figures of a sample the rest is explained by.
pub(super) const REGRESSORS: usize = 4;

/// Keeps regressors that always move together apart.
const RIDGE: f64 = 1e-6;
/// Over the square of the count: how much less a line is trusted than the mean while little was measured.
const RIDGE_FEW: f64 = 4.0;
/// An estimate never falls below this share of the least that was measured.
const FLOOR: f64 = 0.5;

/// One figure as a linear function of the regressors.
#[derive(Debug, Clone, Default)]
pub(super) struct Fit {
    count: u64,
    least: f64,
    /// Whether the least is that of before the last fading.
    relearns_least: bool,
    mean_x: [f64; REGRESSORS],
    mean_y: f64,
    xx: [[f64; REGRESSORS]; REGRESSORS],
    xy: [f64; REGRESSORS],
    slopes: [f64; REGRESSORS],
}

impl Fit {
    /// How often it was measured.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The mean of what was measured.
    pub(super) fn mean(&self) -> f64 {
        self.mean_y
    }

    /// The regressors of the middle of what was measured.
    pub(super) fn middle(&self) -> &[f64; REGRESSORS] {
        &self.mean_x
    }

    /// One measurement.
    #[expect(clippy::needless_range_loop, reason = "two indices into a matrix")]
    pub(super) fn add(&mut self, x: &[f64; REGRESSORS], y: f64) {
        self.least = if self.count == 0 || self.relearns_least { y } else { self.least.min(y) };
        self.relearns_least = false;
        self.count += 1;
        let n = self.count as f64;
        let before: [f64; REGRESSORS] = std::array::from_fn(|i| x[i] - self.mean_x[i]);
        (0..REGRESSORS).for_each(|i| self.mean_x[i] += before[i] / n);
        self.mean_y += (y - self.mean_y) / n;
        for i in 0..REGRESSORS {
            for j in 0..REGRESSORS {
                self.xx[i][j] += before[i] * (x[j] - self.mean_x[j]);
            }
            self.xy[i] += before[i] * (y - self.mean_y);
        }
        // Solved once per doubling at first and once per 64 later: estimates are read far more often than this.
        if self.count.is_power_of_two() || self.count.is_multiple_of(64) {
            self.slopes = self.solve();
        }
    }

    /// Lets half of what was measured go, as long as enough is left. The least that was measured is forgotten with it.
    pub(super) fn fade(&mut self) {
        if self.count < 4 * super::MEASURED_MIN {
            return;
        }
        self.count /= 2;
        self.relearns_least = true;
        self.xx.iter_mut().flatten().chain(&mut self.xy).for_each(|sum| *sum /= 2.0);
    }

    /// What to expect where the regressors are `x`.
    pub(super) fn at(&self, x: &[f64; REGRESSORS]) -> f64 {
        let rise: f64 = (0..REGRESSORS).map(|i| self.slopes[i] * (x[i] - self.mean_x[i])).sum();
        (self.mean_y + rise).max(FLOOR * self.least)
    }

    /// The slopes, by elimination; the matrix is positive definite, so no rows change places.
    fn solve(&self) -> [f64; REGRESSORS] {
        let n = self.count as f64;
        let ridge = RIDGE + RIDGE_FEW / (n * n);
        let (mut a, mut b) = (self.xx, self.xy);
        for i in 0..REGRESSORS {
            // A regressor that does not vary beyond rounding explains nothing.
            let varies = self.xx[i][i] > 1e-12 * n * self.mean_x[i] * self.mean_x[i];
            if varies {
                a[i][i] *= 1.0 + ridge;
            } else {
                (0..REGRESSORS).for_each(|j| (a[i][j], a[j][i]) = (0.0, 0.0));
                (a[i][i], b[i]) = (1.0, 0.0);
            }
        }
        for pivot in 0..REGRESSORS {
            for row in pivot + 1..REGRESSORS {
                let factor = a[row][pivot] / a[pivot][pivot];
                (pivot..REGRESSORS).for_each(|column| a[row][column] -= factor * a[pivot][column]);
                b[row] -= factor * b[pivot];
            }
        }
        let mut slopes = [0.0; REGRESSORS];
        for row in (0..REGRESSORS).rev() {
            let rest: f64 = (row + 1..REGRESSORS).map(|column| a[row][column] * slopes[column]).sum();
            slopes[row] = (b[row] - rest) / a[row][row];
        }
        slopes
    }
}
