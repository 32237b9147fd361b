//! Getting what a slice lacks from the store: in parallel, and to be gone on with if it is stopped.
//!
//! A store that answers on the calling thread is read by a few threads; the others have many reads in flight on one. What
//! was read is in the slice at once, so a fill that was stopped goes on where it was. A sample that is bad in the store is
//! left out here: whoever asks for it is told, as without a slice.

use crate::dataset::DataSet;
use crate::holding::Holding;
use crate::{Error, Kind, Result};
use futures::StreamExt;
use gristmill_core::SampleId;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Threads that read from a store that answers at once.
const THREADS: usize = 4;
/// Reads in flight from the others, at most.
const READS: usize = 64;
/// Bytes of samples in flight, roughly.
const FLIGHT_BYTES: u64 = 64 << 20;
/// How often whoever watches is told.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// How far a fill has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling {
    /// Samples that were read.
    pub done: u32,
    /// Samples that have to be read.
    pub total: u32,
    /// Bytes of those that were.
    pub bytes: u64,
}

/// What a fill did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filled {
    /// Samples that were there already.
    pub kept: u32,
    /// Samples that were read from the store.
    pub read: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// Puts `missing` into the slice; `progress` says whether to go on.
pub(super) fn fill(
    set: &DataSet,
    held: &Holding,
    missing: &[u32],
    progress: &mut dyn FnMut(Filling) -> bool,
) -> Result<Filled> {
    let mut at = Filling { done: 0, total: missing.len() as u32, bytes: 0 };
    let mut read = 0;
    let mut note = |bytes: Option<u64>| {
        at.done += 1;
        at.bytes += bytes.unwrap_or(0);
        read += u32::from(bytes.is_some());
        at
    };
    let stopped = || Error::new(Kind::Stopped, "stopped while filling the slice");
    if set.store_immediate() {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            for _ in 0..THREADS.min(missing.len()) {
                let tell = tell.clone();
                let (next, stop) = (&next, &stop);
                scope.spawn(move || {
                    while !stop.load(Relaxed)
                        && let Some(&id) = missing.get(next.fetch_add(1, Relaxed))
                    {
                        let outcome = futures::executor::block_on(one(set, held, id));
                        // Nobody listens any more once an error was heard.
                        let _ = tell.send(outcome);
                    }
                });
            }
            drop(tell);
            let mut outcome = Ok(());
            while outcome.is_ok() {
                outcome = match told.recv_timeout(TELL_EVERY) {
                    Ok(Ok(bytes)) => {
                        let at = note(bytes);
                        if progress(at) { Ok(()) } else { Err(stopped()) }
                    }
                    Ok(Err(error)) => Err(error),
                    Err(RecvTimeoutError::Timeout) => Ok(()),
                    Err(RecvTimeoutError::Disconnected) => break,
                };
            }
            stop.store(true, Relaxed);
            outcome
        })?;
    } else {
        let largest = set.catalog().sizes()?.iter().copied().max().unwrap_or(1);
        let reads = (FLIGHT_BYTES / u64::from(largest.max(1))).clamp(1, READS as u64) as usize;
        let all = async {
            let each = missing.iter().map(|&id| one(set, held, id));
            let mut reads = futures::stream::iter(each).buffer_unordered(reads);
            while let Some(outcome) = reads.next().await {
                let at = note(outcome?);
                if !progress(at) {
                    return Err(stopped());
                }
            }
            Ok(())
        };
        set.wait(all, &|| false)?;
    }
    Ok(Filled { kept: 0, read, bytes: at.bytes })
}

/// Gets one sample; nothing if it is bad.
async fn one(set: &DataSet, held: &Holding, id: u32) -> Result<Option<u64>> {
    match set.read_behind(SampleId(id)).await {
        Ok(bytes) => {
            held.put(id, &bytes)?;
            Ok(Some(bytes.len() as u64))
        }
        Err(error) if error.is_bad_sample() => Ok(None),
        Err(error) => Err(error.at(format_args!("sample {id}"))),
    }
}
