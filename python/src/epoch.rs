//! One epoch being read, and its batches.

use crate::enter::SIGNALS_EVERY;
use crate::error::{exception, named};
use crate::memory::{DataType, Memory, Place};
use gristmill_node::loader::{self, Data, Polled};
use gristmill_ops::Dtype;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An epoch: gives batches until there are no more.
#[pyclass(frozen, module = "gristmill._gristmill")]
pub(crate) struct Epoch {
    running: Mutex<loader::Epoch>,
    stall: Duration,
    process: u32,
}

impl Epoch {
    pub(crate) fn new(epoch: loader::Epoch, stall: Duration) -> Epoch {
        Epoch { running: Mutex::new(epoch), stall, process: std::process::id() }
    }

    /// Looks at the epoch as the engine has it.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&loader::Epoch) -> T) -> T {
        look(&self.running.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let text = "a Loader does not work in a forked child: its threads stayed in the parent \
                    (make the Loader in the child, or use gristmill.torch.Dataset with worker processes)";
        Err(named(py, "GristmillError", text))
    }
}

#[pymethods]
impl Epoch {
    /// The next batch, or None at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        self.check_process(py)?;
        let asked = Instant::now();
        loop {
            let polled = py.detach(|| {
                let mut epoch = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                epoch.poll(SIGNALS_EVERY)
            });
            match polled {
                Ok(Polled::Batch(batch)) => return Ok(Some(Batch::new(*batch))),
                Ok(Polled::Done) => return Ok(None),
                Ok(Polled::Pending) => {
                    py.check_signals()?;
                    if asked.elapsed() > self.stall {
                        let error = py
                            .detach(|| self.running.lock().unwrap_or_else(PoisonError::into_inner).stalled());
                        return Err(exception(py, &error));
                    }
                }
                Err(error) => return Err(exception(py, &error)),
            }
        }
    }

    /// What has been read so far and where the time went, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        self.check_process(py)?;
        let report = py.detach(|| self.running.lock().unwrap_or_else(PoisonError::into_inner).report());
        serde_json::to_string(&report).map_err(|e| named(py, "GristmillError", &e.to_string()))
    }

    /// Ends the threads.
    fn close(&self, py: Python<'_>) {
        if self.process == std::process::id() {
            py.detach(|| self.running.lock().unwrap_or_else(PoisonError::into_inner).end());
        }
    }
}

/// One batch.
#[pyclass(frozen, module = "gristmill._gristmill")]
pub(crate) struct Batch {
    inner: Arc<loader::Batch>,
    images: Option<Place>,
    ids: Numbers,
    labels: Numbers,
    weights: Place,
}

/// Whole numbers as PyTorch wants them.
struct Numbers {
    owner: Arc<Vec<i64>>,
    place: Place,
}

impl Numbers {
    fn new(from: &[u32]) -> Numbers {
        let mut wide: Vec<i64> = from.iter().map(|&number| number.into()).collect();
        let place = Place::of(&mut wide[..]);
        Numbers { owner: Arc::new(wide), place }
    }

    fn lend(&self) -> Memory {
        Memory::new(self.owner.clone(), self.place, vec![self.owner.len() as i64], DataType::I64)
    }
}

impl Batch {
    pub(crate) fn new(mut batch: loader::Batch) -> Batch {
        let (ids, labels) = (Numbers::new(&batch.ids), Numbers::new(&batch.labels));
        let images = match &mut batch.data {
            Data::Tensor(tensor) => Some(Place::of(tensor.bytes_mut())),
            Data::Raw(_) => None,
        };
        let weights = Place::of(&mut batch.weights[..]);
        Batch { inner: Arc::new(batch), images, ids, labels, weights }
    }
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// Its place in the epoch.
    #[getter]
    fn index(&self) -> u32 {
        self.inner.index
    }

    /// A fingerprint of its content, for comparing runs: as `gristmill bench load --batches-out` writes it.
    #[getter]
    fn fingerprint(&self, py: Python<'_>) -> String {
        format!("{:016x}", py.detach(|| self.inner.fingerprint()))
    }

    /// The samples' ids, as int64.
    fn ids(&self) -> Memory {
        self.ids.lend()
    }

    /// Their labels, as int64.
    fn labels(&self) -> Memory {
        self.labels.lend()
    }

    /// What each one's loss is to be multiplied by, as float32.
    fn weights(&self) -> Memory {
        Memory::new(self.inner.clone(), self.weights, vec![self.inner.len() as i64], DataType::F32)
    }

    /// All samples as one tensor; None without a recipe.
    fn images(&self) -> Option<Memory> {
        let (Data::Tensor(tensor), Some(place)) = (&self.inner.data, self.images) else { return None };
        let output = tensor.output();
        let mut shape = vec![self.inner.len() as i64];
        shape.extend(output.shape().map(|side| side as i64));
        let dtype = match output.dtype {
            Dtype::U8 => DataType::U8,
            Dtype::F32 => DataType::F32,
        };
        Some(Memory::new(self.inner.clone(), place, shape, dtype))
    }

    /// The raw bytes of each sample, without a recipe.
    fn raw<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let Data::Raw(samples) = &self.inner.data else { return Ok(None) };
        PyList::new(py, samples.iter().map(|sample| PyBytes::new(py, sample))).map(Some)
    }

    /// The samples that were left out because they are bad, with the reason.
    fn skipped(&self) -> Vec<(u32, String)> {
        self.inner.skipped.iter().map(|bad| (bad.id.0, bad.reason.clone())).collect()
    }
}
