//! The values that each knob may have.
//!
//! No value takes more memory than the settings already allow: threads and batches ahead go up to what was set or what is
//! usual, whichever is more, and the loader's memory is divided for the most of them.

use super::{Pins, Setting, SteerOptions};
use crate::cores;
use gristmill_core::steer::pilot::Knob;

/// Batches ahead that are enough for most.
const AHEAD_USUAL: usize = 4;
/// Reads in flight that are tried where the store answers after a while.
const READS: [usize; 5] = [1, 4, 16, 64, 256];
/// And where threads may read for themselves, too: 0 is that.
const READS_NEAR: [usize; 3] = [0, 16, 64];

/// The values of every knob, smallest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ladder {
    threads: Vec<usize>,
    reads: Vec<usize>,
    ahead: Vec<usize>,
    split: bool,
}

/// What decides about the ladder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    pub(super) cores: usize,
    /// Whether threads may read for themselves.
    pub(super) can_direct: bool,
    /// Whether a node behind the loader can run ops.
    pub(super) can_split: bool,
}

/// The most threads and batches ahead that steering may come to, for the division of memory.
pub(crate) fn most(options: SteerOptions, start: Setting) -> (usize, usize) {
    if !options.on {
        return (start.threads, start.ahead);
    }
    let threads = if options.pins.threads { start.threads } else { start.threads.max(cores::all()) };
    let ahead = if options.pins.ahead { start.ahead } else { start.ahead.max(AHEAD_USUAL) };
    (threads, ahead)
}

impl Ladder {
    pub(super) fn new(start: Setting, means: Means) -> Ladder {
        let doubled = std::iter::successors(Some(1), |n: &usize| n.checked_mul(2));
        let threads = doubled.take_while(|n| *n < means.cores).chain([means.cores, start.threads]);
        let reads: &[usize] = if means.can_direct { &READS_NEAR } else { &READS };
        Ladder {
            threads: sorted(threads),
            reads: sorted(reads.iter().copied().chain([start.reads])),
            ahead: sorted([1, 2, AHEAD_USUAL, start.ahead].into_iter()),
            split: means.can_split,
        }
    }

    /// The knobs, with those pinned that are.
    pub(super) fn knobs(&self, start: Setting, pins: Pins) -> Vec<Knob> {
        let knob = |name, values: &[usize], at: usize, pinned| Knob {
            name,
            values: values.iter().map(|value| show(name, *value)).collect(),
            at: values.iter().position(|value| *value == at).unwrap_or(0),
            pinned,
        };
        let split =
            if self.split || start.split { vec!["none".into(), "best".into()] } else { vec!["none".into()] };
        vec![
            knob("threads", &self.threads, start.threads, pins.threads),
            knob("reads", &self.reads, start.reads, pins.reads),
            knob("ahead", &self.ahead, start.ahead, pins.ahead),
            Knob { name: "split", values: split, at: usize::from(start.split), pinned: pins.split },
        ]
    }

    /// What the places of the knobs stand for.
    pub(super) fn setting(&self, places: &[usize]) -> Setting {
        let value = |values: &[usize], knob: usize| {
            let place = places.get(knob).copied().unwrap_or(0);
            values.get(place).copied().unwrap_or(0)
        };
        Setting {
            threads: value(&self.threads, 0).max(1),
            reads: value(&self.reads, 1),
            ahead: value(&self.ahead, 2),
            split: places.get(3) == Some(&1),
        }
    }
}

fn show(knob: &str, value: usize) -> String {
    if knob == "reads" && value == 0 { "by the threads".into() } else { value.to_string() }
}

fn sorted(values: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut all: Vec<usize> = values.collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ladders_hold_the_start_and_never_ask_for_more_than_memory_was_divided_for() {
        let start = Setting { threads: 3, reads: 7, ahead: 9, split: false };
        let means = Means { cores: 8, can_direct: false, can_split: true };
        let ladder = Ladder::new(start, means);
        assert_eq!(ladder.threads, [1, 2, 3, 4, 8]);
        assert_eq!(ladder.reads, [1, 4, 7, 16, 64, 256]);
        assert_eq!(ladder.ahead, [1, 2, 4, 9]);
        let knobs = ladder.knobs(start, Pins { reads: true, ..Pins::default() });
        let at: Vec<usize> = knobs.iter().map(|knob| knob.at).collect();
        assert_eq!(ladder.setting(&at), start);
        assert_eq!(knobs.iter().map(|knob| knob.pinned).collect::<Vec<_>>(), [false, true, false, false]);
        assert_eq!(ladder.setting(&[4, 5, 0, 1]), Setting { threads: 8, reads: 256, ahead: 1, split: true });
        let near =
            Ladder::new(Setting { reads: 0, ..start }, Means { can_direct: true, can_split: false, ..means });
        assert_eq!(near.reads, [0, 16, 64]);
        let knobs = near.knobs(Setting { reads: 0, ..start }, Pins::default());
        assert_eq!((knobs[1].values[0].as_str(), knobs[3].values.len()), ("by the threads", 1));
        let off = SteerOptions::default();
        assert_eq!(most(off, Setting { threads: 1, ahead: 1, ..start }), (1, 1));
        let on = SteerOptions { on: true, pins: Pins { threads: true, ..Pins::default() } };
        assert_eq!(most(on, Setting { threads: 1, ahead: 1, ..start }), (1, AHEAD_USUAL));
    }
}
