//! The exchange of one rank as a state machine: what is due, what came, and whether all ranks may go on.

use super::{Due, ExchangeReport};
use crate::Result;
use std::time::Duration;

/// How far a fill has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling {
    /// Samples that were read.
    pub done: u32,
    /// Samples that have to be read.
    pub total: u32,
    /// Their bytes so far.
    pub bytes: u64,
}

/// What a fill did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filled {
    /// Samples that were there already.
    pub kept: u32,
    /// Samples that were read from the store.
    pub read: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// One rank's exchange. Shared by the loader, which reads what is held, and by whoever moves the messages.
#[derive(Debug)]
pub struct Exchanger {}

impl Exchanger {
    /// Which rank this is.
    pub fn rank(&self) -> u32 {
        todo!()
    }
    /// How many there are.
    pub fn world(&self) -> u32 {
        todo!()
    }
    /// How long a rank waits for another.
    pub fn patience(&self) -> Duration {
        todo!()
    }
    /// What this rank says at the handshake.
    pub fn pledge(&self) -> Vec<u8> {
        todo!()
    }
    /// Takes what all ranks said, in their order; the same error on every rank if they do not fit together.
    pub fn agree(&self, _pledges: &[Vec<u8>]) -> Result<()> {
        todo!()
    }
    /// The first epoch that was not committed by anybody: where a run without a checkpoint goes on. Known after `agree`.
    pub fn resumes_at(&self) -> u64 {
        todo!()
    }
    /// Gets what this rank holds when `epoch` begins; `progress` says whether to go on. (`Loader::epoch` does it too, without progress.)
    pub fn fill(&self, _epoch: u64, _progress: &mut dyn FnMut(Filling) -> bool) -> Result<Filled> {
        todo!()
    }
    /// The rounds that are due once batch `batch` (from 0) is handed out; u32::MAX for all that is left.
    pub fn due(&self, _batch: u32) -> Result<Due> {
        todo!()
    }
    /// Takes a message. What is wrong with it is kept for `settle`, so that no other rank waits in vain.
    pub fn take(&self, _peer: u32, _tag: u32, _message: &[u8]) {
        todo!()
    }
    /// What was due and has not come, as sources and tags.
    pub fn outstanding(&self) -> Vec<(u32, u32)> {
        todo!()
    }
    /// Whether the exchange of an epoch is running (begun by `Loader::epoch`, not committed).
    pub fn running(&self) -> Option<u64> {
        todo!()
    }
    /// Notes what went wrong on this rank, to be told to all by `settle`.
    pub fn fail(&self, _why: &str) {
        todo!()
    }
    /// Notes time for which training waited for the exchange.
    pub fn waited(&self, _time: Duration) {
        todo!()
    }
    /// Makes what came durable; the words for everybody: all is well here, or what is not.
    pub fn settle(&self) -> Vec<u8> {
        todo!()
    }
    /// Takes everybody's words. If all is well what was sent is let go and the next epoch may begin; else the same error
    /// on every rank.
    pub fn commit(&self, _said: &[Vec<u8>]) -> Result<ExchangeReport> {
        todo!()
    }
    /// Who holds what, for a checkpoint.
    pub fn state(&self) -> Vec<u8> {
        todo!()
    }
    /// Goes on from a saved state.
    pub fn restore(&self, _saved: &[u8]) -> Result<()> {
        todo!()
    }
    /// The report of the running (or last) exchange so far.
    pub fn report(&self) -> Option<ExchangeReport> {
        todo!()
    }
}
