//! The settings of the store: how it is read, how patiently, and how it is slowed down or spoiled on purpose.

use super::{HOUR_MS, Key, WEEK_MS, bytes, format_bytes, share, shown, text, whole};

/// Every setting of the store, and where catalogs are kept.
pub(super) const STORE: &[Key] = &[
    key!(
        "store.reads_in_flight",
        "reads under way at once; 0 decides by the kind of store",
        reads_in_flight,
        whole::<u64, 0, 65_536>,
        shown
    ),
    key!(
        "store.attempts_max",
        "how often a read is tried",
        retry.attempts_max,
        whole::<u32, 1, 1_000>,
        shown
    ),
    key!(
        "store.attempt_ms_max",
        "how long one attempt may take",
        retry.attempt_ms_max,
        whole::<u64, 1, WEEK_MS>,
        shown
    ),
    key!(
        "store.deadline_ms",
        "how long all attempts together may take",
        retry.deadline_ms,
        whole::<u64, 1, WEEK_MS>,
        shown
    ),
    key!(
        "store.backoff_ms",
        "the pause before the first new attempt; it doubles",
        retry.backoff_ms,
        whole::<u64, 0, HOUR_MS>,
        shown
    ),
    key!(
        "store.backoff_ms_max",
        "the longest pause between attempts",
        retry.backoff_ms_max,
        whole::<u64, 0, HOUR_MS>,
        shown
    ),
    key!(
        "store.throttle_latency_ms",
        "slow the store, or the link to a node, down: time before the first byte",
        throttle_latency_ms,
        whole::<u64, 0, HOUR_MS>,
        shown
    ),
    key!(
        "store.throttle_bytes_per_s",
        "slow the store, or the link to a node, down: bytes per second, 0 for no limit",
        throttle_bytes_per_s,
        bytes::<0>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "store.throttle_requests_per_s",
        "slow the store down: reads per second, 0 for no limit; a node has that behind it, not in front",
        throttle_requests_per_s,
        whole::<u64, 0, 1_000_000_000>,
        shown
    ),
    key!(
        "store.fault_share",
        "spoil this share of reads (0 to 1), to see that nothing is lost; stalls then end after 1 s unless store.attempt_ms_max is changed",
        fault_share,
        share,
        shown
    ),
    key!("store.fault_seed", "which reads are spoiled", fault_seed, whole::<u64, 0, { u64::MAX }>, shown),
    key!("catalog.folder", "where catalogs without a given place are kept", catalog_folder, text, shown),
];
