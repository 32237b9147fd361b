//! What is known about a sample's size at each stage and after each op, without running anything.
//!
//! For whoever decides where a sample is prepared: the decision needs these numbers for every sample of an epoch.

use super::advance::DECODED_HEADER_BYTES;
use super::{Draw, Dtype, Facts, Pipeline, Stage};
use crate::codec::{self, Format, Outline};
use crate::{Encoding, Op};

impl Pipeline {
    /// What the header of a sample says; `None` when it is no picture.
    pub fn facts(&self, bytes: &[u8]) -> Option<Facts> {
        if let Encoding::Raw(raw) = self.encoding {
            return Some(Facts { width: raw.width, height: raw.height, can_cut: false });
        }
        match Format::of(bytes).ok()? {
            Format::Jpeg => {
                let outline = Outline::of(bytes)?;
                let can_cut = outline.can_cut();
                Some(Facts { width: outline.width, height: outline.height, can_cut })
            }
            Format::Png => {
                let [width, height] = codec::png_size(bytes)?;
                Some(Facts { width, height, can_cut: false })
            }
        }
    }

    /// The share of a picture's area (0 to 1) that a cut carries for this draw, if its MCUs are 16 x 16 pixels.
    pub fn cut_share(&self, draw: Draw, width: u32, height: u32) -> f64 {
        if width == 0 || height == 0 {
            return 1.0;
        }
        self.region(draw, width, height).map_or(1.0, |wanted| {
            let part = codec::usual_part(wanted, width, height);
            let area = |width: u32, height: u32| f64::from(width) * f64::from(height);
            area(part.width, part.height) / area(width, height)
        })
    }

    /// How many bytes a sample of this size has at a stage; `None` where that depends on what the picture shows.
    pub fn stage_bytes(&self, stage: Stage, width: u32, height: u32) -> Option<u64> {
        match stage {
            Stage::Decoded => Some(
                DECODED_HEADER_BYTES as u64 + u64::from(width) * u64::from(height) * self.decoded_channels(),
            ),
            Stage::Cropped => Some(self.pixels.output().bytes() as u64),
            Stage::Finished => Some(self.output().bytes() as u64),
            Stage::Raw | Stage::Cut | Stage::Packed | Stage::Lossy => None,
        }
    }

    /// How many bytes a picture of this size takes after each op, by the op's name.
    pub fn sizes_by_op(&self, width: u32, height: u32) -> Vec<(&'static str, u64)> {
        let (mut size, mut channels, mut value_bytes) = ([height, width], self.decoded_channels(), 1);
        let after = |op: &Op| {
            size = op.size_after(Some(size)).unwrap_or(size);
            channels = u64::from(op.channels_after(channels as u32));
            if let Op::ToTensor { dtype: Dtype::F32, .. } = op {
                value_bytes = 4;
            }
            (op.name(), u64::from(size[0]) * u64::from(size[1]) * channels * value_bytes)
        };
        self.ops.iter().map(after).collect()
    }

    fn decoded_channels(&self) -> u64 {
        match self.encoding {
            Encoding::Sniffed => 3,
            Encoding::Raw(raw) => u64::from(raw.channels),
        }
    }
}
