//! The orders in which many ranks train: shuffled globally, or each from what it holds, with an exchange between epochs.
//!
//! All of it comes from the core, as it does in a real training: who holds what, what moves, and how an epoch is laid out.

use gristmill_core::exchange::{Choose, Exchange, ExchangeOptions, Form, Owners, View, measure};
use gristmill_core::plan::{Plan, Shape, Uneven};
use gristmill_node::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// How much is exchanged between epochs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fraction {
    /// Nothing is held: every epoch deals all samples out anew.
    Global,
    /// This share of what each rank holds; 0 is local shuffling.
    Part(f64),
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fraction::Global => f.write_str("global"),
            Fraction::Part(part) => part.fmt(f),
        }
    }
}

impl FromStr for Fraction {
    type Err = Error;

    fn from_str(text: &str) -> Result<Fraction> {
        if text == "global" {
            return Ok(Fraction::Global);
        }
        let part = text.parse().ok().filter(|part| (0.0..=1.0).contains(part));
        part.map(Fraction::Part).ok_or_else(|| {
            Error::config(format!("{text:?} is not a fraction from 0 to 1")).hint("e.g. 0.3; or global")
        })
    }
}

/// Who holds what in the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Partition {
    /// Drawn evenly.
    Even,
    /// Runs of the samples sorted by class: the worst that can happen.
    Sorted,
}

impl Partition {
    /// All of them with their names.
    pub const NAMES: [(&str, Partition); 2] = [("even", Partition::Even), ("sorted", Partition::Sorted)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Partition::NAMES.iter().find(|(_, partition)| *partition == self).map_or("", |(name, _)| name)
    }
}

/// How the samples come to the ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dealing {
    /// How much is exchanged.
    pub fraction: Fraction,
    /// What it begins with.
    pub partition: Partition,
    /// What is sent.
    pub choose: Choose,
}

/// The orders of one training.
#[derive(Debug)]
pub struct Orders {
    shape: Shape,
    seed: u64,
    samples: u32,
    held: Option<(Owners, ExchangeOptions)>,
    /// What moves in the epoch that runs, and what it leaves out.
    moving: Option<(Exchange, Vec<u32>)>,
    moved: u64,
    epochs: u64,
}

impl Orders {
    /// The orders of `world` ranks with batches of `batch` on samples with these labels.
    pub fn new(labels: &[u32], world: u32, batch: u32, seed: u64, dealing: Dealing) -> Result<Orders> {
        let samples = u32::try_from(labels.len())
            .map_err(|_| Error::config(format!("{} samples are too many", labels.len())))?;
        let shape = Shape { batch, rank: 0, world, uneven: Uneven::Drop, drop_last: true };
        if u64::from(batch) * u64::from(world) > u64::from(samples) || batch == 0 || world == 0 {
            return Err(Error::config(format!(
                "{samples} samples are no batch of {batch} for each of {world} ranks"
            ))
            .hint("take fewer ranks, or a smaller batch per rank"));
        }
        let Dealing { fraction, partition, choose } = dealing;
        let held = match fraction {
            Fraction::Global => None,
            Fraction::Part(fraction) => {
                let options = ExchangeOptions { fraction, form: Form::Derangement, choose };
                options.check()?;
                let owners = match partition {
                    Partition::Even => Owners::new(samples, world, seed)?,
                    Partition::Sorted => Owners::sorted(labels, world)?,
                };
                Some((owners, options))
            }
        };
        Ok(Orders { shape, seed, samples, held, moving: None, moved: 0, epochs: 0 })
    }

    /// How many ranks there are.
    pub fn world(&self) -> u32 {
        self.shape.world
    }

    /// Samples of all ranks in one step.
    pub fn global_batch(&self) -> usize {
        self.shape.batch as usize * self.shape.world as usize
    }

    /// The order of an epoch: of every global batch rank r has the r-th part. `importance` has one number per sample.
    pub fn begin(&mut self, epoch: u64, labels: &[u32], importance: &[f32]) -> Result<Vec<u32>> {
        let Some((owners, options)) = &self.held else {
            let whole = Shape { batch: self.global_batch() as u32, world: 1, ..self.shape };
            let plan = Plan::shuffled(self.samples, self.seed, epoch, whole)?;
            let batches =
                (0..plan.batches()).flat_map(|batch| plan.batch(batch).map(|id| id.0).collect::<Vec<_>>());
            return Ok(batches.collect());
        };
        let view = View {
            active: None,
            importance: if options.choose.by_score() { importance } else { &[] },
            labels: if options.choose.by_label() { labels } else { &[] },
        };
        let exchange = owners.exchange(self.seed, epoch, options, view)?;
        let laid = owners.lay_out(self.seed, epoch, self.shape, true, None);
        self.moved += exchange.all().count() as u64;
        self.moving = Some((exchange, laid.left));
        Ok(laid.order)
    }

    /// The epoch is over: what moved is with its new holder.
    pub fn end(&mut self) {
        if let (Some((owners, _)), Some((exchange, left))) = (&mut self.held, self.moving.take()) {
            owners.commit(&exchange);
            owners.leave(left);
        }
        self.epochs += 1;
    }

    /// The share of the samples that moved, per epoch.
    pub fn moved_share(&self) -> f64 {
        self.moved as f64 / (self.epochs.max(1) as f64 * f64::from(self.samples.max(1)))
    }

    /// How far the classes of what a rank holds are from those of all samples (mean total variation); none if nothing is held.
    pub fn divergence(&self, labels: &[u32]) -> Option<f64> {
        self.held.as_ref().map(|(owners, _)| measure::divergence(owners, labels).mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [u32; 60] = {
        let mut labels = [0; 60];
        let mut id = 0;
        while id < 60 {
            labels[id] = (id % 3) as u32;
            id += 1;
        }
        labels
    };

    fn orders(fraction: &str, partition: Partition, choose: Choose) -> Orders {
        let dealing = Dealing { fraction: fraction.parse().unwrap(), partition, choose };
        Orders::new(&LABELS, 6, 5, 1, dealing).unwrap()
    }

    /// The classes that each part of each batch has, epoch after epoch.
    fn classes(orders: &mut Orders, epochs: u64) -> Vec<usize> {
        let mut found = Vec::new();
        for epoch in 0..epochs {
            let order = orders.begin(epoch, &LABELS, &[1.0; 60]).unwrap();
            let mut ids = order.clone();
            ids.sort_unstable();
            assert_eq!(ids, (0..60).collect::<Vec<u32>>(), "every sample once per epoch");
            for part in order.chunks_exact(5) {
                let mut classes: Vec<u32> = part.iter().map(|id| LABELS[*id as usize]).collect();
                classes.sort_unstable();
                classes.dedup();
                found.push(classes.len());
            }
            orders.end();
        }
        found
    }

    #[test]
    fn ranks_that_keep_sorted_slices_see_one_class_and_others_see_more() {
        let mut local = orders("0", Partition::Sorted, Choose::Uniform);
        assert!(classes(&mut local, 3).iter().all(|count| *count == 1));
        assert!(local.moved_share() < 1e-9 && local.divergence(&LABELS).unwrap() > 0.6);
        for (fraction, partition) in
            [("0.5", Partition::Sorted), ("0", Partition::Even), ("global", Partition::Sorted)]
        {
            let found = classes(&mut orders(fraction, partition, Choose::Uniform), 4);
            let later = &found[36..];
            assert!(later.iter().filter(|count| **count > 1).count() > 9, "{fraction}: {later:?}");
        }
    }

    #[test]
    fn sending_what_is_too_much_evens_out_sooner_and_importance_is_obeyed() {
        let after = |choose, epochs| {
            let mut orders = orders("0.5", Partition::Sorted, choose);
            classes(&mut orders, epochs);
            assert!((orders.moved_share() - 0.5).abs() < 1e-9, "{}", orders.moved_share());
            orders.divergence(&LABELS).unwrap()
        };
        assert!(after(Choose::Class, 3) < after(Choose::Uniform, 3));
        let mut wanted = orders("0.1", Partition::Sorted, Choose::Importance);
        let importance: Vec<f32> = (0..60).map(|id| if id < 6 { 1.0 } else { 0.0 }).collect();
        wanted.begin(0, &LABELS, &importance).unwrap();
        let (exchange, _) = wanted.moving.as_ref().unwrap();
        let sent = exchange.all().filter(|(.., id)| *id < 6).count();
        let holders: std::collections::BTreeSet<u32> = (0..6)
            .filter(|rank| wanted.held.as_ref().unwrap().0.held(*rank).iter().any(|id| *id < 6))
            .collect();
        assert_eq!(sent, holders.len(), "each rank that has an important one sends it");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in ["1.5", "-0.1", "all", "nan", ""] {
            assert!(text.parse::<Fraction>().unwrap_err().to_string().contains("from 0 to 1"), "{text}");
        }
        assert_eq!("global".parse::<Fraction>().unwrap().to_string(), "global");
        assert_eq!("0.30".parse::<Fraction>().unwrap().to_string(), "0.3");
        let dealing =
            Dealing { fraction: Fraction::Part(0.3), partition: Partition::Even, choose: Choose::Uniform };
        for (world, batch) in [(0, 1), (61, 1), (6, 0), (6, 11)] {
            assert!(Orders::new(&LABELS, world, batch, 0, dealing).is_err(), "{world} {batch}");
        }
    }
}
