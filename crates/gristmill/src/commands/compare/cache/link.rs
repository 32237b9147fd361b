//! How slow the store is: as typed, or so slow that reading takes a given time beside computing.
//!
//! Whether a cache helps depends on how much longer reading takes than computing, and on small samples reads cost more
//! than bytes do. So by default both are made from one figure, measured on the machine at hand: the same comparison then
//! says the same on a fast and on a slow one.

use crate::args::CompareCacheArgs;
use crate::commands::compare::ground::Ground;
use crate::output::size;
use anyhow::Result;
use gristmill_node::Error;
use gristmill_node::store::ThrottleOptions;
use gristmill_train::TrainOptions;
use serde::Serialize;

/// What a read costs beside its bytes, in bytes; a page of most storage.
const READ_COSTS_BYTES: u64 = 4_096;
/// The most times longer that reading may take.
const BOUND_MAX: f64 = 1_000.0;
/// Epochs that are measured; the faster one counts.
const EPOCHS: u64 = 2;

/// How the store is slowed down.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct Link {
    pub(super) bytes_per_s: Option<u64>,
    pub(super) latency_ms: u64,
    pub(super) requests_per_s: Option<u64>,
    /// How many times longer reading everything takes than computing on it, where the rest follows from that.
    pub(super) bound: Option<f64>,
}

/// The settings that make a link.
#[derive(Debug, Clone, Default)]
pub(super) struct Typed {
    pub(super) latency_ms: Option<String>,
    pub(super) bytes_per_s: Option<String>,
    pub(super) requests_per_s: Option<String>,
    pub(super) gap_bytes_max: Option<String>,
    bound: Option<f64>,
}

impl Typed {
    /// What was typed; none if the link is to be made from `--bound`.
    pub(super) fn of(args: &CompareCacheArgs) -> Result<Option<Typed>> {
        let latency_ms = Some(args.latency_ms.clone().unwrap_or_else(|| "1".into()));
        if args.bytes_per_s.is_some() || args.requests_per_s.is_some() {
            let (bytes_per_s, requests_per_s) = (args.bytes_per_s.clone(), args.requests_per_s.clone());
            return Ok(Some(Typed { latency_ms, bytes_per_s, requests_per_s, ..Typed::default() }));
        }
        if args.bound > 0.0 && args.bound <= BOUND_MAX {
            return Ok(None);
        }
        let error = Error::config(format!("--bound {} is not above 0 and at most {BOUND_MAX}", args.bound));
        Err(error.hint("2 makes reading take twice as long as computing").into())
    }

    /// The link on which reading everything once takes `--bound` times as long as an epoch of computing. The store of
    /// `ground` is as fast as it is. What a read costs is in that, so nothing is added to it unless it was typed: many
    /// small reads would otherwise take longer than was asked for.
    pub(super) fn measured(ground: &Ground, args: &CompareCacheArgs) -> Result<Typed> {
        let bound = args.bound;
        let catalog = ground.set().catalog();
        let loader = ground.loader(ground.options.seed, ground.options.selection.clone(), None)?;
        let options = TrainOptions { epochs: EPOCHS, ..ground.train.clone() };
        let rows = ground.run(&loader, options, &mut |_| ())?;
        let computing_s =
            rows.iter().map(|row| (row.wall_ms - row.wait.total_ms) / 1e3).fold(f64::INFINITY, f64::min);
        let samples = u64::from(catalog.len());
        let latency_ms = args.latency_ms.clone().unwrap_or_else(|| "0".into());
        let link = Typed::taking(bound * computing_s, samples, catalog.total_bytes()?, bound);
        Ok(Typed { latency_ms: Some(latency_ms), ..link })
    }

    fn taking(seconds: f64, samples: u64, total_bytes: u64, bound: f64) -> Typed {
        let bytes = total_bytes.max(samples.saturating_mul(READ_COSTS_BYTES)) as f64;
        let bytes_per_s = (bytes / seconds.max(1e-3)).ceil().max(READ_COSTS_BYTES as f64);
        Typed {
            bytes_per_s: Some(format!("{bytes_per_s}")),
            requests_per_s: Some(format!("{}", (bytes_per_s / READ_COSTS_BYTES as f64).ceil())),
            gap_bytes_max: Some(READ_COSTS_BYTES.to_string()),
            bound: Some(bound),
            ..Typed::default()
        }
    }

    /// What came of it.
    pub(super) fn link(&self, throttle: Option<ThrottleOptions>) -> Link {
        let ThrottleOptions { latency_ms, bytes_per_s, requests_per_s, .. } = throttle.unwrap_or_default();
        Link { bytes_per_s, latency_ms, requests_per_s, bound: self.bound }
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bytes_per_s {
            Some(bytes) => write!(f, "{} per second", size(bytes))?,
            None => f.write_str("no limit on bytes")?,
        }
        write!(f, ", {} ms to the first byte", self.latency_ms)?;
        if let Some(requests) = self.requests_per_s {
            write!(f, ", {requests} reads per second")?;
        }
        match self.bound {
            Some(bound) => write!(f, " (reading everything takes {bound} times as long as computing on it)"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_samples_are_bound_by_reads_and_large_ones_by_bytes() {
        for (samples, total_bytes) in [(60_000, 60_000 * 784), (1_000, 1_000 * 110_000)] {
            let typed = Typed::taking(2.0, samples, total_bytes, 2.0);
            let number = |text: &Option<String>| text.as_ref().unwrap().parse::<f64>().unwrap();
            let by_reads = samples as f64 / number(&typed.requests_per_s);
            let by_bytes = total_bytes as f64 / number(&typed.bytes_per_s);
            assert!((by_reads.max(by_bytes) - 2.0).abs() < 0.01, "{by_reads} {by_bytes}");
            assert_eq!(by_reads > by_bytes, total_bytes < samples * READ_COSTS_BYTES);
        }
    }
}
