//! Steering at work: after every epoch it is seen what training waited for, and at most one knob is moved for the next.
//!
//! Knobs are what changes how fast samples come and never which: threads, reads in flight, batches ahead, and whether the
//! node behind the loader runs the first ops. What an epoch measured ([`sheet`]) and a short look at how the store answers
//! ([`probe`]) are put into the simulator ([`predict`]); the core's pilot compares what that says of every setting, moves to
//! the best, and takes the move back if the next epoch does not bear it out. Every decision is a line of the epoch's report.
//!
//! Deliberately not here: which samples are trained (a selection decides, and its guard watches accuracy), and anything
//! that ranks would have to agree on: each steers its own loader.

mod ladder;
mod predict;
mod probe;
mod sheet;
mod steering;

pub(crate) use ladder::most;
pub(crate) use predict::WhatIf;
pub(crate) use probe::{Answers, look};
pub(crate) use steering::{Ahead, Steering};

use gristmill_core::steer::pilot;
use serde::Serialize;
use std::fmt;

/// Which knobs stay where they are.
#[expect(clippy::struct_excessive_bools, reason = "one for each knob")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pins {
    /// `loader.threads`.
    pub threads: bool,
    /// `store.reads_in_flight`.
    pub reads: bool,
    /// `loader.prefetch_batches`.
    pub ahead: bool,
    /// `split.policy`.
    pub split: bool,
}

impl Pins {
    /// All of them.
    pub const ALL: Pins = Pins { threads: true, reads: true, ahead: true, split: true };
    /// The names of the knobs, as in `steer.pin`, each with the setting that it moves.
    pub const NAMES: [(&'static str, &'static str); 4] = [
        ("threads", "loader.threads"),
        ("reads", "store.reads_in_flight"),
        ("ahead", "loader.prefetch_batches"),
        ("split", "split.policy"),
    ];

    /// The knob of this name.
    pub fn named(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            "threads" => Some(&mut self.threads),
            "reads" => Some(&mut self.reads),
            "ahead" => Some(&mut self.ahead),
            "split" => Some(&mut self.split),
            _ => None,
        }
    }
}

/// How a loader is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteerOptions {
    /// Whether it is.
    pub on: bool,
    /// Which knobs stay all the same.
    pub pins: Pins,
}

impl Default for SteerOptions {
    /// Not at all: options that are put together by hand mean what they say.
    fn default() -> SteerOptions {
        SteerOptions { on: false, pins: Pins::ALL }
    }
}

/// How an epoch is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Setting {
    pub(crate) threads: usize,
    /// 0 lets threads read for themselves.
    pub(crate) reads: usize,
    pub(crate) ahead: usize,
    /// Whether the node behind the loader may run the first ops.
    pub(crate) split: bool,
}

/// One decision of the steering: what was moved, why, what was expected and what came.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Decision {
    /// The epoch that it was taken before.
    pub epoch: u64,
    /// The epoch before which the knob was moved: this one, or an earlier one if this is what came of it.
    pub since: u64,
    /// Which knob.
    pub knob: String,
    /// What it was.
    pub from: String,
    /// What it is.
    pub to: String,
    /// What was done: moved, kept, undone; or told, by somebody else than the pilot.
    pub action: String,
    /// How many times faster the epoch should be, if that was predicted.
    pub predicted: Option<f64>,
    /// How many times faster it was, once that is known.
    pub measured: Option<f64>,
    /// Why, in one sentence.
    pub reason: String,
    /// All of it in one line.
    pub line: String,
}

impl Decision {
    /// A decision that somebody else than the pilot took.
    pub fn told(epoch: u64, knob: &str, from: &str, to: &str, reason: &str) -> Decision {
        Decision {
            epoch,
            since: epoch,
            knob: knob.into(),
            from: from.into(),
            to: to.into(),
            action: "told".into(),
            reason: reason.into(),
            line: format!("epoch {epoch}: {knob} {from} -> {to}: {reason}"),
            ..Decision::default()
        }
    }
}

impl From<&pilot::Decision> for Decision {
    fn from(decided: &pilot::Decision) -> Decision {
        Decision {
            epoch: decided.epoch,
            since: decided.since,
            knob: decided.knob.into(),
            from: decided.from.clone(),
            to: decided.to.clone(),
            action: decided.action.name().into(),
            predicted: Some(decided.predicted),
            measured: decided.measured,
            reason: decided.reason.clone(),
            line: decided.to_string(),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}
