//! From a data set to batches.
//!
//! A [`Loader`] holds what does not change: the data set, the recipe, the limits. [`Loader::epoch`] starts the
//! threads of one epoch and is an iterator of batches; dropping it ends them. The order is the plan's alone, so
//! it is the same with any number of threads, and starting at any batch needs nothing but its number.
//!
//! Memory: finished and growing batches, raw bytes on their way, and each thread's scratch share one limit,
//! `memory_bytes_max`, divided up front in [`Budget`]. A batch that the consumer holds is the consumer's.
//!
//! Deliberately not here: which samples an epoch has (the plan's business, or that of `selection`), and any cache.

mod batch;
mod budget;
mod fetch;
mod work;
mod worker;

pub use batch::{BadSample, Batch, Data, Tensor};

use crate::dataset::DataSet;
use crate::report::{EpochReport, WaitLedger};
use crate::selection::{Choice, SelectionOptions, SelectionReport};
use crate::{Error, Kind, Result};
use batch::Pool;
use budget::{Budget, Demand};
use gristmill_core::SampleId;
use gristmill_core::plan::{Plan, Shape};
use gristmill_ops::{Limits, Output, Pipeline, Recipe};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use work::{Taken, Work};

/// What to do with a sample that cannot be read or decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBad {
    /// End the epoch with an error that names it.
    Raise,
    /// Leave it out, count it, and say so in the batch.
    Skip,
}

/// How a loader works. All fields have a meaning at every value; limits are checked in [`Loader::new`].
#[derive(Debug, Clone)]
pub struct LoaderOptions {
    /// Batches, ranks and shares.
    pub shape: Shape,
    /// Where all randomness comes from.
    pub seed: u64,
    /// Whether an epoch is shuffled, or in the order of ids.
    pub shuffle: bool,
    /// Threads that decode.
    pub threads: usize,
    /// Finished batches that may lie ready.
    pub prefetch_batches: usize,
    /// Reads in flight; 0 lets the threads read for themselves if the store can do that, else stands for 64.
    pub reads_in_flight: usize,
    /// The most memory all of this may take.
    pub memory_bytes_max: u64,
    /// The most pixels an image may have.
    pub pixels_max: u64,
    /// Bad samples.
    pub on_bad: OnBad,
    /// How long the consumer may wait for one batch before that is an error.
    pub stall_ms_max: u64,
    /// Which samples an epoch trains on.
    pub selection: SelectionOptions,
}

/// What a thread, the fetcher and the consumer must know in one epoch.
#[derive(Debug, Clone)]
struct Rules {
    output: Option<Output>,
    direct: bool,
    claim_samples: usize,
    open_batches_max: usize,
    batch_bytes_max: u64,
    raw_bytes_max: u64,
    reads_in_flight: usize,
    set: Arc<DataSet>,
}

impl Rules {
    /// The bytes of a sample; the column was verified when the loader was made, so it is there.
    fn size(&self, id: SampleId) -> u64 {
        self.set.catalog().size(id).map_or(0, u64::from)
    }
}

/// Reads a data set in batches, epoch by epoch.
#[derive(Debug)]
pub struct Loader {
    set: Arc<DataSet>,
    pipeline: Option<Arc<Pipeline>>,
    options: LoaderOptions,
    rules: Rules,
    pool: Arc<Pool>,
    /// None for the plain loader, which needs no memory per sample for it.
    choice: Option<Arc<Choice>>,
}

impl Loader {
    /// A loader of `set`. Without a recipe batches hold raw bytes.
    pub fn new(set: Arc<DataSet>, recipe: Option<&Recipe>, options: LoaderOptions) -> Result<Loader> {
        check(&options, &set)?;
        let demand = |sample_bytes| Demand {
            memory: options.memory_bytes_max,
            resident: set.resident_bytes(),
            batch: options.shape.batch.min(set.catalog().len()).into(),
            sample_bytes,
            prefetch_batches: options.prefetch_batches as u64,
            threads: options.threads as u64,
        };
        let mut pipeline = None;
        let mut output = None;
        if let Some(recipe) = recipe {
            // The size of a sample is known once the recipe is understood, and divides the memory that limits it.
            let limits = Limits { pixels_max: options.pixels_max, scratch_bytes_max: usize::MAX };
            let trial = new_pipeline(recipe, &set, limits)?;
            let scratch = Budget::new(demand(Some(trial.output().bytes() as u64)))?.scratch;
            let limits = Limits { scratch_bytes_max: scratch as usize, ..limits };
            output = Some(trial.output());
            pipeline = Some(Arc::new(new_pipeline(recipe, &set, limits)?));
        }
        let sample_bytes = output.map(|output| output.bytes() as u64);
        let budget = Budget::new(demand(sample_bytes))?;
        check_samples(budget, &options, &set)?;
        let direct = options.reads_in_flight == 0 && set.immediate();
        let rules = Rules {
            output,
            direct,
            claim_samples: claim_samples(&set, &options)?,
            open_batches_max: options.prefetch_batches + 1,
            batch_bytes_max: budget.batches - budget.one,
            raw_bytes_max: budget.raw,
            reads_in_flight: if options.reads_in_flight == 0 { 64 } else { options.reads_in_flight },
            set: set.clone(),
        };
        let pool = Arc::new(Pool::new(budget.one as usize, (budget.batches / budget.one.max(1)) as usize));
        let choice = if options.selection.selection.needs_feedback() {
            let (catalog, shape) = (set.catalog(), options.shape);
            let (labels, sizes) = (catalog.labels()?, catalog.sizes()?);
            Some(Arc::new(Choice::new(&options.selection, labels, sizes, options.seed, shape.world)?))
        } else {
            None
        };
        Ok(Loader { set, pipeline, options, rules, pool, choice })
    }

    /// The data set.
    pub fn set(&self) -> &DataSet {
        &self.set
    }

    /// How it works.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Type, layout and size of one sample; none without a recipe.
    pub fn output(&self) -> Option<Output> {
        self.rules.output
    }

    /// What decides which samples an epoch has; none for the plain loader.
    pub fn choice(&self) -> Option<&Arc<Choice>> {
        self.choice.as_ref()
    }

    /// How many batches every rank trains in the epoch that began last, or would in a plain one.
    pub fn batches(&self) -> u32 {
        let samples = self.choice().map_or_else(|| self.set.catalog().len(), |choice| choice.samples());
        gristmill_core::plan::batches(samples, self.options.shape)
    }

    /// The order of an epoch and this rank's part of it. With a selection this begins the epoch: what comes after
    /// the one before it is decided, and feedback about that is no longer taken.
    pub fn plan(&self, epoch: u64) -> Result<Plan> {
        Ok(self.decide(epoch)?.0)
    }

    fn decide(&self, epoch: u64) -> Result<(Plan, Option<SelectionReport>)> {
        if let Some(choice) = &self.choice {
            let (plan, report) = choice.plan(epoch, self.options.shape, self.options.shuffle)?;
            return Ok((plan, Some(report)));
        }
        let samples = self.set.catalog().len();
        let plan = if self.options.shuffle {
            Plan::shuffled(samples, self.options.seed, epoch, self.options.shape)
        } else {
            Plan::in_order(samples, self.options.shape)
        };
        Ok((plan?, None))
    }

    /// Starts an epoch at its batch `from_batch` (0 for the beginning).
    pub fn epoch(&self, epoch: u64, from_batch: u32) -> Result<Epoch> {
        let (plan, selection) = self.decide(epoch)?;
        if from_batch > plan.batches() {
            let batches = plan.batches();
            return Err(Error::config(format!(
                "epoch {epoch} has {batches} batches; there is no batch {from_batch}"
            ))
            .hint("the data set, the batch or the number of ranks is not what it was when this was saved"));
        }
        self.set.catalog().labels()?;
        let work = Arc::new(Work::new(plan, self.rules.clone(), self.pool.clone(), from_batch));
        let mut threads = Vec::new();
        for i in 0..self.options.threads {
            let kit = worker::Kit {
                work: work.clone(),
                set: self.set.clone(),
                pipeline: self.pipeline.clone(),
                seed: self.options.seed,
                epoch,
                on_bad: self.options.on_bad,
            };
            threads.push(spawn(&format!("grist-{i}"), &work, move || worker::run(&kit))?);
        }
        if !self.rules.direct {
            let (shared, set) = (work.clone(), self.set.clone());
            threads.push(spawn("grist-fetch", &work, move || fetch::run(&shared, &set))?);
        }
        let from_memory = self.set.resident_bytes() > 0;
        let threads_used = self.options.threads;
        let report =
            EpochReport { epoch, threads: threads_used, from_memory, selection, ..EpochReport::default() };
        Ok(Epoch {
            work,
            set: self.set.clone(),
            choice: self.choice.clone(),
            threads,
            passed_over: Vec::new(),
            report,
            ledger: WaitLedger::default(),
            stall: Duration::from_millis(self.options.stall_ms_max),
            retries_before: self.set.store().retries(),
            started: Instant::now(),
            depth_sums: (0, 0),
            over: false,
            empty_batches: false,
        })
    }
}

/// One epoch being read: an iterator of batches in the order of the plan.
#[derive(Debug)]
pub struct Epoch {
    work: Arc<Work>,
    set: Arc<DataSet>,
    choice: Option<Arc<Choice>>,
    threads: Vec<JoinHandle<()>>,
    /// Bad samples of batches that were passed over because nothing was left of them.
    passed_over: Vec<BadSample>,
    report: EpochReport,
    ledger: WaitLedger,
    stall: Duration,
    retries_before: u64,
    started: Instant,
    depth_sums: (u64, u64),
    over: bool,
    empty_batches: bool,
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
        let asked = Instant::now();
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
                Ok(Polled::Batch(batch))
            }
            Ok(Taken::Pending) => Ok(Polled::Pending),
            Ok(Taken::Done) => {
                self.end();
                Ok(Polled::Done)
            }
            Err(error) => {
                self.end();
                Err(error)
            }
        }
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
            if let Some(choice) = &self.choice {
                self.over = true;
                choice.observe(&self.report(), &self.work.meters.times());
            }
        }
        self.over = true;
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

/// Refuses a data set with a sample that could never be loaded within the limit.
fn check_samples(budget: Budget, options: &LoaderOptions, set: &DataSet) -> Result<()> {
    let sizes = set.catalog().sizes()?;
    let Some((id, &largest)) = sizes.iter().enumerate().max_by_key(|(_, size)| **size) else { return Ok(()) };
    let room = budget.raw / if set.immediate() { options.threads as u64 } else { 1 };
    if u64::from(largest) <= room {
        return Ok(());
    }
    let name = set.catalog().locate(SampleId(id as u32))?.name.to_string();
    Err(Error::config(format!(
        "sample {id} ({name}) has {largest} bytes, but loader.memory_bytes_max = {} leaves {room} for one",
        options.memory_bytes_max
    ))
    .hint("raise loader.memory_bytes_max, or leave the sample out of the catalog"))
}

fn check(options: &LoaderOptions, set: &DataSet) -> Result<()> {
    let positive = [
        ("loader.threads", options.threads as u64),
        ("loader.batch", options.shape.batch.into()),
        ("loader.pixels_max", options.pixels_max),
        ("loader.stall_ms_max", options.stall_ms_max),
    ];
    if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
        return Err(Error::config(format!("{name} is 0; it must be at least 1")));
    }
    if options.threads > 1_024 || options.reads_in_flight > 65_536 || options.prefetch_batches > 65_536 {
        return Err(Error::config(format!(
            "loader.threads = {}, reads_in_flight = {} and prefetch_batches = {} are limited to 1,024, 65,536 and 65,536",
            options.threads, options.reads_in_flight, options.prefetch_batches
        )));
    }
    if set.catalog().is_empty() {
        return Err(Error::config(format!("the catalog of {} has no samples", set.catalog().source())));
    }
    Ok(())
}

fn new_pipeline(recipe: &Recipe, set: &DataSet, limits: Limits) -> Result<Pipeline> {
    Pipeline::new(recipe, set.catalog().encoding(), limits).map_err(|e| Error::config(e.to_string()))
}

/// How many samples a thread takes at a time: enough that the lock costs nothing beside them, few enough that
/// the threads share every batch.
fn claim_samples(set: &DataSet, options: &LoaderOptions) -> Result<usize> {
    let mean = set.catalog().total_bytes()? / u64::from(set.catalog().len().max(1));
    let share = (options.shape.batch as usize).div_ceil(options.threads);
    Ok((32_768 / mean.max(1)).clamp(1, share as u64) as usize)
}

fn spawn(name: &str, work: &Arc<Work>, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let shared = work.clone();
    let guarded = move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        if let Err(panic) = outcome {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            shared.give_up(format!("a thread panicked: {}", words.unwrap_or("no reason given")));
        }
    };
    std::thread::Builder::new().name(name.to_string()).spawn(guarded).map_err(|e| {
        work.stop();
        Error::io("start", format!("thread {name}"), e)
    })
}
