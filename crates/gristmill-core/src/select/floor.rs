//! No class vanishes: after a way has picked, every class is brought up to its floor.
//!
//! A class of few or easy samples can fall out of training altogether. Each keeps the given share of its samples, at
//! least one; what is missing is added with the weight of a sample that is never skipped, the largest last-known loss first.

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
