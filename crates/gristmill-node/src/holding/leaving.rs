//! Samples that were let go and whose files are still there.
//!
//! Deleting files takes longer than anybody should wait for. So a sample that is let go is no longer held at once, and its
//! file is deleted by whoever sweeps, while training goes on. Until then it takes room, and is counted. A sample that
//! comes back meanwhile is taken off the list; only if its file is being deleted at that very moment is that waited for.

use crate::Result;
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What is to be deleted.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    state: Mutex<State>,
    deleted: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ids: BTreeSet<u32>,
    /// The one that is being deleted.
    now: Option<u32>,
}

impl Leaving {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs while the state is half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.deleted.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// How many files there are still.
    pub(super) fn len(&self) -> usize {
        let state = self.lock();
        state.ids.len() + usize::from(state.now.is_some())
    }

    /// This one is to be deleted.
    pub(super) fn add(&self, id: u32) {
        self.lock().ids.insert(id);
    }

    /// This one is not to be deleted any more; says whether its file is still there. Nobody is at it when this returns.
    pub(super) fn keep(&self, id: u32) -> bool {
        let mut state = self.lock();
        while state.now == Some(id) {
            state = self.wait(state);
        }
        state.ids.remove(&id)
    }

    /// Deletes all of them, one at a time; what could not be deleted is tried again the next time.
    pub(super) fn sweep(&self, delete: impl Fn(u32) -> Result<()>) -> Result<()> {
        loop {
            let mut state = self.lock();
            while state.now.is_some() {
                state = self.wait(state);
            }
            let Some(id) = state.ids.pop_first() else { return Ok(()) };
            state.now = Some(id);
            drop(state);
            let outcome = delete(id);
            let mut state = self.lock();
            state.now = None;
            if outcome.is_err() {
                state.ids.insert(id);
            }
            drop(state);
            self.deleted.notify_all();
            outcome?;
        }
    }
}
