//! A training from epoch to epoch: the core decides, the clock is pretended, every invariant is looked at.
//!
//! In each epoch the core says what is exchanged and in which order the ranks train, as on every rank of a real run; the epoch is
//! then timed on the modelled machine, and what was exchanged is committed. When a node is lost in the middle of an
//! epoch, the others find out after the timeout, all start again, the lost slice is read from the store, and the epoch
//! begins anew from what was saved when it began.
//!
//! Deliberately not here: what training learns. A selection is a share of the samples drawn from the seed.

#[cfg(test)]
mod tests;

use crate::check::{LOSSLESS, SAME, Said, Violation, Watch};
use crate::clock::{Ns, ns, seconds};
use crate::cost::{Causes, EpochCost, Traffic};
use crate::epoch::{Course, Round, run};
use crate::fault::Fault;
use crate::knobs::{Hold, Shuffle};
use crate::load::Labels;
use crate::seen::Seen;
use crate::{Knobs, Load, Machine};
use gristmill_core::Invalid;
use gristmill_core::exchange::measure::{Divergence, divergence};
use gristmill_core::exchange::{Active, Exchange, ExchangeOptions, LaidOut, Owners, View};
use gristmill_core::plan::{Plan, Shape};
use gristmill_core::rng::{Purpose, Stream, key};
use std::fmt;

/// Folded into the key of the pretended selection, so that no other stream has it.
const KEPT: u64 = 0x4b45_5054;
/// The longest epoch that is counted: about 30 years.
const EPOCH_S_MAX: f64 = 1e9;
/// Reads that a rank keeps in flight while it fills its slice.
const FILL_READS: f64 = 64.0;

/// All that a simulated training depends on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Setup {
    /// What there is.
    pub machine: Machine,
    /// What is to be done.
    pub load: Load,
    /// How.
    pub knobs: Knobs,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Where all randomness comes from.
    pub seed: u64,
    /// Of how many ranks it is followed what they have seen; 0 for 64.
    pub follow: u32,
}

impl Setup {
    /// An error that names what makes no sense.
    pub fn check(&self) -> Result<(), Invalid> {
        self.machine.check()?;
        self.load.check()?;
        self.knobs.check()?;
        let (ranks, samples) = (self.machine.ranks, self.load.samples);
        if ranks > samples {
            return Err(Invalid(format!(
                "{ranks} ranks are more than {samples} samples: some would have none"
            )));
        }
        self.faults.iter().try_for_each(|fault| fault.check(ranks))?;
        let longest_s = self.longest_s();
        if longest_s > EPOCH_S_MAX {
            return Err(Invalid(format!(
                "an epoch may take {longest_s:.1e} s; more than {EPOCH_S_MAX:.0e} s is not counted"
            )));
        }
        Ok(())
    }

    /// An epoch cannot take longer: everything one after the other.
    fn longest_s(&self) -> f64 {
        let Setup { machine, load, .. } = self;
        let (ranks, samples) = (f64::from(machine.ranks), f64::from(load.samples));
        let (mut slow, mut late) = (1.0, 0.0);
        for fault in &self.faults {
            match fault {
                Fault::SlowDisk { factor, .. } => slow *= factor,
                Fault::LateRank { seconds, .. } => late += seconds,
                Fault::LostNode { .. } => {}
            }
        }
        // The largest sample of a wide spread is some tens of times the mean.
        let bytes = load.bytes * (1.0 + 40.0 * load.spread);
        let stored = bytes / machine.store.bytes_per_s + 1.0 / machine.store.requests_per_s;
        let own = (bytes / machine.disk.bytes_per_s + bytes / machine.link.bytes_per_s) * slow;
        let waits = (machine.disk.latency_s * slow + machine.store.latency_s) + machine.link.latency_s;
        let each = (samples / ranks).ceil();
        let cpu = load.cpu_s * (1.0 + 40.0 * load.spread) * f64::from(machine.ranks_per_node);
        samples * stored + 3.0 * each * (own + waits + cpu) + each * load.step_s + late
    }
}

/// Why a simulation cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// What was asked for makes no sense.
    Invalid(Invalid),
    /// What must never happen did.
    Violation(Violation),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Invalid(invalid) => invalid.fmt(f),
            Trouble::Violation(violation) => violation.fmt(f),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<Invalid> for Trouble {
    fn from(invalid: Invalid) -> Trouble {
        Trouble::Invalid(invalid)
    }
}

impl From<Violation> for Trouble {
    fn from(violation: Violation) -> Trouble {
        Trouble::Violation(violation)
    }
}

/// What an epoch would cost on this machine with these knobs: the first one after the slices are filled.
pub fn simulate_epoch(machine: &Machine, load: &Load, knobs: &Knobs) -> Result<EpochCost, Trouble> {
    let setup = Setup { machine: *machine, load: *load, knobs: *knobs, ..Setup::default() };
    Simulation::new(setup)?.next_epoch()
}

/// A training that goes on from epoch to epoch.
#[derive(Debug)]
pub struct Simulation {
    setup: Setup,
    labels: Vec<u32>,
    sizes: Vec<f32>,
    /// Who holds what; nobody when everything is read from the store.
    owners: Option<Owners>,
    watch: Watch,
    seen: Seen,
    epoch: u64,
}

impl Simulation {
    /// A training before its first epoch.
    pub fn new(setup: Setup) -> Result<Simulation, Invalid> {
        setup.check()?;
        let Setup { machine, load, seed, .. } = &setup;
        let labels = load.labels();
        let owners = match (setup.knobs.shuffle, load.labels) {
            (Shuffle::Global, _) => None,
            (_, Labels::Even) => Some(Owners::new(load.samples, machine.ranks, *seed)?),
            (_, Labels::Sorted) => Some(Owners::sorted(&labels, machine.ranks)?),
        };
        let follow = if setup.follow == 0 { 64 } else { setup.follow };
        Ok(Simulation {
            sizes: load.relative_sizes(*seed),
            watch: Watch::new(load.samples, owners.as_ref()),
            seen: Seen::new(load.samples, machine.ranks, follow, *seed),
            labels,
            owners,
            epoch: 0,
            setup,
        })
    }

    /// What is simulated.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Of how many ranks it is followed what they have seen.
    pub fn followed(&self) -> u32 {
        self.seen.followed()
    }

    /// How long it takes before the first epoch until every rank has its slice; 0 when ranks hold none.
    pub fn fill_seconds(&self) -> f64 {
        match &self.owners {
            Some(owners) => seconds(self.fill(owners, 0..self.setup.machine.ranks)),
            None => 0.0,
        }
    }

    /// The time that these ranks take to read their slices from the store, each with many reads in flight: that of the
    /// slowest thing they all need.
    fn fill(&self, owners: &Owners, ranks: std::ops::Range<u32>) -> Ns {
        let Setup { machine, load, knobs, .. } = &self.setup;
        let held = ranks.map(|rank| owners.held(rank).len() as f64);
        let (all, most) = held.fold((0.0, 0.0_f64), |(all, most), held| (all + held, most.max(held)));
        let write_s =
            if knobs.hold == Hold::Disk { most * load.bytes / machine.disk.bytes_per_s } else { 0.0 };
        let read_s = machine.store.latency_s + load.bytes / machine.link.bytes_per_s;
        let longest_s = [
            all * load.bytes / machine.store.bytes_per_s,
            all / machine.store.requests_per_s,
            most * load.bytes / machine.link.bytes_per_s,
            (most / FILL_READS).ceil() * read_s,
            write_s,
        ];
        ns(machine.store.latency_s + longest_s.into_iter().fold(0.0, f64::max))
    }

    /// The next epoch: what it cost, or what must never happen and did.
    pub fn next_epoch(&mut self) -> Result<EpochCost, Trouble> {
        let chosen = self.chosen();
        let cost = match (self.setup.knobs.shuffle, self.owners.take()) {
            (Shuffle::Held(options), Some(mut owners)) => {
                let cost = self.held(&mut owners, &options, chosen.as_ref());
                self.owners = Some(owners);
                cost?
            }
            _ => self.global(chosen.as_ref())?,
        };
        self.epoch += 1;
        Ok(cost)
    }

    fn shape(&self) -> Shape {
        Shape { world: self.setup.machine.ranks, ..Shape::single(self.setup.load.batch) }
    }

    /// The pretended selection of this epoch; none if all samples are trained.
    fn chosen(&self) -> Option<Chosen> {
        let Setup { load, knobs, seed, .. } = &self.setup;
        if knobs.kept >= 1.0 {
            return None;
        }
        let many = ((f64::from(load.samples) * knobs.kept).round() as usize).max(1);
        let mut mask = vec![false; load.samples as usize];
        let drawn = Stream::from_key(key(&[*seed, KEPT, self.epoch])).permutation(load.samples);
        drawn.into_iter().take(many).for_each(|id| mask[id as usize] = true);
        let ids = (0..load.samples).filter(|id| mask[*id as usize]).collect();
        Some(Chosen { ids, mask })
    }

    /// An epoch in which every rank reads its part of one global shuffle from the store.
    fn global(&mut self, chosen: Option<&Chosen>) -> Result<EpochCost, Trouble> {
        let Setup { machine, load, seed, .. } = &self.setup;
        let (world, shape, seed) = (machine.ranks, self.shape(), *seed);
        let plan = match chosen {
            None => Plan::shuffled(load.samples, seed, self.epoch, shape)?,
            Some(chosen) => {
                let order = Stream::new(seed, self.epoch, Purpose::TrainingOrder, &[]);
                let order = order.permutation(chosen.ids.len() as u32);
                Plan::of(order.into_iter().map(|place| chosen.ids[place as usize]).collect(), shape)?
            }
        };
        let trained = u64::from(plan.samples()) * u64::from(world);
        let many = chosen.map_or(u64::from(load.samples), |chosen| chosen.ids.len() as u64);
        let said = Said {
            held: false,
            chosen: chosen.map(|chosen| &chosen.mask[..]),
            again: trained.saturating_sub(many),
            left: &[],
        };
        self.watch.trained(&plan, world, said)?;
        let missed = 1.0 - self.setup.knobs.cached;
        let traffic = Traffic {
            stored: (trained as f64 * missed).round() as u64,
            store_bytes: self.bytes(plan_ids(&plan, world)) * missed,
            ..Traffic::default()
        };
        let divergence = self.divergence_of(&plan);
        let summary = Summary { again: said.again, left: 0, traffic, held: 0, divergence };
        Ok(self.cost(&plan, &[], &summary, None))
    }

    /// An epoch in which every rank trains what it holds and swaps some of it.
    fn held(
        &mut self,
        owners: &mut Owners,
        options: &ExchangeOptions,
        chosen: Option<&Chosen>,
    ) -> Result<EpochCost, Trouble> {
        let world = owners.world();
        self.watch.at(self.epoch, owners)?;
        let (exchange, laid) = self.decide(owners, options, chosen)?;
        let lost = self.lost();
        // Whatever was lost, the same decisions come out of what was saved: on another rank, and after a restart.
        let saved = owners.to_bytes();
        let Some(restored) = Owners::from_bytes(&saved).filter(|restored| restored == owners) else {
            return Err(self.watch.broken(LOSSLESS, "what was saved is not what was held".into()).into());
        };
        let (other_exchange, other_laid) = self.decide(&restored, options, chosen)?;
        if other_exchange != exchange || other_laid != laid {
            let invariant = if lost.is_some() { LOSSLESS } else { SAME };
            return Err(self.watch.broken(invariant, "a second rank decides otherwise".into()).into());
        }
        let held =
            self.watch.moves(&exchange, options.fraction, |rank| owners.held_max(rank, options.fraction))?;
        let plan = Plan::weighted(laid.order, laid.weights, self.shape())?;
        let said = Said {
            held: true,
            chosen: chosen.map(|chosen| &chosen.mask[..]),
            again: laid.again.into(),
            left: &laid.left,
        };
        self.watch.trained(&plan, world, said)?;
        let rounds = self.rounds(&exchange, plan.batches());
        let exchanged = exchange.all().count() as u64;
        let refill = lost
            .map(|node| (self.fill(owners, node.clone()), node.map(|r| owners.held(r).len() as u64).sum()));
        let traffic = Traffic {
            exchanged,
            balanced: exchange.balanced().into(),
            exchanged_bytes: self.bytes(exchange.all().map(|(_, _, _, id)| id)),
            stored: refill.map_or(0, |(_, samples)| samples),
            store_bytes: refill.map_or(0.0, |(_, samples)| samples as f64 * self.setup.load.bytes),
        };
        let divergence = divergence(owners, &self.labels);
        let left = laid.left.len() as u64;
        let summary = Summary { again: laid.again.into(), left, traffic, held, divergence };
        let cost = self.cost(&plan, &rounds, &summary, refill);
        owners.commit(&exchange);
        owners.leave(laid.left);
        self.watch.begin(self.epoch, owners)?;
        Ok(cost)
    }

    /// What every rank decides for itself.
    fn decide(
        &self,
        owners: &Owners,
        options: &ExchangeOptions,
        chosen: Option<&Chosen>,
    ) -> Result<(Exchange, LaidOut), Invalid> {
        let (seed, epoch) = (self.setup.seed, self.epoch);
        let ids = chosen.map(|chosen| &chosen.ids[..]);
        let labels = if options.choose.by_label() { &self.labels[..] } else { &[] };
        let exchange =
            owners.exchange(seed, epoch, options, View { active: ids, importance: &[], labels })?;
        let active = ids.map(|ids| Active { ids, ..Active::default() });
        Ok((exchange, owners.lay_out(seed, epoch, self.shape(), true, active)))
    }

    /// The ranks of the node that is lost in this epoch.
    fn lost(&self) -> Option<std::ops::Range<u32>> {
        let Machine { ranks, ranks_per_node, .. } = self.setup.machine;
        self.setup.faults.iter().find_map(|fault| match fault {
            Fault::LostNode { rank, epoch } if *epoch == self.epoch => {
                let first = rank - rank % ranks_per_node;
                Some(first..ranks.min(first + ranks_per_node))
            }
            _ => None,
        })
    }

    /// What is due after each batch.
    fn rounds(&self, exchange: &Exchange, batches: u32) -> Vec<Round> {
        if exchange.steps() == 0 {
            return Vec::new();
        }
        let mut rounds = vec![Round::default(); batches as usize];
        let mut batch = 0;
        for (step, from, to, id) in exchange.all() {
            while exchange.due(batch, batches) <= step {
                batch += 1;
            }
            rounds[batch as usize].moves.push((from, to, self.size(id)));
        }
        rounds
    }

    fn size(&self, id: u32) -> f32 {
        self.sizes.get(id as usize).copied().unwrap_or(1.0)
    }

    fn bytes(&self, ids: impl Iterator<Item = u32>) -> f64 {
        ids.map(|id| f64::from(self.size(id))).sum::<f64>() * self.setup.load.bytes
    }

    /// How far what each rank trains in a global shuffle is from the whole.
    fn divergence_of(&self, plan: &Plan) -> Divergence {
        let (mut held, mut labels) = (Vec::new(), Vec::new());
        let mut known = vec![false; self.labels.len()];
        for rank in 0..self.setup.machine.ranks {
            let ids = (0..plan.batches()).flat_map(|batch| plan.batch_of(rank, batch));
            let fresh: Vec<u32> = ids
                .filter(|id| !std::mem::replace(&mut known[id.0 as usize], true))
                .map(|id| {
                    labels.push(self.labels[id.0 as usize]);
                    labels.len() as u32 - 1
                })
                .collect();
            if !fresh.is_empty() {
                held.push(fresh);
            }
        }
        Owners::of(held).map_or_else(|_| Divergence::default(), |owners| divergence(&owners, &labels))
    }

    /// Times the epoch and puts all figures together; a refill is its time and its samples.
    fn cost(
        &mut self,
        plan: &Plan,
        rounds: &[Round],
        summary: &Summary,
        refill: Option<(Ns, u64)>,
    ) -> EpochCost {
        self.seen.note(plan);
        let Setup { machine, load, knobs, faults, .. } = &self.setup;
        let course = Course { machine, load, knobs, faults, plan, sizes: &self.sizes, rounds };
        let timing = run(&course);
        let lost = if refill.is_some() || self.lost().is_some() {
            // The node is lost half-way: until then the work was for nothing.
            let refill = refill.map_or(0, |(time, _)| time);
            timing.wall / 2 + ns(machine.timeout_s) + ns(machine.restart_s) + refill
        } else {
            0
        };
        let from_store = knobs.shuffle == Shuffle::Global;
        EpochCost {
            epoch: self.epoch,
            seconds: seconds(timing.wall + lost),
            causes: Causes::new(&timing, machine.ranks, from_store, lost),
            batches: plan.batches(),
            trained: u64::from(plan.samples()) * u64::from(machine.ranks),
            again: summary.again,
            left: summary.left,
            traffic: summary.traffic,
            held_share: f64::from(summary.held) / f64::from(load.samples),
            seen: self.seen.share(),
            divergence: summary.divergence,
            restarts: u32::from(lost > 0),
            refilled: refill.map_or(0, |(_, samples)| samples),
        }
    }
}

/// The samples of an epoch's selection.
#[derive(Debug)]
struct Chosen {
    ids: Vec<u32>,
    mask: Vec<bool>,
}

/// What is known about an epoch before it is timed.
#[derive(Debug)]
struct Summary {
    again: u64,
    left: u64,
    traffic: Traffic,
    /// The most samples that a rank holds at once.
    held: u32,
    divergence: Divergence,
}

fn plan_ids(plan: &Plan, world: u32) -> impl Iterator<Item = u32> + '_ {
    let of = move |rank| (0..plan.batches()).flat_map(move |batch| plan.batch_of(rank, batch));
    (0..world).flat_map(of).map(|id| id.0)
}
