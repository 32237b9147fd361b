//! New values without a pause: the heap is rebuilt off the lock and swapped in.
//!
//! At the end of an epoch every score changes, and ordering all residents anew under the lock would hold up requests.
//! So a [`Snapshot`] takes the residents along, [`Snapshot::rebuild`] orders them by the new values wherever there is
//! time, and [`Cache::swap`] applies what came and went meanwhile and puts the new order in place (iCACHE's shadow
//! heap). If more changed than there are samples, or another snapshot was taken since, everything is ordered anew.

use super::heap::{Entry, Heap, ascending};
use super::{Cache, Policy, sane};
use crate::Invalid;
use std::sync::Arc;

/// What changed since the last snapshot.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Which snapshot it began with; 0 before the first, and then nothing is noted.
    generation: u64,
    noting: bool,
    changed: Vec<u32>,
    updated: Vec<u32>,
    too_much: bool,
}

impl Log {
    pub(super) fn changed(&mut self, id: u32, samples: usize) {
        if self.noting && !self.too_much {
            self.changed.push(id);
            if self.changed.len() > samples {
                self.too_much();
            }
        }
    }

    /// A value was set within the epoch; it is newer than those of a rebuild under way.
    pub(super) fn updated(&mut self, id: u32, samples: usize) {
        if self.noting {
            self.updated.push(id);
            // A snapshot that is never swapped in must not make this grow for ever.
            if self.updated.len() > 2 * samples {
                self.updated.sort_unstable();
                self.updated.dedup();
            }
        }
    }

    pub(super) fn too_much(&mut self) {
        self.too_much = self.noting;
        self.changed = Vec::new();
    }

    pub(super) fn overhead_bytes(&self) -> u64 {
        4 * (self.changed.capacity() + self.updated.capacity()) as u64
    }
}

/// The residents at one moment.
#[derive(Debug)]
pub struct Snapshot {
    generation: u64,
    policy: Policy,
    sizes: Arc<[u32]>,
    saving: (f64, f64),
    /// Each with the uses that are certain; infinitely many if it must not go.
    residents: Vec<(u32, f64)>,
}

/// The residents in a new order, ready to be swapped in.
#[derive(Debug)]
pub struct Shadow {
    generation: u64,
    values: Vec<f32>,
    heap: Heap,
}

impl Snapshot {
    /// Orders the residents by new values, one per sample of the data set, in linear time.
    pub fn rebuild(self, mut values: Vec<f32>) -> Result<Shadow, Invalid> {
        let samples = self.sizes.len();
        if values.len() != samples {
            return Err(Invalid(format!("{} values for a cache of {samples} samples", values.len())));
        }
        values.iter_mut().for_each(|value| *value = sane(*value));
        let key = |&(id, certain): &(u32, f64)| {
            let (value, size) = (values[id as usize], u64::from(self.sizes[id as usize]));
            let key = match self.policy {
                Policy::Foresight if certain.is_infinite() => u64::MAX,
                Policy::Foresight => ascending(per_byte(utility(certain, value, self.saving, size), size)),
                _ => ascending(value),
            };
            Entry { key, id }
        };
        let entries = self.residents.iter().map(key).collect();
        Ok(Shadow { generation: self.generation, heap: Heap::of(samples, entries), values })
    }
}

impl Cache {
    /// The residents as they are now, to be ordered by new values elsewhere.
    pub fn snapshot(&mut self) -> Snapshot {
        let generation = self.log.generation + 1;
        self.log = Log { generation, noting: self.options.policy.values(), ..Log::default() };
        let foresight = self.options.policy == Policy::Foresight;
        let certain = |id: u32| match foresight {
            true if self.plans.near(id) => f64::INFINITY,
            true => self.plans.certain(id, false),
            false => 0.0,
        };
        let residents = self.heap.ids().map(|id| (id, certain(id))).collect();
        Snapshot {
            generation,
            policy: self.options.policy,
            sizes: Arc::clone(&self.sizes),
            saving: self.saving,
            residents,
        }
    }

    /// Puts new values and the new order in place. Nobody comes or goes by it. Returns the old ones, which take their
    /// time to be freed: drop them off the lock.
    pub fn swap(&mut self, shadow: Shadow) -> Shadow {
        if !self.options.policy.values() || shadow.values.len() != self.sizes.len() {
            return shadow;
        }
        let log = std::mem::take(&mut self.log);
        self.log.generation = log.generation;
        let before = std::mem::replace(&mut self.values, shadow.values);
        log.updated.iter().for_each(|&id| self.values[id as usize] = before[id as usize]);
        if log.generation != shadow.generation || !log.noting || log.too_much {
            let mut heap = std::mem::replace(&mut self.heap, Heap::new(0));
            heap.rekey(|id| self.key_of(id));
            self.heap = heap;
            return Shadow { generation: log.generation, values: before, heap: shadow.heap };
        }
        let mut heap = shadow.heap;
        for &id in log.changed.iter().chain(&log.updated) {
            if self.heap.has(id) {
                heap.set(id, self.key_of(id));
            } else {
                heap.remove(id);
            }
        }
        let heap = std::mem::replace(&mut self.heap, heap);
        Shadow { generation: log.generation, values: before, heap }
    }

    /// New values at once, for a caller that has no lock to care for.
    pub fn renew(&mut self, values: Vec<f32>) -> Result<(), Invalid> {
        let shadow = self.snapshot().rebuild(values)?;
        self.swap(shadow);
        Ok(())
    }
}

/// How often a sample will be wanted, times the seconds each use saves.
pub(super) fn utility(certain: f64, value: f32, saving: (f64, f64), size: u64) -> f64 {
    (certain + f64::from(value)) * (saving.0 + saving.1 * size.max(1) as f64)
}

pub(super) fn per_byte(utility: f64, size: u64) -> f32 {
    (utility / size.max(1) as f64) as f32
}
