//! Which samples of its slice a rank sends, and in which turn.
//!
//! A queue per rank: the slice in its random local order, or by importance, or by how much the slice has too much of a
//! class, or by both. Samples that the epoch trains on come before those that rest, since moving a resting one brings nothing yet.

use super::{Choose, NONE, Owners, View};
use crate::math::log2;
use crate::rng::{Purpose, Stream};

/// What a rank may send.
#[derive(Debug)]
pub(super) struct Queue {
    ids: Vec<u32>,
    at: usize,
    /// Who has gone already: pairs that even out the ranks take samples out of turn. By place in `ids`.
    gone: Vec<bool>,
    /// Places of the active and of the resting samples, by id: for pairs.
    active: Vec<u32>,
    resting: Vec<u32>,
}

impl Queue {
    /// The queues of all ranks.
    pub(super) fn all(owners: &Owners, seed: u64, epoch: u64, choose: Choose, view: View<'_>) -> Vec<Queue> {
        let active = view.active.map(|ids| {
            let mut active = vec![false; owners.samples as usize];
            ids.iter().for_each(|&id| active[id as usize] = true);
            active
        });
        let shares = choose.by_label().then(|| class_counts(view.labels));
        let mut counts = vec![0_u32; shares.as_ref().map_or(0, Vec::len)];
        let queue = |rank: u32| {
            let held = owners.held(rank);
            let mut ids: Vec<u32> =
                owners.local_order(seed, epoch, rank).into_iter().map(|at| held[at as usize]).collect();
            if choose.by_score() {
                // The stream of the local order, past what that drew.
                let mut stream = Stream::new(seed, epoch, Purpose::ExchangeOrder, &[u64::from(rank), 1]);
                by_importance(&mut ids, view.importance, &mut stream);
            }
            // The order within a class stays, so the important ones of it still go first.
            if let Some(shares) = &shares {
                by_surplus(&mut ids, view.labels, shares, &mut counts);
            }
            Queue::new(ids, active.as_deref())
        };
        (0..owners.world()).map(queue).collect()
    }

    fn new(mut ids: Vec<u32>, active: Option<&[bool]>) -> Queue {
        let (mut here, mut resting) = (Vec::new(), Vec::new());
        if let Some(active) = active {
            // Stable: the order within both stays.
            ids.sort_by_key(|&id| !active[id as usize]);
            let active_len = ids.partition_point(|&id| active[id as usize]) as u32;
            let by_id = |places: std::ops::Range<u32>| {
                let mut places: Vec<u32> = places.collect();
                // The lowest id last: it is popped first.
                places.sort_by_key(|&place| std::cmp::Reverse(ids[place as usize]));
                places
            };
            (here, resting) = (by_id(0..active_len), by_id(active_len..ids.len() as u32));
        }
        Queue { gone: vec![false; ids.len()], ids, at: 0, active: here, resting }
    }

    /// How many active samples are there.
    pub(super) fn active_len(&self) -> u32 {
        self.active.len() as u32
    }

    /// The sample whose turn it is; if it is `taken` it is gone. `NONE` when all are gone.
    pub(super) fn next(&mut self, taken: bool) -> u32 {
        while self.gone.get(self.at).is_some_and(|gone| *gone) {
            self.at += 1;
        }
        let Some(&id) = self.ids.get(self.at) else { return NONE };
        self.gone[self.at] |= taken;
        self.at += 1;
        id
    }

    /// The active sample with the lowest id that is still there, without taking it.
    pub(super) fn active(&mut self) -> Option<u32> {
        last(&mut self.active, &self.gone)
    }

    /// The same among the resting.
    pub(super) fn resting(&mut self) -> Option<u32> {
        last(&mut self.resting, &self.gone)
    }

    /// Takes the sample at a place out of its turn.
    pub(super) fn take(&mut self, place: u32) -> u32 {
        self.gone[place as usize] = true;
        self.ids[place as usize]
    }
}

fn last(places: &mut Vec<u32>, gone: &[bool]) -> Option<u32> {
    while places.last().is_some_and(|&place| gone[place as usize]) {
        places.pop();
    }
    places.last().copied()
}

/// Draws without replacement, with chances as the importance: the smaller `-log u / w`, the sooner
/// (Efraimidis and Spirakis, 2006). What has no importance to speak of comes last, in its old order.
fn by_importance(ids: &mut [u32], importance: &[f32], stream: &mut Stream) {
    let mut keyed: Vec<(f64, u32)> = ids
        .iter()
        .map(|&id| {
            let weight = f64::from(importance[id as usize]);
            let draw = -log2(1.0 - stream.unit());
            (if weight > 0.0 && weight.is_finite() { draw / weight } else { f64::INFINITY }, id)
        })
        .collect();
    keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
    ids.iter_mut().zip(keyed).for_each(|(id, (_, drawn))| *id = drawn);
}

/// How many samples each class has.
pub(super) fn class_counts(labels: &[u32]) -> Vec<u32> {
    // Labels are dense in a catalog; one that is not gets no more room than there are samples.
    let classes = labels.iter().max().map_or(0, |&most| (most as usize + 1).min(labels.len()));
    let mut counts = vec![0; classes];
    labels.iter().filter_map(|&label| counts.get_mut(label as usize).map(|count| *count += 1)).for_each(drop);
    counts
}

/// What the slice has too much of comes first: the j-th sample of a class that has `c` here and should have `t` stands at
/// `c - j - t`, highest first. With everything even that takes from each class in turn.
fn by_surplus(ids: &mut [u32], labels: &[u32], totals: &[u32], counts: &mut [u32]) {
    counts.fill(0);
    let label = |id: u32| labels[id as usize] as usize;
    ids.iter().for_each(|&id| {
        if let Some(count) = counts.get_mut(label(id)) {
            *count += 1;
        }
    });
    let share = ids.len() as f64 / labels.len() as f64;
    let mut keyed: Vec<(f64, u32)> = ids
        .iter()
        .map(|&id| {
            let Some(count) = counts.get_mut(label(id)) else { return (0.0, id) };
            let surplus = f64::from(*count) - f64::from(totals[label(id)]) * share;
            *count -= 1;
            (surplus, id)
        })
        .collect();
    keyed.sort_by(|a, b| b.0.total_cmp(&a.0));
    ids.iter_mut().zip(keyed).for_each(|(id, (_, sent))| *id = sent);
}
