//! A sample as a small picture that a browser shows, whatever its encoding.
//!
//! Small files that a browser can show are passed on as they are; raw pixels and large pictures become a PNG whose
//! longer side is at most a given number of pixels. Deliberately not here: pages.

use crate::pipeline::{Draw, Dtype, Layout, Pipeline, Scratch};
use crate::recipe::{Op, Recipe, Size};
use crate::{Encoding, Hasher, Limits, OpError, codec};
use gristmill_core::SampleId;

/// A picture for a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thumbnail {
    /// `image/png` or `image/jpeg`.
    pub media_type: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// Pixels per row of the sample itself.
    pub width: u32,
    /// Rows of the sample itself.
    pub height: u32,
}

/// The picture of a sample, with a longer side of at most `side_max` pixels where it is made anew; a file of up to
/// `file_bytes_max` bytes is taken as it is.
pub fn thumbnail(
    encoding: Encoding,
    bytes: &[u8],
    limits: Limits,
    side_max: u32,
    file_bytes_max: usize,
) -> Result<Thumbnail, OpError> {
    let (width, height, channels) = match encoding {
        Encoding::Raw(raw) => (raw.width, raw.height, raw.channels),
        Encoding::Sniffed => {
            // Decoded once in full before a browser is trusted with it; that also tells its size.
            let hashed = Hasher::new().hash(encoding, bytes, limits)?;
            (hashed.width, hashed.height, 3)
        }
    };
    if encoding == Encoding::Sniffed && bytes.len() <= file_bytes_max {
        let media_type = match codec::Format::of(bytes)? {
            codec::Format::Jpeg => "image/jpeg",
            codec::Format::Png => "image/png",
        };
        return Ok(Thumbnail { media_type, bytes: bytes.to_vec(), width, height });
    }
    let longer = width.max(height).max(1);
    let side =
        |side: u32| (u64::from(side) * u64::from(side_max.min(longer)) / u64::from(longer)).max(1) as u32;
    let (small_width, small_height) = (side(width), side(height));
    let recipe = Recipe {
        ops: vec![
            Op::Decode,
            Op::Resize { size: Size::Exact([small_height, small_width]) },
            Op::ToTensor { dtype: Dtype::U8, layout: Layout::Nhwc },
        ],
    };
    let pipeline = Pipeline::new(&recipe, encoding, limits)
        .map_err(|e| OpError::WrongOutput { reason: e.to_string() })?;
    let mut pixels = vec![0; pipeline.output().bytes()];
    let draw = Draw { seed: 0, epoch: 0, sample: SampleId(0) };
    pipeline.run(&mut Scratch::new(), draw, bytes, &mut pixels)?;
    let bytes = codec::encode_png(small_width, small_height, channels, &pixels)?;
    Ok(Thumbnail { media_type: "image/png", bytes, width, height })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RawImage;

    #[test]
    fn raw_and_large_pictures_become_small_pngs() {
        let limits = Limits { pixels_max: 1 << 20, scratch_bytes_max: 1 << 24 };
        let grey = Encoding::Raw(RawImage { width: 28, height: 28, channels: 1, planar: false });
        let made = thumbnail(grey, &[7; 784], limits, 100, 0).unwrap();
        assert_eq!((made.media_type, made.width, made.height), ("image/png", 28, 28));
        let (mut packed, mut pixels) = (Vec::new(), Vec::new());
        assert_eq!(codec::decode_png(&made.bytes, limits, &mut packed, &mut pixels).unwrap(), [28, 28]);
        assert!(pixels.iter().all(|value| *value == 7));

        let wide = codec::encode_png(300, 100, 3, &vec![50; 90_000]).unwrap();
        let made = thumbnail(Encoding::Sniffed, &wide, limits, 60, 10).unwrap();
        assert_eq!((made.width, made.height), (300, 100));
        assert_eq!(codec::decode_png(&made.bytes, limits, &mut packed, &mut pixels).unwrap(), [20, 60]);
        let same = thumbnail(Encoding::Sniffed, &wide, limits, 60, 1 << 20).unwrap();
        assert_eq!(same.bytes, wide);
        assert!(thumbnail(Encoding::Sniffed, b"no", limits, 60, 10).is_err());
        assert!(thumbnail(grey, b"no", limits, 60, 10).is_err());
    }
}
