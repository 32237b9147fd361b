//! What the exchange of an epoch did, as reports show it.

use serde::Serialize;
use std::fmt;

/// What one rank swapped in an epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ExchangeReport {
    /// The share that was to be swapped.
    pub fraction: f64,
    /// Samples that the rank held when the epoch began.
    pub held: u32,
    /// Samples sent to others.
    pub sent: u32,
    /// Samples received from others.
    pub received: u32,
    /// Bytes of messages sent.
    pub bytes_sent: u64,
    /// Bytes of messages received.
    pub bytes_received: u64,
    /// Moves that only evened out a selection.
    pub balanced: u32,
    /// How long training waited for the exchange: when the epoch was over, and before it until the slice was tidied up.
    pub wait_ms: f64,
    /// Samples that were read from the store because the slice lacked them when the epoch began.
    pub refilled: u32,
    /// Samples that were to be held and had to be read from the store during the epoch.
    pub missed: u64,
    /// Samples that are not trained in this epoch because ranks must have equally many.
    pub left: u32,
    /// Samples that are trained a second time for the same reason.
    pub again: u32,
    /// How far the classes of a rank are from those of the data set: mean total variation, 0 to 1.
    pub divergence: f64,
    /// Whether all ranks have committed it.
    pub committed: bool,
    /// What should be known about it.
    pub notes: Vec<String>,
}

impl fmt::Display for ExchangeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exchange: holds {} samples, fraction {}; sent {} ({:.1} MB), received {} ({:.1} MB); waited {:.1} ms for it",
            self.held,
            self.fraction,
            self.sent,
            self.bytes_sent as f64 / 1e6,
            self.received,
            self.bytes_received as f64 / 1e6,
            self.wait_ms
        )?;
        for (count, what) in [
            (u64::from(self.balanced), "moves evened out the selection"),
            (u64::from(self.refilled), "samples were filled in from the store"),
            (self.missed, "samples were missed and read from the store"),
            (u64::from(self.left), "samples were left for the next epoch"),
            (u64::from(self.again), "samples were trained again"),
        ] {
            if count > 0 {
                write!(f, "; {count} {what}")?;
            }
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n  note: {note}"))
    }
}
