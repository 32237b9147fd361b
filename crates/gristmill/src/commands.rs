//! One file per command; what they share is here.

mod bench;
mod bench_ranks;
mod bench_serve;
mod catalog;
mod check;
mod compare;
mod config;
mod families;
mod profile;
mod ranks;
mod rate;
mod scale;
mod serve;
mod simulate;
mod source;
mod status;
mod train;

use crate::args::{Args, Bench, Catalog, Command, Common, Compare, Kind};
use crate::output::{name, say};
use crate::progress::{Progress, Unit};
use crate::stop;
use anyhow::Result;
use gristmill_node::config::Config;
use gristmill_node::open::{self, Looked, Opened, Provenance};
use gristmill_node::{Error, catalog as catalogs};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

/// Runs what was typed.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Catalog(Catalog::Build(args)) => catalog::build(&args),
        Command::Catalog(Catalog::Show { source, samples, common }) => {
            catalog::show(&source, samples, &common)
        }
        Command::Catalog(Catalog::Check { source, content, decode, common }) => {
            check::check(&source, content, decode, &common)
        }
        Command::Profile(args) => profile::profile(&args),
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Families(args) => families::families(&args),
        Command::Bench(Bench::Load(args)) => bench::load(&args),
        Command::Bench(Bench::Scale(args)) => scale::scale(&args),
        Command::Bench(Bench::Serve(args)) => bench_serve::run(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Status(args) => status::status(&args),
        Command::Compare(Compare::Selection(args)) => compare::selection(&args),
        Command::Compare(Compare::Cache(args)) => compare::cache(&args),
        Command::Compare(Compare::Split(args)) => compare::split(&args),
        Command::Compare(Compare::Exchange(args)) => compare::exchange(&args),
        Command::Compare(Compare::All(args)) => compare::all(&args),
        Command::Train(args) => train::train(&args),
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

impl Kind {
    fn source_kind(self) -> catalogs::SourceKind {
        use catalogs::SourceKind;
        match self {
            Kind::Folder => SourceKind::Folder,
            Kind::List => SourceKind::List,
            Kind::Tar => SourceKind::Tar,
            Kind::Idx => SourceKind::Idx,
            Kind::Cifar => SourceKind::Cifar,
        }
    }
}

/// The catalog of what was typed: the one given, the one kept from before, or a new one, built with a bar. `rebuild`
/// is what the option of that name says, in commands that have it for the catalog.
fn catalogued(
    source: &str,
    kind: Option<Kind>,
    config: &Config,
    rebuild: Option<bool>,
    quiet: bool,
) -> Result<Opened> {
    let (kind, again) = (kind.map(Kind::source_kind), rebuild.unwrap_or(false));
    let opened = match open::look(source, kind, config.settings(), again)? {
        Looked::There(opened) => opened,
        Looked::Missing { source, path } => {
            let options = catalogs::BuildOptions {
                built_unix_s: open::now_unix_s(),
                ..catalogs::BuildOptions::default()
            };
            let build =
                move |progress: &mut catalogs::OnProgress<'_>| catalogs::build(&source, &options, progress);
            open::keep(&with_bar("catalog", quiet, build)?, path)?
        }
    };
    if !quiet {
        match &opened.provenance {
            Provenance::Given => {}
            Provenance::Built(path) => say(format_args!("catalog written to {}", name(path.display()))),
            Provenance::Kept(path) => {
                let hint = if rebuild.is_some() { " (--rebuild makes a new one)" } else { "" };
                say(format_args!("catalog from before: {}{hint}", name(path.display())));
            }
        }
        opened.catalog.notes().iter().for_each(|note| say(format_args!("note: {}", name(note))));
    }
    Ok(opened)
}

/// What a thread says about its work.
enum Told<T> {
    Progress(catalogs::Progress),
    Done(gristmill_node::Result<T>),
}

/// Builds or checks a catalog with a bar. The work has a thread of its own, which is left behind on Ctrl-C: a
/// store that does not answer must not hold the user up. So it may read whatever it likes but must write nothing.
fn with_bar<T: Send + 'static>(
    what: &str,
    quiet: bool,
    work: impl FnOnce(&mut catalogs::OnProgress<'_>) -> gristmill_node::Result<T> + Send + 'static,
) -> Result<T> {
    let (tell, told) = sync_channel(16);
    let worker = std::thread::Builder::new().name("grist-catalog".into()).spawn(move || {
        let outcome = work(&mut |progress| match tell.send(Told::Progress(progress)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        });
        // Nobody listens any more after Ctrl-C.
        let _ = tell.send(Told::Done(outcome));
    });
    let worker = worker.map_err(|e| Error::io("start", "a thread", e))?;
    let mut bar = Progress::new(what, quiet);
    loop {
        match told.recv_timeout(stop::SLICE) {
            Ok(Told::Progress(progress)) => {
                bar.at(progress.done, progress.total, unit(progress.step), String::new);
            }
            Ok(Told::Done(outcome)) => {
                bar.done();
                return Ok(outcome?);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                if let Err(panic) = worker.join() {
                    std::panic::resume_unwind(panic);
                }
                return Err(Error::new(gristmill_node::Kind::Stopped, "the work ended without a word").into());
            }
        }
        stop::check()?;
    }
}

fn unit(step: catalogs::Step) -> Unit {
    match step {
        catalogs::Step::List => Unit::Things("object", "objects", "listed"),
        catalogs::Step::Stat => Unit::Things("object", "objects", "asked for"),
        catalogs::Step::Read => Unit::Things("object", "objects", "read"),
        catalogs::Step::Hash => Unit::Bytes("hashed"),
    }
}
