//! Which samples of an epoch another cold one may stand in for, as one bit per sample.

use gristmill_core::SampleId;

/// A set of samples; empty in most epochs.
#[derive(Debug, Default)]
pub(super) struct Cold(Vec<u64>);

impl Cold {
    /// Those of `ids`, all below `samples`.
    pub(super) fn of(ids: impl IntoIterator<Item = u32>, samples: u32) -> Cold {
        let mut bits = vec![0_u64; (samples as usize).div_ceil(64)];
        for id in ids {
            bits[id as usize / 64] |= 1 << (id % 64);
        }
        Cold(bits)
    }

    /// Whether a sample is one of them.
    pub(super) fn contains(&self, id: SampleId) -> bool {
        self.0.get(id.0 as usize / 64).is_some_and(|bits| bits >> (id.0 % 64) & 1 == 1)
    }
}
