//! The memory tier: bytes of samples under a hard limit.
//!
//! Which samples are kept is the policy's decision; here are their bytes. Each entry is an allocation of its own, so
//! that letting it go frees it, and what an entry takes beside its bytes counts against the limit, too.

use super::Ask;
use super::along::Along;
use super::warm::warm;
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_core::cache::{Cache, JobId, Served};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What an entry takes beside its bytes: its place in the table, its reference count and the allocator's share.
pub(super) const ENTRY_BYTES: u32 = 128;

/// What memory has for a request.
#[derive(Debug)]
pub(super) enum Found {
    /// This sample.
    Here(SampleId, Bytes),
    /// Nothing.
    Missing,
}

/// Finds a place for an id. Ids are those of the catalog, dense and not of anybody's choosing, so one multiplication
/// spreads them as well as a hash against adversaries would, in a tenth of the time.
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(self.0 as u32 ^ u32::from(byte)));
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Something for each of some ids.
pub(super) type ById<V> = HashMap<u32, V, BuildHasherDefault<IdHasher>>;

/// A policy and the bytes it has decided to keep.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) policy: Cache,
    bytes: ById<Bytes>,
    /// What came along with others and is not asked for yet; it counts apart from what the policy keeps.
    pub(super) along: Along,
    gone: Vec<SampleId>,
    /// Requests that the hot and the cold region answered.
    pub(super) region_hits: [u64; 2],
}

impl Memory {
    pub(super) fn new(policy: Cache, along: Along) -> Memory {
        Memory { policy, bytes: HashMap::default(), along, gone: Vec::new(), region_hits: [0; 2] }
    }

    /// The bytes of a sample that is there, counted as a request.
    pub(super) fn get(&mut self, job: JobId, id: SampleId) -> Option<Bytes> {
        if let Some(bytes) = self.bytes.get(&id.0).cloned() {
            self.count(id);
            self.policy.ask(job, id);
            return Some(bytes);
        }
        let bytes = self.along.get(id)?;
        self.policy.ask(job, id);
        self.passed(id, &bytes);
        Some(bytes)
    }

    /// Has a first look at what is going to be asked for. Where a sample stands in the table, its reference count and its
    /// beginning lie all over memory; taking it waits for them one by one, since counting a reference lets nothing
    /// overtake it. Looking counts nothing, so that here they come together.
    pub(super) fn look_ahead(&self, asks: &[Ask]) {
        let here = || asks.iter().filter_map(|ask| self.bytes.get(&ask.id.0));
        // What it says does not matter: to say it, it reads the count. By itself, so that many are under way at once.
        here().for_each(|bytes| _ = bytes.is_unique());
        here().for_each(|bytes| warm(bytes));
    }

    /// Counts a request that this sample answered with the region it is in.
    fn count(&mut self, found: SampleId) {
        self.region_hits[usize::from(!self.policy.is_hot(found))] += 1;
    }

    /// The bytes of a sample, without counting that as a request.
    pub(super) fn peek(&mut self, id: SampleId) -> Option<Bytes> {
        let kept = self.bytes.get(&id.0).cloned();
        kept.or_else(|| self.along.get(id).inspect(|bytes| self.passed(id, bytes)))
    }

    /// One that came along was asked for: it is offered to the policy, and stays only if that does not keep it and another
    /// job will ask for it.
    fn passed(&mut self, id: SampleId, bytes: &Bytes) {
        if !self.offer(id, bytes) && self.policy.uses_left(id) == 0 {
            self.along.take(id);
        }
    }

    /// Whether it has this sample, kept or waiting to be asked for.
    pub(super) fn has(&self, id: SampleId) -> bool {
        self.bytes.contains_key(&id.0) || self.along.has(id)
    }

    /// Keeps a sample if the policy wants it. A slice is copied: it would keep the whole answer it was cut from.
    pub(super) fn offer(&mut self, id: SampleId, bytes: &Bytes) -> bool {
        if self.bytes.contains_key(&id.0) {
            return true;
        }
        self.gone.clear();
        let kept = self.policy.offer(id, &mut self.gone);
        self.let_go();
        if kept {
            self.bytes.insert(id.0, Bytes::copy_from_slice(bytes));
            self.along.take(id); // one place is enough
        }
        kept
    }

    /// Serves a request for a cold sample: itself, or another cold one that is here.
    pub(super) fn serve(&mut self, job: JobId, id: SampleId) -> Found {
        let found = match self.policy.serve(id) {
            Served::Exact => id,
            Served::StandIn(other) => other,
            Served::Empty => return Found::Missing,
        };
        self.policy.ask(job, id);
        match self.peek(found) {
            Some(bytes) => {
                self.count(found);
                Found::Here(found, bytes)
            }
            None => Found::Missing,
        }
    }

    /// Puts bytes where the policy already counts them.
    pub(super) fn put(&mut self, id: SampleId, bytes: &Bytes) {
        self.bytes.entry(id.0).or_insert_with(|| Bytes::copy_from_slice(bytes));
    }

    /// Frees what the policy has given up.
    fn let_go(&mut self) {
        for id in self.gone.drain(..) {
            self.bytes.remove(&id.0);
        }
    }

    /// Lets the policy change its mind about everything, and frees what it gives up.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Cache, &mut Vec<SampleId>)) {
        change(&mut self.policy, &mut self.gone);
        self.let_go();
    }

    /// Plans have changed: lets go of what came along for nobody.
    pub(super) fn forget_unwanted(&mut self) {
        let policy = &self.policy;
        self.along.retain(|id| policy.uses_left(id) > 0);
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.along.len()
    }

    /// What samples take, kept and waiting.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.policy.bytes() + self.along.bytes()
    }
}
