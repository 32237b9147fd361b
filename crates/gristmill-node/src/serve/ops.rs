//! The pool that runs the first ops of recipes beside the node: its own threads, its own bounded queue.
//!
//! Serving raw bytes never waits for ops. A sample whose stage is wanted is read as always and then queued here; when the
//! queue is full, by entries or by bytes, it is not taken, and its raw bytes go out at once. Ops have so many cores and no
//! more: a fraction is kept by resting after each sample, for as long as its CPU time is over the share.
//!
//! Decoded pictures stay for the next epoch as far as there is memory for them (`pixels`). Deliberately not here: keeping
//! what comes out. A crop is random, so it is of use to one epoch only.

use super::ServeOptions;
use super::pixels::{Picture, Pixels};
use crate::catalog::Digest;
use crate::split::{Shortfall, Wish, thread_cpu_ns};
use crate::{Error, Result};
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_ops::{Draw, Pipeline, Scratch, Stage};
use serde::Serialize;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Rests shorter than this are put off, since the clock is not that good.
const REST_LEAST_S: f64 = 0.002;
/// How long a thread rests before it looks whether the pool has ended.
const REST_MOST: Duration = Duration::from_millis(50);
/// The most that one sample may cost in rest.
const DEBT_MAX_S: f64 = 2.0;
/// How long what is queued may take; more is not taken.
const QUEUE_S_MAX: f64 = 2.0;
/// The running mean of a sample's CPU time moves by this part of the difference.
const MEAN_STEP: f64 = 1.0 / 16.0;
/// How much memory for results a thread keeps between samples.
const KEEP_BYTES: usize = 8 << 20;

/// One sample that is to be brought to a stage.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) pipeline: Arc<Pipeline>,
    /// The data set it is of.
    pub(super) set: Digest,
    pub(super) id: SampleId,
    pub(super) wish: Wish,
    pub(super) bytes: Bytes,
}

/// What became of it; without bytes the raw ones are the answer.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) bytes: Option<Bytes>,
    pub(super) stage: Stage,
    pub(super) shortfall: Shortfall,
    /// All that the sample took of the thread: making memory for a result can take a fifth as long as the op.
    pub(super) cpu_ns: u64,
}

impl Done {
    pub(super) fn short(shortfall: Shortfall) -> Done {
        Done { bytes: None, stage: Stage::Raw, shortfall, cpu_ns: 0 }
    }
}

/// The pool; dropping it ends its threads.
#[derive(Debug)]
pub(super) struct Ops {
    shared: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
    cores: f64,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    bell: Condvar,
    entries_max: usize,
    bytes_max: u64,
    pixels: Pixels,
    counts: Counts,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<(Job, oneshot::Sender<Done>)>,
    bytes: u64,
    /// What a sample took lately, in CPU time; 0 before the first.
    mean_ns: f64,
    ended: bool,
}

#[derive(Debug, Default)]
struct Counts {
    samples: [AtomicU64; 7],
    bytes: [AtomicU64; 7],
    cpu_ns: AtomicU64,
    busy: AtomicU64,
    unsuited: AtomicU64,
}

/// What the pool did since the node started.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OpsReport {
    /// The cores it may use.
    pub cores: f64,
    /// CPU time of ops.
    pub cpu_s: f64,
    /// Samples that wait for it.
    pub queue: u64,
    /// The limit on them.
    pub queue_max: u64,
    /// Samples that were asked for at a stage and answered raw because there was too much to do.
    pub busy: u64,
    /// Those that were answered raw because the stage does not suit them.
    pub unsuited: u64,
    /// Pictures that are kept decoded, their bytes, and the limit on those.
    pub pixels_entries: u64,
    /// Their bytes.
    pub pixels_bytes: u64,
    /// The limit on them.
    pub pixels_bytes_max: u64,
    /// Samples so far that needed no decoding because of them.
    pub pixels_hits: u64,
    /// Samples that were asked for at a stage, by the stage they were sent at.
    pub stages: Vec<StageCount>,
}

/// What was sent at one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StageCount {
    /// The stage.
    pub stage: Stage,
    /// Samples.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Ops {
    /// Starts the threads of the pool, for data sets of so many samples together.
    pub(super) fn start(options: &ServeOptions, samples: u64) -> Result<Ops> {
        let cores = options.op_cores();
        let shared = Arc::new(Queue {
            state: Mutex::default(),
            bell: Condvar::new(),
            entries_max: options.op_queue_max as usize,
            bytes_max: options.op_queue_bytes_max,
            pixels: Pixels::new(options.op_pixels_bytes_max, samples),
            counts: Counts::default(),
        });
        let many = cores.ceil() as usize;
        let mut ops = Ops { shared, threads: Vec::with_capacity(many), cores };
        for i in 0..many {
            let (queue, share) = (ops.shared.clone(), cores / many as f64);
            let thread = std::thread::Builder::new().name(format!("grist-op-{i}"));
            let thread =
                thread.spawn(move || queue.work(share)).map_err(|e| Error::io("start", "a thread", e))?;
            ops.threads.push(thread);
        }
        Ok(ops)
    }

    /// The cores that ops may use.
    pub(super) fn cores(&self) -> f64 {
        self.cores
    }

    /// Has a sample brought to its stage; none if there is too much to do already.
    pub(super) fn submit(&self, job: Job) -> Option<oneshot::Receiver<Done>> {
        let (tell, done) = oneshot::channel();
        let size = job.bytes.len() as u64;
        let mut state = self.shared.lock();
        if !self.has_room(&state, size) {
            return None;
        }
        state.bytes += size;
        state.jobs.push_back((job, tell));
        drop(state);
        self.shared.bell.notify_one();
        Some(done)
    }

    /// Whether one more sample of this size may wait.
    fn has_room(&self, state: &State, size: u64) -> bool {
        let wait_s = state.jobs.len() as f64 * state.mean_ns / 1e9 / self.cores;
        !self.threads.is_empty()
            && state.jobs.len() < self.shared.entries_max
            && state.bytes + size <= self.shared.bytes_max
            && wait_s <= QUEUE_S_MAX
    }

    /// Notes how a sample was sent that was asked for at a stage.
    pub(super) fn sent(&self, stage: Stage, shortfall: Shortfall, bytes: usize) {
        let counts = &self.shared.counts;
        counts.samples[stage as usize].fetch_add(1, Relaxed);
        counts.bytes[stage as usize].fetch_add(bytes as u64, Relaxed);
        match shortfall {
            Shortfall::Sample => counts.unsuited.fetch_add(1, Relaxed),
            Shortfall::Busy => counts.busy.fetch_add(1, Relaxed),
            _ => 0,
        };
    }

    pub(super) fn report(&self) -> OpsReport {
        let counts = &self.shared.counts;
        let stage = |stage: Stage| StageCount {
            stage,
            samples: counts.samples[stage as usize].load(Relaxed),
            bytes: counts.bytes[stage as usize].load(Relaxed),
        };
        let pixels = self.shared.pixels.report();
        OpsReport {
            cores: self.cores,
            cpu_s: counts.cpu_ns.load(Relaxed) as f64 / 1e9,
            queue: self.shared.lock().jobs.len() as u64,
            queue_max: self.shared.entries_max as u64,
            busy: counts.busy.load(Relaxed),
            unsuited: counts.unsuited.load(Relaxed),
            pixels_entries: pixels.entries,
            pixels_bytes: pixels.bytes,
            pixels_bytes_max: pixels.bytes_max,
            pixels_hits: pixels.hits,
            stages: Stage::ALL.map(stage).to_vec(),
        }
    }
}

impl Drop for Ops {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended = true;
        // Those who wait hear that nothing will come.
        state.jobs.clear();
        drop(state);
        self.shared.bell.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl State {
    /// Notes the CPU time of a sample.
    fn took(&mut self, cpu_ns: f64) {
        let step = if self.mean_ns == 0.0 { 1.0 } else { MEAN_STEP };
        self.mean_ns += (cpu_ns - self.mean_ns) * step;
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<(Job, oneshot::Sender<Done>)> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some((job, tell)) = state.jobs.pop_front() {
                state.bytes -= job.bytes.len() as u64;
                // Whoever asked may be gone.
                if !tell.is_closed() {
                    return Some((job, tell));
                }
                continue;
            }
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Works until the pool ends, at most the `share` of the time.
    fn work(&self, share: f64) {
        let (mut scratch, mut out, mut debt) = (Scratch::new(), Vec::new(), 0.0_f64);
        while let Some((job, tell)) = self.next() {
            let done = run(&job, &self.pixels, &mut scratch, &mut out);
            self.counts.cpu_ns.fetch_add(done.cpu_ns, Relaxed);
            self.lock().took(done.cpu_ns as f64);
            // A tiny share makes this huge or infinite, which a duration cannot be.
            debt = (debt + done.cpu_ns as f64 / 1e9 * (1.0 / share - 1.0)).min(DEBT_MAX_S);
            // Whoever asked may be gone.
            let _ = tell.send(done);
            if debt > REST_LEAST_S {
                let since = Instant::now();
                self.rest(Duration::from_secs_f64(debt));
                debt = (debt - since.elapsed().as_secs_f64()).max(0.0);
            }
        }
    }

    /// Waits, but not long beyond the pool's end.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.lock().ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(REST_MOST));
        }
    }
}

/// Brings one sample to its stage; whatever goes wrong, its raw bytes are still there.
fn run(job: &Job, pixels: &Pixels, scratch: &mut Scratch, out: &mut Vec<u8>) -> Done {
    let Job { pipeline, id, wish, bytes, .. } = job;
    let size = match wish.stage {
        Stage::Decoded => pipeline.facts(bytes).map_or([0; 2], |facts| [facts.width, facts.height]),
        _ => [0; 2],
    };
    let known = pipeline.stage_bytes(wish.stage, size[0], size[1]);
    if known.is_some_and(|bytes| bytes > wish.bytes_max.into()) {
        return Done::short(Shortfall::Sample);
    }
    let draw = Draw { seed: wish.seed, epoch: wish.epoch, sample: *id };
    let begin_ns = thread_cpu_ns();
    let advance = AssertUnwindSafe(|| {
        let picture = decoded(job, pixels, draw, scratch, out);
        pipeline.advance_with(scratch, draw, bytes, picture.as_deref(), wish.stage, out).stage
    });
    let Ok(stage) = std::panic::catch_unwind(advance) else {
        (*scratch, *out) = (Scratch::new(), Vec::new());
        return Done::short(Shortfall::Sample);
    };
    let done = if stage == Stage::Raw || out.len() > wish.bytes_max as usize {
        Done::short(if wish.stage == Stage::Raw { Shortfall::None } else { Shortfall::Sample })
    } else {
        Done { bytes: Some(Bytes::copy_from_slice(out)), stage, shortfall: Shortfall::None, cpu_ns: 0 }
    };
    keep(out);
    Done { cpu_ns: thread_cpu_ns().saturating_sub(begin_ns), ..done }
}

/// The decoded picture of a sample that is wanted beyond that, if it is kept or will be.
fn decoded(
    job: &Job,
    pixels: &Pixels,
    draw: Draw,
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> Option<Bytes> {
    let Job { pipeline, set, id, wish, bytes } = job;
    let beyond = matches!(wish.stage, Stage::Cropped | Stage::Packed | Stage::Lossy | Stage::Finished);
    if !beyond || pixels.is_off() || !pipeline.decodes() {
        return None;
    }
    let picture = Picture::new(*set, *id, bytes, pipeline.limits());
    if let Some(kept) = pixels.get(&picture) {
        return Some(kept).filter(|kept| !kept.is_empty());
    }
    let facts = pipeline.facts(bytes);
    let size = facts.and_then(|facts| pipeline.stage_bytes(Stage::Decoded, facts.width, facts.height));
    if !size.is_some_and(|size| pixels.admits(&picture, size)) {
        return None;
    }
    let advanced = pipeline.advance(scratch, draw, bytes, Stage::Decoded, out);
    let made = (advanced.stage == Stage::Decoded).then(|| Bytes::copy_from_slice(out));
    keep(out);
    pixels.put(&picture, made.clone().unwrap_or_default());
    made
}

/// Empties what a result was made in; what a giant one needed is given back.
fn keep(out: &mut Vec<u8>) {
    out.clear();
    if out.capacity() > KEEP_BYTES {
        *out = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_ops::{Encoding, Limits, RawImage, Recipe};

    const LIMITS: Limits = Limits { pixels_max: 1 << 24, scratch_bytes_max: 1 << 28 };

    /// A raw grey picture of so many rows of 4,096 pixels, made 28 x 28.
    fn job(rows: u32, stage: Stage, bytes_max: u32) -> Job {
        let raw = RawImage { width: 4_096, height: rows, channels: 1, planar: false };
        let recipe = Recipe::preset("mnist").unwrap();
        Job {
            pipeline: Arc::new(Pipeline::new(&recipe, Encoding::Raw(raw), LIMITS).unwrap()),
            set: Digest(0),
            id: SampleId(0),
            wish: Wish { stage, epoch: 0, seed: 0, bytes_max },
            bytes: vec![1; raw.bytes() as usize].into(),
        }
    }

    fn pool(cores: f64) -> Ops {
        Ops::start(&ServeOptions { cores: Some(cores), ..ServeOptions::default() }, 1).unwrap()
    }

    #[test]
    fn a_tiny_share_of_a_core_is_no_panic() {
        for cores in [1e-30, f64::MIN_POSITIVE / 4.0] {
            let ops = pool(cores);
            let done = ops.submit(job(8, Stage::Cropped, u32::MAX)).unwrap().blocking_recv().unwrap();
            assert_eq!(done.stage, Stage::Cropped);
        }
    }

    #[test]
    fn what_would_wait_too_long_is_not_taken() {
        let ops = pool(1.0);
        for (mean_ns, taken) in [(1e9, true), (1.9e9, true), (2.1e9, false)] {
            // The thread cannot take it while this is locked.
            let mut state = ops.shared.lock();
            let (tell, _heard) = oneshot::channel();
            state.bytes += 8 * 4_096;
            state.jobs = VecDeque::from([(job(8, Stage::Cropped, u32::MAX), tell)]);
            state.mean_ns = mean_ns;
            assert_eq!(ops.has_room(&state, 1), taken, "{mean_ns}");
            state.jobs.clear();
            state.bytes = 0;
        }
        let mut state = State::default();
        state.took(1_600.0);
        state.took(0.0);
        assert!((state.mean_ns - 1_500.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_too_long_is_not_made_and_memory_is_given_back() {
        let (pixels, mut scratch, mut out) = (Pixels::new(1 << 30, 1), Scratch::new(), Vec::new());
        let done = run(&job(3_000, Stage::Decoded, u32::MAX), &pixels, &mut scratch, &mut out);
        assert_eq!((done.stage, done.bytes.unwrap().len()), (Stage::Decoded, 8 + 3_000 * 4_096));
        assert!(out.capacity() <= KEEP_BYTES, "{} bytes are kept", out.capacity());
        for (stage, bytes) in
            [(Stage::Decoded, 8 + 8 * 4_096), (Stage::Cropped, 784), (Stage::Finished, 3_136)]
        {
            let [fits, short] =
                [bytes, bytes - 1].map(|most| run(&job(8, stage, most), &pixels, &mut scratch, &mut out));
            assert_eq!((fits.stage, fits.shortfall), (stage, Shortfall::None));
            assert_eq!((short.stage, short.shortfall), (Stage::Raw, Shortfall::Sample));
            assert!(fits.cpu_ns > 0 && short.cpu_ns == 0, "nothing is run for what is not sent");
        }
    }
}
