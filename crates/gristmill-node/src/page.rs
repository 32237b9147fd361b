//! The page of a training run or a node: what is decided and measured, and the data itself, in a browser.
//!
//! A [`Page`] is told what happens ([`Page::began`], [`Page::learned`], [`Page::live`], [`Page::epoch`], [`Page::decided`],
//! [`Page::node`]) and keeps a bounded part of it. [`Page::serve`] shows it on a loopback address; [`Page::html`] is the
//! same as one file with everything in it. Telling is cheap and never fails: a page is no reason for a training to stop
//! or to slow down, so nothing here returns an error to the one who tells.
//!
//! Whoever can open the page sees the training data, and there is no password. So it listens on loopback only, and
//! answers only browsers that asked for this machine by name (another site's script could otherwise be pointed here).
//!
//! Deliberately not here: any decision, and anything that changes the run. The page can only be looked at.

mod document;
mod history;
mod http;
pub mod markup;
pub(crate) mod metrics;
mod pictures;
mod samples;
mod state;

pub use crate::steer::Decision;
pub use http::Listening;
pub use state::{Outcome, Progress};

use crate::config::{Config, Origin};
use crate::dataset::DataSet;
use crate::loader::Epoch;
use crate::report::EpochReport;
use crate::serve::ServerReport;
use crate::{Error, Result};
use gristmill_core::family::Families;
use history::History;
use pictures::Pictures;
use serde::Serialize;
use state::State;
use std::fs::OpenOptions;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Where a page listens when it is asked for without an address.
pub const LISTEN: &str = "127.0.0.1:7078";
/// How often a running epoch is looked at; batches may be far more frequent.
const LIVE_EVERY: Duration = Duration::from_millis(250);
/// A browser that asked this recently is looking, and will ask again.
const LOOKING: Duration = Duration::from_secs(3);
/// How long the end is held up for it.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// How a page works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageOptions {
    /// Address and port; empty for no page.
    pub listen: String,
    /// Memory for what is kept per sample: skips, last scores, their history.
    pub memory_bytes_max: u64,
}

impl Default for PageOptions {
    fn default() -> PageOptions {
        PageOptions { listen: String::new(), memory_bytes_max: 64 << 20 }
    }
}

/// What does not change while the page is shown.
#[derive(Debug, Clone, Serialize)]
struct Facts {
    /// Tells a page from the one that was at this address before.
    boot: String,
    version: &'static str,
    source: String,
    samples: u32,
    bytes: u64,
    classes: usize,
    /// One in how many samples is followed.
    stride: u32,
    /// How many epochs a sample's history has.
    depth: usize,
    settings: Vec<(String, String)>,
}

/// What all who tell and all who look share.
#[derive(Debug)]
struct Shared {
    set: Arc<DataSet>,
    facts: Facts,
    state: Mutex<State>,
    history: Mutex<History>,
    families: OnceLock<samples::Shown>,
    pictures: Pictures,
    /// When a running epoch was last looked at.
    looked: Mutex<Option<Instant>>,
    server: Mutex<Option<ServerReport>>,
    /// When a browser last asked for news, and the last change that one was told.
    asked: Mutex<(Option<Instant>, u64)>,
}

/// The page of a run or a node.
#[derive(Debug, Clone)]
pub struct Page(Arc<Shared>);

impl Page {
    /// A page about a run or a node that reads `set`; `settings` are shown as they are.
    pub fn new(
        set: Arc<DataSet>,
        options: &PageOptions,
        pixels_max: u64,
        settings: Vec<(String, String)>,
    ) -> Result<Page> {
        let catalog = set.catalog();
        let history = History::new(catalog.len(), options.memory_bytes_max);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let source = match catalog.source_object() {
            Some(object) => format!("{}/{object}", catalog.source().trim_end_matches('/')),
            None => catalog.source().to_string(),
        };
        let facts = Facts {
            boot: format!("{:x}-{:x}", std::process::id(), since.as_nanos() as u64),
            version: env!("CARGO_PKG_VERSION"),
            source,
            samples: catalog.len(),
            bytes: catalog.total_bytes()?,
            classes: catalog.classes().len(),
            stride: history.stride(),
            depth: history.depth(),
            settings,
        };
        Ok(Page(Arc::new(Shared {
            set,
            facts,
            state: Mutex::default(),
            history: Mutex::new(history),
            families: OnceLock::new(),
            pictures: Pictures::new(pixels_max),
            looked: Mutex::default(),
            server: Mutex::default(),
            asked: Mutex::default(),
        })))
    }

    /// Notes which samples an epoch has, and which relatives stand in for others.
    pub fn began(&self, epoch: &Epoch) {
        let report = epoch.report();
        for decision in &report.decisions {
            // What came of a move belongs to the move.
            self.decided(&Decision { epoch: decision.since, ..decision.clone() });
        }
        let number = report.epoch;
        lock(&self.0.history).begin(number, epoch.plan().order(), epoch.stand_ins());
        *lock(&self.0.looked) = None;
    }

    /// Notes what the model made of some samples.
    pub fn learned(&self, ids: &[u32], losses: &[f32]) {
        lock(&self.0.history).learned(ids, losses);
    }

    /// Notes how the running epoch goes; most calls return at once.
    pub fn live(&self, progress: &Progress, report: &EpochReport) {
        let mut looked = lock(&self.0.looked);
        if looked.is_some_and(|at| at.elapsed() < LIVE_EVERY) {
            return;
        }
        *looked = Some(Instant::now());
        lock(&self.0.state).live(progress, report);
    }

    /// Notes what an epoch came to.
    pub fn epoch(&self, report: &EpochReport, outcome: &Outcome) {
        lock(&self.0.state).epoch(report, outcome);
    }

    /// Notes a decision of the steering; one of the same epoch and knob is replaced, once its effect is measured.
    pub fn decided(&self, decision: &Decision) {
        lock(&self.0.state).decided(decision);
    }

    /// Notes the near-duplicates, once.
    pub fn families(&self, families: &Families) {
        if self.0.families.set(samples::Shown::new(families)).is_ok() {
            lock(&self.0.state).changed();
        }
    }

    /// Notes what a node did so far.
    pub fn node(&self, report: ServerReport) {
        lock(&self.0.state).node(&report);
        *lock(&self.0.server) = Some(report);
    }

    /// Notes that the run is over.
    pub fn ended(&self) {
        lock(&self.0.state).ended();
    }

    /// Waits until a browser that is looking has seen the end, for two seconds at most.
    pub fn linger(&self) {
        let (begun, last) = (Instant::now(), lock(&self.0.state).change());
        let watched = || {
            let (asked, told) = *lock(&self.0.asked);
            asked.is_some_and(|at| at.elapsed() < LOOKING) && told < last
        };
        while watched() && begun.elapsed() < LINGER_MAX {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Shows the page on a loopback address until the answer is dropped.
    pub fn serve(&self, address: &str) -> Result<Listening> {
        http::serve(&self.0, loopback(address)?)
    }

    /// The page as one file with everything in it. Reads the samples that it shows.
    pub fn html(&self) -> Result<String> {
        document::saved(&self.0)
    }
}

/// Settings that a page always shows; others when somebody set them.
const SHOWN: [&str; 6] =
    ["selection.kind", "selection.families", "cache.size", "split.policy", "loader.batch", "loader.seed"];

/// The settings that a page shows: those that matter most, and those that somebody set.
pub fn shown(config: &Config) -> Vec<(String, String)> {
    let rows = config.rows();
    let told = rows.filter(|(key, _, origin)| SHOWN.contains(&key.name) || **origin != Origin::Default);
    let named = told.map(|(key, value, _)| (key.name.to_string(), value));
    named.filter(|(_, value)| !value.is_empty()).collect()
}

/// Whether a page can be written to a file, before hours are spent on what goes into it.
pub fn check_file(path: &Path) -> Result<()> {
    let existed = path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|e| Error::io("write the report", path.display(), e))?;
    if !existed {
        // What was not there before is not left behind empty.
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// The address of a page, if only this machine can reach it.
pub fn loopback(address: &str) -> Result<SocketAddr> {
    let unclear = |why: String| {
        Error::config(format!("page.listen = {address:?} is not an address and a port: {why}"))
            .hint(format!("write {LISTEN}, or a name and a port"))
    };
    let mut found = address.to_socket_addrs().map_err(|e| unclear(e.to_string()))?;
    let at = found.next().ok_or_else(|| unclear("nothing has that name".into()))?;
    if !at.ip().to_canonical().is_loopback() {
        return Err(Error::config(format!(
            "will not show the page on {address}, where others could look at the data"
        ))
        .hint("listen on 127.0.0.1 and come in through ssh -L 7078:127.0.0.1:7078 HOST"));
    }
    Ok(at)
}

/// What is behind a lock is only ever replaced whole or added to, so a poisoned one is sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
