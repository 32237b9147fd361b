//! Who holds which samples, and what the ranks swap during an epoch.
//!
//! Each rank holds a slice of the data set and trains only on that; a fraction of every slice changes hands per epoch
//! (Partial Local Shuffling). [`Owners`] says who holds what when an epoch begins, [`Owners::exchange`] what moves during
//! it, [`Owners::lay_out`] in which order it is trained. All three are pure, so every rank computes the same and not
//! one message is needed to agree. What is received is trained from the next epoch on: [`Owners::commit`].
//!
//! An exchange has steps. In each step a rank sends at most one sample and receives at most one, so slices keep their
//! sizes, and a rank never holds more than its slice and the fraction that is coming in.
//!
//! Deliberately not here: bytes, messages, disks and crashes (`gristmill-node`), and which samples are worth training
//! (`select`), which only hands its list in.

mod balance;
mod lay_out;
pub mod measure;
mod pick;
mod steps;
#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these values are exact")]
mod tests;

pub use lay_out::{Active, LaidOut};
pub use measure::next_fraction;

use crate::Invalid;
use crate::rng::{Purpose, Stream, mix};
use balance::Balance;
use pick::Queue;

/// No sample moves here.
const NONE: u32 = u32::MAX;
/// The first byte of saved owners.
const VERSION: u8 = 1;

/// How it is decided who sends to whom in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// A random order of the ranks without a fixed point: every rank sends and receives in every step.
    #[default]
    Derangement,
    /// Any random order, as published: a rank that is its own destination keeps its sample.
    Plain,
}

impl Form {
    /// All forms with their names.
    pub const NAMES: [(&str, Form); 2] = [("derangement", Form::Derangement), ("plain", Form::Plain)];
}

/// Which samples of a slice are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choose {
    /// Any, with equal chances, as published.
    #[default]
    Uniform,
    /// Important ones rather than others: drawn without replacement, with chances as their scores.
    Importance,
    /// Those of the classes that the slice has too much of, so that slices become alike sooner.
    Class,
    /// As by class, and within a class important ones rather than others.
    Balanced,
}

impl Choose {
    /// All choices with their names.
    pub const NAMES: [(&str, Choose); 4] = [
        ("uniform", Choose::Uniform),
        ("importance", Choose::Importance),
        ("class", Choose::Class),
        ("balanced", Choose::Balanced),
    ];

    /// Whether it goes by scores.
    pub fn by_score(self) -> bool {
        matches!(self, Choose::Importance | Choose::Balanced)
    }

    /// Whether it goes by labels.
    pub fn by_label(self) -> bool {
        matches!(self, Choose::Class | Choose::Balanced)
    }
}

/// How much is exchanged, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExchangeOptions {
    /// The share of each slice that changes hands per epoch, from 0 (local shuffling) to 1.
    pub fraction: f64,
    /// Who sends to whom.
    pub form: Form,
    /// What is sent.
    pub choose: Choose,
}

impl ExchangeOptions {
    /// An error unless the fraction is one.
    pub fn check(&self) -> Result<(), Invalid> {
        if (0.0..=1.0).contains(&self.fraction) {
            return Ok(());
        }
        Err(Invalid(format!(
            "the exchange's fraction is {}; it must be from 0 (nothing is exchanged) to 1 (everything)",
            self.fraction
        )))
    }
}

/// What is known about the samples beyond who holds them; everything is optional.
#[derive(Debug, Clone, Copy, Default)]
pub struct View<'a> {
    /// The ids that the epoch trains on, ascending; none for all. Only these are exchanged, and the ranks are evened out.
    pub active: Option<&'a [u32]>,
    /// Each sample's importance; asked for by choices that go [by score](Choose::by_score).
    pub importance: &'a [f32],
    /// Each sample's label; asked for by those that go [by label](Choose::by_label).
    pub labels: &'a [u32],
}

/// Who holds what when an epoch begins. The same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners {
    held: Vec<Vec<u32>>,
    samples: u32,
    /// Samples that were chosen for the epoch before but left out to even out the ranks; they go first in this one.
    left: Vec<u32>,
}

impl Owners {
    /// An even partition at random.
    pub fn new(samples: u32, world: u32, seed: u64) -> Result<Owners, Invalid> {
        check_world(samples, world)?;
        let order = Stream::new(seed, 0, Purpose::TrainingOrder, &[0]).permutation(samples);
        Ok(Owners::cut(&order, world))
    }

    /// Slices of the samples sorted by label: each rank has hardly more than one class. The worst case, for comparisons.
    pub fn sorted(labels: &[u32], world: u32) -> Result<Owners, Invalid> {
        check_world(labels.len() as u32, world)?;
        let mut order: Vec<u32> = (0..labels.len() as u32).collect();
        order.sort_by_key(|&id| labels[id as usize]);
        Ok(Owners::cut(&order, world))
    }

    /// A given partition: every id from 0 on exactly once, no slice empty.
    pub fn of(held: Vec<Vec<u32>>) -> Result<Owners, Invalid> {
        let samples: usize = held.iter().map(Vec::len).sum();
        let samples = u32::try_from(samples).map_err(|_| Invalid("too many samples for one job".into()))?;
        check_world(samples, held.len() as u32)?;
        if let Some(rank) = held.iter().position(Vec::is_empty) {
            return Err(Invalid(format!("rank {rank} holds no sample; every rank must hold at least one")));
        }
        let mut seen = vec![false; samples as usize];
        for &id in held.iter().flatten() {
            match seen.get_mut(id as usize) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => return Err(Invalid(format!("sample {id} is held twice"))),
                None => return Err(Invalid(format!("there is no sample {id}: there are {samples}"))),
            }
        }
        Ok(Owners { held, samples, left: Vec::new() })
    }

    /// Consecutive runs of an order; the first ranks have one more where it does not divide.
    fn cut(order: &[u32], world: u32) -> Owners {
        let (each, more) = (order.len() / world as usize, order.len() % world as usize);
        let mut rest = order;
        let held = (0..world as usize).map(|rank| {
            let (slice, after) = rest.split_at(each + usize::from(rank < more));
            rest = after;
            slice.to_vec()
        });
        Owners { held: held.collect(), samples: order.len() as u32, left: Vec::new() }
    }

    /// How many ranks there are.
    pub fn world(&self) -> u32 {
        self.held.len() as u32
    }

    /// How many samples all of them hold together.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// What a rank holds. Panics if there is no such rank.
    pub fn held(&self, rank: u32) -> &[u32] {
        &self.held[rank as usize]
    }

    /// The most samples a rank holds at any moment of an epoch: its slice, and what comes in.
    pub fn held_max(&self, rank: u32, fraction: f64) -> u32 {
        let share = f64::from(self.held(rank).len() as u32);
        (share * (1.0 + fraction.clamp(0.0, 1.0))).ceil() as u32
    }

    /// What moves during an epoch.
    pub fn exchange(
        &self,
        seed: u64,
        epoch: u64,
        options: &ExchangeOptions,
        view: View<'_>,
    ) -> Result<Exchange, Invalid> {
        options.check()?;
        self.check(options, view)?;
        let smallest = self.held.iter().map(Vec::len).min().unwrap_or(0);
        let world = self.world();
        let steps = if world == 1 { 0 } else { (options.fraction * smallest as f64).floor() as u32 };
        let mut exchange = Exchange { epoch, world, steps, balanced: 0, ids: Vec::new(), to: Vec::new() };
        if steps == 0 {
            return Ok(exchange);
        }
        let mut queues = Queue::all(self, seed, epoch, options.choose, view);
        let mut balance = Balance::new(&queues, view.active.is_some());
        let all = steps as usize * world as usize;
        (exchange.ids, exchange.to) = (vec![NONE; all], vec![NONE; all]);
        let rows = exchange.ids.chunks_mut(world as usize).zip(exchange.to.chunks_mut(world as usize));
        for (step, (ids, to)) in rows.enumerate() {
            exchange.balanced += balance.pair(&mut queues, ids, to);
            let mut stream = Stream::new(seed, epoch, Purpose::ExchangeRanks, &[step as u64]);
            steps::fill(options.form, &mut stream, to);
            for rank in 0..world as usize {
                if ids[rank] == NONE {
                    // A rank that keeps its sample has had its turn all the same.
                    let next = queues[rank].next(to[rank] != rank as u32);
                    ids[rank] = if to[rank] == rank as u32 { NONE } else { next };
                }
            }
        }
        Ok(exchange)
    }

    fn check(&self, options: &ExchangeOptions, view: View<'_>) -> Result<(), Invalid> {
        let samples = self.samples as usize;
        let lacks = |what: &str, len: usize| {
            Invalid(format!("the exchange needs {what} for {samples} samples, but was given {len}"))
        };
        match options.choose {
            choose if choose.by_score() && view.importance.len() != samples => {
                Err(lacks("scores", view.importance.len()))
            }
            choose if choose.by_label() && view.labels.len() != samples => {
                Err(lacks("labels", view.labels.len()))
            }
            _ => match view.active.and_then(<[u32]>::last) {
                Some(&id) if id >= self.samples => {
                    Err(Invalid(format!("there is no sample {id}: there are {samples}")))
                }
                _ => Ok(()),
            },
        }
    }

    /// The order in which a rank goes through its slice: places in [`Owners::held`].
    fn local_order(&self, seed: u64, epoch: u64, rank: u32) -> Vec<u32> {
        let stream = Stream::new(seed, epoch, Purpose::ExchangeOrder, &[u64::from(rank)]);
        stream.permutation(self.held(rank).len() as u32)
    }

    /// After an epoch: each slice is what was kept, in its old order, and then what came in, step by step.
    pub fn commit(&mut self, exchange: &Exchange) {
        let mut moved = vec![false; self.samples as usize];
        exchange.all().for_each(|(_, _, _, id)| moved[id as usize] = true);
        self.held.iter_mut().for_each(|held| held.retain(|&id| !moved[id as usize]));
        exchange.all().for_each(|(_, _, to, id)| self.held[to as usize].push(id));
    }

    /// Notes what [`Owners::lay_out`] left out of the epoch that ends now: it goes first in the next one.
    pub fn leave(&mut self, mut left: Vec<u32>) {
        left.sort_unstable();
        self.left = left;
    }

    /// A number that two ranks share only if they agree on who holds what.
    pub fn digest(&self) -> u64 {
        let start = mix(u64::from(self.samples));
        let held = self.held.iter().fold(start, |hash, held| {
            held.iter().fold(mix(hash ^ held.len() as u64), |hash, &id| mix(hash ^ u64::from(id)))
        });
        self.left.iter().fold(held, |hash, &id| mix(hash ^ u64::from(id)))
    }

    /// All of it, for a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.world().to_le_bytes());
        for list in self.held.iter().chain([&self.left]) {
            out.extend_from_slice(&(list.len() as u32).to_le_bytes());
            list.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
        }
        out
    }

    /// What [`Owners::to_bytes`] made; none if that is not what it is.
    pub fn from_bytes(bytes: &[u8]) -> Option<Owners> {
        let (&version, mut rest) = bytes.split_first()?;
        let number = |rest: &mut &[u8]| {
            let (four, after) = rest.split_first_chunk::<4>()?;
            *rest = after;
            Some(u32::from_le_bytes(*four))
        };
        let list = |rest: &mut &[u8]| {
            let len = number(rest)? as usize;
            let (ids, after) = rest.split_at_checked(len.checked_mul(4)?)?;
            *rest = after;
            let ids =
                ids.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
            Some(ids.collect::<Vec<u32>>())
        };
        let world = number(&mut rest).filter(|_| version == VERSION)?;
        let mut held = Vec::new();
        for _ in 0..world {
            held.push(list(&mut rest)?);
        }
        let left = list(&mut rest)?;
        let owners = Owners::of(held).ok()?;
        let sound = rest.is_empty() && left.iter().all(|&id| id < owners.samples) && left.is_sorted();
        sound.then_some(Owners { left, ..owners })
    }
}

fn check_world(samples: u32, world: u32) -> Result<(), Invalid> {
    if world == 0 {
        return Err(Invalid("there are 0 ranks; there must be at least 1".into()));
    }
    if world > samples {
        return Err(Invalid(format!(
            "{world} ranks cannot each hold a slice of {samples} samples; use at most {samples} ranks"
        )));
    }
    Ok(())
}

/// One sample that a rank sends or receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// In which step.
    pub step: u32,
    /// Which sample.
    pub id: u32,
    /// The rank on the other side.
    pub peer: u32,
}

/// What moves during one epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    epoch: u64,
    world: u32,
    steps: u32,
    balanced: u32,
    /// Step by step, rank by rank: what is sent, and to whom; `NONE` where a sample stays.
    ids: Vec<u32>,
    to: Vec<u32>,
}

impl Exchange {
    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many steps it has, on every rank alike.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// How many moves only even out what a selection left.
    pub fn balanced(&self) -> u32 {
        self.balanced
    }

    /// Every move as step, sender, receiver and sample, in the order of steps.
    pub fn all(&self) -> impl Iterator<Item = (u32, u32, u32, u32)> + '_ {
        let moves = self.ids.iter().zip(&self.to).enumerate();
        moves.filter(|(_, (id, _))| **id != NONE).map(|(at, (&id, &to))| {
            let (step, from) = (at as u32 / self.world, at as u32 % self.world);
            (step, from, to, id)
        })
    }

    /// What a rank sends, in the order of steps.
    pub fn sends(&self, rank: u32) -> Vec<Move> {
        let own = (0..self.steps).map(|step| (step, (step * self.world + rank) as usize));
        let moves = own.filter(|(_, at)| self.ids[*at] != NONE);
        moves.map(|(step, at)| Move { step, id: self.ids[at], peer: self.to[at] }).collect()
    }

    /// What a rank receives, in the order of steps.
    pub fn receives(&self, rank: u32) -> Vec<Move> {
        let own = self.all().filter(|(_, _, to, _)| *to == rank);
        own.map(|(step, from, _, id)| Move { step, id, peer: from }).collect()
    }

    /// How many steps are under way once batch `batch` of `batches` is handed out: as many per batch as evenly as
    /// can be, and all of them with the last.
    pub fn due(&self, batch: u32, batches: u32) -> u32 {
        let done = u64::from(batch.saturating_add(1)).min(u64::from(batches));
        (u64::from(self.steps) * done).checked_div(u64::from(batches)).map_or(self.steps, |due| due as u32)
    }
}
