//! What an epoch costs: bytes over a link, work upstream, work here, and the accelerator.
//!
//! Fetching, preparing and training overlap, so an epoch takes as long as its busiest resource. A sample weighs on the
//! link and upstream by the probability that it is fetched at all: what is already here is finished here from its raw
//! bytes, and the accelerator trains every sample of the epoch either way.
//!
//! Figures are kept as `f32` (16 bytes per candidate, ten million samples fit in memory) and summed as `f64`.
//! Deliberately not here: which candidate is taken.

use super::SplitError;

/// The most candidates one sample may have.
pub const CHOICES_MAX: usize = 16;

/// How fast each resource is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resources {
    /// What the link to the upstream node achieves, not what it is sold as.
    pub link_bytes_per_s: f64,
    /// Cores that the upstream node gives to ops; 0 is none, infinity is no limit.
    pub upstream_cores: f64,
    /// Cores that run ops on this side.
    pub local_cores: f64,
    /// What the accelerator trains; infinity when it is never waited for.
    pub accelerator_samples_per_s: f64,
}

impl Resources {
    /// Refuses rates with which no time can be computed.
    pub fn check(&self) -> Result<(), SplitError> {
        let refuse =
            |name: &str, value: f64, hint: &str| Err(SplitError(format!("split: {name} is {value}; {hint}")));
        if !(self.link_bytes_per_s > 0.0 && self.link_bytes_per_s.is_finite()) {
            let hint = "give the rate in bytes per second that the link achieves, above 0";
            return refuse("link_bytes_per_s", self.link_bytes_per_s, hint);
        }
        if self.upstream_cores.is_nan() || self.upstream_cores < 0.0 {
            return refuse("upstream_cores", self.upstream_cores, "give 0 for none, or a number above it");
        }
        if self.local_cores.is_nan() || self.local_cores <= 0.0 {
            return refuse("local_cores", self.local_cores, "this side needs a number of cores above 0");
        }
        if self.accelerator_samples_per_s.is_nan() || self.accelerator_samples_per_s <= 0.0 {
            let hint = "give samples per second above 0, or infinity when nothing waits for it";
            return refuse("accelerator_samples_per_s", self.accelerator_samples_per_s, hint);
        }
        Ok(())
    }
}

/// One form in which a sample may cross the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The caller's number for that form.
    pub stage: u8,
    /// Bytes that cross the link.
    pub bytes: f64,
    /// CPU seconds upstream to bring the raw sample there.
    pub upstream_s: f64,
    /// CPU seconds that are left to do on this side.
    pub local_s: f64,
}

/// A candidate as it is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) bytes: f32,
    pub(super) upstream_s: f32,
    pub(super) local_s: f32,
    pub(super) stage: u8,
}

/// The candidates of all samples of an epoch; the first of each sample is its raw form.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    entries: Vec<Entry>,
    /// Where each sample's entries end.
    ends: Vec<u32>,
    misses: Vec<f32>,
    /// The first thing that was wrong, told when a decision is asked for.
    defect: Option<String>,
}

impl Candidates {
    /// No samples yet.
    pub fn new() -> Candidates {
        Candidates::default()
    }

    /// No samples yet, with room for so many of so many choices each.
    pub fn with_capacity(samples: usize, choices: usize) -> Candidates {
        let mut candidates = Candidates::new();
        candidates.entries.reserve_exact(samples.saturating_mul(choices));
        candidates.ends.reserve_exact(samples);
        candidates.misses.reserve_exact(samples);
        candidates
    }

    /// The next sample: the probability that it is fetched, and its forms, raw first. What makes no sense is told by
    /// [`decide`](super::decide).
    pub fn push(&mut self, miss: f32, choices: &[Choice]) {
        if self.defect.is_none() {
            self.defect = defect(miss, choices).map(|what| format!("split: sample {} {what}", self.len()));
        }
        if self.defect.is_none() && self.entries.len() + choices.len() > u32::MAX as usize {
            self.defect =
                Some(format!("split: more than {} candidates; plan fewer samples at once", u32::MAX));
        }
        if self.defect.is_some() {
            return;
        }
        self.entries.extend(choices.iter().map(|choice| Entry {
            bytes: choice.bytes as f32,
            upstream_s: choice.upstream_s as f32,
            local_s: choice.local_s as f32,
            stage: choice.stage,
        }));
        self.ends.push(self.entries.len() as u32);
        self.misses.push(miss);
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Refuses what [`Candidates::push`] found to make no sense.
    pub(super) fn check(&self) -> Result<(), SplitError> {
        self.defect.clone().map_or(Ok(()), |sentence| Err(SplitError(sentence)))
    }

    /// The forms of a sample, raw first.
    #[inline]
    pub(super) fn of(&self, sample: usize) -> &[Entry] {
        let start = if sample == 0 { 0 } else { self.ends[sample - 1] as usize };
        &self.entries[start..self.ends[sample] as usize]
    }

    /// The probability that a sample is fetched.
    #[inline]
    pub(super) fn miss(&self, sample: usize) -> f64 {
        f64::from(self.misses[sample])
    }

    /// Every `step`th sample, with its probability and its forms.
    pub(super) fn every(&self, step: usize) -> impl Iterator<Item = (usize, f64, &[Entry])> {
        (0..self.len()).step_by(step).map(|sample| (sample, self.miss(sample), self.of(sample)))
    }
}

/// What is wrong with a sample, if anything is.
fn defect(miss: f32, choices: &[Choice]) -> Option<String> {
    if !(0.0..=1.0).contains(&miss) {
        return Some(format!("has a miss probability of {miss}; it lies between 0 and 1"));
    }
    if choices.is_empty() || choices.len() > CHOICES_MAX {
        return Some(format!("has {} candidates; give 1 to {CHOICES_MAX}, raw first", choices.len()));
    }
    let sane = |value: f64| value >= 0.0 && value <= f64::from(f32::MAX);
    let bad = choices.iter().find(|c| !(sane(c.bytes) && sane(c.upstream_s) && sane(c.local_s)));
    if let Some(bad) = bad {
        return Some(format!(
            "has a stage {} of {} bytes, {} s upstream and {} s here; all must be 0 or more and finite",
            bad.stage, bad.bytes, bad.upstream_s, bad.local_s
        ));
    }
    (choices[0].upstream_s > 0.0).then(|| {
        let upstream_s = choices[0].upstream_s;
        format!("takes {upstream_s} s upstream in its first candidate; the first is raw, which takes none")
    })
}

/// What an epoch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// The link to the upstream node.
    Link,
    /// The upstream node's cores.
    Upstream,
    /// The cores on this side.
    Local,
    /// The accelerator.
    Accelerator,
}

impl Resource {
    /// Its name in sentences and reports.
    pub fn name(self) -> &'static str {
        match self {
            Resource::Link => "link",
            Resource::Upstream => "upstream CPU",
            Resource::Local => "local CPU",
            Resource::Accelerator => "accelerator",
        }
    }
}

/// How long each resource is busy in one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Times {
    /// Seconds of transfer.
    pub link_s: f64,
    /// Seconds of ops upstream.
    pub upstream_s: f64,
    /// Seconds of ops on this side.
    pub local_s: f64,
    /// Seconds of training.
    pub accelerator_s: f64,
}

impl Times {
    /// How long the epoch takes: as long as its busiest resource.
    pub fn epoch_s(&self) -> f64 {
        self.link_s.max(self.upstream_s).max(self.local_s).max(self.accelerator_s)
    }

    /// The busiest resource; of equals the accelerator, since nothing is gained by relieving the others.
    pub fn bottleneck(&self) -> Resource {
        let epoch_s = self.epoch_s();
        [
            (self.accelerator_s, Resource::Accelerator),
            (self.link_s, Resource::Link),
            (self.local_s, Resource::Local),
        ]
        .into_iter()
        .find(|(seconds, _)| *seconds >= epoch_s)
        .map_or(Resource::Upstream, |(_, resource)| resource)
    }
}

/// Sums over an epoch, before they are divided by rates.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Load {
    pub(super) bytes: f64,
    pub(super) upstream_s: f64,
    pub(super) local_s: f64,
}

impl Load {
    /// What one sample adds when it is asked for in this form.
    #[inline]
    pub(super) fn of(miss: f64, raw: &Entry, entry: &Entry) -> Load {
        let raw_s = f64::from(raw.local_s);
        Load {
            bytes: miss * f64::from(entry.bytes),
            upstream_s: miss * f64::from(entry.upstream_s),
            local_s: raw_s + miss * (f64::from(entry.local_s) - raw_s),
        }
    }

    /// Adds another load.
    #[inline]
    pub(super) fn add(&mut self, other: Load) {
        self.bytes += other.bytes;
        self.upstream_s += other.upstream_s;
        self.local_s += other.local_s;
    }

    /// Exchanges one form of a sample for another.
    #[inline]
    pub(super) fn swapped(self, from: Load, to: Load) -> Load {
        Load {
            bytes: self.bytes - from.bytes + to.bytes,
            upstream_s: self.upstream_s - from.upstream_s + to.upstream_s,
            local_s: self.local_s - from.local_s + to.local_s,
        }
    }

    /// The load of an epoch in which each sample takes the form of this index.
    pub(super) fn total(candidates: &Candidates, mut pick: impl FnMut(usize) -> usize) -> Load {
        let mut sum = Load::default();
        for (sample, miss, entries) in candidates.every(1) {
            sum.add(Load::of(miss, &entries[0], &entries[pick(sample)]));
        }
        sum
    }

    /// How long each resource is busy with it in an epoch of so many samples.
    pub(super) fn times(self, resources: &Resources, samples: usize) -> Times {
        // Nothing asked of an absent node takes no time, rather than 0 / 0.
        let upstream_s =
            if self.upstream_s == 0.0 { 0.0 } else { self.upstream_s / resources.upstream_cores };
        Times {
            link_s: self.bytes / resources.link_bytes_per_s,
            upstream_s,
            local_s: self.local_s / resources.local_cores,
            accelerator_s: samples as f64 / resources.accelerator_samples_per_s,
        }
    }
}
