//! Who holds what when an epoch begins, and how one gets to another epoch.
//!
//! Without a selection (and without scores that choose what is sent) that is a pure function of the run, so any epoch can
//! be reached from the first. With one it depends on what was trained, so it is kept: in the slice's journal, and in
//! checkpoints.

use super::{ExchangeSettings, Fraction};
use crate::{Error, Result};
use gristmill_core::exchange::measure::{self, Divergence, FIRST_FRACTION, divergence};
use gristmill_core::exchange::{Exchange, ExchangeOptions, Owners, View};
use gristmill_core::plan::{Shape, Uneven};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Everything about a run that decides who holds what.
#[derive(Debug, Clone)]
pub(super) struct Course {
    pub(super) samples: u32,
    pub(super) seed: u64,
    pub(super) shape: Shape,
    pub(super) shuffle: bool,
    pub(super) settings: ExchangeSettings,
    /// Whether nothing that is learned in training decides it.
    pub(super) pure: bool,
}

/// Who holds what when an epoch begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Position {
    pub(super) epoch: u64,
    pub(super) owners: Arc<Owners>,
    /// The share that is swapped in the epoch.
    pub(super) fraction: f64,
}

impl Course {
    pub(super) fn options(&self, fraction: f64) -> ExchangeOptions {
        ExchangeOptions { fraction, form: self.settings.form, choose: self.settings.choose }
    }

    /// Where every run begins.
    pub(super) fn first(&self) -> Result<Position> {
        let owners = Arc::new(Owners::new(self.samples, self.shape.world, self.seed)?);
        let fraction = match self.settings.fraction {
            Fraction::Fixed(fraction) => fraction,
            Fraction::Auto => FIRST_FRACTION,
        };
        Ok(Position { epoch: 0, owners, fraction })
    }

    /// The position after an epoch in which `exchange` moved and `left` was left out.
    pub(super) fn after(
        &self,
        at: &Position,
        exchange: &Exchange,
        left: Vec<u32>,
        labels: &[u32],
    ) -> Position {
        let mut owners = (*at.owners).clone();
        owners.commit(exchange);
        owners.leave(left);
        self.next(at, owners, labels)
    }

    /// The position after `at` in which the samples are held like this.
    pub(super) fn next(&self, at: &Position, owners: Owners, labels: &[u32]) -> Position {
        let fraction = match self.settings.fraction {
            Fraction::Fixed(fraction) => fraction,
            Fraction::Auto => measure::next_fraction(at.fraction, divergence(&owners, labels)),
        };
        Position { epoch: at.epoch + 1, owners: Arc::new(owners), fraction }
    }

    /// Goes from `from` to `epoch`, which is not before it, in a run where all of that is pure.
    pub(super) fn replay(&self, from: Position, epoch: u64, labels: &[u32]) -> Result<Position> {
        let mut at = from;
        while at.epoch < epoch {
            let exchange = self.exchange(&at, None, &[], labels)?;
            // Only a share that is rounded down leaves anything out of a full epoch.
            let left = if self.shape.uneven == Uneven::Drop {
                at.owners.lay_out(self.seed, at.epoch, self.shape, self.shuffle, None).left
            } else {
                Vec::new()
            };
            at = self.after(&at, &exchange, left, labels);
        }
        Ok(at)
    }

    /// What moves in the epoch of a position.
    pub(super) fn exchange(
        &self,
        at: &Position,
        active: Option<&[u32]>,
        importance: &[f32],
        labels: &[u32],
    ) -> Result<Exchange> {
        let labels = if self.settings.choose.by_label() { labels } else { &[] };
        let view = View { active, importance, labels };
        Ok(at.owners.exchange(self.seed, at.epoch, &self.options(at.fraction), view)?)
    }

    /// What names the run in a journal: slices of other runs are of use, but their epochs are not.
    pub(super) fn name(&self) -> String {
        let ExchangeSettings { fraction, form, choose, .. } = &self.settings;
        let Shape { world, uneven, .. } = self.shape;
        let learned = if self.pure { "" } else { ", selected" };
        format!("seed {}, world {world}, {uneven:?}, {fraction:?}, {form:?}, {choose:?}{learned}", self.seed)
    }
}

impl Position {
    pub(super) fn divergence(&self, labels: &[u32]) -> Divergence {
        divergence(&self.owners, labels)
    }

    /// For a checkpoint.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.epoch.to_le_bytes().to_vec();
        out.extend_from_slice(&self.fraction.to_le_bytes());
        out.extend_from_slice(&self.owners.to_bytes());
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        out
    }

    /// What [`Position::to_bytes`] made.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Position> {
        let damaged = || Error::corrupt("the saved state of the exchange is damaged or incomplete");
        let (rest, sum) = bytes.split_last_chunk::<8>().ok_or_else(damaged)?;
        if xxh3_64(rest) != u64::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let (epoch, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let (fraction, rest) = rest.split_first_chunk::<8>().ok_or_else(damaged)?;
        let fraction = f64::from_le_bytes(*fraction);
        let owners = Owners::from_bytes(rest).ok_or_else(damaged)?;
        if !(0.0..=1.0).contains(&fraction) {
            return Err(damaged());
        }
        Ok(Position { epoch: u64::from_le_bytes(*epoch), owners: Arc::new(owners), fraction })
    }
}
