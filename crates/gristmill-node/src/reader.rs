//! Samples by id, on the calling thread: for callers that bring their own order and their own workers.
//!
//! The loader is faster. A reader serves programs that already have a loop, a sampler and worker processes, and
//! only want Gristmill's stores and ops. It starts no thread. What it holds of files and memory survives a fork;
//! connections do not, so a reader of a remote store refuses to work in a child instead of waiting for ever.
//!
//! Deliberately not here: prefetching and order.

use crate::catalog::Catalog;
use crate::config::Settings;
use crate::dataset::DataSet;
use crate::loader::{Batch, Data, Tensor};
use crate::open;
use crate::{Error, Result};
use bytes::Bytes;
use futures::future::try_join_all;
use gristmill_core::SampleId;
use gristmill_ops::{Draw, Limits, Output, Pipeline, Recipe, Scratch};
use std::sync::{Arc, Mutex, PoisonError};

/// The most samples that may be asked for at once.
const SAMPLES_MAX: usize = 1 << 20;
/// Reads under way at once.
const READS_IN_FLIGHT: usize = 64;

/// Reads samples by id.
#[derive(Debug)]
pub struct Reader {
    set: DataSet,
    settings: Settings,
    pipeline: Option<Pipeline>,
    /// Drives the reads of a store that is not immediate.
    runtime: Option<Mutex<tokio::runtime::Runtime>>,
    /// Working memory of the last call, taken without waiting: a fork may leave any lock locked.
    scratch: Mutex<Scratch>,
    process: u32,
}

impl Reader {
    /// A reader of a catalog's samples. Without a recipe they come as raw bytes.
    pub fn new(catalog: Arc<Catalog>, recipe: Option<&Recipe>, settings: Settings) -> Result<Reader> {
        let limits = Limits {
            pixels_max: settings.loader().pixels_max,
            scratch_bytes_max: (settings.loader().memory_bytes_max / 4) as usize,
        };
        let compile = |recipe| {
            Pipeline::new(recipe, catalog.encoding(), limits).map_err(|e| Error::config(e.to_string()))
        };
        let pipeline = recipe.map(compile).transpose()?;
        catalog.labels()?;
        let set = open::data_set(catalog, &settings, &|| false)?;
        let runtime = if set.immediate() {
            None
        } else {
            let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
            Some(Mutex::new(built.map_err(|e| Error::io("start", "an I/O runtime", e))?))
        };
        let (scratch, process) = (Mutex::new(Scratch::new()), std::process::id());
        Ok(Reader { set, settings, pipeline, runtime, scratch, process })
    }

    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        self.set.catalog()
    }

    /// Whether it can be used in a child that this process forks.
    pub fn survives_fork(&self) -> bool {
        self.runtime.is_none()
    }

    /// Type, layout and size of one sample; none without a recipe.
    pub fn output(&self) -> Option<Output> {
        self.pipeline.as_ref().map(Pipeline::output)
    }

    /// These samples as one batch, in this order, with the random ops of `epoch`.
    pub fn read(&self, epoch: u64, ids: &[u32]) -> Result<Batch> {
        if let Some(id) = ids.iter().find(|id| **id >= self.catalog().len()) {
            let samples = self.catalog().len();
            return Err(Error::config(format!("there is no sample {id}: the data set has {samples}")));
        }
        if ids.len() > SAMPLES_MAX {
            return Err(Error::config(format!(
                "{} samples at once are over the limit of {SAMPLES_MAX}",
                ids.len()
            )));
        }
        let limit = self.settings.loader().memory_bytes_max;
        let size = self.output().map_or(0, |output| output.bytes());
        let raw: u64 =
            ids.iter().map(|&id| self.catalog().size(SampleId(id)).map(u64::from)).sum::<Result<u64>>()?;
        let bytes = if self.pipeline.is_some() { size as u64 * ids.len() as u64 } else { raw };
        if bytes > limit / 2 {
            let message = format!(
                "{} samples at once take {bytes} bytes, over half of loader.memory_bytes_max",
                ids.len()
            );
            return Err(Error::config(message).hint("ask for fewer, or raise it"));
        }
        let labels = self.catalog().labels()?;
        let labels = ids.iter().map(|&id| labels[id as usize]).collect();
        let data = match &self.pipeline {
            None => Data::Raw(
                ids.chunks(READS_IN_FLIGHT)
                    .map(|some| self.fetch(some))
                    .collect::<Result<Vec<_>>>()?
                    .concat(),
            ),
            Some(pipeline) => Data::Tensor(self.process(pipeline, epoch, ids)?),
        };
        let weights = vec![1.0; ids.len()];
        Ok(Batch { epoch, index: 0, ids: ids.to_vec(), labels, weights, skipped: Vec::new(), data })
    }

    /// Reads and processes some samples at a time, so that little raw data is held.
    fn process(&self, pipeline: &Pipeline, epoch: u64, ids: &[u32]) -> Result<Tensor> {
        let size = pipeline.output().bytes();
        let mut tensor = Tensor::zeroed(size * ids.len(), pipeline.output());
        let seed = self.settings.loader().seed;
        let mut fresh = None;
        let mut kept = self.scratch.try_lock().ok();
        let scratch = kept.as_deref_mut().unwrap_or_else(|| fresh.insert(Scratch::new()));
        let places = tensor.bytes_mut().chunks_mut(size * READS_IN_FLIGHT);
        for (some, places) in ids.chunks(READS_IN_FLIGHT).zip(places) {
            let samples = self.fetch(some)?;
            for ((&id, sample), out) in some.iter().zip(&samples).zip(places.chunks_exact_mut(size)) {
                let draw = Draw { seed, epoch, sample: SampleId(id) };
                pipeline.run(scratch, draw, sample, out).map_err(|e| {
                    let name = self.catalog().locate(SampleId(id)).map_or("?", |at| at.name);
                    Error::corrupt(format!("sample {id} ({name}): {e}")).hint("mend or remove the file")
                })?;
            }
        }
        Ok(tensor)
    }

    fn fetch(&self, ids: &[u32]) -> Result<Vec<Bytes>> {
        let Some(runtime) = &self.runtime else {
            return ids.iter().map(|&id| self.set.read_now(SampleId(id))).collect();
        };
        if self.process != std::process::id() {
            return Err(Error::config(
                "this reader's connections belong to the process that forked this one",
            )
            .hint("make a new reader in the child"));
        }
        let runtime = runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.block_on(try_join_all(ids.iter().map(|&id| self.set.read(SampleId(id)))))
    }
}
