//! No class vanishes: after a way has picked, every class is brought up to its floor.
//!
//! A class of few or easy samples can fall out of training altogether. Each keeps the given share of its samples, at
//! least one; what is missing is added with the weight of a sample that is never skipped, the largest last-known loss first.
//! Where samples are judged one batch after the other ([`Judged`]) nobody knows who is still to come, so the floor holds for
//! those that came so far.

use super::{Facts, Pick};
use crate::score::Scores;

/// Adds what classes lack. Returns how many were added.
pub(super) fn keep_classes(facts: &Facts, classes: u32, scores: &Scores, pick: &mut Pick) -> u32 {
    let mut of_class = vec![(0_u32, 0_u32); classes as usize]; // samples, picked
    for &label in &facts.labels {
        of_class[label as usize].0 += 1;
    }
    let mut last = None;
    for &id in &pick.ids {
        if last != Some(id) {
            of_class[facts.labels[id as usize] as usize].1 += 1;
        }
        last = Some(id);
    }
    let lacks = |&(samples, picked): &(u32, u32)| least(samples, facts.class_floor).saturating_sub(picked);
    let mut lacking: Vec<u32> = of_class.iter().map(lacks).collect();
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
