//! One training of one configuration from one seed: a job, two jobs on one node, or four ranks.

use super::configuration::{Configuration, Setting};
use super::outcome::{Course, Outcome};
use super::scenario::Scenario;
use super::scene::Scene;
use crate::commands::compare::two_at_once;
use crate::stop;
use anyhow::Result;
use gristmill_core::plan::Shape;
use gristmill_node::access::{Access, Embedded};
use gristmill_node::config::Settings;
use gristmill_node::dataset::DataSet;
use gristmill_node::exchange::{Local, Transport};
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::node::Node;
use gristmill_node::open;
use gristmill_node::report::EpochReport;
use gristmill_train::ranks::{Joint, together};
use gristmill_train::{EpochRow, Event, Run, TrainOptions, Trainer};
use std::sync::{Arc, Mutex, PoisonError};

/// How many ranks train together.
const RANKS: u32 = 4;

impl Scene<'_> {
    /// Trains one configuration from a seed; `tell` hears of every epoch.
    pub(super) fn train(
        &self,
        configuration: Configuration,
        seed: u64,
        tell: &(dyn Fn() + Sync),
    ) -> Result<Outcome> {
        let settings = configuration.settings(self.scenario, self.args.workers);
        match self.scenario {
            Scenario::Jobs => self.two_jobs(&settings, seed, tell),
            Scenario::Ranks => self.ranks(&settings, seed, tell),
            _ => self.one_job(&settings, seed, tell),
        }
    }

    /// Trains one job with these settings.
    pub(super) fn one_job(&self, own: &[Setting], seed: u64, tell: &(dyn Fn() + Sync)) -> Result<Outcome> {
        let config = self.config(own, seed)?;
        let settings = config.settings();
        let set = self.opened()?;
        let access = open::access(&set, settings, "compare")?;
        let loader = self.loader(set, settings)?.with_access(access);
        let (course, bytes_read) = self.course(&loader, 0, seed, tell)?;
        Ok(Outcome { jobs: vec![course], bytes_read })
    }

    fn loader(&self, set: Arc<DataSet>, settings: &Settings) -> Result<Loader> {
        Ok(Loader::new(set, Some(&self.recipe), settings.loader())?)
    }

    /// Trains the model of one job over a loader.
    fn course(
        &self,
        loader: &Loader,
        job: usize,
        seed: u64,
        tell: &(dyn Fn() + Sync),
    ) -> Result<(Course, u64)> {
        let options = TrainOptions { seed, ..self.models[job].clone() };
        let mut trainer = Trainer::new(options, loader)?.paced(self.accelerator);
        let (mut course, mut bytes) = (Course::default(), 0);
        trainer.run(Run {
            train: loader,
            test: Some(&self.test),
            checkpoint: None,
            stop: &stop::asked,
            watch: &mut |event| {
                if let Event::Epoch(row, report) = event {
                    course.add(row, report, seed);
                    bytes += came(row, report);
                    tell();
                }
                Ok(())
            },
        })?;
        stop::check()?;
        Ok((course, bytes))
    }

    /// Trains two jobs at once, on one node if there is a cache, over one store in any case.
    fn two_jobs(&self, own: &[Setting], seed: u64, tell: &(dyn Fn() + Sync)) -> Result<Outcome> {
        let config = self.config(own, seed)?;
        let settings = config.settings();
        let options = settings.node(self.set.catalog().total_bytes()?);
        let node =
            options.map(|options| Node::new(Arc::clone(&self.set), options)).transpose()?.map(Arc::new);
        let one = |job: usize| -> Result<(Course, u64)> {
            let joined = node.as_ref().map(|node| Embedded::join(Arc::clone(node), ["job a", "job b"][job]));
            let access = joined.transpose()?.map(|joined| Arc::new(joined) as Arc<dyn Access>);
            let loader = self.loader(Arc::clone(&self.set), settings)?.with_access(access);
            self.course(&loader, job, seed, tell)
        };
        let (a, b) = two_at_once(one)?;
        let read = node.map_or(a.1 + b.1, |node| node.report().store_bytes);
        Ok(Outcome { jobs: vec![a.0, b.0], bytes_read: read })
    }

    /// Trains one model with four ranks, which are threads of this process and share the store.
    fn ranks(&self, own: &[Setting], seed: u64, tell: &(dyn Fn() + Sync)) -> Result<Outcome> {
        let config = self.config(own, seed)?;
        let settings = config.settings();
        let usual = settings.loader();
        let exchanges = usual.exchange.is_some();
        let ends = Mutex::new(Local::ranks(RANKS, None).into_iter().map(Some).collect::<Vec<_>>());
        let total_bytes = self.set.catalog().total_bytes()?;
        let make = |rank: u32| -> gristmill_node::Result<Loader> {
            let options =
                LoaderOptions { shape: Shape { rank, world: RANKS, ..usual.shape }, ..usual.clone() };
            // With slices nobody may have what others hold.
            let set = if exchanges { Arc::new(self.set.beside()) } else { Arc::clone(&self.set) };
            let loader = Loader::new(Arc::clone(&set), Some(&self.recipe), options)?;
            let end = ends.lock().unwrap_or_else(PoisonError::into_inner)[rank as usize].take();
            if let Some(end) = end.filter(|_| exchanges) {
                return loader.with_transport(Box::new(end) as Box<dyn Transport>);
            }
            let node = settings.node(total_bytes).map(|options| Node::new(set, options)).transpose()?;
            let joined = node.map(|node| Embedded::join(Arc::new(node), "rank")).transpose()?;
            Ok(loader.with_access(joined.map(|joined| Arc::new(joined) as Arc<dyn Access>)))
        };
        let options = TrainOptions { seed, ..self.models[0].clone() };
        let joint = Joint {
            options: &options,
            world: RANKS,
            loader: &make,
            test: &self.test,
            samples_per_s: self.accelerator * f64::from(RANKS),
            stop: &stop::asked,
        };
        let mean_bytes = total_bytes / u64::from(self.set.catalog().len()).max(1);
        let (mut course, mut bytes) = (Course::default(), 0);
        together(&joint, &mut |row, reports| {
            // Ranks steer alike or not at all: what the first decides is shown.
            if let Some(first) = reports.first() {
                course.add(row, first, seed);
            }
            bytes += reports.iter().map(|report| read(report, mean_bytes)).sum::<u64>();
            tell();
        })?;
        stop::check()?;
        Ok(Outcome { jobs: vec![course], bytes_read: bytes })
    }
}

/// Bytes that came from afar in an epoch: what crossed the link, if it was looked at, else raw samples.
fn came(row: &EpochRow, report: &EpochReport) -> u64 {
    let crossed = report.split.as_ref().map(|split| split.bytes);
    crossed.filter(|bytes| *bytes > 0).unwrap_or(row.bytes)
}

/// Bytes that a rank read from the store in an epoch: what filled its slice too, where it has one, and not what it holds.
fn read(report: &EpochReport, mean_bytes: u64) -> u64 {
    let Some(exchange) = &report.exchange else { return report.bytes };
    let behind = report.tiers.iter().filter(|tier| tier.tier.is_behind()).map(|tier| tier.bytes);
    behind.sum::<u64>() + u64::from(exchange.refilled) * mean_bytes
}
