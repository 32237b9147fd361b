//! How the loader's one memory limit is divided, before anything is read.
//!
//! Whole batches come first: those that are filled or lie ready, and the one the consumer works on. What is left is
//! halved between raw bytes on their way and the working memory of the threads. Each part is then held to its own
//! share, so nobody ever waits for memory that another part holds.

use crate::{Error, Result};

/// Room for a picture of some millions of pixels, which a limit that is suggested should leave each thread.
const THREAD_BYTES: u64 = 64 << 20;

/// What the memory is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    /// The limit.
    pub(super) memory: u64,
    /// What the data set itself takes of it.
    pub(super) resident: u64,
    /// Samples in a batch.
    pub(super) batch: u64,
    /// What a sample takes in a batch, when that is known.
    pub(super) sample_bytes: Option<u64>,
    pub(super) prefetch_batches: u64,
    pub(super) threads: u64,
}

/// How the memory limit is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// One batch, when its size is known.
    pub(super) one: u64,
    /// For open and finished batches, and the one that the consumer works on.
    pub(super) batches: u64,
    /// For raw bytes on their way.
    pub(super) raw: u64,
    /// For the working memory of each thread.
    pub(super) scratch: u64,
}

impl Budget {
    pub(super) fn new(demand: Demand) -> Result<Budget> {
        let Demand { memory, resident, batch, sample_bytes, prefetch_batches, threads } = demand;
        let limit = memory.saturating_sub(resident);
        let one = batch * sample_bytes.unwrap_or(0);
        // Two batches at least, one being filled while one is trained on, in at most three quarters of it all.
        if limit / 4 * 3 < 2 * one {
            let needed = (2 * one).div_ceil(3) * 4 + threads * THREAD_BYTES + resident;
            return Err(Error::config(format!(
                "a batch of {batch} samples takes {one} bytes, so loader.memory_bytes_max = {memory} holds less than two"
            ))
            .hint(format!("raise it to at least {needed}, or take smaller batches")));
        }
        let wanted = one * (prefetch_batches + 2);
        let batches = if sample_bytes.is_some() { wanted.min(limit / 4 * 3) } else { limit / 2 };
        let rest = limit - batches;
        Ok(Budget { one, batches, raw: rest / 2, scratch: rest / 2 / threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The parts never add up to more than the limit, and there is always room to fill one batch beside another.
        #[test]
        fn the_parts_stay_within_the_limit(
            memory in 0_u64..1 << 34, resident in 0_u64..1 << 30, batch in 1_u64..2_000,
            sample_bytes in proptest::option::of(1_u64..1 << 20), prefetch_batches in 0_u64..100, threads in 1_u64..64,
        ) {
            let demand = Demand { memory, resident, batch, sample_bytes, prefetch_batches, threads };
            match Budget::new(demand) {
                Ok(budget) => {
                    prop_assert!(budget.batches + budget.raw + budget.scratch * threads + resident <= memory.max(resident));
                    prop_assert!(budget.batches >= 2 * budget.one);
                }
                Err(error) => {
                    // What the hint says is enough is enough.
                    let hint = error.remedy().unwrap_or_default();
                    let number = hint.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty());
                    let memory = number.and_then(|word| word.parse().ok()).unwrap_or(0);
                    let budget = Budget::new(Demand { memory, ..demand });
                    prop_assert!(budget.is_ok_and(|budget| budget.scratch > 1 << 20), "{hint}");
                }
            }
        }
    }
}
