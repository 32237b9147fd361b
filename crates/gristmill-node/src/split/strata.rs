//! Whether the samples that were measured stand for all: some of every size.
//!
//! A long first epoch is split after a slice of it was measured. In a shuffled epoch any slice has small and large samples
//! in proportion. In the order of ids it may have only the small ones, and what is learnt from those is wrong for the
//! rest. So sizes are divided into eight parts of equally many samples, and the slice must have some of each.

/// How many parts.
const PARTS: usize = 8;
/// A part with fewer than one in so many does not count.
const FEW: usize = 4 * PARTS;
/// Sizes that are looked at to find where the parts begin.
const LOOKED_AT: usize = 4_096;

/// Measured samples by size.
#[derive(Debug, Clone, Default)]
pub(super) struct Strata {
    /// Where all parts but the first begin.
    begins: Vec<u32>,
    counts: [u64; PARTS],
    /// Which parts have a fair share of the samples: where many sizes are equal some have none, or next to none.
    there: [bool; PARTS],
}

impl Strata {
    /// The parts of samples of these sizes.
    pub(super) fn new(sizes: &[u32]) -> Strata {
        let mut some: Vec<u32> =
            sizes.iter().step_by(sizes.len().div_ceil(LOOKED_AT).max(1)).copied().collect();
        some.sort_unstable();
        let begins = (1..PARTS).filter_map(|part| some.get(part * some.len() / PARTS).copied()).collect();
        let mut strata = Strata { begins, ..Strata::default() };
        let mut counts = [0; PARTS];
        some.iter().for_each(|size| counts[strata.part(*size)] += 1);
        strata.there = counts.map(|count| count * FEW > some.len());
        strata
    }

    fn part(&self, bytes: u32) -> usize {
        self.begins.partition_point(|begin| *begin <= bytes)
    }

    /// A sample of this size was measured.
    pub(super) fn note(&mut self, bytes: u32) {
        let part = self.part(bytes);
        self.counts[part] += 1;
    }

    /// Whether every part that has samples has so many that were measured.
    pub(super) fn has(&self, least: u64) -> bool {
        self.there.iter().zip(&self.counts).all(|(there, count)| !there || *count >= least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_must_have_some_of_every_size() {
        let sizes: Vec<u32> = (0..10_000).collect();
        let mut strata = Strata::new(&sizes);
        sizes[..5_000].iter().for_each(|size| strata.note(*size));
        assert!(!strata.has(1), "only small ones");
        sizes.iter().step_by(100).for_each(|size| strata.note(*size));
        assert!(strata.has(10) && !strata.has(100));
        // All of one size are one part.
        let mut alike = Strata::new(&[7; 100]);
        assert!(!alike.has(1));
        alike.note(7);
        assert!(alike.has(1));
        assert!(Strata::new(&[]).has(5), "nothing is missing of nothing");
        // A few odd ones are not waited for.
        let mut odd = Strata::new(&[[3; 5].as_slice(), &[7; 995]].concat());
        (0..100).for_each(|_| odd.note(7));
        assert!(odd.has(62));
    }
}
