//! The one place that tries again.
//!
//! A call is attempted a bounded number of times inside of a deadline, with a pause that doubles and is jittered so
//! that many readers do not come back together. An attempt that takes too long counts as failed: a stall is an
//! error too. What a store gives is measured here once more, so that no store can slip a short body through. Only
//! errors that may go away are tried again.
//!
//! A listing that breaks starts again; what was shown already is passed over, after checking that it is the same.
//! Its limits count from the last object shown, because a long listing is not a slow one.
//!
//! Stores that answer on the calling thread need no timer, so no runtime is needed here either: a pause is then a
//! sleep of that thread, and no attempt is cut short, because a blocking call cannot be.

use super::{ObjectInfo, Store};
use crate::{Error, Kind, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use gristmill_core::rng;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// How often and how long to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOptions {
    /// Attempts in all, the first one included; 1 means never again.
    pub attempts_max: u32,
    /// Pause after the first failure; it doubles each time.
    pub backoff_ms: u64,
    /// The longest pause.
    pub backoff_ms_max: u64,
    /// How long one attempt may take.
    pub attempt_ms_max: u64,
    /// How long all attempts and pauses of one call may take together.
    pub deadline_ms: u64,
}

impl Default for RetryOptions {
    fn default() -> RetryOptions {
        RetryOptions {
            attempts_max: 6,
            backoff_ms: 100,
            backoff_ms_max: 5_000,
            attempt_ms_max: 30_000,
            deadline_ms: 120_000,
        }
    }
}

/// What happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// Attempts after a first one.
    pub retries: u64,
    /// Attempts that took too long.
    pub stalls: u64,
    /// Reads that gave a wrong number of bytes.
    pub shorts: u64,
    /// Calls that failed for good although another attempt might have helped.
    pub given_up: u64,
}

/// A store whose calls are tried again.
#[derive(Debug)]
pub struct Retrying {
    inner: Arc<dyn Store>,
    options: RetryOptions,
    retries: AtomicU64,
    stalls: AtomicU64,
    shorts: AtomicU64,
    given_up: AtomicU64,
}

/// One call in progress: how often it failed and since when.
struct Trial<'a> {
    store: &'a Retrying,
    what: &'static str,
    object: &'a str,
    attempts: u32,
    start: Instant,
}

impl Retrying {
    /// `inner` with at least one attempt and some time for it.
    pub fn new(inner: Arc<dyn Store>, options: RetryOptions) -> Result<Retrying> {
        let limits = [
            ("attempts_max", u64::from(options.attempts_max)),
            ("attempt_ms_max", options.attempt_ms_max),
            ("deadline_ms", options.deadline_ms),
        ];
        for (name, limit) in limits {
            if limit == 0 {
                return Err(
                    Error::config(format!("{name} is 0, so no call could succeed")).hint("give at least 1")
                );
            }
        }
        Ok(Retrying {
            inner,
            options,
            retries: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            shorts: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        })
    }

    /// What happened so far.
    pub fn counts(&self) -> RetryCounts {
        RetryCounts {
            retries: self.retries.load(Relaxed),
            stalls: self.stalls.load(Relaxed),
            shorts: self.shorts.load(Relaxed),
            given_up: self.given_up.load(Relaxed),
        }
    }

    fn trial<'a>(&'a self, what: &'static str, object: &'a str) -> Trial<'a> {
        Trial { store: self, what, object, attempts: 0, start: Instant::now() }
    }

    /// A body that is not as long as what was asked for is no answer.
    fn measured(&self, object: &str, range: &Range<u64>, bytes: Bytes) -> Result<Bytes> {
        let want = range.end.saturating_sub(range.start);
        let got = bytes.len() as u64;
        if got == want {
            return Ok(bytes);
        }
        self.shorts.fetch_add(1, Relaxed);
        let message = format!("cannot read {}/{object}: {got} bytes came instead of {want}", self.url());
        Err(Error::new(Kind::Unavailable, message))
    }

    async fn list_again(
        &self,
        prefix: &str,
        visit: &mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> Result<()> {
        let mut trial = self.trial("list", prefix);
        // How many objects were shown, and a hash of their names in order.
        let (mut shown, mut chain) = (0_u64, 0_u64);
        loop {
            let before = shown;
            let seen = AtomicU64::new(0);
            let mut stopped = false;
            let (mut passed, mut again) = (0_u64, 0_u64);
            let mut pass = |info: ObjectInfo| {
                seen.fetch_add(1, Relaxed);
                let name = xxh3_64(info.path.as_bytes());
                if passed < before {
                    passed += 1;
                    again = rng::key(&[again, name]);
                    if passed == before && again != chain {
                        return Err(self.changed(prefix));
                    }
                    return Ok(());
                }
                shown += 1;
                chain = rng::key(&[chain, name]);
                visit(info).inspect_err(|_| stopped = true)
            };
            let result = self.patiently(self.inner.list(prefix, &mut pass), &seen).await;
            let result = match result {
                Ok(()) if passed < before => Err(self.changed(prefix)),
                result => result,
            };
            if shown > before {
                trial = self.trial("list", prefix);
            }
            match result {
                Err(error) if error.is_retryable() && !stopped => trial.failed(error).await?,
                result => return result,
            }
        }
    }

    /// Waits for a listing as long as it shows something new within the time of one attempt.
    async fn patiently(&self, listing: BoxFuture<'_, Result<()>>, seen: &AtomicU64) -> Result<()> {
        if self.immediate() {
            return listing.await;
        }
        let mut listing = listing;
        loop {
            let before = seen.load(Relaxed);
            let limit = Duration::from_millis(self.options.attempt_ms_max);
            match tokio::time::timeout(limit, &mut listing).await {
                Ok(result) => return result,
                Err(_) if seen.load(Relaxed) > before => {}
                Err(_) => return Err(self.stalled("list", "", limit)),
            }
        }
    }

    fn stalled(&self, what: &str, object: &str, limit: Duration) -> Error {
        self.stalls.fetch_add(1, Relaxed);
        let place = if object.is_empty() { self.url() } else { format!("{}/{object}", self.url()) };
        Error::new(
            Kind::Unavailable,
            format!("cannot {what} {place}: no answer within {} ms", limit.as_millis()),
        )
    }

    fn changed(&self, prefix: &str) -> Error {
        let place = if prefix.is_empty() { self.url() } else { format!("{}/{prefix}", self.url()) };
        Error::corrupt(format!("the objects of {place} changed while they were listed"))
            .hint("try again when nobody writes there")
    }
}

impl Trial<'_> {
    fn left(&self) -> Duration {
        Duration::from_millis(self.store.options.deadline_ms).saturating_sub(self.start.elapsed())
    }

    /// Makes one attempt within its time.
    async fn attempt<T>(&self, call: BoxFuture<'_, Result<T>>) -> Result<T> {
        if self.store.immediate() {
            return call.await;
        }
        let limit = self.left().min(Duration::from_millis(self.store.options.attempt_ms_max));
        match tokio::time::timeout(limit, call).await {
            Ok(result) => result,
            Err(_) => Err(self.store.stalled(self.what, self.object, limit)),
        }
    }

    /// Pauses after a failure, or gives up with what is to be said about it.
    async fn failed(&mut self, error: Error) -> Result<()> {
        self.attempts += 1;
        let store = self.store;
        let options = &store.options;
        let doubled = options.backoff_ms.saturating_mul(1 << (self.attempts - 1).min(30));
        let pause_ms = doubled.min(options.backoff_ms_max);
        // Different for every process and every pause; nothing that is computed depends on it.
        let salt = [u64::from(std::process::id()), store.retries.load(Relaxed), u64::from(self.attempts)];
        let share = 0.5 + 0.5 * rng::Stream::from_key(rng::key(&salt)).unit();
        let pause = Duration::from_secs_f64(pause_ms as f64 / 1e3 * share);
        if self.attempts >= options.attempts_max || pause >= self.left() {
            store.given_up.fetch_add(1, Relaxed);
            return Err(self.last_words(&error));
        }
        store.retries.fetch_add(1, Relaxed);
        if store.immediate() {
            std::thread::sleep(pause);
        } else {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    fn last_words(&self, error: &Error) -> Error {
        let (attempts, elapsed) = (self.attempts, self.start.elapsed().as_secs_f64());
        let plural = if attempts == 1 { "" } else { "s" };
        let limit = if attempts >= self.store.options.attempts_max { "attempts_max" } else { "deadline_ms" };
        let hint = error.remedy().map_or_else(
            || format!("check that the store is up and can be reached, or raise {limit}"),
            Into::into,
        );
        let message = format!("{error}; gave up after {attempts} attempt{plural} in {elapsed:.1} s");
        Error::new(error.kind(), message).hint(hint)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Retrying {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn read<'a>(&'a self, object: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let mut trial = self.trial("read", object);
            loop {
                let result = trial.attempt(self.inner.read(object, range.clone())).await;
                match result.and_then(|bytes| self.measured(object, &range, bytes)) {
                    Err(error) if error.is_retryable() => trial.failed(error).await?,
                    result => return result,
                }
            }
        }
        .boxed()
    }

    fn stat<'a>(&'a self, object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>> {
        async move {
            let mut trial = self.trial("read", object);
            loop {
                match trial.attempt(self.inner.stat(object)).await {
                    Err(error) if error.is_retryable() => trial.failed(error).await?,
                    result => return result,
                }
            }
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>> {
        self.list_again(prefix, visit).boxed()
    }

    fn immediate(&self) -> bool {
        self.inner.immediate()
    }

    fn retries(&self) -> u64 {
        self.retries.load(Relaxed) + self.inner.retries()
    }

    fn faults(&self) -> u64 {
        self.inner.faults()
    }
}
