//! A set of sample ids as one bit per sample of the data set.

/// A set of ids below a fixed number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub(crate) fn new(samples: usize) -> Bits {
        Bits { words: vec![0; samples.div_ceil(64)] }
    }

    pub(crate) fn has(&self, id: u32) -> bool {
        self.words[id as usize / 64] >> (id % 64) & 1 == 1
    }

    /// Puts the id in or takes it out. Returns whether it was in.
    pub(crate) fn set(&mut self, id: u32, on: bool) -> bool {
        let before = self.has(id);
        let bit = 1 << (id % 64);
        let word = &mut self.words[id as usize / 64];
        *word = if on { *word | bit } else { *word & !bit };
        before
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(crate) fn overhead_bytes(&self) -> u64 {
        8 * self.words.len() as u64
    }
}
