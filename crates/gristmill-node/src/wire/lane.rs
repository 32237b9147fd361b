//! What is said about a lane: memory that both sides share on one machine (see `crate::lane`).

use super::frame::Cut;
use crate::Result;
use crate::lane::MARK_BYTES;
use bytes::{BufMut, BytesMut};

/// The lane that the node has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// The number of the file among those that the node has open.
    pub fd: u32,
    /// How large it is.
    pub bytes: u32,
    /// What stands in it.
    pub mark: [u8; MARK_BYTES],
}

impl Lane {
    /// Writes the body.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(self.fd);
        out.put_u32_le(self.bytes);
        out.put_slice(&self.mark);
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Lane> {
        let mut cut = Cut::new(body, "lane");
        let lane = Lane { fd: cut.u32()?, bytes: cut.u32()?, mark: cut.array()? };
        cut.end()?;
        Ok(lane)
    }

    /// Writes the wish for a lane of so many bytes.
    pub fn encode_wish(bytes: u32, out: &mut BytesMut) {
        out.put_u32_le(bytes);
    }

    /// Reads it.
    pub fn decode_wish(body: &[u8]) -> Result<u32> {
        let mut cut = Cut::new(body, "lane");
        let bytes = cut.u32()?;
        cut.end()?;
        Ok(bytes)
    }

    /// Writes where in the lane the bytes of the next frame's samples are.
    pub fn encode_place(position: u64, out: &mut BytesMut) {
        out.put_u64_le(position);
    }

    /// Reads it.
    pub fn decode_place(body: &[u8]) -> Result<u64> {
        let mut cut = Cut::new(body, "lane");
        let position = cut.u64()?;
        cut.end()?;
        Ok(position)
    }
}
