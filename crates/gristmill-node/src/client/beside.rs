//! A node on the same machine: samples that come through a lane instead of the socket.
//!
//! Whatever goes wrong with opening it, nothing is lost: the node writes into a lane only when the client has opened it.

use crate::lane::{LaneReader, beyond};
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
            at = at.checked_add(entry.bytes.into()).ok_or_else(beyond)?;
        }
        lane.done(at);
        Ok(Some(came))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::{BYTES_MIN, LaneWriter, MARK_BYTES};
    use crate::node::Tier;
    use crate::split::Shortfall;
    use gristmill_core::SampleId;
    use gristmill_ops::Stage;

    #[test]
    fn a_node_that_lies_about_its_lane_is_an_error_and_no_panic() {
        let writer = LaneWriter::new(BYTES_MIN, [3; MARK_BYTES]).unwrap();
        let pid = std::process::id().cast_signed();
        let (tier, stage, shortfall) = (Tier::Memory, Stage::Raw, Shortfall::None);
        let entry = Entry { id: SampleId(0), tier, code: 0, bytes: 4, stage, shortfall, cpu_us: 0 };
        let beside = Beside::new(Some(pid));
        assert_eq!(beside.take(&[entry]).unwrap(), None, "nothing was announced");
        beside.announced(0);
        assert!(beside.take(&[entry]).is_err(), "there is no lane");
        beside.open(Lane { fd: 0, bytes: BYTES_MIN, mark: [3; MARK_BYTES] });
        beside.announced(0);
        assert!(beside.take(&[entry]).is_err(), "that was another file");
        beside.open(Lane { fd: writer.fd(), bytes: BYTES_MIN, mark: [3; MARK_BYTES] });
        for position in [u64::MAX, u64::MAX - 3, u64::from(BYTES_MIN) - 1] {
            beside.announced(position);
            assert!(beside.take(&[entry]).is_err(), "{position}");
        }
        beside.announced(0);
        assert_eq!(beside.take(&[entry]).unwrap().unwrap()[0].len(), 4);
    }
}
