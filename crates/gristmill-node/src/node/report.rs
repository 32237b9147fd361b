//! What a node counts, and the report that is made of it.

use super::Tier;
use gristmill_core::score::ReadTimes;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Counters that many threads add to.
#[derive(Debug, Default)]
pub(super) struct Counts {
    served: [AtomicU64; 6],
    served_bytes: [AtomicU64; 6],
    shared: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    prefetched: AtomicU64,
    stand_ins: AtomicU64,
    times: Mutex<ReadTimes>,
}

impl Counts {
    pub(super) fn served_many(&self, tier: Tier, samples: u64, bytes: u64) {
        self.served[tier as usize].fetch_add(samples, Relaxed);
        self.served_bytes[tier as usize].fetch_add(bytes, Relaxed);
    }

    pub(super) fn shared(&self) {
        self.shared.fetch_add(1, Relaxed);
    }

    pub(super) fn stood_in(&self) {
        self.stand_ins.fetch_add(1, Relaxed);
    }

    pub(super) fn prefetched(&self, samples: u64) {
        self.prefetched.fetch_add(samples, Relaxed);
    }

    /// Notes one read from the store.
    pub(super) fn read(&self, bytes: u64, took: Duration) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes, Relaxed);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.note(u32::try_from(bytes).unwrap_or(u32::MAX), took.as_secs_f64());
    }

    /// Notes one sample of the node behind that came at a stage: how long that took says nothing about reads.
    pub(super) fn read_staged(&self, bytes: u64) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes, Relaxed);
    }

    /// What a read costs: seconds before the first byte, and per byte; none before enough was read.
    pub(super) fn cost(&self) -> Option<(f64, f64)> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.fit()
    }

    pub(super) fn report(&self) -> NodeReport {
        let all = |counts: &[AtomicU64; 6]| [0, 1, 2, 3, 4, 5].map(|tier| counts[tier].load(Relaxed));
        NodeReport {
            served: all(&self.served),
            served_bytes: all(&self.served_bytes),
            stand_ins: self.stand_ins.load(Relaxed),
            shared_reads: self.shared.load(Relaxed),
            store_reads: self.reads.load(Relaxed),
            store_bytes: self.read_bytes.load(Relaxed),
            prefetched: self.prefetched.load(Relaxed),
            ..NodeReport::default()
        }
    }
}

/// What a node did since it started.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NodeReport {
    /// Samples of the data set.
    pub samples: u32,
    /// Jobs that are in now.
    pub jobs: Vec<JobReport>,
    /// Requests served, by tier in the order of [`Tier::ALL`].
    pub served: [u64; 6],
    /// Bytes served, by tier.
    pub served_bytes: [u64; 6],
    /// Cold samples served in the place of another.
    pub stand_ins: u64,
    /// Requests that waited for a read that was under way for somebody else.
    pub shared_reads: u64,
    /// Reads from the store, merged ones counted once.
    pub store_reads: u64,
    /// Bytes read from the store.
    pub store_bytes: u64,
    /// Samples read ahead of being asked for.
    pub prefetched: u64,
    /// Samples in memory.
    pub memory_entries: u64,
    /// Bytes of samples in memory.
    pub memory_bytes: u64,
    /// The limit on them.
    pub memory_bytes_max: u64,
    /// The regions of the memory tier; none where it has but one.
    pub regions: Option<RegionReport>,
    /// Samples on disk.
    pub disk_entries: u64,
    /// Bytes of samples on disk.
    pub disk_bytes: u64,
    /// The limit on what the disk tier takes.
    pub disk_bytes_max: u64,
    /// Entries of the disk tier that were damaged and read from the store instead.
    pub disk_damaged: u64,
    /// Nodes that share this cache, this one included; 0 if it is alone.
    pub peers: u64,
    /// How many of them are up.
    pub peers_up: u64,
    /// Why the disk tier is off, if it is.
    pub disk_off: Option<String>,
}

/// The hot and the cold region of the memory tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RegionReport {
    /// Requests that the hot region answered.
    pub hot_hits: u64,
    /// Requests that the cold region answered.
    pub cold_hits: u64,
    /// Bytes of the hot region.
    pub hot_bytes: u64,
    /// The limit on them.
    pub hot_bytes_max: u64,
    /// Bytes of the cold region.
    pub cold_bytes: u64,
    /// The limit on them.
    pub cold_bytes_max: u64,
}

/// One job as reports show it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JobReport {
    /// The number the node gave it.
    pub id: u32,
    /// The name it came with.
    pub name: String,
    /// The epoch it announced last.
    pub epoch: u64,
    /// Requests it made.
    pub requests: u64,
    /// Those of them that needed no read from the store.
    pub hits: u64,
    /// How much caching helps it, 0 to 1; absent until that was probed.
    pub benefit: Option<f64>,
}

impl NodeReport {
    /// Requests that needed nothing from behind this node and its peers, as a share.
    pub fn hit_ratio(&self) -> f64 {
        let all: u64 = self.served.iter().sum();
        let hits = Tier::ALL.iter().filter(|tier| !tier.is_behind()).map(|tier| self.served[*tier as usize]);
        if all == 0 { 0.0 } else { hits.sum::<u64>() as f64 / all as f64 }
    }
}
