//! From batches to the numbers that a model takes.

use gristmill_node::loader::{Batch, Data};
use gristmill_node::{Error, Result};
use gristmill_ops::Dtype;

/// Room for numbers that have to be made from bytes.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    scaled: Vec<f32>,
}

impl Inputs {
    /// The samples of a batch, row after row. Labels are checked, so that a model can be indexed by them.
    pub(crate) fn of<'a>(&'a mut self, batch: &'a Batch, inputs: usize, classes: usize) -> Result<&'a [f32]> {
        if let Some((id, label)) = batch.ids.iter().zip(&batch.labels).find(|(_, l)| **l as usize >= classes)
        {
            return Err(Error::config(format!(
                "sample {id} has label {label}, but the training data has {classes} classes"
            ))
            .hint("train and test on data sets with the same classes"));
        }
        let Data::Tensor(tensor) = &batch.data else {
            return Err(Error::config("raw bytes cannot be trained on").hint("choose a recipe with --recipe"));
        };
        let numbers: &[f32] = match tensor.output().dtype {
            Dtype::F32 => bytemuck::try_cast_slice(tensor.bytes())
                .map_err(|e| Error::corrupt(format!("a batch does not hold whole numbers: {e}")))?,
            Dtype::U8 => {
                self.scaled.clear();
                self.scaled.extend(tensor.bytes().iter().map(|byte| f32::from(*byte) / 255.0));
                &self.scaled
            }
        };
        if numbers.len() != batch.len() * inputs {
            let per_sample = numbers.len() / batch.len().max(1);
            return Err(Error::config(format!(
                "a sample has {per_sample} numbers, but the model takes {inputs}"
            ))
            .hint("train and test with the same recipe and size of pictures"));
        }
        Ok(numbers)
    }
}
