//! The Python extension `gristmill._gristmill`: a thin door to the engine.
//!
//! `enter` is the one way in for calls that take time; `error` turns errors into exceptions; `memory` lends the
//! engine's memory to Python without a copy; `engine` and `epoch` are the loader; `reader` gives samples by id; `choice` selects,
//! `learned` says what a batch's predictions tell it; `exchange` swaps samples between ranks; `page` shows a run in a
//! browser; `orders` is for experiments with many ranks.
//!
//! Deliberately not here: anything a user meets. The package `gristmill` around it has the names, defaults and
//! docstrings. Importing this starts no thread and no runtime.

mod choice;
mod engine;
mod enter;
mod epoch;
mod error;
mod exchange;
mod learned;
mod memory;
mod orders;
mod page;
mod reader;

use gristmill_core::SampleId;
use gristmill_core::plan::{Plan, Shape, Uneven};
use pyo3::prelude::*;

/// The engine.
#[pymodule]
fn _gristmill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<choice::Choice>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<epoch::Epoch>()?;
    module.add_class::<epoch::Batch>()?;
    module.add_class::<exchange::Exchange>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<orders::ExchangeSimulation>()?;
    module.add_class::<page::Page>()?;
    module.add_class::<reader::Reader>()?;
    module.add_function(wrap_pyfunction!(exchange::exchange_patience_ms, module)?)?;
    module.add_function(wrap_pyfunction!(exchange::refusal, module)?)?;
    module.add_function(wrap_pyfunction!(learned::learned, module)?)?;
    module.add_function(wrap_pyfunction!(order, module)?)
}

/// The batches of one epoch on one rank, without a data set; in the order of ids without a seed.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "plain numbers cross the border; the package names them")]
fn order(
    py: Python<'_>,
    samples: u32,
    seed: Option<u64>,
    epoch: u64,
    batch: u32,
    rank: u32,
    world: u32,
    uneven: &str,
    drop_last: bool,
) -> PyResult<Vec<Vec<u32>>> {
    let uneven = match uneven {
        "drop" => Uneven::Drop,
        "pad" => Uneven::Pad,
        other => {
            return Err(error::named(
                py,
                "ConfigError",
                &format!("uneven is {other:?}; it must be drop or pad"),
            ));
        }
    };
    let shape = Shape { batch, rank, world, uneven, drop_last };
    enter::short(py, || {
        let plan = match seed {
            Some(seed) => Plan::shuffled(samples, seed, epoch, shape),
            None => Plan::in_order(samples, shape),
        }?;
        Ok((0..plan.batches()).map(|b| plan.batch(b).map(|SampleId(id)| id).collect()).collect())
    })
}
