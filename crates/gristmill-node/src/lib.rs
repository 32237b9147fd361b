//! What Gristmill does: moves bytes and measures.
//!
//! A [`store::Store`] is where raw bytes rest. A [`catalog::Catalog`] says which samples there are and where each
//! lies. The loader reads samples in the order of a plan, runs the recipe on them and hands over batches. This is
//! the only crate with I/O.
//!
//! Deliberately not here: decisions (they are in `gristmill-core`), codecs (in `gristmill-ops`), and anything
//! that prints.

pub mod access;
pub mod catalog;
pub mod client;
pub mod config;
mod cores;
pub mod dataset;
pub mod disk;
pub mod error;
pub mod exchange;
pub mod families;
pub mod holding;
pub mod lane;
pub mod loader;
pub mod metrics;
pub mod node;
pub mod open;
pub mod page;
pub mod peers;
pub mod reader;
pub mod report;
pub mod selection;
pub mod serve;
pub mod shared;
pub mod split;
pub mod steer;
pub mod store;
pub mod token;
pub mod wire;

pub use error::{Error, Kind, Result};
