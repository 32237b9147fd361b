//! Partial local shuffling at work: a rank holds a slice of the data set and swaps a fraction of it in every epoch.
//!
//! Who sends what to whom is decided in `gristmill_core::exchange`, alike on every rank and without messages. Here the
//! bytes move: [`Exchanger`] is one rank's state machine and knows no transport; a [`Driver`] is a thread that drives it
//! over a [`Transport`]; programs with an event loop of their own (Python) drive it themselves. Ranks speak together only
//! twice: once at the start (do they work on the same thing?) and once when an epoch is over (does everybody have
//! everything?). What was sent is let go only after that, so a crash at any point loses nothing.
//!
//! Deliberately not here: who holds what (`gristmill_core::exchange`), where a slice lies (`holding`), and the transports
//! that need libraries of their own.

mod behind;
mod driver;
mod exchanger;
mod fill;
mod local;
mod options;
mod pledge;
mod position;
mod ready;
mod report;
mod rounds;
mod settle;
pub mod testing;
mod transport;

pub use driver::{Driver, Finishing};
pub use exchanger::Exchanger;
pub use fill::{Filled, Filling};
pub use local::Local;
pub use options::{ExchangeSettings, Fraction, Hold};
pub use pledge::refusal;
pub(crate) use ready::{Scene, Terms};
pub use report::ExchangeReport;
pub use transport::Transport;

use bytes::Bytes;

/// A message that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// To whom.
    pub peer: u32,
    /// Its number among all from this rank to that one in the epoch.
    pub tag: u32,
    /// Its content.
    pub bytes: Bytes,
}

/// A message that is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// From whom.
    pub peer: u32,
    /// Its number among all from that rank to this one in the epoch.
    pub tag: u32,
    /// Its exact size.
    pub bytes: usize,
}

/// What is to be done now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    /// Messages to send.
    pub sends: Vec<Parcel>,
    /// Messages to expect.
    pub receives: Vec<Expected>,
    /// Whether more is due than should be in memory at once: ask again when most of this has left.
    pub more: bool,
}

/// Ranks as people write them: `rank 2`, `ranks 1, 2 and 5`; at most eight of them.
pub(crate) fn named(ranks: &[u32]) -> String {
    let (shown, rest) = ranks.split_at(ranks.len().min(8));
    let mut words: Vec<String> = shown.iter().map(u32::to_string).collect();
    if !rest.is_empty() {
        words.push(format!("{} others", rest.len()));
    }
    match words.split_last() {
        None => "no rank".into(),
        Some((one, [])) => format!("rank {one}"),
        Some((last, first)) => format!("ranks {} and {last}", first.join(", ")),
    }
}
