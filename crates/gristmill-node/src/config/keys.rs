//! The table of all settings: everything else about config is derived from it.

use super::Settings;
use super::cache::{self, CacheSize};
use super::units::{format_bytes, parse_bytes};
use crate::client::ClientOptions;
use crate::loader::OnBad;
use crate::selection::FamilyUse;
use crate::store::RetryOptions;
use gristmill_core::cache::Policy;
use gristmill_core::nearest::nearest;
use gristmill_core::plan::Uneven;
use gristmill_core::select::Selection;

/// The largest values, which only keep slips of the hand out: nobody means more.
const U32_MAX: u64 = u32::MAX as u64;
const HOUR_MS: u64 = 3_600_000;
const WEEK_MS: u64 = 7 * 24 * HOUR_MS;
const PIXELS_MAX: u64 = 1 << 36;
const BYTES_MAX: u64 = 1 << 50;

/// One setting.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Section and name, as in TOML.
    pub name: &'static str,
    /// What it means, in one sentence.
    pub meaning: &'static str,
    /// Reads a value; the error says what it should have been.
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
    /// Shows the value.
    pub(super) get: fn(&Settings) -> String,
}

impl Key {
    /// The environment variable that sets it.
    pub fn environment(&self) -> String {
        format!("GRISTMILL_{}", self.name.replace('.', "_").to_ascii_uppercase())
    }

    /// The values it takes, in words.
    pub fn values(&self) -> String {
        // No reader but that of any text takes this, and the others say what they take.
        (self.set)(&mut Settings::default(), "?").err().unwrap_or_else(|| "any text".into())
    }

    /// The value when nobody sets it.
    pub fn default(&self) -> String {
        match (self.get)(&Settings::default()) {
            empty if empty.is_empty() => "not set".into(),
            value => value,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            batch: 64,
            threads: 0,
            prefetch_batches: 4,
            memory_bytes_max: 1 << 30,
            seed: 0,
            shuffle: true,
            uneven: Uneven::Pad,
            drop_last: false,
            rank: 0,
            world: 1,
            on_bad: OnBad::Raise,
            stall_ms_max: 600_000,
            pixels_max: 64 << 20,
            recipe: String::new(),
            reads_in_flight: 0,
            retry: RetryOptions::default(),
            throttle_latency_ms: 0,
            throttle_bytes_per_s: 0,
            throttle_requests_per_s: 0,
            fault_share: 0.0,
            fault_seed: 0,
            cache_size: CacheSize::Off,
            cache_policy: Policy::Foresight,
            cache_disk: None,
            cache_stand_ins: false,
            cache_hot_share: 0.7,
            cache_prefetch_bytes_max: 512 << 10,
            cache_gap_bytes_max: 0,
            catalog_folder: String::new(),
            selection_kind: "uniform".into(),
            selection_epochs: 0,
            class_floor: 0.05,
            probe_share: gristmill_core::steer::guard::PROBE_SHARE,
            families: FamilyUse::Off,
            selection_options: std::collections::BTreeMap::new(),
            split: crate::split::SplitOptions::default(),
            steer_mode: steer::SteerMode::On,
            steer_pin: steer::PinRule::default(),
            by_hand: crate::steer::Pins::default(),
            exchange_fraction: None,
            exchange: crate::exchange::ExchangeSettings::default(),
            serve: crate::serve::ServeOptions::default(),
            serve_name: String::new(),
            page: crate::page::PageOptions::default(),
            token_file: String::new(),
            peers: Vec::new(),
            advertise: String::new(),
            tls_ca: String::new(),
            lane_bytes: ClientOptions::default().lane_bytes.into(),
        }
    }
}

macro_rules! key {
    ($name:literal, $meaning:literal, $($field:ident).+, $read:expr, $show:expr) => {
        Key {
            name: $name,
            meaning: $meaning,
            set: |settings, text| {
                settings.$($field).+ = $read(text)?;
                Ok(())
            },
            get: |settings| $show(&settings.$($field).+),
        }
    };
}

// After the macro, which it uses.
mod exchange;
mod serve;
mod split;
pub(crate) mod steer;
mod store;

/// An option that only some ways to select have. Empty is the way's own default.
macro_rules! selection_key {
    ($option:literal, $meaning:literal) => {
        Key {
            name: concat!("selection.", $option),
            meaning: $meaning,
            set: |settings, text| {
                if text.is_empty() {
                    settings.selection_options.remove($option);
                    return Ok(());
                }
                Selection::accepts($option, text)?;
                settings.selection_options.insert($option, text.to_string());
                Ok(())
            },
            get: |settings| settings.selection_options.get($option).cloned().unwrap_or_default(),
        }
    };
}

/// Every setting there is.
pub const KEYS: &[Key] =
    &joined::<
        {
            OWN.len()
                + store::STORE.len()
                + split::SPLIT.len()
                + exchange::EXCHANGE.len()
                + steer::STEER.len()
                + serve::SERVE.len()
        },
    >([OWN, store::STORE, split::SPLIT, exchange::EXCHANGE, steer::STEER, serve::SERVE]);

/// Several tables as one.
const fn joined<const N: usize>(tables: [&[Key]; 6]) -> [Key; N] {
    let mut all = [tables[0][0]; N];
    let (mut table, mut row, mut at) = (0, 0, 0);
    while at < N {
        if row == tables[table].len() {
            (table, row) = (table + 1, 0);
            continue;
        }
        all[at] = tables[table][row];
        (row, at) = (row + 1, at + 1);
    }
    all
}

/// Those of loading, selecting and reading.
const OWN: &[Key] = &[
    key!("loader.batch", "samples per batch on one rank", batch, whole::<u32, 1, U32_MAX>, shown),
    key!(
        "loader.threads",
        "threads that decode; 0 takes one per core",
        threads,
        whole::<u64, 0, 1_024>,
        shown
    ),
    key!(
        "loader.prefetch_batches",
        "finished batches that may lie ready",
        prefetch_batches,
        whole::<u64, 0, 65_536>,
        shown
    ),
    key!(
        "loader.memory_bytes_max",
        "the most memory the loader may take",
        memory_bytes_max,
        bytes::<1>,
        |b: &u64| format_bytes(*b)
    ),
    key!("loader.seed", "where all randomness comes from", seed, whole::<u64, 0, { u64::MAX }>, shown),
    key!("loader.shuffle", "one global shuffle per epoch, or the order of ids", shuffle, boolean, shown),
    key!(
        "loader.uneven",
        "shares that do not divide: drop or pad a few samples",
        uneven,
        uneven,
        |value: &Uneven| show_uneven(*value)
    ),
    key!("loader.drop_last", "leave out a last batch that is not full", drop_last, boolean, shown),
    key!("loader.rank", "which of the ranks this is", rank, whole::<u32, 0, U32_MAX>, shown),
    key!("loader.world", "how many ranks there are", world, whole::<u32, 1, U32_MAX>, shown),
    key!(
        "loader.on_bad",
        "bad samples: raise an error, or skip and count them",
        on_bad,
        on_bad,
        |value: &OnBad| show_on_bad(*value)
    ),
    key!(
        "loader.stall_ms_max",
        "how long to wait for one batch before giving up",
        stall_ms_max,
        whole::<u64, 1, WEEK_MS>,
        shown
    ),
    key!(
        "recipe.name",
        "a preset, or a recipe file (TOML or JSON); none gives raw bytes",
        recipe,
        text,
        shown
    ),
    key!(
        "recipe.pixels_max",
        "the most pixels an image may have",
        pixels_max,
        whole::<u64, 1, PIXELS_MAX>,
        shown
    ),
    key!(
        "selection.kind",
        "which samples an epoch trains on: a way to select",
        selection_kind,
        selection_kind,
        shown
    ),
    key!(
        "selection.epochs",
        "how many epochs the run has, so that the last ones can train on everything and a split knows what still pays; 0 is unknown",
        selection_epochs,
        whole::<u32, 0, 1_000_000>,
        shown
    ),
    key!(
        "selection.class_floor",
        "the share of its samples that every class keeps, at least one",
        class_floor,
        share,
        shown
    ),
    key!(
        "selection.families",
        "near-duplicates: one per epoch, or one in memory for another, or what fits the bottleneck",
        families,
        families,
        |value: &FamilyUse| show_families(*value)
    ),
    selection_key!("warmup", "full epochs first"),
    selection_key!("full_share", "the share of epochs at the end that train on everything"),
    selection_key!("smoothing", "bucket, weighted: how much of the old threshold stays in the new one"),
    selection_key!("relax", "bucket: the threshold as a part of the median score"),
    selection_key!("relax_cost", "bucket: the same for the cost of fetching"),
    selection_key!("quantile", "bucket: above 0, the threshold is this quantile instead"),
    selection_key!("floor", "bucket: the share of samples that stays active"),
    selection_key!("out_max", "bucket: the share of samples that may go to rest after one epoch"),
    selection_key!("recall", "bucket: bring resting samples back when training stagnates"),
    selection_key!("recall_share", "bucket: the share of the resting samples that comes back"),
    selection_key!("stagnation", "bucket: after how many epochs without a better accuracy"),
    selection_key!("probe", "bucket: the share that never rests, by which stagnation is judged"),
    selection_key!(
        "soft",
        "bucket: skip only this share of the resting samples; the others carry its weight"
    ),
    selection_key!("criteria", "bucket: which criteria decide; auto is the vote when training waits for I/O"),
    selection_key!("entropy", "bucket: the formula of the entropy"),
    selection_key!("polarity", "bucket: which side of a threshold is important"),
    selection_key!(
        "noise",
        "weighted: the noise that skipping may add, as a share of what there is; less where more than a tenth is predicted wrongly, more where fewer are if `easy` says so; auto is 0.3 for a model without batch norm, else 0.2"
    ),
    selection_key!(
        "least",
        "weighted: the least chance of being trained in an epoch; auto is 0.05 for a model without batch norm, else six visits in a training, from 0.1 to 0.2"
    ),
    selection_key!(
        "early",
        "weighted: how many times `noise` in the first epoch, falling evenly to once in the last (needs selection.epochs)"
    ),
    selection_key!(
        "easy",
        "weighted: how many times `noise` (beside `early`) at most where less than a tenth is predicted wrongly, in inverse proportion; auto is 4 for a model whose batch norm goes by weights, else 1; without effect with wrong_max 1"
    ),
    selection_key!(
        "weight_max",
        "weighted: the most that a sample may weigh; auto is 3 for a model without batch norm, else 5"
    ),
    selection_key!(
        "batch_least",
        "weighted: the smallest batch, as a share of the usual one (1 keeps batches whole); auto is 0.7 for a model without batch norm, 1 for one whose batch norm goes by weights in a run of 5,000 steps or more (selection.epochs), else 0.5"
    ),
    selection_key!("cost", "weighted: skip what is dear to fetch sooner when training waits for I/O"),
    selection_key!(
        "wrong_max",
        "weighted: skip nothing while this share of the samples is predicted wrongly, and less the nearer it is to that; up to twice that in the first third of a run; with 1 neither this nor the noise goes by wrong predictions"
    ),
    selection_key!("pressure", "online: how much likelier the largest loss is drawn than the smallest"),
    selection_key!("pressure_end", "online: the same in the last epoch"),
    selection_key!("share", "online, proxy: how many samples an epoch has, as a share"),
    selection_key!("draw", "active-bias: draw by the variation instead of weighting by it"),
    selection_key!("power", "biggest-loser, iis: the chance is the percentile of the loss to this power"),
    selection_key!("history", "biggest-loser, iis: losses that a percentile is taken of"),
    selection_key!("staleness", "biggest-loser: epochs in a row that go by the last known losses"),
    selection_key!("reuse", "iis: every so many epochs are full"),
    selection_key!("prune", "infobatch: the share of the samples below the mean loss that is skipped"),
    key!(
        "cache.size",
        "samples kept in memory between epochs: a share of the data set, a size, or a shared node's URL",
        cache_size,
        cache::size,
        cache::show_size
    ),
    key!(
        "cache.policy",
        "what is kept: foresight goes by what the plan and the scores say will be wanted",
        cache_policy,
        cache::policy,
        |policy: &Policy| cache::show_policy(*policy)
    ),
    key!(
        "cache.disk",
        "a second tier on disk: FOLDER:SIZE; it stays warm over restarts",
        cache_disk,
        cache::disk,
        |disk: &Option<cache::DiskPlace>| cache::show_disk(disk.as_ref())
    ),
    key!(
        "cache.stand_ins",
        "score: let cold samples that are there stand in for cold ones that are not",
        cache_stand_ins,
        boolean,
        shown
    ),
    key!(
        "cache.hot_share",
        "score: the share of an epoch's samples that is never stood in for",
        cache_hot_share,
        share,
        shown
    ),
    key!(
        "cache.prefetch_bytes_max",
        "the most that is read ahead at once, while the store is idle; 0 reads nothing ahead",
        cache_prefetch_bytes_max,
        bytes::<0>,
        |b: &u64| format_bytes(*b)
    ),
    key!(
        "cache.gap_bytes_max",
        "what may be read for nothing between neighbours to save a request, where those are dear; with foresight, neighbours that the epoch still wants then come along",
        cache_gap_bytes_max,
        bytes::<0>,
        |b: &u64| format_bytes(*b)
    ),
];

fn shown(value: &impl ToString) -> String {
    value.to_string()
}

fn whole<T: TryFrom<u64>, const MIN: u64, const MAX: u64>(text: &str) -> Result<T, String> {
    let number = text.replace('_', "").parse().ok().filter(|number| (MIN..=MAX).contains(number));
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("a whole number from {MIN} to {MAX}"))
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|n| (0.0..=1.0).contains(n)).ok_or_else(|| "a number from 0 to 1".into())
}

fn bytes<const MIN: u64>(text: &str) -> Result<u64, String> {
    bytes_to::<MIN, BYTES_MAX>(text)
}

fn bytes_to<const MIN: u64, const MAX: u64>(text: &str) -> Result<u64, String> {
    let size = parse_bytes(text).filter(|bytes| (MIN..=MAX).contains(bytes));
    size.ok_or_else(|| format!("a size from {MIN} to {} such as 512MiB", format_bytes(MAX)))
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("true or false".into()),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "all readers in the table have one shape")]
fn text(text: &str) -> Result<String, String> {
    Ok(text.to_string())
}

#[expect(clippy::unnecessary_wraps, reason = "all readers in the table have one shape")]
fn list(text: &str) -> Result<Vec<String>, String> {
    Ok(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Into::into).collect())
}

fn uneven(text: &str) -> Result<Uneven, String> {
    match text {
        "drop" => Ok(Uneven::Drop),
        "pad" => Ok(Uneven::Pad),
        _ => Err("drop or pad".into()),
    }
}

fn show_uneven(uneven: Uneven) -> String {
    match uneven {
        Uneven::Drop => "drop".into(),
        Uneven::Pad => "pad".into(),
    }
}

fn selection_kind(text: &str) -> Result<String, String> {
    if Selection::NAMES.contains(&text) {
        return Ok(text.to_string());
    }
    let meant = match text {
        "off" | "none" | "all" | "false" => Some("uniform"),
        text => nearest(text, Selection::NAMES),
    };
    let rest = meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"));
    Err(format!("one of {}{rest}", Selection::NAMES.join(", ")))
}

fn families(text: &str) -> Result<FamilyUse, String> {
    let found = FamilyUse::NAMES.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| "off, remove, repeat or auto".into())
}

fn show_families(value: FamilyUse) -> String {
    FamilyUse::NAMES.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name).into()
}

fn on_bad(text: &str) -> Result<OnBad, String> {
    match text {
        "raise" => Ok(OnBad::Raise),
        "skip" => Ok(OnBad::Skip),
        _ => Err("raise or skip".into()),
    }
}

fn show_on_bad(on_bad: OnBad) -> String {
    match on_bad {
        OnBad::Raise => "raise".into(),
        OnBad::Skip => "skip".into(),
    }
}
