//! Batch norm: each feature is shifted and scaled to mean 0 and variance 1 over the batch, then by learned numbers.
//!
//! While training, mean and variance are those of the batch, and running ones follow them; afterwards the running
//! ones are used, so that a sample's outcome does not depend on its neighbours (Ioffe and Szegedy 2015).
//!
//! Samples count by their weights there. A selection that trains some samples rarely gives those more weight, so that the
//! gradient is that of all samples; with plain means, what is normalised by would be that of the samples which were chosen, the
//! hard ones, while the model is used on all.
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
    /// What each row of the last training batch counts in its part; together 1 in each.
    shares: Vec<f32>,
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
            shares: Vec::new(),
        }
    }

    /// Training batches consist of this many equal parts from now on.
    pub(crate) fn set_parts(&mut self, parts: usize) {
        assert!(parts > 0, "a batch has at least one part");
        self.parts = parts;
    }

    /// Normalises `x` in place; a training batch has a weight per row, or none if all count alike.
    pub(crate) fn forward(&mut self, x: &mut [f32], mode: Mode, weights: &[f32]) {
        if mode == Mode::Train {
            self.train(x, weights);
        } else {
            for row in x.chunks_exact_mut(self.width) {
                for (i, value) in row.iter_mut().enumerate() {
                    let inverse = 1.0 / (self.variance[i] + EPSILON).sqrt();
                    *value = (*value - self.mean[i]) * inverse * self.scale.value[i] + self.shift.value[i];
                }
            }
        }
    }

    fn train(&mut self, x: &mut [f32], weights: &[f32]) {
        let rows = x.len() / self.width / self.parts;
        if rows == 0 {
            return;
        }
        assert_eq!(x.len(), rows * self.width * self.parts, "the parts of a batch are equally large");
        self.weigh(rows, weights);
        self.normal.resize(x.len(), 0.0);
        self.inverse.resize(self.parts * self.width, 0.0);
        let (mut mean, mut variance) = (vec![0.0; self.width], vec![0.0; self.width]);
        let (mut means, mut variances) = (vec![0.0; self.width], vec![0.0; self.width]);
        let parts =
            x.chunks_exact_mut(rows * self.width).zip(self.normal.chunks_exact_mut(rows * self.width));
        let inner = self.inverse.chunks_exact_mut(self.width).zip(self.shares.chunks_exact(rows));
        for ((part, normal), (inverse, shares)) in parts.zip(inner) {
            moments(part, shares, &mut mean, &mut variance);
            // The variance of what a part was drawn from; a part of one says nothing about it.
            let left = 1.0 - shares.iter().map(|share| share * share).sum::<f32>();
            let own = if left > 1e-3 { 1.0 / left } else { 1.0 };
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
            variances.iter_mut().zip(&variance).for_each(|(sum, variance)| *sum += variance * own);
        }
        let parts = self.parts as f32;
        for i in 0..self.width {
            self.mean[i] += FOLLOW * (means[i] / parts - self.mean[i]);
            if rows > 1 {
                self.variance[i] += FOLLOW * (variances[i] / parts - self.variance[i]);
            }
        }
    }

    /// What each row counts in its part: by its weight, or alike where there are none, or nothing but zeros.
    fn weigh(&mut self, rows: usize, weights: &[f32]) {
        self.shares.clear();
        for part in 0..self.parts {
            let own = weights.get(part * rows..(part + 1) * rows).unwrap_or_default();
            let sum: f32 = own.iter().sum();
            if sum > 0.0 && sum.is_finite() && own.iter().any(|weight| weight.to_bits() != own[0].to_bits()) {
                self.shares.extend(own.iter().map(|weight| weight / sum));
            } else {
                self.shares.extend(std::iter::repeat_n(1.0 / rows as f32, rows));
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
        let (mut by_scale, mut by_shift) = (vec![0.0; self.width], vec![0.0; self.width]);
        let parts =
            gradient.chunks_exact_mut(rows * self.width).zip(self.normal.chunks_exact(rows * self.width));
        let inner = self.inverse.chunks_exact(self.width).zip(self.shares.chunks_exact(rows));
        for ((part, normals), (inverse, shares)) in parts.zip(inner) {
            by_scale.fill(0.0);
            by_shift.fill(0.0);
            for (row, normal) in part.chunks_exact(self.width).zip(normals.chunks_exact(self.width)) {
                for i in 0..self.width {
                    by_scale[i] += row[i] * normal[i];
                    by_shift[i] += row[i];
                }
            }
            let scale = &self.scale.value[..self.width];
            let rows = part.chunks_exact_mut(self.width).zip(normals.chunks_exact(self.width));
            for ((row, normal), share) in rows.zip(shares) {
                for i in 0..self.width {
                    let shared = by_shift[i] + normal[i] * by_scale[i];
                    row[i] = scale[i] * inverse[i] * (row[i] - share * shared);
                }
            }
            self.scale.grad.iter_mut().zip(&by_scale).for_each(|(sum, by)| *sum += by);
            self.shift.grad.iter_mut().zip(&by_shift).for_each(|(sum, by)| *sum += by);
        }
    }
}

/// The mean and the variance of each feature over the rows of one part, each of which counts its share.
fn moments(part: &[f32], shares: &[f32], mean: &mut [f32], variance: &mut [f32]) {
    let width = mean.len();
    mean.fill(0.0);
    for (row, share) in part.chunks_exact(width).zip(shares) {
        mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += share * x);
    }
    variance.fill(0.0);
    for (row, share) in part.chunks_exact(width).zip(shares) {
        for ((sum, x), mean) in variance.iter_mut().zip(row).zip(&*mean) {
            *sum += share * (x - mean) * (x - mean);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{close, dot, numbers, slopes};
    use super::*;

    #[test]
    fn gradients_are_the_slopes() {
        let uneven: Vec<f32> = (0..12).map(|i| [1.0, 0.5, 3.0, 0.0][i % 4]).collect();
        for parts in [1, 2, 3] {
            gradients(parts, &[]);
            gradients(parts, &uneven);
        }
    }

    fn gradients(parts: usize, weights: &[f32]) {
        let (rows, width) = (12, 3);
        let mut norm = BatchNorm::new(width);
        norm.set_parts(parts);
        norm.scale.value = vec![0.5, 1.5, -1.0];
        let (x, wanted) = (numbers(4, rows * width), numbers(5, rows * width));
        let value = |norm: &BatchNorm, x: &[f32]| {
            let mut out = x.to_vec();
            norm.clone().forward(&mut out, Mode::Train, weights);
            dot(&out, &wanted)
        };
        let fresh = norm.clone();
        norm.forward(&mut x.clone(), Mode::Train, weights);
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
        together.forward(&mut out, Mode::Train, &[]);
        together.backward(&mut gradient);
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        for (part, one) in alone.iter_mut().enumerate() {
            one.scale.value.clone_from(&together.scale.value);
            let place = part * rows * width..(part + 1) * rows * width;
            let (mut own, mut own_gradient) = (x[place.clone()].to_vec(), wanted[place.clone()].to_vec());
            one.forward(&mut own, Mode::Train, &[]);
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
        norm.forward(&mut x, Mode::Train, &[]);
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
            norm.forward(&mut x, Mode::Train, &[]);
        }
        let before = norm.clone();
        let (mut alone, mut together) = (vec![12.0], vec![12.0, -500.0, 10.0]);
        norm.forward(&mut alone, Mode::Evaluate, &[]);
        norm.forward(&mut together, Mode::Evaluate, &[]);
        assert!((alone[0] - 1.0).abs() < 0.15, "{alone:?}");
        assert_eq!(alone[0].to_bits(), together[0].to_bits());
        assert_eq!((before.mean, before.variance), (norm.mean, norm.variance), "evaluating learns nothing");
    }

    #[test]
    fn a_weight_of_two_is_as_good_as_coming_twice() {
        let (width, x) = (2, numbers(3, 5 * 2));
        let weights = [1.0, 2.0, 1.0, 3.0, 1.0];
        let mut repeated = Vec::new();
        for (row, weight) in x.chunks_exact(width).zip(weights) {
            (0..weight as usize).for_each(|_| repeated.extend_from_slice(row));
        }
        let (mut few, mut many) = (BatchNorm::new(width), BatchNorm::new(width));
        let mut out = x.clone();
        few.forward(&mut out, Mode::Train, &weights);
        many.forward(&mut repeated, Mode::Train, &[]);
        let firsts = [0, 1, 3, 4, 7].map(|row| repeated[row * width..(row + 1) * width].to_vec()).concat();
        let exact = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
        close("rows", &out, &exact(&firsts));
        close("means", &few.mean, &exact(&many.mean));
        // As many samples as there are say what they were drawn from, not as many as their weights add up to.
        assert!(few.variance.iter().zip(&many.variance).all(|(few, many)| few > many));
        let (mut alike, mut plain) = (BatchNorm::new(width), BatchNorm::new(width));
        let (mut a, mut b) = (x.clone(), x);
        alike.forward(&mut a, Mode::Train, &[0.5; 5]);
        plain.forward(&mut b, Mode::Train, &[]);
        assert_eq!((a, alike.mean), (b, plain.mean), "equal weights are none");
    }

    #[test]
    fn a_batch_of_one_is_finite() {
        let mut norm = BatchNorm::new(2);
        let mut x = vec![3.0, -1.0];
        norm.forward(&mut x, Mode::Train, &[]);
        assert_eq!(x, [0.0, 0.0]);
        assert_eq!(norm.variance, [1.0, 1.0]);
        let mut gradient = vec![1.0, 1.0];
        norm.backward(&mut gradient);
        assert!(gradient.iter().all(|g| g.abs() < 1e-3), "{gradient:?}");
    }
}
