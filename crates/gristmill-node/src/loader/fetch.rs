//! Many reads in flight, for stores that answer after a while.
//!
//! One thread drives all reads of an epoch in the order of the plan: as many as the limit on reads and the limit
//! on raw bytes allow. What arrives, in whatever order, goes to the threads that decode; each sample knows its
//! place already. Stores whose reads finish at once need none of this: their threads read for themselves.

use super::work::{Fetched, Work};
use crate::dataset::DataSet;
use crate::report::add;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use std::time::Instant;

/// Fetches what the plan says until the epoch is over or stopped.
pub(super) fn run(work: &Work, set: &DataSet) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(drive(work, set)),
        Err(e) => work.give_up(format!("cannot start an I/O runtime: {e}")),
    }
}

async fn drive(work: &Work, set: &DataSet) {
    let mut reads = FuturesUnordered::new();
    loop {
        while reads.len() < work.rules.reads_in_flight {
            let Some((claim, id, cost)) = work.next_read(|id| work.rules.size(id)) else { break };
            reads.push(async move {
                let start = Instant::now();
                let bytes = set.read(id).await;
                let took = start.elapsed();
                add(&work.meters.flight_ns, took);
                if let Ok(bytes) = &bytes {
                    work.meters.note_read(bytes.len(), took);
                }
                Fetched { claim, bytes, cost }
            });
        }
        if reads.is_empty() && work.reads_done() {
            return;
        }
        tokio::select! {
            Some(fetched) = reads.next(), if !reads.is_empty() => {
                work.arrived(fetched);
            }
            () = work.wake_fetcher.notified() => {
                if work.stopped() {
                    return;
                }
            }
        }
    }
}
