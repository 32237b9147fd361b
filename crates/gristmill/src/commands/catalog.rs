//! `gristmill catalog build` and `show`: list a data set once, look at the list.

use super::with_bar;
use crate::args::{BuildArgs, Common, Kind};
use crate::output::{counted, grouped, json, line, name, size};
use anyhow::Result;
use gristmill_core::SampleId;
use gristmill_node::Error;
use gristmill_node::catalog::{self, BuildOptions, Catalog};
use gristmill_node::config::Config;
use gristmill_node::open::{self, Looked};
use gristmill_ops::{Encoding, RawImage};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;

/// The most classes that are printed.
const SHOWN_MAX: usize = 20;

pub(super) fn build(args: &BuildArgs) -> Result<ExitCode> {
    let config = args.common.config(&[])?;
    let mut source = open::find(&args.source, config.settings())?;
    source.kind = args.kind.map(Kind::source_kind);
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
    let quiet = args.common.json;
    let draft = with_bar("catalog", quiet, move |progress| catalog::build(&source, &options, progress))?;
    let written = open::keep(&draft, path.clone())?.catalog;
    if args.common.json {
        json(&summary(&written, Some(&path.display().to_string()))?)?;
    } else {
        describe(&written)?;
        line(format_args!("written to {} ({})", name(path.display()), size(written.file_bytes())))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn show(source: &str, samples: u32, common: &Common) -> Result<ExitCode> {
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
                "{id:>10}  {bytes:>10} B  {label:>5} {:<20} {} @ {}",
                name(class),
                name(at.name),
                at.range.start
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
        "source": catalog.source(), "object": catalog.source_object(), "kind": catalog.kind().name(), "digest": catalog.digest().to_string(),
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
    match catalog.source_object() {
        Some(object) => line(name(format_args!("{}/{object}", catalog.source().trim_end_matches('/'))))?,
        None => line(name(catalog.source()))?,
    }
    line(format_args!(
        "{} ({}, {}), {} in {}, {}",
        counted(catalog.len().into(), "sample", "samples"),
        catalog.kind(),
        encoding(catalog.encoding()),
        size(catalog.total_bytes()?),
        counted(catalog.objects().into(), "object", "objects"),
        counted(catalog.classes().len() as u64, "class", "classes"),
    ))?;
    let counts = catalog.class_counts()?;
    let longest = counts.iter().copied().max().unwrap_or(1).max(1);
    for (class, count) in catalog.classes().iter().zip(&counts).take(SHOWN_MAX) {
        let bar = "#".repeat((f64::from(*count) / f64::from(longest) * 24.0).round() as usize);
        line(format_args!("  {:<28} {:>9} {bar}", name(class), grouped((*count).into())))?;
    }
    if catalog.classes().len() > SHOWN_MAX {
        let more = (catalog.classes().len() - SHOWN_MAX) as u64;
        line(format_args!("  … and {}", counted(more, "more class", "more classes")))?;
    }
    line(format_args!("digest {}", catalog.digest()))?;
    catalog.notes().iter().try_for_each(|note| line(format_args!("note: {}", name(note))))
}

/// The catalog that `source` is, or that was kept of it; nothing is built.
pub(super) fn existing(source: &str, config: &Config) -> Result<Arc<Catalog>> {
    match open::look(source, None, config.settings(), false)? {
        Looked::There(opened) => Ok(opened.catalog),
        Looked::Missing { path, .. } => {
            let message = format!("there is no catalog of {source} yet ({} does not exist)", path.display());
            Err(Error::new(gristmill_node::Kind::NotFound, message)
                .hint(format!("run `gristmill catalog build {source}`, or give the catalog file"))
                .into())
        }
    }
}
