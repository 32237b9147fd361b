//! How good the model is on data that it was not trained on.

use super::input::Inputs;
use crate::loss::Facts;
use crate::model::{Mlp, Mode};
use gristmill_node::loader::{Loader, Polled};
use gristmill_node::{Error, Result};
use std::time::{Duration, Instant};

/// Mean loss and accuracy over all of `test`; none if it was told to stop before the end.
pub(crate) fn evaluate(
    model: &mut Mlp,
    test: &Loader,
    stop: &dyn Fn() -> bool,
) -> Result<Option<(f64, f64)>> {
    let mut epoch = test.epoch(0, 0)?;
    let stall = Duration::from_millis(test.options().stall_ms_max);
    let (mut inputs, mut facts) = (Inputs::default(), Facts::default());
    let (mut loss, mut correct, mut count) = (0.0, 0, 0_u64);
    let mut since = Instant::now();
    loop {
        if stop() {
            return Ok(None);
        }
        match epoch.poll(super::SLICE)? {
            Polled::Batch(batch) => {
                let x = inputs.of(&batch, model.inputs(), model.classes())?;
                model.forward(x, Mode::Evaluate);
                model.judge(&batch.labels, &vec![1.0; batch.len()], &mut facts);
                loss += facts.loss.iter().map(|loss| f64::from(*loss)).sum::<f64>();
                correct += facts.correct();
                count += batch.len() as u64;
                since = Instant::now();
            }
            Polled::Pending if since.elapsed() > stall => return Err(epoch.stalled()),
            Polled::Pending => {}
            Polled::Done => break,
        }
    }
    if count == 0 {
        return Err(Error::config("the test data has no sample that can be used"));
    }
    Ok(Some((loss / count as f64, correct as f64 / count as f64)))
}
