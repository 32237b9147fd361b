//! How ranks exchange, before the data set is known.

use gristmill_core::exchange::{Choose, Form};
use std::path::PathBuf;

/// Which share of what a rank holds is swapped in an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fraction {
    /// This one: 0 is a local shuffle, 1 moves everything.
    Fixed(f64),
    /// Little at first, and more when the classes are spread unevenly over the ranks.
    Auto,
}

impl Fraction {
    /// The largest share that it may come to.
    pub fn most(self) -> f64 {
        match self {
            Fraction::Fixed(fraction) => fraction,
            Fraction::Auto => 0.9,
        }
    }
}

/// Where a rank's slice lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// In this process; a restart fills it again.
    Memory,
    /// In this folder, with one folder per rank in it; a restart goes on with it.
    Folder(PathBuf),
}

/// How ranks exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeSettings {
    /// How much.
    pub fraction: Fraction,
    /// Who sends to whom.
    pub form: Form,
    /// What is sent.
    pub choose: Choose,
    /// Where the slice lies.
    pub hold: Hold,
    /// The most bytes that one message may have.
    pub message_bytes_max: u64,
    /// How long a rank waits for another before that is an error.
    pub patience_ms: u64,
}

impl Default for ExchangeSettings {
    fn default() -> ExchangeSettings {
        ExchangeSettings {
            fraction: Fraction::Fixed(0.3),
            form: Form::default(),
            choose: Choose::default(),
            hold: Hold::Memory,
            message_bytes_max: 64 << 20,
            patience_ms: 60_000,
        }
    }
}
