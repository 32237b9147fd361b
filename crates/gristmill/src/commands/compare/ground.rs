//! What all sides of a comparison are trained on, and one training on it.

use crate::args::GroundArgs;
use crate::commands::source::{self, Asked, Source};
use crate::commands::train;
use crate::output::{name, say};
use crate::stop;
use anyhow::Result;
use gristmill_node::Error;
use gristmill_node::access::Access;
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::open;
use gristmill_node::selection::SelectionOptions;
use gristmill_node::steer::SteerOptions;
use gristmill_ops::Recipe;
use gristmill_train::{Ended, EpochRow, Event, Run, TrainOptions, Trainer};
use std::sync::Arc;

/// The most seeds: more would take days and say nothing new.
const SEEDS_MAX: u32 = 1_000;

/// Where the data lies.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) train: String,
    pub(super) test: String,
    /// Whether nothing was named, so that the pictures that are shipped are taken.
    pub(super) shipped: bool,
}

/// What all sides are trained on.
pub(super) struct Ground {
    pub(super) source: Source,
    pub(super) recipe: Recipe,
    pub(super) test: Loader,
    pub(super) options: LoaderOptions,
    pub(super) train: TrainOptions,
}

impl GroundArgs {
    /// The settings, with what was typed for this command laid over them.
    pub(super) fn config(&self, typed: &[(&str, Option<&String>)]) -> Result<Config> {
        let mut all = vec![
            ("recipe.name", self.recipe.as_ref()),
            ("loader.batch", self.batch.as_ref()),
            ("loader.threads", self.threads.as_ref()),
            ("loader.seed", self.seed.as_ref()),
        ];
        all.extend_from_slice(typed);
        self.common.config(&all)
    }

    /// Refuses a senseless number of seeds.
    pub(super) fn check(&self) -> Result<()> {
        if self.seeds == 0 || self.seeds > SEEDS_MAX {
            let seeds = self.seeds;
            return Err(Error::config(format!("--seeds {seeds} is not from 1 to {SEEDS_MAX}")).into());
        }
        Ok(())
    }

    /// Where the data lies that was named, or that is shipped.
    pub(super) fn places(&self) -> Result<Places> {
        let (source, beside) = if let Some(source) = &self.source {
            (source.clone(), source::test_beside(source))
        } else {
            let Some((train, test)) = source::shipped() else {
                return Err(Error::config("the shipped pictures are not here")
                    .hint("name a data set")
                    .into());
            };
            (train.display().to_string(), Some(test))
        };
        let test = self.test.clone().or_else(|| beside.map(|path| path.display().to_string()));
        let Some(test) = test else {
            return Err(Error::config("what is compared is judged by test data, and there is none")
                .hint("name some with --test")
                .into());
        };
        if !self.common.json {
            say(format_args!("training data: {}\ntest data: {}", name(&source), name(&test)));
        }
        Ok(Places { train: source, test, shipped: self.source.is_none() })
    }
}

impl Ground {
    /// Opens training data with `config` and test data with `test_config`.
    pub(super) fn open(
        args: &GroundArgs,
        places: &Places,
        config: &Config,
        test_config: &Config,
    ) -> Result<Ground> {
        let settings = config.settings();
        // Sides are compared at the same knobs.
        let options = LoaderOptions { steer: SteerOptions::default(), ..settings.loader() };
        let train = train::options(&args.model, options.seed)?;
        let asked = Asked { quiet: args.common.json, ..Asked::default() };
        let source = Source::open(&places.train, asked, config)?;
        let recipe = train::recipe(settings.recipe(), &source.set)?;
        let own = args.test_recipe.as_deref().map(open::recipe).transpose()?.flatten();
        let test_set = Source::open(&places.test, asked, test_config)?.set;
        let test = train::test_loader(test_set, own.as_ref().unwrap_or(&recipe), settings)?;
        Ok(Ground { source, recipe, test, options, train })
    }

    /// The training data.
    pub(super) fn set(&self) -> &Arc<DataSet> {
        &self.source.set
    }

    /// A loader from a seed that selects like this and asks this node, if there is one.
    pub(super) fn loader(
        &self,
        seed: u64,
        selection: SelectionOptions,
        access: Option<Arc<dyn Access>>,
    ) -> Result<Loader> {
        let epochs = Some(u32::try_from(self.train.epochs).unwrap_or(u32::MAX));
        let selection = SelectionOptions { epochs, ..selection };
        let options = LoaderOptions { seed, selection, ..self.options.clone() };
        Ok(Loader::new(self.set().clone(), Some(&self.recipe), options)?.with_access(access))
    }

    /// Trains one model; `tell` hears of every epoch.
    pub(super) fn run(
        &self,
        loader: &Loader,
        options: TrainOptions,
        tell: &mut dyn FnMut(&EpochRow),
    ) -> Result<Vec<EpochRow>> {
        let mut trainer = Trainer::new(options, loader)?;
        let ended = trainer.run(Run {
            train: loader,
            test: Some(&self.test),
            checkpoint: None,
            stop: &stop::asked,
            watch: &mut |event| {
                if let Event::Epoch(row, _) = event {
                    tell(row);
                }
                Ok(())
            },
        })?;
        if ended == Ended::Stopped {
            stop::check()?;
        }
        Ok(trainer.history().to_vec())
    }
}
