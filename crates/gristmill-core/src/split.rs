//! Where each sample is cut: in which form it crosses the link from the upstream node (SOPHON, and ours).
//!
//! A sample may come raw and be prepared here, or the upstream node may run the first ops and send a smaller form. The
//! first costs link time, the second the upstream node's cores. [`decide`] takes, for every sample of an epoch, the
//! bytes and seconds of each form it could come in ([`Candidates`]), how fast the resources are ([`Resources`]) and a
//! policy, and says which form to ask for, what that should cost, and why in one sentence.
//!
//! Deliberately not here: what a form is (a stage is the caller's number), the ops, the wire, and measuring.
//! [`profile`] turns measurements into candidates.

mod hull;
mod model;
mod policy;
pub mod profile;

pub use crate::Invalid as SplitError;
pub use model::{CHOICES_MAX, Candidates, Choice, Resource, Resources, Times};

use crate::nearest::nearest;
use model::Load;

/// How it is decided where samples are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitPolicy {
    /// Everything comes raw.
    None,
    /// Everything comes finished.
    All,
    /// Everything comes cropped.
    Resize,
    /// Whole recipes for a share of the samples, when the local CPU is the bottleneck.
    Fastflow,
    /// The published rule: the smallest form per sample, the most efficient first.
    Sophon,
    /// Ours: any mix of forms that makes the epoch shortest.
    Best,
}

impl SplitPolicy {
    /// Every policy, from the plainest on.
    pub const ALL: [SplitPolicy; 6] = [
        SplitPolicy::None,
        SplitPolicy::All,
        SplitPolicy::Resize,
        SplitPolicy::Fastflow,
        SplitPolicy::Sophon,
        SplitPolicy::Best,
    ];

    /// The policy of this name.
    pub fn named(name: &str) -> Result<SplitPolicy, SplitError> {
        if let Some(policy) = SplitPolicy::ALL.into_iter().find(|policy| policy.name() == name) {
            return Ok(policy);
        }
        let names = SplitPolicy::ALL.map(SplitPolicy::name);
        let near = nearest(name, names).map_or(String::new(), |near| format!("; did you mean {near:?}?"));
        Err(SplitError(format!("split policy {name:?} is not one of {}{near}", names.join(", "))))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            SplitPolicy::None => "none",
            SplitPolicy::All => "all",
            SplitPolicy::Resize => "resize",
            SplitPolicy::Fastflow => "fastflow",
            SplitPolicy::Sophon => "sophon",
            SplitPolicy::Best => "best",
        }
    }
}

/// The caller's numbers for the stages that the published policies speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// All pixels.
    pub decoded: u8,
    /// The pixels after the crop, before they become a tensor.
    pub cropped: u8,
    /// The tensor.
    pub finished: u8,
}

/// When [`sophon`] stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// As the paper says: when the link is no longer the bottleneck, or the epoch would not get shorter.
    Published,
    /// As the authors' code does: before the upstream node would be busier than the link.
    PublicCode,
}

/// What was decided, and what it should cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The stage to ask for, per sample.
    pub stages: Vec<u8>,
    /// The times when everything comes raw.
    pub before: Times,
    /// The times with this decision.
    pub after: Times,
    /// The same without what only this epoch has ([`Decided::with_once`]).
    pub lasting: Times,
    /// Bytes over the link when everything comes raw.
    pub bytes_before: f64,
    /// Bytes over the link with this decision.
    pub bytes_after: f64,
    /// How many samples do not come raw.
    pub moved: u64,
    /// Why, in one sentence.
    pub reason: String,
}

impl Decided {
    /// The same with work that only this epoch has, which the candidates left out: CPU seconds upstream and here.
    #[must_use]
    pub fn with_once(
        self,
        policy: SplitPolicy,
        upstream_s: f64,
        local_s: f64,
        resources: &Resources,
    ) -> Decided {
        if upstream_s <= 0.0 && local_s <= 0.0 {
            return self;
        }
        let mut after = self.after;
        after.upstream_s += upstream_s / resources.upstream_cores;
        after.local_s += local_s / resources.local_cores;
        let reason = reason(policy, resources, &self.before, &after, self.moved, self.stages.len());
        Decided { after, reason, ..self }
    }
}

/// Decides in which form each sample comes.
pub fn decide(
    policy: SplitPolicy,
    candidates: &Candidates,
    resources: &Resources,
    roles: Roles,
) -> Result<Decided, SplitError> {
    check(candidates, resources)?;
    let raw = || vec![0; candidates.len()];
    let picks = match policy {
        // Nobody is there to run anything.
        _ if resources.upstream_cores == 0.0 => raw(),
        SplitPolicy::None => raw(),
        SplitPolicy::All => policy::whole(candidates, roles.finished),
        SplitPolicy::Resize => policy::whole(candidates, roles.cropped),
        SplitPolicy::Fastflow => policy::fastflow(candidates, resources, roles),
        SplitPolicy::Sophon => policy::sophon(candidates, resources, roles, Stop::Published),
        SplitPolicy::Best => hull::best(candidates, resources, roles),
    };
    Ok(decided(policy, candidates, resources, &picks))
}

/// SOPHON's decision with either of its stop rules.
pub fn sophon(
    candidates: &Candidates,
    resources: &Resources,
    roles: Roles,
    stop: Stop,
) -> Result<Decided, SplitError> {
    check(candidates, resources)?;
    let picks = if resources.upstream_cores == 0.0 {
        vec![0; candidates.len()]
    } else {
        policy::sophon(candidates, resources, roles, stop)
    };
    Ok(decided(SplitPolicy::Sophon, candidates, resources, &picks))
}

/// Whether link, cores, accelerator or the number of samples changed by more than a tenth, so that it pays to decide
/// again.
pub fn changed(before: &Resources, now: &Resources, samples_before: u64, samples_now: u64) -> bool {
    let figures =
        |r: &Resources| [r.link_bytes_per_s, r.upstream_cores, r.local_cores, r.accelerator_samples_per_s];
    let counts = (samples_before as f64, samples_now as f64);
    figures(before).into_iter().zip(figures(now)).chain([counts]).any(|(before, now)| {
        // Two infinities are equal though their difference is not a number; what is not a number has changed.
        let both_infinite = before.is_infinite() && now.is_infinite();
        let near = before.is_finite() && (now - before).abs() <= 0.1 * before;
        !(both_infinite || near)
    })
}

/// Refuses what no decision can be taken from.
fn check(candidates: &Candidates, resources: &Resources) -> Result<(), SplitError> {
    resources.check()?;
    candidates.check()
}

/// A decision with its figures and its sentence.
fn decided(policy: SplitPolicy, candidates: &Candidates, resources: &Resources, picks: &[u8]) -> Decided {
    let samples = candidates.len();
    let raw = Load::total(candidates, |_| 0);
    let load = Load::total(candidates, |sample| picks[sample] as usize);
    let (before, after) = (raw.times(resources, samples), load.times(resources, samples));
    let moved = picks.iter().filter(|&&pick| pick > 0).count() as u64;
    let stages =
        candidates.every(1).map(|(sample, _, entries)| entries[picks[sample] as usize].stage).collect();
    let reason = reason(policy, resources, &before, &after, moved, samples);
    Decided {
        stages,
        before,
        after,
        lasting: after,
        bytes_before: raw.bytes,
        bytes_after: load.bytes,
        moved,
        reason,
    }
}

/// Cause and effect in one sentence.
fn reason(
    policy: SplitPolicy,
    resources: &Resources,
    before: &Times,
    after: &Times,
    moved: u64,
    samples: usize,
) -> String {
    let bottleneck = before.bottleneck();
    let cause = format!(
        "the {} is the bottleneck ({:.1} s of link, {:.1} s of ops, {:.1} s of training)",
        bottleneck.name(),
        before.link_s,
        before.local_s,
        before.accelerator_s
    );
    if moved > 0 {
        let (was_s, is_s) = (before.epoch_s(), after.epoch_s());
        let gain = if is_s > 0.0 { was_s / is_s } else { 1.0 };
        let then = if after.bottleneck() == bottleneck {
            String::new()
        } else {
            format!(", then limited by the {}", after.bottleneck().name())
        };
        return format!(
            "{cause}; {moved} of {samples} samples are cut upstream, predicted {is_s:.1} s ({gain:.2}x){then}"
        );
    }
    let why = if samples == 0 {
        return "there are no samples, so nothing is moved".into();
    } else if policy == SplitPolicy::None {
        "the policy is none, so nothing is moved"
    } else if resources.upstream_cores == 0.0 {
        "the upstream node gives no cores, so every sample comes raw"
    } else if matches!(policy, SplitPolicy::All | SplitPolicy::Resize) {
        "no sample that is fetched can be brought to that form upstream, so nothing is moved"
    } else if bottleneck == Resource::Accelerator {
        "less traffic would not shorten the epoch, so nothing is moved"
    } else if policy == SplitPolicy::Fastflow && bottleneck == Resource::Link {
        "whole recipes would make the traffic larger, so nothing is moved"
    } else {
        "no sample has a form that would shorten the epoch, so nothing is moved"
    };
    format!("{cause}; {why}")
}

#[cfg(test)]
mod tests;
