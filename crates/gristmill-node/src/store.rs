//! Where raw bytes rest, as one trait that files, memory, object stores and their wrappers obey.
//!
//! A store knows *objects*: named runs of bytes below one root, which is a folder, a bucket with a prefix, or a
//! map in memory. It gives exactly the bytes that were asked for, or an error; a short body is an error, never a
//! short answer. Samples inside tar shards or container files are ranges of objects, so they need no store of
//! their own. Every store and wrapper passes the same conformance suite. [`open`] turns a URL into a store and
//! wraps it: faults below (for tests), then a throttle (for demos), then the one place that retries.
//!
//! Deliberately not here: sample ids (the catalog maps them to ranges), caching, and writing.

mod faulty;
mod local;
mod memory;
mod node;
mod object;
mod open;
mod retry;
mod throttled;

pub use faulty::{FaultCounts, FaultOptions, Faulty};
pub use local::LocalStore;
pub use memory::MemoryStore;
pub(crate) use node::NodeStore;
pub use object::ObjectStore;
pub use open::{StoreOptions, open, split};
pub use retry::{RetryCounts, RetryOptions, Retrying};
pub use throttled::{Clock, ThrottleOptions, Throttled, VirtualClock};

use crate::{Error, Result};
use bytes::Bytes;
use futures::future::BoxFuture;
use std::fmt::Debug;
use std::ops::Range;

/// What a store says about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Name below the store's root, with `/` between its parts and none in front.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// Changes when the object's content may have changed: a modification time or a hash of an entity tag.
    pub version: u64,
}

/// Read access to objects below one root.
pub trait Store: Debug + Send + Sync {
    /// The root as a URL fit for messages: no secret in it.
    fn url(&self) -> String;

    /// Exactly the bytes `range` of `object`. Anything shorter is an error.
    fn read<'a>(&'a self, object: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes>>;

    /// Size and version of `object`.
    fn stat<'a>(&'a self, object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>>;

    /// Shows every object whose name begins with the folder `prefix` ("" for all) to `visit`, in no set order.
    /// An error from `visit` ends the listing and is returned.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>>;

    /// Whether reads finish on the calling thread without a reactor (files and memory). The loader's threads then
    /// read for themselves; otherwise many reads are kept in flight for them.
    fn immediate(&self) -> bool;

    /// How many attempts were made again, by this store and those it wraps.
    fn retries(&self) -> u64;

    /// How many faults were put in on purpose, by this store and those it wraps.
    fn faults(&self) -> u64;
}

/// The error of a read that lies outside of its object: the data changed after it was catalogued.
pub(crate) fn read_outside(store: &dyn Store, object: &str, range: &Range<u64>, size: u64) -> Error {
    let Range { start, end } = range;
    Error::corrupt(format!(
        "{}/{object} has {size} bytes, but bytes {start} to {end} were asked for",
        store.url()
    ))
    .hint("the data changed after it was catalogued; run `gristmill catalog build` again")
}

/// Refuses a name that could leave the store's root, or that two stores would read in two ways.
pub(crate) fn check_name(store: &dyn Store, object: &str) -> Result<()> {
    if object.split('/').any(|part| part.is_empty() || part == "." || part == "..") || object.contains('\0') {
        let message = format!("{object:?} is not the name of an object below {}", store.url());
        return Err(Error::config(message).hint("names have no empty part, no . and no .."));
    }
    Ok(())
}

/// As [`check_name`], for the folder of a listing, where "" means all.
pub(crate) fn check_folder(store: &dyn Store, prefix: &str) -> Result<()> {
    if prefix.is_empty() { Ok(()) } else { check_name(store, prefix) }
}

/// Whether the object `name` lies in the folder `prefix`: "a" holds "a/x" but neither "ab/x" nor "a".
pub(crate) fn in_folder(name: &str, prefix: &str) -> bool {
    prefix.is_empty() || name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}
