//! Many reads in flight, for stores that answer after a while.
//!
//! One thread drives all reads of an epoch in the order of the plan: as many as the limit on reads and the limit
//! on raw bytes allow. What arrives, in whatever order, goes to the threads that decode; each sample knows its
//! place already. Stores whose reads finish at once need none of this: their threads read for themselves.

use super::work::{Claim, Fetched, Work};
use crate::Error;
use crate::dataset::DataSet;
use crate::report::add;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use gristmill_core::SampleId;
use std::collections::HashMap;
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
    // Who waits for bytes that are on their way for somebody else.
    let mut waiting: HashMap<u32, Vec<(Claim, u64)>> = HashMap::new();
    loop {
        while reads.len() < work.rules.reads_in_flight {
            let Some((claim, id, cost)) = work.next_read(|id| work.rules.size(id)) else { break };
            if work.held.any() {
                let position = work.plan.position(claim.batch, claim.slots.start);
                if let Some(bytes) = work.held.take(position, id) {
                    work.arrived(Fetched { claim, bytes: Ok(bytes), held: true, cost });
                    continue;
                }
                match waiting.get_mut(&id.0) {
                    Some(others) => {
                        others.push((claim, cost));
                        continue;
                    }
                    None if work.held.is_kept(position) => drop(waiting.insert(id.0, Vec::new())),
                    None => {}
                }
            }
            reads.push(async move {
                let start = Instant::now();
                let bytes = set.read(id).await;
                let took = start.elapsed();
                add(&work.meters.flight_ns, took);
                if let Ok(bytes) = &bytes {
                    work.meters.note_read(bytes.len(), took);
                }
                (id, Fetched { claim, bytes, held: false, cost })
            });
        }
        if reads.is_empty() && work.reads_done() {
            return;
        }
        tokio::select! {
            Some((id, fetched)) = reads.next(), if !reads.is_empty() => {
                if let Some(others) = waiting.remove(&id.0) {
                    hand_on(work, id, &fetched, others);
                }
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

/// Keeps bytes that are needed again, and gives them to those who asked meanwhile. An error is theirs, too.
fn hand_on(work: &Work, id: SampleId, fetched: &Fetched, others: Vec<(Claim, u64)>) {
    if let Ok(bytes) = &fetched.bytes {
        let position = work.plan.position(fetched.claim.batch, fetched.claim.slots.start);
        work.held.keep(position, id, bytes);
    }
    for (claim, cost) in others {
        let position = work.plan.position(claim.batch, claim.slots.start);
        let bytes = match (&fetched.bytes, work.held.take(position, id)) {
            (_, Some(bytes)) => Ok(bytes),
            (Ok(bytes), None) => Ok(bytes.clone()),
            (Err(error), None) => Err(Error::new(error.kind(), error.to_string())),
        };
        work.arrived(Fetched { claim, bytes, held: true, cost });
    }
}
