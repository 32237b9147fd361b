//! What can be typed after `gristmill simulate`.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// What is not typed comes from the profile, and what is not there either has the default that is named.
#[derive(Debug, ClapArgs)]
pub(crate) struct SimulateArgs {
    /// Take data set, CPU, store and step from a file that `gristmill profile --save` wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// How many ranks train together
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub(crate) ranks: u32,
    /// How many epochs they train
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) epochs: u64,
    /// Where all randomness comes from
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) seed: u64,
    /// Of how many ranks it is followed what they have seen, drawn from the seed
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub(crate) follow: u32,
    /// Write a picture: how much of the data a rank has seen and how alike the slices are, by epoch
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print one JSON object per epoch, and one for all
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) data: DataArgs,
    #[command(flatten)]
    pub(crate) knobs: KnobArgs,
    #[command(flatten)]
    pub(crate) hardware: HardwareArgs,
    /// Let something go wrong: slow-disk:RANK:FACTOR, late-rank:RANK:SECONDS or lost-node:RANK:EPOCH; may be repeated
    #[arg(long = "fault", value_name = "FAULT", help_heading = "Faults")]
    pub(crate) faults: Vec<String>,
    /// How long the others wait for a word of a lost node
    #[arg(long, default_value_t = 30.0, value_name = "S", help_heading = "Faults")]
    pub(crate) timeout_s: f64,
    /// How long it takes to start all ranks again
    #[arg(long, default_value_t = 60.0, value_name = "S", help_heading = "Faults")]
    pub(crate) restart_s: f64,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Data and model")]
pub(crate) struct DataArgs {
    /// How many samples there are [default: 128000]
    #[arg(long, value_name = "N")]
    pub(crate) samples: Option<u32>,
    /// Mean size of a sample [default: 110kB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes: Option<String>,
    /// Standard deviation of sizes, as a share of the mean [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub(crate) spread: Option<f64>,
    /// How many classes there are, all equally large [default: 1000]
    #[arg(long, value_name = "N")]
    pub(crate) classes: Option<u32>,
    /// How classes lie at first: even, or sorted so that a rank has few of them
    #[arg(long, default_value = "even", value_name = "HOW")]
    pub(crate) labels: String,
    /// Samples per batch of one rank [default: 64]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<u32>,
    /// CPU time that preparing a sample takes [default: 5]
    #[arg(long, value_name = "MS")]
    pub(crate) cpu_ms: Option<f64>,
    /// Time that the accelerator takes for a batch, the exchange of gradients included [default: 200]
    #[arg(long, value_name = "MS")]
    pub(crate) step_ms: Option<f64>,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Knobs")]
pub(crate) struct KnobArgs {
    /// Where samples come from: global (each rank reads its part from the store in every epoch), local (each rank keeps its
    /// slice), partial (it swaps a fraction of it); several side by side, e.g. global,local,partial
    #[arg(long, default_value = "partial", value_name = "LIST")]
    pub(crate) shuffle: String,
    /// The share of each slice that changes hands per epoch, 0 to 1
    #[arg(long, default_value_t = 0.3, value_name = "SHARE")]
    pub(crate) fraction: f64,
    /// Who sends to whom: derangement or plain
    #[arg(long, default_value = "derangement", value_name = "FORM")]
    pub(crate) form: String,
    /// What is sent: uniform, or class for what a slice has too much of
    #[arg(long, default_value = "uniform", value_name = "HOW")]
    pub(crate) choose: String,
    /// What slices are kept in: disk or memory
    #[arg(long, default_value = "disk", value_name = "WHERE")]
    pub(crate) hold: String,
    /// The share of the samples that a pretended selection keeps in each epoch, above 0 and up to 1
    #[arg(long, default_value_t = 1.0, value_name = "SHARE")]
    pub(crate) kept: f64,
    /// The share of a rank's samples that its cache gives, without a read
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub(crate) cached: f64,
    /// Threads of a rank that prepare samples [default: 4]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<u32>,
    /// Reads that a rank keeps in flight; 0 lets its threads read for themselves [default: 64 from the store, else 0]
    #[arg(long, value_name = "N")]
    pub(crate) reads: Option<u32>,
    /// Finished batches that may lie ready at a rank [default: 4]
    #[arg(long, value_name = "N")]
    pub(crate) prefetch: Option<u32>,
}

#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Hardware")]
pub(crate) struct HardwareArgs {
    /// How many ranks share the cores of one node
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) ranks_per_node: u32,
    /// Cores of a node that prepare samples [default: one per thread]
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<u32>,
    /// What a rank's disk reads and writes per second, e.g. 500MB [default: 2GB]
    #[arg(long, value_name = "RATE")]
    pub(crate) disk: Option<String>,
    /// Time before the first byte of a read from the disk [default: 0.1]
    #[arg(long, value_name = "MS")]
    pub(crate) disk_latency_ms: Option<f64>,
    /// Time until a disk is sure of what was written, once per exchange [default: 20]
    #[arg(long, value_name = "MS")]
    pub(crate) disk_sync_ms: Option<f64>,
    /// What a rank's link carries per second in each direction, e.g. 1Gbit [default: 10Gbit]
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<String>,
    /// Time from one end of a link to the other [default: 0.05]
    #[arg(long, value_name = "MS")]
    pub(crate) link_latency_ms: Option<f64>,
    /// What the store gives to all ranks together per second [default: 10GB]
    #[arg(long, value_name = "RATE")]
    pub(crate) store: Option<String>,
    /// Time before the first byte of a read from the store [default: 5]
    #[arg(long, value_name = "MS")]
    pub(crate) store_latency_ms: Option<f64>,
    /// Requests that the store accepts from all ranks together per second [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) store_requests_per_s: Option<f64>,
}
