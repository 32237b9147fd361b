//! `gristmill compare selection`: every way to select samples, trained side by side from several seeds.
//!
//! Methods take turns within each seed, so that whatever else the machine does falls on all of them. The speed-up is
//! that of the CPU time of training, loading and selecting together: it wobbles less than time on the clock, which is
//! reported beside it.

mod method;
mod table;

use super::source::{self, Asked, Source};
use super::train;
use crate::args::CompareSelectionArgs;
use crate::output::{json, line, name, say};
use crate::progress::{EPOCHS, Progress};
use crate::stop;
use anyhow::Result;
use gristmill_core::family::Families;
use gristmill_node::Error;
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::open;
use gristmill_node::selection::{FamilyUse, SelectionOptions};
use gristmill_ops::Recipe;
use gristmill_train::{Ended, Event, Run, TrainOptions, Trainer};
use method::Method;
use std::process::ExitCode;
use std::sync::Arc;
use table::{Outcome, Table};

/// The most seeds: more would take days and say nothing new.
const SEEDS_MAX: u32 = 1_000;

/// What all methods are trained on.
struct Ground {
    set: Arc<DataSet>,
    recipe: Recipe,
    test: Loader,
    options: LoaderOptions,
    train: TrainOptions,
    /// Near-duplicates, if any method looks at them.
    families: Option<Arc<Families>>,
}

pub(super) fn selection(args: &CompareSelectionArgs) -> Result<ExitCode> {
    let config = args.common.config(&[
        ("recipe.name", args.recipe.as_ref()),
        ("loader.batch", args.batch.as_ref()),
        ("loader.threads", args.threads.as_ref()),
        ("loader.seed", args.seed.as_ref()),
    ])?;
    if args.seeds == 0 || args.seeds > SEEDS_MAX {
        let seeds = args.seeds;
        return Err(Error::config(format!("--seeds {seeds} is not from 1 to {SEEDS_MAX}")).into());
    }
    args.svg.iter().try_for_each(|path| train::check_folder("--svg", path))?;
    let methods = method::parse(&args.methods)?;
    let related = methods.iter().any(|method| method.families != FamilyUse::Off);
    let ground = open_ground(args, &config, related)?;
    let mut table = Table::new(&methods);
    let epochs = ground.train.epochs;
    let all = u64::from(args.seeds) * methods.len() as u64 * epochs;
    let mut bar = Progress::new("compare", args.common.json);
    let mut done = 0;
    for round in 0..args.seeds {
        let seed = ground.options.seed.wrapping_add(round.into());
        for (index, method) in methods.iter().enumerate() {
            let words = || format!("{}, seed {} of {}", method.name, round + 1, args.seeds);
            let outcome = one(&ground, method, seed, &mut |epoch| {
                bar.at(done + epoch, Some(all), EPOCHS, words);
            })?;
            table.add(index, outcome);
            done += epochs;
        }
    }
    bar.done();
    let rows = table.rows(epochs);
    if args.common.json {
        rows.iter().try_for_each(json)?;
    } else {
        table::text(&rows, epochs, args.seeds).iter().try_for_each(line)?;
    }
    if let Some(path) = &args.svg {
        train::write_file(path, &table::picture(&rows, args.seeds))?;
        if !args.common.json {
            say(format_args!("picture written to {}", name(path.display())));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Trains one method from one seed.
fn one(ground: &Ground, method: &Method, seed: u64, tell: &mut dyn FnMut(u64)) -> Result<Outcome> {
    let selection = SelectionOptions {
        selection: method.selection.clone(),
        families: method.families,
        epochs: Some(u32::try_from(ground.train.epochs).unwrap_or(u32::MAX)),
        ..ground.options.selection.clone()
    };
    let options = LoaderOptions { seed, selection, ..ground.options.clone() };
    let mut loader = Loader::new(ground.set.clone(), Some(&ground.recipe), options)?;
    if let Some(families) = ground.families.as_ref().filter(|_| method.families != FamilyUse::Off) {
        loader = loader.with_families(families.clone())?;
    }
    let mut trainer = Trainer::new(TrainOptions { seed, ..ground.train.clone() }, &loader)?;
    let ended = trainer.run(Run {
        train: &loader,
        test: Some(&ground.test),
        checkpoint: None,
        stop: &stop::asked,
        watch: &mut |event| {
            if let Event::Epoch(row) = event {
                tell(row.epoch + 1);
            }
            Ok(())
        },
    })?;
    if ended == Ended::Stopped {
        stop::check()?;
    }
    Ok(Outcome::of(trainer.history(), ground.set.catalog().total_bytes()?))
}

fn open_ground(args: &CompareSelectionArgs, config: &Config, related: bool) -> Result<Ground> {
    let settings = config.settings();
    let (source, beside) = if let Some(source) = &args.source {
        (source.clone(), source::test_beside(source))
    } else {
        let Some((train, test)) = source::shipped() else {
            return Err(Error::config("the shipped pictures are not here").hint("name a data set").into());
        };
        (train.display().to_string(), Some(test))
    };
    let test = args.test.clone().or_else(|| beside.map(|path| path.display().to_string()));
    let Some(test) = test else {
        return Err(Error::config("methods are compared by their accuracy on test data, and there is none")
            .hint("name some with --test")
            .into());
    };
    let options = settings.loader();
    let train = train::options(&args.model, options.seed)?;
    if !args.common.json {
        say(format_args!("training data: {}\ntest data: {}", name(&source), name(&test)));
    }
    let asked = Asked { quiet: args.common.json, ..Asked::default() };
    let source = Source::open(&source, asked, config)?;
    let recipe = train::recipe(settings.recipe(), &source.set)?;
    let own = args.test_recipe.as_deref().map(open::recipe).transpose()?.flatten();
    let test_set = Source::open(&test, asked, config)?.set;
    let test = train::test_loader(test_set, own.as_ref().unwrap_or(&recipe), settings)?;
    let families = if related { Some(source.families(config, args.common.json)?) } else { None };
    Ok(Ground { set: source.set, recipe, test, options, train, families })
}
