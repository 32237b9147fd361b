//! Samples that are never skipped, and what is done when training trails on them.
//!
//! Whatever the way to select, the probe is in every epoch, each of its samples with the weight of one that is never
//! skipped. So the accuracy on it can be compared from epoch to epoch. When it trails ([`Guard`]) the next epoch has
//! everything, and from then on a recall brings all resting samples back. Both follow from the feedback alone: ranks
//! that know the same decide the same, and a saved state goes on with it.
//!
//! Deliberately not here: who is in the probe and when it trails (`steer::guard`).

use super::options::Bucket;
use super::{Chosen, Pick, Selector, floor};
use crate::Invalid;
use crate::score::Scores;
use crate::steer::guard::{Alarm, Guard};
use std::borrow::Cow;

/// The probe and how training does on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Probe {
    /// Ascending.
    pub(super) ids: Vec<u32>,
    /// The same as one bit per sample; empty without a probe.
    bits: Vec<u64>,
    pub(super) guard: Guard,
    /// Whether there was an alarm.
    pub(super) alarmed: bool,
    /// Whether what is heard does not say who was right.
    pub(super) unjudged: bool,
}

impl Probe {
    /// Whether a sample is in it.
    pub(super) fn has(&self, id: usize) -> bool {
        self.bits.get(id / 64).is_some_and(|bits| bits >> (id % 64) & 1 == 1)
    }

    /// The accuracy on the probe in the epoch `before`, and whether that asks for an epoch of everything.
    pub(super) fn observe(&mut self, scores: &Scores, before: u64) -> (Option<f64>, Option<Alarm>) {
        let trained = |id: &&u32| u64::from(scores.seen[**id as usize]) == before + 1;
        let (mut right, mut all) = (0_u32, 0_u32);
        for &id in self.ids.iter().filter(trained) {
            all += 1;
            right += u32::from(!scores.wrong(id as usize));
        }
        if all == 0 || self.unjudged {
            return (None, None);
        }
        let accuracy = f64::from(right) / f64::from(all);
        let alarm = self.guard.observe(accuracy, all);
        self.alarmed |= alarm.is_some();
        (Some(accuracy), alarm)
    }

    /// Adds what the pick lacks, and gives the whole probe the weight of what is never skipped. Returns how many were
    /// added.
    pub(super) fn keep(&self, pick: &mut Pick) -> u32 {
        let lacking: Vec<u32> =
            self.ids.iter().copied().filter(|id| pick.ids.binary_search(id).is_err()).collect();
        let added = lacking.len() as u32;
        floor::add(pick, lacking);
        let certain = pick.batch_share.unwrap_or(1.0);
        for (weight, &id) in pick.weights.iter_mut().zip(&pick.ids) {
            if self.has(id as usize) {
                *weight = certain;
            }
        }
        added
    }

    /// The options of buckets: after an alarm a recall brings everything back.
    pub(super) fn raised<'a>(&self, options: &'a Bucket) -> Cow<'a, Bucket> {
        if self.alarmed {
            Cow::Owned(Bucket { recall_share: 1.0, ..options.clone() })
        } else {
            Cow::Borrowed(options)
        }
    }
}

impl Selector {
    /// The same with these samples, in ascending order, in every epoch; and with a guard that watches how training does on
    /// them.
    pub fn with_probe(mut self, ids: Vec<u32>) -> Result<Selector, Invalid> {
        let samples = self.scores.len();
        if !ids.is_sorted_by(|a, b| a < b) || ids.last().is_some_and(|&id| id as usize >= samples) {
            return Err(Invalid(format!("the probe is not an ascending list of ids of {samples} samples")));
        }
        let mut bits = vec![0_u64; if ids.is_empty() { 0 } else { samples.div_ceil(64) }];
        ids.iter().for_each(|&id| bits[id as usize / 64] |= 1 << (id % 64));
        self.probe = Probe { ids, bits, ..Probe::default() };
        Ok(self)
    }

    /// From now on feedback is of a loss that is no classifier's: who was right cannot be told from it, so nothing is watched.
    pub fn unjudged(&mut self) {
        self.probe.unjudged = true;
    }

    /// The samples that are in every epoch, ascending.
    pub fn probe(&self) -> &[u32] {
        &self.probe.ids
    }

    /// What the epoch before says about the probe, with the epoch's number; a small model's epochs say nothing.
    pub(super) fn heed(&mut self) -> (Option<f64>, Option<Alarm>) {
        let before = self.chosen.as_ref().map(|Chosen { epoch, .. }| *epoch);
        match before.filter(|before| *before >= self.proxy_epochs()) {
            Some(before) => self.probe.observe(&self.scores, before),
            None => (None, None),
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these values are exact")]
mod tests {
    use super::super::tests::{facts, run, selector};
    use super::super::{Chosen, Readings, Selection, Selector};
    use crate::score::Feedback;
    use crate::steer::guard;

    const SAMPLES: u32 = 2_000;

    fn watched(name: &str, options: &[(&str, &str)], probe: &[u32]) -> Selector {
        let labels = (0..SAMPLES).map(|id| id % 4).collect();
        selector(name, options, facts(labels, 3, Some(400))).with_probe(probe.to_vec()).unwrap()
    }

    fn probe() -> Vec<u32> {
        let labels: Vec<u32> = (0..SAMPLES).map(|id| id % 4).collect();
        guard::probe(&labels, 0.05, 3).unwrap()
    }

    /// Most samples are easy. From epoch 6 on a quarter of all is forgotten.
    fn tell(selector: &mut Selector, chosen: &Chosen) {
        let mut ids = chosen.ids.clone();
        ids.dedup();
        let p_true: Vec<f32> = ids
            .iter()
            .map(|&id| match id.wrapping_mul(2_654_435_761) >> 20 & 3 {
                0 if chosen.epoch >= 6 => 0.2,
                1 => 0.6,
                easy => 0.98 + 0.005 * easy as f32,
            })
            .collect();
        let p_rival: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
        let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
        let said = Feedback { ids: &ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
        selector.feedback(&said).unwrap();
    }

    fn course(selector: &mut Selector, epochs: std::ops::Range<u64>) -> Vec<Chosen> {
        let one = |epoch| {
            let chosen = selector.begin(epoch, &Readings::default()).unwrap().clone();
            tell(selector, &chosen);
            chosen
        };
        epochs.map(one).collect()
    }

    #[test]
    fn the_probe_is_in_every_epoch_of_every_way_with_its_own_weight() {
        let probe = probe();
        for name in &Selection::NAMES[1..] {
            let chosen = run(&mut watched(name, &[], &probe), 0..12, &Readings::default());
            let plain = run(&mut watched(name, &[], &[]), 0..12, &Readings::default());
            let lacks = |chosen: &&Chosen| probe.iter().any(|id| chosen.ids.binary_search(id).is_err());
            if !["active-bias", "biggest-loser"].contains(name) {
                assert!(plain.iter().any(|chosen| lacks(&chosen)), "{name} would skip some");
            }
            for chosen in &chosen {
                assert!(!lacks(&chosen), "{name} in epoch {}", chosen.epoch);
                let pairs = chosen.ids.iter().zip(&chosen.weights);
                let of_probe = pairs.filter(|(id, _)| probe.binary_search(id).is_ok());
                assert!(of_probe.into_iter().all(|(_, w)| *w == chosen.batch_share), "{name}");
            }
        }
    }

    #[test]
    fn what_is_skipped_and_weighted_stays_what_it_is_on_average() {
        // What is easiest may weigh as much as it stands for.
        let unbounded = [
            ("full_share", "0"),
            ("noise", "0.1"),
            ("least", "0.2"),
            ("weight_max", "5"),
            ("wrong_max", "1"),
        ];
        for (name, options) in [("infobatch", &unbounded[..1]), ("weighted", &unbounded)] {
            let mut selector = watched(name, options, &probe());
            let chosen = run(&mut selector, 0..40, &Readings::default());
            let share = |chosen: &Chosen| {
                let sum: f64 = chosen.weights.iter().map(|&w| f64::from(w)).sum();
                sum / f64::from(SAMPLES) / f64::from(chosen.batch_share)
            };
            let mean = chosen[20..].iter().map(share).sum::<f64>() / 20.0;
            assert!((mean - 1.0).abs() < 0.02, "{name}: {mean}");
        }
    }

    #[test]
    fn an_epoch_of_everything_follows_when_the_probe_trails() {
        for name in &Selection::NAMES[1..] {
            let chosen = course(&mut watched(name, &[], &probe()), 0..15);
            let guarded: Vec<u64> =
                chosen.iter().filter(|chosen| !chosen.summary.guard.is_empty()).map(|c| c.epoch).collect();
            assert_eq!(guarded, [9, 13], "{name}: three epochs that trail, and then some rest");
            let full = &chosen[9];
            assert_eq!(full.ids, (0..SAMPLES).collect::<Vec<_>>(), "{name}");
            assert!(full.weights.is_empty() && full.batch_share == 1.0, "{name}");
            assert!(full.summary.guard.contains("by") && full.summary.reason.contains("guard"), "{name}");
            assert!((0.6..0.9).contains(&full.summary.probe.unwrap()), "{name}: {:?}", full.summary.probe);
            assert_eq!(chosen[6].summary.probe, Some(1.0), "{name}");
            assert_eq!(chosen[0].summary.probe, None);
            // Without a probe nobody asks.
            let unwatched = course(&mut watched(name, &[], &[]), 0..15);
            assert!(unwatched.iter().all(|c| c.summary.guard.is_empty() && c.summary.probe.is_none()));
            // Nor does anybody where feedback does not say who was right.
            let mut blind = watched(name, &[], &probe());
            blind.unjudged();
            let unjudged = course(&mut blind, 0..15);
            assert!(unjudged.iter().all(|c| c.summary.guard.is_empty() && c.summary.probe.is_none()));
        }
    }

    #[test]
    fn in_an_epoch_of_everything_everything_is_trained_and_the_probe_always() {
        let (probe, options) = (probe(), [("history", "8")]);
        let mut selector = watched("biggest-loser", &options, &probe);
        let ids: Vec<u32> = (0..SAMPLES).collect();
        let losses: Vec<f32> = ids.iter().map(|id| 0.001 * *id as f32).collect();
        for epoch in 0..10 {
            course(&mut selector, epoch..epoch + 1);
            assert_eq!(selector.judges(), epoch != 0 && epoch != 9, "epoch {epoch}");
            let kept = selector.keep(&ids, &losses).unwrap();
            assert!(probe.iter().all(|&id| kept[id as usize]));
            // What there is to compare with has come by the second time.
            assert_eq!(kept.iter().all(|kept| *kept), epoch == 1 || !selector.judges());
        }
    }

    #[test]
    fn after_an_alarm_all_that_rest_are_recalled() {
        // Epochs in which some come back, and the share of those that rested before: all of them after the alarm.
        let shares = |probe: &[u32]| -> Vec<(u64, bool)> {
            let mut selector = watched("bucket", &[("warmup", "1")], probe);
            let mut rested = 0;
            let mut found = Vec::new();
            for chosen in course(&mut selector, 0..24) {
                if chosen.summary.recalled > 0 {
                    found.push((chosen.epoch, chosen.summary.recalled > rested * 3 / 4));
                }
                if chosen.summary.guard.is_empty() {
                    rested = SAMPLES - chosen.summary.kept;
                }
            }
            found
        };
        let late = |found: Vec<(u64, bool)>| -> Vec<bool> {
            found.into_iter().filter(|(epoch, _)| *epoch > 9).map(|(_, all)| all).collect()
        };
        let (with, without) = (late(shares(&probe())), late(shares(&[])));
        assert!(with.len() >= 3 && with.iter().all(|all| *all), "{with:?}");
        assert!(without.len() >= 3 && without.iter().all(|all| !all), "{without:?}");
    }

    #[test]
    fn a_saved_guard_goes_on_and_another_probe_is_refused() {
        let probe = probe();
        for stop in [1, 6, 8, 9, 10, 12] {
            let mut selector = watched("bucket", &[], &probe);
            course(&mut selector, 0..stop);
            let mut resumed = watched("bucket", &[], &probe);
            resumed.restore(&selector.state()).unwrap();
            assert_eq!(resumed.state(), selector.state());
            assert_eq!(course(&mut resumed, stop..18), course(&mut selector, stop..18), "from {stop}");
        }
        let mut selector = watched("bucket", &[], &probe);
        course(&mut selector, 0..2);
        let error = watched("bucket", &[], &probe[1..]).restore(&selector.state()).unwrap_err().0;
        assert!(error.contains("another") && error.contains("probe"), "{error}");
    }

    #[test]
    fn a_probe_is_an_ascending_list_of_samples() {
        for wrong in [&[3, 2][..], &[2, 2], &[SAMPLES]] {
            let facts = facts(vec![0; SAMPLES as usize], 3, None);
            let made = selector("weighted", &[], facts).with_probe(wrong.to_vec());
            assert!(made.unwrap_err().0.contains("ascending"));
        }
    }
}
