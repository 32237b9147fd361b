//! A node on the same machine: samples that come through a lane instead of the socket.
//!
//! Whatever goes wrong with opening it, nothing is lost: the node writes into a lane only when the client has opened it.

use crate::lane::LaneReader;
use crate::wire::{Entry, Lane};
use crate::{Error, Result};
use bytes::Bytes;
use std::cell::{Cell, RefCell};

/// The client's side of a lane, on one connection.
#[derive(Debug)]
pub(super) struct Beside {
    /// The process of the node, if it is on this machine and a lane is wanted from it.
    pid: Option<i32>,
    lane: RefCell<Option<LaneReader>>,
    /// Where the samples of the next frame are, if they are in the lane.
    next: Cell<Option<u64>>,
}

impl Beside {
    pub(super) fn new(pid: Option<i32>) -> Beside {
        Beside { pid, lane: RefCell::new(None), next: Cell::new(None) }
    }

    /// Whether a lane is to be asked for.
    pub(super) fn wants_lane(&self) -> bool {
        self.pid.is_some()
    }

    /// Opens the lane that the node has made. Without it samples come over the socket.
    pub(super) fn open(&self, said: Lane) {
        let opened = self.pid.map(|pid| LaneReader::open(pid, said.fd, said.bytes, &said.mark));
        *self.lane.borrow_mut() = opened.and_then(Result::ok);
    }

    /// The samples of the next frame are there.
    pub(super) fn announced(&self, position: u64) {
        self.next.set(Some(position));
    }

    /// The bytes of the samples of a frame, if they are in the lane.
    pub(super) fn take(&self, entries: &[Entry]) -> Result<Option<Vec<Bytes>>> {
        let Some(mut at) = self.next.take() else { return Ok(None) };
        let lane = self.lane.borrow();
        let none = || Error::corrupt("the node says that samples are in a lane that it has not made");
        let lane = lane.as_ref().ok_or_else(none)?;
        let mut came = Vec::with_capacity(entries.len());
        for entry in entries {
            came.push(lane.read(at, entry.bytes as usize)?);
            at += u64::from(entry.bytes);
        }
        lane.done(at);
        Ok(Some(came))
    }
}
