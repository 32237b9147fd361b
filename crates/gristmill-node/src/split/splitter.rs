//! What a loader knows about the split from epoch to epoch: pictures, the profile, how fast things are.
//!
//! Before an epoch it sees whether there is a node that runs the recipe's ops, learns how fast that node is
//! (`calibrate`), and decides (`choose`). Whatever is missing for that is no error: the epoch then runs unsplit, and its
//! report says why.

use super::beside::Beside;
use super::facts::{Pictures, Pixels};
use super::link::Rate;
use super::running::{Running, Table};
use super::strata::Strata;
use super::undo::Undo;
use super::{Expected, Held, SplitMode, SplitOptions, SplitReport};
use crate::access::Access;
use crate::client::{Address, Client, Ready};
use crate::cores;
use crate::dataset::DataSet;
use crate::serve::ServeOptions;
use crate::steer::WhatIf;
use crate::{Error, Result};
use futures::executor::block_on;
use gristmill_core::split::profile::{MEASURED_MIN, Profile};
use gristmill_core::split::{Resources, SplitPolicy, Times, changed};
use gristmill_ops::{Limits, Pipeline, Recipe, Stage};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an epoch waits at most for a calibration that is under way; it then runs unsplit.
const CALIBRATION_WAIT: Duration = Duration::from_secs(3);
/// Of cores on which a node, a loader and a model wait for each other, what is used: of nine epochs that were to be bound by
/// them the middle one took 13 % longer than if all of them had been.
const USED: f64 = 0.9;
/// The part of an epoch, and the least, that is measured before the rest of it is decided.
const PROFILE_PART: u64 = 8;
const PROFILE_LEAST: u64 = 256;
/// Stages of which decoding is nearly all that they take.
const DECODED: [Stage; 4] = [Stage::Cropped, Stage::Packed, Stage::Finished, Stage::Lossy];
/// The part of the profile that must be of each of eight sizes.
const STRATUM_PART: u64 = 32;
/// The most samples of which it is thought through what a split would come to.
const WHAT_IF_SAMPLES: usize = 4_096;

/// Decides where samples are cut, epoch after epoch.
#[derive(Debug)]
pub(crate) struct Splitter {
    pub(super) options: SplitOptions,
    pub(super) set: Arc<DataSet>,
    recipe: Option<Recipe>,
    pub(super) pipeline: Option<Arc<Pipeline>>,
    pixels_max: u64,
    pub(super) seed: u64,
    pub(super) epochs: Option<u32>,
    state: Mutex<State>,
    /// Rings when a calibration ends.
    calibrated: Condvar,
    /// Bytes that came over the link beside an epoch and were not counted to its rate yet.
    pub(super) beside_bytes: AtomicU64,
    /// CPU time of the ops, here and on the node, of learning how fast the node is.
    pub(super) calibration_ns: AtomicU64,
}

/// What changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) pictures: Pictures,
    /// What the node keeps of them.
    pub(super) pixels: Pixels,
    pub(super) strata: Strata,
    pub(super) profile: Profile,
    /// Samples whose pictures are known, for the calibration to pick from.
    pub(super) seen: Vec<u32>,
    pub(super) calibration: Calibration,
    pub(super) calibration_bytes: u64,
    pub(super) link_rate: Option<Rate>,
    /// The same as somebody saw it who looked, for as long as no epoch kept it busy.
    link_looked_at: Option<f64>,
    pub(super) accelerator_samples_per_s: Option<f64>,
    /// With what it was decided last, and for how many samples.
    decided: Option<(Resources, u64)>,
    /// Whether splitting made epochs longer.
    pub(super) undo: Undo,
    /// Whether the node's ops take the cores of this machine.
    pub(super) same_machine: bool,
    /// Cores that finish samples here.
    local_cores: f64,
    /// What this machine does beside ops, for where the node is on it, too.
    pub(super) beside: Option<Beside>,
}

/// Whether it is known how fast the node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Calibration {
    Not,
    UnderWay,
    Done,
    Failed(String),
}

impl State {
    /// Bytes per second of the link, if anybody knows.
    pub(super) fn link(&self) -> Option<f64> {
        self.link_rate.map(|rate| rate.bytes_per_s).or(self.link_looked_at)
    }

    /// What is left of the cores that threads can use, where the node is on this machine. Published policies count what
    /// a sample takes beside its ops as cores that are gone.
    fn cores_left(&self, threads_cores: f64, ours: bool) -> f64 {
        let beside = self.beside.filter(|_| self.same_machine);
        let others = beside.map(|beside| if ours { beside.cores } else { beside.all_cores });
        let left = cores::left(threads_cores, cores::all() as f64, others);
        if ours && self.same_machine { left * USED } else { left }
    }

    /// CPU seconds of this machine's cores for a byte that crosses the link, and for training a sample.
    pub(super) fn beside_s(&self) -> [f64; 2] {
        self.beside
            .filter(|_| self.same_machine)
            .map_or([0.0; 2], |beside| [beside.per_byte_s, beside.step_cpu_s])
    }
}

/// The cores that so many threads can use.
fn cores_of(threads: usize) -> f64 {
    threads.min(cores::all()) as f64
}

/// What a loader hands over.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) set: Arc<DataSet>,
    pub(crate) recipe: Option<Recipe>,
    pub(crate) pipeline: Option<Arc<Pipeline>>,
    pub(crate) pixels_max: u64,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// How many epochs there will be, if that is known.
    pub(crate) epochs: Option<u32>,
}

impl Splitter {
    /// None if nothing is to be split. Rates that cannot be are an error.
    pub(crate) fn new(options: SplitOptions, ground: Ground) -> Result<Option<Arc<Splitter>>> {
        if options.mode == SplitMode::None {
            return Ok(None);
        }
        let rates = [
            ("split.link_bytes_per_s", options.link_bytes_per_s),
            ("split.accelerator_samples_per_s", options.accelerator_samples_per_s),
            ("split.local_cores", options.local_cores),
        ];
        for (name, rate) in rates {
            if let Some(rate) = rate.filter(|rate| rate.is_nan() || *rate <= 0.0) {
                return Err(Error::config(format!("{name} is {rate}; it must be above 0"))
                    .hint("leave it out and it is measured"));
            }
        }
        if let Some(cores) = options.upstream_cores.filter(|cores| cores.is_nan() || *cores < 0.0) {
            return Err(Error::config(format!("split.upstream_cores is {cores}; it must be 0 or more")));
        }
        let Ground { set, recipe, pipeline, pixels_max, seed, threads, epochs } = ground;
        let state = State {
            pictures: Pictures::default(),
            // A node that was given more or less says so by how long pictures take that come again.
            pixels: Pixels::new(ServeOptions::default().op_pixels_bytes_max),
            strata: Strata::new(set.catalog().sizes()?),
            profile: Profile::new(Stage::Raw as u8).alike(&DECODED.map(|stage| stage as u8)),
            seen: Vec::new(),
            calibration: Calibration::Not,
            calibration_bytes: 0,
            link_rate: None,
            link_looked_at: None,
            undo: Undo::default(),
            accelerator_samples_per_s: None,
            decided: None,
            same_machine: false,
            local_cores: cores_of(threads),
            beside: None,
        };
        Ok(Some(Arc::new(Splitter {
            options,
            set,
            recipe,
            pipeline,
            pixels_max,
            seed,
            epochs,
            state: Mutex::new(state),
            calibrated: Condvar::new(),
            beside_bytes: AtomicU64::new(0),
            calibration_ns: AtomicU64::new(0),
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // What is noted under the lock is plain sums; one that is half noted does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The split of an epoch over these samples, which are asked for in this order. One that is held back measures what it
    /// would come to, and asks for nothing.
    pub(crate) fn begin(
        self: &Arc<Splitter>,
        epoch: u64,
        order: Vec<u32>,
        access: Option<Arc<dyn Access>>,
        raw_bytes_max: u64,
        held: Held,
    ) -> Arc<Running> {
        let mut report =
            SplitReport { mode: self.options.mode.name(), policy: "none".into(), ..SplitReport::default() };
        self.lock().profile.fade();
        let offload = self.offload(access.as_ref());
        let mut table = Table::Raw;
        let mut client = None;
        match self.ready(offload.as_ref()) {
            Err(why) => report.reason = why,
            Ok((node, ready)) => {
                client = Some(node.clone());
                match held {
                    Held::Back => report.reason = "the steering sees no need of it".into(),
                    Held::UntilItPays => report.reason = "it begins unsplit and is measured".into(),
                    Held::No => match self.table(epoch, &order, access.as_deref(), ready, &mut report) {
                        Ok(decided) => table = decided,
                        Err(why) => report.reason = why,
                    },
                }
            }
        }
        Arc::new(Running::new(
            Arc::clone(self),
            epoch,
            order,
            access,
            client,
            table,
            report,
            raw_bytes_max,
            held,
        ))
    }

    /// The node behind the loader, if there is one.
    fn offload(&self, access: Option<&Arc<dyn Access>>) -> Option<Client> {
        access.map_or_else(
            || self.set.upstream().map(|upstream| upstream.client().clone()),
            |access| access.offload().cloned(),
        )
    }

    /// Threads that finish samples from now on.
    pub(crate) fn threads(&self, threads: usize) {
        self.lock().local_cores = cores_of(threads);
    }

    /// What samples come to raw and as `best` would cut them, on average over some of an epoch, with so many threads: in the
    /// next epoch and in later ones. None as long as too little was measured.
    pub(crate) fn what_if(
        &self,
        epoch: u64,
        order: &[u32],
        access: Option<&Arc<dyn Access>>,
        threads: usize,
        link: Option<f64>,
    ) -> Option<[WhatIf; 2]> {
        let offload = self.offload(access);
        let (_, ready) = self.ready(offload.as_ref()).ok()?;
        if self.profiled() < MEASURED_MIN {
            return None;
        }
        self.is_calibrated().ok()?;
        if self.may_undo() && self.lock().undo.bars(epoch).is_some() {
            return None;
        }
        // What is decided now must be decided so when the epoch begins, though no epoch kept the link busy.
        let link = {
            let mut state = self.lock();
            state.link_looked_at = link.or(state.link_looked_at);
            state.link()
        };
        let mut resources = self.resources(link, None, ready)?;
        let left = || self.lock().cores_left(cores_of(threads), self.is_ours());
        resources.local_cores = self.options.local_cores.unwrap_or_else(left);
        let some: Vec<u32> =
            order.iter().step_by(order.len().div_ceil(WHAT_IF_SAMPLES).max(1)).copied().collect();
        let (_, decided) = self.decided(epoch, &some, None, &resources).ok()?;
        let (before, samples) = (decided.before, some.len() as f64);
        // On one machine the decision counts what the node takes as taken here.
        let state = self.lock();
        let same_machine = state.same_machine;
        // As it was decided: published policies know of nothing beside the ops.
        let [per_byte_s, step_cpu_s] = if self.is_ours() { state.beside_s() } else { [0.0; 2] };
        drop(state);
        let of = |after: Times| {
            let upstream_s = after.upstream_s * resources.upstream_cores / samples;
            let counted_s = if same_machine { upstream_s } else { 0.0 };
            let bytes = [before, after].map(|times| times.link_s * resources.link_bytes_per_s / samples);
            let local_s = |local_s: f64, counted_s: f64, bytes: f64| {
                let beside_s = counted_s + per_byte_s * bytes + step_cpu_s;
                (local_s * resources.local_cores / samples - beside_s).max(1e-9)
            };
            WhatIf {
                upstream_s,
                same_machine,
                per_byte_s,
                step_cpu_s,
                bytes,
                local_s: [
                    local_s(before.local_s, 0.0, bytes[0]),
                    local_s(after.local_s, counted_s, bytes[1]),
                ],
                upstream_per_s: samples / after.upstream_s,
            }
        };
        Some([of(decided.after), of(decided.lasting)])
    }

    /// The node that runs the ops, or why none does.
    fn ready<'a>(&self, offload: Option<&'a Client>) -> std::result::Result<(&'a Client, Ready), String> {
        let (Some(recipe), Some(pipeline)) = (&self.recipe, &self.pipeline) else {
            return Err("nothing can be split: there is no recipe, so samples stay raw".into());
        };
        let Some(client) = offload else {
            return Err(
                "nothing can be split: there is no node behind this loader (grist://) whose ops could run \
                        near the data"
                    .into(),
            );
        };
        let limits = Limits { pixels_max: self.pixels_max, ..pipeline.limits() };
        let ready = block_on(client.prepare(recipe, limits));
        let ready = ready.map_err(|error| format!("everything comes raw: {error}"))?;
        let connects = client.counts().connects;
        let mut state = self.lock();
        if state.pixels.began_anew(connects) {
            state.pictures.forget_decoded();
        }
        drop(state);
        let is_here = || Address::parse(client.url()).is_ok_and(|address| address.is_here());
        self.lock().same_machine = self.options.same_machine.unwrap_or_else(is_here);
        Ok((client, ready))
    }

    /// Whether the clock may overrule the decision: not for policies that were published, nor over a link whose rate was given.
    pub(super) fn may_undo(&self) -> bool {
        let ours = matches!(self.options.mode, SplitMode::Auto | SplitMode::Policy(SplitPolicy::Best));
        ours && self.options.link_bytes_per_s.is_none()
    }

    /// Where each sample is cut.
    fn table(
        &self,
        epoch: u64,
        order: &[u32],
        access: Option<&dyn Access>,
        ready: Ready,
        report: &mut SplitReport,
    ) -> std::result::Result<Table, String> {
        if let SplitMode::Stage(stage) = self.options.mode {
            report.reason = format!("every sample is asked for {}", stage.name());
            return Ok(Table::All(stage));
        }
        if self.profiled() < MEASURED_MIN {
            return Err("the first epoch runs unsplit and is measured".into());
        }
        self.is_calibrated()?;
        if self.may_undo()
            && let Some(why) = self.lock().undo.bars(epoch)
        {
            return Err(why.to_string());
        }
        let link = self.lock().link();
        let Some(resources) = self.resources(link, None, ready) else {
            return Err("the link was never busy, so nothing needs to be split".into());
        };
        let resources = self.steady(resources, order.len() as u64);
        let expected = match access {
            Some(access) => Some(access.expects(order)),
            None => self.set.held().map(|held| {
                let one = |&id: &u32| if held.contains(id) { Expected::Here } else { Expected::Missed };
                order.iter().map(one).collect()
            }),
        };
        let chosen = self.choose(epoch, order, expected.as_deref(), resources)?;
        chosen.tell(report, 0.0);
        Ok(chosen.table)
    }

    /// Raw samples that were measured.
    pub(super) fn profiled(&self) -> u64 {
        self.lock().profile.count(Stage::Raw as u8)
    }

    /// Samples to measure before the rest of an epoch of so many is decided: not more than an eighth of a short one.
    pub(super) fn enough(&self, samples: usize) -> u64 {
        let most = u64::from(self.options.profile_samples);
        (samples as u64 / PROFILE_PART).max(PROFILE_LEAST).min(most)
    }

    /// Whether that many were measured, and some of every size.
    pub(super) fn knows_enough(&self, wanted: u64) -> bool {
        self.profiled() >= wanted && self.lock().strata.has((wanted / STRATUM_PART).max(1))
    }

    /// How fast things are: as the options say, as measured now, or as measured before.
    pub(super) fn resources(
        &self,
        link_now: Option<f64>,
        accelerator_now: Option<f64>,
        ready: Ready,
    ) -> Option<Resources> {
        let state = self.lock();
        let options = &self.options;
        let accelerator =
            options.accelerator_samples_per_s.or(state.accelerator_samples_per_s).or(accelerator_now);
        Some(Resources {
            link_bytes_per_s: options.link_bytes_per_s.or(link_now)?,
            upstream_cores: options.upstream_cores.unwrap_or(ready.cores),
            local_cores: options
                .local_cores
                .unwrap_or_else(|| state.cores_left(state.local_cores, self.is_ours())),
            accelerator_samples_per_s: accelerator.unwrap_or(f64::INFINITY),
        })
    }

    /// The figures of the last decision, unless they changed by more than a tenth.
    fn steady(&self, now: Resources, samples: u64) -> Resources {
        let mut state = self.lock();
        match state.decided {
            Some((before, samples_before)) if !changed(&before, &now, samples_before, samples) => before,
            _ => {
                state.decided = Some((now, samples));
                now
            }
        }
    }

    /// Whether it is known how fast the node is; an attempt that is under way is waited for, but not for long.
    pub(super) fn is_calibrated(&self) -> std::result::Result<(), String> {
        let state = self.lock();
        let waits = |state: &mut State| state.calibration == Calibration::UnderWay;
        let waited = self.calibrated.wait_timeout_while(state, CALIBRATION_WAIT, waits);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        match &state.calibration {
            Calibration::Done => Ok(()),
            Calibration::UnderWay => {
                Err("the node is still being measured, so this epoch runs unsplit".into())
            }
            Calibration::Not => Err("the node was not measured yet, so this epoch runs unsplit".into()),
            Calibration::Failed(why) => Err(format!("{why}; this epoch runs unsplit")),
        }
    }

    /// Learns how fast the node is, if nobody else does.
    pub(super) fn calibrate_now(
        self: &Arc<Splitter>,
        client: &Client,
        epoch: u64,
    ) -> std::result::Result<(), String> {
        let mut state = self.lock();
        match state.calibration {
            Calibration::Done | Calibration::UnderWay => return Ok(()),
            Calibration::Not | Calibration::Failed(_) => state.calibration = Calibration::UnderWay,
        }
        drop(state);
        // Nobody but this thread has it any more: the loader is gone.
        let outcome = self.ask_for_some(client, epoch, &|| Arc::strong_count(self) <= 1);
        self.lock().calibration = match &outcome {
            Ok(()) => Calibration::Done,
            Err(why) => Calibration::Failed(why.clone()),
        };
        self.calibrated.notify_all();
        outcome
    }
}
