//! Objects in memory: for tests, for demos, and for data that a program makes itself.

use super::{ObjectInfo, Store, check_folder, check_name, in_folder, read_outside};
use crate::{Error, Kind, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::ops::Range;

/// Named runs of bytes in memory; reading one copies nothing.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    objects: BTreeMap<String, Bytes>,
}

impl MemoryStore {
    /// An object for every pair of name and content.
    pub fn new<N: Into<String>, B: Into<Bytes>>(objects: impl IntoIterator<Item = (N, B)>) -> MemoryStore {
        let objects = objects.into_iter().map(|(name, bytes)| (name.into(), bytes.into())).collect();
        MemoryStore { objects }
    }

    fn object(&self, object: &str) -> Result<&Bytes> {
        check_name(self, object)?;
        self.objects.get(object).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("cannot read {}/{object}: no such object", self.url()))
        })
    }

    fn info(&self, object: &str) -> Result<ObjectInfo> {
        let bytes = self.object(object)?;
        let version = xxhash_rust::xxh3::xxh3_64(bytes);
        Ok(ObjectInfo { path: object.to_string(), bytes: bytes.len() as u64, version })
    }

    fn read_now(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        let bytes = self.object(object)?;
        if range.end > bytes.len() as u64 || range.start > range.end {
            return Err(read_outside(self, object, &range, bytes.len() as u64));
        }
        Ok(bytes.slice(range.start as usize..range.end as usize))
    }
}

impl Store for MemoryStore {
    fn url(&self) -> String {
        "memory:".to_string()
    }

    fn read<'a>(&'a self, object: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes>> {
        std::future::ready(self.read_now(object, range)).boxed()
    }

    fn stat<'a>(&'a self, object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>> {
        std::future::ready(self.info(object)).boxed()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>> {
        let result = check_folder(self, prefix).and_then(|()| {
            let mut names = self.objects.keys().filter(|name| in_folder(name, prefix));
            names.try_for_each(|name| visit(self.info(name)?))
        });
        std::future::ready(result).boxed()
    }

    fn immediate(&self) -> bool {
        true
    }

    fn retries(&self) -> u64 {
        0
    }

    fn faults(&self) -> u64 {
        0
    }
}
