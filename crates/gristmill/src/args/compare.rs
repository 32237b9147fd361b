//! What can be typed after `gristmill compare`.

use super::{Common, ModelArgs};
use clap::Args as ClapArgs;
use std::path::PathBuf;

/// What all sides of a comparison are trained on.
#[derive(Debug, ClapArgs)]
pub(crate) struct GroundArgs {
    /// A data set (path or URL) or a catalog file [default: the Fashion-MNIST pictures that are shipped]
    pub(crate) source: Option<String>,
    /// Data to measure accuracy on [default: what lies beside the training data under a usual name]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) test: Option<String>,
    /// How often each side is trained, each time from another seed
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) seeds: u32,
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
    /// The first seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompareSelectionArgs {
    #[command(flatten)]
    pub(crate) ground: GroundArgs,
    /// The methods, with options after colons, e.g. bucket:relax=0.2,weighted:noise=0.2:families=remove; uniform is
    /// always one of them
    #[arg(long, value_name = "LIST", default_value = METHODS)]
    pub(crate) methods: String,
    /// Write a picture: accuracy against speed-up, one point per method
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

const METHODS: &str = "uniform,bucket,bucket-norecall,bucket-remove,bucket-repeat,online,active-bias,biggest-loser,proxy,iis,infobatch,weighted";

#[derive(Debug, ClapArgs)]
// Fewer are too few for icache, whose rule makes the first five and every third one full.
#[command(mut_arg("epochs", |arg| arg.default_value("30")))]
pub(crate) struct CompareCacheArgs {
    #[command(flatten)]
    pub(crate) ground: GroundArgs,
    /// How large the cache is: shares of the data set or sizes, e.g. 10%,20%,40%,60%
    #[arg(long, value_name = "LIST", default_value = "20%")]
    pub(crate) size: String,
    /// The sides: none (no cache), default, base, ilfu, quiver, static, icache, ours; default is always one of them.
    /// With two jobs, those that drive their cache in turn, the first of which is the measure [default: all; ours with
    /// two jobs]
    #[arg(long, value_name = "LIST")]
    pub(crate) policies: Option<String>,
    /// How many times longer reading everything takes than computing on it: two epochs are measured, and the store is
    /// slowed down to that, a read costing as much as 4 KiB
    #[arg(long, value_name = "TIMES", default_value_t = 2.0)]
    pub(crate) bound: f64,
    /// Instead: what the link to the store carries per second, all reads together; 0 for no limit
    #[arg(long, value_name = "SIZE", conflicts_with = "bound")]
    pub(crate) bytes_per_s: Option<String>,
    /// Time before the first byte of each read [default: 0 with --bound, which has the cost of a read in it; else 1]
    #[arg(long, value_name = "MS")]
    pub(crate) latency_ms: Option<String>,
    /// Instead: reads per second that the store accepts; 0 for no limit
    #[arg(long, value_name = "N", conflicts_with = "bound")]
    pub(crate) requests_per_s: Option<String>,
    /// 2: two jobs with different models share one node, against a node that listens to one of them only
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) jobs: u32,
    /// Widths of the hidden layers of the second job's model
    #[arg(long, value_name = "LIST", default_value = "64")]
    pub(crate) hidden_b: String,
    /// The first seed of the second job, from which it has its order; that of the first (0) gives both one order [default:
    /// one of its own]
    #[arg(long, value_name = "N")]
    pub(crate) seed_b: Option<u64>,
    /// Write a picture: accuracy against the speed-up of epochs, or with several sizes the time waited by size
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompareSplitArgs {
    /// A data set of pictures (path or URL) or a catalog file
    pub(crate) source: String,
    /// The policies: none, all, resize, fastflow, sophon, best; none is always one of them
    #[arg(long, value_name = "LIST", default_value = "none,all,resize,fastflow,sophon,best")]
    pub(crate) policies: String,
    /// Cores that the node may use for ops, e.g. 0,0.5,1; max is all of this machine
    #[arg(long, value_name = "LIST", default_value = "0,1,2,max")]
    pub(crate) cores: String,
    /// What the link to the node carries, e.g. 500Mbit, or 60MB for bytes; per second
    #[arg(long, value_name = "RATE", default_value = "500Mbit")]
    pub(crate) link: String,
    /// How the link is slowed down: namespace (a network namespace with a rate limit, needs root), throttle (the
    /// client paces itself), or auto for the first that works
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) by: String,
    /// Samples per second that the pretended accelerator takes; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 2_000.0)]
    pub(crate) accelerator: f64,
    /// Epochs that are measured, after two that profile; the median one is shown
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) epochs: u64,
    /// A preset or a recipe file
    #[arg(long, default_value = "imagenet-train")]
    pub(crate) recipe: String,
    /// Samples per batch
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<String>,
    /// Threads that decode [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<String>,
    /// The seed
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<String>,
    /// Write a picture: epoch time by the node's cores, one line per policy
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, ClapArgs)]
#[command(
    mut_arg("seeds", |arg| arg.help("How often each case is trained, each time from another seed")),
    mut_arg("epochs", |arg| arg.default_value("20").help(
        "How many epochs to train; more on many ranks, where they would be fewer than 300 steps")),
    mut_arg("hidden", |arg| arg.default_value("64,32")),
    mut_arg("lr", |arg| arg.default_value("0.2").help(
        "The learning rate at its highest for a global batch of 256; it grows with the global batch, up to 16 times")),
    mut_arg("batch", |arg| arg.help(
        "Samples per batch on one rank [default: the power of two below the root of its samples, from 4 to 32]")),
    mut_arg("threads", |arg| arg.help("Trainings at once, and threads that decode [default: one per core]")),
)]
pub(crate) struct CompareExchangeArgs {
    #[command(flatten)]
    pub(crate) ground: GroundArgs,
    /// Numbers of ranks [default: 8,64,512,2048, as far as each rank has some batches of samples]
    #[arg(long, value_name = "LIST")]
    pub(crate) ranks: Option<String>,
    /// The shares of its samples that a rank exchanges per epoch: 0 is local shuffling, global is no partition at all; global
    /// is always one of them
    #[arg(long, value_name = "LIST", default_value = "0,0.1,0.3,0.9,global")]
    pub(crate) fractions: String,
    /// Who holds what in the beginning: even (drawn evenly), sorted (by class: the worst case)
    #[arg(long, value_name = "LIST", default_value = "even,sorted")]
    pub(crate) partition: String,
    /// What a rank sends: uniform (any), class (what it has too much of), importance (what had a high loss), balanced
    /// (by class, and within a class what had a high loss)
    #[arg(long, value_name = "LIST", default_value = "uniform,class,importance")]
    pub(crate) choose: String,
    /// Judge by a twelfth of the training data, which is then not trained: to choose settings without the test data
    #[arg(long)]
    pub(crate) holdout: bool,
    /// Keep finished trainings in this file, and take from it what is there: the same command goes on where it was stopped
    #[arg(long, value_name = "FILE")]
    pub(crate) keep: Option<PathBuf>,
    /// Write a picture: accuracy against the fraction, one curve per number of ranks
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// What is printed below the options of `compare exchange`.
pub(crate) const EXCHANGE_HELP: &str = "\
Data-parallel SGD with M ranks is one step on a batch of M parts, so M ranks are trained for real in one process: each \
part is what its rank holds, and batch norm sees one part at a time, as ranks that share only gradients do. Who holds \
what, what moves and in which order it is trained comes from the same code as in a real training.

Cases are trained side by side, one per core. \"smallest\" is the smallest fraction from which on all that were tried are \
within 0.5 points of global shuffling.

Examples:
  gristmill compare exchange --svg exchange.svg
  gristmill compare exchange fashion-mnist/train-images-idx3-ubyte.gz --ranks 64,2048 --partition sorted --keep runs.jsonl

JSON fields: ranks, fraction (a number, or \"global\"), partition, choose (what was not exchanged was not chosen: 0 and \
global stand under the first one only), accuracy and accuracy_sd (shares), delta_points (against global, seed by seed), \
delta_points_sd, moved_share (of the samples, per epoch), divergence (of the ranks' classes in the end: mean total \
variation), loss, train_loss, samples, batch (per rank), global_batch, rate, steps, seeds, epochs. After them, with \
\"summary\": true, one object per ranks, partition and choose: smallest_fraction (null if none is enough) and within_points.";
