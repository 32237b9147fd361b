//! What one thread does: get bytes, run the recipe, write the sample into its place.

use super::OnBad;
use super::batch::BadSample;
use super::work::{Claim, Fetched, Filled, Task, Work};
use crate::dataset::DataSet;
use crate::report::add;
use crate::{Error, Result};
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_ops::{Draw, Pipeline, Scratch, Spent};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// All a thread needs.
pub(super) struct Kit {
    pub(super) work: Arc<Work>,
    pub(super) set: Arc<DataSet>,
    pub(super) pipeline: Option<Arc<Pipeline>>,
    pub(super) seed: u64,
    pub(super) epoch: u64,
    pub(super) on_bad: OnBad,
}

/// Works until the epoch is over or stopped.
pub(super) fn run(kit: &Kit) {
    let mut scratch = Scratch::new();
    while let Some(task) = kit.work.next_task() {
        match task {
            Task::Whole(mut claim) => {
                let batch = claim.batch;
                let outcome = kit.fill(&mut claim, &mut scratch, |slot, id| kit.read(batch, slot, id));
                kit.work.fill(claim, outcome);
            }
            Task::Arrived(Fetched { mut claim, bytes, held, cost }) => {
                let mut bytes = Some(bytes);
                let outcome = kit.fill(&mut claim, &mut scratch, |_, _| {
                    let bytes = bytes.take();
                    let bytes =
                        bytes.unwrap_or_else(|| Err(Error::corrupt("a fetched sample was asked for twice")));
                    bytes.map(|bytes| (bytes, held))
                });
                kit.work.fill(claim, outcome);
                kit.work.release(cost);
            }
        }
    }
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    add(&kit.work.meters.cpu_ns, Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32));
}

impl Kit {
    /// The bytes of a sample, and whether they were held from before.
    fn read(&self, batch: u32, slot: usize, id: SampleId) -> Result<(Bytes, bool)> {
        if let Some(bytes) = self.set.resident(id)? {
            return Ok((bytes, false)); // a slice of memory: looking at the clock would take longer
        }
        let holds = self.work.held.any();
        let position = if holds { self.work.plan.position(batch, slot) } else { 0 };
        if holds && let Some(bytes) = self.work.held.take(position, id) {
            return Ok((bytes, true));
        }
        let start = Instant::now();
        let bytes = self.set.read_now(id);
        let took = start.elapsed();
        add(&self.work.meters.read_ns, took);
        if let Ok(bytes) = &bytes {
            self.work.meters.note_read(bytes.len(), took);
            if holds {
                self.work.held.keep(position, id, bytes);
            }
        }
        bytes.map(|bytes| (bytes, false))
    }

    /// Fills all slots of a claim, or says which slot ends the epoch and why.
    fn fill(
        &self,
        claim: &mut Claim,
        scratch: &mut Scratch,
        mut read: impl FnMut(usize, SampleId) -> Result<(Bytes, bool)>,
    ) -> Result<Filled, (usize, Error)> {
        let mut filled = Filled::default();
        let (mut spent, mut raw_bytes) = (Spent::default(), 0);
        let size = self.pipeline.as_ref().map_or(0, |pipeline| pipeline.output().bytes());
        for (place, slot) in claim.slots.clone().enumerate() {
            let id = self.work.plan.sample(claim.batch, slot);
            let out = &mut claim.memory[place * size..(place + 1) * size];
            let outcome = read(slot, id).and_then(|(bytes, held)| {
                raw_bytes += if held { 0 } else { bytes.len() as u64 };
                let Some(pipeline) = &self.pipeline else {
                    filled.raw.push(bytes);
                    return Ok(());
                };
                let draw = Draw { seed: self.seed, epoch: self.epoch, sample: id };
                let took =
                    pipeline.run(scratch, draw, &bytes, out).map_err(|e| Error::corrupt(e.to_string()))?;
                spent.decode_ns += took.decode_ns;
                spent.ops_ns += took.ops_ns;
                Ok(())
            });
            if let Err(error) = outcome {
                let error = self.name(id, error);
                if self.on_bad == OnBad::Skip && error.is_bad_sample() {
                    filled.bad.push((slot, BadSample { id, reason: error.to_string() }));
                } else {
                    return Err((slot, error));
                }
            }
        }
        let meters = &self.work.meters;
        meters.decode_ns.fetch_add(spent.decode_ns, Relaxed);
        meters.ops_ns.fetch_add(spent.ops_ns, Relaxed);
        meters.fetched_bytes.fetch_add(raw_bytes, Relaxed);
        meters.processed.fetch_add(claim.slots.len() as u64, Relaxed);
        Ok(filled)
    }

    /// Says which sample an error is about, and how to go on without it.
    fn name(&self, id: SampleId, error: Error) -> Error {
        let name = self.set.catalog().locate(id).map_or_else(|_| "?".to_string(), |at| at.name.to_string());
        let skippable = error.is_bad_sample() && error.remedy().is_none();
        let error = error.at(format_args!("sample {id} ({name})"));
        if skippable { error.hint("mend or remove the file, or set loader.on_bad = \"skip\"") } else { error }
    }
}
