//! JPEG: the whole picture, or only the part that the next op needs.
//!
//! Decoding a part skips the inverse transform, upsampling and colour conversion of the rest. The pixels are
//! bit-identical to cutting them from the whole: chroma is interpolated from at most one neighbouring chroma
//! pixel, so a region widened by 2 pixels and then to whole MCUs has every neighbour it needs, and the ring that
//! was decoded with a wrong neighbour is trimmed away by the caller.
//!
//! As in Pillow, damaged entropy data is decoded as far as it goes and is no error; data that ends early is.
//! Deliberately not here: EXIF rotation. Scaling in the transform gives other pixels than any resize, so it serves
//! the perceptual hash only.

mod cut;
mod encode;
mod ffi;
mod markers;

use turbojpeg::{Colorspace, Subsamp};

pub(crate) use self::cut::{PartOf, cut};
pub(crate) use self::encode::JpegEncoder;
use self::ffi::{Complaint, Handle, Header, Pixels};
pub(crate) use self::markers::Outline;
use super::check_pixels;
use crate::{Limits, OpError, Rect};

/// How far chroma interpolation reaches, in pixels.
const MARGIN: u32 = 2;
/// The library interpolates narrow pictures in another way; narrower regions are widened to this.
const WIDTH_MIN: u32 = 64;

/// What decoding needs again and again.
///
/// The library's decompressor is not a part of it. It remembers the tables of the picture before and uses them for one
/// that lacks its own, so a damaged file would give other pixels on another thread. Making one takes microseconds.
#[derive(Default)]
pub(crate) struct JpegDecoder {
    cmyk: Vec<u8>,
}

impl JpegDecoder {
    /// Decodes at least `wanted(width, height)` as RGB into `out` and says which part that is, of which size.
    pub(crate) fn decode(
        &mut self,
        data: &[u8],
        limits: Limits,
        out: &mut Vec<u8>,
        wanted: impl FnOnce(u32, u32) -> Result<Rect, OpError>,
    ) -> Result<(Rect, [u32; 2]), OpError> {
        let (mut handle, header) = opened(Handle::new(), data, limits)?;
        let (width, height) = (header.width, header.height);
        let whole = Rect::whole(width, height);
        let mut region = widened(&header, wanted(width, height)?).unwrap_or(whole);
        let pixels = if is_cmyk(&header) { Pixels::Cmyk } else { Pixels::Rgb };
        let bytes = bytes_needed(&header, region, pixels);
        limits.check_scratch(bytes)?;
        let mut outcome = decode_region(&mut handle, data, &header, region, pixels, &mut self.cmyk, out);
        if region != whole && outcome.as_ref().is_err_and(|complaint| !complaint.warning) {
            // Sampling factors written in an unusual way: the library then has another idea of an MCU.
            region = whole;
            limits.check_scratch(bytes_needed(&header, region, pixels))?;
            outcome = decode_region(&mut handle, data, &header, region, pixels, &mut self.cmyk, out);
        }
        match outcome {
            Err(complaint) if !complaint.warning || complaint.message.contains(ENDS_EARLY) => {
                Err(damaged(&complaint))
            }
            _ => Ok((region, [height, width])),
        }
    }

    /// Decodes the whole picture as RGB into `out` and says how many rows and columns it has; `None` when the
    /// library had something to complain about, and a part of it might have been decoded in another way.
    pub(crate) fn decode_sound(
        &mut self,
        data: &[u8],
        limits: Limits,
        out: &mut Vec<u8>,
    ) -> Result<Option<[u32; 2]>, OpError> {
        let (mut handle, header) = opened(Handle::new(), data, limits)?;
        let region = Rect::whole(header.width, header.height);
        let pixels = if is_cmyk(&header) { Pixels::Cmyk } else { Pixels::Rgb };
        limits.check_scratch(bytes_needed(&header, region, pixels))?;
        let outcome = decode_region(&mut handle, data, &header, region, pixels, &mut self.cmyk, out);
        Ok(outcome.is_ok().then_some([header.height, header.width]))
    }

    /// Decodes the whole picture into `out` for a look at its coarse structure: as grey, each side divided by the
    /// largest power of two that leaves at least `side_min` pixels; or, where the library cannot do that, as RGB.
    pub(crate) fn decode_coarse(
        &mut self,
        data: &[u8],
        limits: Limits,
        side_min: u32,
        out: &mut Vec<u8>,
    ) -> Result<Coarse, OpError> {
        let (mut handle, header) = opened(Handle::new(), data, limits)?;
        let (width, height) = (header.width, header.height);
        let fits = |divisor: &u32| width.min(height) / divisor >= side_min;
        let divisor = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        if !is_cmyk(&header) && !header.lossless {
            let [scaled_width, scaled_height] = [width, height].map(|side| side.div_ceil(divisor));
            let region = Rect::whole(scaled_width, scaled_height);
            limits.check_scratch(bytes_needed(&header, region, Pixels::Rgb))?;
            grow(out, scaled_width as usize * scaled_height as usize);
            let (row_bytes, bytes) = (scaled_width as usize, scaled_width as usize * scaled_height as usize);
            let decode = |out: &mut [u8]| handle.decode_grey(data, &header, divisor, out);
            match to_the_end(out, row_bytes, bytes, decode) {
                Err(complaint) if complaint.warning && complaint.message.contains(ENDS_EARLY) => {
                    return Err(damaged(&complaint));
                }
                // Anything but a warning: another way may work, and says what is wrong if not.
                Err(complaint) if !complaint.warning => {}
                _ => return Ok(Coarse { size: [height, width], divisor, channels: 1 }),
            }
        }
        let (_, size) = self.decode(data, limits, out, |width, height| Ok(Rect::whole(width, height)))?;
        Ok(Coarse { size, divisor: 1, channels: 3 })
    }

    /// Bytes held for the next picture, without the library's own few kilobytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.cmyk.capacity()
    }

    /// Gives memory back that only a giant picture needed.
    pub(crate) fn shrink(&mut self, keep_bytes: usize) {
        if self.cmyk.capacity() > keep_bytes {
            self.cmyk = Vec::new();
        }
    }
}

/// The coarse form of a picture.
pub(crate) struct Coarse {
    /// Rows and columns of the picture itself.
    pub(crate) size: [u32; 2],
    /// How many of its pixels one stored pixel stands for, in each direction; the last may stand for fewer.
    pub(crate) divisor: u32,
    pub(crate) channels: u32,
}

/// The decoder and what it says about a picture, which is one that can be decoded within the limits.
fn opened(
    handle: Result<Handle, Complaint>,
    data: &[u8],
    limits: Limits,
) -> Result<(Handle, Header), OpError> {
    let mut handle = handle.map_err(|complaint| damaged(&complaint))?;
    handle.limit_memory(limits.scratch_bytes_max).map_err(|complaint| damaged(&complaint))?;
    let header = handle.header(data).map_err(|complaint| damaged(&complaint))?;
    let (width, height) = (header.width, header.height);
    if width == 0 || height == 0 {
        return Err(OpError::Corrupt { format: "JPEG", reason: "no picture in it".to_owned() });
    }
    check_pixels("JPEG", width, height, limits)?;
    if header.precision != 8 {
        let reason = format!("{} bits per value", header.precision);
        return Err(OpError::Unsupported { format: "JPEG", reason });
    }
    if !has_end(data) {
        return Err(OpError::Truncated { format: "JPEG" });
    }
    Ok((handle, header))
}

/// What the library says when it had to make up the end of the data.
const ENDS_EARLY: &str = "Premature end";

fn damaged(complaint: &Complaint) -> OpError {
    if complaint.message.contains(ENDS_EARLY) {
        return OpError::Truncated { format: "JPEG" };
    }
    // The library puts the name of its function first, which tells the reader nothing.
    let reason = complaint.message.split_once("(): ").map_or(&*complaint.message, |(_, reason)| reason);
    OpError::Corrupt { format: "JPEG", reason: reason.to_owned() }
}

fn is_cmyk(header: &Header) -> bool {
    [Colorspace::CMYK, Colorspace::YCCK].iter().any(|space| *space as i32 == header.colourspace)
}

/// Working memory for a region: its pixels, and for progressive pictures all coefficients of the whole.
fn bytes_needed(header: &Header, region: Rect, pixels: Pixels) -> u64 {
    let area = u64::from(region.width) * u64::from(region.height);
    let cmyk = if pixels == Pixels::Cmyk { area * 4 } else { 0 };
    let coefficients = if header.progressive {
        u64::from(header.width) * u64::from(header.height) * 2 * pixels.bytes() as u64
    } else {
        0
    };
    area * 3 + cmyk + coefficients
}

/// The region to decode for the pixels of `wanted`; `None` when only the whole picture gives them exactly.
fn widened(header: &Header, wanted: Rect) -> Option<Rect> {
    let mcu = match header.subsampling {
        s if s == Subsamp::None as i32 || s == Subsamp::Gray as i32 => [8, 8],
        s if s == Subsamp::Sub2x1 as i32 => [16, 8],
        s if s == Subsamp::Sub2x2 as i32 => [16, 16],
        s if s == Subsamp::Sub1x2 as i32 => [8, 16],
        s if s == Subsamp::Sub4x1 as i32 => [32, 8],
        s if s == Subsamp::Sub1x4 as i32 => [8, 32],
        _ => return None,
    };
    if header.lossless {
        return None;
    }
    Some(widened_to(mcu, wanted, header.width, header.height))
}

/// The part that is cut for `wanted` from a picture of this size, if it is subsampled as most are.
pub(crate) fn usual_part(wanted: Rect, width: u32, height: u32) -> Rect {
    widened_to([16, 16], wanted, width, height)
}

fn widened_to([mcu_width, mcu_height]: [u32; 2], wanted: Rect, width: u32, height: u32) -> Rect {
    let missing = WIDTH_MIN.saturating_sub(wanted.width);
    let (x, width) = aligned(wanted.x, wanted.width, MARGIN + missing, mcu_width, width);
    let (y, height) = aligned(wanted.y, wanted.height, MARGIN, mcu_height, height);
    Rect { x, y, width, height }
}

/// The part `start..start + size` of a side of `length` pixels, with a margin, in whole units: start and size.
fn aligned(start: u32, size: u32, margin: u32, unit: u32, length: u32) -> (u32, u32) {
    let first = start.saturating_sub(margin) / unit * unit;
    let end = (start + size + margin).next_multiple_of(unit).min(length);
    (first, end - first)
}

fn decode_region(
    handle: &mut Handle,
    data: &[u8],
    header: &Header,
    region: Rect,
    pixels: Pixels,
    cmyk: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), Complaint> {
    let area = region.width as usize * region.height as usize;
    grow(out, area * 3);
    let row_bytes = region.width as usize * pixels.bytes();
    if pixels == Pixels::Rgb {
        return to_the_end(out, row_bytes, area * 3, |out| handle.decode(data, header, region, pixels, out));
    }
    grow(cmyk, area * 4);
    let outcome =
        to_the_end(cmyk, row_bytes, area * 4, |cmyk| handle.decode(data, header, region, pixels, cmyk));
    for (rgb, cmyk) in out.chunks_exact_mut(3).zip(cmyk[..area * 4].chunks_exact(4)) {
        rgb.copy_from_slice(&rgb_of([cmyk[0], cmyk[1], cmyk[2], cmyk[3]]));
    }
    outcome
}

/// Decodes `bytes` into `out` and makes sure that a warning is no more than that.
///
/// The library tells an error after a warning as a warning. Rows are then missing at the end, where the memory still
/// holds another picture. So what it warns about is decoded again over a last row that was changed before: it is
/// overwritten with the same pixels, or it was never reached.
fn to_the_end(
    out: &mut [u8],
    row_bytes: usize,
    bytes: usize,
    mut decode: impl FnMut(&mut [u8]) -> Result<(), Complaint>,
) -> Result<(), Complaint> {
    let outcome = decode(out);
    if !matches!(&outcome, Err(complaint) if complaint.warning) {
        return outcome;
    }
    let last = bytes - row_bytes..bytes;
    let before = out[last.clone()].to_vec();
    out[last.clone()].iter_mut().for_each(|value| *value = !*value);
    let outcome = decode(out);
    if out[last] == before {
        return outcome;
    }
    outcome.map_err(|complaint| Complaint { warning: false, ..complaint })
}

/// Makes room without touching what is there already: the decoder overwrites it.
fn grow(buffer: &mut Vec<u8>, bytes: usize) {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
}

/// Pillow's rule for the inverted inks that JPEG files hold.
fn rgb_of([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let light = u32::from(k);
    [c, m, y].map(|ink| {
        let product = u32::from(255 - ink) * light + 128;
        (light - ((product + (product >> 8)) >> 8).min(light)) as u8
    })
}

/// Whether an end marker follows the first scan: without one, rows are missing at the end.
fn has_end(data: &[u8]) -> bool {
    let Some(scan) = first_scan(data) else {
        // Not a chain of segments: the decoder judges.
        return true;
    };
    memchr::memmem::rfind(&data[scan..], &[0xFF, 0xD9]).is_some()
}

/// Where the first scan header lies, following the lengths of the segments before it.
fn first_scan(data: &[u8]) -> Option<usize> {
    let mut at = 2;
    loop {
        if *data.get(at)? != 0xFF {
            return None;
        }
        match *data.get(at + 1)? {
            0xDA => return Some(at),
            0xFF => at += 1,
            0x01 | 0xD0..=0xD8 => at += 2,
            _ => {
                let length = u16::from_be_bytes([*data.get(at + 2)?, *data.get(at + 3)?]);
                at += 2 + usize::from(length);
            }
        }
    }
}
