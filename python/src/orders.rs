//! The orders of many ranks that exchange samples, in one process: for experiments that train all of them at once.
//!
//! The decisions are those of a real training; only nothing is moved, since one process holds everything.

use crate::enter;
use crate::error::exception;
use gristmill_core::exchange::{Choose, Exchange, ExchangeOptions, Form, Owners, View, measure};
use gristmill_core::plan::{Plan, Shape, Uneven};
use gristmill_node::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Who holds what, and the orders of all ranks epoch by epoch.
#[pyclass(module = "gristmill._gristmill")]
pub(crate) struct ExchangeSimulation {
    labels: Vec<u32>,
    shape: Shape,
    seed: u64,
    /// None for global shuffling.
    held: Option<(Owners, ExchangeOptions)>,
    moving: Option<(Exchange, Vec<u32>)>,
    epoch: u64,
}

#[pymethods]
impl ExchangeSimulation {
    /// `world` ranks with batches of `batch`; without a fraction every epoch is shuffled globally.
    #[new]
    #[pyo3(signature = (labels, world, batch, seed, *, fraction, partition = "even", choose = "uniform", form = "derangement"))]
    #[expect(clippy::too_many_arguments, reason = "plain numbers cross the border")]
    fn py_new(
        py: Python<'_>,
        labels: Vec<u32>,
        world: u32,
        batch: u32,
        seed: u64,
        fraction: Option<f64>,
        partition: &str,
        choose: &str,
        form: &str,
    ) -> PyResult<ExchangeSimulation> {
        let make = || -> Result<ExchangeSimulation> {
            let shape = Shape { batch, rank: 0, world, uneven: Uneven::Drop, drop_last: true };
            let samples = u32::try_from(labels.len()).unwrap_or(u32::MAX);
            let global = u64::from(batch) * u64::from(world);
            if global == 0 || global > u64::from(samples) {
                return Err(Error::config(format!(
                    "{samples} samples are no batch of {batch} for each of {world} ranks"
                )));
            }
            let (choose, form) =
                (named("choose", choose, &Choose::NAMES)?, named("form", form, &Form::NAMES)?);
            let sorted = named("partition", partition, &[("even", false), ("sorted", true)])?;
            let held = match fraction {
                None => None,
                Some(fraction) => {
                    let options = ExchangeOptions { fraction, form, choose };
                    options.check()?;
                    let owners = if sorted {
                        Owners::sorted(&labels, world)?
                    } else {
                        Owners::new(samples, world, seed)?
                    };
                    Some((owners, options))
                }
            };
            Ok(ExchangeSimulation { labels, shape, seed, held, moving: None, epoch: 0 })
        };
        enter::short(py, make)
    }

    /// The epoch that comes next.
    #[getter]
    fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Begins the next epoch and gives its order as uint32: of each run of `world * batch`, rank r has the r-th part. The
    /// `importance` of each sample as float32 is needed to choose by it.
    fn order<'py>(&mut self, py: Python<'py>, importance: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let order = self.begin(importance).map_err(|e| exception(py, &e))?;
        let bytes: Vec<u8> = order.iter().flat_map(|id| id.to_le_bytes()).collect();
        Ok(PyBytes::new(py, &bytes))
    }

    /// Ends the epoch: what moved is with its new holder. Says how many samples moved.
    fn commit(&mut self) -> usize {
        self.epoch += 1;
        let (Some((owners, _)), Some((exchange, left))) = (&mut self.held, self.moving.take()) else {
            return 0;
        };
        owners.commit(&exchange);
        owners.leave(left);
        exchange.all().count()
    }

    /// How far the classes of what the ranks hold are from those of all: the mean total variation, and what chance would give.
    fn divergence(&self) -> Option<(f64, f64)> {
        let apart = self.held.as_ref().map(|(owners, _)| measure::divergence(owners, &self.labels));
        apart.map(|apart| (apart.mean, apart.expected))
    }
}

impl ExchangeSimulation {
    fn begin(&mut self, importance: &[u8]) -> Result<Vec<u32>> {
        let Some((owners, options)) = &self.held else {
            let whole = Shape { batch: self.shape.batch * self.shape.world, world: 1, ..self.shape };
            let plan = Plan::shuffled(self.labels.len() as u32, self.seed, self.epoch, whole)?;
            let ids = |batch| plan.batch(batch).map(|id| id.0).collect::<Vec<u32>>();
            return Ok((0..plan.batches()).flat_map(ids).collect());
        };
        let importance: Vec<f32> =
            importance.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
        let view = View { active: None, importance: &importance, labels: &self.labels };
        let exchange = owners.exchange(self.seed, self.epoch, options, view)?;
        let laid = owners.lay_out(self.seed, self.epoch, self.shape, true, None);
        self.moving = Some((exchange, laid.left));
        Ok(laid.order)
    }
}

fn named<T: Copy>(what: &str, text: &str, names: &[(&str, T)]) -> Result<T> {
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        Error::config(format!("{what} is {text:?}; it must be one of {}", known.join(", ")))
    })
}
