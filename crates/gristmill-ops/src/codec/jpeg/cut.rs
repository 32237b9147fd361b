//! A part of a JPEG as a JPEG of its own, without decoding to pixels and without loss.
//!
//! The transformed blocks of the part are copied as they are and coded again, so decoding them gives exactly the
//! pixels of the whole. Only pixels at the border whose chroma is interpolated from beyond it differ; the part is
//! therefore the one that partial decoding reads (see `jpeg`), whose margin is trimmed away by the crop.
//!
//! Nothing that could end in other pixels is cut: pictures that the library warns about, progressive ones with
//! missing scans (a decoder smooths over what is missing), inks, more than 8 bits, unusual sampling factors.
//! Markers are left out, except what the colours depend on. Deliberately not here: whether a cut is worth it.

use super::ffi::Handle;
use super::{Outline, check_pixels, opened, widened};
use crate::{Limits, OpError, Rect};

/// Columns of the widest picture and rows of the tallest that the library reads.
const SIDE_MAX: u32 = 65_500;

/// Which part of which picture a cut is: what precedes its JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartOf {
    /// Rows and columns of the picture.
    pub(crate) size: [u32; 2],
    /// Where the part starts.
    pub(crate) x: u32,
    pub(crate) y: u32,
}

impl PartOf {
    pub(crate) const BYTES: usize = 8;

    fn write(self, out: &mut Vec<u8>) {
        let [height, width] = self.size;
        for value in [width, height, self.x, self.y] {
            // At most SIDE_MAX, which the library sees to.
            out.extend_from_slice(&(value as u16).to_le_bytes());
        }
    }

    /// The header of a cut and the JPEG after it; `None` when there is no such header.
    pub(crate) fn read(bytes: &[u8]) -> Option<(PartOf, &[u8])> {
        let (header, jpeg) = bytes.split_first_chunk::<{ PartOf::BYTES }>()?;
        let value = |at: usize| u32::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let [width, height, x, y] = [0, 2, 4, 6].map(value);
        (x < width && y < height).then_some((PartOf { size: [height, width], x, y }, jpeg))
    }

    /// The part, if one of this size lies in the picture.
    pub(crate) fn region(self, width: u32, height: u32) -> Option<Rect> {
        let fits = self.x + width <= self.size[1] && self.y + height <= self.size[0];
        (fits && width > 0 && height > 0).then_some(Rect { x: self.x, y: self.y, width, height })
    }
}

/// A transformer that is reused from picture to picture; made by the first JPEG.
#[derive(Default)]
pub(crate) struct JpegCutter {
    handle: Option<Handle>,
}

impl JpegCutter {
    /// Appends the header and the JPEG of the part around `wanted(width, height)`; `false` when there is no cut that
    /// is sure to give the same pixels, or it would not be smaller than `data`.
    pub(crate) fn cut(
        &mut self,
        data: &[u8],
        limits: Limits,
        out: &mut Vec<u8>,
        wanted: impl FnOnce(u32, u32) -> Result<Rect, OpError>,
    ) -> Result<bool, OpError> {
        let Some(outline) = Outline::of(data).filter(Outline::can_cut) else {
            return Ok(false);
        };
        // Before the library allocates anything.
        check_pixels("JPEG", outline.width, outline.height, limits)?;
        limits.check_scratch(bytes_needed(&outline))?;
        if outline.is_progressive() && !outline.is_complete(data) {
            return Ok(false);
        }
        if self.handle.is_none() {
            self.handle = Handle::transformer().ok();
        }
        let (handle, header) = opened(&mut self.handle, data, limits)?;
        let (width, height) = (header.width, header.height);
        if [width, height] != [outline.width, outline.height] || width > SIDE_MAX || height > SIDE_MAX {
            return Ok(false);
        }
        let Some(region) = widened(&header, wanted(width, height)?) else {
            return Ok(false);
        };
        let begin = out.len();
        PartOf { size: [height, width], x: region.x, y: region.y }.write(out);
        if handle.cut(data, region, limits.scratch_bytes_max, out).is_err() || out.len() - begin >= data.len()
        {
            return Ok(false);
        }
        // Sampling factors written in an unusual way give another part than the one that was asked for.
        let Ok(part) = handle.header(&out[begin + PartOf::BYTES..]) else {
            return Ok(false);
        };
        let same = [part.subsampling, part.colourspace] == [header.subsampling, header.colourspace];
        Ok(same && [part.width, part.height] == [region.width, region.height])
    }
}

/// Memory for all coefficients of the picture, for those of a part that may be all of it, and for the result.
fn bytes_needed(outline: &Outline) -> u64 {
    // At most 32 pixels are an MCU's side; a coefficient has 2 bytes.
    let padded =
        u64::from(outline.width.next_multiple_of(32)) * u64::from(outline.height.next_multiple_of(32));
    padded * outline.components.len() as u64 * 2 * 2
}
