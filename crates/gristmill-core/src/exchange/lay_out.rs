//! In which order an epoch is trained when every rank has its own slice.
//!
//! A [`Plan`](crate::plan::Plan) is one global order cut into global batches, of which each rank has its part. Here that
//! order is woven from the local orders, so that every rank's part is what it holds. All ranks get equally many
//! samples: who has more than its share leaves some out (they go first in the next epoch), who has fewer trains some of
//! its own again. Both are counted.

use super::Owners;
use crate::plan::{Shape, Uneven};

/// The order of one epoch over all ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaidOut {
    /// Sample ids, for [`Plan::weighted`](crate::plan::Plan::weighted) with the same shape.
    pub order: Vec<u32>,
    /// The weights in that order; empty when all are 1.
    pub weights: Vec<f32>,
    /// How many places are filled with samples that are trained again.
    pub again: u32,
    /// Chosen samples that this epoch leaves out; give them to [`Owners::leave`].
    pub left: Vec<u32>,
}

/// What an epoch trains, where that is not everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Active<'a> {
    /// The ids in ascending order, some perhaps repeatedly.
    pub ids: &'a [u32],
    /// Their weights; empty when all are 1.
    pub weights: &'a [f32],
    /// Those of them, in ascending order, that are not left out to even out the ranks as long as there are others.
    pub always: &'a [u32],
}

impl Owners {
    /// The order of an epoch in which each rank's part of every global batch is what it holds. Without `chosen` all are trained.
    ///
    /// Panics if the shape is for another number of ranks, or an id is not there.
    #[must_use]
    pub fn lay_out(
        &self,
        seed: u64,
        epoch: u64,
        shape: Shape,
        shuffle: bool,
        chosen: Option<Active<'_>>,
    ) -> LaidOut {
        let world = self.world();
        assert_eq!(shape.world, world, "a shape for as many ranks as there are slices");
        let places = chosen.map(|chosen| Places::new(chosen.ids, self.samples));
        let entries = chosen.map_or(u64::from(self.samples), |chosen| chosen.ids.len() as u64);
        let always = chosen.map_or(&[][..], |chosen| chosen.always);
        let each = match shape.uneven {
            Uneven::Pad => entries.div_ceil(u64::from(world)),
            Uneven::Drop => entries / u64::from(world),
        };
        let each = each.max(1) as usize;
        let mut laid = LaidOut::default();
        let mut parts = Vec::with_capacity(world as usize);
        for rank in 0..world {
            let held = self.held(rank);
            let local: Vec<u32> = if shuffle {
                self.local_order(seed, epoch, rank).into_iter().map(|at| held[at as usize]).collect()
            } else {
                let mut held = held.to_vec();
                held.sort_unstable();
                held
            };
            parts.push(self.part(&local, each, places.as_ref(), always, &mut laid));
        }
        let weights = chosen.map_or(&[][..], |chosen| chosen.weights);
        let batch = (shape.batch as usize).min(each).max(1);
        laid.order.reserve_exact(each * world as usize);
        for start in (0..each).step_by(batch) {
            let end = each.min(start + batch);
            for part in &parts {
                laid.order.extend(part[start..end].iter().map(|entry| entry.id));
                if !weights.is_empty() {
                    let weight = |entry: &Entry| weights.get(entry.place as usize).copied().unwrap_or(1.0);
                    laid.weights.extend(part[start..end].iter().map(weight));
                }
            }
        }
        laid
    }

    /// What one rank trains, exactly `share` entries.
    fn part(
        &self,
        local: &[u32],
        share: usize,
        places: Option<&Places>,
        always: &[u32],
        laid: &mut LaidOut,
    ) -> Vec<Entry> {
        let mut part: Vec<Entry> = match places {
            None => local.iter().map(|&id| Entry { id, place: u32::MAX }).collect(),
            Some(places) => local.iter().flat_map(|&id| places.of(id)).collect(),
        };
        if part.is_empty() {
            // A rank without one chosen sample must not hold up the others: it trains what it has.
            part.extend(local.iter().take(share).map(|&id| Entry { id, place: u32::MAX }));
            laid.again += part.len() as u32;
        }
        if !self.left.is_empty() {
            part.sort_by_key(|entry| self.left.binary_search(&entry.id).is_err());
        }
        let over = cut(&mut part, share, always);
        laid.left.extend(over.iter().map(|entry| entry.id));
        let own = part.len();
        laid.again += (share - own) as u32;
        for at in own..share {
            part.push(part[at - own]);
        }
        part
    }
}

/// Cuts what is more than `share`: from the end, but those in `always` only when nothing else is left.
fn cut(part: &mut Vec<Entry>, share: usize, always: &[u32]) -> Vec<Entry> {
    if part.len() <= share || always.is_empty() {
        return part.split_off(part.len().min(share));
    }
    let stays = |entry: &Entry| always.binary_search(&entry.id).is_ok();
    let mut room = share.saturating_sub(part.iter().filter(|entry| stays(entry)).count());
    let mut over = Vec::new();
    part.retain(|entry| {
        let kept = stays(entry) || room > 0;
        if !kept {
            over.push(*entry);
        } else if !stays(entry) {
            room -= 1;
        }
        kept
    });
    over.extend(part.split_off(part.len().min(share)));
    over
}

/// A sample and its place among the chosen.
#[derive(Debug, Clone, Copy)]
struct Entry {
    id: u32,
    place: u32,
}

/// Where the chosen ids stand in their list.
struct Places {
    /// The first place of each id; the next id's is where it ends.
    first: Vec<u32>,
}

impl Places {
    fn new(ids: &[u32], samples: u32) -> Places {
        let mut first = vec![0_u32; samples as usize + 1];
        ids.iter().for_each(|&id| first[id as usize + 1] += 1);
        for id in 1..first.len() {
            first[id] += first[id - 1];
        }
        Places { first }
    }

    fn of(&self, id: u32) -> impl Iterator<Item = Entry> + use<> {
        let places = self.first[id as usize]..self.first[id as usize + 1];
        places.map(move |place| Entry { id, place })
    }
}
