//! What a page knows of each sample: how often it was left out, its last score, and the scores before.
//!
//! Kept only while a page is on, in columns whose size is fixed when it is opened: 8 bytes per sample, and 2 more for
//! each epoch of history. The history is a ring of columns, one per epoch, so a new epoch costs one fill. Where the
//! limit on memory is too low for all samples, one in `stride` is followed, and the page says so.
//!
//! The score is the loss, as the trainer reported it. Deliberately not here: what selection makes of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

/// Bytes per sample besides the history.
const BASE_BYTES: u64 = 8;
/// The epochs of history that are kept at least and at most.
const DEPTH_MIN: u64 = 8;
const DEPTH_MAX: u64 = 32;
/// How many samples a ranking has.
pub(super) const RANKED_MAX: usize = 1_000;
/// How long a ranking is good for: it costs a pass over all samples.
const RANKING_LASTS: Duration = Duration::from_secs(2);
/// How many stand-ins are kept.
const STAND_INS_MAX: usize = 1_000;
/// No score.
const NONE: u16 = 0x7fc0;

/// By what samples are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    Hardest,
    Skipped,
}

/// A sample that another one was trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StandIn {
    pub(super) asked: u32,
    pub(super) served: u32,
    /// In how many epochs.
    pub(super) times: u32,
    /// In which epoch last.
    pub(super) epoch: u64,
}

/// What is known of one sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) score: Option<f32>,
    pub(super) skipped: u16,
    pub(super) trained: u16,
    /// One per epoch that is kept, the oldest first; none where it was not trained.
    pub(super) scores: Vec<Option<f32>>,
}

/// What is known of all samples.
#[derive(Debug)]
pub(super) struct History {
    samples: u32,
    stride: u32,
    depth: usize,
    last: Vec<f32>,
    skipped: Vec<u16>,
    trained: Vec<u16>,
    columns: VecDeque<Vec<u16>>,
    epoch: Option<u64>,
    stand_ins: BTreeMap<(u32, u32), (u32, u64)>,
    rankings: [Option<(Instant, Vec<u32>)>; 2],
}

impl History {
    /// The history of `samples` in about `bytes_max`.
    pub(super) fn new(samples: u32, bytes_max: u64) -> History {
        let least = (BASE_BYTES + 2 * DEPTH_MIN) * u64::from(samples);
        let stride = least.div_ceil(bytes_max.max(1)).clamp(1, u64::from(samples.max(1))) as u32;
        let followed = u64::from(samples.div_ceil(stride));
        let depth = (bytes_max / followed.max(1)).saturating_sub(BASE_BYTES) / 2;
        let followed = followed as usize;
        History {
            samples,
            stride,
            depth: depth.clamp(1, DEPTH_MAX) as usize,
            last: vec![f32::NAN; followed],
            skipped: vec![0; followed],
            trained: vec![0; followed],
            columns: VecDeque::new(),
            epoch: None,
            stand_ins: BTreeMap::new(),
            rankings: [None, None],
        }
    }

    pub(super) fn stride(&self) -> u32 {
        self.stride
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Where a sample is in the columns, if it is followed.
    fn place(&self, id: u32) -> Option<usize> {
        (id < self.samples && id.is_multiple_of(self.stride)).then(|| (id / self.stride) as usize)
    }

    /// Begins an epoch that has the samples of `order`.
    pub(super) fn begin(&mut self, epoch: u64, order: &[u32], stand_ins: &[(u32, u32)]) {
        // The rest of an epoch that was interrupted is no new one.
        if self.epoch.replace(epoch) == Some(epoch) {
            return;
        }
        let mut column = if self.columns.len() < self.depth {
            Vec::new()
        } else {
            self.columns.pop_front().unwrap_or_default()
        };
        // Who is in the epoch is marked first; whoever is not was left out.
        column.clear();
        column.resize(self.last.len(), NONE);
        order.iter().filter_map(|id| self.place(*id)).for_each(|place| column[place] = 0);
        for (skipped, mark) in self.skipped.iter_mut().zip(&mut column) {
            *skipped = skipped.saturating_add(u16::from(*mark == NONE));
            *mark = NONE;
        }
        self.columns.push_back(column);
        for &pair in stand_ins {
            let (times, last) = self.stand_ins.entry(pair).or_default();
            (*times, *last) = (times.saturating_add(1), epoch);
        }
        while self.stand_ins.len() > STAND_INS_MAX {
            let oldest = self.stand_ins.iter().min_by_key(|(_, (times, last))| (*last, *times));
            let Some(oldest) = oldest.map(|(pair, _)| *pair) else { break };
            self.stand_ins.remove(&oldest);
        }
    }

    /// Writes down the losses of some samples.
    pub(super) fn learned(&mut self, ids: &[u32], losses: &[f32]) {
        for (&id, &loss) in ids.iter().zip(losses) {
            if let Some(place) = self.place(id).filter(|_| !loss.is_nan()) {
                self.last[place] = loss;
                self.trained[place] = self.trained[place].saturating_add(1);
                if let Some(column) = self.columns.back_mut() {
                    column[place] = short(loss);
                }
            }
        }
    }

    /// What is known of a sample; none if it is not followed.
    pub(super) fn seen(&self, id: u32) -> Option<Seen> {
        let place = self.place(id)?;
        let score = self.last[place];
        Some(Seen {
            score: (!score.is_nan()).then_some(score),
            skipped: self.skipped[place],
            trained: self.trained[place],
            scores: self.columns.iter().map(|column| long(column[place])).collect(),
        })
    }

    /// The first samples by rank. At most [`RANKING_LASTS`] old.
    pub(super) fn ranked(&mut self, by: Rank) -> &[u32] {
        let fresh = self.rankings[by as usize].as_ref().is_some_and(|(at, _)| at.elapsed() < RANKING_LASTS);
        if !fresh {
            let ranked = self.rank(by);
            self.rankings[by as usize] = Some((Instant::now(), ranked));
        }
        self.rankings[by as usize].as_ref().map_or(&[], |(_, ranked)| ranked)
    }

    fn rank(&self, by: Rank) -> Vec<u32> {
        // The worst of the best on top, to be thrown out: little memory, and most samples cost one comparison.
        let mut best = BinaryHeap::with_capacity(RANKED_MAX + 1);
        for place in 0..self.last.len() {
            let worth = match by {
                Rank::Hardest if self.last[place].is_nan() => continue,
                Rank::Hardest => ordered(self.last[place]),
                Rank::Skipped if self.skipped[place] == 0 => continue,
                Rank::Skipped => u32::from(self.skipped[place]),
            };
            let one = Reverse((worth, Reverse(place as u32)));
            if best.len() < RANKED_MAX {
                best.push(one);
            } else if best.peek().is_some_and(|worst| one < *worst) {
                best.pop();
                best.push(one);
            }
        }
        best.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(place)))| place * self.stride).collect()
    }

    /// The stand-ins of the last epochs, the latest and most frequent first.
    pub(super) fn stand_ins(&self) -> Vec<StandIn> {
        let one = |(&(asked, served), &(times, epoch)): (&(u32, u32), &(u32, u64))| StandIn {
            asked,
            served,
            times,
            epoch,
        };
        let mut all: Vec<StandIn> = self.stand_ins.iter().map(one).collect();
        all.sort_by_key(|one| Reverse((one.times, one.epoch)));
        all
    }
}

/// A score in 16 bits: three digits are enough for a line of 100 pixels.
fn short(score: f32) -> u16 {
    let rounded = score.to_bits().saturating_add(0x8000) >> 16;
    rounded as u16
}

fn long(score: u16) -> Option<f32> {
    let score = f32::from_bits(u32::from(score) << 16);
    score.is_finite().then_some(score)
}

/// A number whose order is that of the score.
fn ordered(score: f32) -> u32 {
    let bits = score.to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sample_s_life() {
        let mut history = History::new(4, 1 << 20);
        assert_eq!((history.stride(), history.depth()), (1, 32));
        history.begin(0, &[3, 1, 0, 2], &[]);
        history.learned(&[0, 1, 2, 3], &[0.1, 2.0, f32::NAN, -1.0]);
        history.begin(1, &[1, 1], &[(0, 1)]);
        history.begin(1, &[], &[]); // the rest of an interrupted epoch
        history.learned(&[1, 9, 4_000_000_000], &[1.0, 1.0, 1.0]);
        let seen = history.seen(1).unwrap();
        assert_eq!((seen.score, seen.skipped, seen.trained), (Some(1.0), 0, 2));
        assert_eq!(seen.scores, [Some(2.0), Some(1.0)]);
        let rests = history.seen(0).unwrap();
        assert_eq!((rests.skipped, rests.scores[1]), (1, None));
        assert!((rests.scores[0].unwrap() - 0.1).abs() < 0.001);
        assert_eq!(history.seen(4), None);
        assert_eq!(history.ranked(Rank::Hardest), [1, 0, 3]);
        assert_eq!(history.ranked(Rank::Skipped), [0, 2, 3]);
        assert_eq!(history.stand_ins(), [StandIn { asked: 0, served: 1, times: 1, epoch: 1 }]);
    }

    #[test]
    fn memory_is_what_was_allowed() {
        for (samples, bytes, stride, depth) in [
            (1_281_167, 64 << 20, 1, 22),
            (10_000_000, 64 << 20, 4, 9),
            (1_000, 1, 1_000, 1),
            (0, 64 << 20, 1, 32),
            (u32::MAX, 64 << 20, 1_536, 8),
        ] {
            let history = History::new(samples, bytes);
            assert_eq!((history.stride(), history.depth()), (stride, depth), "{samples} samples");
            let took = (history.last.len() as u64) * (BASE_BYTES + 2 * history.depth() as u64);
            assert!(took <= bytes.max(10), "{samples} samples take {took}");
        }
        let mut history = History::new(100, 3_000);
        let pairs: Vec<(u32, u32)> = (0..3_000).map(|id| (id, id + 1)).collect();
        for epoch in 0..100 {
            history.begin(epoch, &[1], &pairs[epoch as usize * 20..][..50]);
        }
        assert_eq!((history.columns.len(), history.stand_ins.len()), (history.depth(), STAND_INS_MAX));
        assert!(history.stand_ins.contains_key(&(2_000, 2_001)) && !history.stand_ins.contains_key(&(5, 6)));
    }

    proptest! {
        #[test]
        fn ranked_as_a_sort_would(losses in prop::collection::vec(-5.0_f32..5.0, 1..2_500)) {
            let mut history = History::new(losses.len() as u32, 1 << 20);
            let ids: Vec<u32> = (0..losses.len() as u32).collect();
            history.learned(&ids, &losses);
            let mut sorted = ids;
            sorted.sort_by(|a, b| losses[*b as usize].total_cmp(&losses[*a as usize]).then(a.cmp(b)));
            sorted.truncate(RANKED_MAX);
            prop_assert_eq!(history.ranked(Rank::Hardest), sorted);
        }

        #[test]
        fn sixteen_bits_are_near_enough(score in 1e-6_f32..1e6) {
            let again = long(short(score)).unwrap();
            prop_assert!((again / score - 1.0).abs() < 0.01);
        }
    }
}
