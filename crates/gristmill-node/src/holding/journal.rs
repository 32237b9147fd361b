//! What a slice says about itself: of which data set and run it is, and up to which epoch all ranks have committed.
//!
//! `slice.json` is replaced by renaming a finished, synced file over it. Who holds what lies beside it, one file per epoch
//! (`owners-000007`, checksummed): that of the next epoch is written before the ranks commit, so that a rank which
//! died between the commit of others and its own finds it there.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

const NAME: &str = "slice.json";
const OWNERS: &str = "owners-";
/// The largest journal that is read.
const BYTES_MAX: u64 = 64 << 10;
/// The largest list of owners: four bytes for each of as many samples as there can be, and some words around them.
const OWNERS_BYTES_MAX: u64 = (1 << 34) + (1 << 20);

/// The content of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    /// The version of this format.
    pub version: u32,
    /// The data set.
    pub digest: String,
    /// What names the run: seed, world, and how the ranks exchange.
    pub run: String,
    /// Which rank's slice this is.
    pub rank: u32,
    /// The first epoch whose exchange is not committed.
    pub epoch: u64,
    /// The share that is swapped in it.
    pub fraction: f64,
    /// What names who holds what when it begins.
    pub owners: String,
}

impl Journal {
    /// The version of the format that this program writes.
    pub const VERSION: u32 = 1;

    /// The journal in a folder; nothing if there is none that can be understood.
    pub(super) fn read(folder: &Path) -> Option<Journal> {
        let bytes = read_up_to(&folder.join(NAME), BYTES_MAX)?;
        let journal: Journal = serde_json::from_slice(&bytes).ok()?;
        (journal.version == Journal::VERSION).then_some(journal)
    }

    /// Replaces the journal; it is durable when this returns.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let failed = |e| Error::io("write the journal of", folder.display(), e);
        let text = serde_json::to_vec_pretty(self).map_err(|e| failed(e.into()))?;
        replace(&folder.join(NAME), &[&text], true)
            .and_then(|()| File::open(folder)?.sync_all())
            .map_err(failed)
    }
}

/// Writes the owners of an epoch, with their checksum in front.
pub(super) fn write_owners(folder: &Path, epoch: u64, owners: &[u8]) -> Result<()> {
    let path = owners_path(folder, epoch);
    let sum = xxh3_64(owners).to_le_bytes();
    replace(&path, &[&sum, owners], false).map_err(|e| Error::io("write", path.display(), e))
}

/// Reads them; nothing if they are not there or not whole.
pub(super) fn read_owners(folder: &Path, epoch: u64) -> Option<Vec<u8>> {
    let mut bytes = read_up_to(&owners_path(folder, epoch), OWNERS_BYTES_MAX)?;
    let sum = u64::from_le_bytes(*bytes.first_chunk()?);
    bytes.drain(..8);
    (xxh3_64(&bytes) == sum).then_some(bytes)
}

/// The epochs of which owners are kept.
pub(super) fn owners_kept(folder: &Path) -> Vec<u64> {
    let names = fs::read_dir(folder).into_iter().flatten();
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix(OWNERS)?.parse().ok()).collect()
}

/// Deletes those of all epochs but one; what cannot be deleted is replaced later.
pub(super) fn forget_owners(folder: &Path, but: u64) {
    for epoch in owners_kept(folder).into_iter().filter(|epoch| *epoch != but) {
        let _ = fs::remove_file(owners_path(folder, epoch));
    }
}

fn owners_path(folder: &Path, epoch: u64) -> PathBuf {
    folder.join(format!("{OWNERS}{epoch:06}"))
}

fn replace(path: &Path, parts: &[&[u8]], sync: bool) -> std::io::Result<()> {
    let part = path.with_extension("part");
    let mut file = File::create(&part)?;
    for bytes in parts {
        file.write_all(bytes)?;
    }
    if sync {
        file.sync_all()?;
    }
    fs::rename(&part, path)
}

fn read_up_to(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let size = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
    let mut bytes = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes).ok()?;
    (size <= bytes_max && read as u64 <= bytes_max).then_some(bytes)
}
