//! Selection for Python: what a loader or a sampler tells it and asks it.
//!
//! Columns come as bytes of the array that the package made: one small copy per batch, and no assumption about the
//! framework it came from.

use crate::enter;
use crate::error::{exception, named};
use gristmill_core::SampleId;
use gristmill_core::family::Families;
use gristmill_core::plan::Shape;
use gristmill_core::score::Feedback;
use gristmill_core::select::Norm;
use gristmill_node::config::Config;
use gristmill_node::loader::LoaderOptions;
use gristmill_node::selection::{self, Relatives};
use gristmill_node::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// Decides which samples an epoch trains on.
#[pyclass(frozen, module = "gristmill._gristmill")]
pub(crate) struct Choice {
    inner: Arc<selection::Choice>,
    shape: Shape,
    shuffle: bool,
}

impl Choice {
    pub(crate) fn new(inner: Arc<selection::Choice>, shape: Shape, shuffle: bool) -> Choice {
        Choice { inner, shape, shuffle }
    }

    /// A choice among samples that only the caller reads; without labels they are all of one class.
    pub(crate) fn among(
        labels: &[u32],
        sizes: &[u32],
        families: Option<Arc<Families>>,
        options: &LoaderOptions,
    ) -> Result<Choice> {
        let (how, world) = (&options.selection, options.shape.world);
        let mut made = selection::Choice::new(how, labels, sizes, options.seed, world)?;
        if let Some(families) = families {
            // The caller reads for itself: what it may hold for repeats is taken to be what a loader would.
            let held_bytes_max = options.memory_bytes_max / 16;
            made = made
                .with_relatives(Relatives { families, families_use: how.families, held_bytes_max }, sizes);
        }
        Ok(Choice::new(Arc::new(made), options.shape, options.shuffle))
    }
}

#[pymethods]
impl Choice {
    /// A choice among `samples` samples of which nothing else is known.
    #[new]
    fn py_new(py: Python<'_>, samples: u32, settings: Vec<(String, String)>) -> PyResult<Choice> {
        enter::short(py, move || {
            let zeros = vec![0; samples as usize];
            Choice::among(&zeros, &zeros, None, &Config::load(None, &settings)?.settings().loader())
        })
    }

    /// The epoch that began last.
    #[getter]
    fn begun(&self) -> Option<u64> {
        self.inner.epoch()
    }

    /// Whether the ranks must share what they heard before the next epoch can begin, and have not yet.
    #[getter]
    fn must_share(&self) -> bool {
        self.inner.shares() && !self.inner.shared()
    }

    /// In how many epochs at the beginning a small model is to be trained.
    #[getter]
    fn proxy_epochs(&self) -> u64 {
        self.inner.proxy_epochs()
    }

    /// Whether feedback must have the entropy of predictions.
    #[getter]
    fn wants_entropy(&self) -> bool {
        self.inner.wants_entropy()
    }

    /// Begins an epoch and gives the ids and weights of its batches on this rank, from one batch on.
    #[expect(clippy::type_complexity, reason = "two lists of lists are what Python takes")]
    fn order(&self, py: Python<'_>, epoch: u64, from_batch: u32) -> PyResult<(Vec<Vec<u32>>, Vec<Vec<f32>>)> {
        enter::short(py, || {
            let plan = self.inner.decide(epoch, self.shape, self.shuffle)?.plan;
            let batches = from_batch..plan.batches();
            let ids = batches.clone().map(|b| plan.batch(b).map(|SampleId(id)| id).collect()).collect();
            let weights = |b| (0..plan.batch_len(b)).map(|slot| plan.weight(b, slot)).collect();
            Ok((ids, batches.map(weights).collect()))
        })
    }

    /// Batches of the epoch that began last, on every rank.
    fn batches(&self) -> u32 {
        self.inner.batches(self.shape)
    }

    /// Samples of a batch of the epoch that began last, on every rank.
    fn batch_size(&self) -> u32 {
        self.inner.batch(self.shape)
    }

    /// What was selected for the epoch that began last, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let report = self.inner.chosen().map(|report| serde_json::to_string(&report));
        report.transpose().map_err(|e| named(py, "GristmillError", &e.to_string()))
    }

    /// What is known of the model's batch norm: unknown, absent or weighed.
    fn norm(&self, py: Python<'_>, norm: &str) -> PyResult<()> {
        let known = Norm::ALL.into_iter().find(|known| known.name() == norm);
        let absent = || named(py, "ConfigError", &format!("there is no batch norm {norm:?}"));
        self.inner.norm(known.ok_or_else(absent)?);
        Ok(())
    }

    /// Takes what the trainer says: ids as int64, and rows of float32: `p_true`, `p_rival`, loss and perhaps entropy.
    #[pyo3(signature = (ids, columns, classified=true))]
    fn feedback(&self, py: Python<'_>, ids: &[u8], columns: &[u8], classified: bool) -> PyResult<()> {
        let told = || -> Result<()> {
            let ids = ids_of(ids)?;
            let values = floats_of(columns);
            let n = ids.len();
            if n == 0 || !values.len().is_multiple_of(n) || !(3..=4).contains(&(values.len() / n)) {
                return Err(Error::config(format!(
                    "{n} ids do not go with {} values of feedback",
                    values.len()
                )));
            }
            let column = |i: usize| &values[i * n..(i + 1) * n];
            let entropy = (values.len() == 4 * n).then(|| column(3));
            let (p_true, p_rival, loss) = (column(0), column(1), column(2));
            self.inner.feedback(&Feedback { ids: &ids, p_true, p_rival, loss, entropy })?;
            if !classified {
                self.inner.unjudged();
            }
            Ok(())
        };
        told().map_err(|e| exception(py, &e))
    }

    /// Which of the samples that were just forwarded are to be trained on: one byte each.
    fn keep<'py>(&self, py: Python<'py>, ids: &[u8], losses: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let asked = || -> Result<Vec<u8>> {
            let kept = self.inner.keep(&ids_of(ids)?, &floats_of(losses))?;
            Ok(kept.into_iter().map(u8::from).collect())
        };
        asked().map(|kept| PyBytes::new(py, &kept)).map_err(|e| exception(py, &e))
    }

    /// What this rank heard since the last merge.
    fn pending<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.pending())
    }

    /// Takes what all ranks heard, in the order of ranks.
    fn merge(&self, py: Python<'_>, packs: Vec<Vec<u8>>) -> PyResult<()> {
        enter::short(py, move || self.inner.merge(&packs))
    }

    /// Everything that decides the epochs to come.
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let state = py.detach(|| self.inner.state());
        PyBytes::new(py, &state)
    }

    /// Goes on from a saved state.
    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        enter::short(py, || self.inner.restore(state))
    }
}

pub(crate) fn ids_of(bytes: &[u8]) -> Result<Vec<u32>> {
    let (words, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Error::config("ids must be an array of int64"));
    }
    let one = |word: &[u8; 8]| {
        let id = i64::from_le_bytes(*word);
        u32::try_from(id).map_err(|_| Error::config(format!("{id} is no sample id")))
    };
    words.iter().map(one).collect()
}

pub(crate) fn floats_of(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}
