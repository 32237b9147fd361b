//! The one door for calls that take time.
//!
//! It releases the interpreter, looks at signals twenty times a second so that Ctrl-C works, turns errors into
//! exceptions and a panic into an exception that asks for a report.
//!
//! A call that was interrupted is left behind on its own thread: it holds nothing of Python and ends by itself at
//! its own limits. So nothing here can hang the interpreter.

use crate::error::{exception, named};
use gristmill_node::Error;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How often signals are looked at.
pub(crate) const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Runs work that may take long on a thread of its own, while this one looks at signals.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = channel();
    let run = move || {
        // Nobody listens any more after an interrupt; the result is then dropped here.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
    };
    std::thread::Builder::new()
        .name("grist-call".into())
        .spawn(run)
        .map_err(|e| exception(py, &Error::io("start", "a thread", e)))?;
    loop {
        let waiting = &mut receiver;
        match py.detach(move || waiting.recv_timeout(SIGNALS_EVERY)) {
            Ok(outcome) => return finish(py, outcome),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(named(py, "GristmillError", "a thread of the engine ended without an answer"));
            }
        }
    }
}

/// Runs work that is short on this thread.
pub(crate) fn short<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    let outcome = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    finish(py, outcome)
}

fn finish<T>(py: Python<'_>, outcome: Result<Result<T, Error>, Box<dyn Any + Send>>) -> PyResult<T> {
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(exception(py, &error)),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            let text = format!("the engine panicked: {words} (this is a defect; please report it)");
            Err(named(py, "GristmillError", &text))
        }
    }
}
