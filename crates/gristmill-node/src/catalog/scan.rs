//! What all builders need of a store: listing, reading and hashing, with progress and a way to stop.
//!
//! Public calls block; inside, one small runtime on the calling thread keeps many requests in flight, because an
//! object store answers a thousand questions at once in the time of ten one after the other. Stores that answer
//! at once are simply asked in turn.

use crate::store::{ObjectInfo, Store};
use crate::{Error, Kind, Result};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

/// Requests kept in flight to stores that do not answer at once.
const IN_FLIGHT: usize = 64;
/// Objects read in full at the same time; each holds one chunk.
const READS_IN_FLIGHT: usize = 16;
/// Bytes read at once from a large object.
const CHUNK_BYTES: u64 = 4 << 20;
/// Above this many objects one listing is cheaper than asking for each.
const STATS_MAX: usize = 1_000;
/// How often progress is told, in objects.
const TELL_EVERY: u64 = 64;

/// What the work is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Listing the objects of the source; counts objects.
    List,
    /// Asking for size and version of objects; counts objects.
    Stat,
    /// Reading headers, labels and members; counts objects.
    Read,
    /// Reading and hashing contents; counts bytes.
    Hash,
}

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What it is busy with.
    pub step: Step,
    /// How much of this step is done.
    pub done: u64,
    /// How much there is to do, when known.
    pub total: Option<u64>,
}

/// Is told the progress now and then, and may break the work off.
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + Send + 'a;

/// The hash kept for an object's content; never 0.
pub(super) fn content_hash(bytes: &[u8]) -> u64 {
    xxh3_64(bytes).max(1)
}

/// Runs the future that `work` makes to its end on this thread, or on one of its own inside of a runtime.
pub(super) fn run<T: Send, F: Future<Output = Result<T>>>(work: impl FnOnce() -> F + Send) -> Result<T> {
    let drive = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|e| Error::io("start", "a runtime", e))?.block_on(work())
    };
    if tokio::runtime::Handle::try_current().is_err() {
        return drive();
    }
    std::thread::scope(|scope| match scope.spawn(drive).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// A store, its name and the progress of one piece of work.
pub(super) struct Scan<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) url: &'a str,
    progress: Mutex<&'a mut OnProgress<'a>>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(store: &'a dyn Store, url: &'a str, progress: &'a mut OnProgress<'_>) -> Scan<'a> {
        Scan { store, url, progress: Mutex::new(progress) }
    }

    /// Tells the progress; an error when the work is to stop.
    pub(super) fn tell(&self, step: Step, done: u64, total: Option<u64>) -> Result<()> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        match (*progress)(Progress { step, done, total }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::new(Kind::Stopped, "stopped before it was done")),
        }
    }

    /// The full name of an object, for messages.
    pub(super) fn shown(&self, object: &str) -> String {
        format!("{}/{object}", self.url.trim_end_matches('/'))
    }

    pub(super) fn in_flight(&self, most: usize) -> usize {
        if self.store.immediate() { 1 } else { most }
    }

    /// All objects below the folder `prefix` in the order of their names; hidden ones are left out.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>> {
        let mut listing = Vec::new();
        let mut seen = 0;
        let mut visit = |object: ObjectInfo| {
            seen += 1;
            if seen % TELL_EVERY == 0 {
                self.tell(Step::List, seen, None)?;
            }
            if !object.path.split('/').any(|part| part.starts_with('.')) {
                listing.push(object);
            }
            Ok(())
        };
        self.store.list(prefix, &mut visit).await?;
        self.tell(Step::List, seen, Some(seen))?;
        listing.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }

    /// Size and version of each of `names`, or `None` for those that are not there.
    pub(super) async fn stat_all(&self, folder: &str, names: &[&str]) -> Result<Vec<Option<ObjectInfo>>> {
        if names.len() > STATS_MAX && !self.store.immediate() {
            // A store that cannot list (plain HTTP) can still be asked for each.
            match self.list(folder).await {
                Ok(listing) => return Ok(names.iter().map(|name| find(&listing, name).cloned()).collect()),
                Err(error) if error.kind() == Kind::Stopped => return Err(error),
                Err(_) => {}
            }
        }
        let total = names.len() as u64;
        let mut all = Vec::with_capacity(names.len());
        let mut answers = stream::iter(names)
            .map(async |name| match self.store.stat(name).await {
                Ok(info) => Ok(Some(info)),
                Err(error) if error.kind() == Kind::NotFound => Ok(None),
                Err(error) => Err(error),
            })
            .buffered(self.in_flight(IN_FLIGHT));
        while let Some(answer) = answers.next().await {
            all.push(answer?);
            if (all.len() as u64).is_multiple_of(TELL_EVERY) {
                self.tell(Step::Stat, all.len() as u64, Some(total))?;
            }
        }
        Ok(all)
    }

    /// The whole of an object that may have at most `bytes_max`.
    pub(super) async fn read_whole(&self, object: &ObjectInfo, bytes_max: u64) -> Result<Bytes> {
        if object.bytes > bytes_max {
            let (name, bytes) = (self.shown(&object.path), object.bytes);
            return Err(Error::config(format!(
                "{name} has {bytes} bytes; at most {bytes_max} are possible here"
            )));
        }
        self.store.read(&object.path, 0..object.bytes).await
    }

    /// Shows an object's content to `see` chunk by chunk and gives its hash.
    pub(super) async fn read_through(
        &self,
        name: &str,
        bytes: u64,
        mut see: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let mut hash = Xxh3Default::new();
        let mut at = 0;
        while at < bytes {
            let end = bytes.min(at + CHUNK_BYTES);
            let chunk = self.store.read(name, at..end).await?;
            hash.update(&chunk);
            see(&chunk)?;
            at = end;
        }
        Ok(hash.digest().max(1))
    }

    /// The content hash of every object, given by name and size.
    pub(super) async fn hash_all(&self, objects: &[(&str, u64)]) -> Result<Vec<u64>> {
        let total: u64 = objects.iter().map(|object| object.1).sum();
        let (done, told) = (Cell::new(0), Cell::new(0));
        let seen = |chunk: &[u8]| {
            done.set(done.get() + chunk.len() as u64);
            if done.get() - told.get() < 1 << 20 {
                return Ok(());
            }
            told.set(done.get());
            self.tell(Step::Hash, done.get(), Some(total))
        };
        let hashes = stream::iter(objects)
            .map(async |&(name, bytes)| self.read_through(name, bytes, &seen).await)
            .buffered(self.in_flight(READS_IN_FLIGHT))
            .try_collect()
            .await?;
        Ok(hashes)
    }
}

/// The object called `name` in a sorted listing.
pub(super) fn find<'l>(listing: &'l [ObjectInfo], name: &str) -> Option<&'l ObjectInfo> {
    listing.binary_search_by(|object| object.path.as_str().cmp(name)).ok().map(|at| &listing[at])
}

/// The last part of a name.
pub(super) fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The folder a name lies in, "" for the root.
pub(super) fn folder(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |parts| parts.0)
}

/// `name` inside of `folder`.
pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_string() } else { format!("{folder}/{name}") }
}

/// Whether a name ends as a picture that can be decoded does.
pub(super) fn is_picture(name: &str) -> bool {
    matches!(extension(name).as_str(), "jpg" | "jpeg" | "png")
}

/// The ending of a name in lower case, without its dot.
pub(super) fn extension(name: &str) -> String {
    base(name).rsplit_once('.').map_or(String::new(), |parts| parts.1.to_ascii_lowercase())
}
