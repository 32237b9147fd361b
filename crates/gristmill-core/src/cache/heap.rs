//! The residents of a region in the order in which they would go: a 4-ary min-heap with a place for every id.
//!
//! Each policy turns what it goes by into one whole number; the smallest key goes first, and of equal keys the
//! smallest id, so that the order is total and the same everywhere. Four children per node make the tree half as
//! deep as two would, and they share a cache line. Ids are dense, so the places are a plain column.
//!
//! [`Heap::smallest`] walks the residents from the first to go without changing anything: a newcomer can be weighed
//! against all whom it would displace before one of them is touched.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const ARITY: usize = 4;
const ABSENT: u32 = u32::MAX;

/// A resident: its key, then its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) id: u32,
}

/// Residents, the first to go in front.
#[derive(Debug, Clone)]
pub(super) struct Heap {
    entries: Vec<Entry>,
    /// Where each id stands, or `ABSENT`.
    places: Vec<u32>,
}

/// A number whose order is that of the values; what is no number counts as the largest.
pub(super) fn ascending(value: f32) -> u64 {
    let value = if value.is_nan() { f32::INFINITY } else { value };
    // Both zeros are one value.
    let bits = (value + 0.0).to_bits();
    u64::from(if bits >> 31 == 1 { !bits } else { bits | 1 << 31 })
}

impl Heap {
    pub(super) fn new(samples: usize) -> Heap {
        Heap { entries: Vec::new(), places: vec![ABSENT; samples] }
    }

    /// A heap of these residents, each named once, in linear time.
    pub(super) fn of(samples: usize, entries: Vec<Entry>) -> Heap {
        let mut heap = Heap { entries, places: vec![ABSENT; samples] };
        heap.order();
        heap
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn has(&self, id: u32) -> bool {
        self.places.get(id as usize).is_some_and(|place| *place != ABSENT)
    }

    pub(super) fn key(&self, id: u32) -> Option<u64> {
        let place = *self.places.get(id as usize)?;
        self.entries.get(place as usize).map(|entry| entry.key)
    }

    /// The residents in no particular order.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|entry| entry.id)
    }

    /// Puts an id in, or gives a resident a new key.
    pub(super) fn set(&mut self, id: u32, key: u64) {
        let entry = Entry { key, id };
        match self.places[id as usize] {
            ABSENT => {
                self.entries.push(entry);
                self.up(self.entries.len() - 1);
            }
            place => {
                let place = place as usize;
                let rises = entry < self.entries[place];
                self.entries[place] = entry;
                if rises { self.up(place) } else { self.down(place) }
            }
        }
    }

    /// Takes an id out. Returns whether it was in.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        if !self.has(id) {
            return false;
        }
        let place = std::mem::replace(&mut self.places[id as usize], ABSENT) as usize;
        let Some(last) = self.entries.pop() else { return false };
        if let Some(hole) = self.entries.get_mut(place) {
            let rises = last < *hole;
            *hole = last;
            if rises { self.up(place) } else { self.down(place) }
        }
        true
    }

    /// Gives every resident a new key, in linear time.
    pub(super) fn rekey(&mut self, key: impl Fn(u32) -> u64) {
        self.entries.iter_mut().for_each(|entry| entry.key = key(entry.id));
        self.order();
    }

    /// The residents from the first to go; the k-th costs O(log k).
    pub(super) fn smallest(&self) -> Smallest<'_> {
        let mut next = BinaryHeap::new();
        next.extend(self.entries.first().map(|&entry| Reverse((entry, 0))));
        Smallest { entries: &self.entries, next }
    }

    pub(super) fn overhead_bytes(&self) -> u64 {
        (self.entries.capacity() * size_of::<Entry>() + self.places.capacity() * 4) as u64
    }

    fn order(&mut self) {
        for place in 0..self.entries.len() {
            self.places[self.entries[place].id as usize] = place as u32;
        }
        for place in (0..self.entries.len().div_ceil(ARITY)).rev() {
            self.down(place);
        }
    }

    fn up(&mut self, mut place: usize) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.entries[parent] <= entry {
                break;
            }
            self.put(place, self.entries[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn down(&mut self, mut place: usize) {
        let entry = self.entries[place];
        loop {
            let first = ARITY * place + 1;
            let children = first..(first + ARITY).min(self.entries.len());
            let Some(child) = children.min_by_key(|&child| self.entries[child]) else { break };
            if entry <= self.entries[child] {
                break;
            }
            self.put(place, self.entries[child]);
            place = child;
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.entries[place] = entry;
        self.places[entry.id as usize] = place as u32;
    }
}

/// See [`Heap::smallest`].
pub(super) struct Smallest<'a> {
    entries: &'a [Entry],
    next: BinaryHeap<Reverse<(Entry, usize)>>,
}

impl Iterator for Smallest<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let Reverse((entry, place)) = self.next.pop()?;
        let first = (ARITY * place + 1).min(self.entries.len());
        let children = &self.entries[first..(first + ARITY).min(self.entries.len())];
        self.next.extend(children.iter().enumerate().map(|(i, &child)| Reverse((child, first + i))));
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a sorted list, after every step.
        #[test]
        fn as_a_sorted_list(steps in prop::collection::vec((0_u32..40, 0_u64..9, 0_u8..5), 0..200)) {
            let mut heap = Heap::new(40);
            let mut model: Vec<Entry> = Vec::new();
            for (id, key, what) in steps {
                let known = model.iter().position(|entry| entry.id == id);
                prop_assert_eq!(heap.key(id), known.map(|place| model[place].key));
                if let Some(place) = known {
                    model.remove(place);
                }
                match what {
                    0 => prop_assert_eq!(heap.remove(id), known.is_some()),
                    1 => {
                        heap.rekey(|id| u64::from(id) * 7 % 5);
                        model.iter_mut().for_each(|entry| entry.key = u64::from(entry.id) * 7 % 5);
                        heap.set(id, key);
                        model.push(Entry { key, id });
                    }
                    _ => {
                        heap.set(id, key);
                        model.push(Entry { key, id });
                    }
                }
                model.sort_unstable();
                prop_assert_eq!(heap.smallest().collect::<Vec<_>>(), &model[..]);
                let rebuilt = Heap::of(40, heap.entries.iter().rev().copied().collect());
                prop_assert_eq!(rebuilt.smallest().collect::<Vec<_>>(), &model[..]);
            }
        }
    }

    #[test]
    fn keys_have_the_order_of_values() {
        let values = [f32::NEG_INFINITY, -2.0, -1e-30, 0.0, 1e-30, 0.5, 1.0, 3e30, f32::INFINITY];
        assert!(values.map(ascending).is_sorted_by(|a, b| a < b));
        assert_eq!(ascending(-0.0), ascending(0.0));
        assert_eq!(ascending(f32::NAN), ascending(f32::INFINITY));
    }
}
