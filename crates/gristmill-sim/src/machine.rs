//! The hardware that is modelled: a disk, a link and cores for every rank, and one store for all of them.
//!
//! Every figure is a plain number with its unit in its name; a rate may be infinite, which is no limit. Deliberately not
//! here: switches and their topology (links are limited where they end) and memory.

use gristmill_core::Invalid;

/// The most ranks that are simulated.
pub const RANKS_MAX: u32 = 65_536;
/// The longest latency, step or restart.
const SECONDS_MAX: f64 = 1e6;

/// Where a rank's slice lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Disk {
    /// What it reads and writes.
    pub bytes_per_s: f64,
    /// Time before the first byte.
    pub latency_s: f64,
    /// Time until what was written is sure to be there.
    pub sync_s: f64,
}

/// What connects a rank to the others and to the store, in each direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// What it carries.
    pub bytes_per_s: f64,
    /// Time from one end to the other.
    pub latency_s: f64,
}

/// Where all data lies at first, shared by all ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Store {
    /// What it gives to all ranks together.
    pub bytes_per_s: f64,
    /// Requests that it accepts from all ranks together.
    pub requests_per_s: f64,
    /// Time before the first byte.
    pub latency_s: f64,
}

/// All that a training runs on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// How many ranks train together.
    pub ranks: u32,
    /// How many of them share the cores of one node.
    pub ranks_per_node: u32,
    /// Cores of a node that decode.
    pub cores: u32,
    /// Of each rank.
    pub disk: Disk,
    /// Of each rank.
    pub link: Link,
    /// Of all.
    pub store: Store,
    /// How long the others wait for a word of a lost rank.
    pub timeout_s: f64,
    /// How long it takes to start all ranks again.
    pub restart_s: f64,
}

impl Default for Machine {
    /// One accelerator per rank with four cores, an `NVMe` disk and a 10 Gbit/s link, before a store of 10 GB/s.
    fn default() -> Machine {
        Machine {
            ranks: 64,
            ranks_per_node: 1,
            cores: 4,
            disk: Disk { bytes_per_s: 2e9, latency_s: 1e-4, sync_s: 2e-2 },
            link: Link { bytes_per_s: 1.25e9, latency_s: 5e-5 },
            store: Store { bytes_per_s: 1e10, requests_per_s: f64::INFINITY, latency_s: 5e-3 },
            timeout_s: 30.0,
            restart_s: 60.0,
        }
    }
}

impl Machine {
    /// How many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.ranks.div_ceil(self.ranks_per_node)
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.ranks == 0 || self.ranks > RANKS_MAX {
            return Err(Invalid(format!("ranks {} is not from 1 to {RANKS_MAX}", self.ranks)));
        }
        if self.ranks_per_node == 0 || self.cores == 0 {
            return Err(Invalid("a node without ranks or without cores trains nothing".into()));
        }
        for (name, rate) in [
            ("the disk's bytes per second", self.disk.bytes_per_s),
            ("the link's bytes per second", self.link.bytes_per_s),
            ("the store's bytes per second", self.store.bytes_per_s),
            ("the store's requests per second", self.store.requests_per_s),
        ] {
            // NaN is not above 0 either.
            if rate.is_nan() || rate <= 0.0 {
                return Err(Invalid(format!("{name}: {rate} is not a rate above 0")));
            }
        }
        for (name, time) in [
            ("the disk's latency", self.disk.latency_s),
            ("the disk's sync", self.disk.sync_s),
            ("the link's latency", self.link.latency_s),
            ("the store's latency", self.store.latency_s),
            ("the timeout", self.timeout_s),
            ("the restart", self.restart_s),
        ] {
            check_seconds(name, time)?;
        }
        Ok(())
    }
}

/// Refuses what is not a time.
pub(crate) fn check_seconds(name: &str, seconds: f64) -> Result<(), Invalid> {
    if (0.0..=SECONDS_MAX).contains(&seconds) {
        return Ok(());
    }
    Err(Invalid(format!("{name}: {seconds} s is not a time from 0 to {SECONDS_MAX} s")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_by_name() {
        let good = Machine::default();
        assert_eq!((good.check(), good.nodes()), (Ok(()), 64));
        let with = |change: fn(&mut Machine)| {
            let mut machine = good;
            change(&mut machine);
            machine.check().unwrap_err().0
        };
        assert!(with(|m| m.ranks = 0).contains("ranks 0"));
        assert!(with(|m| m.ranks = u32::MAX).contains("1 to 65536"));
        assert!(with(|m| m.cores = 0).contains("without cores"));
        assert!(with(|m| m.disk.bytes_per_s = 0.0).contains("the disk's bytes per second: 0"));
        assert!(with(|m| m.store.requests_per_s = f64::NAN).contains("requests per second: NaN"));
        assert!(with(|m| m.link.latency_s = -1.0).contains("the link's latency: -1"));
        assert!(with(|m| m.restart_s = f64::INFINITY).contains("the restart: inf"));
    }
}
