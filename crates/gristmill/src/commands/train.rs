//! `gristmill train`: the whole loop on a small model, with a live display, checkpoints and a report.

mod display;
mod outcome;
mod page;
mod steered;

pub(super) use outcome::seconds;

use super::source::{self, Asked, Source};
use crate::args::{Falls, ModelArgs, TrainArgs};
use crate::output::{counted, name, say};
use crate::stop;
use anyhow::Result;
use display::Display;
use gristmill_core::family::Families;
use gristmill_core::plan::Shape;
use gristmill_node::config::{Config, Settings};
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::selection::{FamilyUse, SelectionOptions};
use gristmill_node::steer::SteerOptions;
use gristmill_node::{Error, Kind, open};
use gristmill_ops::{Encoding, Recipe};
use gristmill_train::{Checkpoint, Ended, Run, Schedule, Sgd, TrainOptions, Trainer};
use page::Watched;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Settings that change what is trained, so that a checkpoint belongs to them.
const IDENTITY_SECTION: &str = "selection.";
const IDENTITY_KEYS: [&str; 9] = [
    "loader.batch",
    "loader.seed",
    "loader.shuffle",
    "loader.uneven",
    "loader.drop_last",
    "loader.rank",
    "loader.world",
    "recipe.name",
    "steer.probe_share",
];

/// Training and test data, ready to be read.
pub(super) struct Data {
    pub(super) train: Loader,
    pub(super) test: Option<Loader>,
    /// Near-duplicates, if they are known.
    families: Option<Arc<Families>>,
}

pub(super) fn train(args: &TrainArgs) -> Result<ExitCode> {
    let epochs = args.model.epochs.to_string();
    let config = args.common.config(&[
        ("selection.kind", args.selection.as_ref()),
        ("selection.epochs", Some(&epochs)),
        ("selection.families", args.families.as_ref()),
        ("recipe.name", args.recipe.as_ref()),
        ("loader.batch", args.batch.as_ref()),
        ("loader.threads", args.threads.as_ref()),
        ("loader.seed", args.seed.as_ref()),
        ("store.throttle_latency_ms", args.latency_ms.as_ref()),
        ("store.throttle_bytes_per_s", args.bytes_per_s.as_ref()),
        ("store.throttle_requests_per_s", args.requests_per_s.as_ref()),
        ("page.listen", args.page.as_ref()),
    ])?;
    let settings = config.settings();
    let options = options(&args.model, settings.loader().seed)?;
    args.report.iter().try_for_each(|path| outcome::check(path))?;
    page::check_listen(&config)?;
    let data = open_data(args, &config)?;
    let quiet = args.common.json;
    let watched = Watched::open(&config, &args.report, &data.train, data.families.as_deref())?;
    let checkpoint = args.checkpoint.as_ref().map(|path| Checkpoint {
        path: path.clone(),
        every_batches: args.checkpoint_batches,
        identity: identity(&config, &options, &data.train),
    });
    let mut trainer = begin(args, options, &data.train, checkpoint.as_ref())?;
    let mut display = Display::new(quiet, data.train.options().steer);
    display.begin(trainer.history())?;
    watched.resumed(trainer.history());
    let ended = trainer.run(Run {
        train: &data.train,
        test: data.test.as_ref(),
        checkpoint: checkpoint.as_ref(),
        stop: &stop::asked,
        watch: &mut |event| {
            watched.tell(&event);
            display.show(&event)
        },
    });
    display.end();
    let ended = ended?;
    let written = watched.write(quiet);
    let reports = |trainer: &mut Trainer| -> Result<()> {
        for path in args.report.iter().filter(|path| !page::is_page(path)) {
            outcome::write(path, trainer, display.steered())?;
            if !quiet {
                say(format_args!("report written to {}", name(path.display())));
            }
        }
        Ok(())
    };
    if ended == Ended::Stopped {
        // What was learned until then is worth reading, too.
        if !trainer.history().is_empty()
            && let Err(error) = reports(&mut trainer)
        {
            say(format_args!("a report was not written: {error:#}"));
        }
        return Err(stopped(&trainer, checkpoint.as_ref()).into());
    }
    outcome::conclude(&mut trainer, display.steered(), quiet)?;
    let fallbacks = data.train.access().map_or(0, |access| access.fallbacks());
    if fallbacks > 0 {
        let samples = counted(fallbacks, "sample", "samples");
        say(format_args!("{samples} came from the store because the shared node did not give them"));
    }
    reports(&mut trainer)?;
    Ok(if written { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The options of the trainer from what was typed.
pub(super) fn options(model: &ModelArgs, seed: u64) -> Result<TrainOptions> {
    let widths = model.hidden.split(',').map(str::trim).filter(|width| !width.is_empty());
    let hidden = widths
        .map(|width| {
            let number = width.parse().ok().filter(|width| *width > 0);
            number.ok_or_else(|| {
                Error::config(format!("--hidden {:?}: {width:?} is not the width of a layer", model.hidden))
                    .hint("e.g. --hidden 256,128")
            })
        })
        .collect::<gristmill_node::Result<Vec<usize>>>()?;
    let schedule = match model.schedule {
        Falls::Cosine => Schedule::Cosine,
        Falls::Step => Schedule::Step,
    };
    let sgd = Sgd { momentum: model.momentum, weight_decay: model.weight_decay };
    Ok(TrainOptions { hidden, epochs: model.epochs, rate: model.lr, schedule, sgd, seed })
}

fn open_data(args: &TrainArgs, config: &Config) -> Result<Data> {
    let settings = config.settings();
    let asked = Asked { kind: args.kind, rebuild: args.rebuild, quiet: args.common.json };
    let source = Source::open(&args.source, asked, config)?;
    let recipe = recipe(settings.recipe(), &source.set)?;
    let beside = || source::test_beside(&args.source).map(|path| path.display().to_string());
    let test = match args.test.clone().or_else(beside) {
        None => {
            if !args.common.json {
                say("no test data: accuracy is that on the training data (--test names some)");
            }
            None
        }
        Some(test) => {
            if !args.common.json {
                say(format_args!("test data: {}", name(&test)));
            }
            let set = Source::open(&test, Asked { kind: None, ..asked }, config)?.set;
            let own = args.test_recipe.as_deref().map(open::recipe).transpose()?.flatten();
            Some(test_loader(set, own.as_ref().unwrap_or(&recipe), settings)?)
        }
    };
    let options = settings.loader();
    let related = options.selection.families != FamilyUse::Off;
    let mut train = Loader::new(source.set.clone(), Some(&recipe), options)?;
    let mut families = None;
    if related {
        let found = source.families(config, args.common.json)?;
        train = train.with_families(found.clone())?;
        families = Some(found);
    } else if !settings.page().listen.is_empty() || args.report.iter().any(|path| page::is_page(path)) {
        families = source.known_families();
    }
    let access = open::access(&source.set, settings, "gristmill train")?;
    Ok(Data { train: train.with_access(access), test, families })
}

/// Reads test data in order, all of it, on this rank.
pub(super) fn test_loader(set: Arc<DataSet>, recipe: &Recipe, settings: &Settings) -> Result<Loader> {
    let usual = settings.loader();
    let shape = Shape::single(usual.shape.batch.max(256));
    let selection = SelectionOptions::default();
    let steer = SteerOptions::default();
    Ok(Loader::new(set, Some(recipe), LoaderOptions { shape, shuffle: false, selection, steer, ..usual })?)
}

/// The recipe that was asked for; else what fits bare pixels.
pub(super) fn recipe(asked: &str, set: &DataSet) -> Result<Recipe> {
    if let Some(recipe) = open::recipe(asked)? {
        return Ok(recipe);
    }
    match set.catalog().encoding() {
        Encoding::Raw(shape) if (shape.width, shape.height, shape.channels) == (28, 28, 1) => {
            Ok(Recipe::preset("mnist")?)
        }
        Encoding::Raw(shape) => {
            let half = vec!["0.5"; shape.channels as usize].join(", ");
            Ok(Recipe::parse(&format!(
                "[[op]]\nkind = \"decode\"\n[[op]]\nkind = \"to-tensor\"\n\
                 [[op]]\nkind = \"normalise\"\nmean = [{half}]\nstd = [{half}]\n"
            ))?)
        }
        Encoding::Sniffed => {
            Err(Error::config("pictures of many sizes need a recipe that makes them one size")
                .hint("choose one with --recipe, e.g. imagenet-eval, or a small one of your own")
                .into())
        }
    }
}

/// A new training, or the one that the checkpoint holds.
fn begin(
    args: &TrainArgs,
    options: TrainOptions,
    train: &Loader,
    checkpoint: Option<&Checkpoint>,
) -> Result<Trainer> {
    let Some(checkpoint) = checkpoint else { return Ok(Trainer::new(options, train)?) };
    let path = &checkpoint.path;
    if !args.resume && path.exists() {
        return Err(Error::config(format!("{} exists already", path.display()))
            .hint("add --resume to go on with it, or remove it")
            .into());
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        return Err(Error::new(Kind::NotFound, format!("there is no folder {}", folder.display()))
            .hint("make it, or choose another place for --checkpoint")
            .into());
    }
    if !path.exists() {
        if args.resume && !args.common.json {
            say(format_args!("no checkpoint at {} yet: beginning", name(path.display())));
        }
        return Ok(Trainer::new(options, train)?);
    }
    let trainer = Trainer::resume(options, train, checkpoint)?;
    if !args.common.json {
        let (epoch, batch) = trainer.at();
        say(format_args!("resumed after {epoch} epochs and {batch} batches from {}", name(path.display())));
    }
    Ok(trainer)
}

/// What must be the same when a training is resumed.
fn identity(config: &Config, options: &TrainOptions, train: &Loader) -> Vec<(String, String)> {
    let counts = |name: &str| IDENTITY_KEYS.contains(&name) || name.starts_with(IDENTITY_SECTION);
    let settings = config.rows().filter(|(key, ..)| counts(key.name));
    let mut identity: Vec<_> = settings.map(|(key, value, _)| (key.name.to_string(), value)).collect();
    let TrainOptions { hidden, epochs, rate, schedule, sgd, seed: _ } = options;
    let typed = [
        ("the data", format!("{:?}", train.set().catalog().digest())),
        ("--hidden", format!("{hidden:?}")),
        ("--epochs", epochs.to_string()),
        ("--lr", rate.to_string()),
        ("--schedule", schedule.to_string()),
        ("--momentum", sgd.momentum.to_string()),
        ("--weight-decay", sgd.weight_decay.to_string()),
    ];
    identity.extend(typed.map(|(name, value)| (name.to_string(), value)));
    identity
}

/// The error of a training that was stopped, saying where it is kept.
fn stopped(trainer: &Trainer, checkpoint: Option<&Checkpoint>) -> Error {
    let (epoch, batch) = trainer.at();
    let at = format!("after {epoch} epochs and {batch} batches");
    match checkpoint {
        None => Error::new(Kind::Stopped, format!("stopped by Ctrl-C {at}; nothing was kept"))
            .hint("--checkpoint FILE keeps a training that is stopped"),
        Some(Checkpoint { path, .. }) => {
            Error::new(Kind::Stopped, format!("stopped by Ctrl-C {at}; kept in {}", path.display()))
                .hint("the same command with --resume goes on from there")
        }
    }
}

/// Whether the folder of a file that `option` names is there, before hours are spent on what goes into it.
pub(super) fn check_folder(option: &str, path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => {
            let folder = folder.display();
            Err(Error::config(format!("{option}: there is no folder {folder}")).hint("make it first").into())
        }
        None => Ok(()),
    }
}

/// Writes a file whole, or says why not.
pub(super) fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|e| Error::io("write", path.display(), e).into())
}
