//! The two regions of a cache side by side: no sample is in both, and one grows only as the other shrinks.
//!
//! The hot region is the policy's own; the cold one ([`Cold`]) is filled by packs. What is asked for exactly is found
//! in either. Only `score` has a cold region; for the others these functions have nothing to do.
//!
//! An epoch that reads everything has no cold samples. Then the hot region has the room of both, and who was in the cold
//! one moves over: an empty region would be a part of the cache that serves nobody.

use super::{Cache, Cold, Pack, Served, cold};
use crate::SampleId;

/// Bytes and limits of the two regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Regions {
    /// Bytes of the hot region: all of them where there is no cold one.
    pub hot_bytes: u64,
    /// Its limit.
    pub hot_bytes_max: u64,
    /// Bytes of the cold region, with packs on their way.
    pub cold_bytes: u64,
    /// Its limit: none while nothing is cold and the hot region has its room.
    pub cold_bytes_max: u64,
}

impl Cache {
    /// Bytes and limits of the regions.
    pub fn regions(&self) -> Regions {
        Regions {
            hot_bytes: self.hot_bytes,
            hot_bytes_max: self.hot_bytes_max,
            cold_bytes: self.cold.as_ref().map_or(0, Cold::bytes),
            cold_bytes_max: self.options.bytes_max - self.hot_bytes_max,
        }
    }

    /// Whether it has a cold region, resting or not.
    pub fn has_cold(&self) -> bool {
        self.cold.is_some()
    }

    /// Whether a sample is in the hot region.
    pub fn is_hot(&self, id: SampleId) -> bool {
        self.heap.has(id.0)
    }

    /// A new epoch asks for these cold samples ([`cold::coldest`]); those that the hot region has need no pack.
    pub fn begin_cold(&mut self, epoch: u64, ids: &[u32], gone: &mut Vec<SampleId>) {
        let Some(cold) = &mut self.cold else { return };
        if ids.iter().all(|id| self.heap.has(*id)) {
            let moved = cold.rest();
            self.hot_bytes_max = self.options.bytes_max - cold.bytes();
            moved.into_iter().for_each(|id| self.keep(id));
            return;
        }
        // Room first: the lowest scores are mostly cold samples, which then come in packs again.
        self.make_room(gone);
        if let Some(cold) = &mut self.cold {
            let ids: Vec<u32> = ids.iter().copied().filter(|id| !self.heap.has(*id)).collect();
            cold.begin(epoch, &ids, gone);
        }
    }

    /// Gives the cold region its room, at the cost of the lowest scores of the hot one.
    fn make_room(&mut self, gone: &mut Vec<SampleId>) {
        let Some(cold) = &self.cold else { return };
        // Packs on their way may keep the cold region larger for a while; the hot one has what is left.
        self.hot_bytes_max = self.options.bytes_max - cold.bytes_max().max(cold.bytes());
        while self.hot_bytes > self.hot_bytes_max {
            let Some(entry) = self.heap.smallest().next() else { break };
            self.drop_hot(entry.id);
            gone.push(SampleId(entry.id));
        }
    }

    /// The next pack to read into the cold region, if there is one and room for it.
    pub fn next_pack(&mut self, gone: &mut Vec<SampleId>) -> Option<Pack> {
        self.cold.as_mut()?.next_pack(gone)
    }

    /// The bytes of a pack are here; pushes whose bytes are not to be kept.
    pub fn arrived(&mut self, pack: &Pack, gone: &mut Vec<SampleId>) {
        if let Some(cold) = &mut self.cold {
            cold.arrived(pack, |id| !self.heap.has(id.0), gone);
            // Who was read on its own meanwhile and is hot now keeps its bytes.
            gone.retain(|id| !self.heap.has(id.0));
        }
    }

    /// A pack could not be read.
    pub fn failed(&mut self, pack: &Pack) {
        if let Some(cold) = &mut self.cold {
            cold.failed(pack);
        }
    }

    /// Serves a request for a cold sample: the sample itself from either region, or a stand-in from the cold one.
    pub fn serve(&mut self, id: SampleId) -> Served {
        match &mut self.cold {
            _ if self.heap.has(id.0) => Served::Exact,
            Some(cold) => cold.serve(id),
            None => Served::Empty,
        }
    }

    /// Whether this sample is read in packs in this epoch, so that waiting for one may help.
    pub fn takes_part(&self, id: SampleId) -> bool {
        self.cold.as_ref().is_some_and(|cold| cold.takes_part(id))
    }

    /// A cold sample is read from the store past the cold region, so no pack of this epoch need have it.
    pub fn skip(&mut self, id: SampleId) {
        if let Some(cold) = &mut self.cold {
            cold.skip(id);
        }
    }

    /// Sizes the regions by the epoch that ends, if the options say so: how many bytes of cold samples were asked for
    /// per second, and how long a pack took. Pushes whom to let go.
    pub fn adapt(&mut self, bytes_per_s: f64, refill_s: f64, gone: &mut Vec<SampleId>) {
        let Some(cold) = self.cold.as_mut().filter(|_| self.options.adapt) else { return };
        let pressure = cold.pressure(bytes_per_s, refill_s);
        let next = cold::sized(self.options.bytes_max, cold.bytes_max(), &pressure);
        cold.resize(next, gone);
        if !cold.rests() {
            self.make_room(gone);
        }
    }
}
