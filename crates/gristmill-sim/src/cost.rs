//! What an epoch cost: time by cause, traffic, room, and how well the data was mixed.

use crate::clock::{Ns, seconds};
use crate::epoch::Timing;
use crate::seen::SeenShare;
use gristmill_core::exchange::measure::Divergence;

/// Where the time of an epoch went, as the mean rank saw it. The parts add up to the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Causes {
    /// Steps.
    pub compute_s: f64,
    /// Waiting for the own disk.
    pub disk_s: f64,
    /// Waiting for samples to be decoded.
    pub cpu_s: f64,
    /// Waiting for the exchange after the last step, and for its commit.
    pub exchange_s: f64,
    /// Waiting for the shared store.
    pub store_s: f64,
    /// Waiting for the slowest rank, with the own batch ready.
    pub slowest_s: f64,
    /// Work that was lost with a node, until all ranks began again.
    pub restart_s: f64,
}

impl Causes {
    /// Every cause with its name, in the order in which they are shown.
    pub fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("compute", self.compute_s),
            ("disk", self.disk_s),
            ("cpu", self.cpu_s),
            ("exchange", self.exchange_s),
            ("store", self.store_s),
            ("slowest", self.slowest_s),
            ("restart", self.restart_s),
        ]
    }

    /// Adds another epoch's.
    pub fn add(&mut self, other: &Causes) {
        self.compute_s += other.compute_s;
        self.disk_s += other.disk_s;
        self.cpu_s += other.cpu_s;
        self.exchange_s += other.exchange_s;
        self.store_s += other.store_s;
        self.slowest_s += other.slowest_s;
        self.restart_s += other.restart_s;
    }

    pub(crate) fn new(timing: &Timing, ranks: u32, from_store: bool, restart: Ns) -> Causes {
        let mean = |sum: u128| sum as f64 / 1e9 / f64::from(ranks);
        let read_s = mean(timing.read);
        Causes {
            compute_s: seconds(timing.compute),
            disk_s: if from_store { 0.0 } else { read_s },
            cpu_s: mean(timing.cpu),
            exchange_s: seconds(timing.exchange),
            store_s: if from_store { read_s } else { 0.0 },
            slowest_s: mean(timing.slowest),
            restart_s: seconds(restart),
        }
    }
}

/// What moved in an epoch, over all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Traffic {
    /// Samples that changed hands.
    pub exchanged: u64,
    /// Of these, those that only even out what selection left.
    pub balanced: u64,
    /// Bytes between ranks.
    pub exchanged_bytes: f64,
    /// Samples read from the shared store.
    pub stored: u64,
    /// Bytes from the shared store.
    pub store_bytes: f64,
}

/// What one epoch cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EpochCost {
    /// Which epoch.
    pub epoch: u64,
    /// How long it took.
    pub seconds: f64,
    /// And why.
    pub causes: Causes,
    /// Steps.
    pub batches: u32,
    /// Samples that were trained, over all ranks.
    pub trained: u64,
    /// Of these, those that were trained again because a rank had too few.
    pub again: u64,
    /// Samples that were chosen but left for the next epoch, because a rank had too many.
    pub left: u64,
    /// What moved.
    pub traffic: Traffic,
    /// The most that a rank held at once, as a share of the data set.
    pub held_share: f64,
    /// The share of the data set that a rank has seen so far.
    pub seen: SeenShare,
    /// How far the classes that a rank trained on are from those of the whole.
    pub divergence: Divergence,
    /// How often all ranks began the epoch again.
    pub restarts: u32,
    /// Samples that were read again from the store because the disk that held them was lost.
    pub refilled: u64,
}
