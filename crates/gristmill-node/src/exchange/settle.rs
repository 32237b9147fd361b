//! Where ranks speak together: the handshake, the beginning and the end of an epoch.

use super::exchanger::Exchanger;
use super::pledge::{self, Pledge, Standing};
use super::position::Position;
use super::{ExchangeReport, named};
use crate::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::sync::PoisonError;

/// The largest words that are looked at.
const BYTES_MAX: usize = 64 << 10;

/// What a rank says about an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Word {
    /// Which epoch it is at.
    epoch: Option<u64>,
    /// What names its plan: who holds what when the epoch begins, or when it is over.
    owners: Option<u64>,
    /// What went wrong there.
    failure: Option<String>,
}

impl Word {
    /// The words of a rank where all is well.
    fn well(epoch: u64, owners: u64) -> Vec<u8> {
        Word { epoch: Some(epoch), owners: Some(owners), failure: None }.to_bytes()
    }

    /// The words of one where it is not.
    fn failed(epoch: Option<u64>, why: &str) -> Vec<u8> {
        Word { epoch, owners: None, failure: Some(why.to_string()) }.to_bytes()
    }

    fn to_bytes(&self) -> Vec<u8> {
        // Strings and numbers alone: this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Exchanger {
    /// What this rank says at the handshake.
    pub fn pledge(&self) -> Vec<u8> {
        let state = self.lock();
        let course = &self.course;
        let (settings, shape) = (&course.settings, course.shape);
        let fact = |name: &str, value: &dyn std::fmt::Display| (name.to_string(), value.to_string());
        let debug = |name: &str, value: &dyn std::fmt::Debug| (name.to_string(), format!("{value:?}"));
        let facts = vec![
            fact("the version of Gristmill", &env!("CARGO_PKG_VERSION")),
            fact("the number of ranks", &shape.world),
            fact("the number of samples", &course.samples),
            fact("the data set", &self.set.catalog().digest()),
            fact("loader.seed", &course.seed),
            fact("loader.batch", &shape.batch),
            debug("loader.uneven", &shape.uneven),
            fact("loader.drop_last", &shape.drop_last),
            fact("loader.shuffle", &course.shuffle),
            debug("exchange.fraction", &settings.fraction),
            debug("exchange.form", &settings.form),
            debug("exchange.choose", &settings.choose),
            fact("exchange.message_bytes_max", &settings.message_bytes_max),
            fact("the selection", &self.selection),
        ];
        let standing = |epoch, owners| Standing { epoch, owners };
        let journal = self.held.journal().filter(|journal| {
            journal.run == course.name()
                && journal.rank == self.rank()
                && journal.epoch == state.position.epoch
        });
        let committed = journal.map(|at| standing(at.epoch, state.position.owners.digest()));
        let prepared = self.held.owners_newest().filter(|epoch| *epoch != state.position.epoch);
        let prepared = prepared.and_then(|epoch| Some(standing(epoch, self.kept_owners(epoch)?.digest())));
        let other = self.held.journal().filter(|journal| journal.run != course.name() && journal.epoch > 0);
        let (other, trouble) = (other.map(|journal| journal.epoch), state.trouble.clone());
        Pledge { rank: self.rank(), facts, committed, prepared, other, trouble }.to_bytes()
    }

    /// Takes what all ranks said, in their order; the same error on every rank if they do not fit together.
    pub fn agree(&self, pledges: &[Vec<u8>]) -> Result<()> {
        let pledges = pledge::agree(pledges, self.world())?;
        let labels = self.set.catalog().labels()?;
        // A slice without a journal can follow only to where everybody can compute: not behind a partition that was dealt
        // out anew on the way.
        let computed = |at: pledge::Standing| {
            let there = self.course.first().and_then(|first| self.course.replay(first, at.epoch, labels));
            self.course.pure && there.is_ok_and(|there| there.owners.digest() == at.owners)
        };
        let resume = pledge::resume(&pledges, computed);
        let mut state = self.lock();
        match resume {
            None => {
                state.note = pledge::anew(&pledges);
                state.position = self.course.first()?;
            }
            Some(at) if at.epoch == state.position.epoch => {}
            // Others have committed what this rank was about to.
            Some(at) => {
                let before = Some(state.position.clone()).filter(|before| before.epoch < at.epoch);
                let kept = self.kept_owners(at.epoch).filter(|owners| owners.digest() == at.owners);
                state.position = match (before, kept) {
                    (Some(before), Some(owners)) if before.epoch + 1 == at.epoch => {
                        self.course.next(&before, owners, labels)
                    }
                    (Some(before), _) => self.course.replay(before, at.epoch, labels)?,
                    (None, _) => self.course.replay(self.course.first()?, at.epoch, labels)?,
                };
            }
        }
        state.resumes_at = state.position.epoch;
        state.agreed = true;
        Ok(())
    }

    /// The first epoch whose exchange nobody has committed: where a run without a checkpoint goes on. Known once the ranks
    /// have agreed.
    pub fn resumes_at(&self) -> u64 {
        self.lock().resumes_at
    }

    /// What this rank says about the epoch that it has begun: for [`Exchanger::begun`] on all ranks.
    pub fn vow(&self) -> Vec<u8> {
        let state = self.lock();
        let Some(running) = &state.running else {
            return Word::failed(None, "it has begun no epoch");
        };
        let mut plan =
            gristmill_core::rng::key(&[state.position.owners.digest(), running.exchange.steps().into()]);
        for (step, from, to, id) in running.exchange.all() {
            plan = gristmill_core::rng::key(&[plan, step.into(), from.into(), to.into(), id.into()]);
        }
        Word::well(running.exchange.epoch(), plan)
    }

    /// The same of a rank that cannot begin an epoch: so that the others are told, instead of waiting for it.
    pub fn refusal(&self, epoch: u64, why: &str) -> Vec<u8> {
        Word::failed(Some(epoch), why)
    }

    /// Whether all ranks have begun the same epoch with the same plan; the same error on every rank if not.
    pub fn begun(&self, said: &[Vec<u8>]) -> Result<()> {
        let words = self.heard(said)?;
        alike(&words, "begin")?;
        Ok(())
    }

    /// Makes what came durable; the words for everybody: all is well here, or what is not.
    pub fn settle(&self) -> Vec<u8> {
        // Whatever a sync during the epoch found wrong is known after it, and must be told.
        let syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock();
        let position = state.position.clone();
        let Some(running) = &mut state.running else {
            return Word::failed(None, "it has begun no epoch");
        };
        let epoch = running.exchange.epoch();
        if running.failure.is_none() && !(running.open.is_empty() && running.all_issued()) {
            let mut late: Vec<u32> = running.open.keys().map(|(peer, _)| *peer).collect();
            late.dedup();
            running.fail(&format!("messages of {} did not arrive", named(&late)));
        }
        let (exchange, left) = (running.exchange.clone(), running.left.clone());
        let failure = running.failure.clone();
        drop(state);
        let prepare = || {
            let next = self.course.after(&position, &exchange, left, self.set.catalog().labels()?);
            if self.held.is_durable() {
                // The commit before this one must be written down first: a restart can make up for one, not for two.
                self.swept()?;
                self.held.keep_owners(next.epoch, &next.owners.to_bytes())?;
            }
            self.held.sync()?;
            Ok::<Position, Error>(next)
        };
        let outcome = match failure {
            Some(failure) => Err(failure),
            None => prepare().map_err(|error| error.to_string()),
        };
        drop(syncing);
        match outcome {
            Ok(next) => {
                let words = Word::well(epoch, next.owners.digest());
                if let Some(running) = &mut self.lock().running {
                    running.next = Some(next);
                }
                words
            }
            Err(failure) => {
                self.fail(&failure);
                Word::failed(Some(epoch), &failure)
            }
        }
    }

    /// Takes everybody's words. If all is well what was sent is let go and deleted, and the next epoch may begin; else the
    /// exchange of the epoch is given up, with the same error on every rank.
    pub fn commit(&self, said: &[Vec<u8>]) -> Result<ExchangeReport> {
        let report = self.conclude(said)?;
        self.sweep();
        Ok(report)
    }

    /// As [`Exchanger::commit`], but for what nobody needs to wait for: [`Exchanger::sweep_later`] does it.
    pub fn conclude(&self, said: &[Vec<u8>]) -> Result<ExchangeReport> {
        let outcome = self.heard(said).and_then(|words| alike(&words, "end"));
        let mut state = self.lock();
        let Some(mut running) = state.running.take() else {
            return Err(Error::config("there is no exchange to commit: no epoch has begun"));
        };
        outcome?;
        let labels = self.set.catalog().labels()?;
        let next = running.next.take().unwrap_or_else(|| {
            self.course.after(&state.position, &running.exchange, running.left.clone(), labels)
        });
        self.held.let_go(running.sent_ids());
        state.unswept = self.held.is_durable().then(|| next.clone());
        state.position = next;
        state.restored = None;
        let epoch = running.exchange.epoch();
        let report = running.done(self.held.missed());
        state.last = Some((epoch, report.clone()));
        Ok(report)
    }

    /// Reads what all ranks said.
    fn heard(&self, said: &[Vec<u8>]) -> Result<Vec<Word>> {
        if said.len() != self.world() as usize {
            return Err(Error::config(format!(
                "{} ranks spoke in an exchange between {}",
                said.len(),
                self.world()
            )));
        }
        let read = |(rank, bytes): (usize, &Vec<u8>)| {
            let bytes = Some(bytes).filter(|bytes| bytes.len() <= BYTES_MAX);
            let word = bytes.and_then(|bytes| serde_json::from_slice(bytes).ok());
            word.ok_or_else(|| Error::corrupt(format!("rank {rank} said what cannot be understood")))
        };
        said.iter().enumerate().map(read).collect()
    }
}

/// An error unless all ranks are well and at the same place.
fn alike(words: &[Word], when: &str) -> Result<()> {
    let failures: Vec<String> = words
        .iter()
        .enumerate()
        .filter_map(|(rank, word)| Some(format!("rank {rank}: {}", word.failure.as_ref()?)))
        .collect();
    if let Some(first) = failures.first() {
        let others = match failures.len() {
            1 => String::new(),
            n => format!(" (and {} other ranks)", n - 1),
        };
        let epoch = words.iter().find_map(|word| word.epoch).unwrap_or(0);
        let message = format!("the exchange of epoch {epoch} failed on {first}{others}");
        return Err(Error::new(Kind::Io, message)
            .hint("mend that and start the ranks again: nothing is lost, the epoch begins anew"));
    }
    let differ: Vec<u32> = (0..words.len() as u32).filter(|rank| words[*rank as usize] != words[0]).collect();
    let Some(first) = differ.first() else { return Ok(()) };
    let epoch = |rank: u32| words[rank as usize].epoch.map_or("none".into(), |epoch| epoch.to_string());
    let what = if words[*first as usize].epoch == words[0].epoch {
        format!("in epoch {} {} has another plan than rank 0", epoch(0), named(&differ))
    } else {
        format!(
            "rank 0 is at the {when} of epoch {}, but {} at that of epoch {}",
            epoch(0),
            named(&differ),
            epoch(*first)
        )
    };
    Err(Error::config(format!("the ranks do not go together: {what}"))
        .hint("give every rank the same epochs and the same saved state"))
}
