//! The policies that others published, and the trivial ones.
//!
//! SOPHON takes, per sample, the smallest of the forms that its ops produce, orders the samples by bytes saved per
//! second of work upstream, and moves them in that order while the link stays the bottleneck and the epoch gets
//! shorter. `FastFlow` moves whole recipes for a share of the samples, and only when the local CPU is the bottleneck.
//!
//! A decision is one index into the candidates per sample; 0 is raw. Deliberately not here: our own (`hull`).

use super::model::{Candidates, Entry, Load, Resource, Resources};
use super::{Roles, Stop};
use std::cmp::Ordering;

/// How much faster than the local CPU the accelerator must be before `FastFlow` moves anything.
const FASTFLOW_RATIO: f64 = 1.3;

/// All samples in one form, where they have it.
pub(super) fn whole(candidates: &Candidates, stage: u8) -> Vec<u8> {
    candidates.every(1).map(|(_, miss, entries)| at(entries, miss, stage)).collect()
}

/// The index of a form, raw when the sample lacks it or is not fetched.
fn at(entries: &[Entry], miss: f64, stage: u8) -> u8 {
    if miss == 0.0 {
        return 0;
    }
    entries.iter().position(|entry| entry.stage == stage).unwrap_or(0) as u8
}

/// Whole recipes for a share of the samples, spread evenly.
pub(super) fn fastflow(candidates: &Candidates, resources: &Resources, roles: Roles) -> Vec<u8> {
    let samples = candidates.len();
    let raw = vec![0; samples];
    let finished = whole(candidates, roles.finished);
    let before = Load::total(candidates, |_| 0);
    let after = Load::total(candidates, |sample| finished[sample] as usize);
    let times = before.times(resources, samples);
    if times.bottleneck() == Resource::Link || after.upstream_s == 0.0 {
        return raw;
    }
    // Rates in epochs per second. The remote rate is measured end to end, hence with the transfer.
    let remote_times = after.times(resources, samples);
    let local = 1.0 / times.local_s;
    let accelerator = 1.0 / times.accelerator_s;
    let remote = 1.0 / remote_times.upstream_s.max(remote_times.link_s);
    if times.local_s == 0.0 || accelerator / local <= FASTFLOW_RATIO {
        return raw;
    }
    let local_share = local / (local + remote).min(accelerator);
    let moved = ((1.0 - local_share).clamp(0.0, 1.0) * samples as f64) as usize;
    let spread = |sample: usize| (sample + 1) * moved / samples > sample * moved / samples;
    let picks: Vec<u8> =
        finished.iter().enumerate().map(|(sample, &pick)| if spread(sample) { pick } else { 0 }).collect();
    let load = Load::total(candidates, |sample| picks[sample] as usize);
    if load.times(resources, samples).epoch_s() < times.epoch_s() { picks } else { raw }
}

/// A sample that would be smaller in another form.
pub(super) struct Saving {
    /// Bytes saved per second upstream.
    pub(super) efficiency: f64,
    bytes: f32,
    pub(super) sample: u32,
    pick: u8,
}

/// SOPHON's rule.
pub(super) fn sophon(candidates: &Candidates, resources: &Resources, roles: Roles, stop: Stop) -> Vec<u8> {
    let samples = candidates.len();
    let mut picks = vec![0; samples];
    let mut load = Load::total(candidates, |_| 0);
    let mut times = load.times(resources, samples);
    if stop == Stop::Published && times.bottleneck() != Resource::Link {
        return picks;
    }
    for saving in savings(candidates, roles) {
        if stop == Stop::Published && times.link_s < times.epoch_s() {
            break;
        }
        let sample = saving.sample as usize;
        let (miss, entries) = (candidates.miss(sample), candidates.of(sample));
        let of = |pick: u8| Load::of(miss, &entries[0], &entries[pick as usize]);
        let next_load = load.swapped(of(0), of(saving.pick));
        let next = next_load.times(resources, samples);
        let goes_on = match stop {
            Stop::Published => next.epoch_s() < times.epoch_s(),
            Stop::PublicCode => next.link_s >= next.upstream_s,
        };
        if !goes_on {
            break;
        }
        picks[sample] = saving.pick;
        (load, times) = (next_load, next);
    }
    picks
}

/// The samples that shrink, the most bytes per second first, then the most bytes, then by id.
pub(super) fn savings(candidates: &Candidates, roles: Roles) -> Vec<Saving> {
    let mut savings: Vec<Saving> = candidates
        .every(1)
        .filter(|(_, miss, _)| *miss > 0.0)
        .filter_map(|(sample, _, entries)| {
            let (pick, least) = smallest(entries, roles);
            let bytes = entries[0].bytes - least.bytes;
            let efficiency = f64::from(bytes) / f64::from(least.upstream_s);
            (bytes > 0.0).then_some(Saving { efficiency, bytes, sample: sample as u32, pick: pick as u8 })
        })
        .collect();
    savings.sort_unstable_by(|a, b| {
        let by_efficiency = b.efficiency.total_cmp(&a.efficiency);
        let by_bytes = || b.bytes.partial_cmp(&a.bytes).unwrap_or(Ordering::Equal);
        by_efficiency.then_with(by_bytes).then(a.sample.cmp(&b.sample))
    });
    savings
}

/// The smallest form that plain ops give, the earliest of equals.
fn smallest(entries: &[Entry], roles: Roles) -> (usize, &Entry) {
    let plain = |stage: u8| [roles.decoded, roles.cropped, roles.finished].contains(&stage);
    let mut least = 0;
    for (index, entry) in entries.iter().enumerate().skip(1) {
        if plain(entry.stage) && entry.bytes < entries[least].bytes {
            least = index;
        }
    }
    (least, &entries[least])
}
