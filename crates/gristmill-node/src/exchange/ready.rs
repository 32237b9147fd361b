//! From a data set to an epoch whose exchange can begin: the slice is opened, filled, and what is to move is computed.

use super::exchanger::{Exchanger, Running, State};
use super::fill::{self, Filled, Filling};
use super::position::{Course, Position};
use super::rounds::{self, HEAD_BYTES};
use super::{ExchangeReport, ExchangeSettings, Fraction, Hold};
use crate::dataset::DataSet;
use crate::holding::{Holding, Journal};
use crate::{Error, Result};
use gristmill_core::SampleId;
use gristmill_core::exchange::{ExchangeOptions, Owners};
use gristmill_core::plan::Shape;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How a loader is made to exchange.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) settings: ExchangeSettings,
    pub(crate) seed: u64,
    pub(crate) shape: Shape,
    pub(crate) shuffle: bool,
    /// What else all ranks must have alike, in words; empty if nothing that is learned decides what is trained.
    pub(crate) selection: String,
}

/// What is known about an epoch when it begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) batches: u32,
    /// What a selection has chosen, ascending; none for everything.
    pub(crate) active: Option<&'a [u32]>,
    /// Each sample's score; empty if nothing needs it.
    pub(crate) importance: &'a [f32],
    /// What is left out to even out the ranks.
    pub(crate) left: &'a [u32],
    /// How many samples are trained again for that.
    pub(crate) again: u32,
}

impl Exchanger {
    /// The exchange of one rank of a data set. An error here is every rank's; what only this rank has to complain of
    /// is said at the handshake.
    pub(crate) fn new(set: Arc<DataSet>, terms: Terms) -> Result<Exchanger> {
        let Terms { settings, seed, shape, shuffle, selection } = terms;
        if shape.world < 2 {
            return Err(Error::config("an exchange needs at least 2 ranks, but loader.world is 1")
                .hint("start more ranks (torchrun, mpirun), or leave exchange.fraction off"));
        }
        if let Fraction::Fixed(fraction) = settings.fraction {
            let (form, choose) = (settings.form, settings.choose);
            ExchangeOptions { fraction, form, choose }.check()?;
        }
        let samples = set.catalog().len();
        let sizes = set.catalog().sizes()?;
        let largest = sizes.iter().enumerate().max_by_key(|(_, size)| **size);
        if let Some((id, &size)) =
            largest.filter(|(_, size)| u64::from(**size) + HEAD_BYTES > settings.message_bytes_max)
        {
            let name = set.catalog().locate(SampleId(id as u32))?.name.to_string();
            return Err(Error::config(format!(
                "sample {id} ({name}) has {size} bytes, over exchange.message_bytes_max = {}",
                settings.message_bytes_max
            ))
            .hint("raise exchange.message_bytes_max, or leave the sample out of the catalog"));
        }
        let folder = match &settings.hold {
            Hold::Memory => None,
            Hold::Folder(root) => Some(root.join(format!("rank-{:05}", shape.rank))),
        };
        let pure = selection.is_empty();
        let course = Course { samples, seed, shape, shuffle, settings, pure };
        let position = course.first()?;
        let mut trouble = None;
        let held = match folder.as_deref().map(Holding::open) {
            None => Holding::in_memory(),
            Some(Ok(held)) => held,
            Some(Err(error)) => {
                trouble = Some(error.to_string());
                Holding::in_memory()
            }
        };
        let held = Arc::new(held);
        set.hold(Arc::clone(&held))?;
        let state = State {
            trouble,
            agreed: false,
            resumes_at: 0,
            note: None,
            position,
            restored: None,
            refilled: 0,
            running: None,
            unswept: None,
            swept_ms: 0.0,
            last: None,
        };
        let (handed, state) = (AtomicU32::new(0), Mutex::new(state));
        let (sweeping, syncing, threads) = (Mutex::new(()), Mutex::new(()), Mutex::new(Vec::new()));
        let exchanger = Exchanger { set, held, course, selection, handed, state, sweeping, syncing, threads };
        exchanger.recall();
        Ok(exchanger)
    }

    /// Goes on with what the slice's journal says, if it is of this run.
    fn recall(&self) {
        let Some(journal) = self.held.journal() else { return };
        let mut state = self.lock();
        let digest = self.set.catalog().digest().to_string();
        if journal.digest != digest {
            state.trouble = Some(format!(
                "{} has the slice of another data set; choose another exchange.hold, or delete that folder",
                self.held.place()
            ));
            return;
        }
        if journal.run != self.course.name() || journal.rank != self.rank() {
            return;
        }
        let owners = self.kept_owners(journal.epoch);
        if let Some(owners) = owners.filter(|owners| format!("{:016x}", owners.digest()) == journal.owners) {
            state.position =
                Position { epoch: journal.epoch, owners: Arc::new(owners), fraction: journal.fraction };
        }
    }

    /// Who holds what when `epoch` begins, if that was kept and is of this run's shape.
    pub(super) fn kept_owners(&self, epoch: u64) -> Option<Owners> {
        let owners = Owners::from_bytes(&self.held.owners(epoch)?)?;
        (owners.world() == self.world() && owners.samples() == self.course.samples).then_some(owners)
    }

    /// Who holds what when `epoch` begins, without beginning it.
    pub fn owners(&self, epoch: u64) -> Result<Arc<Owners>> {
        let state = self.lock();
        Ok(self.at(&state, epoch)?.owners)
    }

    /// The position of an epoch: the one that is known, or saved, or computed.
    fn at(&self, state: &State, epoch: u64) -> Result<Position> {
        let known = [state.restored.as_ref(), Some(&state.position)].into_iter().flatten();
        if let Some(known) = known.clone().find(|known| known.epoch == epoch) {
            return Ok(known.clone());
        }
        if epoch > 0 && !self.course.pure {
            return Err(Error::config(format!(
                "epoch {epoch} cannot begin: who holds what then depends on what was selected before"
            ))
            .hint("restore the loader's saved state, or begin with epoch 0"));
        }
        let from = Some(state.position.clone()).filter(|known| known.epoch < epoch);
        let from = from.map_or_else(|| self.course.first(), Ok)?;
        self.course.replay(from, epoch, self.set.catalog().labels()?)
    }

    /// Notes time for which the beginning of the next epoch waited for the exchange of the one before.
    pub(crate) fn delayed(&self, time: Duration) {
        self.lock().swept_ms += time.as_secs_f64() * 1e3;
    }

    /// Gets what this rank holds when `epoch` begins and its slice lacks; `progress` says whether to go on. Beginning an
    /// epoch does so too, without anybody to tell.
    pub fn fill(&self, epoch: u64, progress: &mut dyn FnMut(Filling) -> bool) -> Result<Filled> {
        let (position, sweeping) = {
            let mut state = self.lock();
            if let Some(trouble) = &state.trouble {
                return Err(Error::config(trouble.clone()));
            }
            if let Some(running) = &state.running {
                let runs = running.exchange.epoch();
                if runs == epoch {
                    return Ok(Filled { kept: self.held.len(), ..Filled::default() });
                }
                return Err(Error::config(format!(
                    "epoch {epoch} cannot begin: the exchange of epoch {runs} is not finished"
                ))
                .hint("finish it on every rank first"));
            }
            let position = self.at(&state, epoch)?;
            state.position = position.clone();
            let sweeping = state.unswept.as_ref() == Some(&position);
            (position, sweeping)
        };
        let wanted = position.owners.held(self.rank());
        let limit = position.owners.held_max(self.rank(), position.fraction);
        let mine: HashSet<u32> = wanted.iter().copied().collect();
        let extra: Vec<u32> = self.held.ids().into_iter().filter(|id| !mine.contains(id)).collect();
        let missing: Vec<u32> = wanted.iter().copied().filter(|id| !self.held.contains(*id)).collect();
        let crowded = wanted.len() + extra.len() > limit as usize;
        // After an epoch that went well the slice is as it should be, and is tidied up while the next one runs.
        let goes_on = sweeping && missing.is_empty() && !crowded;
        if !goes_on {
            let start = Instant::now();
            self.sweep();
            self.delayed(start.elapsed());
        }
        if crowded {
            // Received before a crash, or of another run: at most what fits may wait for the epoch to begin.
            self.held.remove(extra)?;
        }
        self.held.limit(limit);
        let filled = fill::fill(&self.set, &self.held, &missing, progress)?;
        self.lock().refilled += filled.read;
        if filled.read > 0 {
            self.held.sync()?;
        }
        if !goes_on {
            self.note(&position)?;
        }
        Ok(Filled { kept: (wanted.len() - missing.len()) as u32, ..filled })
    }

    /// Writes down where the slice stands, unless the journal says so.
    pub(super) fn note(&self, position: &Position) -> Result<()> {
        if !self.held.is_durable() {
            return Ok(());
        }
        let journal = Journal {
            version: Journal::VERSION,
            digest: self.set.catalog().digest().to_string(),
            run: self.course.name(),
            rank: self.rank(),
            epoch: position.epoch,
            fraction: position.fraction,
            owners: format!("{:016x}", position.owners.digest()),
        };
        if self.held.journal().as_ref() == Some(&journal) {
            return Ok(());
        }
        if self.kept_owners(position.epoch).is_none_or(|kept| kept != *position.owners) {
            self.held.keep_owners(position.epoch, &position.owners.to_bytes())?;
            self.held.sync()?;
        }
        self.held.write_journal(&journal)?;
        self.held.forget_owners(position.epoch);
        Ok(())
    }

    /// Begins the exchange of an epoch; one that runs already goes on.
    pub(crate) fn begin(&self, epoch: u64, scene: Scene<'_>) -> Result<()> {
        let mut state = self.lock();
        if !state.agreed {
            return Err(Error::config("the ranks have not agreed on what they exchange")
                .hint("give the loader a transport, or start the ranks with torchrun or mpirun"));
        }
        if state.running.as_ref().is_some_and(|running| running.exchange.epoch() == epoch) {
            return Ok(());
        }
        if state.position.epoch != epoch {
            return Err(Error::config(format!("the slice is not filled for epoch {epoch}")));
        }
        let labels = self.set.catalog().labels()?;
        let exchange = self.course.exchange(&state.position, scene.active, scene.importance, labels)?;
        let (sizes, bytes_max) = (self.set.catalog().sizes()?, self.course.settings.message_bytes_max);
        let messages = |moves: &[_]| rounds::messages(&exchange, moves, scene.batches, sizes, bytes_max);
        let (going, coming) = (exchange.sends(self.rank()), exchange.receives(self.rank()));
        let (sends, receives) = (messages(&going), messages(&coming));
        let owned = state.position.owners.held(self.rank());
        let keep: HashSet<u32> = owned.iter().copied().chain(coming.iter().map(|one| one.id)).collect();
        self.held.remove(self.held.ids().into_iter().filter(|id| !keep.contains(id)))?;
        let held = owned.len() as u32;
        // Whoever begins with another epoch has a saved state.
        let anew = state.note.take().filter(|_| epoch == 0 && state.restored.is_none());
        let fraction = state.position.fraction;
        let none = (fraction > 0.0 && exchange.steps() == 0).then(|| {
            format!("a fraction of {fraction} of {held} samples is less than one, so nothing is swapped")
        });
        let report = ExchangeReport {
            notes: anew.into_iter().chain(none).collect(),
            fraction,
            held,
            balanced: exchange.balanced(),
            refilled: std::mem::take(&mut state.refilled),
            left: scene.left.len() as u32,
            again: scene.again,
            // What held this epoch up of the one before counts as waiting for the exchange.
            wait_ms: std::mem::take(&mut state.swept_ms),
            divergence: state.position.divergence(labels).mean,
            ..ExchangeReport::default()
        };
        self.handed.store(0, Relaxed);
        let missed_before = self.held.missed();
        let (sent, expected, open, unsynced, left) = (0, 0, BTreeMap::new(), 0, scene.left.to_vec());
        let (next, failure) = (None, None);
        state.running = Some(Running {
            exchange,
            left,
            sends,
            receives,
            sent,
            expected,
            open,
            next,
            failure,
            missed_before,
            unsynced,
            report,
        });
        Ok(())
    }

    /// Which samples this rank will hold in the epoch after the one that runs.
    pub(crate) fn next_held(&self) -> Vec<u32> {
        let state = self.lock();
        let mut owners = (*state.position.owners).clone();
        if let Some(running) = &state.running {
            owners.commit(&running.exchange);
        }
        owners.held(self.rank()).to_vec()
    }
}
