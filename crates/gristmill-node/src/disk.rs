//! The disk tier: raw samples of one data set by id, in a folder that survives restarts and crashes.
//!
//! It keeps what it is told to keep: a policy elsewhere decides with ids and sizes, and the tier takes, gives and removes
//! single samples under a hard limit of bytes. A put never waits: it goes through a bounded queue to one thread, and
//! when the queue is full it is dropped and counted. A get is one read, verified; a record that is damaged is a miss.
//! What a put promised but the tier could not keep is told by [`Disk::take_lost`], so that the policy can forget it.
//!
//! After a restart everything that was written is there again. A sample that was removed may be there again too: its
//! bytes are those of the same data set, so they are right, and the policy decides anew.
//!
//! Deliberately not here: what is worth keeping (`gristmill-core`), durability against power failure (the store behind
//! is the truth), sharing a folder between processes, and compression (samples are compressed already).
//! `docs/internals/disk-tier.md` has the format's reasons and figures.

mod folder;
mod segment;
mod table;
#[cfg(test)]
mod tests;
mod writer;

use crate::catalog::Digest;
use crate::{Error, Kind, Result};
use bytes::Bytes;
use folder::Folder;
pub(crate) use folder::{lock_folder, make_folder};
use gristmill_core::SampleId;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use table::{Entry, Table};
use writer::Writer;

/// About so many segments when the tier is full: few enough to keep all open, many enough that one is a small reserve.
const SEGMENTS: u64 = 128;
const SEGMENT_BYTES_MIN: u64 = 4 << 10;
/// Removed samples keep their place in the queue, so places are bounded besides bytes.
const QUEUE_PLACES_MAX: usize = 1 << 20;

/// Where the disk tier lies and how much it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder; its last part is made if it is missing.
    pub folder: PathBuf,
    /// The sizes of all files that the cache has below the folder never add up to more.
    pub bytes_max: u64,
    /// Samples that wait to be written never take more memory.
    pub queue_bytes_max: u64,
}

/// What the disk tier holds and has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Samples that are there, those in the queue included.
    pub entries: u64,
    /// What they take on disk.
    pub live_bytes: u64,
    /// What all segments take on disk, removed samples included.
    pub file_bytes: u64,
    /// What other data sets and versions take of the limit.
    pub other_bytes: u64,
    /// Samples that wait to be written, in bytes.
    pub queued_bytes: u64,
    /// Gets that found their sample.
    pub hits: u64,
    /// Gets that did not, damaged ones included.
    pub misses: u64,
    /// Records whose bytes were not what was written.
    pub damaged: u64,
    /// Puts that were refused or could not be written.
    pub dropped_puts: u64,
    /// Bytes of segments that were deleted to make room.
    pub reclaimed_bytes: u64,
    /// Bytes written, copies included.
    pub written_bytes: u64,
    /// Why nothing more is taken in, if so; what is there is still served.
    pub off: Option<String>,
}

/// The samples of one data set in a folder.
#[derive(Debug)]
pub struct Disk {
    shared: Arc<Shared>,
    limits: Limits,
    queue_bytes_max: u64,
    usable_bytes: u64,
    other_bytes: u64,
    samples: u32,
    writer: Option<JoinHandle<()>>,
}

impl Disk {
    /// Opens the folder for a data set of so many samples with these sizes, with all that is there of it.
    pub fn open(
        options: &DiskOptions,
        digest: Digest,
        samples: u32,
        sizes: impl Fn(SampleId) -> u64,
    ) -> Result<Disk> {
        let folder = Folder::open(&options.folder, digest)?;
        let found = folder.segments()?;
        let own_bytes = found.iter().map(|(_, bytes)| bytes).sum();
        folder.check_free(options.bytes_max, own_bytes)?;
        let limits = Limits::new(options.bytes_max.saturating_sub(folder.other_bytes));
        let (smallest, mean) = smallest_and_mean(samples, &sizes);
        check_limits(options, &limits, folder.other_bytes, smallest)?;
        let usable_bytes = limits.usable_bytes(mean);

        let mut table = Table::default();
        let fits = |id: SampleId, length: u32| id.0 < samples && sizes(id) == u64::from(length);
        let mut left_bytes = usable_bytes;
        // Newest first: a sample that was written again counts once, and what is beyond the limit is the oldest.
        for (number, bytes) in found.iter().rev() {
            let file = folder.open_segment(*number)?;
            let records = segment::list(&file, *bytes, digest, &fits);
            if records.is_empty() || table.file_bytes + bytes > limits.write_bytes {
                folder.delete_segment(*number)?;
                continue;
            }
            table.add_segment(*number, Arc::new(file), *bytes);
            for record in records.into_iter().rev() {
                let room = left_bytes.checked_sub(record.length.into());
                if let Some(left) = room.filter(|_| !table.entries.contains_key(&record.id)) {
                    left_bytes = left;
                    table.found(*number, record);
                }
            }
        }

        let shared =
            Arc::new(Shared { table: Mutex::new(table), work: Condvar::new(), idle: Condvar::new() });
        let (other_bytes, number_next) = (folder.other_bytes, folder.number_next()?);
        let writer = Writer::new(Arc::clone(&shared), folder, digest, limits, number_next);
        let thread = std::thread::Builder::new().name("gristmill-disk".into()).spawn(move || writer.run());
        let thread = thread.map_err(|e| Error::io("start", "the thread of the disk cache", e))?;
        let queue_bytes_max = options.queue_bytes_max;
        Ok(Disk { shared, limits, queue_bytes_max, usable_bytes, other_bytes, samples, writer: Some(thread) })
    }

    /// The samples that are there, in the order of their ids; right after opening they fit in [`Disk::usable_bytes`].
    pub fn ids(&self) -> Vec<SampleId> {
        let mut ids = Vec::new();
        self.shared.lock().entries.keys().for_each(|id| ids.push(*id));
        ids.sort_unstable();
        ids
    }

    /// How many bytes of samples a policy may keep here; the rest of the limit is heads and room for reclaiming.
    ///
    /// It is reckoned with the data set's mean size. A policy that keeps only much smaller samples meets refused puts.
    pub fn usable_bytes(&self) -> u64 {
        self.usable_bytes
    }

    /// The bytes of a sample, verified, if it is there; reads on the calling thread.
    pub fn get(&self, id: SampleId) -> Option<Bytes> {
        let found = {
            let mut table = self.shared.lock();
            match table.entries.get(&id).cloned() {
                Some(Entry::Queued(bytes)) => {
                    table.hits += 1;
                    return Some(bytes);
                }
                Some(Entry::Stored { segment, record }) => {
                    table.segments.get(&segment).map(|found| (Arc::clone(&found.file), segment, record))
                }
                None => None,
            }
        };
        // Read without the lock. The open file stays whole even if its segment is reclaimed meanwhile.
        let bytes = found.as_ref().and_then(|(file, _, record)| segment::read(file, *record));
        let mut table = self.shared.lock();
        match (&bytes, found) {
            (Some(_), _) => table.hits += 1,
            (None, None) => table.misses += 1,
            (None, Some((_, segment, record))) => {
                table.misses += 1;
                table.damaged += 1;
                if table.is_at(segment, record) {
                    table.lose(id);
                }
            }
        }
        bytes
    }

    /// Takes a sample in and says whether it did; never waits.
    ///
    /// `bytes` must be the sample's of the catalog, whole. A buffer that it is a part of is held until it is written.
    pub fn put(&self, id: SampleId, bytes: Bytes) -> bool {
        let mut table = self.shared.lock();
        if table.entries.contains_key(&id) {
            return true;
        }
        let length = bytes.len() as u64;
        let stored = segment::stored_bytes(length);
        let fits = id.0 < self.samples
            && length <= segment::SAMPLE_BYTES_MAX
            && table.live_bytes + stored <= self.limits.live_bytes
            && table.queued_bytes + stored <= self.queue_bytes_max
            && table.queue.len() < QUEUE_PLACES_MAX;
        if !fits || table.off.is_some() {
            table.dropped_puts += 1;
            return false;
        }
        table.enqueue(id, bytes);
        self.shared.work.notify_one();
        true
    }

    /// Forgets a sample; its room is used again in time.
    pub fn remove(&self, id: SampleId) {
        let mut table = self.shared.lock();
        table.lost.remove(&id);
        table.forget(id);
    }

    /// The samples that were taken in, or there at the start, and are gone without being removed, each told once.
    pub fn take_lost(&self) -> Vec<SampleId> {
        std::mem::take(&mut self.shared.lock().lost).into_iter().collect()
    }

    /// Waits until everything that was put before is written or lost.
    pub fn flush(&self) {
        let mut table = self.shared.lock();
        while table.writing || !table.queue.is_empty() {
            table = self.shared.wait(&self.shared.idle, table);
        }
    }

    /// What it holds and has done.
    pub fn counts(&self) -> DiskCounts {
        let table = self.shared.lock();
        DiskCounts {
            entries: table.entries.len() as u64,
            live_bytes: table.live_bytes,
            file_bytes: table.file_bytes,
            other_bytes: self.other_bytes,
            queued_bytes: table.queued_bytes,
            hits: table.hits,
            misses: table.misses,
            damaged: table.damaged,
            dropped_puts: table.dropped_puts,
            reclaimed_bytes: table.reclaimed_bytes,
            written_bytes: table.written_bytes,
            off: table.off.clone(),
        }
    }
}

impl Drop for Disk {
    /// Writes what is queued, for a few seconds at most.
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_all();
        if let Some(writer) = self.writer.take() {
            writer.join().ok();
        }
    }
}

/// What readers and the writer share.
#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    /// There is something to write, or the tier is being dropped.
    work: Condvar,
    /// Everything is written.
    idle: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::unused_self, reason = "the lock and its conditions belong together")]
    fn wait<'a>(&self, condition: &Condvar, table: MutexGuard<'a, Table>) -> MutexGuard<'a, Table> {
        condition.wait(table).unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the limit of bytes is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "units end names")]
struct Limits {
    /// A segment is ended before it gets longer, unless it holds one record only.
    segment_bytes: u64,
    /// The hard limit of all segments together.
    file_bytes: u64,
    /// Where new samples stop: the rest is for the copies of one reclaimed segment.
    write_bytes: u64,
    /// What may be wanted at one time: the rest is dead, so that reclaiming always gains.
    live_bytes: u64,
}

impl Limits {
    fn new(file_bytes: u64) -> Limits {
        let segment_bytes = (file_bytes / SEGMENTS).max(SEGMENT_BYTES_MIN);
        let write_bytes = file_bytes.saturating_sub(segment_bytes + 3 * segment::SEGMENT_BYTES);
        Limits { segment_bytes, file_bytes, write_bytes, live_bytes: write_bytes / 20 * 19 }
    }

    /// What a policy may keep of samples of this mean size: below what may be wanted, since copying a segment that
    /// is nearly all wanted writes many bytes for few.
    fn usable_bytes(&self, mean_bytes: u64) -> u64 {
        let target = u128::from(self.write_bytes / 20 * 17);
        let mean = mean_bytes.max(1);
        (target * u128::from(mean) / u128::from(segment::stored_bytes(mean))) as u64
    }
}

fn smallest_and_mean(samples: u32, sizes: impl Fn(SampleId) -> u64) -> (u64, u64) {
    let (mut smallest, mut sum) = (u64::MAX, 0_u128);
    for id in 0..samples {
        let bytes = sizes(SampleId(id));
        smallest = smallest.min(bytes);
        sum += u128::from(bytes);
    }
    (smallest, (sum / u128::from(samples.max(1))) as u64)
}

fn check_limits(options: &DiskOptions, limits: &Limits, other_bytes: u64, smallest: u64) -> Result<()> {
    let DiskOptions { folder, bytes_max, queue_bytes_max } = options;
    let needed = segment::stored_bytes(smallest.min(segment::SAMPLE_BYTES_MAX));
    if needed > limits.live_bytes {
        let other = match other_bytes {
            0 => String::new(),
            other => format!(", of which other data sets take {other},"),
        };
        let message = format!(
            "the disk cache in {} may take {bytes_max} bytes{other} and cannot hold even the smallest sample of {smallest} bytes",
            folder.display()
        );
        let hint = match other_bytes {
            0 => "give it more bytes",
            _ => "give it more bytes, or delete the folders of data sets that are no longer used",
        };
        return Err(Error::new(Kind::Config, message).hint(hint));
    }
    if needed > *queue_bytes_max {
        return Err(Error::config(format!(
            "the disk cache's queue of {queue_bytes_max} bytes cannot hold even the smallest sample of {smallest} bytes"
        ))
        .hint("give it more bytes"));
    }
    Ok(())
}
