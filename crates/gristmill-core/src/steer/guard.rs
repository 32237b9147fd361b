//! Whether skipping samples costs accuracy, watched on a few that are never skipped.
//!
//! A small share of the samples, fixed for the run, is the probe: they are in every epoch, so how well the model does on
//! them can be compared from epoch to epoch. The best that was reached so far is what the next epochs are held against.
//! When the probe trails it by more than half a point in three epochs in a row, the guard asks for one epoch of
//! everything and for more recall afterwards. It says so, and it waits before it asks again. Of a small probe half a point
//! is less than chance makes of it; there it must trail by twice the standard error.
//!
//! Deliberately not here: training on them (they are trained like any other) and what recall means (`select`).

use crate::Invalid;
use crate::rng::{Stream, key};

/// The share of samples in the probe, unless told otherwise.
pub const PROBE_SHARE: f64 = 0.01;
/// Trailing by less than this is noise.
const TRAILS_BY: f64 = 0.005;
/// In so many epochs in a row.
const TRAILS_EPOCHS: u32 = 3;
/// So many epochs pass from one alarm to the next: the full one, and enough to see what it brought.
const REST_EPOCHS: u32 = 4;
/// Folded into the key of the draw, so that no other stream has it.
const PROBE: u64 = 0x50_52_4f_42_45;

/// The samples of the probe, ascending: a share of every class, at least one sample of each.
pub fn probe(labels: &[u32], share: f64, seed: u64) -> Result<Vec<u32>, Invalid> {
    if !(share > 0.0 && share <= 1.0) {
        return Err(Invalid(format!("the probe's share is {share}; it must be above 0 and at most 1")));
    }
    let mut by_class: Vec<(u32, u64, u32)> = labels
        .iter()
        .enumerate()
        .map(|(id, &label)| (label, Stream::from_key(key(&[seed, PROBE, id as u64])).bits(), id as u32))
        .collect();
    by_class.sort_unstable();
    let mut probe = Vec::new();
    for class in by_class.chunk_by(|a, b| a.0 == b.0) {
        let take = ((class.len() as f64 * share).round() as usize).max(1);
        probe.extend(class[..take].iter().map(|&(_, _, id)| id));
    }
    probe.sort_unstable();
    Ok(probe)
}

/// What the guard asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Alarm {
    /// Why, in one sentence.
    pub reason: String,
}

/// Watches the probe from epoch to epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Guard {
    best: f64,
    /// Epochs in a row in which the probe trailed.
    trails: u32,
    /// Epochs that pass before the next alarm.
    rests: u32,
}

impl Guard {
    /// Before the first epoch.
    pub fn new() -> Guard {
        Guard::default()
    }

    /// The best accuracy on the probe so far.
    pub fn best(&self) -> f64 {
        self.best
    }

    /// Takes the accuracy (0 to 1) on so many samples of the probe in the epoch that ended; an alarm asks that the next one
    /// has everything. What is not a number is not counted.
    pub fn observe(&mut self, accuracy: f64, samples: u32) -> Option<Alarm> {
        if !(0.0..=1.0).contains(&accuracy) {
            return None;
        }
        self.rests = self.rests.saturating_sub(1);
        let behind = self.best - accuracy;
        self.best = self.best.max(accuracy);
        self.trails = if behind > TRAILS_BY.max(self.chance(samples)) { self.trails + 1 } else { 0 };
        if self.trails < TRAILS_EPOCHS || self.rests > 0 {
            return None;
        }
        let reason = format!(
            "the probe trails its best ({:.1} %) by {:.1} points for {} epochs: this epoch has every sample",
            self.best * 100.0,
            behind * 100.0,
            self.trails
        );
        *self = Guard { trails: 0, rests: REST_EPOCHS, ..*self };
        Some(Alarm { reason })
    }

    /// What chance makes of a probe of this size: twice the standard error of the best, with one sample right and one wrong
    /// beside it, so that a few that are all right do not seem certain.
    fn chance(&self, samples: u32) -> f64 {
        let all = f64::from(samples) + 2.0;
        let right = (self.best * f64::from(samples) + 1.0) / all;
        2.0 * (right * (1.0 - right) / all).sqrt()
    }

    /// As bytes, for a state that is saved.
    pub fn to_bytes(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.best.to_le_bytes());
        out[8..12].copy_from_slice(&self.trails.to_le_bytes());
        out[12..].copy_from_slice(&self.rests.to_le_bytes());
        out
    }

    /// Goes on from a saved state; none if these are not its bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Guard> {
        let (best, rest) = bytes.split_first_chunk::<8>()?;
        let (trails, rests) = rest.split_first_chunk::<4>()?;
        let best = f64::from_le_bytes(*best);
        let guard = Guard {
            best,
            trails: u32::from_le_bytes(*trails),
            rests: u32::from_le_bytes(rests.try_into().ok()?),
        };
        (0.0..=1.0).contains(&best).then_some(guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_needs_three_epochs_and_then_rests() {
        let mut guard = Guard::new();
        let table = [
            (0.80, false),
            (0.85, false),
            (0.847, false), // noise
            (0.84, false),
            (0.84, false),
            (f64::NAN, false), // not counted
            (0.84, true),
            (0.83, false),
            (0.83, false),
            (0.83, false), // three again, but it rests
            (0.83, true),
            (0.86, false),
            (0.85, false),
        ];
        for (i, (accuracy, alarms)) in table.into_iter().enumerate() {
            let alarm = guard.observe(accuracy, 100_000);
            assert_eq!(alarm.is_some(), alarms, "{i}: {alarm:?}");
            if let Some(alarm) = alarm {
                assert!(alarm.reason.contains("85.0 %"), "{alarm:?}");
            }
        }
        assert_eq!(Guard::from_bytes(guard.to_bytes()), Some(guard));
        assert_eq!(Guard::from_bytes([0xff; 16]), None);
    }

    #[test]
    fn what_chance_makes_of_a_small_probe_is_no_alarm() {
        // Samples, the best, what it is then, whether three epochs of that are an alarm.
        let table = [
            (20, 1.0, 0.95, false),
            (20, 1.0, 0.85, true),
            (600, 0.98, 0.972, false),
            (600, 0.98, 0.96, true),
            (12_800, 0.75, 0.745, false),
            (12_800, 0.75, 0.741, true),
            (12_800, 0.999, 0.9945, false),
            (12_800, 0.999, 0.9935, true),
        ];
        for (samples, best, then, alarms) in table {
            let mut guard = Guard::new();
            guard.observe(best, samples);
            let alarm = (0..3).filter_map(|_| guard.observe(then, samples)).count() > 0;
            assert_eq!(alarm, alarms, "{then} after {best} of {samples}");
        }
    }

    #[test]
    fn a_probe_has_some_of_every_class_and_is_always_the_same() {
        let labels: Vec<u32> = (0..1_000).map(|id| if id < 3 { 7 } else { id % 5 }).collect();
        let found = probe(&labels, 0.02, 4).unwrap();
        assert_eq!(found, probe(&labels, 0.02, 4).unwrap());
        assert_ne!(found, probe(&labels, 0.02, 5).unwrap());
        assert!(found.is_sorted_by(|a, b| a < b) && (20..24).contains(&found.len()), "{}", found.len());
        for class in [0, 1, 2, 3, 4, 7] {
            assert!(found.iter().any(|&id| labels[id as usize] == class), "class {class}");
        }
        assert_eq!(probe(&labels, 1.0, 4).unwrap().len(), 1_000);
        assert_eq!(probe(&[], 0.5, 4).unwrap(), []);
        for share in [0.0, -0.1, 1.1, f64::NAN] {
            assert!(probe(&labels, share, 4).unwrap_err().0.contains("above 0"));
        }
    }
}
