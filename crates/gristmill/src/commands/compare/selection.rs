//! `gristmill compare selection`: every way to select samples.
//!
//! The speed-up is that of the CPU time of training, loading and selecting together: it wobbles less than time on the
//! clock, which is reported beside it.

mod method;
mod table;

use super::ground::Ground;
use crate::args::CompareSelectionArgs;
use crate::commands::train;
use crate::output::{json, line, name, say};
use crate::progress::{EPOCHS, Progress};
use anyhow::Result;
use gristmill_core::family::Families;
use gristmill_node::selection::{FamilyUse, SelectionOptions};
use gristmill_train::TrainOptions;
use method::Method;
use std::process::ExitCode;
use std::sync::Arc;
use table::{Outcome, Table};

pub(in crate::commands) fn selection(args: &CompareSelectionArgs) -> Result<ExitCode> {
    let (ground_args, quiet) = (&args.ground, args.ground.common.json);
    let config = ground_args.config(&[])?;
    ground_args.check()?;
    args.svg.iter().try_for_each(|path| train::check_folder("--svg", path))?;
    let methods = method::parse(&args.methods)?;
    let ground = Ground::open(ground_args, &ground_args.places()?, &config, &config)?;
    let related = methods.iter().any(|method| method.families != FamilyUse::Off);
    let families = if related { Some(ground.source.families(&config, quiet)?) } else { None };
    let mut table = Table::new(&methods);
    let (epochs, seeds) = (ground.train.epochs, ground_args.seeds);
    let all = u64::from(seeds) * methods.len() as u64 * epochs;
    let mut bar = Progress::new("compare", quiet);
    let mut done = 0;
    for round in 0..seeds {
        let seed = ground.options.seed.wrapping_add(round.into());
        for (index, method) in methods.iter().enumerate() {
            let words = || format!("{}, seed {} of {seeds}", method.name, round + 1);
            let outcome = one(&ground, method, families.as_ref(), seed, &mut |epoch| {
                bar.at(done + epoch, Some(all), EPOCHS, words);
            })?;
            table.add(index, outcome);
            done += epochs;
        }
    }
    bar.done();
    let rows = table.rows(epochs);
    if quiet {
        rows.iter().try_for_each(json)?;
    } else {
        table::text(&rows, epochs, seeds).iter().try_for_each(line)?;
    }
    if let Some(path) = &args.svg {
        train::write_file(path, &table::picture(&rows, seeds))?;
        if !quiet {
            say(format_args!("picture written to {}", name(path.display())));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Trains one method from one seed.
fn one(
    ground: &Ground,
    method: &Method,
    families: Option<&Arc<Families>>,
    seed: u64,
    tell: &mut dyn FnMut(u64),
) -> Result<Outcome> {
    let selection = SelectionOptions {
        selection: method.selection.clone(),
        families: method.families,
        ..ground.options.selection.clone()
    };
    let mut loader = ground.loader(seed, selection, None)?;
    if let Some(families) = families.filter(|_| method.families != FamilyUse::Off) {
        loader = loader.with_families(families.clone())?;
    }
    let options = TrainOptions { seed, ..ground.train.clone() };
    let history = ground.run(&loader, options, &mut |row| tell(row.epoch + 1))?;
    Ok(Outcome::of(&history, ground.set().catalog().total_bytes()?))
}
