//! Two jobs with different models on one node, against a node that listens to one of them only.
//!
//! Both train at the same time on the same data over one link, each in an order of its own unless told otherwise: from one
//! seed their orders differ only by what each selects, and a node reads for both at once whoever it listens to. `shared`
//! is the node as it is.
//! For `only-a` and `only-b` everything that the other job would say before an epoch (its plan, how samples stand with
//! it) is dropped on the way: one job's scores alone drive the cache, and the other takes what it finds. So did the
//! publication's ablations (INDA and INDB); with `icache` among the sides they stand in the same table.

use super::link::Link;
use super::side::{self, OURS, Side};
use super::table::hits;
use crate::args::CompareCacheArgs;
use crate::commands::compare::ground::Ground;
use crate::commands::compare::{mean, two_at_once};
use crate::commands::train;
use crate::output::{counted, json, line};
use crate::progress::{EPOCHS, Progress};
use anyhow::Result;
use futures::future::BoxFuture;
use gristmill_node::access::{Access, Announcement, Embedded};
use gristmill_node::config::Config;
use gristmill_node::node::{Ask, Node, NodeReport, Served};
use gristmill_node::{Error, Result as NodeResult};
use gristmill_train::TrainOptions;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;

/// Who is listened to.
const VARIANTS: [(&str, [bool; 2]); 3] =
    [("shared", [true, true]), ("only-a", [true, false]), ("only-b", [false, true])];

/// How far the second job's seeds are from those of the first.
const OWN_SEED: u64 = 1_000;

/// A job that the node serves without hearing what it says.
#[derive(Debug)]
struct Unheard(Embedded);

impl Access for Unheard {
    fn at_hand(&self, ask: Ask) -> Option<Served> {
        self.0.at_hand(ask)
    }

    fn fetch(&self, ask: Ask) -> BoxFuture<'_, NodeResult<Served>> {
        self.0.fetch(ask)
    }

    fn immediate(&self) -> bool {
        self.0.immediate()
    }

    fn announce(&self, _announcement: Announcement) -> NodeResult<()> {
        Ok(())
    }

    fn report(&self) -> Option<NodeReport> {
        self.0.report()
    }

    fn order(&self, epoch: u64) -> Option<Vec<u32>> {
        self.0.order(epoch)
    }
}

/// What both jobs together came to.
#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    completion_s: [f64; 2],
    accuracy: [f64; 2],
    hit_ratio: f64,
    bytes: f64,
}

/// One way to listen, as printed.
#[derive(Debug, Serialize)]
struct Row {
    policy: &'static str,
    size: String,
    side: &'static str,
    /// Until both jobs were done, their tests included.
    completion_s: f64,
    completion_a_s: f64,
    completion_b_s: f64,
    hit_ratio: f64,
    bytes_read: u64,
    /// How many times longer this takes than `shared` of the first side.
    speedup: f64,
    accuracy_a: f64,
    accuracy_b: f64,
    seeds: usize,
    epochs: u64,
    #[serde(flatten)]
    link: Link,
}

/// Trains two jobs at once, in each way to listen, seed by seed.
pub(super) fn jobs(
    args: &CompareCacheArgs,
    ground: &Ground,
    sizes: &[String],
    configs: &[Config],
    link: Link,
) -> Result<()> {
    let drivers = drivers(args.policies.as_deref())?;
    if drivers.iter().any(|side| side.policy.is_none()) || args.svg.is_some() {
        let what = if args.svg.is_some() { "--svg is" } else { "a side without a cache is" };
        return Err(Error::config(format!("{what} not for two jobs"))
            .hint("give sides that have a cache, and no picture")
            .into());
    }
    let other = crate::args::ModelArgs { hidden: args.hidden_b.clone(), ..args.ground.model.clone() };
    let models = [ground.train.clone(), train::options(&other, ground.options.seed)?];
    let (quiet, seeds, epochs) = (args.ground.common.json, args.ground.seeds, ground.train.epochs);
    let total_bytes = ground.set().catalog().total_bytes()?;
    let mut pairs = vec![Vec::new(); sizes.len() * drivers.len() * VARIANTS.len()];
    let all = u64::from(seeds) * pairs.len() as u64 * epochs * 2;
    let mut bar = Progress::new("compare", quiet);
    let mut done = 0;
    for round in 0..seeds {
        let seed = ground.options.seed.wrapping_add(round.into());
        let first_b = args.seed_b.unwrap_or(ground.options.seed.wrapping_add(OWN_SEED));
        let seed_b = first_b.wrapping_add(round.into());
        let mut each = pairs.iter_mut();
        let grounds =
            sizes.iter().zip(configs).flat_map(|ground| drivers.iter().map(move |side| (ground, *side)));
        for ((size, config), side) in grounds {
            for ((name, heard), pairs) in VARIANTS.into_iter().zip(each.by_ref()) {
                let what = format!("{} {name} {size}", side.name);
                bar.at(done, Some(all), EPOCHS, || format!("{what}, seed {} of {seeds}", round + 1));
                let options = side.node(config.settings(), total_bytes, seed)?;
                let options = options.ok_or_else(|| Error::config("this side has no cache"))?;
                let node = Arc::new(Node::new(ground.set().clone(), options)?);
                pairs.push(both(ground, side, &models, &node, heard, [seed, seed_b])?);
                done += epochs * 2;
            }
        }
    }
    bar.done();
    let rows = rows(sizes, &drivers, &pairs, epochs, link);
    if quiet {
        return rows.iter().try_for_each(json);
    }
    text(&rows, args, link).iter().try_for_each(line)
}

/// The sides that were asked for, the first of which is the measure.
fn drivers(typed: Option<&str>) -> Result<Vec<Side>> {
    let mut sides: Vec<Side> = Vec::new();
    for name in typed.unwrap_or(OURS).split(',') {
        let side = side::named(name.trim())?;
        if !sides.contains(&side) {
            sides.push(side);
        }
    }
    Ok(sides)
}

/// Trains both jobs on one node, each on a thread of its own.
fn both(
    ground: &Ground,
    side: Side,
    models: &[TrainOptions; 2],
    node: &Arc<Node>,
    heard: [bool; 2],
    seeds: [u64; 2],
) -> Result<Pair> {
    let start = Instant::now();
    let one = |job: usize| -> Result<(f64, f64)> {
        let embedded = Embedded::join(Arc::clone(node), ["job a", "job b"][job])?;
        let access: Arc<dyn Access> =
            if heard[job] { Arc::new(embedded) } else { Arc::new(Unheard(embedded)) };
        let seed = seeds[job];
        let loader = ground.loader(seed, side.selection(&ground.options.selection)?, Some(access))?;
        let options = TrainOptions { seed, ..models[job].clone() };
        let history = ground.run(&loader, options, &mut |_| ())?;
        let accuracy = history.last().and_then(|row| row.test_accuracy).unwrap_or(0.0);
        Ok((start.elapsed().as_secs_f64(), accuracy))
    };
    let (a, b) = two_at_once(one)?;
    let report = node.report();
    let (hits, requests) = hits(&NodeReport::default(), &report);
    Ok(Pair {
        completion_s: [a.0, b.0],
        accuracy: [a.1, b.1],
        hit_ratio: hits as f64 / requests.max(1) as f64,
        bytes: report.store_bytes as f64,
    })
}

fn rows(sizes: &[String], drivers: &[Side], pairs: &[Vec<Pair>], epochs: u64, link: Link) -> Vec<Row> {
    let of = |pairs: &[Pair], f: fn(&Pair) -> f64| mean(&pairs.iter().map(f).collect::<Vec<_>>());
    let whole = |pair: &Pair| pair.completion_s[0].max(pair.completion_s[1]);
    let groups = sizes.iter().zip(pairs.chunks(drivers.len() * VARIANTS.len()));
    let ways = || drivers.iter().flat_map(|side| VARIANTS.map(|(policy, _)| (side, policy)));
    let one = |(size, group): (&String, &[Vec<Pair>])| -> Vec<Row> {
        let shared_s = group.first().map_or(0.0, |pairs| of(pairs, whole));
        let row = |(pairs, (side, policy)): (&Vec<Pair>, (&Side, &'static str))| Row {
            policy,
            size: size.clone(),
            side: side.name,
            completion_s: of(pairs, whole),
            completion_a_s: of(pairs, |pair| pair.completion_s[0]),
            completion_b_s: of(pairs, |pair| pair.completion_s[1]),
            hit_ratio: of(pairs, |pair| pair.hit_ratio),
            bytes_read: of(pairs, |pair| pair.bytes) as u64,
            speedup: if shared_s > 0.0 { of(pairs, whole) / shared_s } else { 0.0 },
            accuracy_a: of(pairs, |pair| pair.accuracy[0]),
            accuracy_b: of(pairs, |pair| pair.accuracy[1]),
            seeds: pairs.len(),
            epochs,
            link,
        };
        group.iter().zip(ways()).map(row).collect()
    };
    groups.flat_map(one).collect()
}

fn text(rows: &[Row], args: &CompareCacheArgs, link: Link) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<7} {:<8} {:>6}  {:>9}  {:>6}  {:>9}  {:>9}  {:>7}  {:>9}  {:>10}  {:>10}",
        "side",
        "listens",
        "size",
        "both done",
        "",
        "job a",
        "job b",
        "hits",
        "read",
        "accuracy a",
        "accuracy b"
    )];
    for row in rows {
        lines.push(format!(
            "{:<7} {:<8} {:>6}  {:>7.1} s  {:>5.2}x  {:>7.1} s  {:>7.1} s  {:>5.1} %  {:>6.1} MB  {:>8.2} %  {:>8.2} %",
            row.side,
            row.policy,
            row.size,
            row.completion_s,
            row.speedup,
            row.completion_a_s,
            row.completion_b_s,
            row.hit_ratio * 100.0,
            row.bytes_read as f64 / 1e6,
            row.accuracy_a * 100.0,
            row.accuracy_b * 100.0,
        ));
    }
    let (model, seeds) = (&args.ground.model, args.ground.seeds);
    lines.push(format!(
        "{}, {}; job a has hidden layers of {}, job b of {}; x: how many times longer than the first line of its size",
        counted(model.epochs, "epoch", "epochs"),
        counted(seeds.into(), "seed", "seeds"),
        model.hidden,
        args.hidden_b,
    ));
    lines.push(format!("the store: {link}"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_job_counts_and_shared_is_the_measure() {
        let pair = |a, b| Pair { completion_s: [a, b], accuracy: [0.9, 0.8], ..Pair::default() };
        let pairs = [vec![pair(10.0, 8.0)], vec![pair(9.0, 15.0)], vec![pair(20.0, 7.0)]];
        let link = Link::default();
        let twice: Vec<_> = [&pairs[..], &pairs[..]].concat();
        let rows = rows(&["20%".to_string()], &drivers(Some("ours, icache,ours")).unwrap(), &twice, 4, link);
        let figures: Vec<_> =
            rows.iter().map(|row| (row.side, row.policy, row.completion_s, row.speedup)).collect();
        let of =
            |side| [(side, "shared", 10.0, 1.0), (side, "only-a", 15.0, 1.5), (side, "only-b", 20.0, 2.0)];
        assert_eq!(figures, [of("ours"), of("icache")].concat());
        assert!(drivers(Some("ours,")).is_err());
    }
}
