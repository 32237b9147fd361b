//! What can be typed after `gristmill train`.

use super::{Common, Kind};
use clap::{Args as ClapArgs, ValueEnum};
use gristmill_node::page;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct TrainArgs {
    /// A data set (path or URL) or a catalog file
    pub(crate) source: String,
    /// Data to measure accuracy on [default: what lies beside the training data under a usual name]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) test: Option<String>,
    /// Which samples an epoch trains on: uniform (all), bucket, weighted, infobatch, iis, online, active-bias,
    /// biggest-loser, proxy; their options are settings, e.g. --set selection.relax=0.2
    #[arg(long, value_name = "NAME")]
    pub(crate) selection: Option<String>,
    /// What is done with near-duplicates: off, remove (one of each family per epoch), repeat (one in memory stands in
    /// for one that would have to be read), auto
    #[arg(long, value_name = "HOW")]
    pub(crate) families: Option<String>,
    /// A preset (mnist, cifar-train, …) or a recipe file [default: bare pixels as they are, normalised]
    #[arg(long)]
    pub(crate) recipe: Option<String>,
    /// The recipe for the test data [default: the same]
    #[arg(long, value_name = "RECIPE")]
    pub(crate) test_recipe: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Samples per batch
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<String>,
    /// Threads that decode [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<String>,
    /// Where all randomness comes from
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<String>,
    /// Slow the store down: time before the first byte of each read
    #[arg(long, value_name = "MS")]
    pub(crate) latency_ms: Option<String>,
    /// Slow the store down: bytes per second, e.g. 60MB
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes_per_s: Option<String>,
    /// Slow the store down: reads per second
    #[arg(long, value_name = "N")]
    pub(crate) requests_per_s: Option<String>,
    /// Keep the training in this file: after every epoch, and at Ctrl-C
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Write it after this many batches, too
    #[arg(long, default_value_t = 0, value_name = "N", requires = "checkpoint")]
    pub(crate) checkpoint_batches: u32,
    /// Go on with the training that the checkpoint holds; without a file there, begin it
    #[arg(long, requires = "checkpoint")]
    pub(crate) resume: bool,
    /// Show a page with live charts and the data itself in a browser, on this machine [default: 127.0.0.1:7078]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = page::LISTEN)]
    pub(crate) page: Option<String>,
    /// Write a report: the page as one file (.html), accuracy over time as a picture (.svg), or all figures (.json); may
    /// be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Vec<PathBuf>,
    /// What the source is, when that cannot be seen from it
    #[arg(long)]
    pub(crate) kind: Option<Kind>,
    /// Build the catalogs anew, even if there are some
    #[arg(long)]
    pub(crate) rebuild: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What the model is and how it learns.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct ModelArgs {
    /// How many epochs to train
    #[arg(long, default_value_t = 15, value_name = "N")]
    pub(crate) epochs: u64,
    /// Widths of the hidden layers; an empty list has none
    #[arg(long, default_value = "256,128", value_name = "LIST")]
    pub(crate) hidden: String,
    /// The learning rate at its highest
    #[arg(long, default_value_t = 0.05, value_name = "X")]
    pub(crate) lr: f32,
    /// How the learning rate falls: cosine, or step (to a tenth at half and at three quarters)
    #[arg(long, default_value_t = Falls::Cosine)]
    pub(crate) schedule: Falls,
    /// How much of the last step is in the next one
    #[arg(long, default_value_t = 0.9, value_name = "X")]
    pub(crate) momentum: f32,
    /// How strongly weights are drawn to 0
    #[arg(long, default_value_t = 0.0005, value_name = "X")]
    pub(crate) weight_decay: f32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Falls {
    Cosine,
    Step,
}

impl std::fmt::Display for Falls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Falls::Cosine => "cosine",
            Falls::Step => "step",
        })
    }
}
