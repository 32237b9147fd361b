//! A slow, far store made out of a fast, near one.
//!
//! Three things slow a read down: the store accepts only so many requests per second, an answer takes a latency to
//! begin, and all answers share one link. Requests and link time are reserved in the order in which reads are
//! made, so the cost of a read is known at once and only its end is waited for. With the virtual clock nobody
//! waits: the reservations are made as if a fixed number of reads were in flight, and a test or a benchmark reads
//! off how long the real thing would have taken.
//!
//! Deliberately not here: jitter and losses (see `faulty`), and a model of slow disks with seeks.

use super::{ObjectInfo, Store};
use crate::{Error, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Objects per page of a listing, as in the stores that this one stands for.
const PAGE: u64 = 1_000;

/// How slow the store is. The default is not slow at all.
#[derive(Debug, Clone, Default)]
pub struct ThrottleOptions {
    /// Time from a request to the first byte of its answer.
    pub latency_ms: u64,
    /// What the link carries, all reads together; no limit when absent.
    pub bytes_per_s: Option<u64>,
    /// How many requests the store accepts; no limit when absent.
    pub requests_per_s: Option<u64>,
    /// Who waits.
    pub clock: Clock,
}

/// Whether a slow read really takes its time.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// Reads take as long as they say.
    #[default]
    Real,
    /// Reads finish at once and only say how long they would have taken.
    Virtual(VirtualClock),
}

/// The time that a throttled store would have taken, with a fixed number of reads in flight. Clones share it.
#[derive(Debug, Clone)]
pub struct VirtualClock {
    slots: Arc<Mutex<Slots>>,
}

#[derive(Debug)]
struct Slots {
    free: usize,
    ends: BinaryHeap<Reverse<Duration>>,
    now: Duration,
}

impl VirtualClock {
    /// A clock at zero for a reader that keeps `in_flight` reads going (at least one).
    pub fn new(in_flight: usize) -> VirtualClock {
        let slots = Slots { free: in_flight.max(1), ends: BinaryHeap::new(), now: Duration::ZERO };
        VirtualClock { slots: Arc::new(Mutex::new(slots)) }
    }

    /// When the last read so far has ended.
    pub fn elapsed(&self) -> Duration {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).now
    }

    /// Makes one read: it starts when the reader has room for it, and `reserve` turns its start into its end.
    fn pass(&self, reserve: impl FnOnce(Duration) -> Duration) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let start = if slots.free > 0 {
            slots.free -= 1;
            Duration::ZERO
        } else {
            slots.ends.pop().map_or(Duration::ZERO, |Reverse(end)| end)
        };
        let end = reserve(start);
        slots.ends.push(Reverse(end));
        slots.now = slots.now.max(end);
    }
}

/// A store that is as slow as its options say.
#[derive(Debug)]
pub struct Throttled {
    inner: Arc<dyn Store>,
    options: ThrottleOptions,
    epoch: Instant,
    link: Mutex<Link>,
}

/// Times since the store was made.
#[derive(Debug, Default)]
struct Link {
    next_request: Duration,
    free: Duration,
}

impl Throttled {
    /// `inner` behind a link with these limits; none of them may be 0.
    pub fn new(inner: Arc<dyn Store>, options: ThrottleOptions) -> Result<Throttled> {
        for (name, limit) in
            [("bytes_per_s", options.bytes_per_s), ("requests_per_s", options.requests_per_s)]
        {
            if limit == Some(0) {
                return Err(Error::config(format!("{name} is 0, so no read would ever end"))
                    .hint("leave it out for no limit"));
            }
        }
        let link = Mutex::new(Link::default());
        Ok(Throttled { inner, options, epoch: Instant::now(), link })
    }

    /// Reserves one request and the link time of `bytes` for a read made at `start`, and says when it ends.
    fn reserve(&self, start: Duration, bytes: u64) -> Duration {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = start.max(link.next_request);
        link.next_request = sent + per(1, self.options.requests_per_s);
        let first_byte = sent + Duration::from_millis(self.options.latency_ms);
        let end = first_byte.max(link.free) + per(bytes, self.options.bytes_per_s);
        link.free = end;
        end
    }

    /// The requests of one call made at `start`, one after the other, then the wait for the last of them.
    async fn pay(&self, start: Duration, requests: u64, bytes: u64) {
        let all = |start| {
            let mut end = start;
            for request in 0..requests {
                end = self.reserve(end, if request == 0 { bytes } else { 0 });
            }
            end
        };
        match &self.options.clock {
            Clock::Virtual(clock) => clock.pass(all),
            Clock::Real => {
                let end = self.epoch + all(start);
                // Timers tick in milliseconds. A shorter wait is left on the link, where it adds up, instead of
                // being rounded up for each of many small reads.
                if end.saturating_duration_since(Instant::now()) >= Duration::from_micros(500) {
                    tokio::time::sleep_until(end).await;
                }
            }
        }
    }
}

/// The time that `units` take at a rate; none without a limit.
fn per(units: u64, units_per_s: Option<u64>) -> Duration {
    units_per_s.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(units as f64 / rate as f64))
}

#[deny(clippy::missing_trait_methods)]
impl Store for Throttled {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn read<'a>(&'a self, object: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let start = self.epoch.elapsed();
            // What was asked for may be nonsense; only what is there takes link time.
            let result = self.inner.read(object, range).await;
            self.pay(start, 1, result.as_ref().map_or(0, |bytes| bytes.len() as u64)).await;
            result
        }
        .boxed()
    }

    fn stat<'a>(&'a self, object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>> {
        async move {
            let start = self.epoch.elapsed();
            let result = self.inner.stat(object).await;
            self.pay(start, 1, 0).await;
            result
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let start = self.epoch.elapsed();
            let mut objects = 0;
            let mut count = |info| {
                objects += 1;
                visit(info)
            };
            let result = self.inner.list(prefix, &mut count).await;
            self.pay(start, u64::max(1, u64::div_ceil(objects, PAGE)), 0).await;
            result
        }
        .boxed()
    }

    fn immediate(&self) -> bool {
        matches!(self.options.clock, Clock::Virtual(_)) && self.inner.immediate()
    }

    fn retries(&self) -> u64 {
        self.inner.retries()
    }

    fn faults(&self) -> u64 {
        self.inner.faults()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;
    use futures::StreamExt;
    use futures::executor::block_on;
    use proptest::prelude::*;

    fn throttled(size: usize, options: ThrottleOptions) -> Throttled {
        Throttled::new(Arc::new(MemoryStore::new([("x", vec![7; size])])), options).unwrap()
    }

    /// `reads` equal reads with `in_flight` going on: in a steady state each slot takes the longest of its own
    /// trip, its share of the link and its share of the requests.
    fn closed_form(reads: u64, in_flight: u64, size: u64, options: &ThrottleOptions) -> f64 {
        let latency = options.latency_ms as f64 / 1e3;
        let link = options.bytes_per_s.map_or(0.0, |rate| size as f64 / rate as f64);
        let request = options.requests_per_s.map_or(0.0, |rate| 1.0 / rate as f64);
        let alone = latency + link;
        alone + (reads - 1) as f64 * link.max(request).max(alone / in_flight as f64)
    }

    proptest! {
        #[test]
        fn virtual_time_is_the_closed_form(
            latency_ms in 0_u64..80,
            bytes_per_s in proptest::option::of(100_000_u64..200_000_000),
            requests_per_s in proptest::option::of(10_u64..10_000),
            in_flight in 1_u64..64,
            size in 1_u64..150_000,
        ) {
            let clock = VirtualClock::new(in_flight as usize);
            let options = ThrottleOptions {
                latency_ms, bytes_per_s, requests_per_s, clock: Clock::Virtual(clock.clone()),
            };
            let reads = 200 * in_flight;
            let want = closed_form(reads, in_flight, size, &options);
            let store = throttled(size as usize, options);
            for _ in 0..reads {
                block_on(store.read("x", 0..size)).unwrap();
            }
            let got = clock.elapsed().as_secs_f64();
            prop_assert!((got - want).abs() <= 0.01 * want + 1e-9, "{got} s, closed form {want} s");
        }
    }

    #[test]
    fn the_virtual_clock_is_the_real_one_without_the_wait() {
        // Sizes that differ, so that the order of reservations matters. Paused time makes the real clock exact.
        let size = |read: u64| 1 + gristmill_core::rng::mix(read) % 90_000;
        for in_flight in [1, 3, 16] {
            for (latency_ms, bytes_per_s, requests_per_s) in [
                (20, None, None),
                (20, Some(3_000_000), None),
                (7, None, Some(90)),
                (9, Some(900_000), Some(40)),
            ] {
                let clock = VirtualClock::new(in_flight);
                let options = ThrottleOptions { latency_ms, bytes_per_s, requests_per_s, clock: Clock::Real };
                let modelled = throttled(
                    90_000,
                    ThrottleOptions { clock: Clock::Virtual(clock.clone()), ..options.clone() },
                );
                (0..300).for_each(|read| drop(block_on(modelled.read("x", 0..size(read))).unwrap()));

                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
                let real = runtime.unwrap().block_on(async {
                    let store = throttled(90_000, options);
                    let start = Instant::now();
                    let reads = futures::stream::iter(0..300).map(|read| store.read("x", 0..size(read)));
                    reads
                        .buffer_unordered(in_flight)
                        .for_each(|result| async { drop(result.unwrap()) })
                        .await;
                    start.elapsed().as_secs_f64()
                });
                let modelled = clock.elapsed().as_secs_f64();
                // Every wait ends on a whole millisecond, which the sequential reader pays each time.
                let ticks = 300.0 * 0.001 / in_flight as f64;
                assert!(real >= 0.99 * modelled && real <= 1.01 * modelled + ticks, "{real} {modelled}");
            }
        }
    }

    #[test]
    fn nonsense_takes_no_link_time_and_zero_rates_are_refused() {
        let clock = VirtualClock::new(1);
        let options = ThrottleOptions {
            latency_ms: 5,
            bytes_per_s: Some(1),
            clock: Clock::Virtual(clock.clone()),
            ..ThrottleOptions::default()
        };
        let store = throttled(10, options.clone());
        assert!(block_on(store.read("x", 0..u64::MAX)).is_err());
        assert_eq!(clock.elapsed(), Duration::from_millis(5));
        assert!(store.immediate(), "nobody waits for a virtual clock");
        assert!(!throttled(10, ThrottleOptions::default()).immediate());
        let zero = ThrottleOptions { bytes_per_s: Some(0), ..options };
        assert!(Throttled::new(Arc::new(MemoryStore::default()), zero).is_err());
    }

    #[test]
    fn listings_pay_per_page() {
        let clock = VirtualClock::new(1);
        let options = ThrottleOptions {
            latency_ms: 10,
            clock: Clock::Virtual(clock.clone()),
            ..ThrottleOptions::default()
        };
        let objects = (0..2_001).map(|n| (n.to_string(), Vec::new()));
        let store = Throttled::new(Arc::new(MemoryStore::new(objects)), options).unwrap();
        block_on(store.list("", &mut |_| Ok(()))).unwrap();
        assert_eq!(clock.elapsed(), Duration::from_millis(30));
    }
}
