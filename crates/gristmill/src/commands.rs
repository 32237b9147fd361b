//! One file per command; what they share is here.

mod bench;
mod catalog;
mod config;
mod scale;

use crate::args::{Args, Bench, Command, Common};
use crate::progress::Progress;
use crate::stop;
use anyhow::Result;
use gristmill_node::config::Config;
use gristmill_node::{Error, catalog as catalogs};
use std::process::ExitCode;

/// Runs what was typed.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Catalog(command) => catalog::run(command),
        Command::Bench(Bench::Load(args)) => bench::load(&args),
        Command::Bench(Bench::Scale(args)) => scale::scale(&args),
        Command::Config(command) => config::run(command),
    }
}

impl Common {
    /// The settings, with what was typed for this command laid over them.
    fn config(&self, typed: &[(&str, Option<&String>)]) -> Result<Config> {
        let mut arguments = Vec::new();
        for pair in &self.set {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Error::config(format!("--set {pair:?} has no ="))
                    .hint("write --set KEY=VALUE")
                    .into());
            };
            arguments.push((key.trim().to_string(), value.to_string()));
        }
        for (key, value) in typed {
            arguments.extend(value.map(|value| ((*key).to_string(), value.clone())));
        }
        Ok(Config::load(self.config.as_deref(), &arguments)?)
    }
}

/// A bar for the building or checking of a catalog, as the function those want.
fn catalog_bar(what: &str, quiet: bool) -> impl FnMut(catalogs::Progress) -> std::ops::ControlFlow<()> {
    let mut bar = Progress::new(what, None, quiet);
    move |progress| {
        if let Some(total) = progress.total {
            bar.of(total);
        }
        let step = match progress.step {
            catalogs::Step::List => "objects listed",
            catalogs::Step::Stat => "objects asked for",
            catalogs::Step::Read => "objects read",
            catalogs::Step::Hash => "bytes hashed",
        };
        bar.at(progress.done, || step.to_string());
        if stop::asked() { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    }
}
