//! Which of several nodes caches a sample: rendezvous hashing.
//!
//! Every node scores every sample by hashing the two names together; the highest score owns the sample. All who know
//! the same list of nodes agree without a word, in whatever order the list is, and a node that is lost moves only its
//! own samples, evenly to the others. Deliberately not here: who is alive, and any table that would have to be shared.

use crate::rng::{key, mix};
use crate::{Invalid, SampleId};

/// The most nodes of a cluster.
pub const NODES_MAX: usize = 1_024;

/// The nodes that share a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners {
    keys: Vec<u64>,
}

impl Owners {
    /// Owners among the nodes of these names, each named once.
    pub fn new<S: AsRef<str>>(names: &[S]) -> Result<Owners, Invalid> {
        if names.is_empty() || names.len() > NODES_MAX {
            return Err(Invalid(format!("{} nodes cannot share a cache; 1 to {NODES_MAX} can", names.len())));
        }
        let mut sorted: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        sorted.sort_unstable();
        if let Some((twice, _)) = sorted.iter().zip(&sorted[1..]).find(|(one, next)| one == next) {
            return Err(Invalid(format!("node {twice:?} is named twice; name each one once")));
        }
        Ok(Owners { keys: names.iter().map(|name| name_key(name.as_ref())).collect() })
    }

    /// Who owns this sample, as a place in the list of names; `alive` may leave nodes out. None if all are.
    pub fn owner(&self, id: SampleId, alive: impl Fn(usize) -> bool) -> Option<usize> {
        let score = |place: &usize| (mix(self.keys[*place] ^ mix(id.0.into())), self.keys[*place]);
        (0..self.keys.len()).filter(|place| alive(*place)).max_by_key(score)
    }
}

/// A number for a name that is the same on every machine.
fn name_key(name: &str) -> u64 {
    let (words, rest) = name.as_bytes().as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.fold(key(&[name.len() as u64]), |hash, word| mix(hash ^ word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("node-{i}.example:7077")).collect()
    }

    #[test]
    fn every_node_owns_about_the_same() {
        for count in [1, 2, 3, 8, 32] {
            let owners = Owners::new(&names(count)).unwrap();
            let mut owned = vec![0_u32; count];
            (0..200_000).for_each(|id| owned[owners.owner(SampleId(id), |_| true).unwrap()] += 1);
            let fair = 200_000.0 / count as f64;
            // Five standard deviations at 32 nodes are 6 %.
            assert!(owned.iter().all(|n| (f64::from(*n) / fair - 1.0).abs() < 0.06), "{count}: {owned:?}");
        }
    }

    #[test]
    fn losing_a_node_moves_its_own_samples_only_and_evenly() {
        let owners = Owners::new(&names(5)).unwrap();
        let mut moved = [0_u32; 5];
        for id in (0..100_000).map(SampleId) {
            let (before, after) = (owners.owner(id, |_| true), owners.owner(id, |node| node != 2));
            assert!(before == after || before == Some(2), "{id} moved from {before:?} to {after:?}");
            if before == Some(2) {
                moved[after.unwrap()] += 1;
            }
        }
        assert_eq!(moved[2], 0);
        let others = [0, 1, 3, 4].map(|node| moved[node]);
        assert!(others.iter().all(|n| (4_500..5_500).contains(n)), "{moved:?}");
        // Left out or not in the list: the same.
        let mut without = names(5);
        without.remove(2);
        let fewer = Owners::new(&without).unwrap();
        for id in (0..1_000).map(SampleId) {
            let place = owners.owner(id, |node| node != 2).unwrap();
            assert_eq!(fewer.owner(id, |_| true), Some(place - usize::from(place > 2)));
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        let (list, back) = (names(4), names(4).into_iter().rev().collect::<Vec<_>>());
        let (one, other) = (Owners::new(&list).unwrap(), Owners::new(&back).unwrap());
        for id in (0..1_000).map(SampleId) {
            assert_eq!(one.owner(id, |_| true), other.owner(id, |_| true).map(|place| 3 - place));
        }
        // Computed apart from this code: nodes of different versions must agree.
        let found: Vec<usize> = (0..12).map(|id| one.owner(SampleId(id), |_| true).unwrap()).collect();
        assert_eq!(found, [2, 2, 3, 0, 2, 3, 3, 2, 2, 3, 0, 2]);
    }

    #[test]
    fn bad_lists() {
        assert!(Owners::new::<&str>(&[]).is_err());
        assert!(Owners::new(&["a", "b", "a"]).unwrap_err().0.contains("named twice"));
        let owners = Owners::new(&["a"]).unwrap();
        assert_eq!(owners.owner(SampleId(1), |_| false), None);
    }
}
