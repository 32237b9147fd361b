//! One epoch being read: batches in the order of the plan, and what they cost.

use super::batch::{BadSample, Batch};
use super::swap::Swap;
use super::work::{Taken, Work};
use crate::access::Access;
use crate::dataset::DataSet;
use crate::report::{EpochReport, RegionHits, WaitLedger};
use crate::selection::Choice;
use crate::split::thread_cpu_ns;
use crate::steer::Steering;
use crate::{Error, Kind, Result};
use gristmill_core::plan::Plan;
use std::sync::Arc;
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

/// One epoch being read: an iterator of batches in the order of the plan.
#[derive(Debug)]
pub struct Epoch {
    pub(super) work: Arc<Work>,
    pub(super) set: Arc<DataSet>,
    pub(super) choice: Option<Arc<Choice>>,
    pub(super) access: Option<Arc<dyn Access>>,
    /// The exchange that goes on beside it.
    pub(super) swap: Option<Swap>,
    /// What the node had read from the store before.
    pub(super) store_bytes_before: u64,
    /// Samples that the node had left to the store before.
    pub(super) fallbacks_before: u64,
    /// Requests that the regions of the node's memory had answered before.
    pub(super) regions_before: Option<[u64; 2]>,
    pub(super) threads: Vec<JoinHandle<()>>,
    /// Bad samples of batches that were passed over because nothing was left of them.
    pub(super) passed_over: Vec<BadSample>,
    pub(super) report: EpochReport,
    pub(super) ledger: WaitLedger,
    pub(super) stall: Duration,
    pub(super) retries_before: u64,
    pub(super) started: Instant,
    pub(super) depth_sums: (u64, u64),
    pub(super) over: bool,
    pub(super) empty_batches: bool,
    /// When the last batch was handed over, and how many samples it had.
    pub(super) handed: Option<Handed>,
    pub(super) steering: Option<Arc<Steering>>,
    pub(super) from_batch: u32,
}

/// What [`Epoch::poll`] found.
#[derive(Debug)]
pub enum Polled {
    /// The next batch.
    Batch(Box<Batch>),
    /// None within the time given.
    Pending,
    /// The epoch is over.
    Done,
}

impl Epoch {
    /// How many batches the epoch has in all.
    pub fn batches(&self) -> u32 {
        self.work.plan.batches()
    }

    /// What the epoch has, in which order.
    pub fn plan(&self) -> &Plan {
        &self.work.plan
    }

    /// The first samples that a relative stands in for, each with that relative.
    pub fn stand_ins(&self) -> &[(u32, u32)] {
        self.work.held.shown()
    }

    /// Hands over batches in which every sample is bad, too. Otherwise they are passed over, because no training
    /// can use them; or errors, where other ranks would wait for this one.
    #[must_use]
    pub fn with_empty_batches(mut self) -> Epoch {
        self.empty_batches = true;
        self
    }

    /// The next batch, or [`Polled::Pending`] after `wait`: for callers that must look at signals meanwhile.
    pub fn poll(&mut self, wait: Duration) -> Result<Polled> {
        if self.over {
            return Ok(Polled::Done);
        }
        if self.swap.as_ref().is_some_and(Swap::failed) {
            // No rank can end this epoch: better now than after all of its batches.
            return self.done(wait);
        }
        let asked = Instant::now();
        if let (Some(split), Some(handed)) = (&self.work.split, self.handed.take()) {
            split.consumed(handed.samples, asked - handed.since, handed.cpu());
        }
        let (batches, samples) = self.work.depths();
        self.ledger.begin(&self.work.meters);
        let labels = self.set.catalog().labels()?;
        let taken = self.work.take(asked + wait, labels, self.report.epoch);
        let hand_over = if let Ok(Taken::Batch(_, lay_ready)) = &taken { *lay_ready } else { Duration::ZERO };
        self.ledger.end(&self.work.meters, asked.elapsed(), hand_over);
        match taken {
            Ok(Taken::Batch(mut batch, _)) if batch.is_empty() && !self.empty_batches => {
                self.report.skipped += batch.skipped.len() as u64;
                if self.work.plan.shape().world > 1 {
                    self.end();
                    let first = batch.skipped.first().map_or("", |bad| &bad.reason);
                    let (index, all) = (batch.index, batch.skipped.len());
                    let message = format!("all {all} samples of batch {index} are bad, the first: {first}");
                    return Err(
                        Error::corrupt(message).hint("mend or remove them: every rank needs every batch")
                    );
                }
                self.passed_over.append(&mut batch.skipped);
                Ok(Polled::Pending)
            }
            Ok(Taken::Batch(mut batch, _)) => {
                let left_out = batch.skipped.len() as u64;
                batch.skipped.splice(0..0, self.passed_over.drain(..));
                self.depth_sums.0 += batches as u64;
                self.depth_sums.1 += samples as u64;
                self.report.batches += 1;
                self.report.samples += batch.len() as u64;
                self.report.skipped += left_out;
                self.handed = Some(Handed::now(batch.len() as u64));
                if let Some(swap) = &self.swap {
                    swap.handed(batch.index);
                }
                Ok(Polled::Batch(batch))
            }
            Ok(Taken::Pending) => Ok(Polled::Pending),
            Ok(Taken::Done) => self.done(wait),
            Err(error) => {
                self.end();
                Err(error)
            }
        }
    }

    /// All batches were handed over; the epoch is done when the exchange is.
    fn done(&mut self, wait: Duration) -> Result<Polled> {
        let finished = self.swap.as_mut().map_or(Ok(true), |swap| swap.finish(wait));
        if matches!(finished, Ok(false)) {
            return Ok(Polled::Pending);
        }
        self.end();
        finished.map(|_| Polled::Done)
    }

    /// The next batch; an error when it takes longer than `stall_ms_max`.
    pub fn next_batch(&mut self) -> Result<Option<Box<Batch>>> {
        let asked = Instant::now();
        loop {
            match self.poll(self.stall)? {
                Polled::Batch(batch) => return Ok(Some(batch)),
                Polled::Done => return Ok(None),
                // Sooner than that it was a batch that was passed over.
                Polled::Pending if asked.elapsed() < self.stall => {}
                Polled::Pending => return Err(self.stalled()),
            }
        }
    }

    /// The error of a consumer that waited too long, naming what it waited for.
    pub fn stalled(&mut self) -> Error {
        let (batches, samples) = self.work.depths();
        let stage = if self.work.rules.direct { "reading or decoding" } else { "the store" };
        let message = format!(
            "no batch for {:.0} s: waiting for {stage} ({batches} batches and {samples} raw samples are ready)",
            self.stall.as_secs_f64()
        );
        self.end();
        Error::new(Kind::Unavailable, message).hint("check the storage, or raise loader.stall_ms_max")
    }

    /// What has been read so far, and where the time went.
    pub fn report(&self) -> EpochReport {
        let mut report = self.report.clone();
        if !self.over {
            report.wall_ms = self.started.elapsed().as_secs_f64() * 1e3;
        }
        report.retries = self.set.store().retries() - self.retries_before;
        let batches = f64::from(report.batches.max(1));
        report.ready_batches_mean = self.depth_sums.0 as f64 / batches;
        report.fetched_samples_mean = self.depth_sums.1 as f64 / batches;
        report.wait = self.ledger.clone().total(&self.work.meters);
        report.fill(&self.work.meters);
        if self.access.is_some() || self.swap.is_some() {
            report.fill_tiers(&self.work.meters);
        }
        report.exchange = self.swap.as_ref().and_then(|swap| swap.report(report.epoch));
        if let Some(access) = &self.access {
            report.fallbacks = access.fallbacks() - self.fallbacks_before;
            if let (Some([hot, cold]), Some(before)) = (access.region_hits(), self.regions_before) {
                report.regions = Some(RegionHits { hot: hot - before[0], cold: cold - before[1] });
            }
        }
        if let Some(now) = store_bytes(self.access.as_ref()) {
            // What was read ahead counts, whether or not it was asked for yet.
            report.bytes = now.saturating_sub(self.store_bytes_before);
        }
        report.split = self.work.split.as_ref().map(|split| split.report(report.wall_ms / 1e3));
        report
    }

    /// Ends the threads; what was not read stays unread.
    pub fn end(&mut self) {
        self.work.stop();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so through `give_up`.
            let _ = thread.join();
        }
        if !self.over {
            self.report.wall_ms = self.started.elapsed().as_secs_f64() * 1e3;
            if let Some(split) = &self.work.split {
                split.end();
            }
            if let Some(steering) = &self.steering {
                self.over = true;
                let complete = self.report.batches + self.from_batch >= self.work.plan.batches();
                steering.ended(&self.report(), complete);
            }
            if let Some(choice) = &self.choice {
                self.over = true;
                let rules = &self.work.rules;
                let at_once = if rules.direct { self.report.threads } else { rules.reads_in_flight };
                choice.observe(&self.report(), at_once, &self.work.meters.times());
            }
        }
        self.over = true;
    }
}

/// A batch in the consumer's hands.
#[derive(Debug)]
pub(super) struct Handed {
    since: Instant,
    samples: u64,
    /// The thread that took it, and its CPU time then.
    taker: (ThreadId, u64),
}

impl Handed {
    fn now(samples: u64) -> Handed {
        let taker = (std::thread::current().id(), thread_cpu_ns());
        Handed { since: Instant::now(), samples, taker }
    }

    /// CPU time of the consumer's thread since then, if that is who asks for the next one.
    fn cpu(&self) -> Duration {
        let (thread, cpu_ns) = self.taker;
        let same = thread == std::thread::current().id();
        Duration::from_nanos(if same { thread_cpu_ns().saturating_sub(cpu_ns) } else { 0 })
    }
}

impl Iterator for Epoch {
    type Item = Result<Box<Batch>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a node of one's own has read from the store.
pub(super) fn store_bytes(access: Option<&Arc<dyn Access>>) -> Option<u64> {
    access.and_then(|access| access.store_bytes())
}
