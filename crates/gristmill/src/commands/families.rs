//! `gristmill families`: finds near-duplicates, says how many there are, and shows them.

mod page;

use super::catalogued;
use crate::args::FamiliesArgs;
use crate::output::{counted, grouped, json, line, name, say};
use crate::progress::{Progress, Unit};
use crate::stop;
use anyhow::Result;
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::families::{self, FamilyOptions, FamilySet};
use gristmill_node::loader::BadSample;
use gristmill_node::open::{self, Opened, Provenance};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

const HASHED: Unit = Unit::Things("sample", "samples", "hashed");
/// The most bad samples that are named.
const BAD_SHOWN_MAX: usize = 5;

/// How the families came to be.
struct Outcome {
    found: FamilySet,
    /// Seconds of hashing; none if the hashes were kept from before.
    hashed_s: Option<f64>,
    path: PathBuf,
}

pub(super) fn families(args: &FamiliesArgs) -> Result<ExitCode> {
    let config = args.common.config(&[])?;
    let opened = catalogued(&args.source, None, &config, None, args.common.json)?;
    let path = kept_path(&args.source, &opened);
    let set = Arc::new(open::data_set(opened.catalog.clone(), config.settings(), &stop::asked)?);
    let outcome = find(args, &config, &set, path)?;
    report(args, &set, &outcome)?;
    if let Some(file) = &args.page {
        page::write(file, args.limit, &outcome.found, &opened.catalog, &config, args.common.json)?;
        if !args.common.json {
            line(format_args!("page written to {}", name(file.display())))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn kept_path(source: &str, opened: &Opened) -> PathBuf {
    families::kept_path(match &opened.provenance {
        Provenance::Given => Path::new(source),
        Provenance::Kept(path) | Provenance::Built(path) => path,
    })
}

fn find(args: &FamiliesArgs, config: &Config, set: &Arc<DataSet>, path: PathBuf) -> Result<Outcome> {
    let options = FamilyOptions { radius: args.radius, cross_label: args.cross_label };
    if !args.rebuild
        && let Some(found) = families::open(&path, set.catalog(), options)?
    {
        return Ok(Outcome { found, hashed_s: None, path });
    }
    let start = Instant::now();
    let mut bar = Progress::new("families", args.common.json);
    let built = families::build(set, options, &config.settings().loader(), &mut |at| {
        bar.at(at.done, Some(at.total), HASHED, || {
            if at.bad > 0 { format!("{} bad", grouped(at.bad)) } else { String::new() }
        });
        !stop::asked()
    });
    bar.done();
    stop::check()?;
    let (found, bad) = built?;
    say_bad(found.bad, &bad);
    // A place that cannot be written (a read-only folder of catalogs) costs the next call its time, not this one.
    if let Err(error) = found.keep(&path) {
        say(format_args!("note: the families are not kept: {}", name(error)));
    }
    Ok(Outcome { found, hashed_s: Some(start.elapsed().as_secs_f64()), path })
}

fn say_bad(count: u32, first: &[BadSample]) {
    for bad in first.iter().take(BAD_SHOWN_MAX) {
        say(format_args!("no hash: {}", name(&bad.reason)));
    }
    if count as usize > BAD_SHOWN_MAX {
        say(format_args!("no hash: … {} samples in all", grouped(count.into())));
    }
}

fn report(args: &FamiliesArgs, set: &DataSet, outcome: &Outcome) -> Result<()> {
    let Outcome { found, hashed_s, path } = outcome;
    let families = &found.families;
    let share = families.grouped() as f64 / f64::from(families.samples().max(1));
    if args.common.json {
        return json(&json!({
            "samples": families.samples(), "families": families.len(), "grouped": families.grouped(),
            "grouped_share": share, "largest": families.largest(), "radius": families.radius(),
            "cross_label": families.cross_label(), "purity": families.purity(set.catalog().labels()?),
            "bad": found.bad, "hashed_s": hashed_s, "kept": path, "page": args.page,
        }));
    }
    line(format_args!(
        "{}: {} of {} ({:.1} %){}",
        counted(families.samples().into(), "sample", "samples"),
        counted(families.len() as u64, "family", "families"),
        counted(families.grouped() as u64, "sample", "samples"),
        share * 100.0,
        if families.is_empty() {
            String::new()
        } else {
            format!(", the largest of {}", grouped(families.largest() as u64))
        }
    ))?;
    line(format_args!(
        "radius {} of 64 bits{}, {}",
        families.radius(),
        if args.radius.is_none() { " (chosen for these pictures)" } else { "" },
        if families.cross_label() {
            let fitting = families.purity(set.catalog().labels()?) * 100.0;
            format!("across labels: {fitting:.1} % have their family's commonest label")
        } else {
            "within one label".into()
        }
    ))?;
    if found.bad > 0 {
        line(format_args!("{} could not be hashed", counted(found.bad.into(), "sample", "samples")))?;
    }
    match hashed_s {
        Some(s) => {
            let rate = grouped((f64::from(families.samples()) / s.max(1e-9)) as u64);
            line(format_args!("hashed in {s:.1} s ({rate} samples/s), kept in {}", name(path.display())))
        }
        None => line(format_args!("hashes from before: {} (--rebuild reads again)", name(path.display()))),
    }
}
