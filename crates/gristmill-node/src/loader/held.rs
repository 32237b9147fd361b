//! Bytes that are needed again in the same epoch.
//!
//! Stand-ins are decided before the epoch starts, so it is known which samples are served a second time and until
//! when. Their bytes are kept from the first read to the last use; how many that may be was part of the decision. If
//! they are not there when they are needed (the epoch was entered in the middle) the sample is simply read.

use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_core::family::StandIns;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is held, and until which position of the order.
#[derive(Debug)]
pub(super) struct Held {
    stand_ins: StandIns,
    state: Mutex<State>,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct State {
    /// By id: the bytes, and the last position that needs them.
    bytes: HashMap<u32, (Bytes, u32)>,
    total: u64,
}

impl Held {
    /// At most `bytes_max` are held. The decision kept to it; threads that overtake each other need not.
    pub(super) fn new(stand_ins: StandIns, bytes_max: u64) -> Held {
        Held { stand_ins, state: Mutex::default(), bytes_max }
    }

    /// The first stand-ins: who was asked for, and who is served.
    pub(super) fn shown(&self) -> &[(u32, u32)] {
        &self.stand_ins.shown
    }

    /// Whether anything is ever held: most epochs need not look.
    pub(super) fn any(&self) -> bool {
        !self.stand_ins.holds.is_empty()
    }

    /// Whether what is read at `position` is needed again.
    pub(super) fn is_kept(&self, position: u32) -> bool {
        self.stand_ins.held_until(position).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was read at `position`, if it is needed again.
    pub(super) fn keep(&self, position: u32, id: SampleId, bytes: &Bytes) {
        if let Some(until) = self.stand_ins.held_until(position) {
            // A copy of its own: a slice would keep the whole answer of the store alive.
            let own = Bytes::copy_from_slice(bytes);
            let mut held = self.lock();
            if held.total + own.len() as u64 <= self.bytes_max {
                held.total += own.len() as u64;
                held.let_go(id);
                held.bytes.insert(id.0, (own, until));
            }
        }
    }

    /// The bytes that are served at `position`, if they are held; let go after their last use.
    pub(super) fn take(&self, position: u32, id: SampleId) -> Option<Bytes> {
        let mut held = self.lock();
        let (bytes, until) = held.bytes.get(&id.0)?;
        let bytes = bytes.clone();
        if *until <= position {
            held.let_go(id);
        }
        Some(bytes)
    }
}

impl State {
    fn let_go(&mut self, id: SampleId) {
        if let Some((bytes, _)) = self.bytes.remove(&id.0) {
            self.total -= bytes.len() as u64;
        }
    }
}
