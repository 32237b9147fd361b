//! `gristmill catalog check`: whether the data still is what the catalog says, and whether it can be decoded.

use super::catalog::existing;
use super::with_bar;
use crate::args::Common;
use crate::output::{counted, grouped, json, line, name, say};
use crate::progress::{Progress, SAMPLES};
use crate::stop;
use anyhow::Result;
use gristmill_node::catalog::{self, Catalog, CheckOptions, Findings};
use gristmill_node::config::Config;
use gristmill_node::loader::{BadSample, Loader, LoaderOptions, OnBad, Polled};
use gristmill_node::{Error, open, store};
use gristmill_ops::Recipe;
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The most findings of one sort that are printed as words.
const SHOWN_MAX: usize = 20;
/// The most damaged samples that are kept; the rest is counted.
const KEPT_MAX: usize = 1_000;

/// Samples that cannot be decoded.
#[derive(Debug, Default)]
struct Damaged {
    count: u64,
    first: Vec<BadSample>,
}

pub(super) fn check(source: &str, content: bool, decode: bool, common: &Common) -> Result<ExitCode> {
    let config = common.config(&[])?;
    let catalog = existing(source, &config)?;
    catalog.verify()?;
    if content && !catalog.has_content() {
        return Err(Error::config("this catalog has no hashes of its content to compare with")
            .hint("build it with `gristmill catalog build --content`")
            .into());
    }
    let store = store::open(catalog.source(), &config.settings().store())?;
    let checked = catalog.clone();
    let findings = with_bar("check", common.json, move |progress| {
        catalog::check(&checked, &*store, &CheckOptions { content }, progress)
    })?;
    let damaged =
        if decode { undecodable(catalog.clone(), &config, common.json)? } else { Damaged::default() };
    report(&findings, &damaged, decode, common.json)?;
    let clean = findings.is_clean() && damaged.count == 0;
    if clean && !common.json {
        let samples = counted(catalog.len().into(), "sample", "samples");
        line(format_args!("{samples}: all as the catalog says"))?;
    } else if !findings.is_clean() {
        say("hint: `gristmill catalog build` makes a new catalog of what is there now");
    } else if !clean {
        say("hint: mend or remove the damaged files, or read on without them: --set loader.on_bad=skip");
    }
    Ok(ExitCode::from(u8::from(!clean)))
}

/// Reads and decodes every sample, and gives back those that could not be.
fn undecodable(catalog: Arc<Catalog>, config: &Config, quiet: bool) -> Result<Damaged> {
    let recipe = Recipe::parse(
        "[[op]]\nkind = \"decode\"\n[[op]]\nkind = \"resize\"\nsize = [8, 8]\n[[op]]\nkind = \"to-tensor\"\ndtype = \"u8\"\n",
    )?;
    let set = open::data_set(catalog, config.settings(), &stop::asked)?;
    let shape = gristmill_core::plan::Shape::single(16);
    let options = LoaderOptions { shape, shuffle: false, on_bad: OnBad::Skip, ..config.settings().loader() };
    let samples = set.catalog().len().into();
    let mut bar = Progress::new("decode", quiet);
    let loader = Loader::new(Arc::new(set), Some(&recipe), options)?;
    let mut epoch = loader.epoch(0, 0)?.with_empty_batches();
    let (mut damaged, mut at) = (Damaged::default(), 0);
    loop {
        match epoch.poll(Duration::from_millis(100))? {
            Polled::Batch(batch) => {
                at += (batch.len() + batch.skipped.len()) as u64;
                damaged.count += batch.skipped.len() as u64;
                let room = KEPT_MAX - damaged.first.len();
                damaged.first.extend(batch.skipped.into_iter().take(room));
                bar.at(at, Some(samples), SAMPLES, || format!("{} damaged", grouped(damaged.count)));
            }
            Polled::Pending => {}
            Polled::Done => break,
        }
        stop::check()?;
    }
    bar.done();
    Ok(damaged)
}

fn report(findings: &Findings, damaged: &Damaged, decoded: bool, as_json: bool) -> Result<()> {
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
                damaged.first.iter().map(|bad| json!({ "id": bad.id.0, "reason": bad.reason })).collect();
            value["damaged"] = json!({ "count": damaged.count, "first": first });
        }
        return json(&value);
    }
    for (sort, found) in sorts {
        for finding in found.first.iter().take(SHOWN_MAX) {
            line(format_args!("{sort}: {} ({})", name(&finding.name), finding.detail))?;
        }
        if found.count > SHOWN_MAX as u64 {
            line(format_args!("{sort}: … {} in all", grouped(found.count)))?;
        }
    }
    for bad in damaged.first.iter().take(SHOWN_MAX) {
        line(format_args!("damaged: {}", name(&bad.reason)))?;
    }
    if damaged.count > SHOWN_MAX as u64 {
        line(format_args!("damaged: … {} in all", grouped(damaged.count)))?;
    }
    Ok(())
}
