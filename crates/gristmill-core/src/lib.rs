//! What Gristmill decides.
//!
//! Everything the published systems contribute is a decision taken from facts: which samples, in which order,
//! held by whom, cached where, cut where. Those decisions live here as plain functions over plain data. The
//! same inputs give the same plan on every rank, after every restart and in the simulator.
//!
//! Deliberately not here: files, sockets, clocks, threads, the environment, hash maps, ambient randomness and
//! errors of the outside world. This crate's `clippy.toml` refuses them, so the rule does not rest on good will.

#![forbid(unsafe_code)]

mod bits;
pub mod cache;
pub mod exchange;
pub mod family;
pub mod math;
pub mod nearest;
pub mod plan;
pub mod rng;
pub mod score;
pub mod select;
pub mod split;
pub mod steer;

use std::fmt;

/// The dense number of one training example in its catalog, from 0 to N - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleId(pub u32);

impl fmt::Display for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value that makes no sense, as one sentence that names the field, the value and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}
