//! A store that fails on purpose: errors, stalls and short bodies at given rates.
//!
//! Whether a call fails is a pure function of the seed, what is asked for and how often it has failed in a row.
//! The same run fails in the same places, whatever the number of threads. A fault is what a real store would show:
//! an error that may be tried again, an answer that does not come, a body that ends too early and says nothing.
//!
//! Deliberately not here: wrong bytes of the right length. No store without checksums can notice them.

use super::{ObjectInfo, Store};
use crate::{Error, Kind, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_core::rng;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// How often a store fails and in which way. The default never fails.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultOptions {
    /// Which calls fail.
    pub seed: u64,
    /// Share of calls that answer with an error, 0 to 1.
    pub error_rate: f64,
    /// Share of calls that take `stall_ms` longer.
    pub stall_rate: f64,
    /// Share of reads that give too few bytes.
    pub short_rate: f64,
    /// How long a stalled call keeps still: longer than an attempt may take, or nobody notices.
    pub stall_ms: u64,
}

impl Default for FaultOptions {
    fn default() -> FaultOptions {
        FaultOptions { seed: 0, error_rate: 0.0, stall_rate: 0.0, short_rate: 0.0, stall_ms: 60_000 }
    }
}

/// What was put in so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Calls that answered with an error.
    pub errors: u64,
    /// Calls that were held back.
    pub stalls: u64,
    /// Reads that gave too few bytes.
    pub shorts: u64,
}

/// A store that fails on purpose.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Store>,
    options: FaultOptions,
    /// Faults in a row for each call that has not gone well since; a clean call forgets its entry.
    failed: Mutex<HashMap<u64, u64>>,
    errors: AtomicU64,
    stalls: AtomicU64,
    shorts: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Error,
    Stall,
    Short,
}

/// What kind of call: part of what decides whether it fails.
#[derive(Debug, Clone, Copy)]
enum Call {
    Read = 0,
    Stat = 1,
    List = 2,
}

impl Faulty {
    /// `inner` with faults at these rates, which are 0 to 1 and together at most 1.
    pub fn new(inner: Arc<dyn Store>, options: FaultOptions) -> Result<Faulty> {
        let rates = [options.error_rate, options.stall_rate, options.short_rate];
        if rates.iter().any(|rate| !(0.0..=1.0).contains(rate)) || rates.iter().sum::<f64>() > 1.0 + 1e-9 {
            return Err(Error::config(format!(
                "fault rates are 0 to 1 and together at most 1, not {} + {} + {}",
                rates[0], rates[1], rates[2]
            )));
        }
        Ok(Faulty {
            inner,
            options,
            failed: Mutex::default(),
            errors: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            shorts: AtomicU64::new(0),
        })
    }

    /// What was put in so far.
    pub fn counts(&self) -> FaultCounts {
        FaultCounts {
            errors: self.errors.load(Relaxed),
            stalls: self.stalls.load(Relaxed),
            shorts: self.shorts.load(Relaxed),
        }
    }

    /// Decides one call and remembers the decision for the next attempt at it.
    fn next(&self, call: Call, object: &str, range: &Range<u64>) -> Option<Fault> {
        let what = rng::key(&[xxh3_64(object.as_bytes()), range.start, range.end, call as u64]);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let attempt = failed.get(&what).copied().unwrap_or(0);
        let fault = decide(&self.options, what, attempt)
            .filter(|fault| *fault != Fault::Short || matches!(call, Call::Read) && range.end > range.start);
        match fault {
            Some(_) => failed.insert(what, attempt + 1),
            None => failed.remove(&what),
        };
        fault
    }

    /// Stalls or fails as decided; a short body is left to the caller.
    async fn suffer(&self, fault: Option<Fault>, object: &str) -> Result<()> {
        match fault {
            Some(Fault::Error) => {
                self.errors.fetch_add(1, Relaxed);
                let place = format!("{}/{object}", self.url());
                Err(Error::new(Kind::Unavailable, format!("cannot read {place}: an error put in on purpose")))
            }
            Some(Fault::Stall) => {
                self.stalls.fetch_add(1, Relaxed);
                tokio::time::sleep(Duration::from_millis(self.options.stall_ms)).await;
                Ok(())
            }
            Some(Fault::Short) | None => Ok(()),
        }
    }
}

fn decide(options: &FaultOptions, what: u64, attempt: u64) -> Option<Fault> {
    let mut stream = rng::Stream::from_key(rng::key(&[options.seed, what, attempt]));
    let mut place = stream.unit();
    let faults = [Fault::Error, Fault::Stall, Fault::Short];
    let rates = [options.error_rate, options.stall_rate, options.short_rate];
    for (fault, rate) in faults.into_iter().zip(rates) {
        if place < rate {
            return Some(fault);
        }
        place -= rate;
    }
    None
}

#[deny(clippy::missing_trait_methods)]
impl Store for Faulty {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn read<'a>(&'a self, object: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let fault = self.next(Call::Read, object, &range);
            self.suffer(fault, object).await?;
            let bytes = self.inner.read(object, range).await?;
            if fault != Some(Fault::Short) {
                return Ok(bytes);
            }
            self.shorts.fetch_add(1, Relaxed);
            Ok(bytes.slice(..bytes.len() / 2))
        }
        .boxed()
    }

    fn stat<'a>(&'a self, object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>> {
        async move {
            let fault = self.next(Call::Stat, object, &(0..0));
            self.suffer(fault, object).await?;
            self.inner.stat(object).await
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let fault = self.next(Call::List, prefix, &(0..0));
            if fault != Some(Fault::Error) {
                self.suffer(fault, prefix).await?;
                return self.inner.list(prefix, visit).await;
            }
            // Listings break in the middle: some objects were shown when the error comes.
            let mut left = 3;
            let mut some = |info| {
                left -= 1;
                if left < 0 { Ok(()) } else { visit(info) }
            };
            self.inner.list(prefix, &mut some).await?;
            self.suffer(fault, prefix).await
        }
        .boxed()
    }

    fn immediate(&self) -> bool {
        false
    }

    fn retries(&self) -> u64 {
        self.inner.retries()
    }

    fn faults(&self) -> u64 {
        let FaultCounts { errors, stalls, shorts } = self.counts();
        errors + stalls + shorts + self.inner.faults()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn rates_hold_and_runs_repeat() {
        let options =
            FaultOptions { error_rate: 0.1, stall_rate: 0.2, short_rate: 0.3, ..Default::default() };
        let run = |seed: u64| -> Vec<Option<Fault>> {
            let options = FaultOptions { seed, ..options.clone() };
            (0..20_000).map(|call| decide(&options, call, 0)).collect()
        };
        let first = run(1);
        assert_eq!(first, run(1));
        assert_ne!(first, run(2));
        for (fault, rate) in [(Fault::Error, 0.1), (Fault::Stall, 0.2), (Fault::Short, 0.3)] {
            let share = first.iter().filter(|f| **f == Some(fault)).count() as f64 / 20_000.0;
            // Five standard deviations of a share of 20,000 are 0.016 at most.
            assert!((share - rate).abs() < 0.016, "{fault:?} {share}");
        }
    }

    #[test]
    fn attempts_are_decided_anew_and_forgotten_after_success() {
        let inner = Arc::new(MemoryStore::new([("x", b"0123456789".to_vec())]));
        let faulty =
            Faulty::new(inner, FaultOptions { error_rate: 0.5, seed: 3, ..Default::default() }).unwrap();
        let round = || -> Vec<bool> {
            let results = (0..10).flat_map(|start| (0..64).map(move |_| start));
            results.map(|start| faulty.next(Call::Read, "x", &(start..10)).is_some()).collect()
        };
        let runs: Vec<bool> = round();
        assert!(runs.iter().any(|f| *f) && runs.iter().any(|f| !*f));
        assert!(faulty.failed.lock().unwrap().len() <= 10, "only what fails now is remembered");
        // After a success the count starts at 0 again, so every range goes through its one sequence over and over.
        for results in runs.chunks(64) {
            let period = results.iter().position(|failed| !failed).unwrap() + 1;
            assert!(results.windows(period + 1).all(|w| w[0] == w[period]), "{results:?}");
        }
    }

    #[test]
    fn wrong_rates_are_refused() {
        for (error_rate, stall_rate) in [(1.5, 0.0), (-0.1, 0.0), (f64::NAN, 0.0), (0.6, 0.6)] {
            let options = FaultOptions { error_rate, stall_rate, ..Default::default() };
            assert!(Faulty::new(Arc::new(MemoryStore::default()), options).is_err());
        }
    }
}
