//! What a classifier's predictions say about a batch, computed here for networks on a processor.
//!
//! As tensor operations it is ten small ones per batch, each of which costs more to call than to compute. For networks
//! on a device the package does the same in tensors, so that only the result is copied.

use crate::choice::{floats_of, ids_of};
use crate::error::exception;
use gristmill_node::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Rows of float32 for `Choice.feedback` (`p_true`, `p_rival`, loss and perhaps entropy in bits), from the logarithms of
/// the probabilities of `classes` classes as float32, sample by sample, and the labels as int64.
#[pyfunction]
pub(crate) fn learned<'py>(
    py: Python<'py>,
    log_p: &[u8],
    labels: &[u8],
    classes: usize,
    entropy: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let columns = columns(&floats_of(log_p), labels, classes, entropy).map_err(|e| exception(py, &e))?;
    let bytes: Vec<u8> = columns.into_iter().flat_map(f32::to_le_bytes).collect();
    Ok(PyBytes::new(py, &bytes))
}

fn columns(log_p: &[f32], labels: &[u8], classes: usize, entropy: bool) -> Result<Vec<f32>> {
    let labels = ids_of(labels)?;
    let n = labels.len();
    if classes == 0 || Some(log_p.len()) != n.checked_mul(classes) {
        return Err(Error::config(format!(
            "{n} labels of {classes} classes do not go with {} values",
            log_p.len()
        )));
    }
    let mut columns = vec![0.0; n * if entropy { 4 } else { 3 }];
    for (at, (row, &label)) in log_p.chunks_exact(classes).zip(&labels).enumerate() {
        let own = *row.get(label as usize).ok_or_else(|| {
            Error::config(format!("label {label} is not below the number of classes, {classes}"))
        })?;
        let others =
            row.iter().enumerate().filter(|(class, _)| *class != label as usize).map(|(_, &value)| value);
        let rival = others.fold(f32::NEG_INFINITY, f32::max);
        columns[at] = own.exp();
        // What is not a number stays visible: the scores contain it and count it.
        columns[n + at] = if row.iter().any(|value| value.is_nan()) { f32::NAN } else { rival.exp() };
        columns[2 * n + at] = -own;
        if entropy {
            let one = |&value: &f32| if value == f32::NEG_INFINITY { 0.0 } else { value.exp() * value };
            columns[3 * n + at] = -row.iter().map(one).sum::<f32>() / std::f32::consts::LN_2;
        }
    }
    Ok(columns)
}
