//! What a rank does to its slice while training goes on, so that nobody waits for the disk.
//!
//! During an epoch what came is made durable piece by piece, so that little is left for its end. After an epoch the journal
//! is written and then what was sent is deleted, while the next epoch runs already. What was sent is not held any more, so
//! nobody reads it; but it takes room until it is deleted, and only what would be over the limit waits for that. The end
//! of the next epoch waits as well: a slice is never more than one commit behind, which is what a restart can make up for.

use super::Exchanger;
use crate::Result;
use std::sync::{Arc, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Samples that are made durable together during an epoch, at least.
const UNSYNCED_LEAST: u32 = 8;

impl Exchanger {
    /// Makes durable what came, if that is half of what there still was; on a thread of its own.
    pub fn ease(self: &Arc<Self>) {
        let due = self.lock().running.as_mut().is_some_and(|running| {
            let all: usize = running.receives.iter().map(|message| message.ids.len()).sum();
            let left = all as u32 - running.report.received;
            let due = left > 0 && running.unsynced >= left.max(UNSYNCED_LEAST);
            running.unsynced *= u32::from(!due);
            due
        });
        if due && self.held.is_durable() {
            self.behind("grist-sync", |exchanger| {
                let _alone = exchanger.syncing.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = exchanger.held.sync() {
                    exchanger.fail(&error.to_string());
                }
            });
        }
    }

    /// Writes down what all ranks committed and deletes what was sent, on a thread of its own.
    pub fn sweep_later(self: &Arc<Self>) {
        if self.lock().unswept.is_some() {
            self.behind("grist-sweep", Exchanger::sweep);
        }
    }

    /// The same, and waits for it. What fails here is tried again at the end of the next epoch, which tells all ranks.
    pub fn sweep(&self) {
        let _ = self.swept();
    }

    /// Writes the journal of what all ranks committed, and then deletes what was sent. Until then a crash finds the slice as
    /// it was, with what came beside it.
    pub(super) fn swept(&self) -> Result<()> {
        let _alone = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(position) = self.lock().unswept.clone() else { return Ok(()) };
        self.note(&position)?;
        self.held.sweep()?;
        self.lock().unswept = None;
        Ok(())
    }

    /// Waits until nothing is done behind the training any more.
    pub fn rest(&self) {
        self.sweep();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // What it failed with is told by who needs it.
            let _ = thread.join();
        }
    }

    fn behind(self: &Arc<Self>, name: &str, work: impl FnOnce(&Exchanger) + Send + 'static) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread: &JoinHandle<()>| !thread.is_finished());
        let exchanger = Arc::clone(self);
        // Without a thread it is done later, by who waits for it.
        threads.extend(Builder::new().name(name.into()).spawn(move || work(&exchanger)));
    }
}
