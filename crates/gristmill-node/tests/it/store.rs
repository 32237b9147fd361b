//! Every store and every wrapper against the one conformance suite.

mod conformance;
mod faults;
mod http;
pub(crate) mod s3;

use conformance::{Excused, check, objects, write_objects};
use gristmill_node::store::{
    Clock, FaultOptions, Faulty, LocalStore, MemoryStore, RetryOptions, Retrying, Store, ThrottleOptions,
    Throttled, VirtualClock,
};
use std::sync::Arc;

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(objects()))
}

/// The least that stores may ask for: one thread, timers and sockets.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn memory_conforms() {
    // Without any runtime: that is what `immediate` promises.
    futures::executor::block_on(check(memory().as_ref(), Excused::Nothing));
}

#[test]
fn local_conforms() {
    let dir = tempfile::tempdir().unwrap();
    write_objects(dir.path());
    let local = LocalStore::new(dir.path()).unwrap();
    futures::executor::block_on(check(&local, Excused::Nothing));
    let retrying = Retrying::new(Arc::new(local), RetryOptions::default()).unwrap();
    assert!(retrying.immediate());
    futures::executor::block_on(check(&retrying, Excused::Nothing));
    assert_eq!(retrying.retries(), 0);
}

#[test]
fn throttled_conforms() {
    let options = ThrottleOptions {
        latency_ms: 1,
        bytes_per_s: Some(1_000_000_000),
        requests_per_s: Some(100_000),
        clock: Clock::Real,
    };
    let real = Throttled::new(memory(), options.clone()).unwrap();
    block_on(check(&real, Excused::Nothing));
    let clock = VirtualClock::new(8);
    let options = ThrottleOptions { clock: Clock::Virtual(clock.clone()), ..options };
    let modelled = Throttled::new(memory(), options).unwrap();
    futures::executor::block_on(check(&modelled, Excused::Nothing));
    assert!(clock.elapsed().as_millis() > 10, "{:?}", clock.elapsed());
}

#[test]
fn faulty_and_retrying_conform() {
    let options = FaultOptions {
        seed: 5,
        error_rate: 0.1,
        stall_rate: 0.1,
        short_rate: 0.1,
        ..FaultOptions::default()
    };
    let faulty = Arc::new(Faulty::new(memory(), options).unwrap());
    let retry = RetryOptions { attempts_max: 20, backoff_ms: 1, ..RetryOptions::default() };
    let retrying = Retrying::new(faulty.clone(), retry).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.unwrap().block_on(check(&retrying, Excused::Nothing));
    let counts = faulty.counts();
    assert!(counts.errors > 10 && counts.stalls > 10 && counts.shorts > 10, "{counts:?}");
    assert_eq!(retrying.retries(), retrying.faults(), "each fault costs one more attempt");
    assert_eq!(retrying.counts().stalls, counts.stalls);
    assert_eq!(retrying.counts().shorts, counts.shorts);
}
