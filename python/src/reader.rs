//! Samples by id on the calling thread, for programs with their own order and workers.

use crate::choice::Choice;
use crate::engine::{Found, Request, described};
use crate::enter;
use crate::epoch::Batch;
use gristmill_node::catalog::Catalog;
use gristmill_node::config::Config;
use gristmill_node::{open, reader};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// Reads samples by id.
#[pyclass(frozen, module = "gristmill._gristmill")]
pub(crate) struct Reader {
    inner: Arc<reader::Reader>,
    catalog: Arc<Catalog>,
    families: PathBuf,
    config: Option<PathBuf>,
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (source, recipe, settings, *, config=None, rebuild=false))]
    fn new(
        py: Python<'_>,
        source: String,
        recipe: Option<String>,
        settings: Vec<(String, String)>,
        config: Option<PathBuf>,
        rebuild: bool,
    ) -> PyResult<Reader> {
        let request = Request { source, recipe, settings, config: config.clone(), rebuild };
        enter::wait(py, move || {
            let Found { catalog, settings, recipe, families, shown: _ } = request.open()?;
            let inner = Arc::new(reader::Reader::new(catalog.clone(), recipe.as_ref(), settings)?);
            Ok(Reader { inner, catalog, families, config })
        })
    }

    /// How many samples the data set has.
    fn __len__(&self) -> usize {
        self.inner.catalog().len() as usize
    }

    /// The names of the classes.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.inner.catalog().classes().to_vec()
    }

    /// What names the data set, wherever it lies.
    #[getter]
    fn digest(&self) -> String {
        self.inner.catalog().digest().to_string()
    }

    /// Type, layout and shape of one sample; None without a recipe.
    #[getter]
    fn output(&self) -> Option<(&'static str, &'static str, [usize; 3])> {
        self.inner.output().map(described)
    }

    /// What selects among its samples, as the settings say.
    fn choice(&self, py: Python<'_>, settings: Vec<(String, String)>) -> PyResult<Choice> {
        let (catalog, path) = (self.catalog.clone(), self.families.clone());
        let file = self.config.clone();
        enter::wait(py, move || {
            let config = Config::load(file.as_deref(), &settings)?;
            let options = config.settings().loader();
            // Families are found by reading everything once, or lie there from before.
            let set = Arc::new(open::data_set(catalog.clone(), config.settings(), &|| false)?);
            let families = open::relatives(&set, &options, &path, &mut |_| true)?;
            Choice::among(catalog.labels()?, catalog.sizes()?, families, &options)
        })
    }

    /// Whether it can be used in a forked child.
    #[getter]
    fn survives_fork(&self) -> bool {
        self.inner.survives_fork()
    }

    /// These samples, in this order, with the random ops of `epoch`.
    fn read(&self, py: Python<'_>, epoch: u64, ids: Vec<u32>) -> PyResult<Batch> {
        if self.inner.survives_fork() {
            return enter::short(py, || self.inner.read(epoch, &ids)).map(Batch::new);
        }
        let reader = self.inner.clone();
        enter::wait(py, move || reader.read(epoch, &ids)).map(Batch::new)
    }
}
