//! Transforms of one sample: from the bytes in the store to its place in a batch.
//!
//! A [`Recipe`] is data: an ordered list of ops. Compiled with what is known about the input it becomes a
//! [`Pipeline`], which any number of threads share; each thread brings its own [`Scratch`]. This is the only
//! crate with codecs.
//!
//! Deliberately not here: files, sockets, threads, and any state that outlives one sample. Randomness is a pure
//! function of (seed, epoch, sample, op), so an op gives the same bytes wherever it runs. `unsafe` is confined
//! to one file, the door to the JPEG library.

mod codec;
mod error;
mod geometry;
mod phash;
mod pipeline;
mod recipe;
mod thumbnail;

pub use error::OpError;
pub use geometry::Rect;
pub use phash::{Hashed, Hasher};
pub use pipeline::{
    Advanced, BUILD, Draw, Dtype, Facts, Layout, Limits, Output, Pipeline, Scratch, Spent, Stage,
};
pub use recipe::{Op, Recipe, RecipeError, Size};
pub use thumbnail::{Thumbnail, thumbnail};

/// How the bytes of the samples of a data set are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// Each sample says it by its first bytes (JPEG or PNG).
    Sniffed,
    /// Bare 8-bit pixels, all samples of one size.
    Raw(RawImage),
}

/// The shape of bare pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RawImage {
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// 1 (grey) or 3 (RGB).
    pub channels: u32,
    /// Whether whole colour planes follow each other (as in CIFAR) instead of whole pixels.
    pub planar: bool,
}

impl RawImage {
    /// How many bytes one sample has.
    pub fn bytes(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height) * u64::from(self.channels)
    }
}
