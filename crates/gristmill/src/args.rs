//! What can be typed. Only what was typed: meaning is given in the commands.

#![expect(
    clippy::doc_markdown,
    reason = "these comments are the help text, where backticks would be printed"
)]

mod all;
mod compare;
mod reference;
mod serve;
mod simulate;
mod train;

pub(crate) use all::CompareAllArgs;
pub(crate) use compare::{
    CompareCacheArgs, CompareExchangeArgs, CompareSelectionArgs, CompareSplitArgs, GroundArgs,
};
pub(crate) use reference::Page;
pub(crate) use serve::{BenchServeArgs, ServeArgs, StatusArgs};
pub(crate) use simulate::SimulateArgs;
pub(crate) use train::{Falls, ModelArgs, TrainArgs};

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Keeps deep-learning training fed when data is the bottleneck.
#[derive(Debug, Parser)]
#[command(name = "gristmill", version, propagate_version = true, disable_help_subcommand = true, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gristmill catalog build /data/train                  list a folder of class folders once
  gristmill bench load /data/train --recipe imagenet-train
                                                       how fast can it be read, and what does it wait for
  gristmill bench load s3://bucket/train-{0000..0099}.tar --recipe imagenet-train --json
  gristmill train mnist/train-images-idx3-ubyte.gz     train a small model on it
  gristmill compare selection                          ways to select samples, side by side
  gristmill compare cache                              ways to keep samples, side by side
  gristmill compare split photos                       ways to run the first ops near the data
  gristmill simulate --ranks 2048 --fraction 0.3       what an epoch would cost on 2,048 ranks
  gristmill compare exchange                           how much ranks must swap
  gristmill compare all                                all of it, steered, against a plain loop
  gristmill config show                                every setting and where it comes from

Exit codes: 0 done, 1 a problem was found or met, 2 the call or the configuration is wrong,\n130 stopped by Ctrl-C.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List a data set once, look at the list, check it against the data
    #[command(subcommand)]
    Catalog(Catalog),
    /// Train a small model on a data set: the whole loop, without Python
    #[command(
        allow_negative_numbers = true,
        after_help = "\
Examples:
  gristmill train mnist/train-images-idx3-ubyte.gz
  gristmill train mnist --epochs 20 --checkpoint mnist.ckpt --resume --report mnist.svg
  gristmill train mnist --selection weighted --report mnist.svg
  gristmill train photos --recipe small.toml --latency-ms 20 --bytes-per-s 60MB     as if remote

The model is a multi-layer perceptron with batch norm, trained by SGD with momentum. JSON: one object per epoch \
(epoch from 0, loss, accuracy, test_accuracy, kept_share, wait_share, bytes, wall_ms, …), then one with \"total\": true."
    )]
    Train(Box<TrainArgs>),
    /// Compare techniques with each other and with doing without, on a small model
    #[command(subcommand)]
    Compare(Compare),
    /// Say whether fetching, preprocessing or the model limits training, and why
    #[command(
        allow_negative_numbers = true,
        after_help = "\
Fetching is measured with raw reads, preprocessing by the CPU time of the recipe. The model's rate is yours to give: \
without it the answer is the rate that a model must exceed to wait for data.

Examples:
  gristmill profile /data/train --recipe imagenet-train --step-ms 180      180 ms per batch
  gristmill profile s3://bucket/train --compute 2500 --save profile.json   2,500 samples per second"
    )]
    Profile(Box<ProfileArgs>),
    /// Predict epochs at any scale: the real exchange between thousands of ranks on modelled hardware
    #[command(
        allow_negative_numbers = true,
        after_help = "\
Who holds, sends and trains what is decided as in a real run; disks, links, cores, accelerators and the store are modelled. \
After every epoch it is checked that no sample was lost, doubled or trained where it is not held. The same options and seed \
give the same figures, bit for bit.

Examples:
  gristmill simulate --ranks 2048 --samples 1280000 --epochs 90 --fraction 0.3
  gristmill simulate --shuffle global,local,partial --store 2GB --labels sorted --svg mixing.svg
  gristmill simulate --fault slow-disk:3:8 --fault lost-node:7:2 --link 1Gbit
  gristmill profile /data/train --recipe imagenet-train --step-ms 180 --save p.json; gristmill simulate --profile p.json

JSON fields of an epoch: shuffle, epoch, epoch_s and its causes compute_s, disk_s, cpu_s, exchange_s, store_s, slowest_s, \
restart_s; batches, trained, again, left, exchanged, balanced, exchanged_bytes, stored, store_bytes, held_share (the most \
a rank held, of the data), seen_share, seen_least, seen_most (of the data, so far), divergence, divergence_expected, \
restarts, refilled. After them one object per shuffle with \"total\": true: sums, the time to fill the slices (fill_s), and \
what was simulated (setup)."
    )]
    Simulate(Box<SimulateArgs>),
    /// Find near-duplicates, and show them as pictures
    #[command(after_help = "\
Two samples are relatives if their 64-bit perceptual hashes differ in few bits. Hashing reads \
every sample once; the hashes are kept beside the catalog, so another radius takes a moment.

Examples:
  gristmill families /data/train --page families.html      look at what was found
  gristmill families /data/train --radius 2 --cross-label  stricter; finds wrong labels")]
    Families(FamiliesArgs),
    /// Serve a data set to several jobs and machines
    #[command(after_help = "\
Examples:
  gristmill serve /data/train --unix /run/grist.sock --http 127.0.0.1:9077
  openssl rand -hex 32 > token; gristmill serve /data/train --listen 0.0.0.0:7077 --token-file token

Clients name it grist://host:7077/train, grists:// with TLS, or grist+unix:///run/grist.sock. The token comes from a file \
or GRISTMILL_TOKEN; beyond this machine there must be one. SIGTERM and Ctrl-C finish what is in flight first.")]
    Serve(Box<ServeArgs>),
    /// Show what a node or a training run does
    #[command(after_help = "\
Examples:
  gristmill status grist://127.0.0.1:7077 --watch      a node
  gristmill status http://127.0.0.1:7078/ --watch      a training run that was started with --page")]
    Status(StatusArgs),
    /// Measure
    #[command(subcommand)]
    Bench(Bench),
    /// Show and check settings
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// Settings that any command takes.
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct Common {
    /// Read settings from this TOML file [default: $GRISTMILL_CONFIG, or gristmill.toml here if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Give any setting a value, e.g. --set store.attempts_max=3 (`gristmill config show` lists them)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Catalog {
    /// List the samples of a data set: where each lies, how large it is, its label
    #[command(after_help = "\
Examples:
  gristmill catalog build /data/train                          class folders
  gristmill catalog build labels.csv -o train.catalog          a list: path, label
  gristmill catalog build 's3://bucket/train-{000..099}.tar'   WebDataset shards
  gristmill catalog build mnist/train-images-idx3-ubyte.gz     the MNIST family
  gristmill catalog build cifar-10-batches-bin                 CIFAR binaries")]
    Build(BuildArgs),
    /// Show what a catalog holds
    #[command(after_help = "Example:\n  gristmill catalog show train.catalog --samples 5")]
    Show {
        /// A catalog file, or the data set it was built from
        source: String,
        /// Also show this many samples, from the first
        #[arg(long, default_value_t = 0, value_name = "N")]
        samples: u32,
        #[command(flatten)]
        common: Common,
    },
    /// Find files that changed, vanished or appeared since the catalog was built
    #[command(after_help = "\
Exit code 1 if anything is found.

Example:
  gristmill catalog check train.catalog --decode    also find pictures that cannot be decoded")]
    Check {
        /// A catalog file, or the data set it was built from
        source: String,
        /// Also read every byte and compare it with the catalog's hashes (if it was built with --content)
        #[arg(long)]
        content: bool,
        /// Also decode every sample
        #[arg(long)]
        decode: bool,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BuildArgs {
    /// A folder, a list file (.csv, .jsonl), tar shards (braces allowed), idx or CIFAR files; a path or a URL
    pub(crate) source: String,
    /// Where to write the catalog [default: the folder of the setting catalog.folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What the source is, when that cannot be seen from it
    #[arg(long)]
    pub(crate) kind: Option<Kind>,
    /// The column of a list that holds paths
    #[arg(long, value_name = "NAME")]
    pub(crate) path_column: Option<String>,
    /// The column of a list that holds labels
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
    /// Read every byte, so that `check --content` can find any change
    #[arg(long)]
    pub(crate) content: bool,
    /// Accept class folders without images
    #[arg(long)]
    pub(crate) allow_empty_classes: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ProfileArgs {
    /// A data set (path or URL) or a catalog file
    pub(crate) source: String,
    /// A preset (imagenet-train, imagenet-eval, cifar-train, mnist), a recipe file, or none for raw bytes
    #[arg(long)]
    pub(crate) recipe: Option<String>,
    /// Samples per batch
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<String>,
    /// Threads that decode [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<String>,
    /// How long the model takes for one batch of loader.batch samples
    #[arg(long, value_name = "MS", conflicts_with = "compute")]
    pub(crate) step_ms: Option<f64>,
    /// How many samples per second the model takes
    #[arg(long, value_name = "RATE")]
    pub(crate) compute: Option<f64>,
    /// How long each measurement may take
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    pub(crate) seconds: f64,
    /// Write the profile to FILE as JSON, e.g. for `gristmill simulate --profile`
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Slow the store down: time before the first byte of each read
    #[arg(long, value_name = "MS")]
    pub(crate) latency_ms: Option<String>,
    /// Slow the store down: bytes per second, e.g. 60MB
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes_per_s: Option<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct FamiliesArgs {
    /// A data set (path or URL) or a catalog file
    pub(crate) source: String,
    /// In how many of 64 bits relatives may differ, 0 to 10 [default: chosen by the size of the pictures]
    #[arg(long, value_name = "BITS")]
    pub(crate) radius: Option<u32>,
    /// Let samples of different labels be relatives
    #[arg(long)]
    pub(crate) cross_label: bool,
    /// Write a page with the pictures of each family side by side
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,
    /// How many families the page shows, the largest first
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(crate) limit: usize,
    /// Hash every sample again, even if that was done before
    #[arg(long)]
    pub(crate) rebuild: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Kind {
    Folder,
    List,
    Tar,
    Idx,
    Cifar,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Compare {
    /// Every way to select samples: accuracy, speed-up, share trained, share of reading saved
    #[command(
        allow_negative_numbers = true,
        after_help = "\
Examples:
  gristmill compare selection --svg selection.svg
  gristmill compare selection mnist/train-images-idx3-ubyte.gz --methods bucket,weighted --seeds 5 --json

JSON fields: method, accuracy and accuracy_sd (shares), delta_points (against uniform), delta_points_sd (of the \
differences seed by seed), speedup (CPU time), wall_speedup, trained_share, io_saved_share, begin_share (of the time \
that went to selecting), seeds, epochs."
    )]
    Selection(Box<CompareSelectionArgs>),
    /// Every way to keep samples in a cache: hit ratio, bytes read, time waited, epoch time, accuracy
    #[command(
        allow_negative_numbers = true,
        after_help = "\
Each side is a way to select samples and a cache policy, really trained from a store that is slowed down:
  none     all samples, no cache                 quiver   all samples, quiver
  default  all samples, lru                      static   all samples, static (admits until full)
  base     biggest-loser, lru                    icache   iis, score, with stand-ins
  ilfu     iis, lfu                              ours     weighted, foresight

How much a cache gains depends on how much longer reading takes than computing (--bound). Near 1 a good cache hides \
all of the reading, below that nobody waits; far above it, what is left to read decides, and a cache cannot keep \
more than its size. The link of your own store: --bytes-per-s, --requests-per-s. \
Hit ratios, bytes and times are means over all epochs, the first one with its empty cache included; the fields that \
end in _later leave it out. What was read ahead, or came along with a neighbour, counts as a hit when it is asked for, and as bytes read.

Examples:
  gristmill compare cache --svg cache.svg
  gristmill compare cache mnist/train-images-idx3-ubyte --size 10%,20%,40%,60% --policies none,static,ours --json
  gristmill compare cache mnist/train-images-idx3-ubyte --jobs 2

JSON fields: policy, size, selection, cache, hit_ratio, hit_ratio_later, bytes_read (per epoch), io_wait_s, \
io_wait_s_later, wait_s (for anything), epoch_s, epoch_s_later, accuracy, accuracy_sd, delta_points, io_wait_ratio and \
epoch_ratio (how many times less than default), loaded_share, stand_ins (per epoch), seeds, epochs, bytes_per_s, \
latency_ms, requests_per_s, bound. With two jobs: policy (shared, only-a, only-b), side, completion_s, completion_a_s, \
completion_b_s, hit_ratio, bytes_read (in all), speedup (of shared against this), accuracy_a, accuracy_b."
    )]
    Cache(Box<CompareCacheArgs>),
    /// Every way to run the first ops where the data lies: traffic, epoch time, CPU on both sides, predicted and measured
    #[command(
        allow_negative_numbers = true,
        after_help = "\
A real node is started in front of the data, with a slow link between: by root in a network namespace of its own with \
a rate limit, else paced by the client. Each policy reads the same epochs; every batch must have the same bytes.
  none      raw samples
  all       finished tensors
  resize    the crop of every sample
  fastflow  a share of whole recipes, if CPU is short here
  sophon    the crop, where it is smaller (the published rule)
  best      what makes the epoch shortest: raw, a JPEG cut without loss, the crop, packed or not

Node and client share this machine: more cores for the node than are free slow down the client.

Examples:
  gristmill compare split photos --link 100Mbit --cores 0,0.5,1 --svg split.svg
  gristmill compare split imagenet/train --policies sophon,best --accelerator 1500 --json

JSON fields: policy, upstream_cores, traffic_bytes (per epoch), traffic_ratio (how many times less than raw), epoch_s, \
predicted_s (null where nothing could be predicted), speedup (against none with the same cores), upstream_cpu_s, \
local_cpu_s, stages (samples by stage), fallbacks (samples that came raw though a stage was wanted), samples, epochs, \
link_bytes_per_s, link (namespace or throttle), accelerator_samples_per_s, reason."
    )]
    Split(Box<CompareSplitArgs>),
    /// Local, partial and global shuffling at many ranks: accuracy, and the smallest fraction that is enough
    #[command(allow_negative_numbers = true, after_help = compare::EXCHANGE_HELP)]
    Exchange(Box<CompareExchangeArgs>),
    /// All of it, steered, against a plain loop and each technique alone: time to the same accuracy in five scenarios
    #[command(allow_negative_numbers = true, after_help = all::ALL_HELP)]
    All(Box<CompareAllArgs>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Read a data set as a training would, and say how fast that is and what it waits for
    #[command(
        allow_negative_numbers = true,
        after_help = "\
Examples:
  gristmill bench load /data/train --recipe imagenet-train --batch 64 --threads 2 --json
  gristmill bench load /data/train --latency-ms 20 --bytes-per-s 60MB     as if remote
  gristmill bench load /data/train --recipe none                          raw bytes, no decoding
  gristmill bench load /data/train --ranks 4 --exchange 0.3 --hold /ssd/slice --step-ms 20 --link 1Gbit

JSON fields of an epoch: epoch, samples, batches, samples_per_s, cpu_ms_per_sample, wall_ms, wait_ms and its parts \
wait_fetch_ms, wait_decode_ms, wait_ops_ms, wait_hand_over_ms; wait_exchange_ms, bytes, retries, skipped, …. \
After several epochs one more object, with \"total\": true, holds their medians. With --ranks each has its own objects \
(rank, exchange) and --batches-out file (FILE.RANK), and every epoch ends with a total over them (wait_exchange_share)."
    )]
    Load(Box<LoadArgs>),
    /// How many samples a node sends per second and per second of CPU, beside Redis and bare TCP
    #[command(after_help = "\
JSON fields: transport (tcp, unix, lane, client-tcp, client-unix, loopback, redis-mget, redis-get and redis-unix: MGET through its Unix socket), load (batched: one connection, \
--batch samples per message, 2 messages in flight; mixed: 8 connections, half of them ask for single samples), sample_bytes, \
requests_per_s and requests_per_cpu_s (a request is one sample; CPU is the server's), times_redis (per CPU second, beside Redis' MGET of the same round; shown as x Redis), p99_ms (of a message).")]
    Serve(BenchServeArgs),
    /// Say what a catalog of very many samples costs to open, hold and order
    #[command(after_help = "Example:\n  gristmill bench scale --samples 10000000")]
    Scale(ScaleArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ScaleArgs {
    /// How many samples to pretend
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    pub(crate) samples: u32,
    /// Measure this catalog instead of writing one
    #[arg(long, value_name = "FILE")]
    pub(crate) measure: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LoadArgs {
    /// A data set (path or URL) or a catalog file
    pub(crate) source: String,
    /// A preset (imagenet-train, imagenet-eval, cifar-train, mnist), a recipe file, or none for raw bytes
    #[arg(long)]
    pub(crate) recipe: Option<String>,
    /// Samples per batch
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<String>,
    /// Threads that decode [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<String>,
    /// Where all randomness comes from
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<String>,
    /// How many epochs to read
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) epochs: u64,
    /// Stop each epoch after this many batches
    #[arg(long, value_name = "N")]
    pub(crate) batches: Option<u32>,
    /// Begin with this epoch
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) from_epoch: u64,
    /// Begin the first epoch with this batch
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) from_batch: u32,
    /// Write one JSON line per batch to FILE: epoch, batch, ids, labels, and a fingerprint of its content
    #[arg(long, value_name = "FILE")]
    pub(crate) batches_out: Option<PathBuf>,
    /// Pretend that a training step takes this long per batch, 0 to 3600000
    #[arg(long, default_value_t = 0.0, value_name = "MS")]
    pub(crate) step_ms: f64,
    /// Slow the store down: time before the first byte of each read
    #[arg(long, value_name = "MS")]
    pub(crate) latency_ms: Option<String>,
    /// Slow the store down: bytes per second, e.g. 60MB
    #[arg(long, value_name = "SIZE")]
    pub(crate) bytes_per_s: Option<String>,
    /// Slow the store down: reads per second
    #[arg(long, value_name = "N")]
    pub(crate) requests_per_s: Option<String>,
    /// Spoil this share of the reads (errors, stalls, short bodies), 0 to 1; a stall ends after 1 s unless
    /// store.attempt_ms_max is changed
    #[arg(long, value_name = "SHARE")]
    pub(crate) faults: Option<String>,
    /// Run this many ranks that step together, as threads of this process
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<u32>,
    /// What the ranks swap per epoch: a share of their slices from 0 to 1, auto, or global for no slices at all
    #[arg(long, value_name = "SHARE")]
    pub(crate) exchange: Option<String>,
    /// Where ranks hold their slices: memory, or a folder
    #[arg(long, value_name = "DIR")]
    pub(crate) hold: Option<String>,
    /// The speed of each rank's link for the exchange, e.g. 1Gbit or 100MB [default: no limit]
    #[arg(long, value_name = "SPEED")]
    pub(crate) link: Option<String>,
    /// With several ranks, print what each of them did as well
    #[arg(long)]
    pub(crate) verbose: bool,
    /// What the source is, when that cannot be seen from it
    #[arg(long)]
    pub(crate) kind: Option<Kind>,
    /// Build the catalog anew, even if there is one
    #[arg(long)]
    pub(crate) rebuild: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every setting, its value and which layer set it
    Show {
        #[command(flatten)]
        common: Common,
    },
    /// Check a config file by itself, whatever the environment says
    #[command(after_help = "Example:\n  gristmill config check gristmill.toml")]
    Check {
        /// The file
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print a reference page as Markdown
    Reference {
        /// What it is about
        #[arg(value_enum, default_value_t = Page::Settings)]
        page: Page,
    },
}
