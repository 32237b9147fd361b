//! What comes along: neighbours of a sample that is read, which the plans will ask for soon.
//!
//! Where a request costs more than some bytes (`gap_bytes_max`), a read from a container in the store brings along those
//! beside it that are still wanted in this epoch; they wait here until they are asked for, and are then offered to the
//! policy like any sample that was read. A part of the memory is set aside for them, so that the policy never has to
//! weigh a use that is certain and near against one in the next epoch. The fuller that part is, the less far ahead the
//! plans are looked at: it then holds what is asked for soonest, and each place in it saves the most requests.
//!
//! Deliberately not here: reading, and who is kept after its use (the policy). Samples on their way have their room
//! reserved, so that reads side by side do not bring more than fits.

use super::NodeOptions;
use super::flight::Lead;
use super::inner::Inner;
use super::jobs::Jobs;
use super::memory::{ById, ENTRY_BYTES, Memory};
use crate::dataset::DataSet;
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_core::cache::Policy;
use std::collections::HashSet;
use std::ops::Range;

/// The part of the memory that is set aside: one in so many.
const PART: u64 = 5;
/// The most that one read grows to.
const READ_BYTES_MAX: u64 = 64 << 10;
/// How many neighbours are looked at on each side.
const LOOK_SAMPLES: u32 = 64;

/// The samples that came along and were not asked for yet.
#[derive(Debug, Default)]
pub(super) struct Along {
    held: ById<Bytes>,
    bytes: u64,
    /// For those on their way.
    reserved_bytes: u64,
    bytes_max: u64,
}

impl Along {
    /// What is set aside of the memory that `options` give, for samples of these sizes; nothing where a read by itself is
    /// as good, where two samples are more than a read grows to, nor where the rest would not hold the smallest one.
    pub(super) fn new(set: &DataSet, options: &NodeOptions, smallest: u64, mean: u64) -> Along {
        let pays = options.gap_bytes_max > 0 && options.policy == Policy::Foresight;
        let far = set.packed() && !set.immediate() && 2 * mean <= READ_BYTES_MAX;
        let part = options.memory_bytes_max / PART;
        let fits = options.memory_bytes_max - part >= smallest;
        Along { bytes_max: if pays && far && fits { part } else { 0 }, ..Along::default() }
    }

    /// The memory that is set aside.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The memory that is taken.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn has(&self, id: SampleId) -> bool {
        self.held.contains_key(&id.0)
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// A sample that came along, which stays.
    pub(super) fn get(&self, id: SampleId) -> Option<Bytes> {
        self.held.get(&id.0).cloned()
    }

    /// Takes a sample that came along out.
    pub(super) fn take(&mut self, id: SampleId) -> Option<Bytes> {
        let bytes = self.held.remove(&id.0)?;
        self.bytes -= entry_bytes(bytes.len() as u64);
        Some(bytes)
    }

    /// Lets go of what nobody is going to ask for any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(SampleId) -> bool) {
        let bytes = &mut self.bytes;
        self.held.retain(|&id, held| {
            let stays = wanted(SampleId(id));
            if !stays {
                *bytes -= entry_bytes(held.len() as u64);
            }
            stays
        });
    }

    /// The part that is neither taken nor reserved, 0 to 1.
    fn free_share(&self) -> f64 {
        1.0 - (self.bytes + self.reserved_bytes) as f64 / self.bytes_max.max(1) as f64
    }

    fn fits(&self, size: u64) -> bool {
        self.bytes + self.reserved_bytes + size <= self.bytes_max
    }
}

fn entry_bytes(bytes: u64) -> u64 {
    bytes + u64::from(ENTRY_BYTES)
}

/// A sample on its way that nobody has asked for yet. Dropped, its room is free again, and those who have asked for it
/// meanwhile ask once more.
pub(super) struct Guest<'a> {
    inner: &'a Inner,
    lead: Option<Lead<'a>>,
    id: SampleId,
    size: u64,
}

impl Guest<'_> {
    pub(super) fn id(&self) -> u32 {
        self.id.0
    }

    /// It is here: it goes to those who have asked for it meanwhile, or waits to be asked for. Whether it waits.
    pub(super) fn arrive(mut self, bytes: &Bytes) -> bool {
        let Some(lead) = self.lead.take() else { return false };
        // Until it is put away nobody may find it neither here nor on its way.
        let mut memory = self.inner.memory();
        memory.along.reserved_bytes -= std::mem::take(&mut self.size);
        let asked = lead.land(&Ok((bytes.clone(), self.inner.set.tier()))) > 0;
        if asked {
            memory.offer(self.id, bytes);
        }
        let waits = !asked && memory.policy.uses_left(self.id) > 0 && !memory.has(self.id);
        if waits {
            let size = entry_bytes(bytes.len() as u64);
            memory.along.held.insert(self.id.0, bytes.clone());
            memory.along.bytes += size;
        }
        waits
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        if self.size > 0 {
            self.inner.memory().along.reserved_bytes -= self.size;
        }
    }
}

impl Inner {
    /// Who comes along when these are read: samples beside them that will be asked for soon, and that nobody reads yet.
    pub(super) fn beside(&self, ids: &[u32]) -> Vec<Guest<'_>> {
        if !self.brings_along || !self.set.packed() {
            return Vec::new();
        }
        let jobs = self.jobs();
        let mut memory = self.memory();
        let mut asked: HashSet<u32> = ids.iter().copied().collect();
        let mut guests = Vec::new();
        for &id in ids {
            self.beside_one(id, &jobs, &mut memory, &mut asked, &mut guests);
        }
        guests
    }

    fn beside_one<'a>(
        &'a self,
        own: u32,
        jobs: &Jobs,
        memory: &mut Memory,
        asked: &mut HashSet<u32>,
        guests: &mut Vec<Guest<'a>>,
    ) {
        let catalog = self.set.catalog();
        let Ok((object, mut span)) = catalog.place(SampleId(own)) else { return };
        for up in [true, false] {
            for step in 1..=LOOK_SAMPLES {
                let next = if up { own.checked_add(step) } else { own.checked_sub(step) };
                let Some(id) = next.map(SampleId) else { break };
                let Ok((other, range)) = catalog.place(id) else { break };
                let grown = span.start.min(range.start)..span.end.max(range.end);
                let far = apart(&span, &range) > self.options.gap_bytes_max;
                let size = entry_bytes(range.end - range.start);
                if other != object
                    || far
                    || grown.end - grown.start > READ_BYTES_MAX
                    || !memory.along.fits(size)
                {
                    break;
                }
                let wanted = memory.policy.uses_left(id) > 0
                    && jobs.soon(id.0, memory.along.free_share())
                    && !memory.has(id)
                    && !self.is_elsewhere(id)
                    && !asked.contains(&id.0);
                // One that somebody reads already does not come along, and what lies behind it may be too far then.
                let Some(lead) = wanted.then(|| self.flights.lead(id.0)).flatten() else { continue };
                memory.along.reserved_bytes += size;
                asked.insert(id.0);
                span = grown;
                guests.push(Guest { inner: self, lead: Some(lead), id, size });
            }
        }
    }
}

/// The bytes between what is read and a neighbour; more than any gap if it lies in the midst of it.
fn apart(span: &Range<u64>, other: &Range<u64>) -> u64 {
    if other.start >= span.end {
        other.start - span.end
    } else if other.end <= span.start {
        span.start - other.end
    } else {
        u64::MAX
    }
}
