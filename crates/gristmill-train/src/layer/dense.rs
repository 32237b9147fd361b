//! A dense layer: each output is a weighted sum of all inputs, plus a shift where no batch norm follows.

use super::Param;
use crate::matrix::{View, multiply};
use gristmill_core::rng::Stream;

/// Weights of `inputs` x `outputs`, row after row.
#[derive(Debug, Clone)]
pub(crate) struct Dense {
    inputs: usize,
    outputs: usize,
    pub(crate) weight: Param,
    /// Left out in front of a batch norm, which would cancel it.
    pub(crate) bias: Option<Param>,
}

impl Dense {
    /// Weights drawn from `stream`, uniform with the variance that keeps signals alive behind rectifiers (He et al. 2015).
    pub(crate) fn new(inputs: usize, outputs: usize, bias: bool, stream: &mut Stream) -> Dense {
        let bound = (6.0 / inputs as f64).sqrt();
        let weight = (0..inputs * outputs).map(|_| ((stream.unit() * 2.0 - 1.0) * bound) as f32).collect();
        let bias = bias.then(|| Param::new(vec![0.0; outputs], false));
        Dense { inputs, outputs, weight: Param::new(weight, true), bias }
    }

    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Writes the outputs of `rows` samples to `out`.
    pub(crate) fn forward(&self, x: &[f32], rows: usize, out: &mut Vec<f32>) {
        out.resize(rows * self.outputs, 0.0);
        let weight = View::new(&self.weight.value, self.inputs, self.outputs);
        multiply(View::new(x, rows, self.inputs), weight, out);
        if let Some(bias) = &self.bias {
            for row in out.chunks_exact_mut(self.outputs) {
                row.iter_mut().zip(&bias.value).for_each(|(y, b)| *y += b);
            }
        }
    }

    /// Takes the gradient by the outputs, keeps that by the weights, and writes that by the inputs if it is wanted.
    pub(crate) fn backward(&mut self, x: &[f32], dy: &[f32], rows: usize, dx: Option<&mut Vec<f32>>) {
        let dy_view = View::new(dy, rows, self.outputs);
        multiply(View::new(x, rows, self.inputs).transposed(), dy_view, &mut self.weight.grad);
        if let Some(bias) = &mut self.bias {
            bias.grad.fill(0.0);
            for row in dy.chunks_exact(self.outputs) {
                bias.grad.iter_mut().zip(row).for_each(|(sum, d)| *sum += d);
            }
        }
        if let Some(dx) = dx {
            dx.resize(rows * self.inputs, 0.0);
            let weight = View::new(&self.weight.value, self.inputs, self.outputs);
            multiply(dy_view, weight.transposed(), dx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{close, dot, numbers, slopes};
    use super::*;

    #[test]
    fn gradients_are_the_slopes() {
        let (rows, inputs, outputs) = (5, 4, 3);
        let mut layer = Dense::new(inputs, outputs, true, &mut Stream::from_key(1));
        let (x, wanted) = (numbers(2, rows * inputs), numbers(3, rows * outputs));
        let mut dx = Vec::new();
        layer.backward(&x, &wanted, rows, Some(&mut dx));
        let value = |layer: &Dense, x: &[f32]| {
            let mut out = Vec::new();
            layer.forward(x, rows, &mut out);
            dot(&out, &wanted)
        };
        close("inputs", &dx, &slopes(&x, |x| value(&layer, x)));
        let mut moved = layer.clone();
        let by_weight = slopes(&layer.weight.value, |w| {
            moved.weight.value.copy_from_slice(w);
            value(&moved, &x)
        });
        close("weight", &layer.weight.grad, &by_weight);
        let mut moved = layer.clone();
        let bias = layer.bias.as_ref().unwrap();
        let by_bias = slopes(&bias.value, |b| {
            moved.bias.as_mut().unwrap().value.copy_from_slice(b);
            value(&moved, &x)
        });
        close("bias", &bias.grad, &by_bias);
    }
}
