//! `gristmill compare cache`: ways to keep samples, each trained from a slow store.
//!
//! Every side gets a node of its own in front of one data set, whose store is slowed down to the link that was asked
//! for; the data set is never held in memory as a whole. Test data is read at full speed and its time is not counted.

mod jobs;
mod link;
mod side;
mod table;

use super::ground::{Ground, Places};
use super::unpack;
use crate::args::CompareCacheArgs;
use crate::commands::train;
use crate::output::{json, line, name, say};
use crate::progress::{EPOCHS, Progress};
use anyhow::Result;
use gristmill_node::Error;
use gristmill_node::access::{Access, Embedded};
use gristmill_node::config::Config;
use gristmill_node::node::{Node, NodeReport};
use gristmill_train::TrainOptions;
use link::{Link, Typed};
use side::Side;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use table::{Entry, Outcome, Tally};
use tempfile::TempDir;

/// The most sizes of a cache that are compared at once.
const SIZES_MAX: usize = 64;

pub(in crate::commands) fn cache(args: &CompareCacheArgs) -> Result<ExitCode> {
    args.ground.check()?;
    args.svg.iter().try_for_each(|path| train::check_folder("--svg", path))?;
    let sizes = sizes(&args.size)?;
    let data = Data::find(args)?;
    let typed = match Typed::of(args)? {
        Some(typed) => typed,
        None => Typed::measured(&data.open(args, &sizes[0], &Typed::default())?, args)?,
    };
    let configs = sizes.iter().map(|size| data.config(args, size, &typed)).collect::<Result<Vec<_>>>()?;
    let ground = data.open(args, &sizes[0], &typed)?;
    let link = typed.link(configs[0].settings().store().throttle);
    match args.jobs {
        1 => many(args, &ground, &sizes, &configs, link)?,
        2 => jobs::jobs(args, &ground, &sizes, &configs, link)?,
        other => return Err(Error::config(format!("--jobs {other} is neither 1 nor 2")).into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// The sizes that were typed.
fn sizes(text: &str) -> Result<Vec<String>> {
    let mut sizes: Vec<String> = Vec::new();
    for size in text.split(',').map(str::trim).filter(|size| !size.is_empty()) {
        if !sizes.iter().any(|known| known == size) {
            sizes.push(size.into());
        }
    }
    if sizes.is_empty() || sizes.len() > SIZES_MAX {
        let error = Error::config(format!("--size {text:?} names {} sizes", sizes.len()));
        return Err(error.hint(format!("name 1 to {SIZES_MAX}, e.g. 10%,20%")).into());
    }
    Ok(sizes)
}

/// Where the data lies.
struct Data {
    places: Places,
    /// What is shipped is unpacked for as long as this lives; the catalog goes with it.
    unpacked: Option<TempDir>,
}

impl Data {
    fn find(args: &CompareCacheArgs) -> Result<Data> {
        let mut places = args.ground.places()?;
        if !places.shipped {
            return Ok(Data { places, unpacked: None });
        }
        let (folder, images) = unpack::unpack(Path::new(&places.train))?;
        places.train = images.display().to_string();
        Ok(Data { places, unpacked: Some(folder) })
    }

    /// The settings of one size of cache, in front of the slow store.
    fn config(&self, args: &CompareCacheArgs, size: &String, typed: &Typed) -> Result<Config> {
        let catalogs = self.unpacked.as_ref().map(|folder| folder.path().display().to_string());
        let config = args.ground.config(&[
            ("cache.size", Some(size)),
            ("cache.gap_bytes_max", typed.gap_bytes_max.as_ref()),
            ("catalog.folder", catalogs.as_ref()),
            ("store.throttle_latency_ms", typed.latency_ms.as_ref()),
            ("store.throttle_bytes_per_s", typed.bytes_per_s.as_ref()),
            ("store.throttle_requests_per_s", typed.requests_per_s.as_ref()),
        ])?;
        if config.settings().node(u64::MAX >> 1).is_none() {
            return Err(Error::config(format!("--size {size} is not the size of a cache in this process"))
                .hint("give a share such as 20% or a size such as 4GiB; without a cache is the side none")
                .into());
        }
        Ok(config)
    }

    fn open(&self, args: &CompareCacheArgs, size: &String, typed: &Typed) -> Result<Ground> {
        let test = args.ground.config(&[])?;
        Ground::open(&args.ground, &self.places, &self.config(args, size, typed)?, &test)
    }
}

/// Trains every side with every size, seed by seed.
fn many(
    args: &CompareCacheArgs,
    ground: &Ground,
    sizes: &[String],
    configs: &[Config],
    link: Link,
) -> Result<()> {
    let (quiet, seeds, epochs) = (args.ground.common.json, args.ground.seeds, ground.train.epochs);
    let total_bytes = ground.set().catalog().total_bytes()?;
    let mut entries = Vec::new();
    let mut settings = Vec::new();
    for (size, config) in sizes.iter().zip(configs) {
        for side in side::parse(args.policies.as_deref())? {
            let node = side.node(config.settings(), total_bytes, 0)?;
            let known = entries.iter().any(|entry: &Entry| entry.side == side);
            if node.is_none() && known {
                continue; // without a cache there is no size
            }
            let share = node.as_ref().map_or(0.0, |n| n.memory_bytes_max as f64 / total_bytes.max(1) as f64);
            let size = if node.is_some() { size.clone() } else { "off".into() };
            entries.push(Entry { side, size, share, outcomes: Vec::new() });
            settings.push(config.settings());
        }
    }
    let all = u64::from(seeds) * entries.len() as u64 * epochs;
    let mut bar = Progress::new("compare", quiet);
    let mut done = 0;
    for round in 0..seeds {
        let seed = ground.options.seed.wrapping_add(round.into());
        for (entry, settings) in entries.iter_mut().zip(&settings) {
            let words = || format!("{} {}, seed {} of {seeds}", entry.side.name, entry.size, round + 1);
            let node = entry.side.node(settings, total_bytes, seed)?;
            let node =
                node.map(|options| Node::new(ground.set().clone(), options)).transpose()?.map(Arc::new);
            let outcome = one(ground, entry.side, node.as_ref(), seed, &mut |epoch| {
                bar.at(done + epoch, Some(all), EPOCHS, words);
            })?;
            entry.outcomes.push(outcome);
            done += epochs;
        }
    }
    bar.done();
    let rows = table::rows(&entries, epochs, link);
    if quiet {
        rows.iter().try_for_each(json)?;
    } else {
        table::text(&rows, epochs, seeds, link).iter().try_for_each(line)?;
    }
    if let Some(path) = &args.svg {
        train::write_file(path, &table::picture(&rows, seeds))?;
        if !quiet {
            say(format_args!("picture written to {}", name(path.display())));
        }
    }
    Ok(())
}

/// Trains one side from one seed.
fn one(
    ground: &Ground,
    side: Side,
    node: Option<&Arc<Node>>,
    seed: u64,
    tell: &mut dyn FnMut(u64),
) -> Result<Outcome> {
    let access = match node {
        Some(node) => Some(Arc::new(Embedded::join(Arc::clone(node), side.name)?) as Arc<dyn Access>),
        None => None,
    };
    let loader = ground.loader(seed, side.selection(&ground.options.selection)?, access)?;
    let mut epochs = Vec::new();
    let mut before = NodeReport::default();
    let options = TrainOptions { seed, ..ground.train.clone() };
    let history = ground.run(&loader, options, &mut |row| {
        let after = node.map(|node| node.report()).unwrap_or_default();
        epochs.push(Tally::of(row, &before, &after));
        before = after;
        tell(row.epoch + 1);
    })?;
    Ok(Outcome { accuracy: history.last().and_then(|row| row.test_accuracy).unwrap_or(0.0), epochs })
}
