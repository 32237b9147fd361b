//! A data set as the loader sees it: sample id in, raw bytes out.
//!
//! It joins a catalog (where each sample lies) with a store (the bytes). Containers of many small samples (idx,
//! CIFAR) are read whole, once, and then served from memory, when they fit: one request instead of sixty
//! thousand. Gzipped ones must fit, since nothing inside them can be found without inflating.
//!
//! A rank that exchanges has a slice of its own ([`DataSet::hold`]): samples are looked for there first.
//!
//! Deliberately not here: a cache with a policy, and decoding.

use crate::catalog::{self, Catalog, Location};
use crate::holding::Holding;
use crate::node::{Served, Tier};
use crate::shared::Upstream;
use crate::split::{Staged, Wish};
use crate::store::{NodeStore, Store};
use crate::{Error, Kind, Result};
use bytes::Bytes;
use futures::future::try_join_all;
use gristmill_core::SampleId;
use gristmill_ops::{Encoding, Stage};
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How much of a container is asked for in one read: enough to amortise a round trip, little enough to retry.
const WHOLE_READ_BYTES: u64 = 8 << 20;
/// How many of those reads are in flight.
const WHOLE_READS: usize = 8;
/// How often the caller is asked whether to stop.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// Samples by id, wherever their bytes rest.
#[derive(Debug)]
pub struct DataSet {
    catalog: Arc<Catalog>,
    store: Arc<dyn Store>,
    /// The node that stands where the store would.
    upstream: Option<Arc<Upstream>>,
    /// The content of each object when all of them are held in memory, otherwise empty.
    resident: Vec<Bytes>,
    resident_bytes: u64,
    /// Where each resident sample lies, checked once: at a million samples a second the catalog's own checks would
    /// be a fifth of the work.
    places: Vec<Place>,
    /// The slice of this rank, if it has one.
    held: OnceLock<Arc<Holding>>,
}

/// Where a sample lies in the content that is held.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: u64,
    bytes: u32,
    object: u32,
}

impl DataSet {
    /// Joins a catalog with the store its locations are in. Containers of bare pixels whose content is at most
    /// `resident_bytes_max` are read into memory now; `stop` is asked now and then whether to give that up.
    pub fn new(
        catalog: Arc<Catalog>,
        store: Arc<dyn Store>,
        resident_bytes_max: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<DataSet> {
        let mut set = DataSet::bare(catalog, store, None);
        let bytes = set.catalog.total_bytes()?;
        let container = matches!(set.catalog.encoding(), Encoding::Raw(_));
        if set.catalog.gzip() && resident_bytes_max == 0 {
            return Err(Error::config(format!(
                "the samples of {} are gzipped, so that none can be read and kept by itself",
                set.catalog.source()
            ))
            .hint(
                "unpack the files with gunzip and catalog them again, or leave the cache or exchange out",
            ));
        }
        if set.catalog.gzip() && bytes > resident_bytes_max {
            return Err(Error::config(format!(
                "the samples of {} are gzipped and take {bytes} bytes unpacked, over the limit of \
                 {resident_bytes_max} bytes that may be held in memory",
                set.catalog.source()
            ))
            .hint("unpack the files with gunzip and catalog them again, or raise loader.memory_bytes_max"));
        }
        if container && bytes <= resident_bytes_max && !set.catalog.is_empty() {
            set.resident = set.wait(set.read_containers(), stop)?;
            set.places = (0..set.catalog.len()).map(|id| set.place(SampleId(id))).collect::<Result<_>>()?;
            let places = std::mem::size_of_val(&set.places[..]) as u64;
            set.resident_bytes = places + set.resident.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        }
        Ok(set)
    }

    /// The data set of a catalog that a node gave, and that node.
    pub fn behind(catalog: Arc<Catalog>, upstream: Arc<Upstream>) -> DataSet {
        DataSet::bare(catalog, Arc::new(NodeStore(Arc::clone(&upstream))), Some(upstream))
    }

    fn bare(catalog: Arc<Catalog>, store: Arc<dyn Store>, upstream: Option<Arc<Upstream>>) -> DataSet {
        let (resident, places, held) = (Vec::new(), Vec::new(), OnceLock::new());
        DataSet { catalog, store, upstream, resident, resident_bytes: 0, places, held }
    }

    /// The same data behind the same store for another rank in this process, with nothing held for it.
    #[must_use]
    pub fn beside(&self) -> DataSet {
        DataSet::bare(Arc::clone(&self.catalog), Arc::clone(&self.store), self.upstream.clone())
    }

    /// From now on samples are looked for in this slice first.
    pub fn hold(&self, slice: Arc<Holding>) -> Result<()> {
        if !self.resident.is_empty() {
            return Err(Error::config(format!(
                "{} is held in memory whole, so there is nothing to exchange",
                self.catalog.source()
            ))
            .hint("open it with exchange.fraction set, or leave the exchange out"));
        }
        self.held.set(slice).map_err(|_| {
            Error::config("another loader exchanges the samples of this data set already")
                .hint("open the data set again for the second one")
        })
    }

    /// The slice of this rank, if it has one.
    pub fn held(&self) -> Option<&Arc<Holding>> {
        self.held.get()
    }

    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The store behind it.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Which tier it is to those in front of it.
    pub fn tier(&self) -> Tier {
        if self.upstream.is_some() { Tier::Upstream } else { Tier::Store }
    }

    /// The node that stands where the store would, if there is one.
    pub fn upstream(&self) -> Option<&Arc<Upstream>> {
        self.upstream.as_ref()
    }

    /// Whether several samples lie in one object, so that neighbours can be read together.
    pub fn packed(&self) -> bool {
        self.upstream.is_none() && self.held().is_none() && self.catalog.objects() < self.catalog.len()
    }

    /// How many bytes of the data set are held in memory.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// Whether a thread that needs a sample can simply get it, without a reactor.
    pub fn immediate(&self) -> bool {
        !self.resident.is_empty() || self.held().is_some() || self.store.immediate()
    }

    /// The raw bytes of one sample.
    pub async fn read(&self, id: SampleId) -> Result<Bytes> {
        Ok(self.read_from(id).await?.0)
    }

    /// The same, and where they were.
    pub(crate) async fn read_from(&self, id: SampleId) -> Result<(Bytes, Tier)> {
        if let Some(bytes) = self.held().and_then(|held| held.get(id.0)) {
            return Ok((bytes, Tier::Held));
        }
        Ok((self.read_behind(id).await?, self.tier()))
    }

    /// The raw bytes of one sample, whatever slice there is.
    pub(crate) async fn read_behind(&self, id: SampleId) -> Result<Bytes> {
        if let Some(bytes) = self.resident(id)? {
            return Ok(bytes);
        }
        if let Some(upstream) = &self.upstream {
            let bytes = upstream.read(id).await?;
            return self.whole(upstream, id, bytes);
        }
        let Location { name, range, .. } = self.catalog.locate(id)?;
        self.store.read(name, range).await
    }

    /// One sample at the stage that is wished for, if there is a node behind this that does so; otherwise raw.
    pub async fn read_staged(&self, id: SampleId, wish: Wish) -> Result<Staged> {
        let held = self.held().and_then(|held| held.get(id.0));
        if let Some(bytes) = held {
            return Ok(Staged::raw(Served { id, bytes, tier: Tier::Held }));
        }
        let tier = self.tier();
        let Some(upstream) = &self.upstream else {
            let bytes = self.read_behind(id).await?;
            return Ok(Staged::raw(Served { id, bytes, tier }));
        };
        let Staged { served, stage, shortfall, cpu_ns } = upstream.read_staged(id, wish).await?;
        let bytes = match stage {
            Stage::Raw => self.whole(upstream, id, served.bytes)?,
            _ => served.bytes,
        };
        Ok(Staged { served: Served { id, bytes, tier }, stage, shortfall, cpu_ns })
    }

    /// Raw bytes that a node sent, if they are as many as the catalog says.
    fn whole(&self, upstream: &Upstream, id: SampleId, bytes: Bytes) -> Result<Bytes> {
        let size = self.catalog.size(id)?;
        if bytes.len() as u64 == u64::from(size) {
            return Ok(bytes);
        }
        let (url, got) = (upstream.url(), bytes.len());
        Err(Error::corrupt(format!("{url} sent {got} bytes for sample {id}, which has {size}"))
            .hint("its data changed after it was catalogued"))
    }

    /// As [`DataSet::read`], for callers on a reactor: a store that reads on the calling thread gets another one.
    pub(crate) async fn load(self: &Arc<Self>, id: SampleId) -> Result<Bytes> {
        Ok(self.load_from(id).await?.0)
    }

    /// The same, and where it was.
    pub(crate) async fn load_from(self: &Arc<Self>, id: SampleId) -> Result<(Bytes, Tier)> {
        let Some(runtime) = self.reactor() else { return self.read_from(id).await };
        let set = Arc::clone(self);
        runtime.spawn_blocking(move || set.read_from_now(id)).await.unwrap_or_else(|_| Err(given_up()))
    }

    /// A range of an object, in the same way.
    pub(crate) async fn load_range(self: &Arc<Self>, name: &str, range: Range<u64>) -> Result<Bytes> {
        let Some(runtime) = self.reactor() else { return self.store.read(name, range).await };
        let (set, name) = (Arc::clone(self), name.to_string());
        let read = move || futures::executor::block_on(set.store.read(&name, range));
        runtime.spawn_blocking(read).await.unwrap_or_else(|_| Err(given_up()))
    }

    /// The reactor that a read on this thread would hold up, if there is one.
    fn reactor(&self) -> Option<tokio::runtime::Handle> {
        tokio::runtime::Handle::try_current().ok().filter(|_| self.immediate())
    }

    /// The raw bytes of one sample of a data set that is held in memory.
    pub fn resident(&self, id: SampleId) -> Result<Option<Bytes>> {
        if self.places.is_empty() {
            return Ok(None);
        }
        let Some(&Place { start, bytes, object }) = self.places.get(id.0 as usize) else {
            return Err(Error::config(format!(
                "there is no sample {id}: the data set has {}",
                self.catalog.len()
            )));
        };
        let start = start as usize;
        Ok(Some(self.resident[object as usize].slice(start..start + bytes as usize)))
    }

    /// Where a sample lies in the content that was read, checked against what was read.
    fn place(&self, id: SampleId) -> Result<Place> {
        let (object, range) = self.catalog.place(id)?;
        let size = self.resident.get(object as usize).map_or(0, Bytes::len);
        if range.start > range.end || range.end > size as u64 {
            let name = self.catalog.locate(id)?.name;
            return Err(Error::corrupt(format!("{name} has {size} bytes, other than its catalog says"))
                .hint("the data changed after it was catalogued; run `gristmill catalog build` again"));
        }
        Ok(Place { start: range.start, bytes: (range.end - range.start) as u32, object })
    }

    /// The raw bytes of one sample of an immediate data set.
    pub fn read_now(&self, id: SampleId) -> Result<Bytes> {
        Ok(self.read_from_now(id)?.0)
    }

    /// The same, and where they were.
    pub(crate) fn read_from_now(&self, id: SampleId) -> Result<(Bytes, Tier)> {
        let Some(held) = self.held() else {
            return Ok((futures::executor::block_on(self.read_behind(id))?, self.tier()));
        };
        match held.get(id.0) {
            Some(bytes) => Ok((bytes, Tier::Held)),
            // Rare: what the slice lost. The store may need a reactor, which this thread has not.
            None => Ok((self.wait(self.read_behind(id), &|| false)?, self.tier())),
        }
    }

    /// Whether the store behind this answers on the calling thread.
    pub(crate) fn store_immediate(&self) -> bool {
        self.store.immediate()
    }

    /// Drives a future that needs this data set's store, from a thread without a runtime.
    pub(crate) fn wait<T>(
        &self,
        future: impl Future<Output = Result<T>>,
        stop: &dyn Fn() -> bool,
    ) -> Result<T> {
        if self.store.immediate() {
            return futures::executor::block_on(future);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(|e| Error::io("start", "an I/O runtime", e))?.block_on(async {
            let mut future = std::pin::pin!(future);
            loop {
                match tokio::time::timeout(STOP_EVERY, &mut future).await {
                    Ok(result) => return result,
                    Err(_) if stop() => {
                        return Err(Error::new(Kind::Stopped, "stopped while reading the data set"));
                    }
                    Err(_) => {}
                }
            }
        })
    }

    async fn read_containers(&self) -> Result<Vec<Bytes>> {
        let mut contents = Vec::new();
        for index in 0..self.catalog.objects() {
            let facts = self.catalog.object(index)?;
            let raw = self.read_whole(facts.name, facts.bytes).await?;
            contents.push(if self.catalog.gzip() {
                catalog::inflate(&raw, facts.inflated_bytes).map_err(|e| e.at(facts.name))?.into()
            } else {
                raw
            });
        }
        Ok(contents)
    }

    async fn read_whole(&self, name: &str, bytes: u64) -> Result<Bytes> {
        if bytes <= WHOLE_READ_BYTES {
            return self.store.read(name, 0..bytes).await;
        }
        let starts: Vec<u64> = (0..bytes).step_by(WHOLE_READ_BYTES as usize).collect();
        let mut whole = Vec::with_capacity(bytes as usize);
        for group in starts.chunks(WHOLE_READS) {
            let reads = group.iter().map(|&at| self.store.read(name, at..(at + WHOLE_READ_BYTES).min(bytes)));
            try_join_all(reads).await?.iter().for_each(|part| whole.extend_from_slice(part));
        }
        Ok(whole.into())
    }
}

fn given_up() -> Error {
    Error::new(Kind::Stopped, "a read was given up because the program is ending")
}
