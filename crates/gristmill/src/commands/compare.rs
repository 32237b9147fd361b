//! `gristmill compare`: techniques trained side by side from several seeds.
//!
//! They take turns within each seed, so that whatever else the machine does falls on all of them. What the comparisons
//! share is here: the ground that all are trained on, and how figures of several seeds become one.

mod all;
mod cache;
mod exchange;
mod ground;
mod keep;
mod selection;
mod split;
mod unpack;
mod upstream;

pub(super) use all::all;
pub(super) use cache::cache;
pub(super) use exchange::exchange;
pub(super) use selection::selection;
pub(super) use split::split;

use anyhow::Result;
use gristmill_node::Error;

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard deviation of what the values are a sample of; none of fewer than two.
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    let sum: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (sum / (values.len() - 1) as f64).sqrt())
}

/// Runs two jobs at the same time and waits for both: this thread has the first.
fn two_at_once<T: Send>(one: impl Fn(usize) -> Result<T> + Sync) -> Result<(T, T)> {
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().name("grist-job-b".into()).spawn_scoped(scope, || one(1));
        let other = other.map_err(|e| Error::io("start", "a thread", e))?;
        let first = one(0);
        let second = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((first?, second?))
    })
}

/// A spread as tables show it.
fn spread(value: Option<f64>, scale: f64) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{:.2}", value * scale))
}
