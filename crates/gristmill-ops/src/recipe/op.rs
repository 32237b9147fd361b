//! One op as data: its parameters, what it does to the size, and where its randomness comes from.
//!
//! A closed set: what cannot be named here cannot be moved to another machine, checked in advance, or replayed.
//! Defaults are torchvision's. Doing the work is `pipeline`'s business.

use serde::{Deserialize, Deserializer, Serialize};

use crate::geometry;
use crate::{Dtype, Layout};

/// A size in a recipe: one number, or rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Size {
    /// A square; for `resize`, the length of the shorter side.
    Side(u32),
    /// Exactly these rows and columns.
    Exact([u32; 2]),
}

impl Size {
    /// Rows and columns, a single number meaning a square.
    pub fn rows_columns(self) -> [u32; 2] {
        match self {
            Size::Side(side) => [side, side],
            Size::Exact(size) => size,
        }
    }
}

/// One transform of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Op {
    /// Bytes to pixels: RGB, or one channel for raw single-channel samples. Always the first op.
    #[serde(deserialize_with = "no_keys")]
    Decode,
    /// A random part of the picture, of random area and shape, resized to a fixed size.
    RandomResizedCrop {
        /// The size of the result.
        size: Size,
        /// Least and greatest share of the area.
        #[serde(default = "default_scale")]
        scale: [f64; 2],
        /// Least and greatest width over height.
        #[serde(default = "default_ratio")]
        ratio: [f64; 2],
    },
    /// Antialiased bilinear resizing.
    Resize {
        /// The shorter side, or exactly the rows and columns.
        size: Size,
    },
    /// The middle of the picture, with black around it where it is too small.
    CenterCrop {
        /// The size of the result.
        size: Size,
    },
    /// A random place of a fixed size.
    RandomCrop {
        /// The size of the result.
        size: Size,
        /// Black pixels put around the picture first, on each side.
        #[serde(default)]
        padding: u32,
    },
    /// Left becomes right.
    Flip {
        /// How often.
        #[serde(default = "default_probability")]
        probability: f64,
    },
    /// To one channel.
    #[serde(deserialize_with = "no_keys")]
    Grey,
    /// To three channels.
    #[serde(deserialize_with = "no_keys")]
    Rgb,
    /// Pixels to numbers in the batch.
    ToTensor {
        /// The type of the numbers.
        #[serde(default)]
        dtype: Dtype,
        /// The order of the dimensions.
        #[serde(default)]
        layout: Layout,
    },
    /// `(x - mean) / std` for each channel, after `to-tensor` with f32.
    Normalise {
        /// One per channel.
        mean: Vec<f64>,
        /// One per channel.
        std: Vec<f64>,
    },
}

/// Left to itself, serde accepts any key beside the name of an op that has no parameters.
fn no_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoKeys {}

    NoKeys::deserialize(deserializer).map(|NoKeys {}| ())
}

fn default_scale() -> [f64; 2] {
    [0.08, 1.0]
}

fn default_ratio() -> [f64; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

fn default_probability() -> f64 {
    0.5
}

impl Op {
    /// The name in recipes, readings and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Decode => "decode",
            Op::RandomResizedCrop { .. } => "random-resized-crop",
            Op::Resize { .. } => "resize",
            Op::CenterCrop { .. } => "center-crop",
            Op::RandomCrop { .. } => "random-crop",
            Op::Flip { .. } => "flip",
            Op::Grey => "grey",
            Op::Rgb => "rgb",
            Op::ToTensor { .. } => "to-tensor",
            Op::Normalise { .. } => "normalise",
        }
    }

    /// Whether two epochs may give different results for one sample.
    pub fn is_random(&self) -> bool {
        matches!(self, Op::RandomResizedCrop { .. } | Op::RandomCrop { .. } | Op::Flip { .. })
    }

    /// What the randomness of the op is a function of; empty when there is none.
    pub fn random_inputs(&self) -> &'static [&'static str] {
        if self.is_random() { &["seed", "epoch", "sample", "op"] } else { &[] }
    }

    /// Rows and columns after the op, if they follow from those before it (`None`: they differ by sample).
    pub fn size_after(&self, before: Option<[u32; 2]>) -> Option<[u32; 2]> {
        match self {
            Op::RandomResizedCrop { size, .. } | Op::CenterCrop { size } | Op::RandomCrop { size, .. } => {
                Some(size.rows_columns())
            }
            Op::Resize { size: Size::Exact(size) } => Some(*size),
            Op::Resize { size: Size::Side(side) } => {
                before.map(|[rows, columns]| geometry::resized(*side, rows, columns))
            }
            Op::Decode
            | Op::Flip { .. }
            | Op::Grey
            | Op::Rgb
            | Op::ToTensor { .. }
            | Op::Normalise { .. } => before,
        }
    }

    /// Channels after the op.
    pub fn channels_after(&self, before: u32) -> u32 {
        match self {
            Op::Grey => 1,
            Op::Rgb => 3,
            _ => before,
        }
    }
}
