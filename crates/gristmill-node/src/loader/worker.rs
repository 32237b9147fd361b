//! What one thread does: get bytes, run the recipe, write the sample into its place.

use super::OnBad;
use super::batch::BadSample;
use super::work::{Claim, Fetched, Filled, From, Got, Task, Work};
use crate::access::Access;
use crate::dataset::DataSet;
use crate::node::{Ask, Served};
use crate::report::add;
use crate::split::thread_cpu_ns;
use crate::{Error, Result};
use gristmill_core::SampleId;
use gristmill_ops::{Draw, Pipeline, Scratch, Spent, Stage};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// All a thread needs.
pub(super) struct Kit {
    pub(super) work: Arc<Work>,
    pub(super) set: Arc<DataSet>,
    /// The node that samples are asked of; without one they come from the data set itself.
    pub(super) access: Option<Arc<dyn Access>>,
    pub(super) pipeline: Option<Arc<Pipeline>>,
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
            Task::Arrived(Fetched { mut claim, got, cost }) => {
                let mut got = Some(got);
                let outcome = kit.fill(&mut claim, &mut scratch, |_, _| {
                    let twice = || Err(Error::corrupt("a fetched sample was asked for twice"));
                    got.take().unwrap_or_else(twice)
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
    /// The bytes of a sample.
    fn read(&self, batch: u32, slot: usize, id: SampleId) -> Result<Got> {
        if let Some(bytes) = self.set.resident(id)? {
            return Ok(Got::raw(id, bytes, From::Memory)); // looking at the clock would take longer
        }
        let holds = self.work.held.any();
        let position = if holds { self.work.plan.position(batch, slot) } else { 0 };
        if holds && let Some(bytes) = self.work.held.take(position, id) {
            return Ok(Got::raw(id, bytes, From::Held));
        }
        let ask = Ask { id, cold: self.work.cold.contains(id) };
        if let Some(served) = self.access.as_ref().and_then(|access| access.at_hand(ask)) {
            return Ok(self.work.note(served, Duration::ZERO));
        }
        let start = Instant::now();
        let served = match &self.access {
            Some(access) => futures::executor::block_on(access.fetch(ask)),
            None => self.set.read_from_now(id).map(|(bytes, tier)| Served { id, bytes, tier }),
        };
        let took = start.elapsed();
        add(&self.work.meters.read_ns, took);
        let got = self.work.note(served?, took);
        if holds && got.id == id {
            self.work.held.keep(position, id, &got.bytes);
        }
        Ok(got)
    }

    /// Fills all slots of a claim, or says which slot ends the epoch and why.
    fn fill(
        &self,
        claim: &mut Claim,
        scratch: &mut Scratch,
        mut read: impl FnMut(usize, SampleId) -> Result<Got>,
    ) -> Result<Filled, (usize, Error)> {
        let mut filled = Filled::default();
        let (mut spent, mut raw_bytes) = (Spent::default(), 0);
        let size = self.pipeline.as_ref().map_or(0, |pipeline| pipeline.output().bytes());
        for (place, slot) in claim.slots.clone().enumerate() {
            let id = self.work.plan.sample(claim.batch, slot);
            let out = &mut claim.memory[place * size..(place + 1) * size];
            let outcome = read(slot, id).and_then(|got| {
                let Got { id: served, bytes, from, .. } = &got;
                let (served, from) = (*served, *from);
                raw_bytes += if matches!(from, From::Read | From::Memory) { bytes.len() as u64 } else { 0 };
                if served != id {
                    filled.served.push((slot, served));
                }
                let Some(pipeline) = &self.pipeline else {
                    filled.raw.push(got.bytes);
                    return Ok(());
                };
                let seed = self.work.seed(claim.batch, slot);
                let draw = Draw { seed, epoch: self.epoch, sample: served };
                let took = self.process(pipeline, scratch, draw, &got, out)?;
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

    /// Runs what is left of the recipe.
    fn process(
        &self,
        pipeline: &Pipeline,
        scratch: &mut Scratch,
        draw: Draw,
        got: &Got,
        out: &mut [u8],
    ) -> Result<Spent> {
        let bad = |e: gristmill_ops::OpError| Error::corrupt(e.to_string());
        let Some(split) = self.work.split.as_ref().filter(|_| got.from != From::Held) else {
            return pipeline.run(scratch, draw, &got.bytes, out).map_err(bad);
        };
        let begin = thread_cpu_ns();
        match pipeline.run_from(scratch, draw, got.stage, &got.bytes, out) {
            Ok(spent) => {
                split.finished(draw, got.stage, &got.bytes, got.upstream_ns, thread_cpu_ns() - begin);
                Ok(spent)
            }
            Err(error) if got.stage == Stage::Raw => Err(bad(error)),
            // A form that makes no sense is the node's fault and not the sample's.
            Err(_) => {
                split.damaged();
                let bytes = self.read_again(draw.sample)?;
                pipeline.run(scratch, draw, &bytes, out).map_err(bad)
            }
        }
    }

    /// The raw bytes of a sample that came at a stage.
    fn read_again(&self, id: SampleId) -> Result<bytes::Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| Error::io("start", "an I/O runtime", e))?;
        runtime.block_on(async {
            match &self.access {
                Some(access) => access.fetch(Ask { id, cold: false }).await.map(|served| served.bytes),
                None => self.set.read(id).await,
            }
        })
    }

    /// Says which sample an error is about, and how to go on without it.
    fn name(&self, id: SampleId, error: Error) -> Error {
        let name = self.set.catalog().locate(id).map_or_else(|_| "?".to_string(), |at| at.name.to_string());
        let skippable = error.is_bad_sample() && error.remedy().is_none();
        let error = error.at(format_args!("sample {id} ({name})"));
        if skippable { error.hint("mend or remove the file, or set loader.on_bad = \"skip\"") } else { error }
    }
}
