//! The loader's engine: a data set, a recipe and settings, opened once.

use crate::choice::Choice;
use crate::enter;
use crate::epoch::Epoch;
use crate::error::exception;
use crate::exchange::Exchange;
use crate::page::Page;
use gristmill_core::SampleId;
use gristmill_core::family::Families;
use gristmill_node::catalog::Catalog;
use gristmill_node::config::{Config, Settings};
use gristmill_node::families::{self, FamilyOptions};
use gristmill_node::loader::Loader;
use gristmill_node::{Error, open, page};
use gristmill_ops::{Dtype, Layout, Output, Recipe};
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What Python hands in, before anything is opened.
pub(crate) struct Request {
    pub(crate) source: String,
    pub(crate) recipe: Option<String>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) config: Option<PathBuf>,
    pub(crate) rebuild: bool,
}

/// What was opened for it.
pub(crate) struct Found {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) settings: Settings,
    pub(crate) recipe: Option<Recipe>,
    /// Where the data set's families are kept.
    pub(crate) families: PathBuf,
    /// The settings that a page shows.
    pub(crate) shown: Vec<(String, String)>,
}

impl Request {
    /// Reads the config and the recipe, and opens or builds the catalog.
    pub(crate) fn open(self) -> Result<Found, Error> {
        let config = Config::load(self.config.as_deref(), &self.settings)?;
        let settings = config.settings().clone();
        let recipe = match &self.recipe {
            // A recipe of the user's own comes as text; a name is a preset or a file.
            Some(text) if text.trim_start().starts_with(['{', '[']) => {
                Some(Recipe::parse(text).map_err(|e| Error::config(e.to_string()))?)
            }
            Some(name) => open::recipe(name)?,
            None => None,
        };
        let opened =
            open::catalog(&self.source, &settings, self.rebuild, &mut |_| ControlFlow::Continue(()))?;
        let families = opened.families_path(&self.source);
        let shown = page::shown(&config);
        Ok(Found { catalog: opened.catalog, settings, recipe, families, shown })
    }
}

/// What this process is called at a node that several share.
fn job_name() -> String {
    // Below an interpreter the arguments are its own: the first one that names a script is what people call it.
    let is_script = |word: &String| Path::new(word).extension().is_some_and(|ending| ending == "py");
    let script = std::env::args().find(is_script).unwrap_or_else(|| "python".into());
    let script = script.rsplit('/').next().unwrap_or("python").to_string();
    format!("{script}, process {}", std::process::id())
}

/// A data set being loaded.
#[pyclass(frozen, module = "gristmill._gristmill")]
pub(crate) struct Engine {
    pub(crate) loader: Arc<Loader>,
    catalog: Arc<Catalog>,
    pub(crate) settings: Settings,
    pub(crate) shown: Vec<(String, String)>,
    /// Where the data set's families are kept.
    families: PathBuf,
}

impl Engine {
    /// Near-duplicates, if they were found before: looking for them is not a page's business.
    pub(crate) fn known_families(&self) -> Option<Families> {
        let known = families::open(&self.families, &self.catalog, FamilyOptions::default());
        known.ok().flatten().map(|found| found.families)
    }
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (source, recipe, settings, *, config=None, rebuild=false))]
    fn new(
        py: Python<'_>,
        source: String,
        recipe: Option<String>,
        settings: Vec<(String, String)>,
        config: Option<PathBuf>,
        rebuild: bool,
    ) -> PyResult<Engine> {
        let request = Request { source, recipe, settings, config, rebuild };
        enter::wait(py, move || {
            let Found { catalog, settings, recipe, families, shown } = request.open()?;
            let set = Arc::new(open::data_set(catalog.clone(), &settings, &|| false)?);
            let loader =
                open::loader(Arc::clone(&set), recipe.as_ref(), settings.loader(), &families, &mut |_| true)?;
            // After the loader, which may hold a slice of the set in front of the store: a node has other plans then.
            let access = open::access(&set, &settings, &job_name())?;
            Ok(Engine { loader: Arc::new(loader.with_access(access)), catalog, settings, shown, families })
        })
    }

    /// How many samples the data set has.
    fn __len__(&self) -> usize {
        self.catalog.len() as usize
    }

    /// The names of the classes.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.catalog.classes().to_vec()
    }

    /// What names the data set, wherever it lies.
    #[getter]
    fn digest(&self) -> String {
        self.catalog.digest().to_string()
    }

    /// What was noticed while the catalog was built.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.catalog.notes().to_vec()
    }

    /// Threads that decode.
    #[getter]
    fn threads(&self) -> usize {
        self.loader.options().threads
    }

    /// Batches per epoch on this rank, without making an order.
    fn batches(&self) -> u32 {
        self.loader.batches()
    }

    /// What selects the samples of an epoch; None when all are trained.
    #[getter]
    fn choice(&self) -> Option<Choice> {
        let options = self.loader.options();
        self.loader.choice().map(|choice| Choice::new(choice.clone(), options.shape, options.shuffle))
    }

    /// This rank's exchange; None when any rank may have any sample.
    #[getter]
    fn exchange(&self) -> Option<Exchange> {
        self.loader.exchanger().map(|exchanger| Exchange::new(exchanger.clone()))
    }

    /// The page that the settings ask for, or a `report`; None if neither does.
    fn page(&self, py: Python<'_>, report: Option<PathBuf>, epochs: u64) -> PyResult<Option<Page>> {
        enter::short(py, || Page::open(self, report, epochs))
    }

    /// Type, layout and shape of one sample; None without a recipe.
    #[getter]
    fn output(&self) -> Option<(&'static str, &'static str, [usize; 3])> {
        self.loader.output().map(described)
    }

    /// The ids of an epoch's batches on this rank, from one batch on.
    fn order(&self, py: Python<'_>, epoch: u64, from_batch: u32) -> PyResult<Vec<Vec<u32>>> {
        enter::short(py, || {
            let plan = self.loader.plan(epoch)?;
            Ok((from_batch..plan.batches()).map(|b| plan.batch(b).map(|SampleId(id)| id).collect()).collect())
        })
    }

    /// Starts an epoch at one of its batches.
    fn epoch(&self, py: Python<'_>, epoch: u64, from_batch: u32) -> PyResult<Epoch> {
        let started = py.detach(|| self.loader.epoch(epoch, from_batch)).map_err(|e| exception(py, &e))?;
        Ok(Epoch::new(started, Duration::from_millis(self.loader.options().stall_ms_max)))
    }
}

/// An output in words and numbers.
pub(crate) fn described(output: Output) -> (&'static str, &'static str, [usize; 3]) {
    let dtype = match output.dtype {
        Dtype::U8 => "u8",
        Dtype::F32 => "f32",
    };
    let layout = match output.layout {
        Layout::Nchw => "nchw",
        Layout::Nhwc => "nhwc",
    };
    (dtype, layout, output.shape())
}
