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

mod announce;
mod batch;
mod budget;
mod check;
mod cold;
mod epoch;
mod fetch;
mod held;
mod steered;
mod swap;
mod work;
mod worker;

pub use batch::{BadSample, Batch, Data, Tensor};
pub use epoch::{Epoch, Polled};

use crate::access::Access;
use crate::dataset::DataSet;
use crate::exchange::{Driver, ExchangeSettings, Exchanger, Hold};
use crate::report::{EpochReport, WaitLedger};
use crate::selection::{Choice, Decided, Relatives, SelectionOptions, SelectionReport};
use crate::split::{Ground, SplitOptions, Splitter};
use crate::steer::{SteerOptions, Steering};
use crate::{Error, Result};
use batch::Pool;
use budget::{Budget, Demand};
use check::{check, check_samples, claim_samples, held_bytes_max, new_pipeline};
use cold::Cold;
use epoch::store_bytes;
use gristmill_core::SampleId;
use gristmill_core::exchange::LaidOut;
use gristmill_core::family::{Families, StandIns};
use gristmill_core::plan::{Plan, Shape};
use gristmill_ops::{Limits, Output, Pipeline, Recipe};
use held::Held;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use work::Work;

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
    /// Where samples are cut.
    pub split: SplitOptions,
    /// How ranks hold slices and swap parts of them; none if each may have any sample.
    pub exchange: Option<ExchangeSettings>,
    /// Which of these may be moved from epoch to epoch, to read faster.
    pub steer: SteerOptions,
}

/// What a thread, the fetcher and the consumer must know in one epoch.
#[derive(Debug, Clone)]
struct Rules {
    output: Option<Output>,
    /// Whether threads may read for themselves, and whether they do.
    can_direct: bool,
    direct: bool,
    claim_samples: usize,
    open_batches_max: usize,
    batch_bytes_max: u64,
    raw_bytes_max: u64,
    reads_in_flight: usize,
    seed: u64,
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
    /// The node that samples are asked of; without one they come from the data set itself.
    access: Option<Arc<dyn Access>>,
    /// None if nothing is to be split.
    split: Option<Arc<Splitter>>,
    /// None if this rank may have any sample.
    exchanger: Option<Arc<Exchanger>>,
    /// None where somebody else moves the messages of the exchange.
    driver: Option<Arc<Driver>>,
    /// None if every knob is pinned.
    steering: Option<Arc<Steering>>,
    /// What others decided, to tell when it changes.
    others: Mutex<steered::Others>,
}

impl Loader {
    /// A loader of `set`. Without a recipe batches hold raw bytes.
    pub fn new(set: Arc<DataSet>, recipe: Option<&Recipe>, options: LoaderOptions) -> Result<Loader> {
        check(&options, &set)?;
        let exchanger = match swap::terms(&options)? {
            Some(terms) => Some(Arc::new(Exchanger::new(Arc::clone(&set), terms)?)),
            None => None,
        };
        let slice = slice_bytes(&options, &set)?;
        let drawn = 1 + u32::from(options.selection.selection.draws());
        let samples_max = set.catalog().len().saturating_mul(drawn);
        let (threads_most, ahead_most) = steered::most(&options);
        let demand = |sample_bytes| Demand {
            memory: options.memory_bytes_max - held_bytes_max(&options),
            resident: set.resident_bytes() + slice,
            batch: options.shape.batch.min(samples_max).into(),
            sample_bytes,
            prefetch_batches: ahead_most as u64,
            threads: threads_most as u64,
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
        let can_direct = set.immediate();
        let rules = Rules {
            output,
            can_direct,
            direct: options.reads_in_flight == 0 && can_direct,
            claim_samples: claim_samples(&set, options.shape.batch, options.threads)?,
            open_batches_max: options.prefetch_batches + 1,
            batch_bytes_max: budget.batches - budget.one,
            raw_bytes_max: budget.raw,
            reads_in_flight: if options.reads_in_flight == 0 { 64 } else { options.reads_in_flight },
            seed: options.seed,
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
        let ground = Ground {
            set: set.clone(),
            recipe: recipe.cloned(),
            pipeline: pipeline.clone(),
            pixels_max: options.pixels_max,
            seed: options.seed,
            threads: options.threads,
            epochs: options.selection.epochs,
        };
        let split = Splitter::new(steered::split(&options), ground)?;
        let steering = steered::steering(&options);
        let (access, driver, others) = (None, None, Mutex::default());
        Ok(Loader {
            set,
            pipeline,
            options,
            rules,
            pool,
            choice,
            access,
            split,
            exchanger,
            driver,
            steering,
            others,
        })
    }

    /// The same, asking a node for its samples, if there is one.
    #[must_use]
    pub fn with_access(mut self, access: Option<Arc<dyn Access>>) -> Loader {
        self.rules.can_direct &= access.as_ref().is_none_or(|access| access.immediate());
        self.rules.direct &= self.rules.can_direct;
        if let (Some(choice), Some(access)) = (&self.choice, &access) {
            choice.tell(Arc::clone(access));
        }
        self.access = access;
        self
    }

    /// The node that samples are asked of, if there is one.
    pub fn access(&self) -> Option<&Arc<dyn Access>> {
        self.access.as_ref()
    }

    /// The same with near-duplicates left out or standing in for each other, as the options say.
    pub fn with_families(mut self, families: Arc<Families>) -> Result<Loader> {
        let (catalog, options) = (self.set.catalog(), &self.options);
        let (labels, sizes) = (catalog.labels()?, catalog.sizes()?);
        let relatives = Relatives {
            families,
            families_use: options.selection.families,
            held_bytes_max: held_bytes_max(options),
        };
        let choice = Choice::new(&options.selection, labels, sizes, options.seed, options.shape.world)?;
        self.choice = Some(Arc::new(choice.with_relatives(relatives, sizes)));
        Ok(self)
    }

    /// The data set.
    pub fn set(&self) -> &DataSet {
        &self.set
    }

    /// The same, to be shared: with the slice of this rank, if it has one, in front.
    pub fn shared_set(&self) -> Arc<DataSet> {
        Arc::clone(&self.set)
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
        match self.choice() {
            Some(choice) => choice.batches(self.options.shape),
            None => gristmill_core::plan::batches(self.set.catalog().len(), self.options.shape),
        }
    }

    /// The order of an epoch and this rank's part of it. With a selection this begins the epoch: what comes after
    /// the one before it is decided, and feedback about that is no longer taken.
    pub fn plan(&self, epoch: u64) -> Result<Plan> {
        Ok(self.decide(epoch)?.plan)
    }

    fn decide(&self, epoch: u64) -> Result<Decision> {
        if let Some(choice) = &self.choice {
            let owners = self.exchanger.as_ref().map(|exchanger| exchanger.owners(epoch)).transpose()?;
            let (shape, shuffle) = (self.options.shape, self.options.shuffle);
            let Decided { plan, holds, report, laid, active } =
                choice.decide_held(epoch, shape, shuffle, owners.as_deref())?;
            return Ok(Decision { plan, holds, selection: Some(report), laid, active: Some(active) });
        }
        let (plan, laid) = match &self.exchanger {
            Some(exchanger) => self.laid_out(exchanger, epoch)?,
            None => (self.all(epoch)?, LaidOut::default()),
        };
        Ok(Decision { plan, holds: StandIns::default(), selection: None, laid, active: None })
    }

    /// The plan of an epoch that has every sample.
    fn all(&self, epoch: u64) -> Result<Plan> {
        let (samples, shape) = (self.set.catalog().len(), self.options.shape);
        let plan = if self.options.shuffle {
            Plan::shuffled(samples, self.options.seed, epoch, shape)
        } else {
            Plan::in_order(samples, shape)
        };
        Ok(plan?)
    }

    /// Starts an epoch at its batch `from_batch` (0 for the beginning).
    pub fn epoch(&self, epoch: u64, from_batch: u32) -> Result<Epoch> {
        self.ready(epoch)?;
        let decided = self.told(epoch, self.decide(epoch))?;
        let Decision { mut plan, holds, selection, laid, active } = decided;
        let store_bytes_before = store_bytes(self.access.as_ref()).unwrap_or(0);
        let regions_before = self.access.as_ref().and_then(|access| access.region_hits());
        let fallbacks_before = self.access.as_ref().map_or(0, |access| access.fallbacks());
        if let Some(access) = &self.access
            && self.choice.is_none()
            && self.exchanger.is_none()
            && let Some(order) = access.order(epoch)
        {
            plan = Plan::of(order, self.options.shape)?;
        }
        if from_batch > plan.batches() {
            let batches = plan.batches();
            let error = Error::config(format!(
                "epoch {epoch} has {batches} batches; there is no batch {from_batch}"
            ))
            .hint("the data set, the batch or the number of ranks is not what it was when this was saved");
            return self.told(epoch, Err(error));
        }
        self.set.catalog().labels()?;
        let swap = self.swap(epoch, &plan, &laid, active.as_deref())?;
        let cold = match &self.access {
            Some(access) => self.announce(&**access, &plan, epoch, from_batch)?,
            None => Cold::default(),
        };
        let (setting, mut decisions) = self.steer(epoch, &plan, from_batch);
        decisions.extend(self.news(epoch, selection.as_ref(), swap.as_ref()));
        let rules = self.rules_at(setting)?;
        let split = self.splitter().map(|splitter| {
            let order = (from_batch..plan.batches()).flat_map(|batch| plan.batch(batch)).map(|id| id.0);
            splitter.threads(setting.threads);
            let (access, held) = (self.access.clone(), self.held(setting));
            splitter.begin(epoch, order.collect(), access, rules.raw_bytes_max, held)
        });
        let direct = rules.direct;
        let work = Arc::new(Work::new(
            plan,
            Held::new(holds, held_bytes_max(&self.options)),
            cold,
            split,
            rules,
            self.pool.clone(),
            from_batch,
        ));
        let mut threads = Vec::new();
        for i in 0..setting.threads {
            let kit = worker::Kit {
                work: work.clone(),
                set: self.set.clone(),
                access: self.access.clone(),
                pipeline: self.pipeline.clone(),
                epoch,
                on_bad: self.options.on_bad,
            };
            threads.push(spawn(&format!("grist-{i}"), &work, move || worker::run(&kit))?);
        }
        if !direct {
            let (shared, set, access) = (work.clone(), self.set.clone(), self.access.clone());
            threads.push(spawn("grist-fetch", &work, move || fetch::run(&shared, &set, access.as_deref()))?);
        }
        let from_memory = self.set.resident_bytes() > 0;
        let report = EpochReport {
            epoch,
            threads: setting.threads,
            reads_in_flight: if direct { 0 } else { work.rules.reads_in_flight },
            prefetch_batches: setting.ahead,
            decisions,
            from_memory,
            selection,
            ..EpochReport::default()
        };
        Ok(Epoch {
            work,
            set: self.set.clone(),
            choice: self.choice.clone(),
            store_bytes_before,
            fallbacks_before,
            regions_before,
            access: self.access.clone(),
            swap,
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
            handed: None,
            steering: self.steering.clone(),
            from_batch,
        })
    }
}

/// An epoch, decided.
struct Decision {
    plan: Plan,
    holds: StandIns,
    selection: Option<SelectionReport>,
    /// What evening out the ranks left and repeated; its order is the plan's.
    laid: LaidOut,
    /// What was selected, ascending.
    active: Option<Vec<u32>>,
}

/// What a slice that is held in memory takes.
fn slice_bytes(options: &LoaderOptions, set: &DataSet) -> Result<u64> {
    let Some(exchange) = options.exchange.as_ref().filter(|exchange| exchange.hold == Hold::Memory) else {
        return Ok(0);
    };
    let share = set.catalog().total_bytes()? as f64 / f64::from(options.shape.world);
    Ok((share * (1.0 + exchange.fraction.most())).ceil() as u64)
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
