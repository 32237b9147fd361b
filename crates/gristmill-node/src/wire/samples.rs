//! The answer that carries samples: a table of what is there, then the bytes one after the other.
//!
//! The table comes first, so that a receiver knows every length before it reads the first byte of a sample, and can
//! read large ones straight into memory of their own. Rows come in two widths: those of samples that were asked for at a
//! stage also say which stage they are at, why it is not the one that was wanted, and what the node spent.

use super::frame::Cut;
use super::message::Failure;
use super::{ENTRIES_MAX, SENTENCE_BYTES_MAX};
use crate::Result;
use crate::node::{Served, Tier};
use crate::split::{Shortfall, Staged};
use bytes::{BufMut, BytesMut};
use gristmill_core::SampleId;
use gristmill_ops::Stage;

/// The size of what stands in front of the table.
const HEAD_BYTES: usize = 8;

/// How wide the rows of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Of `Samples`.
    Plain,
    /// Of `StagedSamples`.
    Staged,
}

impl Rows {
    const fn bytes(self) -> usize {
        match self {
            Rows::Plain => 12,
            Rows::Staged => 16,
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Which sample is served.
    pub id: SampleId,
    /// Where it was found.
    pub tier: Tier,
    /// 0, or the kind of the error whose sentence stands where the bytes would.
    pub code: u8,
    /// How many bytes belong to it.
    pub bytes: u32,
    /// How far it has come.
    pub stage: Stage,
    /// Why it is not as far as was wanted.
    pub shortfall: Shortfall,
    /// CPU time of the node's ops, in microseconds.
    pub cpu_us: u32,
}

impl Entry {
    /// Writes the row.
    pub fn put(&self, out: &mut BytesMut, rows: Rows) {
        // Put together first: each piece by itself would look for room again.
        let mut row = [0; Rows::Staged.bytes()];
        let row = &mut row[..rows.bytes()];
        row[..4].copy_from_slice(&self.id.0.to_le_bytes());
        (row[4], row[5]) = (self.tier as u8, self.code);
        if rows == Rows::Staged {
            (row[6], row[7]) = (self.stage as u8, self.shortfall as u8);
            row[8..12].copy_from_slice(&self.cpu_us.to_le_bytes());
        }
        let last = row.len() - 4;
        row[last..].copy_from_slice(&self.bytes.to_le_bytes());
        out.put_slice(row);
    }
}

/// What stands before the bytes of samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SamplesHead {
    /// The place in the request of the first sample.
    pub first: u32,
    /// One row per sample.
    pub entries: Vec<Entry>,
}

impl SamplesHead {
    /// The size of the head and its table for so many samples.
    pub const fn bytes(samples: usize, rows: Rows) -> usize {
        HEAD_BYTES + samples * rows.bytes()
    }

    /// The row of one result, and its error's sentence.
    pub fn entry(asked: SampleId, result: &Result<Staged>) -> (Entry, Option<String>) {
        match result {
            Ok(Staged { served: Served { id, bytes, tier }, stage, shortfall, cpu_ns }) => {
                let cpu_us = u32::try_from(cpu_ns.div_ceil(1_000)).unwrap_or(u32::MAX);
                let (bytes, code) = (bytes.len() as u32, 0);
                let (stage, shortfall) = (*stage, *shortfall);
                (Entry { id: *id, tier: *tier, code, bytes, stage, shortfall, cpu_us }, None)
            }
            Err(error) => {
                let text = Failure::text(error);
                let (code, bytes) = (Failure::code(error), text.len() as u32);
                let (stage, shortfall, cpu_us) = (Stage::Raw, Shortfall::None, 0);
                (Entry { id: asked, tier: Tier::Store, code, bytes, stage, shortfall, cpu_us }, Some(text))
            }
        }
    }

    /// Writes head and table; the bytes are the caller's to send after it.
    pub fn encode(&self, out: &mut BytesMut, rows: Rows) {
        SamplesHead::put_front(self.first, self.entries.len(), out);
        self.entries.iter().for_each(|entry| entry.put(out, rows));
    }

    /// Writes what stands in front of a table of so many rows.
    pub fn put_front(first: u32, samples: usize, out: &mut BytesMut) {
        out.put_u32_le(first);
        out.put_u32_le(samples as u32);
    }

    /// How many samples a frame holds, from the first [`HEAD_BYTES`] of its body, so that the table can be read.
    pub fn count(front: &[u8]) -> Result<usize> {
        let mut cut = Cut::new(front, "samples");
        cut.u32()?;
        match cut.u32()? as usize {
            count if (1..=ENTRIES_MAX).contains(&count) => Ok(count),
            count => Err(cut.bad(&format!("it holds {count} samples, not 1 to {ENTRIES_MAX}"))),
        }
    }

    /// Reads head and table of a body that is `body_bytes` long with the samples.
    pub fn decode(table: &[u8], body_bytes: u32, rows: Rows) -> Result<SamplesHead> {
        let count = SamplesHead::count(table)?;
        let mut cut = Cut::new(table, "samples");
        let first = cut.u32()?;
        cut.u32()?;
        let mut entries = Vec::with_capacity(count);
        let mut total = SamplesHead::bytes(count, rows) as u64;
        for _ in 0..count {
            let (id, tier, code) = (SampleId(cut.u32()?), cut.u8()?, cut.u8()?);
            let (stage, shortfall) = (cut.u8()?, cut.u8()?);
            let cpu_us = if rows == Rows::Staged { cut.u32()? } else { 0 };
            let bytes = cut.u32()?;
            let Some(&tier) = Tier::ALL.get(tier as usize) else { return Err(cut.bad("it names no tier")) };
            let known = (Stage::from_u8(stage), Shortfall::ALL.get(shortfall as usize));
            let (Some(stage), Some(&shortfall)) = known else {
                return Err(cut.bad("it names no stage"));
            };
            let plain = (stage, shortfall) == (Stage::Raw, Shortfall::None);
            if (!plain && (rows == Rows::Plain || code != 0))
                || (code != 0 && bytes as usize > SENTENCE_BYTES_MAX)
            {
                return Err(cut.bad("a row of its table is not valid"));
            }
            total += u64::from(bytes);
            entries.push(Entry { id, tier, code, bytes, stage, shortfall, cpu_us });
        }
        if total != u64::from(body_bytes) {
            return Err(cut.bad("its table does not fit its length"));
        }
        cut.end()?;
        Ok(SamplesHead { first, entries })
    }
}
