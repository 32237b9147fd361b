//! How a node gets a sample: memory, then the disk, then a peer, then the store; one read for all who want it.

use super::ahead::Bell;
use super::along::Guest;
use super::flight::{Flights, Landed, Lead, Seat};
use super::jobs::Jobs;
use super::memory::{ENTRY_BYTES, Found, Memory};
use super::report::Counts;
use super::run;
use super::shelf::Shelf;
use super::{Ask, JobId, Looked, NodeOptions, Served, Tier};
use crate::dataset::DataSet;
use crate::peers::Peers;
use crate::{Error, Result};
use bytes::Bytes;
use futures::future::join_all;
use gristmill_core::SampleId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What the node and the thread that reads ahead share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) set: Arc<DataSet>,
    pub(super) options: NodeOptions,
    pub(super) memory: Mutex<Memory>,
    pub(super) shelf: Option<Arc<Shelf>>,
    pub(super) peers: Option<Peers>,
    pub(super) flights: Flights,
    pub(super) jobs: Mutex<Jobs>,
    pub(super) counts: Counts,
    /// Whether neighbours of what is read come along.
    pub(super) brings_along: bool,
    /// Whether somebody waits for the store, and a bell for the thread that reads ahead.
    pub(super) bell: Bell,
}

impl Inner {
    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        // The policy and the bytes change together under this lock, and nothing in between can panic.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn check_all(&self, ids: impl IntoIterator<Item = SampleId>) -> Result<()> {
        let samples = self.set.catalog().len();
        match ids.into_iter().find(|id| id.0 >= samples) {
            Some(id) => Err(unknown(id, samples)),
            None => Ok(()),
        }
    }

    /// How many samples the memory has room for, roughly.
    pub(super) fn room(&self) -> u32 {
        let mean = self.set.catalog().total_bytes().unwrap_or(0) / u64::from(self.set.catalog().len().max(1));
        (self.memory().policy.options().bytes_max / (mean + u64::from(ENTRY_BYTES))).min(u32::MAX.into())
            as u32
    }

    /// Counts one request with the policies and looks in memory.
    pub(super) fn find(&self, memory: &mut Memory, job: JobId, ask: Ask) -> Found {
        self.pass_on(job, ask.id);
        if ask.cold && self.options.stand_ins {
            let found = memory.serve(job, ask.id);
            match &found {
                Found::Here(id, _) if *id != ask.id => self.counts.stood_in(),
                Found::Here(..) => {}
                Found::Missing => memory.change(|policy, _| {
                    policy.ask(job, ask.id);
                    policy.skip(ask.id);
                }),
            }
            self.bell.ring();
            return found;
        }
        if let Some(bytes) = memory.get(job, ask.id) {
            return Found::Here(ask.id, bytes);
        }
        memory.change(|policy, _| _ = policy.ask(job, ask.id));
        Found::Missing
    }

    /// As [`Inner::find`] for many, under one lock.
    pub(super) fn find_all(&self, job: JobId, asks: &[Ask]) -> Looked {
        let samples = self.set.catalog().len();
        let mut answers = Vec::with_capacity(asks.len());
        let (mut missing, mut hits, mut hit_bytes) = (Vec::new(), 0, 0);
        let mut memory = self.memory();
        memory.look_ahead(asks);
        for (at, &ask) in asks.iter().enumerate() {
            if ask.id.0 >= samples {
                answers.push(Err(unknown(ask.id, samples)));
                continue;
            }
            match self.find(&mut memory, job, ask) {
                Found::Here(id, bytes) => {
                    hits += 1;
                    hit_bytes += bytes.len() as u64;
                    answers.push(Ok(Served { id, bytes, tier: Tier::Memory }));
                }
                Found::Missing => {
                    missing.push(at);
                    answers.push(Err(Error::corrupt("a sample was not read")));
                }
            }
        }
        drop(memory);
        self.counts.served_many(Tier::Memory, hits, hit_bytes);
        self.jobs().asked(job, asks.len() as u64, hits);
        Looked { answers, missing }
    }

    /// Lets the disk's policy know of a request, so that its plan goes on.
    pub(super) fn pass_on(&self, job: JobId, id: SampleId) {
        if let Some(shelf) = &self.shelf {
            shelf.policy().ask(job, id);
        }
    }

    pub(super) fn served(&self, job: JobId, id: SampleId, bytes: Bytes, tier: Tier) -> Served {
        self.counts.served_many(tier, 1, bytes.len() as u64);
        self.jobs().served(job, tier);
        Served { id, bytes, tier }
    }

    /// Gets one sample that is not in memory; all who want it at the same time share one read.
    pub(super) async fn fly(&self, id: SampleId, may_ask_peers: bool) -> Landed {
        loop {
            match self.flights.board(id.0) {
                Seat::Follow(heard) => {
                    // Nothing is heard of a leader that gave up: then one of those who follow leads.
                    if let Ok(landed) = heard.await {
                        self.counts.shared();
                        return landed;
                    }
                }
                Seat::Lead(lead) => {
                    // It may have come while this one took its seat.
                    let found = self.memory().peek(id);
                    let landed = match found {
                        Some(bytes) => Ok((bytes, Tier::Memory)),
                        None => self.read(id, may_ask_peers).await,
                    };
                    lead.land(&landed);
                    return landed;
                }
            }
        }
    }

    /// As [`Inner::fly`] for several, in the order of `ids`.
    pub(super) async fn fly_together(&self, ids: &[SampleId]) -> Vec<Landed> {
        if ids.len() < 2 || !self.set.packed() {
            return join_all(ids.iter().map(|&id| self.fly(id, true))).await;
        }
        let far = ids.iter().filter(|id| !self.is_elsewhere(**id));
        let leads: Vec<_> = {
            // What has come along since it was looked for is not read again.
            let memory = self.memory();
            let missing = far.filter(|id| !memory.has(**id));
            missing.filter_map(|id| self.flights.lead(id.0)).collect()
        };
        let _waiting = self.bell.waiting();
        let led = self.read_runs(leads);
        let (read, others) = futures::join!(led, async {
            // Those that somebody else reads already, and those that are asked for twice.
            join_all(ids.iter().map(|&id| self.fly(id, true))).await
        });
        drop(read);
        others
    }

    /// Reads one sample from the tiers below memory.
    async fn read(&self, id: SampleId, may_ask_peers: bool) -> Landed {
        if let Some(shelf) = &self.shelf
            && let Some(bytes) = shelf.get(id).await
        {
            self.memory().offer(id, &bytes);
            return Ok((bytes, Tier::Disk));
        }
        let _waiting = self.bell.waiting();
        if let Some(peers) = self.peers.as_ref().filter(|_| may_ask_peers) {
            let size = self.set.catalog().size(id)?;
            if let Some(bytes) = peers.fetch(id, size).await {
                return Ok((bytes, Tier::Peer)); // that node keeps it
            }
        }
        let guests = self.beside(&[id.0]);
        if !guests.is_empty() {
            let own = self.read_all(&[id.0], guests).await?.pop();
            let bytes =
                own.map_or_else(|| Err(Error::corrupt("a sample was not read")), |(_, bytes)| bytes)?;
            return Ok((bytes, self.set.tier()));
        }
        let start = Instant::now();
        let (bytes, tier) = self.set.load_from(id).await?;
        if tier.is_behind() {
            self.counts.read(bytes.len() as u64, start.elapsed());
        }
        self.keep(id, &bytes);
        Ok((bytes, tier))
    }

    /// Reads the samples of these leads, neighbours together, and tells those who follow. Says how many there were.
    pub(super) async fn read_runs(&self, leads: Vec<Lead<'_>>) -> Result<u64> {
        let ids: Vec<u32> = leads.iter().map(Lead::id).collect();
        let mut leads: HashMap<u32, Lead<'_>> = leads.into_iter().map(|lead| (lead.id(), lead)).collect();
        let guests = self.beside(&ids);
        let mut count = 0;
        for (id, bytes) in self.read_all(&ids, guests).await? {
            count += u64::from(bytes.is_ok());
            if let Some(lead) = leads.remove(&id) {
                lead.land(&bytes.map(|bytes| (bytes, self.set.tier())));
            }
        }
        Ok(count)
    }

    /// Whether another tier than memory and the store has this sample.
    pub(super) fn is_elsewhere(&self, id: SampleId) -> bool {
        self.shelf.as_ref().is_some_and(|shelf| shelf.policy().holds(id))
            || self.peers.as_ref().is_some_and(|peers| peers.is_elsewhere(id))
    }

    /// Reads samples and their guests, neighbours together, and offers them to the tiers. Gives what was read of `ids`.
    /// A guest that cannot be read is nobody's trouble: whoever wants it will ask for it.
    async fn read_all(&self, ids: &[u32], guests: Vec<Guest<'_>>) -> Result<Vec<(u32, Result<Bytes>)>> {
        let all: Vec<u32> = ids.iter().copied().chain(guests.iter().map(Guest::id)).collect();
        let mut guests: HashMap<u32, Guest<'_>> =
            guests.into_iter().map(|guest| (guest.id(), guest)).collect();
        let alone = guests.is_empty();
        let runs = run::runs(&self.set, &all, self.options.gap_bytes_max)?;
        let asked = |id: u32| !guests.contains_key(&id);
        let reads = join_all(runs.iter().map(async |run| {
            let start = Instant::now();
            let read = run.read(&self.set, asked).await;
            self.counts.read(run.bytes(), start.elapsed());
            read
        }));
        let read: Vec<_> = reads.await.into_iter().flatten().collect();
        let mut own = Vec::with_capacity(ids.len());
        let mut came = 0;
        for (id, bytes) in read {
            // With guests a copy: a slice would keep all of the read, of which most is nobody's yet.
            let bytes = bytes.map(|bytes| if alone { bytes } else { Bytes::copy_from_slice(&bytes) });
            let Some(guest) = guests.remove(&id) else {
                if let Ok(bytes) = &bytes {
                    self.keep(SampleId(id), bytes);
                }
                own.push((id, bytes));
                continue;
            };
            if let Ok(bytes) = bytes {
                came += u64::from(guest.arrive(&bytes));
                if let Some(shelf) = &self.shelf {
                    shelf.offer(SampleId(id), &bytes);
                }
            }
        }
        self.counts.prefetched(came);
        Ok(own)
    }

    /// The job waits for the store as long as this lives.
    pub(super) fn waits(&self, job: JobId) -> Waits<'_> {
        self.jobs().waits(job, true);
        Waits { inner: self, job }
    }

    /// Offers a sample that was read to the tiers.
    pub(super) fn keep(&self, id: SampleId, bytes: &Bytes) {
        self.memory().offer(id, bytes);
        if let Some(shelf) = &self.shelf {
            shelf.offer(id, bytes);
        }
    }
}

/// A job that waits for the store.
pub(super) struct Waits<'a> {
    inner: &'a Inner,
    job: JobId,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.inner.jobs().waits(self.job, false);
    }
}

pub(super) fn unknown(id: SampleId, samples: u32) -> Error {
    Error::config(format!("there is no sample {id}: the data set has {samples}"))
}
