//! The split of one epoch while it runs: what to wish for each sample, and what came of it.
//!
//! A first epoch starts unsplit. Once some samples were measured a thread of its own learns how fast the node is, and if
//! the epoch is a long one, decides for the rest of it without waiting for its end.

use super::begun::Trial;
use super::beside::{Beside, Clocks, Done};
use super::measured::Measured;
use super::report::SplitReport;
use super::splitter::Splitter;
use super::{Held, Shortfall, Staged, Wish};
use crate::access::Access;
use crate::client::Client;
use gristmill_core::SampleId;
use gristmill_ops::{Draw, Stage};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

/// Pictures that must be seen before the node is asked for some at every stage.
const SEEN_LEAST: u64 = 64;
/// The most bytes of all pixels of a sample whose picture was not seen.
const DECODED_BYTES_MAX: u64 = 64 << 20;
/// What a form may have beside what is known of it.
const HEADER_BYTES: u64 = 64;
/// How often the thread of a long first epoch looks whether enough was measured.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Beside the stage of a sample that is here: it is to come prepared all the same.
pub(super) const PAST: u8 = 0x80;

/// The stage of every sample.
#[derive(Debug)]
pub(super) enum Table {
    Raw,
    All(Stage),
    /// By id.
    Each(Vec<u8>),
}

impl Table {
    fn stage(&self, id: SampleId) -> Stage {
        match self {
            Table::Raw => Stage::Raw,
            Table::All(stage) => *stage,
            Table::Each(stages) => {
                let stage = stages.get(id.0 as usize).and_then(|stage| Stage::from_u8(*stage & !PAST));
                stage.unwrap_or(Stage::Raw)
            }
        }
    }

    fn is_past(&self, id: SampleId) -> bool {
        matches!(self, Table::Each(stages) if stages.get(id.0 as usize).is_some_and(|stage| stage & PAST != 0))
    }
}

/// The split of one epoch.
#[derive(Debug)]
pub(crate) struct Running {
    splitter: Arc<Splitter>,
    epoch: u64,
    order: Vec<u32>,
    access: Option<Arc<dyn Access>>,
    /// The node that runs ops; none if everything comes raw.
    client: Option<Client>,
    table: RwLock<Table>,
    report: Mutex<SplitReport>,
    measured: Measured,
    /// Samples that were asked for and that were finished so far.
    asked: AtomicU64,
    finished: AtomicU64,
    /// A split that began inside this epoch, and the sample that its trial begins with.
    trial: Mutex<Option<Trial>>,
    trial_at: AtomicU64,
    /// What it took before that, per sample; and how many times longer it is to take than later ones.
    unsplit_s: Mutex<Option<f64>>,
    once: f64,
    calibration_ns: u64,
    started: Instant,
    /// CPU time of ops here and of the consumer, and the clocks when it began.
    local_ns: AtomicU64,
    consumer_ns: AtomicU64,
    /// Samples that were here and came prepared all the same.
    passed: AtomicU64,
    clocks: Clocks,
    /// Whether the thread that learns about the node was started.
    learning: AtomicBool,
    over: AtomicBool,
    raw_bytes_max: u64,
    held: Held,
}

impl Running {
    #[expect(clippy::too_many_arguments, reason = "one caller, which has them all at hand")]
    pub(super) fn new(
        splitter: Arc<Splitter>,
        epoch: u64,
        order: Vec<u32>,
        access: Option<Arc<dyn Access>>,
        client: Option<Client>,
        table: Table,
        report: SplitReport,
        raw_bytes_max: u64,
        held: Held,
    ) -> Running {
        // What is decided already needs no thread.
        let decided = !matches!(table, Table::Raw) || client.is_none();
        let (once, calibration_ns) = (report.once, splitter.calibration_ns.load(Relaxed));
        Running {
            splitter,
            epoch,
            order,
            access,
            client,
            table: RwLock::new(table),
            report: Mutex::new(report),
            measured: Measured::new(),
            asked: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            trial: Mutex::new(None),
            trial_at: AtomicU64::new(u64::MAX),
            unsplit_s: Mutex::new(None),
            once,
            calibration_ns,
            started: Instant::now(),
            local_ns: AtomicU64::new(0),
            consumer_ns: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            clocks: Clocks::read(),
            learning: AtomicBool::new(decided),
            over: AtomicBool::new(false),
            raw_bytes_max,
            held,
        }
    }

    /// How far a sample is to have come, and what that may take of the memory for samples on their way.
    pub(crate) fn wish(&self, id: SampleId, seed: u64) -> Option<Wish> {
        let stage = self.table.read().unwrap_or_else(PoisonError::into_inner).stage(id);
        self.client.as_ref().filter(|_| stage != Stage::Raw)?;
        let bytes_max = self.splitter.bytes_max(stage, id);
        let bytes_max = bytes_max.min(u32::try_from(self.raw_bytes_max).unwrap_or(u32::MAX));
        Some(Wish { stage, epoch: self.epoch, seed, bytes_max })
    }

    /// Whether a sample that is here is to come prepared all the same.
    pub(crate) fn is_past(&self, id: SampleId) -> bool {
        self.table.read().unwrap_or_else(PoisonError::into_inner).is_past(id)
    }

    /// One did.
    pub(crate) fn passed(&self) {
        self.passed.fetch_add(1, Relaxed);
    }

    /// What a sample may take of the memory for samples on their way.
    pub(crate) fn cost(&self, id: SampleId) -> u64 {
        let raw = u64::from(self.splitter.raw_bytes(id));
        self.wish(id, 0).map_or(raw, |wish| raw.max(wish.bytes_max.into()))
    }

    /// A sample is asked for.
    pub(crate) fn asked(&self) {
        self.asked.fetch_add(1, Relaxed);
    }

    /// A sample came while others were under way; `wanted` if a stage was wished for.
    pub(crate) fn came(&self, staged: &Staged, wanted: bool, under_way: usize) {
        let tier = staged.served.tier;
        let across = match &self.access {
            Some(access) => access.is_across(tier),
            None => true,
        };
        if across && staged.shortfall != Shortfall::Away {
            let raw_bytes = self.splitter.raw_bytes(staged.served.id).into();
            let beside = self.splitter.beside_bytes.swap(0, Relaxed);
            self.measured.came(staged, wanted, raw_bytes, under_way, beside);
        } else {
            self.measured.fell_short(staged.shortfall);
        }
    }

    /// So many are under way, the one that is asked for now included.
    pub(crate) fn under_way(&self, reads: usize) {
        if self.measured.asked(reads) {
            // What came beside the epoch before that came in time that is not counted.
            self.splitter.beside_bytes.store(0, Relaxed);
        }
    }

    /// Nothing was under way until now.
    pub(crate) fn idle(&self) {
        self.measured.idle();
    }

    /// What the node sent could not be finished.
    pub(crate) fn damaged(&self) {
        self.measured.fell_short(Shortfall::Damaged);
    }

    /// The consumer had a batch of so many samples for so long, and worked on it for so much of its CPU time.
    pub(crate) fn consumed(&self, samples: u64, took: Duration, cpu: Duration) {
        self.measured.consumed(samples, took);
        self.consumer_ns.fetch_add(cpu.as_nanos() as u64, Relaxed);
    }

    /// A sample was finished here in so much CPU time.
    pub(crate) fn finished(
        self: &Arc<Running>,
        draw: Draw,
        stage: Stage,
        bytes: &[u8],
        upstream_ns: u64,
        local_ns: u64,
    ) {
        if self.client.is_none() {
            return;
        }
        self.local_ns.fetch_add(local_ns, Relaxed);
        let finished = self.finished.fetch_add(1, Relaxed) + 1;
        if finished >= self.trial_at.load(Relaxed) && self.trial_at.swap(u64::MAX, Relaxed) != u64::MAX {
            let mut trial = self.trial.lock().unwrap_or_else(PoisonError::into_inner);
            trial.iter_mut().for_each(|trial| trial.finished(finished, Instant::now()));
        }
        let seconds = local_ns as f64 / 1e9;
        if stage == Stage::Raw {
            self.splitter.finished_raw(draw, bytes, seconds);
        } else {
            self.splitter.finished_staged(draw, stage, bytes.len(), upstream_ns as f64 / 1e9, seconds);
        }
        if !self.learning.load(Relaxed) {
            let enough = SEEN_LEAST.min(self.order.len() as u64 / 2).max(1);
            if self.splitter.lock().pictures.seen() >= enough && !self.learning.swap(true, Relaxed) {
                self.learn_beside();
            }
        }
    }

    /// Starts the thread that learns how fast the node is. If none can be started the next epoch does it.
    fn learn_beside(self: &Arc<Running>) {
        let Some(client) = self.client.clone() else { return };
        let (splitter, epoch, this) = (Arc::clone(&self.splitter), self.epoch, Arc::downgrade(self));
        let samples = self.order.len();
        let long = self.held != Held::Back && samples as u64 > 2 * splitter.enough(samples);
        let learn = move || {
            let learnt = splitter.calibrate_now(&client, epoch);
            if learnt.is_ok() && long {
                decide_for_the_rest(&this, &client);
            }
        };
        let _ = std::thread::Builder::new().name("grist-split".into()).spawn(learn);
    }

    /// Ends the epoch and takes what it measured.
    pub(crate) fn end(&self) {
        if self.over.swap(true, Relaxed) {
            return;
        }
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let tight = report.predicted.is_none_or(|predicted| {
            predicted.link_s >= predicted.upstream_s.max(predicted.local_s).max(predicted.accelerator_s)
        });
        drop(report);
        let measured = &self.measured;
        if self.asked.load(Relaxed) >= self.order.len() as u64 && !self.order.is_empty() {
            let mut trial = self.trial.lock().unwrap_or_else(PoisonError::into_inner);
            trial.iter_mut().for_each(|trial| trial.ended(self.finished.load(Relaxed), Instant::now()));
            drop(trial);
            let each_s = self.started.elapsed().as_secs_f64() / self.order.len() as f64;
            let unsplit_s = *self.unsplit_s.lock().unwrap_or_else(PoisonError::into_inner);
            let undo = &mut self.splitter.lock().undo;
            match unsplit_s {
                // A part of it was split: what counts is what a sample took without.
                Some(unsplit_s) => undo.took(self.epoch, unsplit_s, false),
                // What is done once is not held against it.
                None if measured.wanted() > 0 => undo.took(self.epoch, each_s / self.once.max(1.0), true),
                None => undo.took(self.epoch, each_s, false),
            }
        }
        self.splitter.learn(measured.link(), tight, measured.accelerator_samples_per_s());
        self.splitter.learn_beside(self.beside());
    }

    /// What the machine did beside ops.
    fn beside(&self) -> Option<Beside> {
        let (upstream_s, bytes) = self.measured.moved();
        let seconds = |ns: &AtomicU64| ns.load(Relaxed) as f64 / 1e9;
        let calibration_ns = self.splitter.calibration_ns.load(Relaxed) - self.calibration_ns;
        let ops_s = seconds(&self.local_ns) + upstream_s + calibration_ns as f64 / 1e9;
        self.clocks.beside(Done {
            ops_s,
            consumer_s: seconds(&self.consumer_ns),
            samples: self.measured.consumed_samples(),
            bytes,
        })
    }

    /// What was done so far, in an epoch that took so long.
    pub(crate) fn report(&self, wall_s: f64) -> SplitReport {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.measured.fill(&mut report);
        report.measured_s = wall_s;
        report.begun = self.trial.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Trial::told);
        report.past = self.passed.load(Relaxed);
        report.profiled = self.splitter.profiled();
        report.calibration_bytes = self.splitter.lock().calibration_bytes;
        report
    }

    /// Decides for what was not asked for yet; none if the epoch is over or nothing can be said.
    fn redecide(&self, client: &Client) -> Option<()> {
        let ready = client.ready().ok()?;
        if self.splitter.may_undo() && self.splitter.lock().undo.bars(self.epoch).is_some() {
            return None;
        }
        let finished = self.finished.load(Relaxed);
        let taken_s = self.started.elapsed().as_secs_f64() / finished.max(1) as f64;
        let (link, accelerator) = (self.measured.link(), self.measured.accelerator_samples_per_s());
        // What is asked for from now on says nothing of how fast the link is.
        self.splitter.learn(link, true, None);
        self.splitter.learn_beside(self.beside());
        let link = self.splitter.lock().link();
        let resources = self.splitter.resources(link, accelerator, ready)?;
        let asked = self.asked.load(Relaxed);
        let rest = self.order.get(asked as usize..)?;
        let expected = self.access.as_ref().map(|access| access.expects(rest));
        let chosen = self.splitter.choose(self.epoch, rest, expected.as_deref(), resources).ok()?;
        let trial = Trial::new(&chosen.decided, asked, rest.len() as u64, taken_s);
        if self.over.load(Relaxed) || self.held == Held::UntilItPays && trial.is_none() {
            return None;
        }
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.tell(&mut report, self.started.elapsed().as_secs_f64());
        report.reason = format!("after {} samples: {}", self.order.len() - rest.len(), report.reason);
        drop(report);
        *self.unsplit_s.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken_s);
        if self.held == Held::UntilItPays {
            let from = trial.as_ref().map_or(u64::MAX, Trial::from);
            *self.trial.lock().unwrap_or_else(PoisonError::into_inner) = trial;
            self.trial_at.store(from, Relaxed);
        }
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = chosen.table;
        Some(())
    }
}

/// Waits until enough of a long first epoch was measured, and decides for the rest of it.
fn decide_for_the_rest(running: &Weak<Running>, client: &Client) {
    while let Some(running) = running.upgrade().filter(|running| !running.over.load(Relaxed)) {
        let enough = running.splitter.enough(running.order.len());
        let measured = running.finished.load(Relaxed) >= enough;
        if measured && running.splitter.knows_enough(enough) && running.splitter.is_calibrated().is_ok() {
            running.redecide(client);
            return;
        }
        drop(running);
        std::thread::sleep(LOOK_EVERY);
    }
}

impl Splitter {
    /// The most bytes that a sample may have at a stage.
    pub(super) fn bytes_max(&self, stage: Stage, id: SampleId) -> u32 {
        let raw = u64::from(self.raw_bytes(id));
        let most = match (stage, &self.pipeline) {
            (Stage::Raw | Stage::Cut | Stage::Packed, _) | (_, None) => raw,
            (Stage::Cropped | Stage::Finished, Some(pipeline)) => {
                pipeline.stage_bytes(stage, 0, 0).unwrap_or(raw) + HEADER_BYTES
            }
            (Stage::Lossy, Some(pipeline)) => {
                pipeline.stage_bytes(Stage::Cropped, 0, 0).unwrap_or(raw) + HEADER_BYTES
            }
            (Stage::Decoded, Some(pipeline)) => {
                let guard = self.lock();
                let facts = guard.pictures.of(id, raw as u32);
                let known = guard.pictures.knows(id);
                drop(guard);
                let bytes = pipeline.stage_bytes(stage, facts.width, facts.height).filter(|_| known);
                bytes.unwrap_or(DECODED_BYTES_MAX) + HEADER_BYTES
            }
        };
        u32::try_from(most).unwrap_or(u32::MAX)
    }
}
