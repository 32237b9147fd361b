//! One file of the disk tier: a head, records one after the other, and a foot once nothing more is added.
//!
//! Little-endian. The head is a magic with the version and the digest of the data set. A record is a head of 24
//! bytes (magic, id, length, check of these, sum) and the sample's bytes; the sum is the xxh3 of the bytes seeded with
//! the id, so right bytes under a wrong id are wrong too. The foot lists ids and lengths, so that a restart reads a few
//! bytes per record at one place instead of walking the file. A file that was cut off has no foot: it is walked from
//! head to head up to the first that is not whole.
//!
//! Nothing that is read here is believed: a listed record must have an id of the catalog and the length that the
//! catalog says, and its bytes are verified each time they are read.

use crate::catalog::Digest;
use bytes::Bytes;
use gristmill_core::SampleId;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const SEGMENT_MAGIC: [u8; 8] = *b"GRISTSG1";
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"GRec");
const FOOT_MAGIC: [u8; 8] = *b"GRISTFT1";
/// Magic and digest.
const SEGMENT_HEAD_BYTES: u64 = 8 + 16;
/// Magic, id, length, check of the head, sum of the bytes.
const RECORD_HEAD_BYTES: u64 = 4 + 4 + 4 + 4 + 8;
/// What a record adds to the foot: id and length.
const FOOT_ROW_BYTES: u64 = 4 + 4;
/// Number of records, sum of the rows, magic.
const FOOT_TAIL_BYTES: u64 = 8 + 8 + 8;

/// What a segment takes besides its records.
pub(super) const SEGMENT_BYTES: u64 = SEGMENT_HEAD_BYTES + FOOT_TAIL_BYTES;
/// The longest sample that is kept.
pub(super) const SAMPLE_BYTES_MAX: u64 = 1 << 31;

/// What a sample of so many bytes takes on disk, its row in the foot included.
pub(super) const fn stored_bytes(length: u64) -> u64 {
    RECORD_HEAD_BYTES + FOOT_ROW_BYTES + length
}

/// Where a record lies in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: SampleId,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// Whether the catalog has a sample with this id and length.
pub(super) type Fits<'a> = &'a dyn Fn(SampleId, u32) -> bool;

/// Puts the head of a segment into `out`.
pub(super) fn push_head(out: &mut Vec<u8>, digest: Digest) {
    out.extend_from_slice(&SEGMENT_MAGIC);
    out.extend_from_slice(&digest.0.to_le_bytes());
}

/// Puts a record into `out`.
pub(super) fn push_record(out: &mut Vec<u8>, id: SampleId, bytes: &[u8]) {
    out.extend_from_slice(&record_head(id, bytes.len() as u32, sum_of(id, bytes)));
    out.extend_from_slice(bytes);
}

/// Puts the foot of a segment with these records into `out`.
pub(super) fn push_foot(out: &mut Vec<u8>, records: &[Record]) {
    let start = out.len();
    for record in records {
        out.extend_from_slice(&record.id.0.to_le_bytes());
        out.extend_from_slice(&record.length.to_le_bytes());
    }
    let sum = xxh3_64(&out[start..]);
    out.extend_from_slice(&(records.len() as u64).to_le_bytes());
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&FOOT_MAGIC);
}

/// The bytes of a record, if they are there and right.
pub(super) fn read(file: &File, record: Record) -> Option<Bytes> {
    // One read for head and bytes, into one buffer that nobody clears first.
    let whole = RECORD_HEAD_BYTES as usize + record.length as usize;
    let mut buffer = Vec::with_capacity(whole);
    while buffer.len() < whole {
        let at = record.offset + buffer.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut buffer), at) {
            Ok(0) => return None,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    // The allocator may have given more room than was asked for.
    buffer.truncate(whole);
    let (head, bytes) = buffer.split_at(RECORD_HEAD_BYTES as usize);
    let right = record_head(record.id, record.length, sum_of(record.id, bytes)) == head;
    right.then(|| Bytes::from(buffer).slice(RECORD_HEAD_BYTES as usize..))
}

/// The records of a segment of `file_bytes` bytes for which `fits` is true.
///
/// Of a damaged segment, those before the damage; of a file that is no segment of this data set, none.
pub(super) fn list(file: &File, file_bytes: u64, digest: Digest, fits: Fits<'_>) -> Vec<Record> {
    let mut head = Vec::new();
    push_head(&mut head, digest);
    let mut found = [0; SEGMENT_HEAD_BYTES as usize];
    if file.read_exact_at(&mut found, 0).is_err() || found[..] != head {
        return Vec::new();
    }
    list_by_foot(file, file_bytes, fits).unwrap_or_else(|| list_by_walking(file, file_bytes, fits))
}

fn list_by_foot(file: &File, file_bytes: u64, fits: Fits<'_>) -> Option<Vec<Record>> {
    let rows_end = file_bytes.checked_sub(FOOT_TAIL_BYTES).filter(|end| *end >= SEGMENT_HEAD_BYTES)?;
    let mut tail = [0; FOOT_TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, rows_end).ok()?;
    let (count, sum) = (word64(&tail, 0), word64(&tail, 8));
    // The file itself bounds what is allocated: each row stands for a record that is longer than the row.
    let rows_bytes = count.checked_mul(FOOT_ROW_BYTES).filter(|bytes| *bytes <= rows_end / 2)?;
    if tail[16..] != FOOT_MAGIC {
        return None;
    }
    let mut rows = vec![0; rows_bytes as usize];
    let records_end = rows_end - rows_bytes;
    file.read_exact_at(&mut rows, records_end).ok()?;
    if xxh3_64(&rows) != sum {
        return None;
    }
    let mut offset = SEGMENT_HEAD_BYTES;
    let mut records = Vec::with_capacity(count as usize);
    for row in rows.as_chunks::<{ FOOT_ROW_BYTES as usize }>().0 {
        let record = Record { id: SampleId(word(row, 0)), offset, length: word(row, 4) };
        offset += RECORD_HEAD_BYTES + u64::from(record.length);
        // A row that the catalog contradicts is left out; the lengths still say where the next one lies.
        if fits(record.id, record.length) {
            records.push(record);
        }
    }
    (offset == records_end).then_some(records)
}

fn list_by_walking(file: &File, file_bytes: u64, fits: Fits<'_>) -> Vec<Record> {
    let mut records = Vec::new();
    let mut offset = SEGMENT_HEAD_BYTES;
    let mut head = [0; RECORD_HEAD_BYTES as usize];
    while file.read_exact_at(&mut head, offset).is_ok() {
        let (id, length, sum) = (SampleId(word(&head, 4)), word(&head, 8), word64(&head, 16));
        let end = offset + RECORD_HEAD_BYTES + u64::from(length);
        if record_head(id, length, sum) != head || end > file_bytes {
            break;
        }
        if fits(id, length) {
            records.push(Record { id, offset, length });
        }
        offset = end;
    }
    records
}

fn sum_of(id: SampleId, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, id.0.into())
}

fn record_head(id: SampleId, length: u32, sum: u64) -> [u8; RECORD_HEAD_BYTES as usize] {
    let mut head = [0; RECORD_HEAD_BYTES as usize];
    head[..4].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
    head[4..8].copy_from_slice(&id.0.to_le_bytes());
    head[8..12].copy_from_slice(&length.to_le_bytes());
    head[16..].copy_from_slice(&sum.to_le_bytes());
    // Computed while its own place is zero, so that a walk is not led astray by a damaged length.
    let check = xxh3_64(&head) as u32;
    head[12..16].copy_from_slice(&check.to_le_bytes());
    head
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// Where the first record of a segment lies.
pub(super) const fn first_offset() -> u64 {
    SEGMENT_HEAD_BYTES
}

/// Writes all of `bytes` at `offset`.
pub(super) fn write(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next_offset(record: Record) -> u64 {
        record.offset + RECORD_HEAD_BYTES + u64::from(record.length)
    }

    const DIGEST: Digest = Digest(0x1234_5678_9abc_def0);

    fn content(id: u32) -> Vec<u8> {
        (0..20 + id).map(|i| (i * 7 + id) as u8).collect()
    }

    fn fits(id: SampleId, length: u32) -> bool {
        id.0 < 5 && length == 20 + id.0
    }

    fn example(foot: bool) -> (Vec<u8>, Vec<Record>) {
        let (mut out, mut records) = (Vec::new(), Vec::new());
        push_head(&mut out, DIGEST);
        for id in [3, 0, 4, 1] {
            records.push(Record { id: SampleId(id), offset: out.len() as u64, length: 20 + id });
            push_record(&mut out, SampleId(id), &content(id));
        }
        if foot {
            push_foot(&mut out, &records);
        }
        (out, records)
    }

    fn listed(bytes: &[u8], digest: Digest) -> (File, Vec<Record>) {
        let file = tempfile::tempfile().unwrap();
        write(&file, bytes, 0).unwrap();
        let records = list(&file, bytes.len() as u64, digest, &fits);
        (file, records)
    }

    #[test]
    fn what_is_written_is_listed_and_read_with_and_without_a_foot() {
        for foot in [true, false] {
            let (bytes, expect) = example(foot);
            let (file, records) = listed(&bytes, DIGEST);
            assert_eq!(records, expect, "foot {foot}");
            for record in records {
                assert_eq!(read(&file, record).unwrap(), content(record.id.0));
                let other = Record { id: SampleId(2), ..record };
                assert_eq!(read(&file, other), None, "right bytes under a wrong id");
            }
            assert_eq!(listed(&bytes, Digest(1)).1, [], "another data set");
        }
        let stored: u64 = example(true).1.iter().map(|record| stored_bytes(record.length.into())).sum();
        assert_eq!(example(true).0.len() as u64, SEGMENT_BYTES + stored, "the account is exact");
    }

    #[test]
    fn no_flipped_bit_and_no_cut_gives_wrong_bytes() {
        for foot in [true, false] {
            let (whole, expect) = example(foot);
            let check = |bytes: &[u8], what: &str| {
                let (file, records) = listed(bytes, DIGEST);
                for record in &records {
                    if let Some(found) = read(&file, *record) {
                        assert_eq!(found, content(record.id.0), "{what}");
                    }
                }
                records.iter().filter(|record| read(&file, **record).is_some()).count()
            };
            for at in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << (at % 8);
                let good = check(&bytes, &format!("byte {at}"));
                // With the foot, damage in one record costs that record only.
                let in_record = (SEGMENT_HEAD_BYTES..next_offset(expect[3])).contains(&(at as u64));
                assert!(!in_record || good < 4, "byte {at} was noticed");
                assert!(!(foot && in_record) || good == 3, "byte {at} costs one record");
                let good = check(&whole[..at], &format!("cut at {at}"));
                let inside = expect.iter().filter(|record| next_offset(**record) <= at as u64).count();
                assert_eq!(good, inside, "cut at {at}: what is whole is there");
            }
        }
    }
}
