//! Where each sample is cut: the first ops run on the node that holds the data, the rest here.
//!
//! With a node behind the loader, bytes cross a link. The node can run the first ops of the recipe before a sample
//! crosses it: cut the JPEG around the region that the crop needs, or make the cropped pixels, packed or not. What that
//! saves differs from sample to sample and costs the node CPU time. The first epoch begins unsplit and measures; from
//! then on [`gristmill_core::split::decide`] says for every sample that is expected to cross the link how far it is to
//! have come. The pixels are the same whatever is decided.
//!
//! A node may always do less than it was asked: it is busy, was restarted, is of an older version, lacks an op. Then raw
//! bytes come and everything runs here; the report says how often and why.
//!
//! Deliberately not here: the ops (`gristmill-ops`), the decision (`gristmill-core`), the node's side (`serve`).

mod begun;
mod beside;
mod calibrate;
mod choose;
mod facts;
mod learn;
mod link;
mod measured;
mod report;
mod running;
mod splitter;
mod strata;
mod undo;

pub use begun::Begun;
pub(crate) use calibrate::thread_cpu_ns;
pub use report::{Rates, Seconds, ShortfallUse, SplitReport, StageUse};
pub(crate) use running::Running;
pub(crate) use splitter::{Ground, Splitter};

use crate::node::{Ask, Served};
use gristmill_core::split::SplitPolicy;
use gristmill_ops::Stage;
use serde::Serialize;

/// Whether a steering holds a split back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// It does not.
    No,
    /// Until it is known in this epoch that it pays.
    UntilItPays,
    /// For all of this epoch.
    Back,
}

/// How far a sample is to have come when it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The stage.
    pub stage: Stage,
    /// The epoch that its random ops are drawn for.
    pub epoch: u64,
    /// The seed that they are drawn with.
    pub seed: u64,
    /// The most bytes that are taken at that stage; the node sends the raw bytes if there are more.
    pub bytes_max: u32,
}

/// One sample that a job wants, and how far it is to have come; raw without a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedAsk {
    /// Which.
    pub ask: Ask,
    /// How far.
    pub wish: Option<Wish>,
}

/// One sample as it is served, and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// The sample; its bytes are those of the stage.
    pub served: Served,
    /// How far it has come.
    pub stage: Stage,
    /// Why that is not as far as was wanted.
    pub shortfall: Shortfall,
    /// CPU time that the node's ops took.
    pub cpu_ns: u64,
}

impl Staged {
    /// Raw bytes that were wanted so.
    pub fn raw(served: Served) -> Staged {
        Staged { served, stage: Stage::Raw, shortfall: Shortfall::None, cpu_ns: 0 }
    }

    /// Raw bytes where more was wanted.
    #[must_use]
    pub fn short(served: Served, shortfall: Shortfall) -> Staged {
        Staged { shortfall, ..Staged::raw(served) }
    }
}

/// Why a sample came raw although a stage was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Shortfall {
    /// It came as it was wanted.
    None = 0,
    /// The node's ops had too much to do.
    Busy,
    /// This sample cannot be brought there, or would not be smaller.
    Sample,
    /// The node does not know the recipe (any more).
    Unprepared,
    /// The node was away and the store gave the sample.
    Away,
    /// The node's form could not be finished here.
    Damaged,
}

impl Shortfall {
    /// All of them, in the order of their numbers on the wire.
    pub const ALL: [Shortfall; 6] = [
        Shortfall::None,
        Shortfall::Busy,
        Shortfall::Sample,
        Shortfall::Unprepared,
        Shortfall::Away,
        Shortfall::Damaged,
    ];

    /// The reason in words.
    pub fn reason(self) -> &'static str {
        match self {
            Shortfall::None => "as wanted",
            Shortfall::Busy => "the node's op queue was full",
            Shortfall::Sample => "the stage does not suit the sample or is not smaller",
            Shortfall::Unprepared => "the node was not ready to run this recipe",
            Shortfall::Away => "the node was away",
            Shortfall::Damaged => "what the node sent could not be finished",
        }
    }
}

/// How samples are split between the node and the loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SplitMode {
    /// Not at all.
    #[default]
    None,
    /// As `best` when the link is the bottleneck, otherwise not at all.
    Auto,
    /// By this policy, whatever the bottleneck is.
    Policy(SplitPolicy),
    /// Every sample at this stage, without a profile: to compare and to test.
    Stage(Stage),
}

impl SplitMode {
    /// The mode of this name.
    pub fn named(name: &str) -> Option<SplitMode> {
        match name {
            "none" => Some(SplitMode::None),
            "auto" => Some(SplitMode::Auto),
            other => match other.strip_prefix("stage:") {
                Some(stage) => Stage::named(stage).map(SplitMode::Stage),
                None => SplitPolicy::named(other).ok().map(SplitMode::Policy),
            },
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            SplitMode::None => "none".into(),
            SplitMode::Auto => "auto".into(),
            SplitMode::Policy(policy) => policy.name().into(),
            SplitMode::Stage(stage) => format!("stage:{}", stage.name()),
        }
    }
}

/// How the split is decided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplitOptions {
    /// How.
    pub mode: SplitMode,
    /// Samples after which a long first epoch is split, instead of at its end.
    pub profile_samples: u32,
    /// Samples of the first epoch that the node is asked to run ops on, to learn how fast it is.
    pub calibrate_samples: u32,
    /// Whether the lossy form may be chosen: its pixels differ.
    pub lossy: bool,
    /// The link's bytes per second, instead of what is measured.
    pub link_bytes_per_s: Option<f64>,
    /// What the accelerator takes per second, instead of what is measured.
    pub accelerator_samples_per_s: Option<f64>,
    /// The cores that the node's ops may use, instead of what the node says.
    pub upstream_cores: Option<f64>,
    /// The cores that finish samples here, instead of the number of threads.
    pub local_cores: Option<f64>,
    /// Whether the node's ops take the cores of this machine, instead of what its address says.
    pub same_machine: Option<bool>,
}

impl Default for SplitOptions {
    fn default() -> SplitOptions {
        SplitOptions {
            mode: SplitMode::None,
            profile_samples: 2_000,
            calibrate_samples: 200,
            lossy: false,
            link_bytes_per_s: None,
            accelerator_samples_per_s: None,
            upstream_cores: None,
            local_cores: None,
            same_machine: None,
        }
    }
}

/// What a cache in front of the link is expected to do with a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// It has it: nothing crosses the link.
    Here,
    /// It has room for it: raw bytes must come.
    Kept,
    /// Neither.
    Missed,
}
