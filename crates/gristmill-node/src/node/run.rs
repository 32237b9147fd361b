//! Neighbouring samples read as one.
//!
//! Samples of one container or shard that lie close together cost one request instead of many. What lies between
//! them is read and thrown away if that is little beside the samples themselves, so that a slow link carries no more
//! than a quarter for nothing, or if a setting says that requests are dearer than bytes; a run is bounded, so that nobody waits for all of a large one.

use crate::Result;
use crate::dataset::DataSet;
use bytes::Bytes;
use futures::future::join_all;
use gristmill_core::SampleId;
use std::ops::Range;
use std::sync::Arc;

/// What may be read for nothing: one byte for so many that are wanted.
const WASTE: u64 = 4;
/// The most that one merged read takes; a larger single sample is read by itself.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// Samples of one object that are read together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    object: u32,
    range: Range<u64>,
    /// Bytes that nobody asked for.
    waste: u64,
    parts: Vec<(u32, Range<u64>)>,
}

/// Sorts samples into as few reads as their places allow.
pub(super) fn runs(set: &DataSet, ids: &[u32], gap_bytes_max: u64) -> Result<Vec<Run>> {
    let place = |&id: &u32| set.catalog().place(SampleId(id)).map(|(object, range)| (object, range, id));
    let mut places = ids.iter().map(place).collect::<Result<Vec<_>>>()?;
    if !set.packed() {
        let alone = |(object, range, id): (u32, Range<u64>, u32)| merged(vec![(object, range, id)], 0);
        return Ok(places.into_iter().flat_map(alone).collect());
    }
    places.sort_unstable_by_key(|(object, range, id)| (*object, range.start, *id));
    Ok(merged(places, gap_bytes_max))
}

fn merged(places: Vec<(u32, Range<u64>, u32)>, gap_bytes_max: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (object, range, id) in places {
        if let Some(run) = runs.last_mut()
            && run.object == object
            && range.end.max(run.range.end) - run.range.start <= RUN_BYTES_MAX
            && (gap(run, &range) <= gap_bytes_max
                || gap(run, &range) + run.waste <= (run.bytes() - run.waste) / WASTE)
        {
            run.waste += gap(run, &range);
            run.range.end = run.range.end.max(range.end);
            run.parts.push((id, range));
        } else {
            runs.push(Run { object, range: range.clone(), waste: 0, parts: vec![(id, range)] });
        }
    }
    runs
}

/// What lies between a run and what comes after it.
fn gap(run: &Run, next: &Range<u64>) -> u64 {
    next.start.saturating_sub(run.range.end)
}

impl Run {
    /// How many bytes it reads.
    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Reads it and cuts it up. If that fails, those of whom `asked` says so are tried by themselves; the others are left out.
    pub(super) async fn read(
        &self,
        set: &Arc<DataSet>,
        asked: impl Fn(u32) -> bool,
    ) -> Vec<(u32, Result<Bytes>)> {
        match self.read_whole(set).await {
            Ok(whole) => {
                let cut = |range: &Range<u64>| {
                    let start = (range.start - self.range.start) as usize;
                    whole.slice(start..start + (range.end - range.start) as usize)
                };
                self.parts.iter().map(|(id, range)| (*id, Ok(cut(range)))).collect()
            }
            // A neighbour's trouble is not everybody's: each is tried by itself.
            Err(_) if self.parts.len() > 1 => {
                let asked = self.parts.iter().filter(|(id, _)| asked(*id));
                join_all(asked.map(async |(id, _)| (*id, set.load(SampleId(*id)).await))).await
            }
            Err(error) => self.parts.iter().map(|(id, _)| (*id, Err(error.again()))).collect(),
        }
    }

    async fn read_whole(&self, set: &Arc<DataSet>) -> Result<Bytes> {
        let (first, _) = self.parts[0];
        if self.parts.len() == 1 {
            return set.load(SampleId(first)).await;
        }
        let name = set.catalog().locate(SampleId(first))?.name;
        set.load_range(name, self.range.clone()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_read_together_and_strangers_are_not() {
        let at = |object, start: u64, bytes: u64, id| (object, start..start + bytes, id);
        let places = vec![at(0, 0, 10, 3), at(0, 12, 10, 1), at(0, 90, 10, 2), at(1, 20, 10, 4)];
        let runs = merged(places.clone(), 0);
        let ids: Vec<Vec<u32>> =
            runs.iter().map(|run| run.parts.iter().map(|(id, _)| *id).collect()).collect();
        assert_eq!(ids, [vec![3, 1], vec![2], vec![4]]);
        assert_eq!((runs[0].bytes(), runs[0].waste), (22, 2));
        let large = vec![at(0, 0, RUN_BYTES_MAX, 0), at(0, RUN_BYTES_MAX, 1, 1)];
        assert_eq!(merged(large, 1 << 30).len(), 2, "a run is bounded");
        assert_eq!(merged(places, 100).len(), 2, "where requests are dear");
    }

    proptest! {
        /// Every sample is in exactly one run, which covers it and wastes no more than the gaps allow.
        #[test]
        fn runs_cover_every_sample_once(
            mut places in proptest::collection::vec((0_u32..3, 0_u64..4 << 20, 1_u64..200_000), 0..80),
        ) {
            places.sort_unstable();
            let numbered = places.iter().enumerate();
            let places: Vec<_> = numbered.map(|(id, &(o, s, b))| (o, s..s + b, id as u32)).collect();
            let runs = merged(places.clone(), 0);
            let mut seen: Vec<u32> = runs.iter().flat_map(|run| run.parts.iter().map(|(id, _)| *id)).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..places.len() as u32).collect::<Vec<_>>());
            for run in &runs {
                let one = run.parts.len() == 1;
                prop_assert!(one || run.bytes() <= RUN_BYTES_MAX);
                prop_assert!(run.waste <= run.bytes() / WASTE);
                let mut end = run.range.start;
                let mut waste = 0;
                for (id, range) in &run.parts {
                    prop_assert_eq!(places[*id as usize].0, run.object);
                    prop_assert!(range.start >= run.range.start && range.end <= run.range.end);
                    waste += range.start.saturating_sub(end);
                    end = end.max(range.end);
                }
                prop_assert_eq!(waste, run.waste);
            }
        }
    }
}
