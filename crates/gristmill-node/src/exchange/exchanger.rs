//! The exchange of one rank as a state machine: what is due, what came, and whether all ranks may go on.
//!
//! It knows no transport and never waits for another rank. Whoever drives it asks what is [`due`](Exchanger::due), gives it
//! what came ([`take`](Exchanger::take)), and carries two sets of words between all ranks: those of the handshake
//! ([`pledge`](Exchanger::pledge), [`agree`](Exchanger::agree)) and those of an epoch's end
//! ([`settle`](Exchanger::settle), [`commit`](Exchanger::commit)). What goes wrong on this rank in between is kept until
//! then: it goes on receiving, so that nobody waits for it, and all ranks hear the same error together.
//!
//! The order at the end of an epoch is what makes a crash harmless: what came is durable, then everybody says so, then the
//! journal, and only then is let go of what was sent. Whatever is interrupted, some rank has each sample; and what a
//! rank lacks after all is in the store.

use super::fill::{self, Filled, Filling};
use super::position::{Course, Position};
use super::rounds::{self, HEAD_BYTES, Message};
use super::settle::Word;
use super::{Due, ExchangeReport, ExchangeSettings, Expected, Fraction, Hold, Parcel};
use crate::dataset::DataSet;
use crate::holding::{Holding, Journal};
use crate::{Error, Result};
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_core::exchange::{Exchange, ExchangeOptions, Owners};
use gristmill_core::plan::Shape;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of messages that are made at a time, at least; one message more than fits.
const DUE_BYTES: u64 = 64 << 20;

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

/// One rank's exchange. Shared by the loader, which reads what is held, and by whoever moves the messages.
#[derive(Debug)]
pub struct Exchanger {
    pub(super) set: Arc<DataSet>,
    pub(super) held: Arc<Holding>,
    pub(super) course: Course,
    pub(super) selection: String,
    /// Batches that were handed out in the epoch that runs.
    handed: AtomicU32,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// Why this rank cannot take part, if it cannot.
    pub(super) trouble: Option<String>,
    pub(super) agreed: bool,
    pub(super) resumes_at: u64,
    pub(super) position: Position,
    /// What a checkpoint said.
    pub(super) restored: Option<Position>,
    /// Samples read from the store since the last commit.
    pub(super) refilled: u32,
    pub(super) running: Option<Running>,
    /// The report of the epoch that was committed last.
    pub(super) last: Option<(u64, ExchangeReport)>,
}

/// An epoch's exchange under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) exchange: Exchange,
    pub(super) left: Vec<u32>,
    sends: Vec<Message>,
    receives: Vec<Message>,
    /// How many of each were handed to whoever moves them.
    sent: usize,
    expected: usize,
    /// What is expected and has not come, by peer and tag, as places in `receives`.
    pub(super) open: BTreeMap<(u32, u32), usize>,
    /// What went wrong here first.
    pub(super) failure: Option<String>,
    missed_before: u64,
    pub(super) report: ExchangeReport,
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
            position,
            restored: None,
            refilled: 0,
            running: None,
            last: None,
        };
        let (handed, state) = (AtomicU32::new(0), Mutex::new(state));
        let exchanger = Exchanger { set, held, course, selection, handed, state };
        exchanger.recall();
        Ok(exchanger)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Everything that can fail does so before the state is changed, so a poisoned one is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Which rank this is.
    pub fn rank(&self) -> u32 {
        self.course.shape.rank
    }

    /// How many ranks there are.
    pub fn world(&self) -> u32 {
        self.course.shape.world
    }

    /// How long a rank waits for another.
    pub fn patience(&self) -> Duration {
        Duration::from_millis(self.course.settings.patience_ms)
    }

    /// The slice.
    pub fn held(&self) -> &Arc<Holding> {
        &self.held
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

    /// Gets what this rank holds when `epoch` begins and its slice lacks; `progress` says whether to go on. Beginning an
    /// epoch does so too, without anybody to tell.
    pub fn fill(&self, epoch: u64, progress: &mut dyn FnMut(Filling) -> bool) -> Result<Filled> {
        let position = {
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
            position
        };
        let wanted = position.owners.held(self.rank());
        let limit = position.owners.held_max(self.rank(), position.fraction);
        let mine: HashSet<u32> = wanted.iter().copied().collect();
        let extra: Vec<u32> = self.held.ids().into_iter().filter(|id| !mine.contains(id)).collect();
        if wanted.len() + extra.len() > limit as usize {
            // Received before a crash, or of another run: at most what fits may wait for the epoch to begin.
            self.held.remove(extra)?;
        }
        self.held.limit(limit);
        let missing: Vec<u32> = wanted.iter().copied().filter(|id| !self.held.contains(*id)).collect();
        let filled = fill::fill(&self.set, &self.held, &missing, progress)?;
        self.lock().refilled += filled.read;
        self.note(&position)?;
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
        }
        self.held.sync()?;
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
        let report = ExchangeReport {
            fraction: state.position.fraction,
            held: owned.len() as u32,
            balanced: exchange.balanced(),
            refilled: std::mem::take(&mut state.refilled),
            left: scene.left.len() as u32,
            again: scene.again,
            divergence: state.position.divergence(labels).mean,
            ..ExchangeReport::default()
        };
        self.handed.store(0, Relaxed);
        let missed_before = self.held.missed();
        let (sent, expected, open, failure, left) = (0, 0, BTreeMap::new(), None, scene.left.to_vec());
        state.running = Some(Running {
            exchange,
            left,
            sends,
            receives,
            sent,
            expected,
            open,
            failure,
            missed_before,
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

    /// Notes that so many batches of the epoch were handed out; no lock, since the loader does it for each.
    pub(crate) fn handed(&self, batches: u32) {
        self.handed.fetch_max(batches, Relaxed);
    }

    /// The epoch whose exchange is under way.
    pub fn running(&self) -> Option<u64> {
        self.lock().running.as_ref().map(|running| running.exchange.epoch())
    }

    /// What is due now that the loader has handed out so many batches.
    pub(crate) fn due_now(&self) -> Result<Due> {
        match self.handed.load(Relaxed) {
            0 => Ok(Due::default()),
            handed => self.due(handed - 1),
        }
    }

    /// The messages that are due once batch `batch` (from 0) is handed out, and were not before; `u32::MAX` for all
    /// that is left.
    pub fn due(&self, batch: u32) -> Result<Due> {
        let (mut due, messages) = {
            let mut state = self.lock();
            let Some(running) = &mut state.running else { return Ok(Due::default()) };
            let mut due = Due::default();
            let mut bytes = 0;
            let mut messages = Vec::new();
            while let Some(next) = running.sends.get(running.sent).filter(|next| next.batch <= batch) {
                if bytes > 0 && bytes + next.bytes as u64 > DUE_BYTES {
                    due.more = true;
                    break;
                }
                bytes += next.bytes as u64;
                messages.push(next.clone());
                running.sent += 1;
            }
            let mut room = DUE_BYTES;
            while let Some(next) = running.receives.get(running.expected).filter(|next| next.batch <= batch) {
                if room < DUE_BYTES && (next.bytes as u64) > room {
                    due.more = true;
                    break;
                }
                room = room.saturating_sub(next.bytes as u64);
                due.receives.push(Expected { peer: next.peer, tag: next.tag, bytes: next.bytes });
                running.open.insert((next.peer, next.tag), running.expected);
                running.expected += 1;
            }
            running.report.sent += messages.iter().map(|message| message.ids.len() as u32).sum::<u32>();
            running.report.bytes_sent += bytes;
            (due, messages)
        };
        // Read without the lock: disks may take their time.
        let sizes = self.set.catalog().sizes()?;
        due.sends = messages
            .iter()
            .map(|message| Parcel {
                peer: message.peer,
                tag: message.tag,
                bytes: rounds::pack(message, sizes, |id| self.bytes(id)),
            })
            .collect();
        Ok(due)
    }

    /// The bytes of a sample of this rank, or nothing if not even the store has them.
    fn bytes(&self, id: u32) -> Option<Bytes> {
        self.set.read_from_now(SampleId(id)).ok().map(|(bytes, _)| bytes)
    }

    /// Takes a message. What is wrong with it is kept for [`Exchanger::settle`], so that no other rank waits in vain.
    pub fn take(&self, peer: u32, tag: u32, message: &[u8]) {
        let mut state = self.lock();
        let Some(running) = &mut state.running else { return };
        let Some(at) = running.open.remove(&(peer, tag)) else {
            running.fail(&format!("rank {peer} sent message {tag}, which nobody expected"));
            return;
        };
        let expected = running.receives[at].clone();
        drop(state);
        let outcome = self.store(&expected, message);
        if let Some(running) = &mut self.lock().running {
            running.report.received += expected.ids.len() as u32;
            running.report.bytes_received += message.len() as u64;
            if let Err(error) = outcome {
                running.fail(&error.to_string());
            }
        }
    }

    /// Puts the samples of a message into the slice.
    fn store(&self, expected: &Message, message: &[u8]) -> Result<()> {
        let sizes = self.set.catalog().sizes()?;
        for (id, bytes) in rounds::unpack(expected, sizes, message)? {
            match bytes {
                Some(bytes) => self.held.put(id, bytes)?,
                None => {
                    fill::fill(&self.set, &self.held, &[id], &mut |_| true)?;
                    self.lock().refilled += 1;
                }
            }
        }
        Ok(())
    }

    /// What was due and has not come, as sources and tags.
    pub fn outstanding(&self) -> Vec<(u32, u32)> {
        self.lock().running.as_ref().map_or_else(Vec::new, |running| running.open.keys().copied().collect())
    }

    /// Notes what went wrong on this rank, to be told to all by [`Exchanger::settle`]. Only the first counts.
    pub fn fail(&self, why: &str) {
        if let Some(running) = &mut self.lock().running {
            running.fail(why);
        }
    }

    /// Notes time for which training waited for the exchange.
    pub fn waited(&self, time: Duration) {
        let mut state = self.lock();
        let state = &mut *state;
        let report = match (&mut state.running, &mut state.last) {
            (Some(running), _) => &mut running.report,
            (None, Some((_, last))) => last,
            (None, None) => return,
        };
        report.wait_ms += time.as_secs_f64() * 1e3;
    }

    /// What the exchange of `epoch` did so far, if it runs or was the last one.
    pub fn report(&self, epoch: u64) -> Option<ExchangeReport> {
        let state = self.lock();
        match (&state.running, &state.last) {
            (Some(running), _) if running.exchange.epoch() == epoch => {
                let missed = self.held.missed() - running.missed_before;
                Some(ExchangeReport { missed, ..running.report.clone() })
            }
            (_, Some((last, report))) if *last == epoch => Some(report.clone()),
            _ => None,
        }
    }

    /// Who holds what, for a checkpoint: as it was when the epoch that runs began, or as it is now between epochs.
    pub fn state(&self) -> Vec<u8> {
        self.lock().position.to_bytes()
    }

    /// Goes on from a saved state, on every rank alike, before an epoch begins. With another number of ranks who holds what
    /// is dealt out anew.
    pub fn restore(&self, saved: &[u8]) -> Result<()> {
        let mut position = Position::from_bytes(saved)?;
        if position.owners.samples() != self.course.samples {
            return Err(Error::config(format!(
                "the exchange was saved with {} samples, but there are {}",
                position.owners.samples(),
                self.course.samples
            ))
            .hint("the data set is not what it was when this was saved"));
        }
        if position.owners.world() != self.world() {
            position = Position { epoch: position.epoch, ..self.course.first()? };
        }
        let mut state = self.lock();
        state.running = None;
        state.restored = Some(position);
        Ok(())
    }

    /// How many messages are not handed over yet.
    pub(crate) fn unissued(&self) -> usize {
        let state = self.lock();
        let left = |running: &Running| {
            running.sends.len() - running.sent + running.receives.len() - running.expected
        };
        state.running.as_ref().map_or(0, left)
    }

    /// The words of this rank if nothing can be said about the epoch any more.
    pub(super) fn word(&self, owners: Option<u64>, failure: Option<String>, epoch: Option<u64>) -> Vec<u8> {
        Word { epoch, owners, failure }.to_bytes()
    }
}

impl Running {
    pub(super) fn fail(&mut self, why: &str) {
        self.failure.get_or_insert_with(|| why.to_string());
    }

    pub(super) fn sent_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.sends.iter().flat_map(|message| message.ids.iter().copied())
    }

    /// The report once it is over, given what the slice missed in all.
    pub(super) fn done(self, missed: u64) -> ExchangeReport {
        ExchangeReport { committed: true, missed: missed - self.missed_before, ..self.report }
    }

    /// Whether everything was handed over.
    pub(super) fn all_issued(&self) -> bool {
        self.sent == self.sends.len() && self.expected == self.receives.len()
    }
}
