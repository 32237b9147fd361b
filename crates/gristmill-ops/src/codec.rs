//! From encoded bytes to 8-bit pixels, exactly those that Pillow's `Image.open(f).convert("RGB")` gives.
//!
//! Here: telling the formats apart, and the limits that are checked on the header before anything is allocated.
//! The formats themselves are `jpeg` and `png`. EXIF rotation is deliberately not applied (neither Pillow nor
//! torchvision does).

mod jpeg;
mod packed;
mod png;

pub(crate) use jpeg::{JpegDecoder, JpegEncoder, Outline, PartOf, cut as cut_jpeg, usual_part};
pub(crate) use packed::{pack, unpack};
pub(crate) use png::{decode as decode_png, encode as encode_png, size as png_size};

use crate::{Limits, OpError};

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Jpeg,
    Png,
}

impl Format {
    pub(crate) fn of(bytes: &[u8]) -> Result<Format, OpError> {
        if bytes.starts_with(&[0xFF, 0xD8, 0xFF]) {
            Ok(Format::Jpeg)
        } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Ok(Format::Png)
        } else if bytes.is_empty() {
            Err(OpError::Empty)
        } else {
            let begins = bytes[..bytes.len().min(8)].escape_ascii().to_string();
            Err(OpError::NotAnImage { begins })
        }
    }
}

/// Refuses a picture whose header announces more pixels than allowed.
pub(crate) fn check_pixels(
    format: &'static str,
    width: u32,
    height: u32,
    limits: Limits,
) -> Result<(), OpError> {
    let pixels_max = limits.pixels_max;
    if u64::from(width) * u64::from(height) > pixels_max {
        return Err(OpError::TooManyPixels { format, width, height, pixels_max });
    }
    Ok(())
}

impl Limits {
    /// Refuses a sample that would need more working memory than allowed.
    pub(crate) fn check_scratch(&self, needed_bytes: u64) -> Result<(), OpError> {
        if needed_bytes > self.scratch_bytes_max as u64 {
            let scratch_bytes_max = self.scratch_bytes_max;
            return Err(OpError::TooMuchScratch { needed_bytes, scratch_bytes_max });
        }
        Ok(())
    }
}
