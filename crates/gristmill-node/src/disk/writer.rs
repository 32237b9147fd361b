//! The one thread that writes: what is queued goes to the end of the newest segment, and room is made by copying.
//!
//! Segments are only ever added to. When the limit comes near, the segment with the largest dead share is taken, what is
//! still wanted of it is copied to the end of the newest, and the file is deleted. The reserve of [`Limits`] is room
//! for one such copy, so a put never takes what reclaiming needs. Bytes are charged before they are written; whatever
//! would go beyond the limit is lost instead.
//!
//! Nothing is flushed to the device for durability: what a power failure takes is a miss, and half a record is noticed.
//! The first write that fails ends all writing with one reason; what lies on disk is still served.

use super::folder::Folder;
use super::segment::{self, Record};
use super::table::{Entry, Table};
use super::{Limits, Shared};
use crate::catalog::Digest;
use crate::{Error, Result};
use bytes::Bytes;
use gristmill_core::SampleId;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Small samples are written together up to about this size.
const BATCH_BYTES: usize = 1 << 20;
/// More files than this are merged, whatever their size: each holds a descriptor.
const SEGMENTS_MAX: usize = 320;
/// How long a tier that is dropped goes on writing what is queued.
const CLOSE_S: u64 = 5;

pub(super) struct Writer {
    shared: Arc<Shared>,
    folder: Folder,
    digest: Digest,
    limits: Limits,
    number_next: u32,
    newest: Option<Newest>,
    /// When the tier is being dropped: the end of the patience.
    deadline: Option<Instant>,
}

/// The segment that is added to.
struct Newest {
    number: u32,
    file: Arc<File>,
    /// Where the buffer goes.
    offset: u64,
    buffer: Vec<u8>,
    /// All records, for the foot.
    records: Vec<Record>,
    /// The records in the buffer, with the place they were copied from.
    unwritten: Vec<(Record, Option<(u32, Record)>)>,
    /// What it takes with its foot.
    bytes: u64,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        folder: Folder,
        digest: Digest,
        limits: Limits,
        number_next: u32,
    ) -> Writer {
        Writer { shared, folder, digest, limits, number_next, newest: None, deadline: None }
    }

    /// Writes until the tier is dropped.
    pub(super) fn run(self) {
        let shared = Arc::clone(&self.shared);
        // A fault of ours ends the writing as a fault of the disk does, and nobody waits for it in vain.
        let ended = catch_unwind(AssertUnwindSafe(|| self.write_all()));
        let mut table = shared.lock();
        if ended.is_err() {
            table.turn_off(
                "the disk cache no longer takes samples: its thread failed, please report it".into(),
            );
        }
        table.writing = false;
        shared.idle.notify_all();
    }

    fn write_all(mut self) {
        while let Some(batch) = self.next_batch() {
            let done = batch.into_iter().try_for_each(|(id, bytes)| self.put(id, &bytes));
            if let Err(error) = done.and_then(|()| self.flush()).and_then(|()| self.merge()) {
                self.turn_off(&error);
            }
        }
        if let Err(error) = self.seal() {
            self.turn_off(&error);
        }
    }

    /// What is to be written next; `None` at the end.
    fn next_batch(&mut self) -> Option<Vec<(SampleId, Bytes)>> {
        let mut table = self.shared.lock();
        loop {
            if table.closing {
                let deadline =
                    self.deadline.get_or_insert_with(|| Instant::now() + Duration::from_secs(CLOSE_S));
                if table.queue.is_empty() || Instant::now() > *deadline {
                    return None;
                }
            }
            let (mut batch, mut bytes_sum) = (Vec::new(), 0);
            while bytes_sum < BATCH_BYTES
                && let Some(id) = table.queue.pop_front()
            {
                // Removed, or written already under an earlier place in the queue: nothing to do.
                if let Some(Entry::Queued(bytes)) = table.entries.get(&id) {
                    bytes_sum += segment::stored_bytes(bytes.len() as u64) as usize;
                    batch.push((id, bytes.clone()));
                }
            }
            if !batch.is_empty() {
                table.writing = true;
                return Some(batch);
            }
            table.writing = false;
            self.shared.idle.notify_all();
            if !table.closing {
                table = self.shared.wait(&self.shared.work, table);
            }
        }
    }

    fn put(&mut self, id: SampleId, bytes: &Bytes) -> Result<()> {
        let needed = segment::stored_bytes(bytes.len() as u64);
        if self.make_room(needed)? {
            return self.append(id, bytes, None);
        }
        let mut table = self.shared.lock();
        table.dropped_puts += 1;
        table.lose(id);
        Ok(())
    }

    /// Reclaims until a record of `needed` bytes leaves the reserve untouched; says whether it does.
    fn make_room(&mut self, needed: u64) -> Result<bool> {
        // A record may need a segment of its own, and the one before it its end.
        let needed = needed + segment::SEGMENT_BYTES;
        loop {
            let victim = {
                let table = self.shared.lock();
                if table.file_bytes + needed <= self.limits.write_bytes {
                    return Ok(true);
                }
                if self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
                    return Ok(false);
                }
                self.victim(&table)
            };
            let Some(victim) = victim else { return Ok(false) };
            self.reclaim(victim)?;
        }
    }

    /// The finished segment with the largest dead share, if reclaiming it gains anything.
    fn victim(&self, table: &Table) -> Option<u32> {
        let newest = self.newest.as_ref().map(|newest| newest.number);
        let share = |bytes: u64, dead: u64| dead as f64 / bytes.max(1) as f64;
        let finished = table.segments.iter().filter(|(number, _)| Some(**number) != newest);
        // A copy may begin a new segment, so less than a segment's own bytes is no gain.
        // Copying nearly all of a segment for next to nothing is no gain either: the limit of what is wanted
        // leaves more than this dead.
        let gains = finished.filter(|(_, segment)| {
            let dead = segment.dead_bytes();
            dead > 2 * segment::SEGMENT_BYTES && dead >= segment.bytes / 32
        });
        let shares = gains.map(|(number, segment)| (*number, share(segment.bytes, segment.dead_bytes())));
        shares.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(number, _)| number)
    }

    /// Copies what is wanted of a segment to the newest and deletes it.
    fn reclaim(&mut self, number: u32) -> Result<()> {
        let (file, bytes, live_bytes) = {
            let table = self.shared.lock();
            let Some(segment) = table.segments.get(&number) else { return Ok(()) };
            (Arc::clone(&segment.file), segment.bytes, segment.live_bytes)
        };
        if live_bytes > 0 {
            let path = self.folder.segment(number);
            let meta = file.metadata().map_err(|e| Error::io("look at", path.display(), e))?;
            for record in segment::list(&file, meta.len(), self.digest, &|_, _| true) {
                if !self.shared.lock().is_at(number, record) {
                    continue;
                }
                let copy = segment::read(&file, record);
                let room = self.shared.lock().file_bytes
                    + segment::stored_bytes(record.length.into())
                    + segment::SEGMENT_BYTES
                    <= self.limits.file_bytes;
                match copy {
                    Some(bytes) if room => self.append(record.id, &bytes, Some((number, record)))?,
                    copy => self.lose_record(number, record, copy.is_none()),
                }
            }
            self.flush()?;
        }
        self.folder.delete_segment(number)?;
        let mut table = self.shared.lock();
        // Damage can hide records from the list that the table still has.
        let here = |entry: &Entry| matches!(entry, Entry::Stored { segment, .. } if *segment == number);
        if table.segments.get(&number).is_some_and(|segment| segment.live_bytes > 0) {
            let mut hidden: Vec<SampleId> = Vec::new();
            table.entries.iter().filter(|(_, entry)| here(entry)).for_each(|(id, _)| hidden.push(*id));
            table.damaged += hidden.len() as u64;
            hidden.into_iter().for_each(|id| table.lose(id));
        }
        table.remove_segment(number);
        table.reclaimed_bytes += bytes;
        Ok(())
    }

    fn lose_record(&self, number: u32, record: Record, damaged: bool) {
        let mut table = self.shared.lock();
        if table.is_at(number, record) {
            table.damaged += u64::from(damaged);
            table.lose(record.id);
        }
    }

    /// Adds a record to the newest segment, of which there is one with room afterwards.
    fn append(&mut self, id: SampleId, bytes: &[u8], from: Option<(u32, Record)>) -> Result<()> {
        let stored = segment::stored_bytes(bytes.len() as u64);
        // A record that is longer than a segment gets one for itself.
        let full =
            |newest: &Newest| !newest.records.is_empty() && newest.bytes + stored > self.limits.segment_bytes;
        if self.newest.as_ref().is_some_and(full) {
            self.seal()?;
        }
        if self.newest.is_none() {
            self.begin()?;
        }
        let Some(newest) = &mut self.newest else { return Ok(()) };
        self.shared.lock().charge(newest.number, stored);
        newest.bytes += stored;
        let offset = newest.offset + newest.buffer.len() as u64;
        let record = Record { id, offset, length: bytes.len() as u32 };
        segment::push_record(&mut newest.buffer, id, bytes);
        newest.records.push(record);
        newest.unwritten.push((record, from));
        if newest.buffer.len() >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn begin(&mut self) -> Result<()> {
        let number = self.number_next;
        self.number_next += 1;
        // Charged first: the folder is never fuller than the account.
        self.shared.lock().file_bytes += segment::SEGMENT_BYTES;
        let made = self.folder.create_segment(number, self.digest);
        let mut table = self.shared.lock();
        table.file_bytes -= segment::SEGMENT_BYTES;
        let file = Arc::new(made?);
        table.add_segment(number, Arc::clone(&file), segment::SEGMENT_BYTES);
        drop(table);
        self.newest = Some(Newest {
            number,
            file,
            offset: segment::first_offset(),
            buffer: Vec::new(),
            records: Vec::new(),
            unwritten: Vec::new(),
            bytes: segment::SEGMENT_BYTES,
        });
        Ok(())
    }

    /// Writes the buffer and enters what it holds.
    fn flush(&mut self) -> Result<()> {
        let Some(newest) = &mut self.newest else { return Ok(()) };
        if newest.buffer.is_empty() {
            return Ok(());
        }
        segment::write(&newest.file, &newest.buffer, newest.offset)
            .map_err(|e| Error::io("write", self.folder.segment(newest.number).display(), e))?;
        newest.offset += newest.buffer.len() as u64;
        let mut table = self.shared.lock();
        table.written_bytes += newest.buffer.len() as u64;
        for (record, from) in newest.unwritten.drain(..) {
            match from {
                None => table.stored(newest.number, record),
                Some(from) => table.moved(from, (newest.number, record)),
            }
        }
        newest.buffer.clear();
        // One long sample must not hold its room for good.
        newest.buffer.shrink_to(2 * BATCH_BYTES);
        Ok(())
    }

    /// Ends the newest segment with its foot.
    fn seal(&mut self) -> Result<()> {
        self.flush()?;
        let Some(mut newest) = self.newest.take() else { return Ok(()) };
        segment::push_foot(&mut newest.buffer, &newest.records);
        segment::write(&newest.file, &newest.buffer, newest.offset)
            .map_err(|e| Error::io("write", self.folder.segment(newest.number).display(), e))?;
        self.shared.lock().written_bytes += newest.buffer.len() as u64;
        Ok(())
    }

    /// Merges the smallest segment into the newest if there are too many: each restart leaves a short one.
    fn merge(&mut self) -> Result<()> {
        let newest = self.newest.as_ref().map(|newest| newest.number);
        let smallest = {
            let table = self.shared.lock();
            let finished = table.segments.iter().filter(|(number, _)| Some(**number) != newest);
            let smallest = finished.min_by_key(|(_, segment)| segment.bytes);
            let too_many = table.segments.len() > SEGMENTS_MAX;
            smallest.filter(|_| too_many).map(|(number, segment)| (*number, segment.bytes))
        };
        match smallest {
            Some((number, bytes)) if bytes <= self.limits.segment_bytes / 2 => self.reclaim(number),
            _ => Ok(()),
        }
    }

    fn turn_off(&mut self, error: &Error) {
        // Half a record may lie at the end; it is cut off if that works and noticed at the next start if not.
        if let Some(newest) = self.newest.take() {
            newest.file.set_len(newest.offset).ok();
        }
        self.shared.lock().turn_off(format!("the disk cache no longer takes samples: {error}"));
    }
}
