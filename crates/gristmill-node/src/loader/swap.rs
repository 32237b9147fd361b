//! The loader of a rank that holds a slice and swaps a fraction of it in every epoch.
//!
//! The plan is laid out so that each rank trains what it holds; the exchange goes on beside it, as far as batches are
//! handed out, and is finished before the epoch counts as over. An epoch that is left early is finished when the next one
//! begins: all ranks have equally many batches, so all of them do the same.

use super::Loader;
use crate::exchange::{Driver, ExchangeReport, Exchanger, Finishing, Scene, Terms, Transport};
use crate::selection::{Choice, SelectionOptions};
use crate::{Error, Result};
use gristmill_core::exchange::{Choose, LaidOut};
use gristmill_core::plan::Plan;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often ranks that fill their slices say so.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// An exchange as one epoch sees it.
#[derive(Debug)]
pub(super) struct Swap {
    exchanger: Arc<Exchanger>,
    /// None where somebody else moves the messages.
    driver: Option<Arc<Driver>>,
    finishing: Option<Finishing>,
    finished: bool,
}

impl Swap {
    /// Notes that a batch was handed out, and tells of what went wrong meanwhile.
    pub(super) fn handed(&self, batch: u32) {
        self.exchanger.handed(batch + 1);
    }

    /// Whether the exchange has broken down, so that going on is of no use.
    pub(super) fn failed(&self) -> bool {
        !self.finished && self.driver.as_ref().is_some_and(|driver| driver.failed())
    }

    /// Finishes the exchange; whether that is done within `wait`.
    pub(super) fn finish(&mut self, wait: Duration) -> Result<bool> {
        let Some(driver) = self.driver.as_ref().filter(|_| !self.finished) else { return Ok(true) };
        let finishing = match &mut self.finishing {
            Some(finishing) => finishing,
            none => none.insert(driver.finish()?),
        };
        let Some(outcome) = finishing.poll(wait) else { return Ok(false) };
        self.finished = true;
        outcome.map(|_| true)
    }

    pub(super) fn report(&self, epoch: u64) -> Option<ExchangeReport> {
        self.exchanger.report(epoch)
    }
}

/// What the exchange of a loader must know; none if there is none.
pub(super) fn terms(options: &super::LoaderOptions) -> Result<Option<Terms>> {
    let Some(settings) = options.exchange.clone() else { return Ok(None) };
    let plain = options.selection
        == SelectionOptions {
            epochs: options.selection.epochs,
            class_floor: options.selection.class_floor,
            probe_share: options.selection.probe_share,
            ..SelectionOptions::default()
        };
    if settings.choose.by_score() && !options.selection.selection.needs_feedback() {
        let choose = Choose::NAMES.iter().find(|(_, choose)| *choose == settings.choose);
        let name = choose.map_or("importance", |(name, _)| name);
        return Err(Error::config(format!(
            "exchange.choose = \"{name}\" needs scores, but no selection gives them"
        ))
        .hint("set selection.kind as well, or choose uniform or class"));
    }
    let selection = if plain { String::new() } else { format!("{:?}", options.selection) };
    Ok(Some(Terms {
        settings,
        seed: options.seed,
        shape: options.shape,
        shuffle: options.shuffle,
        selection,
    }))
}

impl Loader {
    /// The same, exchanging over this transport: shakes hands with all ranks now.
    pub fn with_transport(mut self, transport: Box<dyn Transport>) -> Result<Loader> {
        let Some(exchanger) = &self.exchanger else {
            return Err(
                Error::config("a transport is of no use without an exchange").hint("set exchange.fraction")
            );
        };
        self.driver = Some(Arc::new(Driver::start(Arc::clone(exchanger), transport)?));
        Ok(self)
    }

    /// This rank's exchange, if there is one: for programs that move the messages themselves.
    pub fn exchanger(&self) -> Option<&Arc<Exchanger>> {
        self.exchanger.as_ref()
    }

    /// The thread that moves the messages, if there is one.
    pub fn driver(&self) -> Option<&Arc<Driver>> {
        self.driver.as_ref()
    }

    /// Makes the slice ready for an epoch: what is left of the one before is finished, what ranks heard is shared, what is
    /// missing is read.
    pub(super) fn ready(&self, epoch: u64) -> Result<()> {
        let Some(exchanger) = &self.exchanger else { return Ok(()) };
        if let Some(driver) = &self.driver {
            if exchanger.running().is_some_and(|runs| runs != epoch) {
                let start = Instant::now();
                driver.finish()?.wait()?;
                // Its report is told already.
                exchanger.delayed(start.elapsed());
            }
            if let Some(choice) = self.choice.as_deref().filter(|choice| waits(choice, epoch)) {
                choice.merge(&driver.gather(choice.pending())?)?;
            }
        }
        let Some(driver) = &self.driver else { return exchanger.fill(epoch, &mut |_| true).map(drop) };
        let filled = fill(exchanger, driver, epoch)?;
        self.told(epoch, filled)
    }

    /// What came of an attempt to begin an epoch; if it failed, all ranks are told instead of waiting for this one.
    pub(super) fn told<T>(&self, epoch: u64, outcome: Result<T>) -> Result<T> {
        if let (Err(error), Some(exchanger), Some(driver)) = (&outcome, &self.exchanger, &self.driver) {
            exchanger.begun(&driver.gather(exchanger.refusal(epoch, &error.to_string()))?)?;
        }
        outcome
    }

    /// The plan of an epoch that trains every sample where it is held.
    pub(super) fn laid_out(&self, exchanger: &Exchanger, epoch: u64) -> Result<(Plan, LaidOut)> {
        let (options, owners) = (&self.options, exchanger.owners(epoch)?);
        let mut laid = owners.lay_out(options.seed, epoch, options.shape, options.shuffle, None);
        let plan = Plan::of(std::mem::take(&mut laid.order), options.shape)?;
        Ok((if laid.again > 0 { plan.with_repeats() } else { plan }, laid))
    }

    /// Begins the exchange of an epoch, if there is one.
    pub(super) fn swap(
        &self,
        epoch: u64,
        plan: &Plan,
        laid: &LaidOut,
        active: Option<&[u32]>,
    ) -> Result<Option<Swap>> {
        let Some(exchanger) = &self.exchanger else { return Ok(None) };
        let wants = self.options.exchange.as_ref().is_some_and(|settings| settings.choose.by_score());
        let standing = self.choice.as_ref().filter(|_| wants).map(|choice| choice.standing());
        let scene = Scene {
            batches: plan.batches(),
            active,
            importance: standing.as_ref().map_or(&[], |standing| &standing.score),
            left: &laid.left,
            again: laid.again,
        };
        self.told(epoch, exchanger.begin(epoch, scene))?;
        if let Some(driver) = &self.driver {
            exchanger.begun(&driver.gather(exchanger.vow())?)?;
        }
        let (exchanger, driver) = (Arc::clone(exchanger), self.driver.clone());
        Ok(Some(Swap { exchanger, driver, finishing: None, finished: false }))
    }
}

/// Reads what the slice lacks. The ranks tell each other meanwhile that they are at it, so that nobody is taken for lost
/// who has more to read than the others. The outer error is that of speaking, the inner one that of reading.
fn fill(exchanger: &Exchanger, driver: &Driver, epoch: u64) -> Result<Result<()>> {
    let given_up = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        let (given_up, work) = (&given_up, std::thread::Builder::new().name("grist-fill".into()));
        let reading = work.spawn_scoped(scope, move || {
            let filled = exchanger.fill(epoch, &mut |_| !given_up.load(Relaxed)).map(drop);
            // Nobody listens any more when speaking failed.
            let _ = tell.send(filled);
        });
        reading.map_err(|e| Error::io("start", "thread grist-fill", e))?;
        let mut filled = None;
        let tell_every = TELL_EVERY.min(exchanger.patience() / 4);
        loop {
            filled = filled.or_else(|| match told.recv_timeout(tell_every) {
                Ok(filled) => Some(filled),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Err(Error::config("filling the slice panicked"))),
            });
            let said = driver.gather(vec![u8::from(filled.is_some())]);
            let said = said.inspect_err(|_| given_up.store(true, Relaxed))?;
            if said.iter().all(|word| word.first() == Some(&1)) {
                return Ok(filled.unwrap_or(Ok(())));
            }
        }
    })
}

/// Whether the ranks must share what they heard before `epoch` can begin.
fn waits(choice: &Choice, epoch: u64) -> bool {
    choice.shares() && !choice.shared() && choice.epoch().is_some_and(|begun| begun < epoch)
}
