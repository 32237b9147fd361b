//! A part of a JPEG as a JPEG of its own, without decoding to pixels and without loss.
//!
//! The transformed blocks of the part are copied as they are and coded again, so decoding them gives exactly the
//! pixels of the whole. Only pixels at the border whose chroma is interpolated from beyond it differ; the part is
//! therefore the one that partial decoding reads (see `jpeg`), whose margin is trimmed away by the crop.
//!
//! Nothing that could end in other pixels is cut: pictures that the library warns about, progressive ones with
//! missing scans (a decoder smooths over what is missing), inks, more than 8 bits, unusual sampling factors.
//! Markers are left out, except what the colours depend on. Deliberately not here: whether a cut is worth it.

use super::ffi::{Handle, Pixels};
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

/// Appends the header and the JPEG of the part around `wanted(width, height)`; `false` when there is no cut that
/// is sure to give the same pixels, or it would not be smaller than `data`.
pub(crate) fn cut(
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
    if !outline.is_complete(data) {
        return Ok(false);
    }
    let (mut handle, header) = opened(Handle::transformer(), data, limits)?;
    let (width, height) = (header.width, header.height);
    if [width, height] != [outline.width, outline.height] || width > SIDE_MAX || height > SIDE_MAX {
        return Ok(false);
    }
    let Some(region) = widened(&header, wanted(width, height)?) else {
        return Ok(false);
    };
    // A part needs less memory than the picture does, which must not make one pass that would fail as it is.
    limits.check_scratch(super::bytes_needed(&header, region, Pixels::Rgb))?;
    let begin = out.len();
    PartOf { size: [height, width], x: region.x, y: region.y }.write(out);
    if handle.cut(data, region, out).is_err() || out.len() - begin >= data.len() {
        return Ok(false);
    }
    // Sampling factors written in an unusual way give another part than the one that was asked for.
    let Ok(part) = handle.header(&out[begin + PartOf::BYTES..]) else {
        return Ok(false);
    };
    let same = [part.subsampling, part.colourspace] == [header.subsampling, header.colourspace];
    Ok(same && [part.width, part.height] == [region.width, region.height])
}

/// Memory for all coefficients of the picture, for those of a part that may be all of it, and for the result.
fn bytes_needed(outline: &Outline) -> u64 {
    // At most 32 pixels are an MCU's side; a coefficient has 2 bytes.
    let padded =
        u64::from(outline.width.next_multiple_of(32)) * u64::from(outline.height.next_multiple_of(32));
    padded * outline.components.len() as u64 * 2 * 2
}

#[cfg(test)]
mod tests {
    use gristmill_core::rng::mix;
    use proptest::prelude::*;
    use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

    use super::super::JpegDecoder;
    use super::*;

    const LIMITS: Limits = Limits { pixels_max: 1 << 20, scratch_bytes_max: 1 << 26 };
    const SIZE: [u32; 2] = [240, 320];

    /// Coloured noise: no pixel is like its neighbours.
    fn noise(subsampling: Subsamp) -> Vec<u8> {
        let [height, width] = SIZE.map(|side| side as usize);
        let pixels: Vec<u8> = (0..width * height * 3).map(|i| mix(i as u64) as u8).collect();
        let mut compressor = Compressor::new().unwrap();
        compressor.set_quality(90).unwrap();
        compressor.set_subsamp(subsampling).unwrap();
        let image = Image { pixels: &pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
        compressor.compress_to_vec(image).unwrap()
    }

    /// The pixels of `wanted` from a picture of which `region` was decoded.
    fn pixels(jpeg: &[u8], region: Rect, wanted: Rect) -> Vec<u8> {
        let mut pixels = Vec::new();
        let whole = |width, height| Ok(Rect::whole(width, height));
        let (part, _) = JpegDecoder::default().decode(jpeg, LIMITS, &mut pixels, whole).unwrap();
        assert_eq!([part.width, part.height], [region.width, region.height]);
        let rows = pixels.chunks_exact(region.width as usize * 3).skip((wanted.y - region.y) as usize);
        let (x, width) = ((wanted.x - region.x) as usize * 3, wanted.width as usize * 3);
        rows.take(wanted.height as usize).flat_map(|row| &row[x..x + width]).copied().collect()
    }

    fn same(jpeg: &[u8], region: Rect, wanted: Rect) -> bool {
        let mut part = Vec::new();
        Handle::transformer().unwrap().cut(jpeg, region, &mut part).unwrap();
        let all = Rect::whole(SIZE[1], SIZE[0]);
        pixels(&part, region, wanted) == pixels(jpeg, all, wanted)
    }

    /// The neutral form: exactly the MCUs that are wanted are not enough where chroma is interpolated.
    #[test]
    fn the_margin_is_needed() {
        let wanted = Rect { x: 96, y: 64, width: 128, height: 96 };
        for (subsampling, interpolated) in [
            (Subsamp::Sub2x2, true),
            (Subsamp::Sub2x1, true),
            (Subsamp::Sub1x2, true),
            (Subsamp::None, false),
        ] {
            let jpeg = noise(subsampling);
            let header = Handle::new().unwrap().header(&jpeg).unwrap();
            assert_eq!(same(&jpeg, wanted, wanted), !interpolated, "{subsampling:?} without a margin");
            let region = widened(&header, wanted).unwrap();
            assert!(region.contains(wanted) && region != wanted);
            assert!(same(&jpeg, region, wanted), "{subsampling:?} with a margin");
        }
    }

    #[test]
    fn a_cut_needs_memory_for_all_coefficients() {
        let jpeg = noise(Subsamp::Sub2x2);
        let wanted = |_, _| Ok(Rect { x: 16, y: 16, width: 80, height: 40 });
        let cut = |limits| super::cut(&jpeg, limits, &mut Vec::new(), wanted);
        assert_eq!(cut(LIMITS), Ok(true));
        let too_little = Limits { scratch_bytes_max: 256 * 320 * 12 - 1, ..LIMITS };
        assert!(matches!(cut(too_little), Err(OpError::TooMuchScratch { .. })));
        let too_small = Limits { pixels_max: 320 * 240 - 1, ..LIMITS };
        assert!(matches!(cut(too_small), Err(OpError::TooManyPixels { .. })));
    }

    proptest! {
        #[test]
        fn headers_survive(width in 1_u32..=SIDE_MAX, height in 1_u32..=SIDE_MAX, x in 0_u32..SIDE_MAX, y in 0_u32..SIDE_MAX) {
            let part = PartOf { size: [height, width], x, y };
            let mut bytes = Vec::new();
            part.write(&mut bytes);
            bytes.push(7);
            let read = PartOf::read(&bytes);
            prop_assert_eq!(read, (x < width && y < height).then_some((part, &[7][..])));
            prop_assert_eq!(PartOf::read(&bytes[..7]), None);
            if read.is_some() {
                prop_assert!(part.region(width - x, height - y).is_some());
                prop_assert_eq!(part.region(width - x + 1, height - y), None);
                prop_assert_eq!(part.region(0, 1), None);
            }
        }
    }
}
