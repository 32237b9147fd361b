//! A rank's slice of the data set: the samples it holds, in memory or one file each in a folder of its own.
//!
//! A slice is a copy of what the store has, so nothing in it is believed and nothing in it is irreplaceable: a sample
//! that is missing, cut short or damaged is a miss, and the store has it. What the slice promises is room: never more than
//! [`Holding::limit`] samples, which is a rank's share and what it may receive before it lets go of what it sent.
//!
//! In a folder every sample is a file that appears whole (written beside its place, then renamed), and
//! [`Holding::sync`] makes all of them durable at once. What is let go is deleted later ([`Holding::sweep`]), and takes
//! room until then. The journal beside them says up to which epoch the exchange was committed.
//!
//! Deliberately not here: who holds what, and moving anything between ranks (`exchange`).

mod folder;
mod journal;
mod leaving;

pub use journal::Journal;

use crate::{Error, Kind, Result};
use bytes::Bytes;
use folder::Folder;
use leaving::Leaving;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

/// The samples of one rank.
#[derive(Debug)]
pub struct Holding {
    place: Place,
    /// What was let go and is not deleted yet.
    leaving: Leaving,
    samples_max: AtomicU32,
    /// The most samples that ever were here.
    peak: AtomicU32,
    /// Samples that were asked for and not here.
    missed: AtomicU64,
}

#[derive(Debug)]
enum Place {
    Memory(RwLock<HashMap<u32, Bytes>>),
    Folder(Folder, RwLock<HashSet<u32>>),
}

impl Holding {
    /// An empty slice in memory.
    pub fn in_memory() -> Holding {
        Holding::new(Place::Memory(RwLock::default()), 0)
    }

    /// The slice in a folder, with whatever it has. No other process may use the folder meanwhile.
    pub fn open(folder: &Path) -> Result<Holding> {
        let (folder, ids) = Folder::open(folder)?;
        let count = ids.len() as u32;
        Ok(Holding::new(Place::Folder(folder, RwLock::new(ids)), count))
    }

    fn new(place: Place, count: u32) -> Holding {
        let (samples_max, missed) = (AtomicU32::new(u32::MAX), AtomicU64::new(0));
        Holding { place, leaving: Leaving::default(), samples_max, peak: AtomicU32::new(count), missed }
    }

    /// Where it is, for messages.
    pub fn place(&self) -> String {
        match &self.place {
            Place::Memory(_) => "memory".into(),
            Place::Folder(folder, _) => folder.path().display().to_string(),
        }
    }

    /// Whether it outlives the process.
    pub fn is_durable(&self) -> bool {
        matches!(self.place, Place::Folder(..))
    }

    /// Whether reading a sample means reading a file.
    pub fn in_folder(&self) -> bool {
        self.is_durable()
    }

    /// From now on refuses what would be more samples than this.
    pub fn limit(&self, samples_max: u32) {
        self.samples_max.store(samples_max, Relaxed);
    }

    /// How many samples are here.
    pub fn len(&self) -> u32 {
        let count = match &self.place {
            Place::Memory(samples) => samples.read().unwrap_or_else(PoisonError::into_inner).len(),
            Place::Folder(_, ids) => ids.read().unwrap_or_else(PoisonError::into_inner).len(),
        };
        count as u32
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no room for another sample, unless some that were let go are deleted.
    pub fn is_full(&self) -> bool {
        self.len() as usize + self.leaving.len() >= self.samples_max.load(Relaxed) as usize
    }

    /// The most samples that were ever here at the same time, with those that were still to be deleted.
    pub fn peak(&self) -> u32 {
        self.peak.load(Relaxed)
    }

    /// How often a sample was asked for that was not here, or damaged.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// Whether a sample is here; a damaged one is found out when it is read.
    pub fn contains(&self, id: u32) -> bool {
        match &self.place {
            Place::Memory(samples) => {
                samples.read().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
            }
            Place::Folder(_, ids) => ids.read().unwrap_or_else(PoisonError::into_inner).contains(&id),
        }
    }

    /// The ids that are here, ascending.
    pub fn ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = match &self.place {
            Place::Memory(samples) => {
                samples.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
            }
            Place::Folder(_, ids) => {
                ids.read().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
            }
        };
        ids.sort_unstable();
        ids
    }

    /// The bytes of a sample, or nothing if it is not here or not whole.
    pub fn get(&self, id: u32) -> Option<Bytes> {
        let found = match &self.place {
            Place::Memory(samples) => {
                samples.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
            }
            Place::Folder(folder, ids) => {
                let there = ids.read().unwrap_or_else(PoisonError::into_inner).contains(&id);
                let bytes = if there { folder.read(id) } else { None };
                if there && bytes.is_none() {
                    // Out of the way, so that it is filled in again.
                    ids.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
                }
                bytes
            }
        };
        if found.is_none() {
            self.missed.fetch_add(1, Relaxed);
        }
        found
    }

    /// Takes a sample in. One that is here already is replaced.
    pub fn put(&self, id: u32, bytes: &[u8]) -> Result<()> {
        match &self.place {
            Place::Memory(samples) => {
                // A copy of its own: a slice would keep a whole message alive.
                let own = Bytes::copy_from_slice(bytes);
                let mut samples = samples.write().unwrap_or_else(PoisonError::into_inner);
                if !samples.contains_key(&id) {
                    self.room(samples.len(), id)?;
                }
                samples.insert(id, own);
            }
            Place::Folder(folder, ids) => {
                let back = self.leaving.keep(id);
                let mut known = ids.write().unwrap_or_else(PoisonError::into_inner);
                if known.insert(id) {
                    // Counted before it is written, so that two threads cannot both take the last place.
                    let others = known.len() - 1 + self.leaving.len();
                    self.room(others, id).inspect_err(|_| _ = known.remove(&id))?;
                }
                drop(known);
                if let Err(error) = folder.write(id, bytes) {
                    ids.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
                    if back {
                        self.leaving.add(id);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Refuses sample `id` if `count` others are all there may be.
    fn room(&self, count: usize, id: u32) -> Result<()> {
        let max = self.samples_max.load(Relaxed);
        if count >= max as usize {
            return Err(Error::new(
                Kind::Io,
                format!(
                    "there is no room for sample {id} in {}: it holds {max} samples, its limit",
                    self.place()
                ),
            )
            .hint("this is a defect; please report it with the settings of the exchange"));
        }
        self.peak.fetch_max(count as u32 + 1, Relaxed);
        Ok(())
    }

    /// Lets go of these samples: they are not here any more, but take room until [`Holding::sweep`] has deleted them.
    pub fn let_go(&self, gone: impl IntoIterator<Item = u32>) {
        match &self.place {
            Place::Memory(samples) => {
                let mut samples = samples.write().unwrap_or_else(PoisonError::into_inner);
                gone.into_iter().for_each(|id| _ = samples.remove(&id));
            }
            Place::Folder(_, ids) => {
                let mut known = ids.write().unwrap_or_else(PoisonError::into_inner);
                gone.into_iter().filter(|id| known.remove(id)).for_each(|id| self.leaving.add(id));
            }
        }
    }

    /// Deletes what was let go.
    pub fn sweep(&self) -> Result<()> {
        match &self.place {
            Place::Memory(_) => Ok(()),
            Place::Folder(folder, _) => self.leaving.sweep(|id| folder.remove(id)),
        }
    }

    /// Deletes these samples at once; those that are not here are no matter.
    pub fn remove(&self, gone: impl IntoIterator<Item = u32>) -> Result<()> {
        for id in gone {
            match &self.place {
                Place::Memory(samples) => {
                    samples.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
                }
                Place::Folder(folder, ids) => {
                    if ids.write().unwrap_or_else(PoisonError::into_inner).remove(&id) {
                        folder.remove(id)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes everything durable that was put so far.
    pub fn sync(&self) -> Result<()> {
        match &self.place {
            Place::Memory(_) => Ok(()),
            Place::Folder(folder, _) => folder.sync(),
        }
    }

    /// What the journal says; nothing in memory, in a new folder, or if it cannot be understood.
    pub fn journal(&self) -> Option<Journal> {
        match &self.place {
            Place::Memory(_) => None,
            Place::Folder(folder, _) => Journal::read(folder.path()),
        }
    }

    /// Writes the journal, durably.
    pub fn write_journal(&self, journal: &Journal) -> Result<()> {
        match &self.place {
            Place::Memory(_) => Ok(()),
            Place::Folder(folder, _) => journal.write(folder.path()),
        }
    }

    /// Keeps who holds what when `epoch` begins, to be found again by [`Holding::owners`]; durable after the next sync.
    pub fn keep_owners(&self, epoch: u64, owners: &[u8]) -> Result<()> {
        match &self.place {
            Place::Memory(_) => Ok(()),
            Place::Folder(folder, _) => journal::write_owners(folder.path(), epoch, owners),
        }
    }

    /// What was kept of an epoch's owners, as it was.
    pub fn owners(&self, epoch: u64) -> Option<Vec<u8>> {
        match &self.place {
            Place::Memory(_) => None,
            Place::Folder(folder, _) => journal::read_owners(folder.path(), epoch),
        }
    }

    /// The newest epoch of which owners are kept.
    pub fn owners_newest(&self) -> Option<u64> {
        match &self.place {
            Place::Memory(_) => None,
            Place::Folder(folder, _) => journal::owners_kept(folder.path()).into_iter().max(),
        }
    }

    /// Forgets the owners of all other epochs than this one.
    pub fn forget_owners(&self, but: u64) {
        if let Place::Folder(folder, _) = &self.place {
            journal::forget_owners(folder.path(), but);
        }
    }
}

#[cfg(test)]
mod tests;
