//! The exchange of one rank as a state machine: what is due, what came, and whether all ranks may go on.
//!
//! It knows no transport and never waits for another rank. Whoever drives it asks what is [`due`](Exchanger::due), gives it
//! what came ([`take`](Exchanger::take)), and carries two sets of words between all ranks: those of the handshake
//! ([`pledge`](Exchanger::pledge), [`agree`](Exchanger::agree)) and those of an epoch's end
//! ([`settle`](Exchanger::settle), [`commit`](Exchanger::commit)). What goes wrong on this rank in between is kept until
//! then: it goes on receiving, so that nobody waits for it, and all ranks hear the same error together.
//!
//! The order at the end of an epoch is what makes a crash harmless: what came is durable, then everybody says so, then the
//! journal, and only then is deleted what was sent. Whatever is interrupted, some rank has each sample; and what a
//! rank lacks after all is in the store.

use super::fill;
use super::position::{Course, Position};
use super::rounds::{self, Message};
use super::{Due, ExchangeReport, Expected, Fraction, Parcel};
use crate::dataset::DataSet;
use crate::holding::Holding;
use crate::{Error, Result};
use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_core::exchange::Exchange;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of messages that are made at a time, at least; one message more than fits.
const DUE_BYTES: u64 = 64 << 20;

/// One rank's exchange. Shared by the loader, which reads what is held, and by whoever moves the messages.
#[derive(Debug)]
pub struct Exchanger {
    pub(super) set: Arc<DataSet>,
    pub(super) held: Arc<Holding>,
    pub(super) course: Course,
    pub(super) selection: String,
    /// Batches that were handed out in the epoch that runs.
    pub(super) handed: AtomicU32,
    pub(super) state: Mutex<State>,
    /// Held while the slice is tidied up after an epoch.
    pub(super) sweeping: Mutex<()>,
    /// Held while what came is made durable during an epoch.
    pub(super) syncing: Mutex<()>,
    /// What goes on behind the training.
    pub(super) threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
pub(super) struct State {
    /// Why this rank cannot take part, if it cannot.
    pub(super) trouble: Option<String>,
    pub(super) agreed: bool,
    pub(super) resumes_at: u64,
    /// Why it does not go on with the slices that there are, if it does not.
    pub(super) note: Option<String>,
    pub(super) position: Position,
    /// What a checkpoint said.
    pub(super) restored: Option<Position>,
    /// Samples read from the store since the last commit.
    pub(super) refilled: u32,
    pub(super) running: Option<Running>,
    /// What all ranks have committed, until the journal says so and what was sent is deleted.
    pub(super) unswept: Option<Position>,
    /// How long the next epoch had to wait for the exchange of the one before.
    pub(super) swept_ms: f64,
    /// The report of the epoch that was committed last.
    pub(super) last: Option<(u64, ExchangeReport)>,
}

/// An epoch's exchange under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) exchange: Exchange,
    pub(super) left: Vec<u32>,
    pub(super) sends: Vec<Message>,
    pub(super) receives: Vec<Message>,
    /// How many of each were handed to whoever moves them.
    pub(super) sent: usize,
    pub(super) expected: usize,
    /// What is expected and has not come, by peer and tag, as places in `receives`.
    pub(super) open: BTreeMap<(u32, u32), usize>,
    /// Who holds what after it, once that is known.
    pub(super) next: Option<Position>,
    /// What went wrong here first.
    pub(super) failure: Option<String>,
    pub(super) missed_before: u64,
    /// Samples that came and are not durable yet.
    pub(super) unsynced: u32,
    pub(super) report: ExchangeReport,
}

impl Exchanger {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Everything that can fail does so before the state is changed, so a poisoned one is sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            running.unsynced += expected.ids.len() as u32;
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
            if self.held.is_full() {
                // What was sent in the epoch before must go first.
                self.swept()?;
            }
            if let Some(bytes) = bytes {
                self.held.put(id, bytes)?;
            } else {
                fill::fill(&self.set, &self.held, &[id], &mut |_| true)?;
                self.lock().refilled += 1;
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
        if let Fraction::Fixed(fraction) = self.course.settings.fraction {
            position.fraction = fraction;
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
