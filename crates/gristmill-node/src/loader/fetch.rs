//! Many reads in flight, for stores that answer after a while.
//!
//! One thread drives all reads of an epoch in the order of the plan: as many as the limit on reads and the limit
//! on raw bytes allow. What arrives, in whatever order, goes to the threads that decode; each sample knows its
//! place already. Stores whose reads finish at once need none of this: their threads read for themselves.

use super::work::{Claim, Fetched, From, Got, Work};
use crate::access::Access;
use crate::dataset::DataSet;
use crate::node::{Ask, Served};
use crate::report::add;
use crate::split::Staged;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use gristmill_core::SampleId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Fetches what the plan says until the epoch is over or stopped.
pub(super) fn run(work: &Work, set: &DataSet, access: Option<&dyn Access>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(drive(work, set, access)),
        Err(e) => work.give_up(format!("cannot start an I/O runtime: {e}")),
    }
}

async fn drive(work: &Work, set: &DataSet, access: Option<&dyn Access>) {
    let mut reads = FuturesUnordered::new();
    // Who waits for bytes that are on their way for somebody else.
    let mut waiting: HashMap<u32, Vec<(Claim, u64)>> = HashMap::new();
    loop {
        while reads.len() < work.rules.reads_in_flight {
            let size = |id| work.split.as_ref().map_or_else(|| work.rules.size(id), |split| split.cost(id));
            let Some((claim, id, cost)) = work.next_read(size) else { break };
            if let Some(split) = &work.split {
                split.asked();
            }
            // What is needed again is needed raw.
            let mut whole = false;
            if work.held.any() {
                let position = work.plan.position(claim.batch, claim.slots.start);
                whole = work.held.is_kept(position);
                if let Some(bytes) = work.held.take(position, id) {
                    work.arrived(Fetched { claim, got: Ok(Got::raw(id, bytes, From::Held)), cost });
                    continue;
                }
                match waiting.get_mut(&id.0) {
                    Some(others) => {
                        others.push((claim, cost));
                        continue;
                    }
                    None if whole => drop(waiting.insert(id.0, Vec::new())),
                    None => {}
                }
            }
            let ask = Ask { id, cold: work.cold.contains(id) };
            let seed = work.seed(claim.batch, claim.slots.start);
            let wish = work.split.as_ref().filter(|_| !whole).and_then(|split| split.wish(id, seed));
            let past =
                wish.is_some() && !ask.cold && work.split.as_ref().is_some_and(|split| split.is_past(id));
            if !work.held.any()
                && !past
                && let Some(served) = access.and_then(|access| access.at_hand(ask))
            {
                let got = Ok(work.note(served, Duration::ZERO));
                work.arrived(Fetched { claim, got, cost });
                continue;
            }
            if let Some(split) = &work.split {
                if past {
                    split.passed();
                }
                if reads.is_empty() {
                    split.idle();
                }
                split.under_way(reads.len() + 1);
            }
            reads.push(async move {
                let start = Instant::now();
                let staged = match (access, wish) {
                    (Some(access), Some(wish)) if !past => access.fetch_staged(ask, wish).await,
                    (_, Some(wish)) => set.read_staged(id, wish).await,
                    (Some(access), None) => access.fetch(ask).await.map(Staged::raw),
                    (None, None) => {
                        let served = |(bytes, tier)| Served { id, bytes, tier };
                        set.read_from(id).await.map(served).map(Staged::raw)
                    }
                };
                let took = start.elapsed();
                add(&work.meters.flight_ns, took);
                (id, claim, cost, wish.is_some(), whole, staged, took)
            });
        }
        if reads.is_empty() && work.reads_done() {
            return;
        }
        tokio::select! {
            Some((id, claim, cost, wanted, whole, staged, took)) = reads.next(), if !reads.is_empty() => {
                if let (Some(split), Ok(staged)) = (&work.split, &staged) {
                    split.came(staged, wanted, reads.len());
                }
                let got = staged.map(|staged| work.note_staged(staged, took));
                let fetched = Fetched { claim, got, cost };
                // Another read of the sample may have been for a stage, which nobody else can use.
                if whole && let Some(others) = waiting.remove(&id.0) {
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
    if let Ok(got) = fetched.got.as_ref()
        && got.id == id
    {
        let position = work.plan.position(fetched.claim.batch, fetched.claim.slots.start);
        work.held.keep(position, id, &got.bytes);
    }
    for (claim, cost) in others {
        let position = work.plan.position(claim.batch, claim.slots.start);
        let got = match (&fetched.got, work.held.take(position, id)) {
            (_, Some(bytes)) => Ok(Got::raw(id, bytes, From::Held)),
            (Ok(got), None) => Ok(Got::raw(got.id, got.bytes.clone(), From::Held)),
            (Err(error), None) => Err(error.again()),
        };
        work.arrived(Fetched { claim, got, cost });
    }
}
