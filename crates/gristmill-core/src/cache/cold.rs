//! The cold region: samples that matter little are read in packs and served in whatever order they are there (iCACHE).
//!
//! A *pack* is a run of neighbouring cold samples, read together. Packs are cut anew every epoch from the samples that
//! are cold then, and visited in a shuffled order. Whoever asks for a cold sample gets it if it is here, else another
//! one that is here and was not served in this epoch: a *stand-in*, always cold, always under its own id and label.
//! A sample that was served has done its work and makes room for the next pack.
//!
//! The packs hold exactly the samples that the epoch will ask for. So as long as nobody finds the region empty, every
//! cold sample is served once per epoch, only in another order. Who does find it empty reads its own sample from the
//! store and says so ([`Cold::skip`]), which keeps it out of the packs to come.
//!
//! Deliberately not here: reading, waiting, and which samples are cold beyond the plain split by score ([`coldest`]).

use crate::SampleId;
use crate::bits::Bits;
use crate::rng::{Purpose, Stream};
use std::collections::VecDeque;
use std::sync::Arc;

/// How packs are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackSize {
    /// A pack that has `samples_min` ends before it would exceed these bytes.
    pub bytes: u64,
    /// The samples a pack has, but for the last one and where the region is small.
    pub samples_min: u32,
    /// The most samples of a pack.
    pub samples_max: u32,
}

impl Default for PackSize {
    fn default() -> PackSize {
        PackSize { bytes: 1 << 20, samples_min: 8, samples_max: 64 }
    }
}

/// Cold samples that are read together, in ascending order of ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pack {
    /// Who is in it.
    pub ids: Vec<SampleId>,
    /// Their bytes together.
    pub bytes: u64,
}

/// What a request for a cold sample gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// The sample itself.
    Exact,
    /// This one instead, under its own id.
    StandIn(SampleId),
    /// Nothing is here that was not served yet: wait for a pack, or read the sample itself. If it takes no part
    /// ([`Cold::takes_part`]), waiting is in vain.
    Empty,
}

/// What the size of the region is decided from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pressure {
    /// Bytes of cold samples that are asked for per second; 0 if not measured.
    pub bytes_per_s: f64,
    /// Seconds from asking for a pack to having it; 0 if not measured.
    pub refill_s: f64,
    /// Requests that found the region empty.
    pub waits: u64,
    /// The lowest share of the region that was ready to be served, 0 to 1.
    pub occupancy_low: f64,
}

/// The bytes the region should have next, in a cache of `total` bytes of which it has `now`.
///
/// It only has to hide the time until the next pack is there: twice what is asked for in that time. Waits make it a
/// tenth larger, an epoch in which a tenth of it was never needed makes it a tenth smaller.
pub fn sized(total: u64, now: u64, pressure: &Pressure) -> u64 {
    let total = total as f64;
    let hides = (2.0 * pressure.bytes_per_s * pressure.refill_s).max(0.0);
    let now = now as f64;
    let next = match pressure.waits {
        0 if pressure.occupancy_low > 0.9 => (0.9 * now).max(hides.min(now)),
        0 => now,
        _ => (1.1 * now).max(hides),
    };
    next.clamp(0.02 * total, 0.2 * total) as u64
}

/// The samples of an epoch that are cold: all but the `hot_share` with the highest scores, in ascending order of ids.
///
/// `chosen` names the samples of the epoch in ascending order; of equal scores the smaller id is hot.
pub fn coldest(chosen: &[u32], scores: &[f32], hot_share: f64) -> Vec<u32> {
    let hot = (chosen.len() as f64 * hot_share.clamp(0.0, 1.0)).round() as usize;
    let mut ranked: Vec<(u32, u32)> = chosen
        .iter()
        .filter_map(|&id| Some((!(super::heap::ascending(*scores.get(id as usize)?) as u32), id)))
        .collect();
    if hot > 0 && hot < ranked.len() {
        ranked.select_nth_unstable(hot - 1);
    }
    let mut cold: Vec<u32> = ranked.into_iter().skip(hot).map(|(_, id)| id).collect();
    cold.sort_unstable();
    cold
}

const ABSENT: u32 = u32::MAX;
const USED: u32 = u32::MAX - 1;

/// The cold region of one cache.
#[derive(Debug)]
pub struct Cold {
    sizes: Arc<[u32]>,
    pack: PackSize,
    seed: u64,
    bytes_max: u64,
    /// Bytes here, those of them that were served, and those of packs on their way.
    bytes: u64,
    used_bytes: u64,
    coming_bytes: u64,
    /// Not served yet, in no order; and served, the longest ago first.
    fresh: Vec<u32>,
    used: VecDeque<u32>,
    /// For each sample its place in `fresh`, `USED` or `ABSENT`.
    places: Vec<u32>,
    /// Samples of this epoch that were not read past the region.
    wanted: Bits,
    coming: Bits,
    candidates: Vec<u32>,
    packs: VecDeque<(u32, u32)>,
    stream: Stream,
    waits: u64,
    low: f64,
    filled: bool,
    /// No epoch wants anything of it.
    rests: bool,
}

impl Cold {
    /// An empty region.
    pub fn new(sizes: Arc<[u32]>, pack: PackSize, bytes_max: u64, seed: u64) -> Cold {
        let samples = sizes.len();
        Cold {
            sizes,
            pack,
            seed,
            bytes_max,
            bytes: 0,
            used_bytes: 0,
            coming_bytes: 0,
            fresh: Vec::new(),
            used: VecDeque::new(),
            places: vec![ABSENT; samples],
            wanted: Bits::new(samples),
            coming: Bits::new(samples),
            candidates: Vec::new(),
            packs: VecDeque::new(),
            stream: Stream::new(seed, 0, Purpose::PackOrder, &[1]),
            waits: 0,
            low: 1.0,
            filled: false,
            rests: true,
        }
    }

    /// Bytes that are here or have been promised to packs on their way.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.coming_bytes
    }

    /// The most bytes it may have.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// How many samples are here.
    pub fn len(&self) -> u32 {
        (self.fresh.len() + self.used.len()) as u32
    }

    /// Whether nothing is here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this sample is here.
    pub fn holds(&self, id: SampleId) -> bool {
        self.places.get(id.0 as usize).is_some_and(|place| *place != ABSENT)
    }

    /// What it costs beside the bytes of the samples.
    pub fn overhead_bytes(&self) -> u64 {
        let words =
            self.fresh.capacity() + self.used.capacity() + self.places.len() + self.candidates.capacity();
        4 * words as u64 + 8 * self.packs.capacity() as u64 + 2 * self.wanted.overhead_bytes()
    }

    /// Whether no epoch wants anything of it, so that its room is free for others.
    pub fn rests(&self) -> bool {
        self.rests
    }

    /// No sample is cold until another epoch begins. Returns who was here.
    pub fn rest(&mut self) -> Vec<u32> {
        let here: Vec<u32> = self.fresh.drain(..).chain(self.used.drain(..)).collect();
        here.iter().for_each(|&id| self.places[id as usize] = ABSENT);
        (self.bytes, self.used_bytes, self.rests) = (0, 0, true);
        self.wanted.clear();
        self.packs.clear();
        (self.waits, self.low, self.filled) = (0, 1.0, false);
        here
    }

    /// A new epoch asks for these cold samples: packs are cut from those that are not here, the others are ready to be
    /// served again, and who is cold no more goes.
    pub fn begin(&mut self, epoch: u64, ids: &[u32], gone: &mut Vec<SampleId>) {
        self.wanted.clear();
        self.rests = false;
        let fits =
            |id: &&u32| self.sizes.get(**id as usize).is_some_and(|size| u64::from(*size) <= self.bytes_max);
        ids.iter().filter(fits).for_each(|&id| _ = self.wanted.set(id, true));
        let here: Vec<u32> = self.fresh.drain(..).chain(self.used.drain(..)).collect();
        self.used_bytes = 0;
        for id in here {
            if self.wanted.has(id) {
                self.put_fresh(id);
            } else {
                self.places[id as usize] = ABSENT;
                self.bytes -= self.size(id);
                gone.push(SampleId(id));
            }
        }
        self.cut(epoch);
        self.stream = Stream::new(self.seed, epoch, Purpose::PackOrder, &[1]);
        (self.waits, self.low, self.filled) = (0, 1.0, false);
    }

    /// The next pack to read, if there is one and room for it; those who were served make it.
    pub fn next_pack(&mut self, gone: &mut Vec<SampleId>) -> Option<Pack> {
        while let Some(&(start, end)) = self.packs.front() {
            let run = &self.candidates[start as usize..end as usize];
            let absent = |id: &u32| self.wanted.has(*id) && !self.here(*id) && !self.coming.has(*id);
            let ids: Vec<u32> = run.iter().copied().filter(absent).collect();
            let bytes: u64 = ids.iter().map(|&id| self.size(id)).sum();
            if ids.is_empty() || bytes > self.bytes_max {
                self.packs.pop_front();
                continue;
            }
            if self.bytes() - self.used_bytes + bytes > self.bytes_max {
                self.filled = true;
                return None;
            }
            self.packs.pop_front();
            while self.bytes() + bytes > self.bytes_max && self.drop_used(gone) {}
            ids.iter().for_each(|&id| _ = self.coming.set(id, true));
            self.coming_bytes += bytes;
            return Some(Pack { ids: ids.into_iter().map(SampleId).collect(), bytes });
        }
        None
    }

    /// The bytes of a pack are here. `keep` may refuse some; they and those nobody wants any more are pushed to `gone`.
    pub fn arrived(&mut self, pack: &Pack, keep: impl Fn(SampleId) -> bool, gone: &mut Vec<SampleId>) {
        for &id in &pack.ids {
            if !self.came(id.0) {
                continue;
            }
            if self.wanted.has(id.0) && !self.here(id.0) && keep(id) {
                self.bytes += self.size(id.0);
                self.put_fresh(id.0);
            } else {
                gone.push(id);
            }
        }
    }

    /// A pack could not be read; its samples will be asked for and found missing.
    pub fn failed(&mut self, pack: &Pack) {
        pack.ids.iter().for_each(|id| _ = self.came(id.0));
    }

    /// Whether this sample is read in packs in this epoch: it is cold, small enough, and was not read past the region.
    pub fn takes_part(&self, id: SampleId) -> bool {
        (id.0 as usize) < self.places.len() && self.wanted.has(id.0)
    }

    /// Serves a request for a cold sample. One that takes no part gets no stand-in: nobody would be read for it.
    pub fn serve(&mut self, id: SampleId) -> Served {
        if !self.takes_part(id) {
            return Served::Empty;
        }
        if self.filled && !self.packs.is_empty() {
            let ready = (self.bytes - self.used_bytes) as f64 / self.bytes_max.max(1) as f64;
            self.low = self.low.min(ready);
        }
        if self.places[id.0 as usize] < USED {
            self.take(id.0);
            return Served::Exact;
        }
        match self.fresh.len() as u64 {
            0 => {
                self.waits += 1;
                Served::Empty
            }
            // Neighbours arrive together; a random one keeps them apart in what is trained.
            len => {
                let other = self.fresh[self.stream.below(len) as usize];
                self.take(other);
                Served::StandIn(SampleId(other))
            }
        }
    }

    /// A request for exactly this sample: whether it is here.
    pub fn take_exact(&mut self, id: SampleId) -> bool {
        let here = self.holds(id);
        if here {
            self.take(id.0);
        }
        here
    }

    /// This sample is read from the store past the region, so no pack of this epoch need have it.
    pub fn skip(&mut self, id: SampleId) {
        if (id.0 as usize) < self.places.len() {
            self.wanted.set(id.0, false);
        }
    }

    /// Lets a sample go whose bytes were lost or are held elsewhere. Returns whether it was here.
    pub fn remove(&mut self, id: SampleId) -> bool {
        if !self.holds(id) {
            return false;
        }
        self.take(id.0);
        self.used.retain(|used| *used != id.0);
        self.places[id.0 as usize] = ABSENT;
        self.used_bytes -= self.size(id.0);
        self.bytes -= self.size(id.0);
        true
    }

    /// What this epoch says about the size of the region; rates are the caller's.
    pub fn pressure(&self, bytes_per_s: f64, refill_s: f64) -> Pressure {
        let occupancy_low = if self.filled { self.low } else { 0.0 };
        Pressure { bytes_per_s, refill_s, waits: self.waits, occupancy_low }
    }

    /// Gives the region another size; the served go first if it is smaller. Packs on their way may exceed it until
    /// they are served.
    pub fn resize(&mut self, bytes_max: u64, gone: &mut Vec<SampleId>) {
        self.bytes_max = bytes_max;
        while self.bytes() > bytes_max && self.drop_used(gone) {}
        while self.bytes() > bytes_max {
            let Some(&id) = self.fresh.last() else { break };
            self.remove(SampleId(id));
            gone.push(SampleId(id));
        }
    }

    fn size(&self, id: u32) -> u64 {
        self.sizes[id as usize].into()
    }

    fn here(&self, id: u32) -> bool {
        self.places[id as usize] != ABSENT
    }

    fn put_fresh(&mut self, id: u32) {
        self.places[id as usize] = self.fresh.len() as u32;
        self.fresh.push(id);
    }

    /// Marks one that is here as served.
    fn take(&mut self, id: u32) {
        let place = std::mem::replace(&mut self.places[id as usize], USED);
        if place < USED {
            self.fresh.swap_remove(place as usize);
            if let Some(&moved) = self.fresh.get(place as usize) {
                self.places[moved as usize] = place;
            }
            self.used.push_back(id);
            self.used_bytes += self.size(id);
        }
    }

    /// Lets go who was served the longest ago.
    fn drop_used(&mut self, gone: &mut Vec<SampleId>) -> bool {
        let Some(id) = self.used.pop_front() else { return false };
        self.places[id as usize] = ABSENT;
        self.used_bytes -= self.size(id);
        self.bytes -= self.size(id);
        gone.push(SampleId(id));
        true
    }

    /// Notes that one of a pack is no longer on its way. Returns whether it was.
    fn came(&mut self, id: u32) -> bool {
        let came = (id as usize) < self.places.len() && self.coming.set(id, false);
        if came {
            self.coming_bytes -= self.size(id);
        }
        came
    }

    fn cut(&mut self, epoch: u64) {
        let absent = |id: &u32| self.wanted.has(*id) && !self.here(*id) && !self.coming.has(*id);
        let candidates: Vec<u32> = (0..self.places.len() as u32).filter(absent).collect();
        // Two packs must fit, or nothing could be served while the next one is read.
        let bytes_max = self.pack.bytes.min(self.bytes_max / 2);
        let mut packs: Vec<(u32, u32)> = Vec::new();
        let (mut start, mut bytes) = (0, 0_u64);
        for (place, &id) in candidates.iter().enumerate() {
            let (count, size) = (place - start, self.size(id));
            let large = bytes + size > bytes_max && count >= self.pack.samples_min as usize;
            let over = bytes + size > self.bytes_max / 2;
            if count > 0 && (large || over || count >= self.pack.samples_max as usize) {
                packs.push((start as u32, place as u32));
                (start, bytes) = (place, 0);
            }
            bytes += size;
        }
        if start < candidates.len() {
            packs.push((start as u32, candidates.len() as u32));
        }
        let order = Stream::new(self.seed, epoch, Purpose::PackOrder, &[]).permutation(packs.len() as u32);
        self.packs = order.into_iter().map(|place| packs[place as usize]).collect();
        self.candidates = candidates;
    }
}

#[cfg(test)]
mod tests;
