//! What can be turned: who reads what, how much is exchanged, and how far the loader works ahead.

use gristmill_core::Invalid;
use gristmill_core::exchange::{Choose, ExchangeOptions, Form};

/// Where a rank's samples of an epoch come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shuffle {
    /// Every rank reads its part of one global shuffle from the shared store, every epoch anew.
    Global,
    /// Every rank holds a slice and swaps a fraction of it in every epoch; a fraction of 0 is local shuffling.
    Held(ExchangeOptions),
}

impl Shuffle {
    /// How it is called: `global`, `local` or `partial`.
    pub fn name(&self) -> &'static str {
        match self {
            Shuffle::Global => "global",
            Shuffle::Held(options) if options.fraction == 0.0 => "local",
            Shuffle::Held(_) => "partial",
        }
    }
}

/// What a slice is kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hold {
    /// On the rank's disk.
    #[default]
    Disk,
    /// In the rank's memory, where reading takes no time.
    Memory,
}

impl Hold {
    /// Every place by its name.
    pub const NAMES: [(&'static str, Hold); 2] = [("disk", Hold::Disk), ("memory", Hold::Memory)];
}

/// The decisions whose cost is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knobs {
    /// Where samples come from.
    pub shuffle: Shuffle,
    /// What slices are kept in.
    pub hold: Hold,
    /// The share of the samples that selection keeps in an epoch; 1 for all.
    pub kept: f64,
    /// The share of a rank's samples that its cache gives, without a read; 0 without a cache.
    pub cached: f64,
    /// Threads of a rank that prepare samples.
    pub threads: u32,
    /// Reads that a rank keeps in flight; 0 lets its threads read for themselves.
    pub reads_in_flight: u32,
    /// Finished batches that may lie ready at a rank.
    pub prefetch_batches: u32,
}

impl Default for Knobs {
    /// Slices on disk and a fraction of 0.3.
    fn default() -> Knobs {
        let options = ExchangeOptions { fraction: 0.3, form: Form::default(), choose: Choose::default() };
        Knobs {
            shuffle: Shuffle::Held(options),
            hold: Hold::Disk,
            kept: 1.0,
            cached: 0.0,
            threads: 4,
            reads_in_flight: 0,
            prefetch_batches: 4,
        }
    }
}

impl Knobs {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if let Shuffle::Held(options) = &self.shuffle {
            options.check()?;
            if options.choose.by_score() {
                let choose = options.choose;
                return Err(Invalid(format!("choosing by {choose:?} needs the scores of a real training")));
            }
        }
        if !(self.kept > 0.0 && self.kept <= 1.0) {
            return Err(Invalid(format!("kept {} is not a share above 0 and up to 1", self.kept)));
        }
        if !(0.0..=1.0).contains(&self.cached) {
            return Err(Invalid(format!("cached {} is not a share from 0 to 1", self.cached)));
        }
        for (name, value, least, most) in [
            ("threads", self.threads, 1, 1_024),
            ("reads in flight", self.reads_in_flight, 0, 65_536),
            ("prefetched batches", self.prefetch_batches, 0, 65_536),
        ] {
            if !(least..=most).contains(&value) {
                return Err(Invalid(format!("{name} {value} is not from {least} to {most}")));
            }
        }
        Ok(())
    }
}
