//! Decoded pictures that stay with the op pool, so that the next epoch need not decode them again.
//!
//! A crop is random and of use once. The pixels before it are the same in every epoch, and making them is most of what
//! ops cost: where the memory has them, a crop takes a sixth of its time or less. They are a function of a sample's raw
//! bytes, which are at hand whenever they are asked for; a hash of those tells pixels of other bytes from these.
//!
//! Whoever comes first stays until the memory is full: in epochs that ask for everything once, nothing else has more
//! hits. Then those make room that nobody asked for while everything could have been asked for four times, as a
//! selection leaves them behind.
//!
//! A picture that cannot be kept, as whole and in part it might decode differently, is remembered without pixels: it is
//! not tried again.
//!
//! Deliberately not here: decoding, and raw bytes, which the node keeps (`gristmill_core::cache`).

use crate::catalog::Digest;
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_ops::Limits;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use xxhash_rust::xxh3::xxh3_64;

/// What an entry takes beside its pixels.
const ENTRY_BYTES: u64 = 128;
/// The most that one picture may have of all the memory: one in so many.
const PART_MAX: u64 = 8;
/// How many are looked at to find one that makes room.
const LOOKS: usize = 16;

/// How much longer than twice the number of pictures the ring may get, which holds places of some that are gone.
const RING_EXTRA: usize = 64;

/// How often everything can be asked for before a picture that none was for makes room: two jobs at once, each of which
/// may come to it late in one epoch and early in the one before.
const LIFE: u64 = 4;

/// Which picture: the data set and the sample.
type Key = (Digest, SampleId);

/// A picture as it is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Picture {
    key: Key,
    /// The hash of its raw bytes.
    raw: u64,
    /// What decoding it may take.
    limits: Limits,
}

impl Picture {
    pub(super) fn new(set: Digest, id: SampleId, raw: &[u8], limits: Limits) -> Picture {
        Picture { key: (set, id), raw: xxh3_64(raw), limits }
    }
}

/// The pictures that are kept.
#[derive(Debug)]
pub(super) struct Pixels {
    bytes_max: u64,
    /// Asks after which a picture that none was for makes room.
    life: u64,
    kept: Mutex<Kept>,
    hits: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    /// The keys of all entries, in the order in which they are looked at.
    ring: VecDeque<Key>,
    bytes: u64,
    /// Entries without pixels.
    odd: u64,
    asks: u64,
}

#[derive(Debug)]
struct Entry {
    /// None if there is nothing that could be kept.
    pixels: Bytes,
    /// The hash of the raw bytes, and the limits under which they were decoded: under lower ones they might not be.
    raw: u64,
    limits: Limits,
    /// When it was asked for last.
    asked: u64,
}

/// What is kept, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PixelsReport {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) bytes_max: u64,
    pub(super) hits: u64,
}

impl Pixels {
    /// Room for so many bytes, in front of data sets of so many samples together.
    pub(super) fn new(bytes_max: u64, samples: u64) -> Pixels {
        let life = samples.saturating_mul(LIFE).max(1);
        Pixels { bytes_max, life, kept: Mutex::default(), hits: AtomicU64::new(0) }
    }

    /// Whether anything can be kept.
    pub(super) fn is_off(&self) -> bool {
        self.bytes_max == 0
    }

    /// The pixels of this picture, if they are here; empty if it is known that they cannot be kept.
    pub(super) fn get(&self, picture: &Picture) -> Option<Bytes> {
        let Picture { key, raw, limits } = *picture;
        let mut guard = self.lock();
        let kept = &mut *guard;
        kept.asks += 1;
        let entry = kept.entries.get_mut(&key)?;
        // Pixels do not depend on limits, but whether there are any does: those who allow less must decode for themselves.
        // What could not be kept may be with more.
        let within = |less: Limits, more: Limits| {
            less.pixels_max <= more.pixels_max && less.scratch_bytes_max <= more.scratch_bytes_max
        };
        let odd = entry.pixels.is_empty();
        let allowed = if odd { within(limits, entry.limits) } else { within(entry.limits, limits) };
        if entry.raw != raw || !allowed {
            kept.remove(key); // the file was changed, or whoever allows less keeps it for all
            return None;
        }
        entry.asked = kept.asks;
        self.hits.fetch_add(u64::from(!entry.pixels.is_empty()), Relaxed);
        Some(entry.pixels.clone())
    }

    /// Whether a picture of so many bytes would be kept; makes room for it if somebody can go.
    pub(super) fn admits(&self, picture: &Picture, bytes: u64) -> bool {
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        if bytes > self.bytes_max / PART_MAX {
            return false;
        }
        let mut kept = self.lock();
        if kept.entries.contains_key(&picture.key) {
            return false; // another thread was faster
        }
        for _ in 0..LOOKS {
            if kept.bytes + bytes <= self.bytes_max {
                return true;
            }
            let Some(next) = kept.ring.pop_front() else { break };
            let stale = |entry: &Entry| kept.asks - entry.asked > self.life;
            if kept.entries.get(&next).is_none_or(stale) {
                kept.remove(next);
            } else {
                kept.ring.push_back(next);
            }
        }
        kept.bytes + bytes <= self.bytes_max
    }

    /// Keeps a picture, if there still is room; without pixels, that it cannot be kept.
    pub(super) fn put(&self, picture: &Picture, pixels: Bytes) {
        let Picture { key, raw, limits } = *picture;
        let mut kept = self.lock();
        let bytes = pixels.len() as u64 + ENTRY_BYTES;
        if kept.bytes + bytes > self.bytes_max || kept.entries.contains_key(&key) {
            return;
        }
        kept.bytes += bytes;
        kept.odd += u64::from(pixels.is_empty());
        kept.ring.push_back(key);
        let asked = kept.asks;
        kept.entries.insert(key, Entry { pixels, raw, limits, asked });
        if kept.ring.len() > 2 * kept.entries.len() + RING_EXTRA {
            kept.ring = kept.entries.keys().copied().collect();
        }
    }

    pub(super) fn report(&self) -> PixelsReport {
        let kept = self.lock();
        PixelsReport {
            entries: kept.entries.len() as u64 - kept.odd,
            bytes: kept.bytes,
            bytes_max: self.bytes_max,
            hits: self.hits.load(Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing that can panic runs under the lock.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Lets a picture go; its place in the ring goes when it is looked at, or when there are too many of those.
    fn remove(&mut self, key: Key) {
        if let Some(entry) = self.entries.remove(&key) {
            self.bytes -= entry.pixels.len() as u64 + ENTRY_BYTES;
            self.odd -= u64::from(entry.pixels.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { pixels_max: 1 << 20, scratch_bytes_max: 1 << 24 };
    /// Room for ten pictures.
    const ROOM: u64 = 10 * (1_000 + ENTRY_BYTES);

    fn picture(id: u32, raw: &[u8], limits: Limits) -> Picture {
        Picture::new(Digest(7), SampleId(id), raw, limits)
    }

    /// Asks for a picture as the pool does, and says whether it was there.
    fn ask(pixels: &Pixels, id: u32) -> bool {
        let picture = picture(id, &id.to_le_bytes(), LIMITS);
        let here = pixels.get(&picture);
        if here.is_none() && pixels.admits(&picture, 1_000) {
            pixels.put(&picture, vec![id as u8; 1_000].into());
        }
        here.inspect(|bytes| assert_eq!(bytes[..], [id as u8; 1_000])).is_some()
    }

    #[test]
    fn whoever_comes_first_stays_while_everything_is_asked_for() {
        let pixels = Pixels::new(ROOM, 40);
        for epoch in 0..6_u32 {
            let hits = (0..40).filter(|id| ask(&pixels, (id * 7 + epoch) % 40)).count();
            assert_eq!(hits, if epoch == 0 { 0 } else { 10 }, "epoch {epoch}");
        }
        let report = pixels.report();
        assert_eq!((report.entries, report.bytes, report.hits), (10, ROOM, 50));
    }

    #[test]
    fn whoever_comes_first_stays_with_two_jobs_too() {
        let pixels = Pixels::new(ROOM, 40);
        (0..40).for_each(|id| _ = ask(&pixels, id));
        for epoch in 0..8_u32 {
            // One ascends while the other descends, in turn: late in one epoch, early in the next.
            let one = |id: u32| if epoch % 2 == 0 { id } else { 39 - id };
            let hits = (0..40).flat_map(|id| [one(id), 39 - one(id)]).filter(|&id| ask(&pixels, id)).count();
            assert_eq!(hits, 20, "epoch {epoch}");
        }
    }

    #[test]
    fn what_a_selection_leaves_behind_makes_room() {
        let pixels = Pixels::new(ROOM, 40);
        (0..40).for_each(|id| _ = ask(&pixels, id));
        let hits = |_| (20..30).filter(|&id| ask(&pixels, id)).count();
        let hits: Vec<usize> = (0..24).map(hits).collect();
        assert_eq!((hits[0], hits[23]), (0, 10), "{hits:?}");
        assert!(pixels.report().bytes <= ROOM);
    }

    #[test]
    fn pixels_of_other_bytes_or_limits_are_not_these() {
        let pixels = Pixels::new(ROOM, 40);
        assert!(!ask(&pixels, 1) && ask(&pixels, 1));
        let raw = 1_u32.to_le_bytes();
        let more = picture(1, &raw, Limits { pixels_max: 2 << 20, ..LIMITS });
        assert!(pixels.get(&more).is_some(), "who allows more has them, too");
        let less = picture(1, &raw, Limits { scratch_bytes_max: 10, ..LIMITS });
        assert_eq!(pixels.get(&less), None);
        // Whoever allows less and can decode it keeps it for all.
        assert!(pixels.admits(&less, 1_000));
        pixels.put(&less, vec![1; 1_000].into());
        assert!(ask(&pixels, 1) && pixels.get(&less).is_some());
        assert_eq!(pixels.get(&Picture::new(Digest(8), SampleId(1), &raw, LIMITS)), None);
        assert_eq!(pixels.get(&picture(1, b"changed", LIMITS)), None);
        assert_eq!(pixels.report().entries, 0, "what changed is let go");
        for round in 0..1_000_u32 {
            let changing = picture(2, &round.to_le_bytes(), LIMITS);
            assert_eq!(pixels.get(&changing), None);
            pixels.put(&changing, vec![0; 10].into());
        }
        assert!(pixels.lock().ring.len() < 100, "changing files leave nothing behind");
    }

    #[test]
    fn what_cannot_be_kept_is_remembered_and_is_no_hit() {
        let pixels = Pixels::new(ROOM, 40);
        let odd = picture(3, b"odd", LIMITS);
        pixels.put(&odd, Bytes::new());
        assert_eq!(pixels.get(&odd), Some(Bytes::new()));
        let report = pixels.report();
        assert_eq!((report.entries, report.hits, report.bytes), (0, 0, ENTRY_BYTES));
        let less = picture(3, b"odd", Limits { pixels_max: 1, ..LIMITS });
        assert_eq!(pixels.get(&less), Some(Bytes::new()));
        let more = picture(3, b"odd", Limits { pixels_max: 2 << 20, ..LIMITS });
        assert_eq!(pixels.get(&more), None, "whoever allows more tries again");
        pixels.put(&odd, Bytes::new());
        assert_eq!(pixels.get(&picture(3, b"mended", LIMITS)), None, "it is tried again");
        assert_eq!(pixels.report().entries, 0);
    }

    #[test]
    fn no_room_and_giants() {
        let none = Pixels::new(0, 40);
        assert!(none.is_off() && !ask(&none, 1) && !ask(&none, 1));
        let (pixels, giant) = (Pixels::new(ROOM, 40), picture(1, b"", LIMITS));
        assert!(!pixels.admits(&giant, ROOM / 4) && !pixels.admits(&giant, u64::MAX));
        pixels.put(&giant, vec![0; ROOM as usize].into());
        assert_eq!(pixels.report().bytes, 0);
    }
}
