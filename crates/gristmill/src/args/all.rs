//! What can be typed after `gristmill compare all`.

use super::GroundArgs;
use clap::Args as ClapArgs;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
#[command(
    mut_arg("source", |arg| arg.help(
        "A data set (path or URL) or a catalog file, for every scenario [default: shipped pictures: photos for a, \
         Fashion-MNIST for the others]")),
    mut_arg("recipe", |arg| arg.help(
        "A preset or a recipe file [default: bare pixels as they are; of photos a random part of 32 x 32]")),
    mut_arg("epochs", |arg| arg.default_value("12")),
    mut_arg("hidden", |arg| arg.default_value("64,32")),
    mut_arg("threads", |arg| arg.help(
        "Threads that decode where nothing is naive, and no longer steered [default: one per core, steered]")),
)]
pub(crate) struct CompareAllArgs {
    #[command(flatten)]
    pub(crate) ground: GroundArgs,
    /// The scenarios: a (link), b (latency), c (compute), d (two jobs), e (four ranks)
    #[arg(long, value_name = "LIST", default_value = "a,b,c,d,e")]
    pub(crate) scenario: String,
    /// The configurations: plain, selection, cache, split, exchange, hand, all; plain is always one of them [default: those
    /// that the scenario has; hand in d and e]
    #[arg(long, value_name = "LIST")]
    pub(crate) configurations: Option<String>,
    /// Workers of the plain loop, each of which reads one sample at a time
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) workers: u32,
    /// a: what the link to the node carries, e.g. 500Mbit, or 60MB for bytes; per second
    #[arg(long, value_name = "RATE", default_value = "500Mbit")]
    pub(crate) link: String,
    /// a: time that a request takes to the node and back beside its bytes; 0 for two programs on one machine
    #[arg(long, value_name = "MS", default_value_t = 2)]
    pub(crate) round_trip_ms: u64,
    /// a: how the link is slowed down: namespace (a network namespace with a rate limit, needs root), throttle (the
    /// client paces itself), or auto for the first that works
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) by: String,
    /// a: cores that the node may use for ops
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    pub(crate) cores: f64,
    /// b: time before the first byte of each read
    #[arg(long, value_name = "MS", default_value_t = 5)]
    pub(crate) latency_ms: u64,
    /// Samples per second that the pretended accelerator of a job takes [default: 4000 in c, else 8000]
    #[arg(long, value_name = "N")]
    pub(crate) accelerator: Option<f64>,
    /// d: widths of the hidden layers of the second job's model
    #[arg(long, value_name = "LIST", default_value = "32")]
    pub(crate) hidden_b: String,
    /// Instead: begin with every knob wrong, steer, and show epoch times beside those of fixed settings (a, b, c)
    #[arg(long, conflicts_with_all = ["configurations", "svg", "keep"])]
    pub(crate) bad_start: bool,
    /// Keep finished trainings in this file, and take from it what is there: the same command goes on where it was stopped
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    /// Write a picture: accuracy against time, one curve per configuration, one plot per scenario
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// What is printed below the options of `compare all`.
pub(crate) const ALL_HELP: &str = "\
Every configuration is really trained, on a pretended accelerator: a step lasts as long as it would there.
  a  photos behind a node, over a slow link          plain      what a DataLoader does: --workers read one sample each
  b  small samples in a store that answers slowly    selection  plain, and what is learned is skipped
  c  everything near: the accelerator is the limit   cache      plain, and a fifth of the data is kept in memory
  d  two jobs on one node and one store              split      plain, and the node runs the first ops (a)
  e  four ranks and one store                        exchange   plain, and ranks hold slices and swap parts (e)
                                                     hand       all of them with knobs set by hand, not steered
                                                     all        all of them, steered
The headline is how much sooner each gets to the accuracy that plain ends with, less its spread over seeds (at least half \
a point), seed by seed; in d the slower of the two jobs counts. Seeds take turns, so that whatever else the machine does \
falls on all. Tests are not counted as time.

Examples:
  gristmill compare all --scenario a --link 100Mbit
  gristmill compare all --scenario b,c --epochs 20 --seeds 5 --json --keep runs.jsonl
  gristmill compare all photos/train --scenario a --bad-start

JSON fields: scenario, configuration, speedup (median over seeds; null if plain's accuracy was not reached), speedup_least, \
speedup_most, speedup_settled (when it was there to stay), speedup_epochs (of all epochs, whatever the accuracy), accuracy, accuracy_sd, delta_points (against plain), \
seconds, time_to_s, epoch_s (each, median over seeds), trained_share, wait_share, bytes_read, seeds, epochs, ground, \
decisions (seed, epoch, knob, from, to, action, predicted, measured, reason). Then one object per scenario with \
\"promise\": true: holds, reason, accuracy_holds, decisions, predictions_off (of those with a measurement, by more than 15 %). \
With --bad-start: scenario, configuration, epoch_s, best_s, reached_epoch, holds, decisions.";
