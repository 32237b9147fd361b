//! What a first epoch measured, and what it lets us expect of samples that nobody measured.
//!
//! Per form of a sample three figures matter: its bytes, the CPU seconds to bring a raw sample there, and the seconds
//! that are then left. Each is fitted by least squares on the raw bytes, the pixels, and both times the share of the
//! picture that the crop needs, in running sums: a profile takes a few kilobytes however long the epoch. Upstream cores
//! may be slower or faster than ours; a short calibration gives a factor per form.
//!
//! Forms whose seconds ahead are nearly the same work (whatever needs the picture decoded) may be named: while little was
//! measured of each, all of them tell of each. Otherwise the cheapest of several would be the one that was measured too low.
//!
//! A form that was measured fewer than [`MEASURED_MIN`] times is left out rather than guessed. Deliberately not here:
//! clocks, and exact sizes that follow from the recipe (the caller may overwrite an estimate).

mod fit;

use super::model::{CHOICES_MAX, Choice};
use crate::SampleId;
use crate::rng::{Stream, key};
use fit::Fit;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

/// How often a form must have been measured before anything is expected of it.
pub const MEASURED_MIN: u64 = 8;

/// So many measurements of a form say as much as those of all forms like it.
const TRUST: f64 = 24.0;
/// And of so many nobody else need tell.
const KNOWN: f64 = 1_000.0;

/// Tells the stream of [`stratified`] from the streams of plans.
const SLICE: u64 = u64::from_be_bytes(*b"profiled");

/// What is known of a sample before it is prepared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Bytes in the store.
    pub raw_bytes: u32,
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// The share of the picture that this draw's crop needs, from 0 to 1.
    pub cut_share: f64,
}

impl Shape {
    fn regressors(&self) -> [f64; fit::REGRESSORS] {
        let (raw, pixels) = (f64::from(self.raw_bytes), f64::from(self.width) * f64::from(self.height));
        let share = if self.cut_share.is_finite() { self.cut_share.clamp(0.0, 1.0) } else { 1.0 };
        [raw, pixels, share * raw, share * pixels]
    }
}

/// What was measured of one sample in one form, on this side; what was not measured is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// The caller's number for the form.
    pub stage: u8,
    /// Bytes of that form.
    pub bytes: Option<f64>,
    /// CPU seconds from the raw bytes to that form.
    pub ahead_s: Option<f64>,
    /// CPU seconds from that form to the end.
    pub left_s: Option<f64>,
    /// Whether the sample was brought to such a form before, of which something may be left.
    pub again: bool,
}

/// The figures of one form.
#[derive(Debug, Clone, Default)]
struct Form {
    bytes: Fit,
    ahead_s: Fit,
    /// The same of samples that were brought there before.
    again_s: Fit,
    left_s: Fit,
    upstream: Calibration,
}

impl Form {
    fn known(&self) -> bool {
        [&self.bytes, &self.ahead_s, &self.left_s].iter().all(|fit| fit.count() >= MEASURED_MIN)
    }
}

/// Seconds that the upstream node took, beside those that this side would have taken.
#[derive(Debug, Clone, Copy, Default)]
struct Calibration {
    count: u64,
    upstream_s: f64,
    local_s: f64,
}

impl Calibration {
    fn factor(&self) -> Option<f64> {
        (self.count >= MEASURED_MIN && self.local_s > 0.0 && self.upstream_s > 0.0)
            .then(|| self.upstream_s / self.local_s)
    }
}

/// What one epoch, or a slice of it, measured.
#[derive(Debug, Clone)]
pub struct Profile {
    raw: u8,
    /// Forms whose seconds ahead are nearly the same.
    alike: Vec<u8>,
    forms: BTreeMap<u8, Form>,
}

impl Profile {
    /// Nothing measured yet; `raw` is the caller's number for the raw form.
    pub fn new(raw: u8) -> Profile {
        Profile { raw, alike: Vec::new(), forms: BTreeMap::new() }
    }

    /// The same, with forms whose seconds ahead are nearly the same work.
    #[must_use]
    pub fn alike(self, forms: &[u8]) -> Profile {
        Profile { alike: forms.to_vec(), ..self }
    }

    /// How many times longer it takes to bring a sample to this form than was measured of it, by what was measured of forms
    /// like it: of all of them for a sample as this form had them, since each may have had others.
    fn lent(&self, stage: u8) -> f64 {
        let Some(own) = self.forms.get(&stage).filter(|_| self.alike.contains(&stage)) else { return 1.0 };
        let (own_count, own_s) = (own.ahead_s.count() as f64, own.ahead_s.mean());
        if own_s <= 0.0 || own_count > KNOWN {
            return 1.0;
        }
        let (mut count, mut sum) = (0.0, 0.0);
        for form in self.alike.iter().filter_map(|stage| self.forms.get(stage)) {
            let many = form.ahead_s.count() as f64;
            count += many;
            sum += many * form.ahead_s.at(own.ahead_s.middle());
        }
        (own_count * own_s + TRUST * sum / count) / (own_count + TRUST) / own_s
    }

    /// A measurement on this side. Figures that are negative or not finite are passed over.
    pub fn measured(&mut self, shape: &Shape, measured: &Measured) {
        let x = shape.regressors();
        let form = self.forms.entry(measured.stage).or_default();
        // As long as too little is known at all, whatever comes counts.
        let again = measured.again && form.ahead_s.count() >= MEASURED_MIN;
        let ahead_s = if again { &mut form.again_s } else { &mut form.ahead_s };
        for (fit, value) in [
            (&mut form.bytes, measured.bytes),
            (ahead_s, measured.ahead_s),
            (&mut form.left_s, measured.left_s),
        ] {
            if let Some(value) = value.filter(|value| value.is_finite() && *value >= 0.0) {
                fit.add(&x, value);
            }
        }
    }

    /// Lets half of what was measured of the seconds ahead go, so that they follow a node that gets faster or slower.
    pub fn fade(&mut self) {
        for form in self.forms.values_mut() {
            form.ahead_s.fade();
            form.again_s.fade();
        }
    }

    /// Seconds upstream for a sample that was brought to this form before, or to one like it; none as long as too few were.
    pub fn again_s(&self, shape: &Shape, stage: u8) -> Option<f64> {
        let form = self.forms.get(&stage)?;
        let (x, factor) = (shape.regressors(), self.factor(stage));
        if form.again_s.count() >= MEASURED_MIN {
            return Some(form.again_s.at(&x) * factor);
        }
        // As in the forms of which it is known.
        let known = || self.forms.values().filter(|form| form.again_s.count() >= MEASURED_MIN);
        let first_s: f64 = known().map(|form| form.ahead_s.mean()).sum();
        let again_s: f64 = known().map(|form| form.again_s.mean()).sum();
        (first_s > 0.0).then(|| form.ahead_s.at(&x) * factor * again_s / first_s)
    }

    /// The upstream node took so many CPU seconds to bring a sample to this form. Heard only once this side has
    /// measured the form, so that there is something to compare with.
    pub fn upstream(&mut self, shape: &Shape, stage: u8, upstream_s: f64) {
        let Some(form) = self.forms.get_mut(&stage) else { return };
        if form.ahead_s.count() < MEASURED_MIN || !upstream_s.is_finite() || upstream_s < 0.0 {
            return;
        }
        form.upstream.count += 1;
        form.upstream.upstream_s += upstream_s;
        form.upstream.local_s += form.ahead_s.at(&shape.regressors());
    }

    /// How much longer the upstream node takes than this side to bring a sample to this form: as calibrated for the
    /// form, else over all forms, else 1.
    pub fn factor(&self, stage: u8) -> f64 {
        let own = self.forms.get(&stage).and_then(|form| form.upstream.factor());
        own.or_else(|| {
            let mut all = Calibration::default();
            for form in self.forms.values() {
                all.count += form.upstream.count;
                all.upstream_s += form.upstream.upstream_s;
                all.local_s += form.upstream.local_s;
            }
            all.factor()
        })
        .unwrap_or(1.0)
    }

    /// How many samples were measured to the end from this form.
    pub fn count(&self, stage: u8) -> u64 {
        self.forms.get(&stage).map_or(0, |form| form.left_s.count())
    }

    /// The means of what was measured of a form, with the seconds ahead as upstream; `None` before [`MEASURED_MIN`].
    pub fn mean(&self, stage: u8) -> Option<Choice> {
        let form = self.forms.get(&stage)?;
        let (bytes, ahead_s) = (form.bytes.mean(), form.ahead_s.mean());
        let upstream_s = if stage == self.raw { 0.0 } else { ahead_s * self.factor(stage) };
        let known = form.known() || stage == self.raw && form.left_s.count() >= MEASURED_MIN;
        known.then(|| Choice { stage, bytes, upstream_s, local_s: form.left_s.mean() })
    }

    /// What to expect of a sample: raw first, then those of `stages` that were measured. Empty until the raw form was.
    pub fn choices(&self, shape: &Shape, stages: &[u8]) -> Choices {
        let mut choices = Choices::default();
        let x = shape.regressors();
        let Some(raw) = self.forms.get(&self.raw).filter(|form| form.left_s.count() >= MEASURED_MIN) else {
            return choices;
        };
        choices.push(Choice {
            stage: self.raw,
            bytes: f64::from(shape.raw_bytes),
            upstream_s: 0.0,
            local_s: raw.left_s.at(&x),
        });
        for &stage in stages.iter().filter(|&&stage| stage != self.raw) {
            let Some(form) = self.forms.get(&stage).filter(|form| form.known()) else { continue };
            choices.push(Choice {
                stage,
                bytes: form.bytes.at(&x),
                upstream_s: form.ahead_s.at(&x) * self.factor(stage) * self.lent(stage),
                local_s: form.left_s.at(&x),
            });
        }
        choices
    }
}

/// The forms of one sample, without an allocation; reads and writes like a slice.
#[derive(Debug, Clone, Copy)]
pub struct Choices {
    list: [Choice; CHOICES_MAX],
    len: usize,
}

impl Choices {
    /// Adds a form; past [`CHOICES_MAX`] it is passed over.
    fn push(&mut self, choice: Choice) {
        if let Some(place) = self.list.get_mut(self.len) {
            *place = choice;
            self.len += 1;
        }
    }
}

impl Default for Choices {
    fn default() -> Choices {
        let nothing = Choice { stage: 0, bytes: 0.0, upstream_s: 0.0, local_s: 0.0 };
        Choices { list: [nothing; CHOICES_MAX], len: 0 }
    }
}

impl Deref for Choices {
    type Target = [Choice];
    fn deref(&self) -> &[Choice] {
        &self.list[..self.len]
    }
}

impl DerefMut for Choices {
    fn deref_mut(&mut self) -> &mut [Choice] {
        &mut self.list[..self.len]
    }
}

/// Which samples a slice of a data set takes so that small and large files are there in proportion: one from each of as
/// many equal groups by size, at random. In order of their ids.
pub fn stratified(raw_bytes: &[u32], share: f64, seed: u64) -> Vec<SampleId> {
    let samples = raw_bytes.len();
    // A share that is not a number takes nothing.
    let wanted = (share.clamp(0.0, 1.0) * samples as f64).ceil() as usize;
    let mut by_size: Vec<u32> = (0..samples as u32).collect();
    by_size.sort_unstable_by_key(|&id| (raw_bytes[id as usize], id));
    let mut stream = Stream::from_key(key(&[seed, SLICE]));
    let mut taken: Vec<SampleId> = (0..wanted)
        .map(|group| {
            let (start, end) = (group * samples / wanted, (group + 1) * samples / wanted);
            SampleId(by_size[start + stream.below((end - start) as u64) as usize])
        })
        .collect();
    taken.sort_unstable();
    taken
}

#[cfg(test)]
mod tests;
