//! Errors as Python exceptions, in one place.
//!
//! `GristmillError` is the base of all; `ConfigError` is also a `ValueError`, `StoreError` also an `OSError`, so
//! that code which knows nothing of Gristmill catches them too. They are made in Python (`gristmill.errors`), since
//! an extension cannot give an exception two bases; here they are looked up by name.

use gristmill_node::{Error, Kind};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

/// The exception for an error of the engine.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error.kind() {
        Kind::Config => "ConfigError",
        Kind::Corrupt => "CorruptSampleError",
        Kind::NotFound | Kind::Unavailable | Kind::Io => "StoreError",
        Kind::Stopped => return PyKeyboardInterrupt::new_err(()),
        _ => "GristmillError",
    };
    let text = match error.remedy() {
        Some(hint) if !hint.is_empty() => format!("{error} ({hint})"),
        _ => error.to_string(),
    };
    named(py, class, &text)
}

/// An exception of `gristmill.errors` by its name.
pub(crate) fn named(py: Python<'_>, class: &str, text: &str) -> PyErr {
    let made = py
        .import("gristmill.errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((text,)))
        .map(PyErr::from_value);
    made.unwrap_or_else(|_| PyRuntimeError::new_err(text.to_string()))
}
