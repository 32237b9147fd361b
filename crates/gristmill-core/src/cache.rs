//! What a cache keeps: ids and byte sizes only, the caller holds the bytes.
//!
//! A [`Cache`] is told who is asked for ([`Cache::ask`]), whose bytes are at hand ([`Cache::offer`]) and what the jobs
//! are going to ask ([`Cache::announce`]); it says who stays and who goes. How it decides is one closed enum,
//! [`Policy`]: iCACHE's scores, four baselines, and our own `foresight`. One instance governs a memory tier, another a
//! disk tier.
//!
//! Whatever the policy, the bytes never exceed the limit, a request costs O(log n) in the number of residents, and
//! every decision is a function of what was said before: no clock, no hidden randomness.
//!
//! *Score* keeps the residents in a heap by score. A newcomer displaces the lowest ones if it is worth more than they
//! are together, strictly; equal keeps the incumbent, and an epoch that reads everything displaces nobody. Scores are
//! frozen within an epoch. At its end a new heap is built off the lock from a [`Snapshot`] and swapped in.
//!
//! *Foresight* goes by utility: how surely a sample will be wanted, times the seconds that saves, per byte. A use left
//! in an announced plan is certain; beyond the plan, selection knows the probability. See [`Cache::utility`].
//!
//! Deliberately not here: reading, evicting bytes, waiting, and whose score it is when there are several jobs
//! ([`jobs`] merges them) or several nodes ([`owner`] says who caches what).

pub mod cold;
#[cfg(test)]
mod epochs;
mod heap;
pub mod jobs;
#[cfg(test)]
mod model;
mod options;
pub mod owner;
mod plans;
pub mod quiver;
mod regions;
mod shadow;
#[cfg(test)]
mod tests;

pub use cold::{Cold, Pack, PackSize, Served};
pub use options::{CacheOptions, Policy};
pub use regions::Regions;
pub use shadow::{Shadow, Snapshot};

use crate::bits::Bits;
use crate::{Invalid, SampleId};
use heap::{Heap, ascending};
use plans::Plans;
use quiver::{Packages, Place, Slots};
use std::sync::Arc;

/// One training run among those that share a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

/// The most jobs that may share a cache.
pub const JOBS_MAX: usize = 256;

/// Who is in the cache, and who would go first.
#[derive(Debug)]
pub struct Cache {
    options: CacheOptions,
    sizes: Arc<[u32]>,
    /// The residents of the hot region.
    heap: Heap,
    hot_bytes: u64,
    hot_bytes_max: u64,
    cold: Option<Cold>,
    /// Scores, or the probabilities of being wanted beyond the plans; empty if the policy has none.
    values: Vec<f32>,
    plans: Plans,
    /// Asked for and not offered since, so that a prefetch can be told from a read on demand.
    missed: Bits,
    slots: Option<Slots>,
    /// Seconds per read, and per byte, that holding a sample saves.
    saving: (f64, f64),
    /// Requests so far: the time of `lru` and `lfu`.
    tick: u64,
    log: shadow::Log,
}

impl Cache {
    /// An empty cache for a data set of these sizes.
    pub fn new(options: CacheOptions, sizes: Arc<[u32]>, seed: u64) -> Result<Cache, Invalid> {
        let samples = sizes.len();
        options::check(&options, &sizes)?;
        let policy = options.policy;
        let has_cold = policy == Policy::Score && options.cold_share > 0.0;
        let cold_bytes_max =
            if has_cold { (options.bytes_max as f64 * options.cold_share) as u64 } else { 0 };
        let cold = has_cold.then(|| Cold::new(Arc::clone(&sizes), options.pack, cold_bytes_max, seed));
        let counts = matches!(policy, Policy::Quiver | Policy::Foresight);
        let quiver = || Slots::new(Packages::cut(&sizes, options.bytes_max, seed));
        Ok(Cache {
            heap: Heap::new(samples),
            hot_bytes: 0,
            hot_bytes_max: options.bytes_max,
            cold,
            values: if policy.values() { vec![1.0; samples] } else { Vec::new() },
            plans: Plans::new(options.horizon, counts),
            missed: Bits::new(if policy == Policy::Foresight { samples } else { 0 }),
            slots: (policy == Policy::Quiver).then(quiver),
            saving: (0.0, 1.0),
            tick: 0,
            log: shadow::Log::default(),
            options,
            sizes,
        })
    }

    /// What it was made with.
    pub fn options(&self) -> &CacheOptions {
        &self.options
    }

    /// Whether this sample is in one of the regions.
    pub fn holds(&self, id: SampleId) -> bool {
        self.heap.has(id.0) || self.cold.as_ref().is_some_and(|cold| cold.holds(id))
    }

    /// Bytes of both regions, with packs on their way.
    pub fn bytes(&self) -> u64 {
        self.hot_bytes + self.cold.as_ref().map_or(0, Cold::bytes)
    }

    /// Bytes that samples which are offered can take before another is let go for them.
    pub fn free_bytes(&self) -> u64 {
        self.hot_bytes_max.saturating_sub(self.hot_bytes)
    }

    /// How many samples are in the cache.
    pub fn len(&self) -> u32 {
        self.heap.len() as u32 + self.cold.as_ref().map_or(0, Cold::len)
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What deciding costs in memory, beside the samples' bytes and the shared column of sizes.
    pub fn overhead_bytes(&self) -> u64 {
        let slots = self.slots.as_ref().map_or(0, Slots::overhead_bytes);
        let cold = self.cold.as_ref().map_or(0, Cold::overhead_bytes);
        let columns = 4 * self.values.capacity() as u64 + self.missed.overhead_bytes();
        self.heap.overhead_bytes()
            + self.plans.overhead_bytes()
            + self.log.overhead_bytes()
            + slots
            + cold
            + columns
    }

    /// A job asks for exactly this sample: whether it is here. One announced use of that job is consumed, so every tier
    /// must hear of every request, also of those that another tier serves.
    pub fn ask(&mut self, job: JobId, id: SampleId) -> bool {
        if id.0 as usize >= self.sizes.len() {
            return false;
        }
        self.tick += 1;
        self.consume(job, id.0);
        let hot = self.heap.key(id.0);
        if let Some(key) = hot {
            match self.options.policy {
                Policy::Lru => self.heap.set(id.0, self.tick),
                Policy::Lfu => self.heap.set(id.0, frequency(Some(key), self.tick)),
                Policy::Score | Policy::Static | Policy::Quiver | Policy::Foresight => {}
            }
        } else if self.options.policy == Policy::Foresight {
            self.missed.set(id.0, true);
        }
        hot.is_some() || self.cold.as_mut().is_some_and(|cold| cold.take_exact(id))
    }

    /// The bytes of this sample are at hand: whether to keep them. Pushes whom to let go for them.
    pub fn offer(&mut self, id: SampleId, gone: &mut Vec<SampleId>) -> bool {
        if self.holds(id) {
            return true;
        }
        let victims = self.victims(id.0);
        if self.options.policy == Policy::Foresight && (id.0 as usize) < self.sizes.len() {
            self.missed.set(id.0, false);
        }
        let Some(victims) = victims else { return false };
        if let Some(slots) = &mut self.slots {
            let place = slots.place(id.0);
            slots.enter(id.0, place);
        }
        for victim in victims {
            self.drop_hot(victim);
            gone.push(SampleId(victim));
        }
        self.keep(id.0);
        true
    }

    /// Another tier lets this sample go: whether to keep it here. Unlike a sample that is read ahead, it was not read for
    /// a use to come, so all the uses to come count.
    pub fn spill(&mut self, id: SampleId, gone: &mut Vec<SampleId>) -> bool {
        if self.options.policy == Policy::Foresight && (id.0 as usize) < self.sizes.len() {
            self.missed.set(id.0, true);
        }
        self.offer(id, gone)
    }

    /// Whether [`Cache::offer`] would keep this sample: asked before it is read ahead of its use.
    pub fn worth(&self, id: SampleId) -> bool {
        !self.holds(id) && self.victims(id.0).is_some()
    }

    /// A tier that outlived a restart still has this sample: whether to keep it. Nobody is let go for it.
    pub fn restore(&mut self, id: SampleId) -> bool {
        let fits = self.size(id.0).is_some_and(|size| self.hot_bytes + size <= self.hot_bytes_max);
        if self.holds(id) {
            return true;
        }
        if let Some(slots) = &mut self.slots {
            let place = slots.place(id.0);
            if !fits || !matches!(place, Place::Open | Place::Free) {
                return false;
            }
            slots.enter(id.0, place);
        }
        if fits {
            self.keep(id.0);
        }
        fits
    }

    /// The bytes of this sample were lost or are damaged.
    pub fn remove(&mut self, id: SampleId) {
        if !self.drop_hot(id.0)
            && let Some(cold) = &mut self.cold
        {
            cold.remove(id);
        }
    }

    /// A job's new epoch asks for these samples in this order; `full` if they are all there are.
    pub fn announce(&mut self, job: JobId, full: bool, order: &[u32]) -> Result<(), Invalid> {
        if self.plans.len() >= JOBS_MAX && !self.plans.knows(job) {
            return Err(Invalid(format!(
                "job {} is one too many: {JOBS_MAX} jobs share this cache already; let one leave first",
                job.0
            )));
        }
        // An epoch that draws with replacement has at most twice the samples.
        let most = 2 * self.sizes.len() + 2;
        if order.len() > most {
            let count = order.len();
            return Err(Invalid(format!("a plan of {count} samples is longer than any epoch of {most}")));
        }
        self.plans.announce(job, full, order, self.sizes.len());
        self.plans_changed();
        Ok(())
    }

    /// How much a job's uses count beside those of the others, 1 at first; only `foresight` weighs. Returns whether the
    /// job has announced a plan.
    pub fn weigh(&mut self, job: JobId, weight: f64) -> bool {
        let known = self.plans.weigh(job, if weight.is_finite() { weight.max(0.0) } else { 1.0 });
        if known {
            self.plans_changed();
        }
        known
    }

    /// A job is gone: what it announced is forgotten.
    pub fn leave(&mut self, job: JobId) {
        self.plans.leave(job);
        self.plans_changed();
    }

    /// What a read costs beyond the cache: seconds before the first byte, and per byte. Only `foresight` goes by it.
    pub fn set_saving(&mut self, latency_s: f64, per_byte_s: f64) {
        let sane = |seconds: f64| if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
        self.saving = (sane(latency_s), sane(per_byte_s));
        if self.saving == (0.0, 0.0) {
            self.saving = (0.0, 1.0); // reads that cost nothing leave only the bytes to go by
        }
        self.rekey();
    }

    /// Fresh feedback about one sample within an epoch. Only `foresight` takes it; the scores of `score` are frozen.
    pub fn update(&mut self, id: SampleId, value: f32) -> bool {
        let takes = self.options.policy == Policy::Foresight && (id.0 as usize) < self.sizes.len();
        if takes {
            self.values[id.0 as usize] = sane(value);
            self.log.updated(id.0, self.sizes.len());
            self.touch(id.0);
        }
        takes
    }

    /// What holding this sample is worth to `foresight`: how often it will be wanted, times the seconds that saves.
    /// Divided by its bytes it is the order in which residents go.
    ///
    /// The uses left in the plans are certain and the value is what comes after them, so both are added: of two samples
    /// with a use left, the one that is likely to be wanted again is the dearer.
    pub fn utility(&self, id: SampleId) -> f64 {
        let (Some(size), Some(&value)) = (self.size(id.0), self.values.get(id.0 as usize)) else {
            return 0.0;
        };
        shadow::utility(self.plans.certain(id.0, false), value, self.saving, size)
    }

    /// How often the jobs will still ask for this sample in the epochs that they announced; none where the policy does
    /// not count that.
    pub fn uses_left(&self, id: SampleId) -> u32 {
        self.plans.left(id.0)
    }

    /// The packages of `quiver`, and those that are resident: what [`quiver::order`] needs.
    pub fn packages(&self) -> Option<(&Packages, &[u32])> {
        self.slots.as_ref().map(|slots| (&slots.packages, slots.resident()))
    }

    fn size(&self, id: u32) -> Option<u64> {
        self.sizes.get(id as usize).map(|size| u64::from(*size))
    }

    fn consume(&mut self, job: JobId, id: u32) {
        let mut touched = Vec::new();
        if !self.plans.consume(job, id, |id| touched.push(id)) {
            return;
        }
        if let Some(slots) = &mut self.slots {
            slots.consumed(id);
        }
        touched.into_iter().for_each(|id| self.touch(id));
    }

    fn plans_changed(&mut self) {
        if let Some(slots) = &mut self.slots {
            let plans = &self.plans;
            slots.recount(|id| plans.left(id));
        }
        self.rekey();
    }

    /// Gives every resident the key it has now; only `foresight` has keys that depend on more than the sample.
    fn rekey(&mut self) {
        if self.options.policy == Policy::Foresight {
            let mut heap = std::mem::replace(&mut self.heap, Heap::new(0));
            heap.rekey(|id| self.key_of(id));
            self.heap = heap;
            self.log.too_much();
        }
    }

    /// Gives a resident the key it has now.
    fn touch(&mut self, id: u32) {
        if self.options.policy == Policy::Foresight && self.heap.has(id) {
            self.heap.set(id, self.key_of(id));
            self.log.changed(id, self.sizes.len());
        }
    }

    /// The key of a resident, or of one that comes in now.
    fn key_of(&self, id: u32) -> u64 {
        match self.options.policy {
            Policy::Score => ascending(self.values[id as usize]),
            Policy::Foresight if self.plans.near(id) => u64::MAX,
            Policy::Foresight => {
                ascending(shadow::per_byte(self.utility(SampleId(id)), self.size(id).unwrap_or(1)))
            }
            Policy::Lru => self.tick,
            Policy::Lfu => frequency(None, self.tick),
            Policy::Static | Policy::Quiver => 0,
        }
    }

    /// Whom to let go so that this sample fits; none if it is not to come in.
    fn victims(&self, id: u32) -> Option<Vec<u32>> {
        let size = self.size(id).filter(|size| *size <= self.hot_bytes_max)?;
        let room = self.hot_bytes_max - self.hot_bytes;
        if let Some(slots) = &self.slots {
            return match slots.place(id) {
                Place::Open | Place::Free => (size <= room).then(Vec::new),
                Place::Instead(old) => {
                    Some(self.heap.ids().filter(|id| slots.packages.of(*id) == Some(old)).collect())
                }
                Place::None => None,
            };
        }
        if size <= room {
            return Some(Vec::new());
        }
        let worth = match self.options.policy {
            Policy::Static | Policy::Quiver => return None,
            Policy::Score if self.plans.full() => return None,
            Policy::Score => f64::from(self.values[id as usize]),
            // Read for one job and about to be asked for by another: it needs its room for a moment only, and one such
            // room after the other saves a read each.
            Policy::Foresight if self.missed.has(id) && self.plans.near(id) => f64::INFINITY,
            Policy::Foresight => {
                // What it is worth after the use it is read for: that one costs a read whatever is decided.
                let certain = self.plans.certain(id, !self.missed.has(id));
                shadow::utility(certain, self.values[id as usize], self.saving, size)
            }
            Policy::Lru | Policy::Lfu => f64::INFINITY,
        };
        let (mut freed, mut lost, mut victims) = (room, 0.0, Vec::new());
        for entry in self.heap.smallest() {
            lost += match self.options.policy {
                Policy::Score => f64::from(self.values[entry.id as usize]),
                Policy::Foresight if entry.key == u64::MAX => return None,
                Policy::Foresight => self.utility(SampleId(entry.id)),
                Policy::Lru | Policy::Lfu | Policy::Static | Policy::Quiver => 0.0,
            };
            if lost >= worth {
                return None;
            }
            freed += self.size(entry.id).unwrap_or(0);
            victims.push(entry.id);
            if freed >= size {
                return Some(victims);
            }
        }
        None
    }

    fn keep(&mut self, id: u32) {
        if self.options.policy == Policy::Foresight {
            self.missed.set(id, false);
        }
        self.hot_bytes += self.size(id).unwrap_or(0);
        self.heap.set(id, self.key_of(id));
        self.log.changed(id, self.sizes.len());
    }

    fn drop_hot(&mut self, id: u32) -> bool {
        let was = self.heap.remove(id);
        if was {
            self.hot_bytes -= self.size(id).unwrap_or(0);
            self.log.changed(id, self.sizes.len());
        }
        was
    }
}

/// A count in the high bits, the time of the last request in the low ones.
fn frequency(before: Option<u64>, tick: u64) -> u64 {
    const TIME: u64 = (1 << 44) - 1;
    let count = before.map_or(0, |key| key >> 44);
    (count + 1).min((1 << 20) - 1) << 44 | tick.min(TIME)
}

/// What is no number counts as important, like a score nobody knows.
fn sane(value: f32) -> f32 {
    if value.is_nan() { f32::MAX } else { value.clamp(f32::MIN, f32::MAX) }
}
