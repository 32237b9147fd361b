//! The disk tier of a node: a policy of its own, and the files it decides about.
//!
//! Everything that is read from the store is offered to it; what memory keeps may be here, too, so that a restart
//! finds it. Whatever goes wrong with the disk is a miss.

use crate::Result;
use crate::dataset::DataSet;
use crate::disk::{Disk, DiskCounts, DiskOptions};
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_core::cache::{Cache, CacheOptions, Policy};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The disk, and what is to be on it.
#[derive(Debug)]
pub(super) struct Shelf {
    disk: Disk,
    policy: Mutex<Cache>,
}

impl Shelf {
    /// Opens the disk tier; what is there from before is used again.
    pub(super) fn open(options: &DiskOptions, policy: Policy, seed: u64, set: &DataSet) -> Result<Shelf> {
        let sizes: Arc<[u32]> = set.catalog().sizes()?.into();
        let size = |id: SampleId| sizes.get(id.0 as usize).map_or(0, |size| u64::from(*size));
        let disk = Disk::open(options, set.catalog().digest(), set.catalog().len(), size)?;
        let mut limits = CacheOptions::new(policy, disk.usable_bytes());
        // Packs are read to be used at once: they have no business on a disk.
        limits.cold_share = 0.0;
        let mut policy = Cache::new(limits, sizes, seed)?;
        for id in disk.ids() {
            if !policy.restore(id) {
                disk.remove(id);
            }
        }
        Ok(Shelf { disk, policy: Mutex::new(policy) })
    }

    pub(super) fn policy(&self) -> MutexGuard<'_, Cache> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of a sample, if they are there and sound.
    pub(super) async fn get(self: &Arc<Self>, id: SampleId) -> Option<Bytes> {
        if !self.policy().holds(id) {
            return None;
        }
        let here = Arc::clone(self);
        let read = move || here.disk.get(id);
        // A thread with a reactor must not wait for the disk; one without may.
        let bytes = match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime.spawn_blocking(read).await.ok().flatten(),
            Err(_) => read(),
        };
        if bytes.is_none() {
            self.policy().remove(id);
        }
        bytes
    }

    /// Keeps a sample that was read, if the policy wants it.
    pub(super) fn offer(&self, id: SampleId, bytes: &Bytes) {
        let mut gone = self.disk.take_lost();
        let mut policy = self.policy();
        gone.drain(..).for_each(|id| policy.remove(id));
        if policy.holds(id) {
            return;
        }
        let kept = policy.offer(id, &mut gone);
        for id in gone {
            self.disk.remove(id);
        }
        // A copy of its own: a slice would keep the whole answer of the store while it waits to be written.
        if kept && !self.disk.put(id, Bytes::copy_from_slice(bytes)) {
            policy.remove(id);
        }
    }

    pub(super) fn counts(&self) -> DiskCounts {
        self.disk.counts()
    }
}
