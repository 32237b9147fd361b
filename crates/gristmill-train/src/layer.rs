//! What the layers share: numbers that are learned.

mod dense;
mod norm;

pub(crate) use dense::Dense;
pub(crate) use norm::BatchNorm;

/// Numbers that are learned, with their gradient and what the optimiser remembers of earlier ones.
#[derive(Debug, Clone)]
pub(crate) struct Param {
    pub(crate) value: Vec<f32>,
    pub(crate) grad: Vec<f32>,
    pub(crate) velocity: Vec<f32>,
    /// Whether weight decay applies: to the weights of products, not to shifts and scales.
    pub(crate) decays: bool,
}

impl Param {
    pub(crate) fn new(value: Vec<f32>, decays: bool) -> Param {
        let zeros = vec![0.0; value.len()];
        Param { value, grad: zeros.clone(), velocity: zeros, decays }
    }
}

/// Checks gradients against differences, for the tests of all layers.
#[cfg(test)]
pub(crate) mod check {
    use gristmill_core::rng::Stream;

    /// Numbers between -1 and 1.
    pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f32> {
        let mut stream = Stream::from_key(seed);
        (0..count).map(|_| (stream.unit() * 2.0 - 1.0) as f32).collect()
    }

    /// The slope of `f` at `at`, by central differences in each coordinate.
    pub(crate) fn slopes(at: &[f32], mut f: impl FnMut(&[f32]) -> f64) -> Vec<f64> {
        let mut moved = at.to_vec();
        (0..at.len())
            .map(|i| {
                let step = 1e-2_f32;
                moved[i] = at[i] + step;
                let up = f(&moved);
                moved[i] = at[i] - step;
                let down = f(&moved);
                moved[i] = at[i];
                (up - down) / (2.0 * f64::from(step))
            })
            .collect()
    }

    #[track_caller]
    pub(crate) fn close(name: &str, computed: &[f32], slopes: &[f64]) {
        assert_eq!(computed.len(), slopes.len(), "{name}");
        let size = slopes.iter().map(|s| s.abs()).fold(0.0, f64::max);
        assert!(size > 1e-3, "{name}: a gradient of nothing checks nothing");
        for (i, (a, b)) in computed.iter().zip(slopes).enumerate() {
            assert!((f64::from(*a) - b).abs() < 0.01 * size, "{name}[{i}]: {a} against {b}");
        }
    }

    /// The sum of `coefficients` times `out`: a function whose gradient by `out` is known.
    pub(crate) fn dot(out: &[f32], coefficients: &[f32]) -> f64 {
        out.iter().zip(coefficients).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }
}
