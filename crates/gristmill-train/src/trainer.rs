//! The training loop: batches in, steps made, feedback given, rows of figures out.
//!
//! The loop is the caller's thread. Between any two batches it can be stopped, and what it then writes as a
//! checkpoint is all that the rest depends on: a resumed training ends with the same bits as one that was never
//! stopped, because the loader's order, the model's start and every random choice are functions of seeds.
//!
//! Deliberately not here: printing (the caller watches), opening data sets, and choosing samples (the loader's).

pub(crate) mod evaluate;
pub(crate) mod input;
pub(crate) mod pace;
mod row;
mod state;
mod step;

pub use row::EpochRow;

use crate::loss::Facts;
use crate::model::Mlp;
use crate::optimiser::{Schedule, Sgd};
use gristmill_node::loader::{BadSample, Epoch, Loader, Polled};
use gristmill_node::report::EpochReport;
use gristmill_node::selection::SelectionReport;
use gristmill_node::{Error, Result};
use input::Inputs;
use pace::Pace;
use row::{Cost, Sums, Watch};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use step::Pending;

/// How long a wish to stop may go unheard.
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// The most weights that a model may have.
const WEIGHTS_MAX: usize = 1 << 28;
/// How much narrower the layers of a small model are that selection goes by, and how narrow they may become.
const PROXY_PART: usize = 8;
const PROXY_WIDTH_MIN: usize = 8;

/// What is trained, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainOptions {
    /// Widths of the hidden layers, from the input on.
    pub hidden: Vec<usize>,
    /// Epochs.
    pub epochs: u64,
    /// The learning rate at its highest.
    pub rate: f32,
    /// How it falls.
    pub schedule: Schedule,
    /// Momentum and weight decay.
    pub sgd: Sgd,
    /// Where the initial weights come from.
    pub seed: u64,
}

impl TrainOptions {
    pub(crate) fn check(&self, inputs: usize, classes: usize) -> Result<()> {
        let positive = |value: f32| value.is_finite() && value > 0.0;
        let share = |value: f32| (0.0..1.0).contains(&value);
        if self.epochs == 0 {
            return Err(Error::config("0 epochs train nothing").hint("ask for at least 1"));
        }
        if !positive(self.rate) {
            return Err(Error::config(format!("{} is not a learning rate", self.rate)).hint("0.1 is a start"));
        }
        if !share(self.sgd.momentum) || !share(self.sgd.weight_decay) {
            let Sgd { momentum, weight_decay } = self.sgd;
            let message =
                format!("momentum {momentum} and weight decay {weight_decay} must be from 0 to below 1");
            return Err(Error::config(message));
        }
        let mut weights = 0_usize;
        let mut width = inputs;
        for &next in self.hidden.iter().chain([&classes]) {
            let more = width.checked_mul(next).filter(|_| next > 0);
            weights = more.and_then(|more| weights.checked_add(more)).unwrap_or(usize::MAX);
            width = next;
        }
        if weights > WEIGHTS_MAX {
            let hidden = &self.hidden;
            return Err(Error::config(format!(
                "hidden layers {hidden:?} between {inputs} inputs and {classes} classes are no model of at most \
                 {WEIGHTS_MAX} weights"
            ))
            .hint("give every layer a width of at least 1, and smaller ones, or smaller pictures"));
        }
        Ok(())
    }
}

/// Where a training is kept while it runs.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The file. It is written after every epoch and when the training is stopped.
    pub path: PathBuf,
    /// Also after this many batches; 0 for never.
    pub every_batches: u32,
    /// What must be the same when it is resumed: names and values, in words for the user.
    pub identity: Vec<(String, String)>,
}

/// What one run of a training needs.
pub struct Run<'a> {
    /// The training data.
    pub train: &'a Loader,
    /// Data to measure accuracy on, if there is any.
    pub test: Option<&'a Loader>,
    /// Where to keep it.
    pub checkpoint: Option<&'a Checkpoint>,
    /// Asked often whether to stop at the next batch.
    pub stop: &'a dyn Fn() -> bool,
    /// Told what happens.
    pub watch: &'a mut dyn FnMut(Event<'_>) -> Result<()>,
}

/// What a watcher is told.
#[derive(Debug)]
pub enum Event<'a> {
    /// An epoch begins: its samples are selected.
    Began(&'a Epoch),
    /// What the model made of the samples of a batch.
    Learned {
        /// The samples.
        ids: &'a [u32],
        /// The loss of each.
        losses: &'a [f32],
    },
    /// A batch was trained.
    Batch(&'a Live),
    /// A bad sample was left out.
    Skipped(&'a BadSample),
    /// An epoch is over.
    Epoch(&'a EpochRow, &'a EpochReport),
}

/// How an epoch goes.
#[derive(Debug, Clone)]
pub struct Live {
    /// Which epoch, counted from 0.
    pub epoch: u64,
    /// Of how many.
    pub epochs: u64,
    /// Batches of it that are done.
    pub batch: u32,
    /// Of how many.
    pub batches: u32,
    /// The mean loss so far.
    pub loss: f64,
    /// The share that was right so far.
    pub accuracy: f64,
    /// The part of the data set that the epoch has.
    pub kept_share: f64,
    /// The part of the time that was spent waiting.
    pub wait_share: f64,
    /// Samples per second.
    pub samples_per_s: f64,
    /// Time of training so far, over all epochs.
    pub elapsed_ms: f64,
    /// What the loader measured so far.
    pub report: EpochReport,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All epochs are done.
    Finished,
    /// It was told to stop.
    Stopped,
}

/// How many numbers a sample has, and how many classes there are.
pub(crate) fn sizes(loader: &Loader) -> Result<(usize, usize)> {
    let output = loader.output().ok_or_else(|| {
        Error::config("raw bytes cannot be trained on").hint("choose a recipe with --recipe")
    })?;
    let catalog = loader.set().catalog();
    let labels = catalog.labels()?.iter().max().map_or(0, |max| *max as usize + 1);
    Ok((output.shape().iter().product(), catalog.classes().len().max(labels)))
}

/// A model in training.
#[derive(Debug)]
pub struct Trainer {
    options: TrainOptions,
    model: Mlp,
    epoch: u64,
    /// The batch of that epoch that comes next.
    batch: u32,
    sums: Sums,
    history: Vec<EpochRow>,
    phase: Phase,
    pending: Pending,
    facts: Facts,
    /// The losses of the last batch, before anything that was kept of it is trained.
    losses: Vec<f32>,
    inputs: Inputs,
    pace: Pace,
}

/// Which model is in training: the real one, or before it a small one that selection is to go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Phase {
    /// The epoch in which its training begun; its learning rate falls from there on.
    begun: u64,
    proxy: bool,
}

impl Trainer {
    /// A new model for the data of `train`.
    pub fn new(options: TrainOptions, train: &Loader) -> Result<Trainer> {
        let (inputs, classes) = sizes(train)?;
        options.check(inputs, classes)?;
        let model = Mlp::new(inputs, &options.hidden, classes, options.seed);
        Ok(Trainer {
            options,
            model,
            epoch: 0,
            batch: 0,
            sums: Sums::default(),
            history: Vec::new(),
            phase: Phase::default(),
            pending: Pending::default(),
            facts: Facts::default(),
            losses: Vec::new(),
            inputs: Inputs::default(),
            pace: Pace::default(),
        })
    }

    /// The same on a pretended accelerator that takes so many samples per second: a step lasts at least that long, the
    /// model's own time counted in.
    #[must_use]
    pub fn paced(mut self, samples_per_s: f64) -> Trainer {
        self.pace = Pace::of(samples_per_s);
        self
    }

    /// The rows of the epochs that are done.
    pub fn history(&self) -> &[EpochRow] {
        &self.history
    }

    /// The epoch and the batch that come next.
    pub fn at(&self) -> (u64, u32) {
        (self.epoch, self.batch)
    }

    /// A fingerprint of everything learned, to compare trainings by.
    pub fn fingerprint(&mut self) -> u64 {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        for part in self.model.state() {
            part.iter().for_each(|value| hash.update(&value.to_le_bytes()));
        }
        hash.digest()
    }

    /// Trains until all epochs are done or it is told to stop.
    pub fn run(&mut self, mut run: Run<'_>) -> Result<Ended> {
        if let Some(choice) = run.train.choice() {
            choice.norm(self.model.norm());
        }
        while self.epoch < self.options.epochs {
            let ended = self.one_epoch(&mut run)?;
            if let Some(checkpoint) = run.checkpoint {
                self.save(checkpoint, run.train)?;
            }
            if ended == Ended::Stopped {
                return Ok(Ended::Stopped);
            }
        }
        Ok(Ended::Finished)
    }

    /// Begins a phase with a new model.
    fn enter(&mut self, phase: Phase) {
        let (inputs, classes) = (self.model.inputs(), self.model.classes());
        let narrow = |width: usize| (width / PROXY_PART).max(PROXY_WIDTH_MIN).min(width);
        let mut hidden = self.options.hidden.clone();
        if phase.proxy {
            hidden.iter_mut().for_each(|width| *width = narrow(*width));
        }
        self.model = Mlp::new(inputs, &hidden, classes, self.options.seed);
        self.phase = phase;
    }

    fn one_epoch(&mut self, run: &mut Run<'_>) -> Result<Ended> {
        let earlier = self.sums.cost;
        let mut watch = Watch::start();
        let mut epoch = run.train.epoch(self.epoch, self.batch)?;
        watch.begun();
        (run.watch)(Event::Began(&epoch))?;
        let proxy = epoch.report().selection.is_some_and(|selection| selection.proxy);
        if self.batch == 0 && self.sums.served == 0 && proxy != self.phase.proxy {
            self.enter(Phase { begun: self.epoch, proxy });
        }
        let mut ended = self.batches(run, &mut epoch, earlier, &watch)?;
        if ended == Ended::Finished {
            self.flush(epoch.batches())?;
        }
        epoch.end();
        let report = epoch.report();
        self.sums.cost = earlier.with(&report, &watch);
        if ended == Ended::Finished && self.sums.served == 0 {
            return Err(Error::config(format!("epoch {} has no sample to train on", self.epoch))
                .hint("check the data set and the batch: with loader.drop_last a batch may be too large"));
        }
        let mut test = None;
        if let Some(loader) = run.test.filter(|_| ended == Ended::Finished) {
            test = evaluate::evaluate(&mut self.model, loader, run.stop)?;
            ended = if test.is_some() { Ended::Finished } else { Ended::Stopped };
        }
        if ended == Ended::Stopped {
            return Ok(Ended::Stopped);
        }
        let row = self.row(run.train, &report, test);
        (run.watch)(Event::Epoch(&row, &report))?;
        self.history.push(row);
        self.sums = Sums::default();
        self.epoch += 1;
        self.batch = 0;
        Ok(Ended::Finished)
    }

    /// Trains on the epoch's batches until they are over or it is told to stop.
    fn batches(
        &mut self,
        run: &mut Run<'_>,
        epoch: &mut Epoch,
        earlier: Cost,
        watch: &Watch,
    ) -> Result<Ended> {
        let stall = Duration::from_millis(run.train.options().stall_ms_max);
        let mut since = Instant::now();
        loop {
            if (run.stop)() {
                return Ok(Ended::Stopped);
            }
            match epoch.poll(SLICE)? {
                Polled::Batch(batch) => {
                    for bad in &batch.skipped {
                        (run.watch)(Event::Skipped(bad))?;
                    }
                    self.batch = batch.index;
                    let begun = Instant::now();
                    self.learn(&batch, run.train, epoch.batches())?;
                    self.pace.wait(begun, batch.len(), run.stop);
                    self.batch = batch.index + 1;
                    (run.watch)(Event::Learned { ids: &batch.ids, losses: &self.losses })?;
                    drop(batch);
                    if let Some(checkpoint) = run.checkpoint
                        && checkpoint.every_batches > 0
                        && self.batch.is_multiple_of(checkpoint.every_batches)
                    {
                        self.sums.cost = earlier.with(&epoch.report(), watch);
                        self.save(checkpoint, run.train)?;
                    }
                    (run.watch)(Event::Batch(&self.live(epoch)))?;
                    since = Instant::now();
                }
                Polled::Pending if since.elapsed() > stall => return Err(epoch.stalled()),
                Polled::Pending => {}
                Polled::Done => return Ok(Ended::Finished),
            }
        }
    }

    fn row(&self, train: &Loader, report: &EpochReport, test: Option<(f64, f64)>) -> EpochRow {
        let (loss, accuracy) = self.sums.means();
        let Cost { wall_ms, begin_ms, cpu_ms, wait, bytes, skipped, retries } = self.sums.cost;
        let (epoch, epochs) = (self.epoch - self.phase.begun, self.options.epochs - self.phase.begun);
        let factor = self.options.schedule.factor(epoch, epochs, u64::MAX - 1, 1);
        let samples = u64::from(train.set().catalog().len());
        let selection = report.selection.as_ref();
        EpochRow {
            epoch: self.epoch,
            rate: f64::from(self.options.rate * factor),
            loss,
            accuracy,
            test_loss: test.map(|(loss, _)| loss),
            test_accuracy: test.map(|(_, accuracy)| accuracy),
            samples,
            kept: selection.map_or(samples, |selection| selection.kept.into()),
            served: self.sums.served,
            trained: self.sums.trained,
            steps: self.sums.steps,
            bytes,
            wall_ms,
            begin_ms,
            elapsed_ms: self.elapsed_ms() + wall_ms,
            cpu_ms,
            wait,
            skipped,
            retries,
            proxy: self.phase.proxy,
            reason: selection.map_or(String::new(), |selection| selection.reason.clone()),
        }
    }

    fn live(&self, epoch: &Epoch) -> Live {
        let (loss, accuracy) = self.sums.means();
        let report = epoch.report();
        Live {
            epoch: self.epoch,
            epochs: self.options.epochs,
            batch: self.batch,
            batches: epoch.batches(),
            loss,
            accuracy,
            kept_share: report.selection.as_ref().map_or(1.0, SelectionReport::kept_share),
            wait_share: report.wait_share(),
            samples_per_s: report.samples_per_s,
            elapsed_ms: self.elapsed_ms() + report.wall_ms,
            report,
        }
    }

    /// Time of training until the last whole epoch.
    fn elapsed_ms(&self) -> f64 {
        self.history.last().map_or(0.0, |row| row.elapsed_ms)
    }
}
