//! Batch norm: each feature is shifted and scaled to mean 0 and variance 1 over the batch, then by learned numbers.
//!
//! While training, mean and variance are those of the batch, and running ones follow them; afterwards the running
//! ones are used, so that a sample's outcome does not depend on its neighbours (Ioffe and Szegedy 2015).

use super::Param;
use crate::model::Mode;

/// How far the running numbers follow each batch.
const FOLLOW: f32 = 0.1;
/// Keeps a feature that never changes from dividing by nothing.
const EPSILON: f32 = 1e-5;

/// Batch norm of `width` features.
#[derive(Debug, Clone)]
pub(crate) struct BatchNorm {
    width: usize,
    pub(crate) scale: Param,
    pub(crate) shift: Param,
    pub(crate) mean: Vec<f32>,
    pub(crate) variance: Vec<f32>,
    /// Kept between forward and backward: the normalised inputs, and one over each feature's deviation.
    normal: Vec<f32>,
    inverse: Vec<f32>,
}

impl BatchNorm {
    pub(crate) fn new(width: usize) -> BatchNorm {
        BatchNorm {
            width,
            scale: Param::new(vec![1.0; width], false),
            shift: Param::new(vec![0.0; width], false),
            mean: vec![0.0; width],
            variance: vec![1.0; width],
            normal: Vec::new(),
            inverse: vec![0.0; width],
        }
    }

    /// Normalises `x` in place.
    pub(crate) fn forward(&mut self, x: &mut [f32], mode: Mode) {
        if mode == Mode::Train {
            self.train(x);
        } else {
            for row in x.chunks_exact_mut(self.width) {
                for (i, value) in row.iter_mut().enumerate() {
                    let inverse = 1.0 / (self.variance[i] + EPSILON).sqrt();
                    *value = (*value - self.mean[i]) * inverse * self.scale.value[i] + self.shift.value[i];
                }
            }
        }
    }

    fn train(&mut self, x: &mut [f32]) {
        let rows = x.len() / self.width;
        if rows == 0 {
            return;
        }
        let mut mean = vec![0.0; self.width];
        for row in x.chunks_exact(self.width) {
            mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
        mean.iter_mut().for_each(|sum| *sum /= rows as f32);
        let mut variance = vec![0.0; self.width];
        for row in x.chunks_exact(self.width) {
            for ((sum, x), mean) in variance.iter_mut().zip(row).zip(&mean) {
                *sum += (x - mean) * (x - mean);
            }
        }
        variance.iter_mut().for_each(|sum| *sum /= rows as f32);
        for (inverse, variance) in self.inverse.iter_mut().zip(&variance) {
            *inverse = 1.0 / (variance + EPSILON).sqrt();
        }
        self.normal.resize(x.len(), 0.0);
        let (scale, shift) = (&self.scale.value, &self.shift.value);
        for (row, normal) in x.chunks_exact_mut(self.width).zip(self.normal.chunks_exact_mut(self.width)) {
            for i in 0..self.width {
                normal[i] = (row[i] - mean[i]) * self.inverse[i];
                row[i] = normal[i] * scale[i] + shift[i];
            }
        }
        // The variance of what the batch was drawn from; a batch of one says nothing about it.
        let unbiased = if rows > 1 { rows as f32 / (rows - 1) as f32 } else { 1.0 };
        for i in 0..self.width {
            self.mean[i] += FOLLOW * (mean[i] - self.mean[i]);
            if rows > 1 {
                self.variance[i] += FOLLOW * (variance[i] * unbiased - self.variance[i]);
            }
        }
    }

    /// Takes the gradient by the outputs of the last training batch and turns it into that by the inputs, in place.
    pub(crate) fn backward(&mut self, gradient: &mut [f32]) {
        let rows = gradient.len() / self.width;
        self.scale.grad.fill(0.0);
        self.shift.grad.fill(0.0);
        for (row, normal) in gradient.chunks_exact(self.width).zip(self.normal.chunks_exact(self.width)) {
            for i in 0..self.width {
                self.scale.grad[i] += row[i] * normal[i];
                self.shift.grad[i] += row[i];
            }
        }
        let count = rows as f32;
        for (row, normal) in gradient.chunks_exact_mut(self.width).zip(self.normal.chunks_exact(self.width)) {
            for i in 0..self.width {
                let factor = self.scale.value[i] * self.inverse[i] / count;
                let shared = self.shift.grad[i] + normal[i] * self.scale.grad[i];
                row[i] = factor * (count * row[i] - shared);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{close, dot, numbers, slopes};
    use super::*;

    #[test]
    fn gradients_are_the_slopes() {
        let (rows, width) = (6, 3);
        let mut norm = BatchNorm::new(width);
        norm.scale.value = vec![0.5, 1.5, -1.0];
        let (x, wanted) = (numbers(4, rows * width), numbers(5, rows * width));
        let value = |norm: &BatchNorm, x: &[f32]| {
            let mut out = x.to_vec();
            norm.clone().forward(&mut out, Mode::Train);
            dot(&out, &wanted)
        };
        let fresh = norm.clone();
        norm.forward(&mut x.clone(), Mode::Train);
        let mut gradient = wanted.clone();
        norm.backward(&mut gradient);
        close("inputs", &gradient, &slopes(&x, |x| value(&fresh, x)));
        for which in [0, 1] {
            let pick = |norm: &BatchNorm| if which == 0 { norm.scale.clone() } else { norm.shift.clone() };
            let by = slopes(&pick(&fresh).value, |value_of| {
                let mut moved = fresh.clone();
                let param = if which == 0 { &mut moved.scale } else { &mut moved.shift };
                param.value.copy_from_slice(value_of);
                value(&moved, &x)
            });
            close(["scale", "shift"][which], &pick(&norm).grad, &by);
        }
    }

    #[test]
    fn a_training_batch_has_mean_0_and_variance_1() {
        let mut norm = BatchNorm::new(2);
        let mut x: Vec<f32> = numbers(6, 200).iter().map(|n| n * 7.0 + 3.0).collect();
        norm.forward(&mut x, Mode::Train);
        for feature in 0..2 {
            let values: Vec<f32> = x.iter().skip(feature).step_by(2).copied().collect();
            let mean = values.iter().sum::<f32>() / 100.0;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / 100.0;
            assert!(mean.abs() < 1e-5 && (variance - 1.0).abs() < 1e-3, "{mean} {variance}");
        }
    }

    #[test]
    fn afterwards_the_running_numbers_count_and_neighbours_do_not() {
        let mut norm = BatchNorm::new(1);
        for round in 0..200 {
            // Mean 10, deviation 2.
            let mut x: Vec<f32> =
                numbers(round, 64).iter().map(|n| 10.0 + n * 2.0 * 3.0_f32.sqrt()).collect();
            norm.forward(&mut x, Mode::Train);
        }
        let before = norm.clone();
        let (mut alone, mut together) = (vec![12.0], vec![12.0, -500.0, 10.0]);
        norm.forward(&mut alone, Mode::Evaluate);
        norm.forward(&mut together, Mode::Evaluate);
        assert!((alone[0] - 1.0).abs() < 0.15, "{alone:?}");
        assert_eq!(alone[0].to_bits(), together[0].to_bits());
        assert_eq!((before.mean, before.variance), (norm.mean, norm.variance), "evaluating learns nothing");
    }

    #[test]
    fn a_batch_of_one_is_finite() {
        let mut norm = BatchNorm::new(2);
        let mut x = vec![3.0, -1.0];
        norm.forward(&mut x, Mode::Train);
        assert_eq!(x, [0.0, 0.0]);
        assert_eq!(norm.variance, [1.0, 1.0]);
        let mut gradient = vec![1.0, 1.0];
        norm.backward(&mut gradient);
        assert!(gradient.iter().all(|g| g.abs() < 1e-3), "{gradient:?}");
    }
}
