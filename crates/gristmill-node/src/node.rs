//! A node: a store behind it, a cache in the middle, and jobs in front that ask for samples by id.
//!
//! Embedded in a training process there is nothing between a job and its node but function calls; `serve` puts the
//! same node behind a wire. Jobs join and leave, announce the plan of each epoch, say how the samples stand (score and
//! the chance of being wanted again), and fetch. What is served says which sample it is and which tier it came from.
//!
//! Deliberately not here: what is kept (`gristmill_core::cache`), sockets, and the order of an epoch.

use crate::dataset::DataSet;
use crate::{Error, Result};
use bytes::Bytes;
use futures::future::join_all;
use gristmill_core::SampleId;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One training run that a node serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

/// Where the bytes of a sample were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// This node's memory.
    Memory,
    /// This node's disk.
    Disk,
    /// A node beside this one.
    Peer,
    /// The node behind this one.
    Upstream,
    /// The store.
    Store,
}

impl Tier {
    /// All of them, the nearest first; a tier's place is its number on the wire.
    pub const ALL: [Tier; 5] = [Tier::Memory, Tier::Disk, Tier::Peer, Tier::Upstream, Tier::Store];
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(["memory", "disk", "peer", "upstream", "store"][*self as usize])
    }
}

/// One sample that a job wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Which.
    pub id: SampleId,
    /// Whether another cold sample may stand in for it.
    pub cold: bool,
}

/// One sample as it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Which sample this is: a stand-in bears its own id.
    pub id: SampleId,
    /// Its raw bytes.
    pub bytes: Bytes,
    /// Where they were.
    pub tier: Tier,
}

/// How one sample stands with a job: what decides whether it is worth keeping.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// Which sample.
    pub id: SampleId,
    /// Its last score.
    pub score: f32,
    /// The chance that the next epoch wants it, 0 to 1.
    pub wanted: f32,
}

/// Samples by id for many jobs.
#[derive(Debug)]
pub struct Node {
    set: Arc<DataSet>,
    next_job: AtomicU32,
}

impl Node {
    /// A node in front of a data set.
    pub fn new(set: Arc<DataSet>) -> Node {
        Node { set, next_job: AtomicU32::new(0) }
    }

    /// The data set behind it.
    pub fn set(&self) -> &Arc<DataSet> {
        &self.set
    }

    /// Lets a job in.
    pub fn join(&self, _name: &str) -> Result<JobId> {
        Ok(JobId(self.next_job.fetch_add(1, Relaxed)))
    }

    /// A job is gone: what it announced no longer counts.
    pub fn leave(&self, _job: JobId) {}

    /// The plan of a job's epoch: the ids in the order in which they will be asked for. `full` when it has them all.
    pub fn announce(&self, _job: JobId, _epoch: u64, _full: bool, _order: Vec<u32>) -> Result<()> {
        Ok(())
    }

    /// How some samples stand now.
    pub fn stand(&self, _job: JobId, standings: &[Standing]) -> Result<()> {
        let samples = self.set.catalog().len();
        match standings.iter().find(|standing| standing.id.0 >= samples) {
            Some(Standing { id, .. }) => Err(unknown(*id, samples)),
            None => Ok(()),
        }
    }

    /// Whether fetching finishes on the calling thread without a reactor.
    pub fn immediate(&self) -> bool {
        self.set.immediate()
    }

    /// A sample in memory, or nothing: this never waits.
    pub fn at_hand(&self, _job: JobId, _ask: Ask) -> Option<Served> {
        None
    }

    /// One sample that a job wants now.
    pub async fn fetch_one(&self, _job: JobId, ask: Ask) -> Result<Served> {
        let samples = self.set.catalog().len();
        if ask.id.0 >= samples {
            return Err(unknown(ask.id, samples));
        }
        let bytes = self.set.read(ask.id).await?;
        Ok(Served { id: ask.id, bytes, tier: Tier::Store })
    }

    /// The samples a job wants now, each served or with its own error, in the order of the asks.
    pub async fn fetch(&self, _job: JobId, asks: &[Ask]) -> Vec<Result<Served>> {
        join_all(asks.iter().map(async |ask| {
            let samples = self.set.catalog().len();
            if ask.id.0 >= samples {
                return Err(unknown(ask.id, samples));
            }
            let bytes = self.set.read(ask.id).await?;
            Ok(Served { id: ask.id, bytes, tier: Tier::Store })
        }))
        .await
    }

    /// As [`Node::fetch`] of one sample for a node beside this one: it is not passed on to other peers.
    pub async fn fetch_for_peer(&self, id: SampleId) -> Result<Served> {
        let bytes = self.set.read(id).await?;
        Ok(Served { id, bytes, tier: Tier::Store })
    }

    /// What it did so far.
    pub fn report(&self) -> NodeReport {
        NodeReport { samples: self.set.catalog().len(), ..NodeReport::default() }
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
    pub served: [u64; 5],
    /// Bytes served, by tier.
    pub served_bytes: [u64; 5],
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
    /// Samples on disk.
    pub disk_entries: u64,
    /// Bytes of samples on disk.
    pub disk_bytes: u64,
    /// The limit on what the disk tier takes.
    pub disk_bytes_max: u64,
    /// Entries of the disk tier that were damaged and read from the store instead.
    pub disk_damaged: u64,
    /// Why the disk tier is off, if it is.
    pub disk_off: Option<String>,
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
    /// Requests that needed no read from the store, as a share.
    pub fn hit_ratio(&self) -> f64 {
        let all: u64 = self.served.iter().sum();
        if all == 0 { 0.0 } else { (all - self.served[4]) as f64 / all as f64 }
    }
}

fn unknown(id: SampleId, samples: u32) -> Error {
    Error::config(format!("there is no sample {id}: the data set has {samples}"))
}
