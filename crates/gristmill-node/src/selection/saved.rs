//! A choice as bytes, so that a run goes on exactly where it stopped: what ranks heard and measured, then the selector's own.

use super::heard::{Heard, take};
use super::{Choice, FamilyUse};
use crate::{Error, Result};
use gristmill_core::score::ReadTimes;
use gristmill_core::select::Readings;
use gristmill_core::steer::{Bound, Steer};
use xxhash_rust::xxh3::xxh3_64;

impl Choice {
    /// Everything that decides the epochs to come.
    pub fn state(&self) -> Vec<u8> {
        let state = self.lock();
        let mut out = Vec::new();
        out.extend_from_slice(&self.families_digest().to_le_bytes());
        out.extend_from_slice(&state.steer.to_bytes());
        out.push(state.families_use as u8);
        out.push(u8::from(state.merged));
        out.extend_from_slice(&state.batches.unwrap_or(u32::MAX).to_le_bytes());
        state.readings.times.sums.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
        let heard = state.heard.pack();
        out.extend_from_slice(&(heard.len() as u64).to_le_bytes());
        out.extend_from_slice(&heard);
        out.extend_from_slice(&state.selector.state());
        let sum = xxh3_64(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Goes on from a saved state of the same data, seed, selection and families.
    pub fn restore(&self, saved: &[u8]) -> Result<()> {
        let damaged = || Error::corrupt("the saved selection state is damaged or incomplete");
        let (mut rest, sum) = saved.split_last_chunk::<8>().ok_or_else(damaged)?;
        if xxh3_64(rest) != u64::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let rest = &mut rest;
        if u64::from_le_bytes(*take(rest).ok_or_else(damaged)?) != self.families_digest() {
            return Err(Error::config("the selection state was saved with other families than these")
                .hint("use the same families = as before"));
        }
        let steer = Steer::from_bytes(*take(rest).ok_or_else(damaged)?).ok_or_else(damaged)?;
        let [families_use, merged] = *take(rest).ok_or_else(damaged)?;
        let (_, families_use) = *FamilyUse::NAMES.get(families_use as usize).ok_or_else(damaged)?;
        let batches = u32::from_le_bytes(*take(rest).ok_or_else(damaged)?);
        let mut times = ReadTimes::default();
        for sum in &mut times.sums {
            *sum = f64::from_le_bytes(*take(rest).ok_or_else(damaged)?);
        }
        let len = u64::from_le_bytes(*take(rest).ok_or_else(damaged)?);
        let len = usize::try_from(len).ok().filter(|len| *len <= rest.len()).ok_or_else(damaged)?;
        let (heard, selector) = rest.split_at(len);
        let heard = Heard::unpack(heard).ok_or_else(damaged)?;
        let mut state = self.lock();
        state.selector.restore(selector)?;
        state.readings = Readings { io_bound: steer.bound().is_some_and(Bound::cost_votes), times, steps: 0 };
        (state.steer, state.families_use, state.merged) = (steer, families_use, merged != 0);
        (state.batches, state.report) = ((batches != u32::MAX).then_some(batches), None);
        state.heard = Heard::default();
        if self.world > 1 {
            state.heard = heard;
        } else if !heard.ids.is_empty() {
            // Saved on one of several ranks, and there is nobody to share it with any more.
            state.selector.feedback(&heard.said())?;
            if heard.unjudged {
                state.selector.unjudged();
            }
        }
        Ok(())
    }

    /// What names the families in use; 0 without any.
    fn families_digest(&self) -> u64 {
        self.relatives.as_ref().map_or(0, |relatives| {
            xxh3_64(&relatives.families.to_bytes()) ^ (relatives.families_use as u64 + 1)
        })
    }
}
