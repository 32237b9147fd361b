//! `gristmill catalog`: list a data set once, look at the list, check it against the data.

use super::catalog_bar;
use crate::args::{BuildArgs, Catalog as Command, Common, Kind};
use crate::output::{grouped, json, line, say, size};
use crate::progress::Progress;
use crate::stop;
use anyhow::Result;
use gristmill_core::SampleId;
use gristmill_node::catalog::{self, BuildOptions, Catalog, CheckOptions, Findings, SourceKind};
use gristmill_node::config::Config;
use gristmill_node::loader::{BadSample, Loader, LoaderOptions, OnBad, Polled};
use gristmill_node::{Error, open, store};
use gristmill_ops::{Encoding, RawImage, Recipe};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The most findings of one sort that are printed.
const SHOWN_MAX: usize = 20;

pub(super) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Build(args) => build(&args),
        Command::Show { source, samples, common } => show(&source, samples, &common),
        Command::Check { source, content, decode, common } => check(&source, content, decode, &common),
    }
}

fn build(args: &BuildArgs) -> Result<ExitCode> {
    let config = args.common.config(&[])?;
    let mut source = open::find(&args.source, config.settings())?;
    source.kind = args.kind.map(|kind| match kind {
        Kind::Folder => SourceKind::Folder,
        Kind::List => SourceKind::List,
        Kind::Tar => SourceKind::Tar,
        Kind::Idx => SourceKind::Idx,
        Kind::Cifar => SourceKind::Cifar,
    });
    let options = BuildOptions {
        content: args.content,
        allow_empty_classes: args.allow_empty_classes,
        path_column: args.path_column.clone(),
        label_column: args.label_column.clone(),
        built_unix_s: open::now_unix_s(),
    };
    let path = match &args.output {
        Some(path) => path.clone(),
        None => open::kept_path(&source, config.settings())?,
    };
    let mut bar = catalog_bar("catalog", args.common.json);
    let draft = catalog::build(&source, &options, &mut bar)?;
    drop(bar);
    open::make_folder(&path)?;
    draft.write(&path)?;
    let written = Catalog::open(&path)?;
    if args.common.json {
        json(&summary(&written, Some(&path.display().to_string()))?)?;
    } else {
        describe(&written)?;
        line(format_args!("written to {} ({})", path.display(), size(written.file_bytes())))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(source: &str, samples: u32, common: &Common) -> Result<ExitCode> {
    let config = common.config(&[])?;
    let catalog = existing(source, &config)?;
    if common.json {
        json(&summary(&catalog, None)?)?;
    } else {
        describe(&catalog)?;
        line(format_args!(
            "built by gristmill {}, {} on disk",
            catalog.built_by(),
            size(catalog.file_bytes())
        ))?;
    }
    for id in (0..samples.min(catalog.len())).map(SampleId) {
        let (at, label) = (catalog.locate(id)?, catalog.label(id)?);
        let class = catalog.classes().get(label as usize).map_or("", String::as_str);
        if common.json {
            json(&json!({
                "id": id.0, "object": at.name, "offset": at.range.start, "bytes": at.range.end - at.range.start,
                "label": label, "class": class,
            }))?;
        } else {
            let bytes = at.range.end - at.range.start;
            line(format_args!(
                "{id:>10}  {bytes:>10} B  {label:>5} {class:<20} {} @ {}",
                at.name, at.range.start
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check(source: &str, content: bool, decode: bool, common: &Common) -> Result<ExitCode> {
    let config = common.config(&[])?;
    let catalog = Arc::new(existing(source, &config)?);
    catalog.verify()?;
    if content && !catalog.has_content() {
        return Err(Error::config("this catalog has no hashes of its content to compare with")
            .hint("build it with `gristmill catalog build --content`")
            .into());
    }
    let store = store::open(catalog.source(), &config.settings().store())?;
    let mut bar = catalog_bar("check", common.json);
    let findings = catalog::check(&catalog, &*store, &CheckOptions { content }, &mut bar)?;
    drop(bar);
    let damaged = if decode { undecodable(catalog.clone(), &config, common.json)? } else { Vec::new() };
    report(&findings, &damaged, decode, common.json)?;
    let clean = findings.is_clean() && damaged.is_empty();
    if clean && !common.json {
        line(format_args!("{} samples: all as the catalog says", grouped(catalog.len().into())))?;
    } else if !clean {
        say("hint: `gristmill catalog build` makes a new catalog of what is there now");
    }
    Ok(ExitCode::from(u8::from(!clean)))
}

/// Reads and decodes every sample, and gives back those that could not be.
fn undecodable(catalog: Arc<Catalog>, config: &Config, quiet: bool) -> Result<Vec<BadSample>> {
    let recipe = Recipe::parse(
        "[[op]]\nkind = \"decode\"\n[[op]]\nkind = \"resize\"\nsize = [8, 8]\n[[op]]\nkind = \"to-tensor\"\ndtype = \"u8\"\n",
    )?;
    let set = open::data_set(catalog, config.settings(), &stop::asked)?;
    let shape = gristmill_core::plan::Shape::single(16);
    let options = LoaderOptions { shape, shuffle: false, on_bad: OnBad::Skip, ..config.settings().loader() };
    let samples = set.catalog().len();
    let mut bar = Progress::new("decode", Some(samples.into()), quiet);
    let loader = Loader::new(Arc::new(set), Some(&recipe), options)?;
    let mut epoch = loader.epoch(0, 0)?.with_empty_batches();
    let (mut damaged, mut at) = (Vec::new(), 0);
    loop {
        match epoch.poll(Duration::from_millis(100))? {
            Polled::Batch(batch) => {
                at += batch.len() + batch.skipped.len();
                damaged.extend(batch.skipped);
                bar.at(at as u64, || format!("{} damaged", damaged.len()));
            }
            Polled::Pending => {}
            Polled::Done => break,
        }
        stop::check()?;
    }
    bar.done();
    Ok(damaged)
}

fn existing(source: &str, config: &Config) -> Result<Catalog> {
    let mut never = |_| std::ops::ControlFlow::Break(());
    let path = match open::catalog(source, config.settings(), false, &mut never) {
        Ok(opened) => {
            return Ok(Arc::try_unwrap(opened.catalog).map_err(|_| Error::config("the catalog is in use"))?);
        }
        Err(error) if error.kind() == gristmill_node::Kind::Stopped => {
            open::kept_path(&open::find(source, config.settings())?, config.settings())?
        }
        Err(error) => return Err(error.into()),
    };
    let message = format!("there is no catalog of {source} yet ({} does not exist)", path.display());
    Err(Error::new(gristmill_node::Kind::NotFound, message)
        .hint(format!("run `gristmill catalog build {source}`, or give the catalog file"))
        .into())
}

fn encoding(encoding: Encoding) -> String {
    match encoding {
        Encoding::Sniffed => "JPEG or PNG".into(),
        Encoding::Raw(RawImage { width, height, channels, .. }) => {
            format!("bare pixels, {width} x {height} x {channels}")
        }
    }
}

fn summary(catalog: &Catalog, path: Option<&str>) -> Result<serde_json::Value> {
    let mut value = json!({
        "source": catalog.source(), "kind": catalog.kind().name(), "digest": catalog.digest().to_string(),
        "samples": catalog.len(), "classes": catalog.classes().len(), "objects": catalog.objects(),
        "bytes": catalog.total_bytes()?, "encoding": encoding(catalog.encoding()), "notes": catalog.notes(),
        "built_unix_s": catalog.built_unix_s(), "built_by": catalog.built_by(), "file_bytes": catalog.file_bytes(),
    });
    if let Some(path) = path {
        value["catalog"] = path.into();
    }
    Ok(value)
}

fn describe(catalog: &Catalog) -> Result<()> {
    line(format_args!("{}", catalog.source()))?;
    line(format_args!(
        "{} samples ({}, {}), {} in {} object{}, {} classes",
        grouped(catalog.len().into()),
        catalog.kind(),
        encoding(catalog.encoding()),
        size(catalog.total_bytes()?),
        grouped(catalog.objects().into()),
        if catalog.objects() == 1 { "" } else { "s" },
        grouped(catalog.classes().len() as u64),
    ))?;
    let counts = catalog.class_counts()?;
    let longest = counts.iter().copied().max().unwrap_or(1).max(1);
    for (name, count) in catalog.classes().iter().zip(&counts).take(SHOWN_MAX) {
        let bar = "#".repeat((f64::from(*count) / f64::from(longest) * 24.0).round() as usize);
        line(format_args!("  {name:<28} {:>9} {bar}", grouped((*count).into())))?;
    }
    if catalog.classes().len() > SHOWN_MAX {
        line(format_args!("  … and {} more classes", catalog.classes().len() - SHOWN_MAX))?;
    }
    line(format_args!("digest {}", catalog.digest()))?;
    catalog.notes().iter().try_for_each(|note| line(format_args!("note: {note}")))
}

fn report(findings: &Findings, damaged: &[BadSample], decoded: bool, as_json: bool) -> Result<()> {
    let sorts =
        [("changed", &findings.changed), ("vanished", &findings.vanished), ("appeared", &findings.appeared)];
    if as_json {
        let mut value = json!({});
        for (sort, found) in sorts {
            let first: Vec<_> =
                found.first.iter().map(|f| json!({ "object": f.name, "detail": f.detail })).collect();
            value[sort] = json!({ "count": found.count, "first": first });
        }
        if decoded {
            let first: Vec<_> =
                damaged.iter().map(|bad| json!({ "id": bad.id.0, "reason": bad.reason })).collect();
            value["damaged"] = json!({ "count": damaged.len(), "first": first });
        }
        return json(&value);
    }
    for (sort, found) in sorts {
        for finding in found.first.iter().take(SHOWN_MAX) {
            line(format_args!("{sort}: {} ({})", finding.name, finding.detail))?;
        }
        if found.count > SHOWN_MAX as u64 {
            line(format_args!("{sort}: … {} in all", grouped(found.count)))?;
        }
    }
    for bad in damaged.iter().take(SHOWN_MAX) {
        line(format_args!("damaged: {}", bad.reason))?;
    }
    if damaged.len() > SHOWN_MAX {
        line(format_args!("damaged: … {} in all", grouped(damaged.len() as u64)))?;
    }
    Ok(())
}
