//! `gristmill compare exchange`: how much ranks must exchange to train as well as from one global shuffle.
//!
//! Every case is trained for real, as many at once as there are cores; the data is read once into memory. Settings are the
//! same for all cases with the same number of ranks; they were chosen by global shuffling and training data alone.

mod case;
mod run;
mod table;

use super::ground::{Ground, Places};
use super::keep::Kept;
use crate::args::CompareExchangeArgs;
use crate::commands::train;
use crate::output::{counted, json, line, name, say};
use crate::progress::{Progress, Unit};
use crate::stop;
use anyhow::Result;
use case::{Cases, Typed};
use gristmill_core::plan::Shape;
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::selection::SelectionOptions;
use gristmill_node::{Error, Kind};
use gristmill_train::ranks::Held;
use run::Bench;
use std::process::ExitCode;

/// What part of the training data judges with `--holdout`.
const HOLDOUT_PART: usize = 12;

pub(in crate::commands) fn exchange(args: &CompareExchangeArgs) -> Result<ExitCode> {
    let (ground_args, quiet) = (&args.ground, args.ground.common.json);
    // The batch is that of one rank, which no loader has here.
    let config = ground_args.common.config(&[
        ("recipe.name", ground_args.recipe.as_ref()),
        ("loader.threads", ground_args.threads.as_ref()),
        ("loader.seed", ground_args.seed.as_ref()),
    ])?;
    ground_args.check()?;
    if ground_args.model.epochs == 0 {
        return Err(Error::config("0 epochs train nothing").hint("ask for at least 1").into());
    }
    args.svg.iter().try_for_each(|path| train::check_folder("--svg", path))?;
    args.keep.iter().try_for_each(|path| train::check_folder("--keep", path))?;
    let typed = Typed::of(args)?;
    let places = match &ground_args.source {
        // No test data is looked at, so none is asked for.
        Some(source) if args.holdout => {
            Places { train: source.clone(), test: source.clone(), shipped: false }
        }
        _ => ground_args.places()?,
    };
    let ground = Ground::open(ground_args, &places, &config, &config)?;
    let digest = format!("{:?}", ground.set().catalog().digest());
    let mut kept = args.keep.as_deref().map(Kept::open).transpose()?;
    let (data, test) = data(&ground, args.holdout, quiet)?;
    let cases = Cases::new(&typed, data.len(), &ground.train)?;
    if !quiet {
        cases.left_out.iter().for_each(say);
    }
    let seeds = ground_args.seeds;
    let bench = Bench {
        train: &data,
        test: &test,
        options: &ground.train,
        seed: ground.options.seed,
        seeds,
        threads: ground.options.threads.max(1),
        identity: format!("{digest} holdout {}", args.holdout),
    };
    let outcomes = match bench.run(&cases.runs, kept.as_mut(), quiet) {
        Err(error) if stop::asked() && args.keep.is_some() => {
            let hint = "the same command goes on from what is kept";
            return Err(Error::new(Kind::Stopped, error.to_string()).hint(hint).into());
        }
        other => other?,
    };
    let rows = table::rows(&cases, &outcomes, data.len());
    let summaries = table::summaries(&rows);
    if quiet {
        rows.iter().try_for_each(json)?;
        summaries.iter().try_for_each(json)?;
    } else {
        table::text(&rows, &summaries).iter().try_for_each(line)?;
    }
    if let Some(path) = &args.svg {
        train::write_file(path, &table::picture(&rows, seeds))?;
        if !quiet {
            say(format_args!("picture written to {}", name(path.display())));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The samples to train on and to judge by, in memory.
fn data(ground: &Ground, holdout: bool, quiet: bool) -> Result<(Held, Held)> {
    let options = LoaderOptions {
        shape: Shape::single(256),
        shuffle: false,
        selection: SelectionOptions::default(),
        ..ground.options.clone()
    };
    let loader = Loader::new(ground.set().clone(), Some(&ground.recipe), options)?;
    let mut bar = Progress::new("data", quiet);
    let read = Unit::Things("sample", "samples", "read");
    let mut held = |loader: &Loader| -> Result<Held> {
        let total = u64::from(loader.set().catalog().len());
        let held =
            Held::read(loader, &stop::asked, &mut |done| bar.at(done, Some(total), read, String::new))?;
        held.ok_or_else(|| Error::new(Kind::Stopped, "stopped by Ctrl-C").into())
    };
    let data = held(&loader)?;
    let (data, test) = if holdout {
        let count = data.len() / HOLDOUT_PART;
        data.hold_out(count)
    } else {
        let test = held(&ground.test)?;
        (data, test)
    };
    bar.done();
    if test.is_empty() {
        return Err(Error::config(format!(
            "{} are too few to hold some out",
            counted(data.len() as u64, "sample", "samples")
        ))
        .into());
    }
    Ok((data, test))
}
