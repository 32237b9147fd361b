//! A profile as `gristmill profile --save` wrote it: what a simulation takes from it.

use crate::commands::profile::SCHEMA;
use anyhow::Result;
use gristmill_node::Error;
use serde::Deserialize;
use std::io::Read;
use std::path::Path;

/// No profile is larger.
const BYTES_MAX: u64 = 1 << 20;
/// From this share of what latency alone allows on, latency is the limit.
const LATENCY_BOUND: f64 = 0.8;

#[derive(Debug, Deserialize)]
pub(super) struct Measured {
    pub(super) source: String,
    pub(super) samples: u32,
    pub(super) data: Data,
    pub(super) batch: u32,
    pub(super) threads: u32,
    pub(super) cores: u32,
    pub(super) prefetch_batches: u32,
    pub(super) fetch: Fetch,
    pub(super) prep: Option<Prep>,
    pub(super) compute_per_s: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Data {
    pub(super) bytes_mean: f64,
    pub(super) bytes_spread: f64,
    pub(super) classes: u32,
}

#[derive(Debug, Deserialize)]
pub(super) struct Fetch {
    pub(super) bytes_per_s: f64,
    pub(super) alone_ms: Option<f64>,
    pub(super) reads_in_flight: u32,
    pub(super) from_memory: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Prep {
    pub(super) cpu_ms_per_sample: f64,
}

#[derive(Debug, Deserialize)]
struct Version {
    schema: u32,
}

impl Measured {
    pub(super) fn open(path: &Path) -> Result<Measured> {
        let file = std::fs::File::open(path).map_err(|e| Error::io("open the profile", path.display(), e))?;
        let mut text = String::new();
        let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
        let damaged = |reason: String| {
            let error = Error::corrupt(format!("the profile {} is damaged: {reason}", path.display()));
            error.hint("make it again with `gristmill profile DATA --save FILE`")
        };
        read.map_err(|e| damaged(e.to_string()))?;
        if text.len() as u64 > BYTES_MAX {
            return Err(damaged(format!("it has more than {BYTES_MAX} bytes")).into());
        }
        let Version { schema } = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
        if schema != SCHEMA {
            let path = path.display();
            let error = Error::config(format!("the profile {path} has version {schema}; this is {SCHEMA}"));
            return Err(error.hint("make it again with `gristmill profile DATA --save FILE`").into());
        }
        let measured: Measured = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
        measured.check().map_err(|reason| damaged(reason.into()))?;
        Ok(measured)
    }

    /// What a measurement cannot have said.
    fn check(&self) -> Result<(), &'static str> {
        let Measured { data, fetch, prep, compute_per_s, .. } = self;
        let times = [fetch.alone_ms, prep.as_ref().map(|prep| prep.cpu_ms_per_sample)];
        let wrong = |value: f64| !(value.is_finite() && value >= 0.0);
        match () {
            () if self.samples == 0 || self.batch == 0 => Err("it has no samples, or batches of none"),
            () if wrong(data.bytes_mean) || wrong(data.bytes_spread) => Err("its sizes are no sizes"),
            () if wrong(fetch.bytes_per_s) => Err("its rate is no rate"),
            () if times.into_iter().flatten().any(wrong) => Err("its times are no times"),
            () if compute_per_s.is_some_and(|rate| wrong(rate) || rate == 0.0) => {
                Err("its model has no rate")
            }
            () => Ok(()),
        }
    }

    /// Whether reads took as long together as alone: then only the latency was met, and what the store carries is not known.
    pub(super) fn is_latency_bound(&self) -> bool {
        let at_once = if self.fetch.reads_in_flight == 0 { self.threads } else { self.fetch.reads_in_flight };
        let alone_ms = self.fetch.alone_ms.unwrap_or(0.0);
        let most = f64::from(at_once) * self.data.bytes_mean / alone_ms * 1e3;
        alone_ms > 0.0 && self.fetch.bytes_per_s > LATENCY_BOUND * most
    }

    /// What its store carries; no limit for data that was held in memory, or where none was met.
    pub(super) fn bytes_per_s(&self) -> f64 {
        let Fetch { bytes_per_s, from_memory, .. } = self.fetch;
        let unlimited = from_memory || bytes_per_s == 0.0 || self.is_latency_bound();
        if unlimited { f64::INFINITY } else { bytes_per_s }
    }

    /// What a read takes before its bytes flow.
    pub(super) fn latency_ms(&self) -> f64 {
        let flow_ms = self.data.bytes_mean / self.bytes_per_s() * 1e3;
        self.fetch.alone_ms.filter(|_| !self.fetch.from_memory).map_or(0.0, |ms| (ms - flow_ms).max(0.0))
    }

    /// What the model takes for a batch, if it was told.
    pub(super) fn step_ms(&self) -> Option<f64> {
        self.compute_per_s.map(|rate| f64::from(self.batch) * 1e3 / rate)
    }

    /// Whether what was measured is a disk of this machine.
    pub(super) fn is_local(&self) -> bool {
        self.fetch.reads_in_flight == 0 && !self.fetch.from_memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"schema":2,"source":"s","samples":100,"data":{"bytes_mean":1000.0,"bytes_spread":0.1,"classes":3,
        "class_share_max":0.4},"batch":10,"threads":2,"cores":2,"prefetch_batches":4,"fetch":{"bytes_per_s":1e6,"alone_ms":6.0,
        "reads_in_flight":64,"from_memory":false},"prep":{"cpu_ms_per_sample":2.0},"compute_per_s":500.0,"more":1}"#;

    fn open(text: &str) -> Result<Measured> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Measured::open(file.path())
    }

    #[test]
    fn figures_for_a_simulation() {
        let measured = open(GOOD).unwrap();
        assert!((measured.latency_ms() - 5.0).abs() < 1e-9 && !measured.is_local());
        assert!((measured.step_ms().unwrap() - 20.0).abs() < 1e-9);
        // 64 reads of 1 kB at once, each in 6 ms, would be 10.7 MB/s: the store's own limit was met.
        assert!(!measured.is_latency_bound());
        let far = open(&GOOD.replace("1e6", "10e6")).unwrap();
        assert!(
            far.is_latency_bound()
                && far.bytes_per_s().is_infinite()
                && (far.latency_ms() - 6.0).abs() < 1e-9
        );
    }

    #[test]
    fn damage_is_told() {
        for (text, words) in [
            (String::new(), "damaged"),
            (GOOD[..200].into(), "damaged"),
            (GOOD.replace("\"samples\":100,", ""), "samples"),
            (GOOD.replace("\"samples\":100", "\"samples\":0"), "no samples"),
            (GOOD.replace("1e6", "-1e6"), "its rate"),
            (GOOD.replace("6.0", "-6.0"), "its times"),
            (GOOD.replace("500.0", "0.0"), "no rate"),
            (GOOD.replace("\"schema\":2", "\"schema\":1"), "version 1"),
            (" ".repeat(2 << 20), "more than"),
        ] {
            let said = open(&text).unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
