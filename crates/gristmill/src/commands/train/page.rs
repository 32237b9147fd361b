//! The page of a training: told what happens, shown while it runs, and written as one file at its end.
//!
//! A page that cannot be shown or written is said and costs nothing else: the training goes on without it.

use crate::output::{complain, name, say};
use anyhow::Result;
use gristmill_core::family::Families;
use gristmill_node::config::Config;
use gristmill_node::loader::Loader;
use gristmill_node::page::{self, Listening, Outcome, Page, Progress};
use gristmill_node::report::EpochReport;
use gristmill_node::{Error, Kind};
use gristmill_train::{EpochRow, Event, Live};
use std::path::{Path, PathBuf};

/// The page of a training, if one was asked for.
pub(super) struct Watched {
    page: Option<Page>,
    files: Vec<PathBuf>,
    /// Shown until this is dropped.
    _listening: Option<Listening>,
}

/// Whether a report is a page.
pub(super) fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "html")
}

/// Says now what would keep a page from being written at the end.
pub(super) fn check(path: &Path) {
    if let Err(error) = page::check_file(path) {
        without(&error);
    }
}

impl Watched {
    /// The page of `loader`'s data. An address that is wrong or open to others is an error; one that is taken is not.
    pub(super) fn open(
        config: &Config,
        reports: &[PathBuf],
        loader: &Loader,
        families: Option<&Families>,
    ) -> Result<Watched> {
        let options = config.settings().page();
        let files: Vec<PathBuf> = reports.iter().filter(|path| is_page(path)).cloned().collect();
        if options.listen.is_empty() && files.is_empty() {
            return Ok(Watched { page: None, files, _listening: None });
        }
        let settings = page::shown(config);
        let page = Page::new(loader.shared_set(), options, loader.options().pixels_max, settings)?;
        families.iter().for_each(|families| page.families(families));
        let mut listening = None;
        if !options.listen.is_empty() {
            match page.serve(&options.listen) {
                Ok(shown) => listening = Some(shown),
                Err(error) if error.kind() == Kind::Config => return Err(error.into()),
                Err(error) => without(&error),
            }
        }
        listening.iter().for_each(|shown| say(format_args!("page: {}", shown.url())));
        Ok(Watched { page: Some(page), files, _listening: listening })
    }

    /// Tells the epochs that a resumed training has behind it.
    pub(super) fn resumed(&self, history: &[EpochRow]) {
        let Some(page) = &self.page else { return };
        for row in history {
            let report = EpochReport {
                epoch: row.epoch,
                batches: row.steps as u32,
                samples: row.served,
                skipped: row.skipped,
                bytes: row.bytes,
                retries: row.retries,
                wall_ms: row.wall_ms,
                samples_per_s: if row.wall_ms > 0.0 { row.served as f64 * 1e3 / row.wall_ms } else { 0.0 },
                wait: row.wait,
                ..EpochReport::default()
            };
            page.epoch(&report, &outcome(row));
        }
    }

    /// Tells what happens.
    pub(super) fn tell(&self, event: &Event<'_>) {
        let Some(page) = &self.page else { return };
        match event {
            Event::Began(epoch) => page.began(epoch),
            Event::Learned { ids, losses } => page.learned(ids, losses),
            Event::Batch(live) => page.live(&progress(live), &live.report),
            Event::Epoch(row, report) => page.epoch(report, &outcome(row)),
            Event::Skipped(_) => {}
        }
    }

    /// Writes the files that were asked for; whether all of them could be.
    pub(super) fn write(&self, quiet: bool) -> bool {
        let Some(page) = &self.page else { return true };
        page.ended();
        page.linger();
        if self.files.is_empty() {
            return true;
        }
        let text = match page.html() {
            Ok(text) => text,
            Err(error) => {
                complain(&error.into(), None);
                return false;
            }
        };
        let mut whole = true;
        for path in &self.files {
            match std::fs::write(path, &text) {
                Ok(()) if quiet => {}
                Ok(()) => say(format_args!("report written to {}", name(path.display()))),
                Err(e) => {
                    complain(&Error::io("write the report", path.display(), e).into(), None);
                    whole = false;
                }
            }
        }
        whole
    }
}

fn without(error: &Error) {
    let hint = error.remedy().map_or(String::new(), |hint| format!(" ({hint})"));
    say(format_args!("note: {}{}; training goes on without it", name(error), name(hint)));
}

fn progress(live: &Live) -> Progress {
    Progress {
        epoch: live.epoch,
        epochs: live.epochs,
        batch: live.batch,
        batches: live.batches,
        loss: Some(live.loss),
        accuracy: Some(live.accuracy),
    }
}

fn outcome(row: &EpochRow) -> Outcome {
    Outcome {
        loss: Some(row.loss),
        accuracy: Some(row.accuracy),
        test_accuracy: row.test_accuracy,
        kept_share: Some(row.kept_share()),
        wall_ms: Some(row.wall_ms),
    }
}

/// What is wrong with where a page is to be shown, before anything is opened.
pub(super) fn check_listen(config: &Config) -> Result<()> {
    match config.settings().page().listen.as_str() {
        "" => Ok(()),
        address => Ok(page::loopback(address).map(|_| ())?),
    }
}
