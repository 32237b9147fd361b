//! One epoch in virtual time: ranks that read, decode and step together, and the exchange beside them.
//!
//! Every rank works as the loader does ([`rank`]): samples are asked for in the order of the plan, so many at once, decoded by
//! its threads, and batches are opened only so far ahead. A step begins on all ranks when the last of them has its batch.
//! What only a rank itself uses needs no order between ranks, so ranks are advanced batch by batch, one after the other.
//! Where they share something (the store, the cores of a node) whoever acts next in time acts next.
//!
//! The time of an epoch is told by cause, and the causes add up to it exactly: what the step takes; what the mean rank waits for
//! its own batch, charged to what that batch's last sample was doing; what it then waits for the slowest rank; and the
//! exchange that was not done by the last step.
//!
//! Deliberately not here: who holds and sends what (the core decides) and what happens between epochs.

mod links;
mod rank;
#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these values are exact")]
mod tests;

pub(crate) use links::Round;

use crate::clock::{Ns, Server, ns};
use crate::fault::Fault;
use crate::knobs::{Hold, Shuffle};
use crate::{Knobs, Load, Machine};
use gristmill_core::plan::Plan;
use links::Links;
use rank::Rank;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// All that the time of an epoch depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) load: &'a Load,
    pub(crate) knobs: &'a Knobs,
    pub(crate) faults: &'a [Fault],
    /// Whose order is cut into the batches of all ranks.
    pub(crate) plan: &'a Plan,
    /// Sizes relative to the mean; empty when all are alike.
    pub(crate) sizes: &'a [f32],
    /// What is exchanged beside each batch; empty when nothing is.
    pub(crate) rounds: &'a [Round],
}

impl Course<'_> {
    /// The size of a sample relative to the mean.
    #[inline]
    fn relative(&self, rank: u32, batch: u32, slot: u32) -> f64 {
        if self.sizes.is_empty() {
            return 1.0;
        }
        f64::from(self.sizes[self.plan.sample_of(rank, batch, slot as usize).0 as usize])
    }

    /// Whether a rank's cache has a sample: a share of them, spread evenly over the epoch.
    #[inline]
    fn cached(&self, reads: u64) -> bool {
        let share = self.knobs.cached;
        share > 0.0 && ((reads + 1) as f64 * share).floor() > (reads as f64 * share).floor()
    }

    /// Whether ranks share what they read from.
    fn reads_store(&self) -> bool {
        self.knobs.shuffle == Shuffle::Global
    }

    /// Whether the threads of a node are more than its cores.
    fn shares_cores(&self) -> bool {
        let together = self.machine.ranks_per_node.min(self.machine.ranks);
        u64::from(self.knobs.threads) * u64::from(together) > u64::from(self.machine.cores)
    }

    /// What a rank reads from: its disk, its memory, or its end of the link to the store.
    fn server(&self, rank: u32) -> Server {
        let (machine, none) = (self.machine, f64::INFINITY);
        let slow = self.faults.iter().fold(1.0, |slow, fault| match fault {
            Fault::SlowDisk { rank: hit, factor } if *hit == rank => slow * factor,
            _ => slow,
        });
        match (self.knobs.shuffle, self.knobs.hold) {
            (Shuffle::Global, _) => Server::new(0.0, machine.link.bytes_per_s / slow, none),
            (_, Hold::Memory) => Server::new(0.0, none, none),
            (_, Hold::Disk) => {
                Server::new(machine.disk.latency_s * slow, machine.disk.bytes_per_s / slow, none)
            }
        }
    }

    /// How much later than the others a rank begins.
    fn late(&self, rank: u32) -> Ns {
        let late = self.faults.iter().map(|fault| match fault {
            Fault::LateRank { rank: hit, seconds } if *hit == rank => ns(*seconds),
            _ => 0,
        });
        late.sum()
    }
}

/// How long an epoch took, in nanoseconds; the causes are sums over all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Timing {
    pub(crate) wall: Ns,
    /// One rank's steps.
    pub(crate) compute: Ns,
    pub(crate) read: u128,
    pub(crate) cpu: u128,
    pub(crate) slowest: u128,
    /// What came after the last step: the rest of the exchange and its commit.
    pub(crate) exchange: Ns,
}

/// What ranks share.
#[derive(Debug)]
struct Shared {
    store: Option<Server>,
    /// When each core of each node is free; empty where no thread waits for one.
    cores: Vec<Vec<Ns>>,
}

/// Runs one epoch.
pub(crate) fn run(course: &Course<'_>) -> Timing {
    let mut ranks: Vec<Rank> = (0..course.machine.ranks).map(|rank| Rank::new(rank, course)).collect();
    let store = course.machine.store;
    let mut shared = Shared {
        store: course
            .reads_store()
            .then(|| Server::new(store.latency_s, store.bytes_per_s, store.requests_per_s)),
        cores: if course.shares_cores() {
            vec![vec![0; course.machine.cores as usize]; course.machine.nodes() as usize]
        } else {
            Vec::new()
        },
    };
    let mut steps = Steps::new(course);
    if shared.store.is_some() || !shared.cores.is_empty() {
        in_order_of_time(course, &mut ranks, &mut shared, &mut steps);
    } else {
        batch_by_batch(course, &mut ranks, &mut shared, &mut steps);
    }
    steps.over()
}

/// Each rank by itself until its batch is ready, then the step.
fn batch_by_batch(course: &Course<'_>, ranks: &mut [Rank], shared: &mut Shared, steps: &mut Steps<'_>) {
    for batch in 0..course.plan.batches() {
        for rank in ranks.iter_mut() {
            if !rank.is_ready(batch) {
                while rank.act(course, shared) != Some(batch) {}
            }
        }
        steps.advance(ranks, |_| ());
    }
}

/// Whoever acts next in time, whatever its rank.
fn in_order_of_time(course: &Course<'_>, ranks: &mut [Rank], shared: &mut Shared, steps: &mut Steps<'_>) {
    // Of those that act at the same time the one that asked for the fewest samples: nobody sends all its reads first.
    let mut next: BinaryHeap<Reverse<(Ns, u64, u32)>> = BinaryHeap::with_capacity(ranks.len() * 2);
    let entry = |rank: &Rank| rank.next().map(|at| Reverse((at, rank.reads(), rank.number())));
    next.extend(ranks.iter().filter_map(entry));
    while let Some(Reverse((at, _, number))) = next.pop() {
        let rank = &mut ranks[number as usize];
        // A rank whose plans changed since has another entry.
        if rank.next() != Some(at) {
            continue;
        }
        let finished = rank.act(course, shared);
        if finished == Some(steps.batch) && steps.takes(rank) {
            steps.advance(ranks, |rank| next.extend(entry(rank)));
        }
        next.extend(entry(&ranks[number as usize]));
    }
}

/// The steps that all ranks make together.
#[derive(Debug)]
struct Steps<'a> {
    /// The step that is next.
    batch: u32,
    batches: u32,
    step: Ns,
    /// When the last step ended.
    ended: Ns,
    /// How many ranks have their batch of the next step.
    have: usize,
    world: usize,
    latest: Ns,
    taken_sum: u128,
    taken: Vec<Ns>,
    links: Links<'a>,
    timing: Timing,
}

impl<'a> Steps<'a> {
    fn new(course: &Course<'a>) -> Steps<'a> {
        let world = course.machine.ranks as usize;
        Steps {
            batch: 0,
            batches: course.plan.batches(),
            step: ns(course.load.step_s),
            ended: 0,
            have: 0,
            world,
            latest: 0,
            taken_sum: 0,
            taken: vec![0; world],
            links: Links::new(course),
            timing: Timing::default(),
        }
    }

    /// Gives a rank its batch of the next step; whether it was the last to get one.
    fn takes(&mut self, rank: &mut Rank) -> bool {
        let (taken, wait) = rank.take(self.ended);
        self.timing.read += u128::from(wait.read);
        self.timing.cpu += u128::from(wait.cpu);
        self.timing.slowest += u128::from(wait.late);
        self.taken[rank.number() as usize] = taken;
        self.latest = self.latest.max(taken);
        self.taken_sum += u128::from(taken);
        self.have += 1;
        self.have == self.world
    }

    /// Makes every step for which all ranks have their batches. `moved` is told which ranks may now read further.
    fn advance(&mut self, ranks: &mut [Rank], mut moved: impl FnMut(&Rank)) {
        loop {
            for rank in ranks.iter_mut() {
                if rank.taken() == self.batch && rank.is_ready(self.batch) {
                    self.takes(rank);
                    moved(rank);
                }
            }
            if self.have < self.world || self.batch == self.batches {
                return;
            }
            let all = u128::from(self.latest) * self.world as u128;
            self.timing.slowest += all - self.taken_sum;
            self.timing.compute += self.step;
            self.ended = self.latest + self.step;
            self.links.round(self.batch, &self.taken, ranks);
            (self.have, self.latest, self.taken_sum) = (0, 0, 0);
            self.batch += 1;
        }
    }

    /// What it all took, once the last step is done.
    fn over(self) -> Timing {
        debug_assert_eq!(self.batch, self.batches, "every step was made");
        let committed = |done: Ns| done.max(self.ended) + self.links.commit();
        let wall = self.links.done().map_or(self.ended, committed);
        Timing { wall, exchange: wall - self.ended, ..self.timing }
    }
}
