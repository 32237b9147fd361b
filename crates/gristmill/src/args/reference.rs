//! Which reference page is asked for.

use clap::ValueEnum;

/// A page of the reference.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Page {
    /// Every setting
    Settings,
    /// Every command and its arguments
    Commands,
    /// Every figure of /metrics
    Metrics,
}
