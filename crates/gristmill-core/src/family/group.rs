//! Who leads whom: leader clustering with an exact search for candidates.
//!
//! A hash is cut into one band more than the radius. Two hashes within the radius differ in too few bits to touch
//! every band, so they agree in at least one: only leaders that share a band need to be compared. Bits are dealt out
//! to the bands in turn, because neighbouring coefficients of a picture are alike and would crowd a few buckets.
//!
//! Equal hashes of one label are one candidate: what holds for the first of them holds for all, since a later leader
//! never comes before an earlier one. And leaders lie more than a radius apart, so a crowd of like hashes has few of
//! them. Both keep data with thousands of flat or equal pictures as quick as any other; only leaders that agree in
//! one band and differ by more than the radius elsewhere, by the hundred thousand, would be slow.

use super::NO_HASH;
use crate::rng::mix;

/// The most buckets of a band, as a power of two.
const BUCKET_BITS_MAX: u32 = 22;

/// The leader of each sample: its own id where it leads or is alone.
pub(super) fn leaders(hashes: &[u64], labels: &[u32], radius: u32, cross_label: bool) -> Vec<u32> {
    let mut leaders: Vec<u32> = (0..hashes.len() as u32).collect();
    let label = |id: u32| if cross_label { 0 } else { labels[id as usize] };
    let kind = |id: u32| (label(id), hashes[id as usize]);
    let mut ids: Vec<u32> = leaders.iter().copied().filter(|&id| hashes[id as usize] != NO_HASH).collect();
    ids.sort_unstable_by_key(|&id| (kind(id), id));
    // The later ones of equal hash and label follow the first, which alone is clustered.
    let mut firsts = Vec::new();
    for equal in ids.chunk_by(|&a, &b| kind(a) == kind(b)) {
        firsts.push(equal[0]);
        equal.iter().for_each(|&id| leaders[id as usize] = equal[0]);
    }
    if radius > 0 {
        firsts.sort_unstable_by_key(|&id| (label(id), id));
        let mut bands = Bands::new(radius);
        for one_label in firsts.chunk_by(|&a, &b| label(a) == label(b)).filter(|ids| ids.len() > 1) {
            bands.cluster(hashes, one_label, &mut leaders);
        }
        for id in ids {
            // A first one now knows its leader; those that follow it follow that one.
            let first = leaders[id as usize];
            leaders[id as usize] = leaders[first as usize];
        }
    }
    leaders
}

/// The leaders found so far, by each band of their hash.
struct Bands {
    radius: u32,
    bands: Vec<Band>,
}

impl Bands {
    fn new(radius: u32) -> Bands {
        let count = radius + 1;
        let mask = |band: u32| (band..64).step_by(count as usize).fold(0, |mask, bit| mask | 1_u64 << bit);
        Bands { radius, bands: (0..count).map(|band| Band { mask: mask(band), ..Band::default() }).collect() }
    }

    /// Finds the leader of each of `ids`, which are in order and whose hashes are distinct.
    fn cluster(&mut self, hashes: &[u64], ids: &[u32], leaders: &mut [u32]) {
        let hash_of = |id: u32| hashes[id as usize];
        self.bands.iter_mut().for_each(|band| band.clear(ids.iter().map(|&id| hash_of(id))));
        for &id in ids {
            let hash = hash_of(id);
            let found = self.bands.iter().filter_map(|band| band.earliest(hash, self.radius)).min();
            if let Some(leader) = found {
                leaders[id as usize] = leader;
            } else {
                self.bands.iter_mut().for_each(|band| band.push(hash, id));
            }
        }
    }
}

/// Buckets of leaders that have one value of a band in common (or, now and then, only its mixed value).
#[derive(Default)]
struct Band {
    /// The bits of the hash that this band looks at.
    mask: u64,
    bucket_bits: u32,
    /// Where each bucket begins.
    starts: Vec<u32>,
    /// Where the next leader of each bucket goes.
    ends: Vec<u32>,
    hashes: Vec<u64>,
    ids: Vec<u32>,
}

impl Band {
    /// Empties the buckets and gives each room for all that will be looked up in it.
    fn clear(&mut self, hashes: impl ExactSizeIterator<Item = u64> + Clone) {
        let count = hashes.len();
        // Two buckets per possible value are as good as more.
        let bits = (usize::BITS - count.leading_zeros()).min(self.mask.count_ones() + 1);
        self.bucket_bits = bits.clamp(1, BUCKET_BITS_MAX);
        self.ends.clear();
        self.ends.resize(1 << self.bucket_bits, 0);
        for hash in hashes {
            let bucket = self.bucket(hash);
            self.ends[bucket] += 1;
        }
        self.starts.clear();
        let mut start = 0;
        for end in &mut self.ends {
            self.starts.push(start);
            start += std::mem::replace(end, start);
        }
        self.hashes.resize(count, 0);
        self.ids.resize(count, 0);
    }

    fn bucket(&self, hash: u64) -> usize {
        (mix(hash & self.mask) >> (64 - self.bucket_bits)) as usize
    }

    fn push(&mut self, hash: u64, id: u32) {
        let bucket = self.bucket(hash);
        let place = self.ends[bucket] as usize;
        (self.hashes[place], self.ids[place]) = (hash, id);
        self.ends[bucket] += 1;
    }

    /// The earliest leader of the hash's bucket within the radius. Leaders came in order, so it is the first.
    fn earliest(&self, hash: u64, radius: u32) -> Option<u32> {
        let bucket = self.bucket(hash);
        let places = self.starts[bucket] as usize..self.ends[bucket] as usize;
        let found =
            self.hashes[places.clone()].iter().position(|other| (other ^ hash).count_ones() <= radius);
        found.map(|found| self.ids[places.start + found])
    }
}
