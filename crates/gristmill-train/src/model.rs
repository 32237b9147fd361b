//! The model: dense layers, each but the last followed by batch norm and a rectifier.
//!
//! Buffers are kept between batches, so a step allocates nothing once the largest batch was seen.

use crate::layer::{BatchNorm, Dense, Param};
use crate::loss::{Facts, softmax_cross_entropy};
use gristmill_core::rng::{Stream, key};
use gristmill_core::select::Norm;

/// What the streams of initial weights are for: "weights" as a number, so that no plan's stream is shared.
const PURPOSE: u64 = u64::from_be_bytes(*b"weights\0");

/// Whether the model is learning or being used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Batch norm uses the batch's own mean and variance.
    Train,
    /// Batch norm uses the running ones.
    Evaluate,
}

/// A multi-layer perceptron.
#[derive(Debug, Clone)]
pub struct Mlp {
    inputs: usize,
    hidden: Vec<Hidden>,
    last: Dense,
    logits: Vec<f32>,
    /// Gradients on their way back; two, to read from one and write to the other.
    back: [Vec<f32>; 2],
}

#[derive(Debug, Clone)]
struct Hidden {
    dense: Dense,
    norm: BatchNorm,
    out: Vec<f32>,
}

impl Mlp {
    /// A model with weights drawn from `seed`: the same seed and sizes, the same model.
    pub fn new(inputs: usize, hidden: &[usize], classes: usize, seed: u64) -> Mlp {
        assert!(inputs > 0 && classes > 0 && !hidden.contains(&0), "every layer has a size");
        let mut width = inputs;
        let mut layers = Vec::new();
        let stream = |layer: usize| Stream::from_key(key(&[seed, PURPOSE, layer as u64]));
        for (i, &outputs) in hidden.iter().enumerate() {
            let dense = Dense::new(width, outputs, false, &mut stream(i));
            layers.push(Hidden { dense, norm: BatchNorm::new(outputs), out: Vec::new() });
            width = outputs;
        }
        let last = Dense::new(width, classes, true, &mut stream(hidden.len()));
        Mlp { inputs, hidden: layers, last, logits: Vec::new(), back: [Vec::new(), Vec::new()] }
    }

    /// The same model, whose training batches consist of `parts` equal parts, one after the other: batch norm treats each as
    /// a batch of its own. One step on such a batch is a step of data-parallel SGD with as many ranks.
    #[must_use]
    pub fn in_parts(mut self, parts: usize) -> Mlp {
        self.hidden.iter_mut().for_each(|layer| layer.norm.set_parts(parts));
        self
    }

    /// Numbers per sample.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Classes.
    pub fn classes(&self) -> usize {
        self.last.outputs()
    }

    /// Its batch norm goes by the weights of samples, if it has any.
    pub fn norm(&self) -> Norm {
        if self.hidden.is_empty() { Norm::Absent } else { Norm::Weighed }
    }

    /// The logits of the samples in `x`, row after row; while training all of them count alike in batch norm.
    pub fn forward(&mut self, x: &[f32], mode: Mode) -> &[f32] {
        self.forward_weighted(x, mode, &[])
    }

    fn forward_weighted(&mut self, x: &[f32], mode: Mode, weights: &[f32]) -> &[f32] {
        let rows = x.len() / self.inputs;
        let mut input = x;
        for Hidden { dense, norm, out } in &mut self.hidden {
            dense.forward(input, rows, out);
            norm.forward(out, mode, weights);
            out.iter_mut().for_each(|y| *y = y.max(0.0));
            input = out;
        }
        self.last.forward(input, rows, &mut self.logits);
        &self.logits
    }

    /// Fills `facts` about the samples of the last [`Mlp::forward`] and gives back their loss. The model's gradient
    /// is not touched; the logits are used up.
    pub fn judge(&mut self, labels: &[u32], weights: &[f32], facts: &mut Facts) -> f64 {
        let classes = self.classes();
        softmax_cross_entropy(&mut self.logits, classes, labels, weights, facts)
    }

    /// Forward, loss and gradient of one batch in training mode; gives back the loss. Weights count in batch norm, too.
    pub fn learn(&mut self, x: &[f32], labels: &[u32], weights: &[f32], facts: &mut Facts) -> f64 {
        self.forward_weighted(x, Mode::Train, weights);
        let loss = self.judge(labels, weights, facts);
        self.backward(x);
        loss
    }

    /// The gradient of all weights, from that by the logits, which [`Mlp::judge`] left in their place.
    fn backward(&mut self, x: &[f32]) {
        let rows = x.len() / self.inputs;
        let [ahead, behind] = &mut self.back;
        let input = self.hidden.last().map_or(x, |layer| &layer.out);
        let wanted = !self.hidden.is_empty();
        self.last.backward(input, &self.logits, rows, wanted.then_some(&mut *ahead));
        for at in (0..self.hidden.len()).rev() {
            let (before, here) = self.hidden.split_at_mut(at);
            let Hidden { dense, norm, out } = &mut here[0];
            ahead.iter_mut().zip(out.iter()).filter(|(_, y)| **y <= 0.0).for_each(|(d, _)| *d = 0.0);
            norm.backward(ahead);
            let input = before.last().map_or(x, |layer| &layer.out);
            dense.backward(input, ahead, rows, (at > 0).then_some(&mut *behind));
            std::mem::swap(ahead, behind);
        }
    }

    /// All that is learned by gradient, in a fixed order.
    pub(crate) fn params(&mut self) -> impl Iterator<Item = &mut Param> {
        let hidden = self
            .hidden
            .iter_mut()
            .flat_map(|layer| [&mut layer.dense.weight, &mut layer.norm.scale, &mut layer.norm.shift]);
        hidden.chain([&mut self.last.weight]).chain(self.last.bias.as_mut())
    }

    /// Everything that a checkpoint must hold, in a fixed order: values, velocities, running means and variances.
    pub(crate) fn state(&mut self) -> Vec<&mut Vec<f32>> {
        let mut parts = Vec::new();
        for Hidden { dense, norm, .. } in &mut self.hidden {
            for param in [&mut dense.weight, &mut norm.scale, &mut norm.shift] {
                parts.extend([&mut param.value, &mut param.velocity]);
            }
            parts.extend([&mut norm.mean, &mut norm.variance]);
        }
        for param in [&mut self.last.weight].into_iter().chain(self.last.bias.as_mut()) {
            parts.extend([&mut param.value, &mut param.velocity]);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::check::{close, numbers, slopes};

    #[test]
    fn the_gradient_of_the_whole_is_the_slope() {
        let (labels, weights) = ([0, 1, 2, 1, 0, 2, 2], [1.0, 0.5, 2.0, 1.0, 0.0, 1.5, 1.0]);
        let x = numbers(8, 7 * 5);
        for hidden in [&[][..], &[6], &[6, 4]] {
            let mut model = Mlp::new(5, hidden, 3, 9);
            let fresh = model.clone();
            model.learn(&x, &labels, &weights, &mut Facts::default());
            let grads: Vec<Vec<f32>> = model.params().map(|param| param.grad.clone()).collect();
            for (which, grad) in grads.iter().enumerate() {
                let mut moved = fresh.clone();
                let start = moved.params().nth(which).unwrap().value.clone();
                let by = slopes(&start, |value| {
                    moved.params().nth(which).unwrap().value.copy_from_slice(value);
                    moved.clone().learn(&x, &labels, &weights, &mut Facts::default())
                });
                close(&format!("{hidden:?} param {which}"), grad, &by);
            }
        }
    }

    #[test]
    fn what_is_told_of_batch_norm_is_what_there_is() {
        assert_eq!(Mlp::new(3, &[4], 2, 0).norm(), Norm::Weighed);
        assert_eq!(Mlp::new(3, &[], 2, 0).norm(), Norm::Absent);
    }

    #[test]
    fn a_weight_counts_in_batch_norm_too() {
        let (x, labels) = (numbers(8, 4 * 5), [0, 1, 2, 1]);
        let (weights, often) = ([1.0, 3.0, 1.0, 2.0], [0, 1, 1, 1, 2, 3, 3]);
        let rows: Vec<f32> = often.iter().flat_map(|row| x[row * 5..(row + 1) * 5].to_vec()).collect();
        let twice: Vec<u32> = often.iter().map(|row| labels[*row]).collect();
        let learned = |x: &[f32], labels: &[u32], weights: &[f32]| {
            let mut model = Mlp::new(5, &[6, 4], 3, 9);
            model.learn(x, labels, weights, &mut Facts::default());
            // The loss is a mean over samples, of which one has four and the other seven.
            model
                .params()
                .flat_map(|param| param.grad.clone())
                .map(|g| g * labels.len() as f32)
                .collect::<Vec<_>>()
        };
        let (few, many) = (learned(&x, &labels, &weights), learned(&rows, &twice, &[1.0; 7]));
        for (i, (few, many)) in few.iter().zip(&many).enumerate() {
            assert!((few - many).abs() < 1e-4, "{i}: {few} {many}");
        }
    }

    #[test]
    fn a_step_on_a_batch_of_parts_is_the_mean_over_the_ranks() {
        let (labels, weights) = ([0, 1, 2, 1, 0, 2], [1.0, 0.5, 2.0, 1.0, 0.7, 1.5]);
        let x = numbers(8, 6 * 5);
        let learned = |model: &Mlp, rows: std::ops::Range<usize>| {
            let mut model = model.clone();
            let (part, own) = (&x[rows.start * 5..rows.end * 5], &labels[rows.clone()]);
            model.learn(part, own, &weights[rows], &mut Facts::default());
            model.params().flat_map(|param| param.grad.clone()).collect::<Vec<f32>>()
        };
        let model = Mlp::new(5, &[6, 4], 3, 9);
        let ranks = [learned(&model, 0..3), learned(&model, 3..6)];
        let whole = learned(&model.in_parts(2), 0..6);
        for (i, grad) in whole.iter().enumerate() {
            let mean = f32::midpoint(ranks[0][i], ranks[1][i]);
            assert!((grad - mean).abs() < 1e-5, "{i}: {grad} {mean}");
        }
    }

    #[test]
    fn the_seed_and_nothing_else_makes_the_model() {
        let values = |seed, hidden: &[usize]| {
            let mut model = Mlp::new(4, hidden, 3, seed);
            model.state().iter().flat_map(|part| part.iter().map(|v| v.to_bits())).collect::<Vec<_>>()
        };
        assert_eq!(values(1, &[5]), values(1, &[5]));
        assert_ne!(values(1, &[5]), values(2, &[5]));
    }

    #[test]
    fn judging_leaves_the_model_as_it_is() {
        let mut model = Mlp::new(4, &[5], 3, 1);
        let copy = |model: &mut Mlp| model.state().iter().map(|part| (*part).clone()).collect::<Vec<_>>();
        let before = copy(&mut model);
        model.forward(&numbers(1, 8), Mode::Evaluate);
        model.judge(&[0, 2], &[1.0, 1.0], &mut Facts::default());
        assert_eq!(before, copy(&mut model));
    }
}
