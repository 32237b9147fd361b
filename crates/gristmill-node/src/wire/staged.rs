//! What lets a node run the first ops: a recipe once, and then a stage with every ask.
//!
//! A recipe is handed over as JSON and gets a number, the handle. An ask then says how far its sample is to have come
//! (the stage), what its randomness is a function of (epoch and seed; the sample is known), and how many bytes at most
//! are taken. The answer says how far the sample really came: a node may always do less.

use super::frame::Cut;
use super::hello::put_text;
use super::{ASKS_MAX, NAME_BYTES_MAX, RECIPE_BYTES_MAX};
use crate::Result;
use crate::node::Ask;
use crate::split::Wish;
use bytes::{BufMut, BytesMut};
use gristmill_core::SampleId;
use gristmill_ops::Stage;

/// The flag of an ask for which another cold sample may stand in.
const COLD: u8 = 1;
/// The flag of an ask that wants a stage.
const STAGED: u8 = 2;

/// A recipe of which the node is to run the first ops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepare {
    /// The version of the ops and the codec; another one may give other pixels.
    pub build: String,
    /// The most pixels a picture may have.
    pub pixels_max: u64,
    /// The most working memory that a sample may take where it is finished: one that needs more fails in both places.
    pub scratch_bytes_max: u64,
    /// The recipe as JSON.
    pub recipe: String,
}

impl Prepare {
    /// Writes the body.
    pub fn encode(&self, out: &mut BytesMut) {
        put_text(out, &self.build, NAME_BYTES_MAX);
        out.put_u64_le(self.pixels_max);
        out.put_u64_le(self.scratch_bytes_max);
        out.put_slice(self.recipe.as_bytes());
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Prepare> {
        let mut cut = Cut::new(body, "prepare");
        let build = cut.text(NAME_BYTES_MAX)?.to_string();
        let (pixels_max, scratch_bytes_max) = (cut.u64()?, cut.u64()?);
        cut.count(1, RECIPE_BYTES_MAX)?;
        let recipe = str::from_utf8(cut.rest()).map_err(|_| cut.bad("its recipe is not UTF-8"))?.to_string();
        Ok(Prepare { build, pixels_max, scratch_bytes_max, recipe })
    }
}

/// The node's word that it will run ops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prepared {
    /// What names the recipe in asks of this connection.
    pub handle: u32,
    /// The cores that ops may use.
    pub cores: f32,
}

impl Prepared {
    /// Writes the body.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(self.handle);
        out.put_f32_le(self.cores);
    }

    /// Reads the body; a number of cores that is none is an error.
    pub fn decode(body: &[u8]) -> Result<Prepared> {
        let mut cut = Cut::new(body, "prepared");
        let prepared = Prepared { handle: cut.u32()?, cores: cut.f32()? };
        if !(prepared.cores.is_finite() && prepared.cores > 0.0) {
            return Err(cut.bad("its number of cores is none"));
        }
        cut.end()?;
        Ok(prepared)
    }
}

/// One sample that is wanted, and how far it is to have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireAsk {
    /// Which.
    pub ask: Ask,
    /// The recipe's handle and the stage; none for raw bytes.
    pub wish: Option<(u32, Wish)>,
}

/// Samples are wanted, each at a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchStaged {
    /// Which.
    pub asks: Vec<WireAsk>,
}

impl FetchStaged {
    /// Writes the body.
    pub fn encode(&self, out: &mut BytesMut) {
        for WireAsk { ask, wish } in &self.asks {
            out.put_u32_le(ask.id.0);
            out.put_u8(if ask.cold { COLD } else { 0 } | if wish.is_some() { STAGED } else { 0 });
            if let Some((handle, wish)) = wish {
                out.put_u32_le(*handle);
                out.put_u8(wish.stage as u8);
                out.put_u32_le(wish.bytes_max);
                out.put_u64_le(wish.epoch);
                out.put_u64_le(wish.seed);
            }
        }
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<FetchStaged> {
        let mut cut = Cut::new(body, "staged fetch");
        let mut asks = Vec::new();
        while !cut.is_empty() {
            if asks.len() == ASKS_MAX {
                return Err(cut.bad(&format!("its list has more than {ASKS_MAX} entries")));
            }
            let (id, flags) = (SampleId(cut.u32()?), cut.u8()?);
            if flags & !(COLD | STAGED) != 0 {
                return Err(cut.bad("an ask has unknown flags"));
            }
            let wish = if flags & STAGED == 0 { None } else { Some(wish(&mut cut)?) };
            asks.push(WireAsk { ask: Ask { id, cold: flags & COLD != 0 }, wish });
        }
        Ok(FetchStaged { asks })
    }
}

fn wish(cut: &mut Cut<'_>) -> Result<(u32, Wish)> {
    let (handle, stage, bytes_max) = (cut.u32()?, cut.u8()?, cut.u32()?);
    let Some(stage) = Stage::from_u8(stage) else { return Err(cut.bad("it names no stage")) };
    Ok((handle, Wish { stage, bytes_max, epoch: cut.u64()?, seed: cut.u64()? }))
}
