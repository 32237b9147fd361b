//! The exchange between ranks for Python: what the package's own thread drives, with messages as bytearrays.
//!
//! Deliberately not here: the way to the other ranks, which is the framework's (`gristmill/peers.py`).

use crate::enter;
use crate::error::named;
use gristmill_node::config::Config;
use gristmill_node::exchange::{Due, Exchanger};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A message to be sent: to whom, its number, and what it says.
type Outgoing<'py> = (u32, u32, Bound<'py, PyByteArray>);
/// A message to come: from whom, its number, and its size.
type Incoming = (u32, u32, usize);

/// One rank's exchange.
#[pyclass(frozen, module = "gristmill._gristmill")]
pub(crate) struct Exchange {
    inner: Arc<Exchanger>,
}

impl Exchange {
    pub(crate) fn new(inner: Arc<Exchanger>) -> Exchange {
        Exchange { inner }
    }
}

/// What a rank says at the start if it cannot even open its data set.
#[pyfunction]
pub(crate) fn refusal<'py>(py: Python<'py>, rank: u32, why: &str) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &gristmill_node::exchange::refusal(rank, why))
}

/// How long ranks wait for each other with these settings; None if they do not exchange, or cannot be read.
#[pyfunction]
#[pyo3(signature = (settings, config=None))]
pub(crate) fn exchange_patience_ms(
    py: Python<'_>,
    settings: Vec<(String, String)>,
    config: Option<PathBuf>,
) -> Option<u64> {
    py.detach(move || {
        let config = Config::load(config.as_deref(), &settings).ok()?;
        config.settings().loader().exchange.map(|exchange| exchange.patience_ms)
    })
}

#[pymethods]
impl Exchange {
    /// How long a rank waits for another.
    #[getter]
    fn patience_ms(&self) -> u64 {
        u64::try_from(self.inner.patience().as_millis()).unwrap_or(u64::MAX)
    }

    /// The epoch whose exchange is under way.
    #[getter]
    fn running(&self) -> Option<u64> {
        self.inner.running()
    }

    /// The epoch that comes after the last one that all ranks finished.
    #[getter]
    fn resumes_at(&self) -> u64 {
        self.inner.resumes_at()
    }

    /// What this rank says at the start.
    fn pledge<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let pledge = py.detach(|| self.inner.pledge());
        PyBytes::new(py, &pledge)
    }

    /// Takes what all ranks said at the start, in the order of ranks.
    fn agree(&self, py: Python<'_>, pledges: Vec<Vec<u8>>) -> PyResult<()> {
        enter::short(py, move || self.inner.agree(&pledges))
    }

    /// Gets what the slice lacks when an epoch begins.
    fn fill(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        enter::short(py, || self.inner.fill(epoch, &mut |_| true).map(|_| ()))
    }

    /// What this rank says about the epoch that it has begun.
    fn vow<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let vow = py.detach(|| self.inner.vow());
        PyBytes::new(py, &vow)
    }

    /// The same of a rank that cannot begin it.
    fn refuse<'py>(&self, py: Python<'py>, epoch: u64, why: &str) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.refusal(epoch, why))
    }

    /// Takes what all ranks said about the epoch that they have begun, in the order of ranks.
    fn begun(&self, py: Python<'_>, said: Vec<Vec<u8>>) -> PyResult<()> {
        enter::short(py, move || self.inner.begun(&said))
    }

    /// What is due once a batch is handed out: messages to send, messages to expect, and whether to ask again.
    fn due<'py>(&self, py: Python<'py>, batch: u32) -> PyResult<(Vec<Outgoing<'py>>, Vec<Incoming>, bool)> {
        let Due { sends, receives, more } = enter::short(py, || self.inner.due(batch))?;
        let sends = sends.iter().map(|parcel| (parcel.peer, parcel.tag, PyByteArray::new(py, &parcel.bytes)));
        let receives = receives.iter().map(|expected| (expected.peer, expected.tag, expected.bytes));
        Ok((sends.collect(), receives.collect(), more))
    }

    /// Takes a message that came.
    fn take(&self, py: Python<'_>, peer: u32, tag: u32, message: &Bound<'_, PyByteArray>) -> PyResult<()> {
        let message = message.to_vec();
        enter::short(py, || {
            self.inner.take(peer, tag, &message);
            Ok(())
        })
    }

    /// What was due and has not come, as sources and numbers.
    fn outstanding(&self, py: Python<'_>) -> Vec<(u32, u32)> {
        py.detach(|| self.inner.outstanding())
    }

    /// Notes how long training waited for the exchange.
    fn waited(&self, ms: f64) {
        self.inner.waited(Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default());
    }

    /// Makes what came durable; the words for everybody.
    fn settle<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let inner = Arc::clone(&self.inner);
        let words = enter::wait(py, move || Ok(inner.settle()))?;
        Ok(PyBytes::new(py, &words))
    }

    /// Makes durable what came, now and then, so that little is left for the end of the epoch; does not wait for it.
    fn ease(&self, py: Python<'_>) {
        py.detach(|| self.inner.ease());
    }

    /// Takes everybody's words; if all is well, the next epoch may begin, and what was sent may go.
    fn conclude(&self, py: Python<'_>, said: Vec<Vec<u8>>) -> PyResult<()> {
        enter::short(py, move || self.inner.conclude(&said).map(|_| ()))
    }

    /// Writes down what was concluded and deletes what was sent, while the next epoch runs.
    fn sweep_later(&self, py: Python<'_>) {
        py.detach(|| self.inner.sweep_later());
    }

    /// Waits until nothing is done behind the training any more.
    fn rest(&self, py: Python<'_>) {
        py.detach(|| self.inner.rest());
    }

    /// What the exchange of an epoch did so far, as JSON, if it runs or was the last one.
    fn report(&self, py: Python<'_>, epoch: u64) -> PyResult<Option<String>> {
        let report = py.detach(|| self.inner.report(epoch)).map(|report| serde_json::to_string(&report));
        report.transpose().map_err(|e| named(py, "GristmillError", &e.to_string()))
    }

    /// Who holds what, for a checkpoint.
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let state = py.detach(|| self.inner.state());
        PyBytes::new(py, &state)
    }

    /// Goes on from a saved state.
    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        enter::short(py, || self.inner.restore(state))
    }
}
