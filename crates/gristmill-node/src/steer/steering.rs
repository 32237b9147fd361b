//! The steering of one loader from epoch to epoch.

use super::ladder::{Ladder, Means};
use super::predict::{self, Course, WhatIf};
use super::probe::{self, Answers};
use super::sheet::{Sheet, WAIT_SHARE_MIN, busy_s};
use super::{Decision, Setting, SteerOptions};
use crate::cores;
use crate::report::EpochReport;
use crate::split::Begun;
use gristmill_core::steer::pilot::{self, Forecast, Observed, Pilot, Tried};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Epochs after which it is looked again how the store answers.
const LOOK_EPOCHS: u64 = 16;
/// Being off by more than this share means that the store answers otherwise than it did.
const OFF_MAX: f64 = 0.3;

/// So many reads of each of several jobs keep a store busy that they share.
const ENOUGH_READS: usize = 64;
/// Epochs are alike if what was measured differs by no more than this share.
const ALIKE: f64 = 0.2;
/// So many epochs that are like one after which nothing was found to move begin without looking for it.
const SETTLED_EPOCHS: u64 = 4;

/// What is known of an epoch before it is read, and how to learn more.
pub(crate) struct Ahead<'a> {
    pub(crate) epoch: u64,
    /// Samples that this rank will read.
    pub(crate) samples: u32,
    pub(crate) batch: u32,
    /// The share that a cache is expected to give, if it can say.
    pub(crate) cached: Option<f64>,
    /// Whether threads may read for themselves.
    pub(crate) can_direct: bool,
    /// Whether a node behind the loader can run ops.
    pub(crate) can_split: bool,
    /// Bytes of a sample, and how they spread as a share of that.
    pub(crate) bytes: (f64, f64),
    /// Jobs that are served from the same store, this one included, as far as that is known.
    pub(crate) jobs: usize,
    /// Reads so many samples to see how the store answers.
    pub(crate) look: &'a dyn Fn(usize) -> Option<Answers>,
    /// What a split comes to with so many threads over a link of so many bytes per second.
    /// In the next epoch, and in later ones.
    pub(crate) what_if: &'a dyn Fn(usize, Option<f64>) -> Option<[WhatIf; 2]>,
}

/// Steers one loader.
#[derive(Debug)]
pub(crate) struct Steering {
    options: SteerOptions,
    start: Setting,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    course: Option<(Ladder, Pilot)>,
    /// The epoch that was read last, if it says anything.
    sheet: Option<Sheet>,
    /// How the store answers, and before which epoch that was seen.
    answers: Option<(Answers, u64)>,
    /// Before which epoch it may be looked again, and how many epochs after that.
    looks: (u64, u64),
    /// CPU time of the whole machine when the epoch began.
    cpu_s: f64,
    can_split: bool,
    /// Whether an epoch was read to its end.
    knows: bool,
    /// A split that began inside the epoch that was read last.
    begun: Option<(u64, Begun)>,
    /// Cores that others had in the epoch before the last.
    busy_cores: Option<f64>,
    /// An epoch after which every move was predicted and none promised enough, with what was known of the one ahead. Those
    /// that are like it would be told the same.
    settled: Option<(Setting, Sheet, Outlook)>,
}

/// What is known of an epoch ahead that settings are judged by: what a cache will give, jobs, and whether it can be split.
type Outlook = (Option<f64>, usize, bool);

/// Whether two outlooks come to the same.
fn same((cached, jobs, split): Outlook, (was_cached, had_jobs, could_split): Outlook) -> bool {
    let off = (cached.unwrap_or(0.0) - was_cached.unwrap_or(0.0)).abs();
    off <= ALIKE && (jobs, split) == (had_jobs, could_split)
}

impl Steering {
    /// None if every knob is pinned.
    pub(crate) fn new(options: SteerOptions, start: Setting) -> Option<Steering> {
        let steers = options.on && options.pins != super::Pins::ALL;
        steers.then(|| Steering { options, start, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock with the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the epoch ahead is to be read, and what was decided about it.
    pub(crate) fn begin(&self, ahead: &Ahead<'_>) -> (Setting, Vec<Decision>) {
        let mut state = self.lock();
        let state = &mut *state;
        state.cpu_s = busy_s();
        state.can_split = ahead.can_split;
        let (ladder, pilot) = state.course.get_or_insert_with(|| {
            let (cores, can_direct, can_split) = (cores::all(), ahead.can_direct, ahead.can_split);
            let start = Setting { reads: reads(self.start.reads, can_direct), ..self.start };
            let ladder = Ladder::new(start, Means { cores, can_direct, can_split });
            let knobs = ladder.knobs(start, self.options.pins);
            (ladder, Pilot::new(knobs))
        });
        let tried = state.begun.take().map_or_else(Vec::new, |(epoch, begun)| tried(pilot, epoch, begun));
        let was = ladder.setting(&pilot.setting());
        if !tried.is_empty() {
            return (was, tried.iter().map(Decision::from).collect());
        }
        let Some(sheet) = state.sheet.take() else { return (was, Vec::new()) };
        let waits = sheet.wait_share >= WAIT_SHARE_MIN;
        // Cores that the node of a split epoch had on this machine say nothing of one without.
        let busy_cores = std::mem::replace(&mut state.busy_cores, (!was.split).then_some(sheet.busy_cores));
        let outlook = (ahead.cached, ahead.jobs, ahead.can_split);
        let settled = state.settled.as_ref().is_some_and(|(setting, then, seen)| {
            let soon = sheet.epoch <= then.epoch + SETTLED_EPOCHS;
            soon && *setting == was && same(outlook, *seen) && sheet.is_like(then, ALIKE)
        });
        if (!waits || settled) && !pilot.tries() {
            // Nothing to judge and nothing to gain: epochs begin at once. Trying every setting in the simulator takes longer
            // than a short epoch can spare.
            return (was, Vec::new());
        }
        // Where several jobs read from one store, more reads of one are fewer of the others, once there are enough to keep the
        // store busy: what it gave is what it gives.
        let reads = !self.options.pins.reads && (ahead.jobs < 2 || was.reads < ENOUGH_READS);
        let matters = reads || !self.options.pins.split && ahead.can_split;
        if waits && matters && sheet.fetch_share >= WAIT_SHARE_MIN && sheet.cached < 1.0 {
            look(&mut state.answers, &mut state.looks, &sheet, ahead, was);
        }
        let link = state.answers.map(|(answers, _)| answers.bytes_per_s).filter(|rate| rate.is_finite());
        let known = RefCell::new(BTreeMap::new());
        let split = |threads: usize| -> Option<[WhatIf; 2]> {
            *known.borrow_mut().entry(threads).or_insert_with(|| (ahead.what_if)(threads, link))
        };
        let forecast = |course: &Course, setting: Setting| {
            let what_if = if setting.split || was.split { split(setting.threads) } else { None };
            let [next, lasting] = what_if.map_or([None; 2], |what_if| what_if.map(Some));
            let seconds =
                |what_if: Option<WhatIf>| predict::seconds(&sheet, course, was, setting, what_if.as_ref());
            let next_s = seconds(next)?;
            let lasting_s = if lasting == next { next_s } else { seconds(lasting)? };
            Some(Forecast { next_s, lasting_s })
        };
        // What cannot explain the epoch that was is not asked about the next. The store may be shared with others, and answer
        // a look otherwise than an epoch: then it gives what it gave, however many reads there are.
        let seen = course(ahead, &sheet, state.answers.map(|(answers, _)| answers), sheet.cached);
        let cut = if was.split { split(was.threads).map(|[next, _]| next) } else { None };
        // What a sample came to on the link, and what of its time was the node's ops, which are added by themselves.
        let (crossed, ops_s) = cut.map_or((ahead.bytes.0, 0.0), |cut| (cut.bytes[1], cut.upstream_s));
        let plain = course(ahead, &sheet, Some(as_measured(crossed, ops_s, was, &sheet)), sheet.cached);
        let seconds = |course: &Course| forecast(course, was).map(|forecast| forecast.next_s);
        let explains = |course: &Course| {
            let off = seconds(course).map(|expected| (sheet.seconds_per_sample / expected - 1.0).abs());
            off.is_some_and(|off| off <= OFF_MAX)
        };
        let last = if state.answers.is_some() && explains(&seen) { seen } else { plain };
        let waits = waits && explains(&last);
        let next = Course { cached: ahead.cached.unwrap_or(sheet.cached), ..last };
        let drift = match (seconds(&next), seconds(&last)) {
            (Some(then), Some(now)) => then / now,
            _ => 1.0,
        };
        let calm = Sheet { busy_cores: busy_cores.unwrap_or(sheet.busy_cores), ..sheet.clone() };
        let excess = match (seconds(&last), predict::seconds(&calm, &last, was, was, None)) {
            (Some(now), Some(calm)) => now / calm,
            _ => 1.0,
        };
        let observed = Observed {
            epoch: sheet.epoch,
            seconds_per_sample: sheet.seconds_per_sample,
            drift,
            excess,
            least_s: sheet.step_s / f64::from(ahead.batch.max(1)),
            cause: &sheet.cause,
        };
        // Pairs of moves come to the same settings again and again.
        let mut asked: HashMap<Setting, Option<Forecast>> = HashMap::new();
        let mut expected = |setting| *asked.entry(setting).or_insert_with(|| forecast(&next, setting));
        let decided = pilot.observe(observed, |places| {
            if !waits {
                return None;
            }
            let setting = ladder.setting(places);
            if ahead.jobs > 1 && setting.reads > was.reads.max(ENOUGH_READS) {
                return None;
            }
            // Fewer threads make nothing faster: where that is predicted, it is another cut of the samples that seems to.
            let as_many = expected(Setting { threads: setting.threads.max(was.threads), ..setting })?;
            let expected = expected(setting)?;
            Some(Forecast {
                next_s: expected.next_s.max(as_many.next_s),
                lasting_s: expected.lasting_s.max(as_many.lasting_s),
            })
        });
        // Only where everything could be asked about: what is not known today may be tomorrow.
        let split_known = self.options.pins.split || !ahead.can_split || split(was.threads).is_some();
        let all_known = waits && split_known;
        state.settled = (decided.is_empty() && all_known).then_some((was, sheet.clone(), outlook));
        (ladder.setting(&pilot.setting()), decided.iter().map(Decision::from).collect())
    }

    /// Takes what an epoch came to. One that was not read to its end says nothing.
    pub(crate) fn ended(&self, report: &EpochReport, complete: bool) {
        let mut state = self.lock();
        let link = if state.can_split { "the link" } else { "the store" };
        let spent = busy_s() - state.cpu_s;
        state.sheet = if complete { Sheet::new(report, spent, link) } else { None };
        // An epoch that was read in two ways says nothing of either by its length.
        let begun = report.split.as_ref().and_then(|split| split.begun).filter(|_| complete);
        state.knows |= state.sheet.is_some() || begun.is_some_and(|begun| begun.measured.is_some());
        if let Some(begun) = begun {
            (state.sheet, state.begun) = (None, Some((report.epoch, begun)));
        }
    }

    /// Whether no epoch was read to its end yet.
    pub(crate) fn knows_nothing(&self) -> bool {
        !self.lock().knows
    }
}

/// Hands the pilot a split that began inside an epoch. What was not measured is forgotten.
fn tried(pilot: &mut Pilot, epoch: u64, begun: Begun) -> Vec<pilot::Decision> {
    let Begun { after, limit, unsplit_s, predicted, lasting, measured } = begun;
    let later =
        if lasting > predicted * 1.05 { format!(" ({lasting:.2}x in later epochs)") } else { String::new() };
    let cause = format!("after {after} samples the {limit} is the limit{later}");
    let tried = |measured| Tried {
        epoch,
        knob: "split",
        to: 1,
        before_s: unsplit_s,
        predicted,
        measured,
        lasting,
        cause: &cause,
    };
    measured.map_or_else(Vec::new, |measured| pilot.tried(tried(measured)))
}

/// What 0 reads in flight stand for: the threads read for themselves, or 64.
fn reads(set: usize, can_direct: bool) -> usize {
    if set == 0 && !can_direct { 64 } else { set }
}

/// A store that gives what it gave in an epoch that waited for it; otherwise one that answers as late, and all at once.
/// `bytes` is what of a sample came over the link, `ops_s` what the node took to prepare it.
fn as_measured(bytes: f64, ops_s: f64, was: Setting, sheet: &Sheet) -> Answers {
    let missed = 1.0 - sheet.cached;
    if sheet.fetch_share >= WAIT_SHARE_MIN && missed > 0.0 && bytes > 0.0 {
        // With so many on their way, each waits for its own ops only.
        let ops_s = ops_s / was.reads.max(1) as f64;
        let each_s = sheet.seconds_per_sample / missed;
        return Answers { latency_s: 0.0, bytes_per_s: bytes / (each_s - ops_s).max(each_s * 0.1) };
    }
    let flight_s = (sheet.flight_s - ops_s).max(0.0);
    Answers { latency_s: flight_s.min(sheet.seconds_per_sample), bytes_per_s: f64::INFINITY }
}

fn course(ahead: &Ahead<'_>, sheet: &Sheet, answers: Option<Answers>, cached: f64) -> Course {
    let answers = answers.filter(|_| sheet.cached < 1.0);
    let (bytes, spread) = ahead.bytes;
    Course { samples: ahead.samples, batch: ahead.batch, bytes, spread, cached, cores: cores::all(), answers }
}

/// Looks how the store answers, unless that is known well enough. A look that says nothing, or does not explain what was
/// measured, is made again ever more seldom.
fn look(
    answers: &mut Option<(Answers, u64)>,
    (next, gap): &mut (u64, u64),
    sheet: &Sheet,
    ahead: &Ahead<'_>,
    was: Setting,
) {
    let known = answers.is_some_and(|(_, epoch)| ahead.epoch < epoch + LOOK_EPOCHS);
    if known && !was.split {
        let here = course(ahead, sheet, answers.map(|(answers, _)| answers), sheet.cached);
        let expected = predict::seconds(sheet, &here, was, was, None);
        let off = expected.map_or(1.0, |expected| (sheet.seconds_per_sample / expected - 1.0).abs());
        if off <= OFF_MAX {
            return;
        }
    } else if known {
        return;
    }
    if ahead.epoch < *next {
        return;
    }
    *gap = (*gap * 2).clamp(1, 4 * LOOK_EPOCHS);
    *next = ahead.epoch + *gap;
    if let Some(seen) = probe::reads(ahead.samples.into()).and_then(ahead.look) {
        // Between two epochs of this job others may stand still, too, and take their part in the epoch: then the part of
        // this one explains what was measured, and the whole does not.
        let part = Answers { bytes_per_s: seen.bytes_per_s / ahead.jobs.max(1) as f64, ..seen };
        let off = |answers| {
            let here = course(ahead, sheet, Some(answers), sheet.cached);
            let expected = predict::seconds(sheet, &here, was, was, None);
            expected.map_or(f64::INFINITY, |expected| (sheet.seconds_per_sample / expected - 1.0).abs())
        };
        let shared = ahead.jobs > 1 && off(part) < off(seen);
        *answers = Some((if shared { part } else { seen }, ahead.epoch));
    }
}

#[cfg(test)]
mod tests;
