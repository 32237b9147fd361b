//! Samples that may come at a stage from the node behind: a crop is of use once, so it never enters a tier here.
//!
//! What a tier here has, or has room for, is asked for raw. The rest may be brought to a stage by the node behind:
//! raw bytes cost the link many times more than a stage, which what they replace in a full tier does not bring in.

use super::inner::Inner;
use super::memory::{ENTRY_BYTES, Found};
use super::{Ask, JobId, Node, Served, Tier};
use crate::Result;
use crate::split::{Expected, Staged, Wish};
use gristmill_core::SampleId;
use gristmill_core::cache::Cache;
use gristmill_ops::Stage;

impl Node {
    /// As [`Node::fetch_one`], but what neither is here nor finds room may come at a stage from the node behind.
    pub async fn fetch_staged(&self, job: JobId, ask: Ask, wish: Wish) -> Result<Staged> {
        let inner = &self.inner;
        inner.check_all([ask.id])?;
        let size = inner.entry_bytes(ask.id);
        let (found, kept) = {
            let mut memory = inner.memory();
            let found = inner.find(&mut memory, job, ask);
            (found, has_room(&memory.policy, ask.id, size))
        };
        inner.bell.staged();
        if let Found::Here(id, bytes) = found {
            inner.counts.served_many(Tier::Memory, 1, bytes.len() as u64);
            inner.jobs().asked(job, 1, 1);
            return Ok(Staged::raw(Served { id, bytes, tier: Tier::Memory }));
        }
        inner.jobs().asked(job, 1, 0);
        let _waits = inner.waits(job);
        let on_disk = inner.shelf.as_ref().is_some_and(|shelf| {
            let policy = shelf.policy();
            policy.holds(ask.id) || has_room(&policy, ask.id, size)
        });
        let elsewhere = inner.peers.as_ref().is_some_and(|peers| peers.is_elsewhere(ask.id));
        let held = inner.set.held().is_some_and(|held| held.contains(ask.id.0));
        if kept || on_disk || elsewhere || held || inner.set.upstream().is_none() {
            let (bytes, tier) = inner.fly(ask.id, true).await?;
            return Ok(Staged::raw(inner.served(job, ask.id, bytes, tier)));
        }
        let waiting = inner.bell.waiting();
        let staged = inner.set.read_staged(ask.id, wish).await?;
        drop(waiting);
        let bytes = &staged.served.bytes;
        inner.counts.read_staged(bytes.len() as u64);
        if staged.stage == Stage::Raw {
            inner.keep(ask.id, bytes);
        }
        let served = inner.served(job, ask.id, bytes.clone(), staged.served.tier);
        Ok(Staged { served, ..staged })
    }

    /// What is expected of these samples when they are asked for in this order: whether they are here, will find room when
    /// they come, or neither. What is free now is taken by the first ones that fit.
    pub fn expects(&self, ids: &[u32]) -> Vec<Expected> {
        // What the disk has, and what it would take; then the same of memory.
        let mut on_disk = vec![(false, false); ids.len()];
        if let Some(disk) = &self.inner.shelf {
            let policy = disk.policy();
            let mut left = policy.free_bytes();
            for (&id, (here, room)) in ids.iter().zip(&mut on_disk) {
                *here = policy.holds(SampleId(id));
                *room =
                    !*here && take(&policy, SampleId(id), self.inner.entry_bytes(SampleId(id)), &mut left);
            }
        }
        let memory = self.inner.memory();
        let mut left = memory.policy.free_bytes();
        let mut one = |(&id, (on_disk, room)): (&u32, (bool, bool))| {
            let id = SampleId(id);
            let held = self.inner.set.held().is_some_and(|held| held.contains(id.0));
            if held || on_disk || memory.policy.holds(id) {
                Expected::Here
            } else if take(&memory.policy, id, self.inner.entry_bytes(id), &mut left) || room {
                Expected::Kept
            } else {
                Expected::Missed
            }
        };
        ids.iter().zip(on_disk).map(&mut one).collect()
    }
}

impl Inner {
    /// What a sample takes of a tier.
    pub(super) fn entry_bytes(&self, id: SampleId) -> u64 {
        self.set.catalog().size(id).map_or(0, u64::from) + u64::from(ENTRY_BYTES)
    }
}

/// Whether a tier would keep a sample without letting go of another.
fn has_room(policy: &Cache, id: SampleId, size: u64) -> bool {
    take(policy, id, size, &mut policy.free_bytes())
}

/// The same where only so much is left, of which it is then taken.
fn take(policy: &Cache, id: SampleId, size: u64, left: &mut u64) -> bool {
    let fits = size <= *left && policy.worth(id);
    if fits {
        *left -= size;
    }
    fits
}
