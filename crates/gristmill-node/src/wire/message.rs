//! What is said after the handshake, except for samples themselves.

use super::frame::{Cut, HEADER_BYTES, Header, Verb};
use super::hello::clip;
use super::{ANNOUNCE_IDS_MAX, ASKS_MAX, CATALOG_PART_BYTES, SENTENCE_BYTES_MAX, STANDINGS_MAX};
use crate::node::{Ask, Standing};
use crate::{Error, Kind, Result};
use bytes::{BufMut, BytesMut};
use gristmill_core::SampleId;

/// Begins a frame whose length is not known yet; `end_frame` takes what this gives.
pub fn put_frame(out: &mut BytesMut, verb: Verb, request: u32) -> usize {
    let start = out.len();
    out.put_slice(&Header { bytes: 0, verb, request }.encode());
    start
}

/// Ends the frame that began at `start`: fills in its length, with `more` bytes that follow elsewhere.
pub fn end_frame(out: &mut BytesMut, start: usize, more: usize) {
    let bytes = (out.len() - start - HEADER_BYTES + more) as u32;
    out[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
}

/// Samples are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetch {
    /// The epoch they are for.
    pub epoch: u64,
    /// How many ops of the recipe have run when they arrive; 0 is raw bytes.
    pub split: u8,
    /// For a node beside this one, which is not passed on to others.
    pub peer: bool,
    /// Which.
    pub asks: Vec<Ask>,
}

impl Fetch {
    /// Writes the body.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.epoch);
        out.put_u8(self.split);
        out.put_u8(self.peer.into());
        for ask in &self.asks {
            out.put_u32_le(ask.id.0);
            out.put_u8(ask.cold.into());
        }
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Fetch> {
        let mut cut = Cut::new(body, "fetch");
        let (epoch, split, peer) = (cut.u64()?, cut.u8()?, cut.flag()?);
        let count = cut.count(5, ASKS_MAX)?;
        let mut asks = Vec::with_capacity(count);
        for _ in 0..count {
            asks.push(Ask { id: SampleId(cut.u32()?), cold: cut.flag()? });
        }
        Ok(Fetch { epoch, split, peer, asks })
    }
}

/// One part of the plan of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announce {
    /// Which epoch.
    pub epoch: u64,
    /// Whether it has all samples.
    pub full: bool,
    /// Which part this is, from 0.
    pub part: u32,
    /// How many there are.
    pub parts: u32,
    /// The ids in the order in which they will be asked for.
    pub order: Vec<u32>,
}

impl Announce {
    /// Writes the body.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.epoch);
        out.put_u8(self.full.into());
        out.put_u32_le(self.part);
        out.put_u32_le(self.parts);
        self.order.iter().for_each(|id| out.put_u32_le(*id));
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Announce> {
        let mut cut = Cut::new(body, "announce");
        let (epoch, full, part, parts) = (cut.u64()?, cut.flag()?, cut.u32()?, cut.u32()?);
        if part >= parts {
            return Err(cut.bad(&format!("part {part} of {parts}")));
        }
        let count = cut.count(4, ANNOUNCE_IDS_MAX)?;
        let mut order = Vec::with_capacity(count);
        for _ in 0..count {
            order.push(cut.u32()?);
        }
        Ok(Announce { epoch, full, part, parts, order })
    }
}

/// How samples stand.
#[derive(Debug, Clone, PartialEq)]
pub struct Stand {
    /// Each of them.
    pub standings: Vec<Standing>,
}

impl Stand {
    /// Writes the body.
    pub fn encode(standings: &[Standing], out: &mut BytesMut) {
        for standing in standings {
            out.put_u32_le(standing.id.0);
            out.put_f32_le(standing.score);
            out.put_f32_le(standing.wanted);
        }
    }

    /// Reads the body; a score that is no number, or a chance outside of 0 to 1, is an error.
    pub fn decode(body: &[u8]) -> Result<Stand> {
        let mut cut = Cut::new(body, "stand");
        let count = cut.count(12, STANDINGS_MAX)?;
        let mut standings = Vec::with_capacity(count);
        for _ in 0..count {
            let standing = Standing { id: SampleId(cut.u32()?), score: cut.f32()?, wanted: cut.f32()? };
            if !standing.score.is_finite() || !(0.0..=1.0).contains(&standing.wanted) {
                return Err(cut.bad("a score or a chance is no such number"));
            }
            standings.push(standing);
        }
        Ok(Stand { standings })
    }
}

/// A part of the catalog's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogPart<'a> {
    /// The size of the file.
    pub total: u64,
    /// Where this part begins.
    pub from: u64,
    /// The part.
    pub bytes: &'a [u8],
}

impl<'a> CatalogPart<'a> {
    /// Writes the body.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u64_le(self.total);
        out.put_u64_le(self.from);
        out.put_slice(self.bytes);
    }

    /// Reads the body.
    pub fn decode(body: &'a [u8]) -> Result<CatalogPart<'a>> {
        let mut cut = Cut::new(body, "catalog part");
        let (total, from) = (cut.u64()?, cut.u64()?);
        cut.count(1, CATALOG_PART_BYTES)?;
        let bytes = cut.rest();
        if from.checked_add(bytes.len() as u64).is_none_or(|end| end > total) {
            return Err(cut.bad("it lies outside of its file"));
        }
        Ok(CatalogPart { total, from, bytes })
    }

    /// Reads the body of a request for a part: where it begins.
    pub fn decode_from(body: &[u8]) -> Result<u64> {
        let mut cut = Cut::new(body, "catalog");
        let from = cut.u64()?;
        cut.end()?;
        Ok(from)
    }
}

/// An error on its way over the wire.
#[derive(Debug)]
pub struct Failure;

impl Failure {
    /// The number of an error's kind; 0 is no error.
    pub fn code(error: &Error) -> u8 {
        match error.kind() {
            Kind::Config => 1,
            Kind::NotFound => 2,
            Kind::Corrupt => 3,
            Kind::Unavailable => 4,
            Kind::Io => 5,
            Kind::Stopped => 6,
        }
    }

    /// The sentence and, behind a zero byte, the hint.
    pub fn text(error: &Error) -> String {
        let sentence = error.to_string();
        let sentence = clip(&sentence, SENTENCE_BYTES_MAX / 2);
        let hint = clip(error.remedy().unwrap_or(""), SENTENCE_BYTES_MAX / 2 - 1);
        format!("{sentence}\0{hint}")
    }

    /// Writes the body.
    pub fn encode(error: &Error, out: &mut BytesMut) {
        out.put_u8(Failure::code(error));
        out.put_slice(Failure::text(error).as_bytes());
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Error> {
        let mut cut = Cut::new(body, "failure");
        let code = cut.u8()?;
        cut.count(1, SENTENCE_BYTES_MAX)?;
        Failure::error(code, cut.rest())
    }

    /// The error of a code and a text.
    pub fn error(code: u8, text: &[u8]) -> Result<Error> {
        let kinds = [Kind::Config, Kind::NotFound, Kind::Corrupt, Kind::Unavailable, Kind::Io, Kind::Stopped];
        let Some(&kind) = kinds.get(usize::from(code).wrapping_sub(1)) else {
            return Err(Error::corrupt(format!("an error of the unknown kind {code} came over the wire")));
        };
        let text = String::from_utf8_lossy(text);
        let (sentence, hint) = text.split_once('\0').unwrap_or((&text, ""));
        let error = Error::new(kind, sentence);
        Ok(if hint.is_empty() { error } else { error.hint(hint) })
    }
}
