//! What the disk tier knows: where each sample lies, what each segment holds, and the account of bytes.
//!
//! One value behind one lock, with no I/O in it: readers look up under the lock and read without it, the writer writes
//! without it and enters what it wrote. A sample that waits to be written is served from the queue.
//!
//! Bytes on disk are charged before they are written, at what they will take with the foot of their segment. So the sum
//! of the segments' accounts is never less than what lies in the folder.

use super::segment::{self, Record};
use bytes::Bytes;
use gristmill_core::SampleId;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;

/// Where a sample is.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    /// Waiting to be written.
    Queued(Bytes),
    /// In this segment.
    Stored { segment: u32, record: Record },
}

/// A file of the tier.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) file: Arc<File>,
    /// What it takes on disk, at most.
    pub(super) bytes: u64,
    /// What of it is records that are still wanted.
    pub(super) live_bytes: u64,
}

impl Segment {
    /// What would be free if the wanted records were elsewhere and the file gone.
    pub(super) fn dead_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.live_bytes)
    }
}

/// Everything behind the lock.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: HashMap<SampleId, Entry>,
    pub(super) segments: BTreeMap<u32, Segment>,
    pub(super) queue: VecDeque<SampleId>,
    /// What the samples that are queued or just being written will take on disk.
    pub(super) queued_bytes: u64,
    /// What all entries take on disk, or will.
    pub(super) live_bytes: u64,
    /// The account of all segments.
    pub(super) file_bytes: u64,
    /// Taken in but not kept; a set, so that it is bounded by the catalog if nobody asks.
    pub(super) lost: BTreeSet<SampleId>,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) damaged: u64,
    pub(super) dropped_puts: u64,
    pub(super) reclaimed_bytes: u64,
    pub(super) written_bytes: u64,
    /// Why nothing more is written.
    pub(super) off: Option<String>,
    /// The tier is being dropped.
    pub(super) closing: bool,
    /// The writer holds samples that are neither in the queue nor on disk yet.
    pub(super) writing: bool,
}

impl Table {
    /// Takes a sample into the queue.
    pub(super) fn enqueue(&mut self, id: SampleId, bytes: Bytes) {
        // Heads included, so that samples of no bytes cannot queue without end.
        let stored = segment::stored_bytes(bytes.len() as u64);
        self.queued_bytes += stored;
        self.live_bytes += stored;
        self.lost.remove(&id);
        self.entries.insert(id, Entry::Queued(bytes));
        self.queue.push_back(id);
    }

    /// Forgets a sample; whatever lies on disk of it is dead from now on.
    pub(super) fn forget(&mut self, id: SampleId) -> bool {
        let Some(entry) = self.entries.remove(&id) else { return false };
        let stored = match entry {
            Entry::Queued(bytes) => {
                let stored = segment::stored_bytes(bytes.len() as u64);
                self.queued_bytes -= stored;
                stored
            }
            Entry::Stored { segment, record } => {
                let stored = segment::stored_bytes(record.length.into());
                if let Some(segment) = self.segments.get_mut(&segment) {
                    segment.live_bytes -= stored;
                }
                stored
            }
        };
        self.live_bytes -= stored;
        true
    }

    /// Forgets a sample that the caller believes to be here, and says so when asked.
    pub(super) fn lose(&mut self, id: SampleId) {
        if self.forget(id) {
            self.lost.insert(id);
        }
    }

    /// Enters that a queued sample lies on disk now; if it was removed meanwhile, its record is dead from the start.
    pub(super) fn stored(&mut self, segment: u32, record: Record) {
        let Some(entry @ Entry::Queued(_)) = self.entries.get_mut(&record.id) else { return };
        *entry = Entry::Stored { segment, record };
        let stored = segment::stored_bytes(record.length.into());
        self.queued_bytes -= stored;
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.live_bytes += stored;
        }
    }

    /// Enters a record that was there at the start.
    pub(super) fn found(&mut self, number: u32, record: Record) {
        let stored = segment::stored_bytes(record.length.into());
        self.live_bytes += stored;
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.live_bytes += stored;
        }
        self.entries.insert(record.id, Entry::Stored { segment: number, record });
    }

    /// Enters that a record was copied, unless it was removed meanwhile.
    pub(super) fn moved(&mut self, from: (u32, Record), to: (u32, Record)) {
        if !self.is_at(from.0, from.1) {
            return;
        }
        let stored = segment::stored_bytes(to.1.length.into());
        self.entries.insert(to.1.id, Entry::Stored { segment: to.0, record: to.1 });
        if let Some(segment) = self.segments.get_mut(&from.0) {
            segment.live_bytes -= stored;
        }
        if let Some(segment) = self.segments.get_mut(&to.0) {
            segment.live_bytes += stored;
        }
    }

    /// Whether the sample of this record is served from this place.
    pub(super) fn is_at(&self, at: u32, here: Record) -> bool {
        matches!(self.entries.get(&here.id), Some(Entry::Stored { segment, record }) if *segment == at && *record == here)
    }

    /// Charges bytes that are about to be written to a segment.
    pub(super) fn charge(&mut self, segment: u32, bytes: u64) {
        self.file_bytes += bytes;
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.bytes += bytes;
        }
    }

    /// Adds a segment that takes `bytes`.
    pub(super) fn add_segment(&mut self, number: u32, file: Arc<File>, bytes: u64) {
        self.file_bytes += bytes;
        self.segments.insert(number, Segment { file, bytes, live_bytes: 0 });
    }

    /// Takes a segment off the account.
    pub(super) fn remove_segment(&mut self, number: u32) {
        if let Some(segment) = self.segments.remove(&number) {
            self.file_bytes -= segment.bytes;
        }
    }

    /// Writes no more, for this reason; what waits is lost.
    pub(super) fn turn_off(&mut self, reason: String) {
        self.off.get_or_insert(reason);
        self.queue.clear();
        let mut waiting: Vec<SampleId> = Vec::new();
        let queued = self.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Queued(_)));
        queued.for_each(|(id, _)| waiting.push(*id));
        self.dropped_puts += waiting.len() as u64;
        waiting.into_iter().for_each(|id| self.lose(id));
    }
}
