//! Where raw bytes rest, as one trait that files, memory, object stores and their wrappers obey.
//!
//! A store knows *objects*: named runs of bytes below one root, which is a folder, a bucket with a prefix, or a
//! map in memory. It gives exactly the bytes that were asked for, or an error; a short body is an error, never a
//! short answer. Samples inside tar shards or container files are ranges of objects, so they need no store of
//! their own. Every store and wrapper passes the same conformance suite.
//!
//! Deliberately not here: sample ids (the catalog maps them to ranges), caching, and writing.

mod local;
mod memory;

pub use local::LocalStore;
pub use memory::MemoryStore;

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

/// The error of a name that could leave the store's root.
pub(crate) fn wrong_name(store: &dyn Store, object: &str) -> Error {
    Error::config(format!("{object:?} is not the name of an object below {}", store.url()))
        .hint("names have no empty part, no . and no ..")
}
