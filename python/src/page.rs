//! The page of a loader: told what happens, shown while it runs, and written as one file at its end.
//!
//! A page is no reason for a training to stop: what keeps it from being shown or written is a sentence for a warning.

use crate::choice::{floats_of, ids_of};
use crate::engine::Engine;
use crate::epoch::Epoch;
use crate::error::exception;
use gristmill_node::page::{self, Listening, Outcome, Progress};
use gristmill_node::report::EpochReport;
use gristmill_node::{Error, Kind};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a running epoch is looked at; batches may be far more frequent.
const LIVE_EVERY: Duration = Duration::from_millis(250);

/// What the trainer said of the running epoch.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    loss: f64,
    losses: u64,
    right: u64,
    judged: u64,
}

impl Sums {
    fn loss(&self) -> Option<f64> {
        (self.losses > 0).then(|| self.loss / self.losses as f64)
    }

    fn accuracy(&self) -> Option<f64> {
        (self.judged > 0).then(|| self.right as f64 / self.judged as f64)
    }
}

#[derive(Default)]
struct State {
    sums: Sums,
    looked: Option<Instant>,
    /// The last epoch that is over, for what is learned of it later.
    last: Option<(EpochReport, Outcome)>,
    listening: Option<Listening>,
    finished: bool,
}

/// What a browser shows of a loader, and the file that is left of it.
#[pyclass(frozen, module = "gristmill._gristmill")]
pub(crate) struct Page {
    page: page::Page,
    /// How many epochs the run has; 0 if that is not known.
    epochs: u64,
    report: Option<PathBuf>,
    url: Option<String>,
    notes: Vec<String>,
    state: Mutex<State>,
    /// A forked child has none of its threads.
    process: u32,
}

impl Page {
    /// The page of an engine, if its settings or `report` ask for one. An address that others could reach is an error.
    pub(crate) fn open(engine: &Engine, report: Option<PathBuf>, epochs: u64) -> Result<Option<Page>, Error> {
        let options = engine.settings.page();
        if options.listen.is_empty() && report.is_none() {
            return Ok(None);
        }
        let loader = &engine.loader;
        let shown = engine.shown.clone();
        let made = page::Page::new(loader.shared_set(), options, loader.options().pixels_max, shown)?;
        if let Some(families) = engine.known_families() {
            made.families(&families);
        }
        let mut notes = Vec::new();
        let mut state = State::default();
        if !options.listen.is_empty() {
            match made.serve(&options.listen) {
                Ok(listening) => state.listening = Some(listening),
                Err(error) if error.kind() == Kind::Config => return Err(error),
                Err(error) => notes.push(sentence(&error)),
            }
        }
        if let Some(error) = report.as_deref().and_then(|path| page::check_file(path).err()) {
            notes.push(sentence(&error));
        }
        let url = state.listening.as_ref().map(Listening::url);
        let (state, process) = (Mutex::new(state), std::process::id());
        Ok(Some(Page { page: made, epochs, report, url, notes, state, process }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is behind the lock is only ever added to or replaced whole, so a poisoned one is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Shows the end and writes the file; what went wrong with that.
    fn end(&self) -> Result<(), Error> {
        self.page.ended();
        self.page.linger();
        let written = match &self.report {
            Some(path) => self.page.html().and_then(|text| {
                std::fs::write(path, text).map_err(|e| Error::io("write the report", path.display(), e))
            }),
            None => Ok(()),
        };
        let listening = self.lock().listening.take();
        drop(listening);
        written
    }
}

#[pymethods]
impl Page {
    /// Where a browser finds it; None if it is only written.
    #[getter]
    fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// What is wrong with it, for warnings.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// An epoch begins.
    fn began(&self, py: Python<'_>, epoch: &Epoch) {
        if self.is_here() {
            py.detach(|| {
                epoch.with(|running| self.page.began(running));
                let mut state = self.lock();
                (state.sums, state.looked) = (Sums::default(), None);
            });
        }
    }

    /// A batch of an epoch is handed over: this many are now. Most calls return at once.
    fn live(&self, py: Python<'_>, epoch: &Epoch, batch: u32) {
        if !self.is_here() {
            return;
        }
        let sums = {
            let mut state = self.lock();
            if state.looked.is_some_and(|at| at.elapsed() < LIVE_EVERY) {
                return;
            }
            state.looked = Some(Instant::now());
            state.sums
        };
        py.detach(|| {
            let (report, batches) = epoch.with(|running| (running.report(), running.batches()));
            let progress = Progress {
                epoch: report.epoch,
                epochs: self.epochs,
                batch,
                batches,
                loss: sums.loss(),
                accuracy: sums.accuracy(),
            };
            self.page.live(&progress, &report);
        });
    }

    /// What the model made of a batch: ids as int64, rows of float32 (`p_true`, `p_rival`, loss, perhaps more). Whether the
    /// probabilities are those of a classifier, so that they say who was right.
    fn learned(&self, py: Python<'_>, ids: &[u8], columns: &[u8], classified: bool) -> PyResult<()> {
        let ids = ids_of(ids).map_err(|e| exception(py, &e))?;
        let values = floats_of(columns);
        let n = ids.len();
        if n == 0 || values.len() < 3 * n {
            return Ok(());
        }
        let (p_true, p_rival, losses) = (&values[..n], &values[n..2 * n], &values[2 * n..3 * n]);
        self.page.learned(&ids, losses);
        let mut state = self.lock();
        for loss in losses.iter().filter(|loss| loss.is_finite()) {
            state.sums.loss += f64::from(*loss);
            state.sums.losses += 1;
        }
        if classified {
            state.sums.right += p_true.iter().zip(p_rival).filter(|(own, other)| own > other).count() as u64;
            state.sums.judged += n as u64;
        }
        Ok(())
    }

    /// An epoch is over.
    fn epoch(&self, py: Python<'_>, epoch: &Epoch) {
        if !self.is_here() {
            return;
        }
        py.detach(|| {
            let report = epoch.with(|running| running.report());
            let mut state = self.lock();
            let sums = state.sums;
            let outcome = Outcome { loss: sums.loss(), accuracy: sums.accuracy(), ..Outcome::default() };
            self.page.epoch(&report, &outcome);
            state.last = Some((report, outcome));
        });
    }

    /// The share of test data that was right after the last epoch; whether there was one.
    fn tested(&self, accuracy: f64) -> bool {
        let mut state = self.lock();
        let Some((report, outcome)) = &mut state.last else { return false };
        outcome.test_accuracy = Some(accuracy);
        self.page.epoch(report, outcome);
        true
    }

    /// The run is over: shows that, writes the file, and ends. What went wrong, if something did; nothing the second time.
    fn finish(&self, py: Python<'_>) -> Option<String> {
        if !self.is_here() || std::mem::replace(&mut self.lock().finished, true) {
            return None;
        }
        py.detach(|| self.end()).err().map(|error| sentence(&error))
    }
}

/// An error with what to do about it.
fn sentence(error: &Error) -> String {
    let hint = error.remedy().map_or(String::new(), |hint| format!(" ({hint})"));
    format!("{error}{hint}; training goes on without it")
}
