//! Batch norm: each feature is shifted and scaled to mean 0 and variance 1 over the batch, then by learned numbers.
//!
//! While training, mean and variance are those of the batch, and running ones follow them; afterwards the running
//! ones are used, so that a sample's outcome does not depend on its neighbours (Ioffe and Szegedy 2015).
//!
//! A batch may consist of equal parts, one per rank: each part is then normalised by its own mean and variance, as ranks
//! do that train in parallel and share nothing but gradients. The running numbers follow the mean over the parts.

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
    /// How many equal parts a training batch has.
    parts: usize,
    pub(crate) scale: Param,
    pub(crate) shift: Param,
    pub(crate) mean: Vec<f32>,
    pub(crate) variance: Vec<f32>,
    /// Kept between forward and backward: the normalised inputs, and one over each feature's deviation, part by part.
    normal: Vec<f32>,
    inverse: Vec<f32>,
}

impl BatchNorm {
    pub(crate) fn new(width: usize) -> BatchNorm {
        BatchNorm {
            width,
            parts: 1,
            scale: Param::new(vec![1.0; width], false),
            shift: Param::new(vec![0.0; width], false),
            mean: vec![0.0; width],
            variance: vec![1.0; width],
            normal: Vec::new(),
            inverse: Vec::new(),
        }
    }

    /// Training batches consist of this many equal parts from now on.
    pub(crate) fn set_parts(&mut self, parts: usize) {
        assert!(parts > 0, "a batch has at least one part");
        self.parts = parts;
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
        let rows = x.len() / self.width / self.parts;
        if rows == 0 {
            return;
        }
        assert_eq!(x.len(), rows * self.width * self.parts, "the parts of a batch are equally large");
        self.normal.resize(x.len(), 0.0);
        self.inverse.resize(self.parts * self.width, 0.0);
        let (mut mean, mut variance) = (vec![0.0; self.width], vec![0.0; self.width]);
        let (mut means, mut variances) = (vec![0.0; self.width], vec![0.0; self.width]);
        let parts =
            x.chunks_exact_mut(rows * self.width).zip(self.normal.chunks_exact_mut(rows * self.width));
        for ((part, normal), inverse) in parts.zip(self.inverse.chunks_exact_mut(self.width)) {
            moments(part, rows, &mut mean, &mut variance);
            for (inverse, variance) in inverse.iter_mut().zip(&variance) {
                *inverse = 1.0 / (variance + EPSILON).sqrt();
            }
            let (scale, shift) = (&self.scale.value[..self.width], &self.shift.value[..self.width]);
            for (row, normal) in part.chunks_exact_mut(self.width).zip(normal.chunks_exact_mut(self.width)) {
                for i in 0..self.width {
                    normal[i] = (row[i] - mean[i]) * inverse[i];
                    row[i] = normal[i] * scale[i] + shift[i];
                }
            }
            means.iter_mut().zip(&mean).for_each(|(sum, mean)| *sum += mean);
            variances.iter_mut().zip(&variance).for_each(|(sum, variance)| *sum += variance);
        }
        // The variance of what a part was drawn from; a part of one says nothing about it.
        let unbiased = if rows > 1 { rows as f32 / (rows - 1) as f32 } else { 1.0 };
        let parts = self.parts as f32;
        for i in 0..self.width {
            self.mean[i] += FOLLOW * (means[i] / parts - self.mean[i]);
            if rows > 1 {
                self.variance[i] += FOLLOW * (variances[i] / parts * unbiased - self.variance[i]);
            }
        }
    }

    /// Takes the gradient by the outputs of the last training batch and turns it into that by the inputs, in place.
    pub(crate) fn backward(&mut self, gradient: &mut [f32]) {
        let rows = gradient.len() / self.width / self.parts;
        self.scale.grad.fill(0.0);
        self.shift.grad.fill(0.0);
        if rows == 0 {
            return;
        }
        let count = rows as f32;
        let (mut by_scale, mut by_shift) = (vec![0.0; self.width], vec![0.0; self.width]);
        let parts =
            gradient.chunks_exact_mut(rows * self.width).zip(self.normal.chunks_exact(rows * self.width));
        for ((part, normals), inverse) in parts.zip(self.inverse.chunks_exact(self.width)) {
            by_scale.fill(0.0);
            by_shift.fill(0.0);
            for (row, normal) in part.chunks_exact(self.width).zip(normals.chunks_exact(self.width)) {
                for i in 0..self.width {
                    by_scale[i] += row[i] * normal[i];
                    by_shift[i] += row[i];
                }
            }
            let scale = &self.scale.value[..self.width];
            for (row, normal) in part.chunks_exact_mut(self.width).zip(normals.chunks_exact(self.width)) {
                for i in 0..self.width {
                    let factor = scale[i] * inverse[i] / count;
                    let shared = by_shift[i] + normal[i] * by_scale[i];
                    row[i] = factor * (count * row[i] - shared);
                }
            }
            self.scale.grad.iter_mut().zip(&by_scale).for_each(|(sum, by)| *sum += by);
            self.shift.grad.iter_mut().zip(&by_shift).for_each(|(sum, by)| *sum += by);
        }
    }
}

/// The mean and the variance of each feature over the rows of one part.
fn moments(part: &[f32], rows: usize, mean: &mut [f32], variance: &mut [f32]) {
    let width = mean.len();
    mean.fill(0.0);
    for row in part.chunks_exact(width) {
        mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
    mean.iter_mut().for_each(|sum| *sum /= rows as f32);
    variance.fill(0.0);
    for row in part.chunks_exact(width) {
        for ((sum, x), mean) in variance.iter_mut().zip(row).zip(&*mean) {
            *sum += (x - mean) * (x - mean);
        }
    }
    variance.iter_mut().for_each(|sum| *sum /= rows as f32);
}

#[cfg(test)]
mod tests {
    use super::super::check::{close, dot, numbers, slopes};
    use super::*;

    #[test]
    fn gradients_are_the_slopes() {
        for parts in [1, 2, 3] {
            gradients(parts);
        }
    }

    fn gradients(parts: usize) {
        let (rows, width) = (12, 3);
        let mut norm = BatchNorm::new(width);
        norm.set_parts(parts);
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
    fn parts_do_not_see_each_other_and_the_running_numbers_follow_their_mean() {
        let (width, rows) = (3, 5);
        let x: Vec<f32> = [0.0, 10.0, -4.0]
            .iter()
            .enumerate()
            .flat_map(|(part, at)| numbers(part as u64, rows * width).into_iter().map(move |n| n * 2.0 + at))
            .collect();
        let wanted = numbers(9, x.len());
        let mut together = BatchNorm::new(width);
        together.scale.value = vec![0.5, 1.5, -1.0];
        together.set_parts(3);
        let mut alone: Vec<BatchNorm> = vec![BatchNorm::new(width); 3];
        let (mut out, mut gradient) = (x.clone(), wanted.clone());
        together.forward(&mut out, Mode::Train);
        together.backward(&mut gradient);
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        for (part, one) in alone.iter_mut().enumerate() {
            one.scale.value.clone_from(&together.scale.value);
            let place = part * rows * width..(part + 1) * rows * width;
            let (mut own, mut own_gradient) = (x[place.clone()].to_vec(), wanted[place.clone()].to_vec());
            one.forward(&mut own, Mode::Train);
            one.backward(&mut own_gradient);
            assert_eq!(bits(&own), bits(&out[place.clone()]), "part {part}");
            assert_eq!(bits(&own_gradient), bits(&gradient[place]), "part {part}");
        }
        let near = |name: &str, whole: &[f32], of: &dyn Fn(&BatchNorm) -> Vec<f32>, count: f32| {
            for (i, whole) in whole.iter().enumerate() {
                let sum: f32 = alone.iter().map(|one| of(one)[i]).sum();
                assert!((whole - sum / count).abs() < 1e-4, "{name}: {whole} {}", sum / count);
            }
        };
        near("mean", &together.mean, &|one| one.mean.clone(), 3.0);
        near("variance", &together.variance, &|one| one.variance.clone(), 3.0);
        near("scale", &together.scale.grad, &|one| one.scale.grad.clone(), 1.0);
        near("shift", &together.shift.grad, &|one| one.shift.grad.clone(), 1.0);
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
