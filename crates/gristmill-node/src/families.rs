//! The families of a data set: found by hashing every sample once, kept beside its catalog.
//!
//! [`build`] reads all samples through a loader of raw bytes (so throttling, retries, reads in flight and limits on
//! memory are those of any epoch) and hashes them on as many threads as the loader has. What takes long is the
//! reading, so the hashes are kept with the families: another radius needs no second reading.
//!
//! The file is bound to the digest of the catalog; one that does not fit, or is damaged, is simply made again. A
//! sample that cannot be read or decoded has no relatives and is counted.
//!
//! Deliberately not here: the grouping itself (`core::family`), and what is done with families.

mod file;

use crate::catalog::{Catalog, Digest};
use crate::dataset::DataSet;
use crate::loader::{BadSample, Batch, Data, Loader, LoaderOptions, OnBad, Polled};
use crate::selection::SelectionOptions;
use crate::split::SplitOptions;
use crate::{Error, Kind, Result};
use gristmill_core::family::{Families, NO_HASH, RADIUS_MAX, radius_for};
use gristmill_core::plan::Shape;
use gristmill_ops::{Encoding, Hasher, Limits};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Samples that are handed to a thread at once.
const BATCH: u32 = 64;
/// The most bad samples that are kept by name; the rest is counted.
const BAD_KEPT_MAX: usize = 1_000;
/// How long a wait for bytes lasts before progress and stop are looked at.
const SLICE: Duration = Duration::from_millis(50);

/// What counts as a family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FamilyOptions {
    /// Bits in which the hashes of relatives may differ; `None` chooses by the size of the pictures and by how many
    /// are grouped.
    pub radius: Option<u32>,
    /// Whether samples of different labels may be relatives.
    pub cross_label: bool,
}

/// The families of a data set and what they were made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilySet {
    /// The families.
    pub families: Families,
    /// The hash of each sample.
    pub hashes: Vec<u64>,
    /// How many samples could not be hashed.
    pub bad: u32,
    /// How they were asked for.
    options: FamilyOptions,
    /// The radius to begin with for pictures of this size.
    radius_max: u32,
    digest: Digest,
}

/// How far the hashing is: samples done, of how many, and how many of them are bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashing {
    /// Samples done.
    pub done: u64,
    /// Samples there are.
    pub total: u64,
    /// Bad ones among those done.
    pub bad: u64,
}

/// Where the families of a catalog file are kept.
pub fn kept_path(catalog: &Path) -> PathBuf {
    catalog.with_extension("families")
}

/// The families kept at `path` if they are this catalog's; with other options they are grouped again from the kept
/// hashes. `None` if there are none that can be used.
pub fn open(path: &Path, catalog: &Catalog, options: FamilyOptions) -> Result<Option<FamilySet>> {
    check(options)?;
    let Some(kept) = file::read(path, catalog.digest(), catalog.len()) else { return Ok(None) };
    if kept.options == options {
        return Ok(Some(kept));
    }
    FamilySet::group(catalog, kept.hashes, kept.radius_max, options).map(Some)
}

/// The families kept at `path`, or new ones, which are then kept there.
pub fn open_or_build(
    path: &Path,
    set: &Arc<DataSet>,
    options: FamilyOptions,
    loader: &LoaderOptions,
    progress: &mut dyn FnMut(Hashing) -> bool,
) -> Result<FamilySet> {
    if let Some(kept) = open(path, set.catalog(), options)? {
        return Ok(kept);
    }
    let (built, _) = build(set, options, loader, progress)?;
    built.keep(path)?;
    Ok(built)
}

/// Hashes every sample of `set` and groups them; also the first bad samples. `progress` is told now and then how far
/// it is, and says whether to go on.
pub fn build(
    set: &Arc<DataSet>,
    options: FamilyOptions,
    loader: &LoaderOptions,
    progress: &mut dyn FnMut(Hashing) -> bool,
) -> Result<(FamilySet, Vec<BadSample>)> {
    check(options)?;
    let limits = Limits {
        pixels_max: loader.pixels_max,
        scratch_bytes_max: (loader.memory_bytes_max / 4 / loader.threads.max(1) as u64) as usize,
    };
    let found = Mutex::new(Found { hashes: vec![NO_HASH; set.catalog().len() as usize], ..Found::default() });
    let encoding = set.catalog().encoding();
    let whole = LoaderOptions {
        shape: Shape::single(BATCH),
        shuffle: false,
        on_bad: OnBad::Skip,
        selection: SelectionOptions::default(),
        split: SplitOptions::default(),
        exchange: None,
        steer: crate::steer::SteerOptions::default(),
        memory_bytes_max: loader.memory_bytes_max / 4 * 3,
        ..loader.clone()
    };
    let reader = Loader::new(set.clone(), None, whole)?;
    let (give, take) = sync_channel(loader.threads);
    let take = Mutex::new(take);
    std::thread::scope(|scope| {
        let hashing: Vec<_> =
            (0..loader.threads).map(|_| scope.spawn(|| hash_all(&take, &found, encoding, limits))).collect();
        // Before everything is read a thread ends only by a panic, which the scope passes on.
        let lost = || hashing.iter().any(std::thread::ScopedJoinHandle::is_finished);
        read_all(&reader, give, &found, &lost, progress)
    })?;
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let radius_max = found.radius_max();
    let built = FamilySet::group(set.catalog(), found.hashes, radius_max, options)?;
    Ok((built, found.bad_first))
}

impl FamilySet {
    fn group(
        catalog: &Catalog,
        hashes: Vec<u64>,
        radius_max: u32,
        options: FamilyOptions,
    ) -> Result<FamilySet> {
        let labels = catalog.labels()?;
        let families = match options.radius {
            Some(radius) => Families::group(&hashes, labels, radius, options.cross_label)?,
            None => Families::calibrated(&hashes, labels, radius_max, options.cross_label)?,
        };
        let bad = hashes.iter().filter(|hash| **hash == NO_HASH).count() as u32;
        Ok(FamilySet { families, hashes, bad, options, radius_max, digest: catalog.digest() })
    }

    /// Writes them to `path`, replacing what is there.
    pub fn keep(&self, path: &Path) -> Result<()> {
        file::write(path, self)
    }

    /// In how many bits the hash of a sample differs from its leader's.
    pub fn distance(&self, id: u32) -> u32 {
        let hash = |id: u32| self.hashes.get(id as usize).copied().unwrap_or(NO_HASH);
        (hash(id) ^ hash(self.families.leader(id))).count_ones()
    }
}

fn check(options: FamilyOptions) -> Result<()> {
    match options.radius {
        Some(radius) if radius > RADIUS_MAX => {
            Err(Error::config(format!("a radius of {radius} bits is over the limit of {RADIUS_MAX}"))
                .hint("2 suits pictures of 32 x 32 pixels and below, 4 larger ones"))
        }
        _ => Ok(()),
    }
}

/// What the threads found so far.
#[derive(Debug, Default)]
struct Found {
    hashes: Vec<u64>,
    done: u64,
    bad: u64,
    bad_first: Vec<BadSample>,
    /// How many pictures begin with which radius.
    radii: [u64; RADIUS_MAX as usize + 1],
}

impl Found {
    fn push_bad(&mut self, bad: BadSample) {
        self.bad += 1;
        if self.bad_first.len() < BAD_KEPT_MAX {
            self.bad_first.push(bad);
        }
    }

    /// The radius of the picture of middle size.
    fn radius_max(&self) -> u32 {
        let middle = self.radii.iter().sum::<u64>().div_ceil(2);
        let mut below = 0;
        let radius = self.radii.iter().position(|count| {
            below += count;
            below >= middle
        });
        radius.unwrap_or(0) as u32
    }
}

/// Hands all samples to the threads that hash, and looks at progress meanwhile.
fn read_all(
    reader: &Loader,
    give: SyncSender<Box<Batch>>,
    found: &Mutex<Found>,
    lost: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Hashing) -> bool,
) -> Result<()> {
    let total = reader.set().catalog().len().into();
    let mut epoch = reader.epoch(0, 0)?.with_empty_batches();
    let stall = Duration::from_millis(reader.options().stall_ms_max);
    let mut since = Instant::now();
    let mut tell = || {
        let (done, bad) = {
            let found = found.lock().unwrap_or_else(PoisonError::into_inner);
            (found.done, found.bad)
        };
        if progress(Hashing { done, total, bad }) {
            Ok(())
        } else {
            Err(Error::new(Kind::Stopped, "stopped while hashing samples"))
        }
    };
    loop {
        let mut next = match epoch.poll(SLICE)? {
            Polled::Batch(batch) => batch,
            Polled::Done => break,
            Polled::Pending if since.elapsed() > stall => return Err(epoch.stalled()),
            Polled::Pending => {
                tell()?;
                continue;
            }
        };
        while let Err(refused) = give.try_send(next) {
            let (TrySendError::Full(batch) | TrySendError::Disconnected(batch)) = refused;
            next = batch;
            if lost() {
                return Err(Error::new(Kind::Stopped, "a thread that hashes samples was lost"));
            }
            tell()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        since = Instant::now();
    }
    drop(give);
    Ok(())
}

/// Hashes what comes until nothing more comes.
fn hash_all(take: &Mutex<Receiver<Box<Batch>>>, found: &Mutex<Found>, encoding: Encoding, limits: Limits) {
    let mut hasher = Hasher::new();
    let mut results = Vec::new();
    loop {
        let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(batch) = next else { return };
        let Data::Raw(samples) = &batch.data else { return };
        results.extend(samples.iter().map(|bytes| hasher.hash(encoding, bytes, limits)));
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        for (&id, result) in batch.ids.iter().zip(results.drain(..)) {
            match result {
                Ok(picture) => {
                    found.hashes[id as usize] = picture.bits;
                    found.radii[radius_for(picture.width.min(picture.height)) as usize] += 1;
                }
                Err(error) => {
                    let reason = format!("sample {id}: {error}");
                    found.push_bad(BadSample { id: gristmill_core::SampleId(id), reason });
                }
            }
        }
        found.done += (batch.ids.len() + batch.skipped.len()) as u64;
        batch.skipped.iter().for_each(|bad| found.push_bad(bad.clone()));
    }
}
