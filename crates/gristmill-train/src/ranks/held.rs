//! A data set as numbers in memory, read once and then trained on by many.

use crate::trainer::input::Inputs;
use crate::trainer::{SLICE, sizes};
use gristmill_core::rng::{Stream, key};
use gristmill_node::loader::{Loader, Polled};
use gristmill_node::{Error, Result};
use std::time::{Duration, Instant};

/// The most numbers that are held at once: 4 GiB of them.
const NUMBERS_MAX: u64 = 1 << 30;
/// What the stream is for that chooses samples to judge by: "holdout" as a number.
const PURPOSE: u64 = u64::from_be_bytes(*b"holdout\0");

/// Samples and their labels, in the order in which a loader gave them.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    pub(super) inputs: usize,
    pub(super) classes: usize,
    pub(super) numbers: Vec<f32>,
    pub(super) labels: Vec<u32>,
}

impl Held {
    /// Reads an epoch of `loader`; `tell` hears how many samples are there. None if it was told to stop.
    pub fn read(loader: &Loader, stop: &dyn Fn() -> bool, tell: &mut dyn FnMut(u64)) -> Result<Option<Held>> {
        let (inputs, classes) = sizes(loader)?;
        let samples = u64::from(loader.set().catalog().len());
        if samples.saturating_mul(inputs as u64) > NUMBERS_MAX {
            return Err(Error::config(format!(
                "{samples} samples of {inputs} numbers do not fit into the {} GiB that may be held",
                NUMBERS_MAX >> 28
            ))
            .hint("take fewer samples, or a recipe that makes smaller pictures"));
        }
        let mut held = Held { inputs, classes, numbers: Vec::new(), labels: Vec::new() };
        let (mut epoch, mut of_batch) = (loader.epoch(0, 0)?, Inputs::default());
        let stall = Duration::from_millis(loader.options().stall_ms_max);
        let mut since = Instant::now();
        loop {
            if stop() {
                return Ok(None);
            }
            match epoch.poll(SLICE)? {
                Polled::Batch(batch) => {
                    held.numbers.extend_from_slice(of_batch.of(&batch, inputs, classes)?);
                    held.labels.extend_from_slice(&batch.labels);
                    tell(held.labels.len() as u64);
                    since = Instant::now();
                }
                Polled::Pending if since.elapsed() > stall => return Err(epoch.stalled()),
                Polled::Pending => {}
                Polled::Done => break,
            }
        }
        if held.is_empty() {
            return Err(Error::config("the data has no sample that can be used"));
        }
        Ok(Some(held))
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The classes of the samples.
    pub fn labels(&self) -> &[u32] {
        &self.labels
    }

    /// Takes `count` samples out, drawn evenly, to judge by instead of test data. Both keep the order they had.
    pub fn hold_out(self, count: usize) -> (Held, Held) {
        let order = Stream::from_key(key(&[0, PURPOSE])).permutation(self.len() as u32);
        let mut out = vec![false; self.len()];
        order.iter().take(count).for_each(|id| out[*id as usize] = true);
        let part = |wanted: bool| {
            let mut part = Held { numbers: Vec::new(), labels: Vec::new(), ..self };
            for (id, row) in
                self.numbers.chunks_exact(self.inputs).enumerate().filter(|(id, _)| out[*id] == wanted)
            {
                part.numbers.extend_from_slice(row);
                part.labels.push(self.labels[id]);
            }
            part
        };
        (part(false), part(true))
    }

    /// Writes the samples at these places to `numbers` and `labels`.
    pub(super) fn gather(&self, places: &[u32], numbers: &mut Vec<f32>, labels: &mut Vec<u32>) {
        numbers.clear();
        labels.clear();
        for &place in places {
            let at = place as usize * self.inputs;
            numbers.extend_from_slice(&self.numbers[at..at + self.inputs]);
            labels.push(self.labels[place as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_out_is_not_left_in() {
        let numbers: Vec<f32> = (0..40).map(|n| n as f32).collect();
        let held = Held { inputs: 2, classes: 20, numbers, labels: (0..20).collect() };
        let (left, out) = held.hold_out(5);
        assert_eq!((left.len(), out.len()), (15, 5));
        for part in [&left, &out] {
            assert!(part.labels.is_sorted());
            for (label, row) in part.labels.iter().zip(part.numbers.chunks_exact(2)) {
                assert_eq!(row, [*label as f32 * 2.0, *label as f32 * 2.0 + 1.0]);
            }
        }
        assert!(out.labels.iter().all(|label| !left.labels.contains(label)));
    }
}
