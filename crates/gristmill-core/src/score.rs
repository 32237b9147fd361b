//! What a sample is worth: the criteria, their thresholds and the vote.
//!
//! The criteria are IOWA's. *Entropy* says how wrong the model was about a sample, *margin* how close another class
//! came, *cost* how cheap the sample is to fetch. Scores are historical: the last value seen, never recomputed.
//! Facts arrive as flat arrays, one call per batch ([`Scores::feedback`]), and are only written down; everything
//! that looks at more than one sample runs at the epoch boundary in the order of ids, so the order in which ranks
//! report does not matter.
//!
//! What a trainer reports is not trusted: a value that is no number marks its sample as important and unknown, is
//! counted, and never reaches a sort. Deliberately not here: who is trained (`select`).

use crate::math::{exp2, log2};
use crate::{Invalid, SampleId};
use std::f64::consts::LN_2;

/// Which formula the entropy criterion uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntropyForm {
    /// `-log2 p_true`, the loss in bits: what the paper's text and example mean.
    Ce,
    /// `-p_true log2 p_true`, equation 3 as printed. It falls again for the hardest samples; kept for comparison.
    Literal,
    /// The entropy of the whole prediction, which the trainer must report.
    Shannon,
}

/// Which side of a threshold is important.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    /// Scores above the threshold: what the paper's text says, and the default.
    Higher,
    /// Scores below it: what the paper's worked example does. It trains on the easiest samples.
    Lower,
}

impl Polarity {
    /// Whether a score is on the important side, strictly.
    pub fn important(self, score: f32, threshold: f64) -> bool {
        match self {
            Polarity::Higher => f64::from(score) > threshold,
            Polarity::Lower => f64::from(score) < threshold,
        }
    }
}

/// The loss in bits: `-log2 p_true`.
pub fn ce(p_true: f64) -> f64 {
    -log2(p_true.max(1e-12))
}

/// Equation 3 as printed: `-p_true log2 p_true`, at most 0.5307.
pub fn literal(p_true: f64) -> f64 {
    p_true * ce(p_true)
}

/// Equation 4: 0 for a sure and right prediction, 2 for a sure and wrong one.
pub fn margin(p_true: f64, p_rival: f64) -> f64 {
    1.0 - (p_true - p_rival)
}

/// Equation 5 from a load time and a size that are shares of the largest: 1 for the dearest sample, more for cheaper.
pub fn cheapness(time: f64, size: f64, time_share: f64) -> f64 {
    1.0 / (time_share * time + (1.0 - time_share) * size).max(1e-6)
}

/// How long a read from the store takes, as a fixed part and a part per byte, fitted to what was measured.
///
/// Only reads that reached the store are noted. A hit in a cache would make its sample look cheap, which would
/// keep it selected and cached for ever.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReadTimes {
    /// Number of reads, then the sums of bytes, seconds, bytes x seconds and bytes squared.
    pub sums: [f64; 5],
}

impl ReadTimes {
    /// Notes one read.
    pub fn note(&mut self, bytes: u32, seconds: f64) {
        if seconds.is_finite() && seconds >= 0.0 {
            let bytes = f64::from(bytes);
            let terms = [1.0, bytes, seconds, bytes * seconds, bytes * bytes];
            self.sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
    }

    /// Adds what another rank noted.
    pub fn merge(&mut self, other: &ReadTimes) {
        self.sums.iter_mut().zip(other.sums).for_each(|(sum, term)| *sum += term);
    }

    /// Seconds before the first byte, and per byte; `None` before anything was noted.
    pub fn fit(&self) -> Option<(f64, f64)> {
        let [n, x, y, xy, xx] = self.sums;
        if n < 1.0 || !self.sums.iter().all(|sum| sum.is_finite()) {
            return None;
        }
        let spread = xx - x * x / n;
        let slope = if spread > 1e-9 * xx { ((xy - x * y / n) / spread).max(0.0) } else { 0.0 };
        Some((((y - slope * x) / n).max(0.0), slope))
    }

    /// What each sample's read costs relative to the mean; 1 for all before anything was noted.
    pub fn relative(&self, sizes: &[u32]) -> Vec<f32> {
        let (latency, per_byte) = self.fit().unwrap_or((1.0, 0.0));
        let seconds = |size: u32| latency + per_byte * f64::from(size);
        let mean = sizes.iter().map(|&size| seconds(size)).sum::<f64>() / sizes.len().max(1) as f64;
        sizes.iter().map(|&size| if mean > 0.0 { (seconds(size) / mean) as f32 } else { 1.0 }).collect()
    }

    /// The cost criterion of every sample (equation 5), from its size and the time the fit expects for it.
    pub fn cheapness(&self, sizes: &[u32]) -> Vec<f32> {
        let (latency, per_byte) = self.fit().unwrap_or((0.0, 1.0));
        // The largest but for one in a thousand, so that one giant does not make all others look alike.
        let mut sorted = sizes.to_vec();
        let place = (sizes.len().saturating_sub(1)) * 999 / 1_000;
        let most = match sizes {
            [] => return Vec::new(),
            _ => f64::from(*sorted.select_nth_unstable(place).1).max(1.0),
        };
        let longest = (latency + per_byte * most).max(1e-12);
        let one = |&size: &u32| {
            let size = f64::from(size);
            let time = ((latency + per_byte * size) / longest).min(1.0);
            cheapness(time, (size / most).min(1.0), 0.5) as f32
        };
        sizes.iter().map(one).collect()
    }
}

/// A threshold that follows what it is given slowly (equations 6 and 7).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Threshold {
    /// The value; none before the first epoch that set one.
    pub value: Option<f64>,
}

impl Threshold {
    /// Moves towards `target`; the first one is taken as it is.
    pub fn follow(&mut self, target: f64, smoothing: f64) -> f64 {
        let value = self.value.map_or(target, |old| smoothing * old + (1.0 - smoothing) * target);
        self.value = Some(value);
        value
    }
}

/// The value that splits the scores into two equal parts: the mean of the two in the middle. 0 of nothing.
pub fn median(scores: &mut [f32]) -> f64 {
    if scores.is_empty() {
        return 0.0;
    }
    let half = scores.len() / 2;
    let (below, middle, _) = scores.select_nth_unstable_by(half, f32::total_cmp);
    let middle = f64::from(*middle);
    let under = f64::from(below.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if scores.len() % 2 == 1 { middle } else { f64::midpoint(under, middle) }
}

/// Splits samples into the important ones and the rest, each in ascending order of score and id.
pub fn partition(scores: &[f32], threshold: f64, polarity: Polarity) -> (Vec<u32>, Vec<u32>) {
    let mut ids: Vec<u32> = (0..scores.len() as u32).collect();
    ids.sort_unstable_by(|&a, &b| scores[a as usize].total_cmp(&scores[b as usize]).then(a.cmp(&b)));
    ids.into_iter().partition(|&id| polarity.important(scores[id as usize], threshold))
}

/// Whether most of three voters call a sample important.
pub fn majority(votes: [bool; 3]) -> bool {
    votes.into_iter().filter(|&vote| vote).count() >= 2
}

/// What a trainer says about the samples of one batch, as columns of equal length.
#[derive(Debug, Clone, Copy)]
pub struct Feedback<'a> {
    /// The samples that were served.
    pub ids: &'a [u32],
    /// The model's probability of each sample's own label.
    pub p_true: &'a [f32],
    /// The largest probability of another label.
    pub p_rival: &'a [f32],
    /// The loss, natural logarithm for cross entropy, before any weight.
    pub loss: &'a [f32],
    /// The entropy of the prediction in bits, when the form asks for it.
    pub entropy: Option<&'a [f32]>,
}

/// How far a probability may be outside of 0 to 1 and still be a rounding error.
const SLACK: f32 = 1e-3;

/// The last known facts of every sample, as columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// The entropy criterion.
    pub entropy: Vec<f32>,
    /// The margin criterion; 1 and above is a wrong prediction.
    pub margin: Vec<f32>,
    /// The probability of the sample's own label.
    pub p_true: Vec<f32>,
    /// The trainer's loss.
    pub loss: Vec<f32>,
    /// The epoch after the one it was last trained in; 0 is never.
    pub seen: Vec<u32>,
    /// Samples whose report was no number, so far.
    pub unknown: u64,
    form: EntropyForm,
}

impl Scores {
    /// Nothing known about `samples` samples.
    pub fn new(samples: usize, form: EntropyForm) -> Scores {
        Scores {
            entropy: vec![0.0; samples],
            margin: vec![0.0; samples],
            p_true: vec![0.0; samples],
            loss: vec![0.0; samples],
            seen: vec![0; samples],
            unknown: 0,
            form,
        }
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// The formula of the entropy criterion.
    pub fn form(&self) -> EntropyForm {
        self.form
    }

    /// Whether a sample was predicted wrongly when it was last trained.
    pub fn wrong(&self, id: usize) -> bool {
        self.margin[id] >= 1.0
    }

    /// Writes down what the trainer says about a batch of `epoch`. On an error nothing is written.
    pub fn feedback(&mut self, said: &Feedback<'_>, epoch: u64) -> Result<(), Invalid> {
        self.check(said)?;
        for (i, &id) in said.ids.iter().enumerate() {
            let id = id as usize;
            let (p_true, p_rival, loss) = (said.p_true[i], said.p_rival[i], said.loss[i]);
            let entropy = said.entropy.map_or(0.0, |column| column[i]);
            self.seen[id] = u32::try_from(epoch + 1).unwrap_or(u32::MAX);
            if !(p_true.is_finite() && p_rival.is_finite() && loss.is_finite() && entropy.is_finite()) {
                // As important as can be; `settle` puts the largest known value in place of infinity.
                self.unknown += 1;
                (self.p_true[id], self.margin[id]) = (0.0, 2.0);
                (self.entropy[id], self.loss[id]) = (f32::INFINITY, f32::INFINITY);
                continue;
            }
            let (p_true, p_rival) = (p_true.clamp(0.0, 1.0), p_rival.clamp(0.0, 1.0));
            self.p_true[id] = p_true;
            self.margin[id] = margin(p_true.into(), p_rival.into()) as f32;
            self.loss[id] = loss;
            self.entropy[id] = match self.form {
                EntropyForm::Ce => ce(p_true.into()) as f32,
                EntropyForm::Literal => literal(p_true.into()) as f32,
                EntropyForm::Shannon => entropy,
            };
        }
        Ok(())
    }

    /// Refuses columns that differ in length, ids that do not exist, and what is no probability.
    pub fn check(&self, said: &Feedback<'_>) -> Result<(), Invalid> {
        let n = said.ids.len();
        let columns = [
            ("p_true", said.p_true.len()),
            ("p_rival", said.p_rival.len()),
            ("loss", said.loss.len()),
            ("entropy", said.entropy.map_or(n, <[f32]>::len)),
        ];
        if let Some((name, len)) = columns.iter().find(|(_, len)| *len != n) {
            return Err(Invalid(format!("feedback has {n} ids but {len} values of {name}")));
        }
        if self.form == EntropyForm::Shannon && said.entropy.is_none() {
            return Err(Invalid("selection.entropy = shannon needs the entropy of every prediction".into()));
        }
        if let Some(id) = said.ids.iter().find(|&&id| id as usize >= self.len()) {
            let len = self.len();
            return Err(Invalid(format!("feedback names sample {id}, but the data set has {len} samples")));
        }
        let outside = |p: &&f32| p.is_finite() && !(-SLACK..=1.0 + SLACK).contains(*p);
        for (name, column) in [("p_true", said.p_true), ("p_rival", said.p_rival)] {
            if let Some(p) = column.iter().find(outside) {
                return Err(Invalid(format!("feedback has {name} = {p}, which is no probability")));
            }
        }
        Ok(())
    }

    /// Puts the largest known value where the trainer reported none. Once per epoch, before anything is decided.
    pub fn settle(&mut self) {
        for column in [&mut self.entropy, &mut self.loss] {
            if column.contains(&f32::INFINITY) {
                let most = column.iter().copied().filter(|v| v.is_finite()).fold(0.0, f32::max);
                column.iter_mut().filter(|v| v.is_infinite()).for_each(|v| *v = most);
            }
        }
    }

    /// The share of right predictions among the samples trained in `epoch` that `counts` lets in; `None` of none.
    pub fn accuracy(&self, epoch: u64, counts: impl Fn(SampleId) -> bool) -> Option<f64> {
        let (mut right, mut all) = (0_u64, 0_u64);
        for (id, &seen) in self.seen.iter().enumerate() {
            if u64::from(seen) == epoch + 1 && counts(SampleId(id as u32)) {
                all += 1;
                right += u64::from(!self.wrong(id));
            }
        }
        (all > 0).then(|| right as f64 / all as f64)
    }
}

/// Probabilities for a loss that comes without any: what cross entropy would mean by it.
pub fn probabilities_of(loss: f32) -> (f32, f32) {
    let p = exp2(-f64::from(loss).max(0.0) / LN_2) as f32;
    (p, 1.0 - p)
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these values are exact")]
mod tests;
