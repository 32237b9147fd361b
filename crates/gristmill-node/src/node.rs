//! A node: a store behind it, a cache in the middle, and jobs in front that ask for samples by id.
//!
//! Embedded in a training process there is nothing between a job and its node but function calls; `serve` puts the
//! same node behind a wire. Jobs join and leave, announce the plan of each epoch, say how the samples stand (score and
//! the chance of being wanted again), and fetch. What is served says which sample it is and which tier it came from.
//!
//! Deliberately not here: what is kept (`gristmill_core::cache`), sockets, and the order of an epoch.

mod ahead;
mod along;
mod flight;
mod inner;
mod jobs;
mod memory;
mod report;
mod run;
mod shelf;
mod staged;
mod warm;

pub use gristmill_core::cache::JobId;
pub use report::{JobReport, NodeReport, RegionReport};

use crate::dataset::DataSet;
use crate::disk::DiskOptions;
use crate::peers::Peers;
use crate::{Error, Result};
use ahead::Ahead;
use along::Along;
use bytes::Bytes;
use flight::Flights;
use gristmill_core::SampleId;
use gristmill_core::cache::{Cache, CacheOptions, Policy, quiver};
use inner::Inner;
use jobs::{Announced, Jobs};
use memory::{ENTRY_BYTES, Found, Memory};
use report::Counts;
use serde::Serialize;
use shelf::Shelf;
use std::sync::{Arc, Mutex};

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
    /// This rank's own slice of the data set.
    Held,
}

impl Tier {
    /// All of them, in the order of their numbers on the wire: the nearest first, but for the slice of a rank.
    pub const ALL: [Tier; 6] =
        [Tier::Memory, Tier::Disk, Tier::Peer, Tier::Upstream, Tier::Store, Tier::Held];
}

impl Tier {
    /// Whether a sample from there was no hit: it came from behind this node and those beside it.
    pub fn is_behind(self) -> bool {
        matches!(self, Tier::Upstream | Tier::Store)
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(["memory", "disk", "peer", "upstream", "store", "held"][*self as usize])
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

/// What memory had for some asks.
#[derive(Debug)]
pub(crate) struct Looked {
    /// One for each ask.
    pub(crate) answers: Vec<Result<Served>>,
    /// The places of those that are not there: errors until they are read.
    pub(crate) missing: Vec<usize>,
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

/// How a node works.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeOptions {
    /// What is kept.
    pub policy: Policy,
    /// The most memory that samples may take, with what each takes beside its bytes.
    pub memory_bytes_max: u64,
    /// The disk tier, if there is to be one.
    pub disk: Option<DiskOptions>,
    /// The most bytes that are read ahead of being asked for, at once; 0 reads nothing ahead.
    pub prefetch_bytes_max: u64,
    /// What may be read for nothing between two samples to save a request, beside a quarter of what is wanted. With
    /// `foresight`, a fifth of the memory then holds neighbours that come along until they are asked for.
    pub gap_bytes_max: u64,
    /// Whether cold samples may stand in for each other; only the policy `score` has a cold region.
    pub stand_ins: bool,
    /// The share of an epoch's samples that is hot.
    pub hot_share: f64,
    /// Where the order of packs comes from.
    pub seed: u64,
}

impl NodeOptions {
    /// The usual way, with so much memory.
    pub fn new(policy: Policy, memory_bytes_max: u64) -> NodeOptions {
        let stand_ins = policy == Policy::Score;
        let prefetch_bytes_max = (memory_bytes_max / 8).min(512 << 10);
        NodeOptions {
            policy,
            memory_bytes_max,
            disk: None,
            prefetch_bytes_max,
            gap_bytes_max: 0,
            stand_ins,
            hot_share: 0.7,
            seed: 0,
        }
    }
}

/// Samples by id for many jobs.
#[derive(Debug)]
pub struct Node {
    inner: Arc<Inner>,
    /// Reads ahead until the node is dropped.
    ahead: Option<Ahead>,
}

impl Node {
    /// A node in front of a data set.
    pub fn new(set: Arc<DataSet>, options: NodeOptions) -> Result<Node> {
        Node::beside(set, options, None)
    }

    /// The same with nodes beside it, each of which keeps its own part of the samples.
    pub fn beside(set: Arc<DataSet>, options: NodeOptions, peers: Option<Peers>) -> Result<Node> {
        let sizes: Arc<[u32]> =
            set.catalog().sizes()?.iter().map(|size| size.saturating_add(ENTRY_BYTES)).collect();
        let smallest = sizes.iter().copied().min().map_or(0, u64::from);
        let mean = sizes.iter().map(|size| u64::from(*size)).sum::<u64>() / sizes.len().max(1) as u64;
        let along = Along::new(&set, &options, smallest, mean);
        let kept_bytes_max = options.memory_bytes_max - along.bytes_max();
        let mut cache = CacheOptions::new(options.policy, kept_bytes_max);
        // How far one job may run ahead of another and still leave it what it read.
        let half = kept_bytes_max / 2 / mean.max(1);
        cache.horizon = cache.horizon.max(u32::try_from(half).unwrap_or(u32::MAX));
        if options.stand_ins {
            // Two packs at least: one to serve from while the next is on its way.
            let cold_bytes = (options.memory_bytes_max as f64 * cache.cold_share) as u64;
            let fit = (cold_bytes / 2 / mean.max(1)).clamp(1, u64::from(cache.pack.samples_max)) as u32;
            cache.pack.samples_max = fit;
            cache.pack.samples_min = cache.pack.samples_min.min(fit);
        } else {
            cache.cold_share = 0.0;
        }
        if kept_bytes_max < smallest {
            let (bytes, own) = (kept_bytes_max, smallest.saturating_sub(ENTRY_BYTES.into()));
            return Err(Error::config(format!(
                "a cache of {bytes} bytes holds nothing: the smallest sample has {own} and takes {ENTRY_BYTES} beside them"
            ))
            .hint("give the cache room for some samples, or switch it off"));
        }
        let policy = Cache::new(cache, sizes, options.seed)?;
        let open = |disk| Shelf::open(disk, options.policy, options.seed, &set).map(Arc::new);
        let shelf = options.disk.as_ref().map(open).transpose()?;
        let samples = set.catalog().len();
        let inner = Arc::new(Inner {
            jobs: Mutex::new(Jobs::new(samples, options.policy)),
            brings_along: along.bytes_max() > 0,
            memory: Mutex::new(Memory::new(policy, along)),
            shelf,
            peers,
            flights: Flights::default(),
            counts: Counts::default(),
            bell: ahead::Bell::default(),
            set,
            options,
        });
        let ahead = Ahead::start(&inner)?;
        Ok(Node { inner, ahead })
    }

    /// The data set behind it.
    pub fn set(&self) -> &Arc<DataSet> {
        &self.inner.set
    }

    /// How it works.
    pub fn options(&self) -> &NodeOptions {
        &self.inner.options
    }

    /// Lets a job in.
    pub fn join(&self, name: &str) -> Result<JobId> {
        self.inner.jobs().join(name)
    }

    /// A job is gone: what it announced no longer counts.
    pub fn leave(&self, job: JobId) {
        self.inner.jobs().leave(job);
        let mut memory = self.inner.memory();
        memory.change(|policy, _| policy.leave(job));
        memory.forget_unwanted();
        drop(memory);
        if let Some(shelf) = &self.inner.shelf {
            shelf.policy().leave(job);
        }
    }

    /// The plan of a job's epoch: the ids in the order in which they will be asked for. `full` when it has them all.
    pub fn announce(&self, job: JobId, epoch: u64, full: bool, order: Vec<u32>) -> Result<()> {
        let inner = &self.inner;
        inner.check_all(order.iter().map(|id| SampleId(*id)))?;
        let order: Arc<[u32]> = order.into();
        let room = inner.room();
        let mut places = Vec::new();
        if inner.brings_along {
            places.resize(inner.set.catalog().len() as usize, u32::MAX);
            (0..).zip(order.iter()).for_each(|(place, &id)| places[id as usize] = place);
        }
        let plan = Announced { epoch, full, order: Arc::clone(&order), places };
        let changed = inner.jobs().announce(job, plan, &inner.options, room)?;
        inner.bell.begin();
        let mut memory = inner.memory();
        let mut told = Ok(());
        memory.change(|policy, _| told = policy.announce(job, full, &order));
        told?;
        memory.forget_unwanted();
        if let Some((latency_s, per_byte_s)) = inner.counts.cost() {
            memory.change(|policy, _| policy.set_saving(latency_s, per_byte_s));
        }
        for (job, weight) in changed.weights {
            memory.change(|policy, _| _ = policy.weigh(job, weight));
        }
        let snapshot = memory.policy.snapshot();
        drop(memory);
        // The long part, while requests go on.
        if let Some(shelf) = &inner.shelf {
            shelf.policy().announce(job, full, &order)?;
            if let Some(values) = &changed.values {
                let snapshot = shelf.policy().snapshot();
                let shadow = snapshot.rebuild(values.clone())?;
                let old = shelf.policy().swap(shadow);
                drop(old);
            }
        }
        if let Some(values) = changed.values {
            let shadow = snapshot.rebuild(values)?;
            let mut old = None;
            inner.memory().change(|policy, _| old = Some(policy.swap(shadow)));
            drop(old); // outside of the lock: it is as large as the new order
        }
        // By the new scores: who goes to make room is the lowest of them.
        if let Some(cold) = changed.cold {
            let cost = inner.counts.cost();
            inner.memory().change(|policy, gone| {
                if let (Some(rate), Some((latency_s, per_byte_s))) = (changed.cold_bytes_per_s, cost) {
                    let pack = policy.options().pack.bytes as f64;
                    policy.adapt(rate, latency_s + per_byte_s * pack, gone);
                }
                policy.begin_cold(epoch, &cold, gone);
            });
        }
        inner.bell.ring();
        Ok(())
    }

    /// How some samples stand now; it counts from the job's next announcement on.
    pub fn stand(&self, job: JobId, standings: &[Standing]) -> Result<()> {
        self.inner.check_all(standings.iter().map(|standing| standing.id))?;
        self.inner.jobs().stand(job, standings)
    }

    /// What a job has learnt of the chances of some samples within its epoch. With several jobs it waits for the next
    /// announcement, when the jobs are weighed against each other.
    pub fn learn(&self, job: JobId, ids: &[u32], wanted: &[f32]) {
        if !self.inner.jobs().is_alone(job) {
            return;
        }
        let tell = |policy: &mut Cache| {
            for (&id, &value) in ids.iter().zip(wanted) {
                policy.update(SampleId(id), value);
            }
        };
        self.inner.memory().change(|policy, _| tell(policy));
        if let Some(shelf) = &self.inner.shelf {
            tell(&mut shelf.policy());
        }
    }

    /// Whether fetching finishes on the calling thread without a reactor.
    pub fn immediate(&self) -> bool {
        self.inner.peers.is_none() && self.inner.set.immediate()
    }

    /// A sample in memory, or nothing: this never waits.
    pub fn at_hand(&self, job: JobId, ask: Ask) -> Option<Served> {
        if ask.cold && self.inner.options.stand_ins {
            return None;
        }
        let bytes = self.inner.memory().get(job, ask.id)?;
        self.inner.counts.served_many(Tier::Memory, 1, bytes.len() as u64);
        self.inner.jobs().asked(job, 1, 1);
        self.inner.pass_on(job, ask.id);
        Some(Served { id: ask.id, bytes, tier: Tier::Memory })
    }

    /// One sample that a job wants now.
    pub async fn fetch_one(&self, job: JobId, ask: Ask) -> Result<Served> {
        self.inner.check_all([ask.id])?;
        let found = self.inner.find(&mut self.inner.memory(), job, ask);
        match found {
            Found::Here(id, bytes) => {
                self.inner.counts.served_many(Tier::Memory, 1, bytes.len() as u64);
                self.inner.jobs().asked(job, 1, 1);
                Ok(Served { id, bytes, tier: Tier::Memory })
            }
            Found::Missing => {
                self.inner.jobs().asked(job, 1, 0);
                let _waits = self.inner.waits(job);
                let (bytes, tier) = self.inner.fly(ask.id, true).await?;
                Ok(self.inner.served(job, ask.id, bytes, tier))
            }
        }
    }

    /// The samples a job wants now, each served or with its own error, in the order of the asks. Neighbours that are
    /// not at hand are read together.
    pub async fn fetch(&self, job: JobId, asks: &[Ask]) -> Vec<Result<Served>> {
        self.fetch_rest(job, asks, self.look(job, asks)).await
    }

    /// The part of [`Node::fetch`] that never waits: counts the requests, and takes what is in memory.
    pub(crate) fn look(&self, job: JobId, asks: &[Ask]) -> Looked {
        self.inner.find_all(job, asks)
    }

    /// The other part: gets what was not in memory.
    pub(crate) async fn fetch_rest(&self, job: JobId, asks: &[Ask], looked: Looked) -> Vec<Result<Served>> {
        let (inner, Looked { mut answers, missing }) = (&self.inner, looked);
        if missing.is_empty() {
            return answers;
        }
        let ids: Vec<SampleId> = missing.iter().map(|&at| asks[at].id).collect();
        let waits = inner.waits(job);
        let landed = inner.fly_together(&ids).await;
        drop(waits);
        for (at, landed) in missing.into_iter().zip(landed) {
            answers[at] = landed.map(|(bytes, tier)| inner.served(job, asks[at].id, bytes, tier));
        }
        answers
    }

    /// As [`Node::fetch_one`] for a node beside this one: it is not passed on to other peers.
    pub async fn fetch_for_peer(&self, id: SampleId) -> Result<Served> {
        self.inner.check_all([id])?;
        let found = self.inner.memory().peek(id);
        let (bytes, tier) = match found {
            Some(bytes) => (bytes, Tier::Memory),
            None => self.inner.fly(id, false).await?,
        };
        self.inner.counts.served_many(tier, 1, bytes.len() as u64);
        Ok(Served { id, bytes, tier })
    }

    /// The order in which a full epoch is read best; only `quiver` has one. It is the same after a restart.
    pub fn order(&self, epoch: u64) -> Option<Vec<u32>> {
        let all: Vec<u32> = (0..self.inner.set.catalog().len()).collect();
        let (memory, seed) = (self.inner.memory(), self.inner.options.seed);
        let (packages, _) = memory.policy.packages()?;
        Some(quiver::order(packages, &quiver::left_over(packages, seed, epoch), &all, seed, epoch))
    }

    /// Whether it reads ahead of being asked.
    pub fn reads_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// Requests so far that the hot and the cold region of the memory tier answered; none where it has but one.
    pub fn region_hits(&self) -> Option<[u64; 2]> {
        regions(&self.inner.memory()).map(|regions| [regions.hot_hits, regions.cold_hits])
    }

    /// What it did so far.
    pub fn report(&self) -> NodeReport {
        let inner = &self.inner;
        let mut report = inner.counts.report();
        report.samples = inner.set.catalog().len();
        report.jobs = inner.jobs().report();
        let memory = inner.memory();
        report.memory_entries = memory.len() as u64;
        report.memory_bytes = memory.taken_bytes();
        report.memory_bytes_max = inner.options.memory_bytes_max;
        report.regions = regions(&memory);
        drop(memory);
        if let Some(peers) = &inner.peers {
            let (all, up) = peers.count();
            (report.peers, report.peers_up) = (all as u64, up as u64);
        }
        if let (Some(shelf), Some(disk)) = (&inner.shelf, &inner.options.disk) {
            let counts = shelf.counts();
            report.disk_entries = counts.entries;
            report.disk_bytes = counts.live_bytes;
            report.disk_bytes_max = disk.bytes_max;
            report.disk_damaged = counts.damaged;
            report.disk_off = counts.off;
        }
        report
    }
}

/// The regions of the memory tier, if there are two.
fn regions(memory: &Memory) -> Option<RegionReport> {
    let sizes = memory.policy.regions();
    let [hot_hits, cold_hits] = memory.region_hits;
    memory.policy.has_cold().then_some(RegionReport {
        hot_hits,
        cold_hits,
        hot_bytes: sizes.hot_bytes,
        hot_bytes_max: sizes.hot_bytes_max,
        cold_bytes: sizes.cold_bytes,
        cold_bytes_max: sizes.cold_bytes_max,
    })
}
