//! Samples that may come at a stage from the node behind: a crop is of use once, so it never enters a tier here.
//!
//! What a tier here has, or would keep if it came, is asked for raw. The rest may be brought to a stage by the node
//! behind.

use super::memory::{ENTRY_BYTES, Found};
use super::{Ask, JobId, Node, Served, Tier};
use crate::Result;
use crate::split::{Expected, Staged, Wish};
use gristmill_core::SampleId;
use gristmill_ops::Stage;

impl Node {
    /// As [`Node::fetch_one`], but what neither is here nor would be kept may come at a stage from the node behind.
    pub async fn fetch_staged(&self, job: JobId, ask: Ask, wish: Wish) -> Result<Staged> {
        let inner = &self.inner;
        inner.check_all([ask.id])?;
        let (found, kept) = {
            let mut memory = inner.memory();
            let found = inner.find(&mut memory, job, ask);
            (found, memory.policy.worth(ask.id))
        };
        if let Found::Here(id, bytes) = found {
            inner.counts.served_many(Tier::Memory, 1, bytes.len() as u64);
            inner.jobs().asked(job, 1, 1);
            return Ok(Staged::raw(Served { id, bytes, tier: Tier::Memory }));
        }
        inner.jobs().asked(job, 1, 0);
        let _waits = inner.waits(job);
        let on_disk = inner.shelf.as_ref().is_some_and(|shelf| shelf.policy().holds(ask.id));
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

    /// What is expected of these samples when they are asked for in this order: whether they are here, would be kept when
    /// they come, or neither. What is free now is taken by the first ones that fit.
    pub fn expects(&self, ids: &[u32]) -> Vec<Expected> {
        let on_disk: Vec<bool> = match &self.inner.shelf {
            Some(disk) => {
                let guard = disk.policy();
                ids.iter().map(|&id| guard.holds(SampleId(id))).collect()
            }
            None => vec![false; ids.len()],
        };
        let catalog = self.inner.set.catalog();
        let memory = self.inner.memory();
        let free = memory.policy.options().bytes_max.saturating_sub(memory.policy.bytes());
        let mut left = free;
        let mut one = |(&id, on_disk): (&u32, bool)| {
            let id = SampleId(id);
            let size = catalog.size(id).map_or(0, u64::from) + u64::from(ENTRY_BYTES);
            let held = self.inner.set.held().is_some_and(|held| held.contains(id.0));
            if held || on_disk || memory.policy.holds(id) {
                Expected::Here
            } else if !memory.policy.worth(id) || (size <= free && size > left) {
                Expected::Missed
            } else {
                left = left.saturating_sub(size);
                Expected::Kept
            }
        };
        ids.iter().zip(on_disk).map(&mut one).collect()
    }
}
