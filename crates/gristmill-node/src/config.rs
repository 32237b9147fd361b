//! One schema for every setting, whether it is written in a file, the environment or an argument.
//!
//! [`KEYS`](keys::KEYS) is the one table: name, default, meaning, how to read and show it. Layers are laid over
//! each other: defaults, then a TOML file, then `GRISTMILL_*`, then arguments; the last one wins, and each value
//! remembers which layer set it. The reference page is printed from the same table.
//!
//! Deliberately not here: credentials of object stores (they stay in the stores' own environment variables) and
//! any reading of the environment outside of [`Config::load`]. A `GRISTMILL_*` variable that is no setting is an
//! error and not passed over: a slip of the hand would silently train with a default.

mod cache;
mod keys;
pub(crate) mod text;
mod units;

pub use cache::{CacheSize, DiskPlace};
use keys::steer::{PinRule, SteerMode};
pub use keys::{KEYS, Key};
pub use units::{format_bytes, parse_bytes};

use crate::catalog::Digest;
use crate::client::ClientOptions;
use crate::disk::DiskOptions;
use crate::exchange::{ExchangeSettings, Fraction};
use crate::loader::{LoaderOptions, OnBad};
use crate::node::NodeOptions;
use crate::page::PageOptions;
use crate::peers::Peers;
use crate::selection::{FamilyUse, SelectionOptions};
use crate::serve::ServeOptions;
use crate::split::SplitOptions;
use crate::steer::{Pins, SteerOptions};
use crate::store::{FaultOptions, RetryOptions, StoreOptions, ThrottleOptions};
use crate::token::Token;
use crate::{Error, Kind, Result};
use gristmill_core::cache::Policy;
use gristmill_core::nearest::nearest;
use gristmill_core::plan::{Shape, Uneven};
use gristmill_core::select::Selection;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The largest config file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Variables that are ours and no settings: the config file, the data that tests and benchmarks read, the token.
const OTHER_VARIABLES: [&str; 3] = ["GRISTMILL_CONFIG", "GRISTMILL_DATA", crate::token::VARIABLE];
/// How long an attempt may take where reads are spoiled on purpose, so that a stall is soon over.
const FAULTY_ATTEMPT_MS_MAX: u64 = 1_000;

/// The most bytes that wait to be written to the disk tier.
const DISK_QUEUE_BYTES_MAX: u64 = 64 << 20;

/// Who set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody.
    Default,
    /// The config file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// An argument.
    Argument,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Environment(name) => f.write_str(name),
            Origin::Argument => f.write_str("argument"),
        }
    }
}

/// All settings, each with a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub(crate) batch: u32,
    pub(crate) threads: u64,
    pub(crate) prefetch_batches: u64,
    pub(crate) memory_bytes_max: u64,
    pub(crate) seed: u64,
    pub(crate) shuffle: bool,
    pub(crate) uneven: Uneven,
    pub(crate) drop_last: bool,
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) on_bad: OnBad,
    pub(crate) stall_ms_max: u64,
    pub(crate) pixels_max: u64,
    pub(crate) recipe: String,
    pub(crate) reads_in_flight: u64,
    pub(crate) retry: RetryOptions,
    pub(crate) throttle_latency_ms: u64,
    pub(crate) throttle_bytes_per_s: u64,
    pub(crate) throttle_requests_per_s: u64,
    pub(crate) fault_share: f64,
    pub(crate) fault_seed: u64,
    pub(crate) cache_size: CacheSize,
    pub(crate) cache_policy: Policy,
    pub(crate) cache_disk: Option<DiskPlace>,
    pub(crate) cache_stand_ins: bool,
    pub(crate) cache_hot_share: f64,
    pub(crate) cache_prefetch_bytes_max: u64,
    pub(crate) cache_gap_bytes_max: u64,
    pub(crate) catalog_folder: String,
    pub(crate) selection_kind: String,
    pub(crate) selection_epochs: u32,
    pub(crate) class_floor: f64,
    pub(crate) probe_share: f64,
    pub(crate) families: FamilyUse,
    /// Options of the selection that somebody set, by name.
    pub(crate) selection_options: BTreeMap<&'static str, String>,
    pub(crate) split: SplitOptions,
    pub(crate) steer_mode: SteerMode,
    pub(crate) steer_pin: PinRule,
    /// The knobs that somebody set.
    pub(crate) by_hand: Pins,
    /// None is off.
    pub(crate) exchange_fraction: Option<Fraction>,
    /// The rest of how ranks exchange.
    pub(crate) exchange: ExchangeSettings,
    pub(crate) serve: ServeOptions,
    pub(crate) serve_name: String,
    pub(crate) page: PageOptions,
    pub(crate) token_file: String,
    pub(crate) peers: Vec<String>,
    pub(crate) advertise: String,
    pub(crate) tls_ca: String,
    pub(crate) lane_bytes: u64,
}

/// Settings together with who set each of them.
#[derive(Debug, Clone)]
pub struct Config {
    settings: Settings,
    origins: Vec<Origin>,
}

impl Default for Config {
    fn default() -> Config {
        Config { settings: Settings::default(), origins: vec![Origin::Default; KEYS.len()] }
    }
}

impl Config {
    /// Defaults, then the file (the one given, or `GRISTMILL_CONFIG`, or `gristmill.toml` here if there is one),
    /// then the environment, then `arguments` as pairs of key and value.
    pub fn load(file: Option<&Path>, arguments: &[(String, String)]) -> Result<Config> {
        let mut config = Config::default();
        let named =
            file.map(Path::to_path_buf).or_else(|| std::env::var_os("GRISTMILL_CONFIG").map(Into::into));
        let here = PathBuf::from("gristmill.toml");
        if let Some(path) = named.or_else(|| here.is_file().then_some(here)) {
            config.file(&path)?;
        }
        config.environment(std::env::vars_os())?;
        for (name, value) in arguments {
            let index = find(name, "an argument")?;
            config.set(index, value, Origin::Argument)?;
        }
        config.settings.check()?;
        config.check_pins()?;
        Ok(config)
    }

    /// Defaults and this file alone, whatever else is set.
    pub fn from_file(path: &Path) -> Result<Config> {
        let mut config = Config::default();
        config.file(path)?;
        config.settings.check()?;
        Ok(config)
    }

    /// Every key with its value and origin, in the order of the table.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Key, String, &Origin)> {
        KEYS.iter().zip(&self.origins).map(|(key, origin)| (key, (key.get)(&self.settings), origin))
    }

    /// The settings, laid out for the parts that use them.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn set(&mut self, index: usize, value: &str, origin: Origin) -> Result<()> {
        let key = &KEYS[index];
        (key.set)(&mut self.settings, value.trim()).map_err(|expected| {
            Error::config(format!("{} = {value:?} (from {origin}) is not {expected}", key.name))
                .hint(format!("{}; the default is {}", key.meaning, key.default()))
        })?;
        if let Some((knob, _)) = Pins::NAMES.iter().find(|(_, setting)| *setting == key.name)
            && let Some(by_hand) = self.settings.by_hand.named(knob)
        {
            *by_hand = true;
        }
        self.origins[index] = origin;
        Ok(())
    }

    /// Lays variables over what is set. In the order of the table, so that the same error is always the first.
    fn environment(&mut self, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<()> {
        let mut ours: BTreeMap<String, OsString> = variables
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with("GRISTMILL_") && !OTHER_VARIABLES.contains(&name.as_str()))
            .collect();
        for (index, key) in KEYS.iter().enumerate() {
            let name = key.environment();
            if let Some(value) = ours.remove(&name) {
                let value =
                    value.into_string().map_err(|_| Error::config(format!("{name} is not valid UTF-8")))?;
                self.set(index, &value, Origin::Environment(name))?;
            }
        }
        let Some(name) = ours.keys().next() else { return Ok(()) };
        let error = Error::config(format!("the environment variable {name} is not a setting"));
        let ours = OTHER_VARIABLES.into_iter().map(Into::into).chain(KEYS.iter().map(Key::environment));
        let known: Vec<String> = ours.map(|name| name.to_ascii_lowercase()).collect();
        Err(match nearest(name, known.iter().map(String::as_str)) {
            Some(known) => {
                error.hint(format!("did you mean {}? If not, unset it", known.to_ascii_uppercase()))
            }
            None => error.hint("unset it; `gristmill config reference` lists all of them"),
        })
    }

    fn file(&mut self, path: &Path) -> Result<()> {
        let text = text::read(path, "config file", FILE_BYTES_MAX)?;
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            Error::config(format!("{} is not valid TOML: {}", path.display(), e.message())).hint(
                e.span().map_or(String::new(), |span| {
                    format!("line {}", text[..span.start.min(text.len())].lines().count().max(1))
                }),
            )
        })?;
        for (section, values) in &table {
            let toml::Value::Table(values) = values else {
                let error =
                    Error::config(format!("{section:?} in {} stands outside of a section", path.display()));
                return Err(error.hint(
                    "sections are [loader], [recipe], [selection], [cache], [store], [catalog], [split], [exchange], [steer], [serve], [client] and \
                     [page]",
                ));
            };
            for (name, value) in values {
                let index = find(&format!("{section}.{name}"), &path.display().to_string())?;
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                self.set(index, &text, Origin::File(path.to_path_buf()))?;
            }
        }
        Ok(())
    }
}

/// The place of a key in the table; a name that is not there is an error that suggests one that is.
fn find(name: &str, place: &str) -> Result<usize> {
    KEYS.iter().position(|key| key.name == name).ok_or_else(|| {
        let error = Error::config(format!("{name:?} in {place} is not a setting"));
        match nearest(name, KEYS.iter().map(|key| key.name)) {
            Some(known) => error.hint(format!("did you mean {known:?}?")),
            None => error.hint("`gristmill config show` lists all of them"),
        }
    })
}

impl Settings {
    /// Relations between values, in one place.
    fn check(&self) -> Result<()> {
        if self.rank >= self.world {
            return Err(Error::config(format!(
                "loader.rank = {} but loader.world = {}",
                self.rank, self.world
            ))
            .hint("ranks count from 0 to world - 1"));
        }
        if self.retry.attempt_ms_max > self.retry.deadline_ms {
            return Err(Error::config(format!(
                "store.attempt_ms_max = {} is over store.deadline_ms = {}",
                self.retry.attempt_ms_max, self.retry.deadline_ms
            ))
            .hint("one attempt must end before all of them must"));
        }
        if self.cache_stand_ins && self.cache_policy != Policy::Score {
            return Err(Error::config("cache.stand_ins is on, but only the policy score has cold samples")
                .hint("set cache.policy = \"score\", or leave stand-ins off"));
        }
        self.selection().map(|_| ())
    }

    /// Refuses what the cache that is asked for would pass over.
    pub(crate) fn check_cache(&self) -> Result<()> {
        let unused = match &self.cache_size {
            CacheSize::Off => "there is no cache: set cache.size, too",
            CacheSize::Shared(_) => "it is the shared node that keeps samples: give it to `gristmill serve`",
            CacheSize::Share(_) | CacheSize::Bytes(_) => return Ok(()),
        };
        match self.cache_disk {
            Some(_) => Err(Error::config("cache.disk would not be used").hint(unused)),
            None => Ok(()),
        }
    }

    /// Which samples an epoch trains on. An option that the way does not have is an error.
    pub fn selection(&self) -> Result<SelectionOptions> {
        let mut selection = Selection::named(&self.selection_kind)?;
        for (option, value) in &self.selection_options {
            selection.set(option, value)?;
        }
        let epochs = (self.selection_epochs > 0).then_some(self.selection_epochs);
        let (class_floor, families, probe_share) = (self.class_floor, self.families, self.probe_share);
        Ok(SelectionOptions { selection, epochs, class_floor, families, probe_share })
    }

    /// How the loader is to work.
    pub fn loader(&self) -> LoaderOptions {
        LoaderOptions {
            shape: Shape {
                batch: self.batch,
                rank: self.rank,
                world: self.world,
                uneven: self.uneven,
                drop_last: self.drop_last,
            },
            seed: self.seed,
            shuffle: self.shuffle,
            threads: match self.threads {
                0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
                n => n as usize,
            },
            prefetch_batches: self.prefetch_batches as usize,
            reads_in_flight: self.reads_in_flight as usize,
            memory_bytes_max: self.memory_bytes_max,
            pixels_max: self.pixels_max,
            on_bad: self.on_bad,
            stall_ms_max: self.stall_ms_max,
            // Settings that could not be understood do not get past `check`.
            selection: self.selection().unwrap_or_default(),
            split: self.split,
            exchange: self.exchange(),
            steer: self.steer(),
        }
    }

    /// Which knobs may be moved.
    fn steer(&self) -> SteerOptions {
        let pins = match self.steer_pin {
            PinRule::Auto => self.by_hand,
            PinRule::None => Pins::default(),
            PinRule::All => Pins::ALL,
            PinRule::These(pins) => pins,
        };
        SteerOptions { on: self.steer_mode == SteerMode::On, pins }
    }

    /// How the store is to be reached.
    pub fn store(&self) -> StoreOptions {
        let limit = |value: u64| (value > 0).then_some(value);
        let throttle = ThrottleOptions {
            latency_ms: self.throttle_latency_ms,
            bytes_per_s: limit(self.throttle_bytes_per_s),
            requests_per_s: limit(self.throttle_requests_per_s),
            ..ThrottleOptions::default()
        };
        let slow =
            throttle.latency_ms > 0 || throttle.bytes_per_s.is_some() || throttle.requests_per_s.is_some();
        let mut retry = self.retry.clone();
        let spoiled = self.fault_share > 0.0;
        if spoiled && retry.attempt_ms_max == RetryOptions::default().attempt_ms_max {
            retry.attempt_ms_max = FAULTY_ATTEMPT_MS_MAX.min(retry.deadline_ms);
        }
        let faults = spoiled.then(|| self.faults(retry.attempt_ms_max));
        StoreOptions { retry, throttle: slow.then_some(throttle), faults, ..StoreOptions::default() }
    }

    /// A third each of errors, stalls and short bodies.
    fn faults(&self, attempt_ms_max: u64) -> FaultOptions {
        let rate = self.fault_share / 3.0;
        FaultOptions {
            seed: self.fault_seed,
            error_rate: rate,
            stall_rate: rate,
            short_rate: rate,
            // Just longer than an attempt may take: noticed, and no longer than it must be.
            stall_ms: attempt_ms_max.saturating_add(1),
        }
    }

    /// How large the cache is, or where.
    pub fn cache_size(&self) -> &CacheSize {
        &self.cache_size
    }

    /// The same with a cache of this size, if none was asked for.
    #[must_use]
    pub fn or_cache(mut self, size: CacheSize) -> Settings {
        if self.cache_size == CacheSize::Off {
            self.cache_size = size;
        }
        self
    }

    /// How a node in front of `total_bytes` of samples is to work; none without a cache in this process.
    pub fn node(&self, total_bytes: u64) -> Option<NodeOptions> {
        let memory_bytes_max = match self.cache_size {
            CacheSize::Off | CacheSize::Shared(_) => return None,
            CacheSize::Share(share) => (total_bytes as f64 * share) as u64,
            CacheSize::Bytes(bytes) => bytes,
        };
        Some(NodeOptions {
            policy: self.cache_policy,
            memory_bytes_max,
            disk: self.cache_disk.as_ref().map(|place| DiskOptions {
                folder: place.folder.clone(),
                bytes_max: place.bytes_max,
                queue_bytes_max: DISK_QUEUE_BYTES_MAX.min(place.bytes_max),
            }),
            prefetch_bytes_max: self.cache_prefetch_bytes_max.min(memory_bytes_max / 2),
            gap_bytes_max: self.cache_gap_bytes_max,
            stand_ins: self.cache_stand_ins,
            hot_share: self.cache_hot_share,
            seed: self.seed,
        })
    }

    /// Where a server listens and what its limits are.
    pub fn serve(&self) -> ServeOptions {
        self.serve.clone()
    }

    /// Where a page is shown, and what it may take.
    pub fn page(&self) -> &PageOptions {
        &self.page
    }

    /// The name under which a data set is served; "" to take it from the source.
    pub fn serve_name(&self) -> &str {
        &self.serve_name
    }

    /// The token, if there is one: of the file that is set, or of `GRISTMILL_TOKEN`.
    pub fn token(&self) -> Result<Option<Token>> {
        let file = Some(Path::new(&self.token_file)).filter(|path| !path.as_os_str().is_empty());
        Token::load(file)
    }

    /// The nodes beside this one, if there are any.
    pub fn peers(&self, digest: Digest) -> Result<Option<Peers>> {
        let options = ClientOptions { digest: Some(digest), ..self.client()? };
        Peers::new(&self.peers, &self.advertise, &options)
    }

    /// How another node is reached.
    pub fn client(&self) -> Result<ClientOptions> {
        let tls_ca = (!self.tls_ca.is_empty()).then(|| PathBuf::from(&self.tls_ca));
        let lane_bytes = self.lane_bytes as u32;
        Ok(ClientOptions { token: self.token()?, tls_ca, lane_bytes, ..ClientOptions::default() })
    }

    /// The recipe: a preset's name or a file.
    pub fn recipe(&self) -> &str {
        &self.recipe
    }

    /// How many bytes of containers may be held in memory: none where a cache or a rank's slice decides what is.
    pub fn resident_bytes_max(&self) -> u64 {
        let whole = self.cache_size == CacheSize::Off && self.exchange_fraction.is_none();
        if whole { self.memory_bytes_max / 2 } else { 0 }
    }

    /// How ranks exchange; none if each may have any sample.
    pub fn exchange(&self) -> Option<ExchangeSettings> {
        self.exchange_fraction.map(|fraction| ExchangeSettings { fraction, ..self.exchange.clone() })
    }

    /// Where catalogs are kept that were not given a place.
    pub fn catalog_folder(&self) -> Result<PathBuf> {
        if !self.catalog_folder.is_empty() {
            return Ok(PathBuf::from(&self.catalog_folder));
        }
        let home = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = home("XDG_CACHE_HOME").or_else(|| home("HOME").map(|home| home.join(".cache")));
        base.map(|base| base.join("gristmill")).ok_or_else(|| {
            Error::new(Kind::Config, "there is no home folder to keep catalogs in")
                .hint("set catalog.folder (GRISTMILL_CATALOG_FOLDER)")
        })
    }
}

#[cfg(test)]
mod tests;
