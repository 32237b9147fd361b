//! The place of a store where there is none: behind a node, samples are asked for by id and never by name.

use super::{ObjectInfo, Store};
use crate::shared::Upstream;
use crate::{Error, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::ops::Range;
use std::sync::Arc;

/// Says whose store this is and gives nothing by name.
#[derive(Debug)]
pub(crate) struct NodeStore(pub(crate) Arc<Upstream>);

impl NodeStore {
    fn refuse(&self) -> Error {
        Error::config(format!("{} gives samples by id, not files by name", self.0.url()))
            .hint("do this where the data lies")
    }
}

impl Store for NodeStore {
    fn url(&self) -> String {
        self.0.url().to_string()
    }

    fn read<'a>(&'a self, _object: &'a str, _range: Range<u64>) -> BoxFuture<'a, Result<Bytes>> {
        async { Err(self.refuse()) }.boxed()
    }

    fn stat<'a>(&'a self, _object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>> {
        async { Err(self.refuse()) }.boxed()
    }

    fn list<'a>(
        &'a self,
        _prefix: &'a str,
        _visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>> {
        async { Err(self.refuse()) }.boxed()
    }

    fn immediate(&self) -> bool {
        false
    }

    fn retries(&self) -> u64 {
        self.0.retries()
    }

    fn faults(&self) -> u64 {
        0
    }
}
