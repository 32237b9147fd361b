//! Stores that fail, in time that is paused: a stall of a minute costs nothing.

use bytes::Bytes;
use futures::StreamExt;
use futures::executor::block_on;
use futures::future::BoxFuture;
use gristmill_core::rng::mix;
use gristmill_node::store::{FaultOptions, Faulty, MemoryStore, ObjectInfo, RetryOptions, Retrying, Store};
use gristmill_node::{Error, Kind, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

const OBJECTS: u64 = 200;

fn content(object: u64) -> Vec<u8> {
    (0..500 + object).map(|at| mix(object << 32 | at) as u8).collect()
}

fn faulty(options: FaultOptions) -> Arc<Faulty> {
    let memory = MemoryStore::new((0..OBJECTS).map(|n| (format!("{n:03}"), content(n))));
    Arc::new(Faulty::new(Arc::new(memory), options).unwrap())
}

fn ten_percent_each() -> FaultOptions {
    FaultOptions { seed: 1, error_rate: 0.1, stall_rate: 0.1, short_rate: 0.1, ..FaultOptions::default() }
}

/// Reads everything with 32 reads in flight; how many were right, and the first error.
async fn read_all(store: &dyn Store) -> (u64, Option<Error>) {
    let reads = futures::stream::iter(0..OBJECTS).map(async |n| {
        let want = content(n);
        let got = store.read(&format!("{n:03}"), 0..want.len() as u64).await?;
        assert!(got == want, "object {n} has wrong bytes");
        Ok(())
    });
    let results: Vec<Result<()>> = reads.buffer_unordered(32).collect().await;
    let right = results.iter().filter(|result| result.is_ok()).count() as u64;
    (right, results.into_iter().find_map(Result::err))
}

#[tokio::test(start_paused = true)]
async fn every_object_arrives_in_spite_of_faults() {
    let faulty = faulty(ten_percent_each());
    let retry = RetryOptions { attempts_max: 10, ..RetryOptions::default() };
    let store = Retrying::new(faulty.clone(), retry).unwrap();
    let (right, error) = read_all(&store).await;
    assert_eq!(right, OBJECTS, "{error:?}");
    let injected = faulty.counts();
    let share = |n: u64| n as f64 / (OBJECTS + store.retries()) as f64;
    for n in [injected.errors, injected.stalls, injected.shorts] {
        assert!((0.05..0.16).contains(&share(n)), "{injected:?}");
    }
    // Bounded: an attempt for each object and one for each fault, and not one more.
    assert_eq!(store.retries(), injected.errors + injected.stalls + injected.shorts);
    let counts = store.counts();
    assert_eq!((counts.stalls, counts.shorts, counts.given_up), (injected.stalls, injected.shorts, 0));
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_fails_in_the_same_places() {
    let run = async |seed, in_flight: usize| {
        let faulty = faulty(FaultOptions { seed, ..ten_percent_each() });
        let store = Retrying::new(faulty.clone(), RetryOptions::default()).unwrap();
        let names: Vec<String> = (0..OBJECTS).map(|n| format!("{n:03}")).collect();
        let reads = futures::stream::iter(&names).map(|name| store.read(name, 0..100));
        let right =
            reads.buffer_unordered(in_flight).filter(|read| std::future::ready(read.is_ok())).count().await;
        (right, faulty.counts())
    };
    assert_eq!(run(1, 1).await, run(1, 50).await);
    assert_ne!(run(1, 1).await, run(2, 1).await);
}

#[tokio::test(start_paused = true)]
async fn without_a_second_attempt_faults_are_seen() {
    let faulty = faulty(ten_percent_each());
    let store = Retrying::new(faulty, RetryOptions { attempts_max: 1, ..RetryOptions::default() }).unwrap();
    let (right, error) = read_all(&store).await;
    assert!((110..170).contains(&right), "{right} of {OBJECTS} were lucky");
    let error = error.unwrap();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("gave up after 1 attempt in"), "{error}");
    assert_eq!(store.retries(), 0);
    assert_eq!(store.counts().given_up, OBJECTS - right);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds() {
    // Stalls of a minute, cut after 3 s each: the deadline of 10 s ends the fourth attempt early.
    let faulty = faulty(FaultOptions { stall_rate: 1.0, ..FaultOptions::default() });
    let retry = RetryOptions {
        attempts_max: 1_000,
        attempt_ms_max: 3_000,
        deadline_ms: 10_000,
        ..RetryOptions::default()
    };
    let store = Retrying::new(faulty, retry).unwrap();
    let start = Instant::now();
    let error = store.read("000", 0..10).await.unwrap_err();
    let took = start.elapsed();
    assert!(took > Duration::from_secs(9) && took <= Duration::from_millis(10_010), "{took:?}");
    assert!(error.to_string().contains("gave up after 4 attempts in 10.0 s"), "{error}");
    assert!(error.to_string().contains("no answer within"), "the last cause is told: {error}");
    assert!(error.remedy().unwrap().contains("deadline_ms"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn pauses_double_up_to_their_limit() {
    let faulty = faulty(FaultOptions { error_rate: 1.0, ..FaultOptions::default() });
    let retry =
        RetryOptions { attempts_max: 8, backoff_ms: 100, backoff_ms_max: 1_000, ..RetryOptions::default() };
    let store = Retrying::new(faulty, retry).unwrap();
    let start = Instant::now();
    let error = store.stat("000").await.unwrap_err();
    // 100 + 200 + 400 + 800 + 3 x 1,000 at most, and at least half of it.
    let took_ms = start.elapsed().as_millis();
    assert!((2_250..=4_510).contains(&took_ms), "{took_ms}");
    assert!(error.to_string().contains("gave up after 8 attempts"), "{error}");
    assert!(error.remedy().unwrap().contains("attempts_max"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn only_what_may_go_away_is_tried_again() {
    let faulty = faulty(FaultOptions::default());
    let store = Retrying::new(faulty, RetryOptions::default()).unwrap();
    let start = Instant::now();
    assert_eq!(store.read("missing", 0..1).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(store.read("000", 0..100_000).await.unwrap_err().kind(), Kind::Corrupt);
    assert_eq!((store.retries(), start.elapsed()), (0, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_broken_listing_goes_on_where_it_broke() {
    let (mut retries, mut stalls) = (0, 0);
    for seed in 0..40 {
        let options = FaultOptions { seed, error_rate: 0.4, stall_rate: 0.2, ..FaultOptions::default() };
        let store =
            Retrying::new(faulty(options), RetryOptions { attempts_max: 40, ..RetryOptions::default() })
                .unwrap();
        let mut names = Vec::new();
        let mut visit = |info: ObjectInfo| {
            names.push(info.path);
            Ok(())
        };
        store.list("", &mut visit).await.unwrap();
        assert_eq!(names, (0..OBJECTS).map(|n| format!("{n:03}")).collect::<Vec<_>>(), "each once");
        retries += store.retries();
        stalls += store.counts().stalls;
    }
    assert!(retries > 20 && stalls > 5, "{retries} {stalls}");
}

/// A store on the calling thread whose first answers are wrong in some way.
#[derive(Debug)]
struct Flaky {
    inner: MemoryStore,
    bad_left: AtomicU64,
}

impl Flaky {
    fn retrying(bad: u64) -> Retrying {
        let inner = MemoryStore::new([("a", "0123456789"), ("b", "1"), ("c", "2")]);
        let options = RetryOptions { backoff_ms: 1, ..RetryOptions::default() };
        Retrying::new(Arc::new(Flaky { inner, bad_left: AtomicU64::new(bad) }), options).unwrap()
    }

    fn is_bad(&self) -> bool {
        self.bad_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl Store for Flaky {
    fn url(&self) -> String {
        "flaky:".to_string()
    }

    fn read<'a>(&'a self, object: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes>> {
        // Too long is as wrong as too short.
        let range = if self.is_bad() { range.start..range.end + 1 } else { range };
        self.inner.read(object, range)
    }

    fn stat<'a>(&'a self, object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>> {
        self.inner.stat(object)
    }

    /// A bad listing ends with an error after the objects b and c.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if !self.is_bad() {
                return self.inner.list(prefix, visit).await;
            }
            for name in ["b", "c"] {
                visit(self.inner.stat(name).await?)?;
            }
            Err(Error::new(Kind::Unavailable, "the line went dead"))
        })
    }

    fn immediate(&self) -> bool {
        true
    }

    fn retries(&self) -> u64 {
        0
    }

    fn faults(&self) -> u64 {
        0
    }
}

#[test]
fn stores_on_the_calling_thread_are_tried_again_without_a_runtime() {
    let store = Flaky::retrying(3);
    assert_eq!(block_on(store.read("a", 2..5)).unwrap(), "234");
    assert_eq!((store.retries(), store.counts().shorts), (3, 3));
    let error = block_on(Flaky::retrying(1_000).read("a", 2..5)).unwrap_err();
    assert!(error.to_string().contains("4 bytes came instead of 3; gave up after 6 attempts"), "{error}");
}

#[test]
fn a_listing_that_comes_back_different_is_an_error() {
    let mut names = Vec::new();
    let mut visit = |info: ObjectInfo| {
        names.push(info.path);
        Ok(())
    };
    // First b and c, then a, b and c: going on after the second would lose a.
    let error = block_on(Flaky::retrying(1).list("", &mut visit)).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("changed while they were listed"), "{error}");
    assert_eq!(names, ["b", "c"]);
}

#[test]
fn a_visitor_that_fails_is_not_asked_again() {
    let mut calls = 0;
    let mut visit = |_| {
        calls += 1;
        Err(Error::new(Kind::Unavailable, "the visitor's own trouble"))
    };
    assert!(block_on(Flaky::retrying(0).list("", &mut visit)).is_err());
    assert_eq!(calls, 1);
}
