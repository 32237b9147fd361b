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
    bytes: Mutex<HashMap<u32, (Bytes, u32)>>,
}

impl Held {
    pub(super) fn new(stand_ins: StandIns) -> Held {
        Held { stand_ins, bytes: Mutex::default() }
    }

    /// Whether anything is ever held: most epochs need not look.
    pub(super) fn any(&self) -> bool {
        !self.stand_ins.holds.is_empty()
    }

    /// Whether what is read at `position` is needed again.
    pub(super) fn is_kept(&self, position: u32) -> bool {
        self.stand_ins.held_until(position).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, (Bytes, u32)>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was read at `position`, if it is needed again.
    pub(super) fn keep(&self, position: u32, id: SampleId, bytes: &Bytes) {
        if let Some(until) = self.stand_ins.held_until(position) {
            // A copy of its own: a slice would keep the whole answer of the store alive.
            let own = Bytes::copy_from_slice(bytes);
            self.lock().insert(id.0, (own, until));
        }
    }

    /// The bytes that are served at `position`, if they are held; let go after their last use.
    pub(super) fn take(&self, position: u32, id: SampleId) -> Option<Bytes> {
        let mut held = self.lock();
        let (bytes, until) = held.get(&id.0)?;
        if *until > position {
            return Some(bytes.clone());
        }
        held.remove(&id.0).map(|(bytes, _)| bytes)
    }
}
