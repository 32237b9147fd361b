//! Who does what: the state that the consumer, the threads and the fetcher share during one epoch.
//!
//! Batches are opened in order, at most so many that their bytes stay under the limit. Opening one takes memory
//! from the pool; each claim splits the next piece off it. A thread that filled its piece gives it back, and when
//! all pieces of a batch are back it is ready. The consumer takes batches in order, so the order never depends on
//! the threads. One lock guards it all: it is taken once per claim, and claims of small samples are many samples
//! wide.
//!
//! Deliberately not here: reading, decoding, clocks other than for the report.

use super::Rules;
use super::batch::{BadSample, Batch, Data, Pool, Tensor};
use super::cold::Cold;
use super::held::Held;
use crate::node::Served;
use crate::report::{Meters, add};
use crate::split::{Running, Staged};
use crate::{Error, Kind, Result};
use bytes::{Bytes, BytesMut};
use gristmill_core::SampleId;
use gristmill_core::plan::Plan;
use gristmill_core::rng::key;
use gristmill_ops::Stage;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Some samples of one batch, with the memory they go into.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) batch: u32,
    pub(super) slots: Range<usize>,
    /// Empty when there is no recipe.
    pub(super) memory: BytesMut,
}

/// What became of a claim.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// The samples as they came, when there is no recipe.
    pub(super) raw: Vec<Bytes>,
    /// Samples that are to be left out, by slot.
    pub(super) bad: Vec<(usize, BadSample)>,
    /// Other samples than the plan has, by slot.
    pub(super) served: Vec<(usize, SampleId)>,
}

/// Where the loader found the bytes of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// In the data set, which is held whole.
    Memory,
    /// Among what stands in for others.
    Held,
    /// In a cache.
    Cache,
    /// In the store.
    Read,
}

/// The bytes of one sample: not always of the one that was asked for.
#[derive(Debug)]
pub(super) struct Got {
    pub(super) id: SampleId,
    pub(super) bytes: Bytes,
    pub(super) from: From,
    /// How far it has come.
    pub(super) stage: Stage,
    /// CPU time that the node's ops took for that.
    pub(super) upstream_ns: u64,
}

impl Got {
    /// Raw bytes.
    pub(super) fn raw(id: SampleId, bytes: Bytes, from: From) -> Got {
        Got { id, bytes, from, stage: Stage::Raw, upstream_ns: 0 }
    }
}

/// One sample whose bytes have arrived.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) claim: Claim,
    pub(super) got: Result<Got>,
    /// What it takes of the limit on raw bytes.
    pub(super) cost: u64,
}

/// What a thread is to do next.
#[derive(Debug)]
pub(super) enum Task {
    /// Read and process these samples.
    Whole(Claim),
    /// Process this one sample.
    Arrived(Fetched),
}

#[derive(Debug)]
struct Open {
    slots: usize,
    claimed: usize,
    rest: BytesMut,
    pieces: Vec<(usize, BytesMut)>,
    raw: Vec<(usize, Vec<Bytes>)>,
    bad: Vec<(usize, BadSample)>,
    served: Vec<(usize, SampleId)>,
    failure: Option<(usize, Error)>,
    missing: usize,
    ready_at: Option<Instant>,
    cost: u64,
}

#[derive(Debug)]
struct State {
    /// The batch at the front of `open`.
    first: u32,
    open: VecDeque<Open>,
    open_cost: u64,
    fetched: VecDeque<Fetched>,
    raw_cost: u64,
    stop: bool,
    /// A thread died or the runtime failed: nobody may wait any longer.
    broken: Option<String>,
}

/// The shared state of one epoch.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) plan: Plan,
    pub(super) rules: Rules,
    pub(super) meters: Meters,
    pub(super) held: Held,
    pub(super) cold: Cold,
    /// Where samples are cut; none if nothing is to be split.
    pub(super) split: Option<Arc<Running>>,
    pub(super) wake_fetcher: tokio::sync::Notify,
    pool: Arc<Pool>,
    state: Mutex<State>,
    /// Threads wait here for something to do.
    tasks: Condvar,
    /// The consumer waits here for its batch.
    ready: Condvar,
}

/// What the consumer finds when it asks.
#[derive(Debug)]
pub(super) enum Taken {
    /// The next batch, with the time it lay ready while the consumer waited for it.
    Batch(Box<Batch>, Duration),
    /// Not yet.
    Pending,
    /// The epoch is over.
    Done,
}

impl Work {
    pub(super) fn new(
        plan: Plan,
        held: Held,
        cold: Cold,
        split: Option<Arc<Running>>,
        rules: Rules,
        pool: Arc<Pool>,
        from_batch: u32,
    ) -> Work {
        let state = State {
            first: from_batch,
            open: VecDeque::new(),
            open_cost: 0,
            fetched: VecDeque::new(),
            raw_cost: 0,
            stop: false,
            broken: None,
        };
        Work {
            plan,
            rules,
            meters: Meters::default(),
            held,
            cold,
            split,
            wake_fetcher: tokio::sync::Notify::new(),
            pool,
            state: Mutex::new(state),
            tasks: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock with the state half changed, so a poisoned one is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece of work for a thread; `None` when the epoch is over or was stopped.
    pub(super) fn next_task(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            let mut waits_for = &self.meters.full_ns;
            if self.rules.direct {
                if let Some(claim) = self.claim(&mut state, self.rules.claim_samples) {
                    return Some(Task::Whole(claim));
                }
                if self.all_claimed(&state) {
                    return None;
                }
            } else {
                if let Some(fetched) = state.fetched.pop_front() {
                    return Some(Task::Arrived(fetched));
                }
                let done = state.open.iter().all(|open| open.missing == 0);
                if done && self.all_claimed(&state) {
                    return None;
                }
                // For bytes, unless all that may be open is done and the consumer is the slow one.
                if !done || state.open.is_empty() {
                    waits_for = &self.meters.starved_ns;
                }
            }
            let since = Instant::now();
            state = self.tasks.wait(state).unwrap_or_else(PoisonError::into_inner);
            add(waits_for, since.elapsed());
        }
    }

    /// A claim on one sample for the fetcher, if memory for its bytes and its batch is free.
    pub(super) fn next_read(&self, size: impl Fn(SampleId) -> u64) -> Option<(Claim, SampleId, u64)> {
        let mut state = self.lock();
        if state.stop {
            return None;
        }
        let (batch, slot) = self.next_slot(&state)?;
        let id = self.plan.sample(batch, slot);
        let cost = size(id);
        if state.raw_cost > 0 && state.raw_cost + cost > self.rules.raw_bytes_max {
            return None;
        }
        let claim = self.claim(&mut state, 1)?;
        state.raw_cost += cost;
        Some((claim, id, cost))
    }

    /// Whether the fetcher has nothing left to ask for.
    pub(super) fn reads_done(&self) -> bool {
        let state = self.lock();
        state.stop || self.all_claimed(&state)
    }

    /// Whether the epoch was told to stop.
    pub(super) fn stopped(&self) -> bool {
        self.lock().stop
    }

    /// Notes where a sample came from and how long that took.
    pub(super) fn note(&self, served: Served, took: Duration) -> Got {
        self.note_staged(Staged::raw(served), took)
    }

    /// The same for one that came at a stage.
    pub(super) fn note_staged(&self, staged: Staged, took: Duration) -> Got {
        let Staged { served: Served { id, bytes, tier }, stage, cpu_ns, .. } = staged;
        self.meters.note(tier, bytes.len(), took);
        let from = if tier.is_behind() { From::Read } else { From::Cache };
        Got { id, bytes, from, stage, upstream_ns: cpu_ns }
    }

    /// The seed of what is random in a slot: a sample that is served again is cropped and turned anew.
    pub(super) fn seed(&self, batch: u32, slot: usize) -> u64 {
        let again = self.plan.again(batch, slot);
        if again == 0 { self.rules.seed } else { key(&[self.rules.seed, again.into()]) }
    }

    /// Hands bytes that arrived to the threads.
    pub(super) fn arrived(&self, fetched: Fetched) {
        self.lock().fetched.push_back(fetched);
        self.tasks.notify_one();
    }

    /// Gives back the limit's share of a sample whose raw bytes are no longer held.
    pub(super) fn release(&self, cost: u64) {
        self.lock().raw_cost -= cost;
        self.wake_fetcher.notify_one();
    }

    /// Takes a filled claim back.
    pub(super) fn fill(&self, claim: Claim, outcome: Result<Filled, (usize, Error)>) {
        let now = Instant::now();
        let mut state = self.lock();
        let index = (claim.batch - state.first) as usize;
        let Some(open) = state.open.get_mut(index) else { return };
        open.missing -= claim.slots.len();
        match outcome {
            Ok(filled) => {
                if self.rules.output.is_none() {
                    open.raw.push((claim.slots.start, filled.raw));
                }
                open.bad.extend(filled.bad);
                open.served.extend(filled.served);
            }
            Err((slot, error)) => {
                // The first slot's error is the one to tell, whichever thread was faster.
                if open.failure.as_ref().is_none_or(|(known, _)| slot < *known) {
                    open.failure = Some((slot, error));
                }
            }
        }
        open.pieces.push((claim.slots.start, claim.memory));
        if open.missing == 0 {
            open.ready_at = Some(now);
            drop(state);
            self.ready.notify_one();
            // In fetch mode the last threads wait until nothing is missing any more.
            self.tasks.notify_all();
        }
    }

    /// The next batch, waiting for it at most until `until`.
    pub(super) fn take(&self, until: Instant, labels: &[u32], epoch: u64) -> Result<Taken> {
        let asked = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(reason) = &state.broken {
                return Err(Error::new(Kind::Io, format!("the loader stopped working: {reason}"))
                    .hint("this is a defect; please report it with the data that caused it"));
            }
            if state.first >= self.plan.batches() || (state.stop && state.open.is_empty()) {
                return Ok(Taken::Done);
            }
            if state.open.front().is_some_and(|open| open.missing == 0) {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Taken::Pending);
            }
            state = self.ready.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let Some(open) = state.open.pop_front() else { return Ok(Taken::Done) };
        let index = state.first;
        state.first += 1;
        state.open_cost -= open.cost;
        drop(state);
        self.tasks.notify_all();
        self.wake_fetcher.notify_one();
        let lay_ready = open.ready_at.map_or(Duration::ZERO, |at| at.max(asked).elapsed());
        self.assemble(index, open, labels, epoch).map(|batch| Taken::Batch(Box::new(batch), lay_ready))
    }

    /// Batches and raw samples that lie ready right now.
    pub(super) fn depths(&self) -> (usize, usize) {
        let state = self.lock();
        (state.open.iter().take_while(|open| open.missing == 0).count(), state.fetched.len())
    }

    /// Tells everybody to stop.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.tasks.notify_all();
        self.ready.notify_all();
        self.wake_fetcher.notify_one();
    }

    /// Says that the epoch cannot go on, so that the consumer is told instead of waiting for ever.
    pub(super) fn give_up(&self, reason: String) {
        self.lock().broken = Some(reason);
        self.stop();
    }

    fn all_claimed(&self, state: &State) -> bool {
        let next = state.first as usize + state.open.len();
        let last_full = state.open.back().is_none_or(|open| open.rest_slots() == 0);
        next >= self.plan.batches() as usize && last_full
    }

    /// The batch and slot that is claimed next, whether or not there is memory for it yet.
    fn next_slot(&self, state: &State) -> Option<(u32, usize)> {
        let next = state.first + state.open.len() as u32;
        match state.open.back() {
            Some(open) if open.rest_slots() > 0 => Some((next - 1, open.claimed)),
            _ if next < self.plan.batches() => Some((next, 0)),
            _ => None,
        }
    }

    fn claim(&self, state: &mut State, samples: usize) -> Option<Claim> {
        let (batch, first) = self.next_slot(state)?;
        if first == 0 && state.open.len() as u32 == batch - state.first {
            let slots = self.plan.batch_len(batch);
            let cost = match self.rules.output {
                // A short last batch takes a whole buffer all the same.
                Some(_) => self.pool.buffer_bytes() as u64,
                None => self.plan.batch(batch).map(|id| self.rules.size(id)).sum(),
            };
            let over = state.open_cost + cost > self.rules.batch_bytes_max;
            if !state.open.is_empty() && (over || state.open.len() >= self.rules.open_batches_max) {
                return None;
            }
            let rest = match self.rules.output {
                Some(output) => self.pool.take(slots * output.bytes()),
                None => BytesMut::new(),
            };
            state.open_cost += cost;
            state.open.push_back(Open {
                slots,
                claimed: 0,
                rest,
                pieces: Vec::with_capacity(slots),
                raw: Vec::new(),
                bad: Vec::new(),
                served: Vec::new(),
                failure: None,
                missing: slots,
                ready_at: None,
                cost,
            });
        }
        let open = state.open.back_mut()?;
        let take = samples.min(open.rest_slots());
        open.claimed += take;
        let bytes = self.rules.output.map_or(0, |output| output.bytes() * take);
        Some(Claim { batch, slots: first..first + take, memory: open.rest.split_to(bytes) })
    }

    fn assemble(&self, index: u32, open: Open, labels: &[u32], epoch: u64) -> Result<Batch> {
        let Open { mut pieces, rest, mut raw, mut bad, mut served, failure, .. } = open;
        if self.rules.output.is_some() {
            self.pool.filled(1);
        }
        if let Some((_, error)) = failure {
            return Err(error);
        }
        bad.sort_by_key(|(slot, _)| *slot);
        let bad_slots: Vec<usize> = bad.iter().map(|(slot, _)| *slot).collect();
        let good = |slot: &usize| bad_slots.binary_search(slot).is_err();
        let all = self.plan.batch_len(index);
        served.sort_unstable_by_key(|(slot, _)| *slot);
        let sample = |slot: usize| match served.binary_search_by_key(&slot, |(slot, _)| *slot) {
            Ok(found) => served[found].1,
            Err(_) => self.plan.sample(index, slot),
        };
        let ids: Vec<u32> = (0..all).filter(good).map(|slot| sample(slot).0).collect();
        let data = if let Some(output) = self.rules.output {
            pieces.sort_by_key(|(slot, _)| *slot);
            let mut pieces = pieces.into_iter().map(|(_, memory)| memory);
            let mut whole = pieces.next().unwrap_or_default();
            pieces.for_each(|piece| whole.unsplit(piece));
            // What a short last batch left unused: without it the memory would be too small for the next one.
            whole.unsplit(rest);
            let mut tensor = Tensor::new(whole, output, self.pool.clone());
            if !bad_slots.is_empty() {
                tensor.remove(&bad_slots);
            }
            Data::Tensor(tensor)
        } else {
            raw.sort_by_key(|(slot, _)| *slot);
            Data::Raw(raw.into_iter().flat_map(|(_, samples)| samples).collect())
        };
        let labels = ids.iter().map(|&id| labels[id as usize]).collect();
        let weights = if self.plan.is_plain() {
            vec![1.0; ids.len()]
        } else {
            (0..all).filter(good).map(|slot| self.plan.weight(index, slot)).collect()
        };
        Ok(Batch {
            epoch,
            index,
            ids,
            labels,
            weights,
            skipped: bad.into_iter().map(|(_, sample)| sample).collect(),
            data,
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Batches of an epoch that was left early are not being filled any more.
        if self.rules.output.is_some() {
            let open = self.lock().open.len();
            self.pool.filled(open);
        }
    }
}

impl Open {
    /// Slots nobody has claimed yet.
    fn rest_slots(&self) -> usize {
        self.slots - self.claimed
    }
}
