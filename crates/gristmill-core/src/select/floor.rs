//! No class vanishes: after a way has picked, every class is brought up to its floor.
//!
//! A class of few or easy samples can fall out of training altogether. Each keeps the given share of its samples, at
//! least one; what is missing is added with the weight of a sample that is never skipped, the largest last-known loss first.
//! What a class lost because its samples look alike ([`come_back`]) comes back in turns, since their losses are alike, too.
//! Where samples are judged one batch after the other ([`Judged`]) nobody knows who is still to come, so the floor holds for
//! those that came so far.

use super::{Facts, Pick};
use crate::score::Scores;

/// Adds what classes lack. Returns how many were added.
pub(super) fn keep_classes(facts: &Facts, classes: u32, scores: &Scores, pick: &mut Pick) -> u32 {
    let mut lacking = lacking(facts, classes, &pick.ids);
    if lacking.iter().all(|&lack| lack == 0) {
        return 0;
    }
    let taken = |id: u32| pick.ids.binary_search(&id).is_ok();
    let mut candidates: Vec<u32> = (0..facts.labels.len() as u32)
        .filter(|&id| lacking[facts.labels[id as usize] as usize] > 0 && !taken(id))
        .collect();
    candidates.sort_unstable_by(|&a, &b| {
        scores.loss[b as usize].total_cmp(&scores.loss[a as usize]).then(a.cmp(&b))
    });
    candidates.retain(|&id| {
        let lack = &mut lacking[facts.labels[id as usize] as usize];
        let add = *lack > 0;
        *lack -= u32::from(add);
        add
    });
    let added = candidates.len() as u32;
    add(pick, candidates);
    added
}

/// Who of those that were `left` out, because they look like others, comes back: of every class as many as it lacks beside those
/// that `stay`, evenly spread over its ids and one place further in every epoch. All three are in ascending order.
pub(super) fn come_back(
    facts: &Facts,
    classes: u32,
    epoch: u64,
    stay: &[u32],
    left: impl Iterator<Item = u32> + Clone,
) -> Vec<u32> {
    let lacking = lacking(facts, classes, stay);
    if lacking.iter().all(|&lack| lack == 0) {
        return Vec::new();
    }
    let class = |id: u32| facts.labels[id as usize] as usize;
    let mut lefts = vec![0_u64; classes as usize];
    left.clone().for_each(|id| lefts[class(id)] += 1);
    let mut places = vec![0_u64; classes as usize];
    left.filter(|&id| {
        let (lack, left) = (u64::from(lacking[class(id)]), lefts[class(id)]);
        let place = (places[class(id)] + left - epoch % left) % left;
        places[class(id)] += 1;
        ((place + 1) * lack).div_ceil(left) > (place * lack).div_ceil(left)
    })
    .collect()
}

/// How many samples every class has too few of among these, which are in ascending order.
fn lacking(facts: &Facts, classes: u32, ids: &[u32]) -> Vec<u32> {
    let mut of_class = vec![(0_u32, 0_u32); classes as usize]; // samples, picked
    for &label in &facts.labels {
        of_class[label as usize].0 += 1;
    }
    for same in ids.chunk_by(|a, b| a == b) {
        of_class[facts.labels[same[0] as usize] as usize].1 += 1;
    }
    let lacks = |&(samples, picked): &(u32, u32)| least(samples, facts.class_floor).saturating_sub(picked);
    of_class.iter().map(lacks).collect()
}

/// Adds samples that the pick does not have, with the weight of one that is never skipped.
pub(super) fn add(pick: &mut Pick, ids: Vec<u32>) {
    if ids.is_empty() {
        return;
    }
    let weighted = !pick.weights.is_empty();
    let old = std::mem::take(&mut pick.weights);
    let mut both: Vec<(u32, f32)> = pick
        .ids
        .iter()
        .enumerate()
        .map(|(i, &id)| (id, if weighted { old[i] } else { 1.0 }))
        .chain(ids.into_iter().map(|id| (id, pick.batch_share.unwrap_or(1.0))))
        .collect();
    both.sort_by_key(|(id, _)| *id);
    pick.ids = both.iter().map(|(id, _)| *id).collect();
    if weighted {
        pick.weights = both.into_iter().map(|(_, weight)| weight).collect();
    }
}

/// How many of a class's samples are kept at least.
pub(super) fn least(samples: u32, share: f64) -> u32 {
    ((f64::from(samples) * share) as u32).max(1).min(samples)
}

/// Who was judged in this epoch so far, class by class: samples, and how many of them are trained.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Judged {
    pub(super) of_class: Vec<(u32, u32)>,
}

impl Judged {
    pub(super) fn new(classes: u32) -> Judged {
        Judged { of_class: vec![(0, 0); classes as usize] }
    }

    /// Whether the next sample is trained: if it was chosen, or if its class has too few without it.
    pub(super) fn keep(&mut self, facts: &Facts, id: u32, chosen: bool) -> bool {
        let (judged, trained) = &mut self.of_class[facts.labels[id as usize] as usize];
        *judged = judged.saturating_add(1);
        let kept = chosen || *trained < least(*judged, facts.class_floor);
        *trained = trained.saturating_add(kept.into());
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::super::Readings;
    use super::super::tests::{facts, selector, train};
    use crate::family::Families;
    use std::collections::BTreeSet;

    #[test]
    fn no_class_vanishes_because_its_samples_look_alike() {
        // Class 1 is one family of 200, class 0 has pairs.
        let labels: Vec<u32> = (0..2_000).map(|id| u32::from(id % 10 == 7)).collect();
        let hash = |(id, label): (u64, &u32)| if *label == 1 { 1 } else { (id / 20 * 2 + id % 2) << 8 | 2 };
        let hashes: Vec<u64> = (0..).zip(&labels).map(hash).collect();
        let families = Families::group(&hashes, &labels, 0, false).unwrap();
        assert_eq!(families.largest(), 200);
        for way in ["uniform", "weighted", "bucket", "online"] {
            let probe = vec![7, 17];
            let mut selector =
                selector(way, &[], facts(labels.clone(), 3, None)).with_probe(probe.clone()).unwrap();
            let mut ever = BTreeSet::new();
            // Eight of the 198 that are not in the probe come back in every epoch.
            for epoch in 0..if way == "uniform" { 25 } else { 8 } {
                let all = selector.begin(epoch, &Readings::default()).unwrap().clone();
                let less = selector.without_relatives(&families).unwrap();
                let kept: BTreeSet<u32> = less.ids.iter().copied().collect();
                let of_class_1: Vec<u32> = kept.iter().copied().filter(|id| id % 10 == 7).collect();
                // 5 % of 200, the probe among them: as many as the floor asks for, and no more.
                assert_eq!(of_class_1.len(), 10, "{way} in epoch {epoch}");
                assert!(probe.iter().all(|id| kept.contains(id)));
                assert_eq!(less.summary.for_classes, all.summary.for_classes + 8);
                assert_eq!(less.summary.kept as usize, kept.len());
                ever.extend(of_class_1);
                // Whoever is left has the weight it had, and comes as often.
                let weights = less.weights.iter();
                let those = all.ids.iter().zip(&all.weights).filter(|(id, _)| kept.contains(id));
                assert!(weights.eq(those.map(|(_, weight)| weight)));
                assert!(less.ids.iter().eq(all.ids.iter().filter(|id| kept.contains(id))));
                train(&mut selector, &less.ids, epoch);
            }
            assert!(
                way != "uniform" || ever.len() == 200,
                "they take turns: {} of 200 were trained",
                ever.len()
            );
        }
    }

    #[test]
    fn no_class_vanishes_where_samples_are_judged_one_by_one() {
        // Class 1 is four samples that are easier than all others: by their losses none would be trained.
        let labels: Vec<u32> = (0..2_000).map(|id| u32::from(id % 500 == 7)).collect();
        let begin = || selector("biggest-loser", &[("history", "1")], facts(labels.clone(), 3, None));
        let (mut selector, mut again) = (begin(), begin());
        for epoch in 0..5 {
            let ids = selector.begin(epoch, &Readings::default()).unwrap().ids.clone();
            let loss = |&id: &u32| if labels[id as usize] == 1 { 0.0 } else { 1.0 - id as f32 / 2_000.0 };
            let mut kept = Vec::new();
            for (at, batch) in ids.chunks(64).enumerate() {
                let losses: Vec<f32> = batch.iter().map(loss).collect();
                if at == 20 {
                    // A run that was stopped in the middle goes on, in another process, as it would have.
                    let saved = selector.state();
                    again = begin();
                    again.restore(&saved).unwrap();
                    assert_eq!(again.state(), saved);
                }
                let says = selector.keep(batch, &losses).unwrap();
                assert!(
                    at < 20 || again.keep(batch, &losses).unwrap() == says,
                    "batch {at} of epoch {epoch}"
                );
                kept.extend(batch.iter().zip(says).filter(|(_, kept)| *kept).map(|(&id, _)| id));
            }
            let of_class = |class: u32| kept.iter().filter(|&&id| labels[id as usize] == class).count();
            assert!(of_class(1) >= 1 && of_class(0) >= 99, "{} and {}", of_class(0), of_class(1));
            assert!(epoch == 0 || of_class(1) < 4, "no more of them than the floor asks for");
            train(&mut selector, &ids, epoch);
        }
    }
}
