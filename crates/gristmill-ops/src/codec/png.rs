//! PNG: any bit depth and colour type, as Pillow's `convert("RGB")` sees it.
//!
//! Transparency is dropped, not blended; 16-bit colour keeps its high byte, 16-bit grey is cut off at 255; of an animation only the first frame
//! is read. Text and colour profiles are skipped unread, and the size in the header is checked before anything is
//! allocated.

use std::io::Cursor;

use ::png::{BitDepth, ColorType, Decoder, DecodingError, Encoder, Transformations};

use super::check_pixels;
use crate::{Limits, OpError};

/// Columns and rows, by the first chunk: it is the header, at a fixed place.
pub(crate) fn size(data: &[u8]) -> Option<[u32; 2]> {
    let side = |at: usize| data.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    Some([side(16)?, side(20)?])
}

/// Decodes the picture as RGB into `out` and says how many rows and columns it has.
pub(crate) fn decode(
    data: &[u8],
    limits: Limits,
    packed: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<[u32; 2], OpError> {
    // Checked before a decoder is made.
    if let Some([width, height]) = size(data) {
        check_pixels("PNG", width, height, limits)?;
    }
    let mut decoder =
        Decoder::new_with_limits(Cursor::new(data), ::png::Limits { bytes: limits.scratch_bytes_max });
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(Transformations::IDENTITY);
    let mut reader = decoder.read_info().map_err(damaged)?;
    let (width, height) = reader.info().size();
    check_pixels("PNG", width, height, limits)?;
    let (colour, depth) = (reader.info().color_type, reader.info().bit_depth);
    let area = width as usize * height as usize;
    let bytes = reader.output_buffer_size().unwrap_or(usize::MAX);
    let ready = (colour, depth) == (ColorType::Rgb, BitDepth::Eight);
    limits.check_scratch((area as u64 * 3).saturating_add(if ready { 0 } else { bytes as u64 }))?;
    let target = if ready { &mut *out } else { &mut *packed };
    if target.len() < bytes {
        target.resize(bytes, 0);
    }
    reader.next_frame(&mut target[..bytes]).map_err(damaged)?;
    if !ready {
        if out.len() < area * 3 {
            out.resize(area * 3, 0);
        }
        let palette = reader.info().palette.as_deref().unwrap_or_default();
        unpack(&packed[..bytes], &mut out[..area * 3], width as usize, colour, depth, palette);
    }
    Ok([height, width])
}

/// Pixels (grey with 1 channel, RGB with 3) as a PNG, for pages that people look at.
pub(crate) fn encode(width: u32, height: u32, channels: u32, pixels: &[u8]) -> Result<Vec<u8>, OpError> {
    let wrong = |reason: String| OpError::WrongOutput { reason };
    let colour = if channels == 1 { ColorType::Grayscale } else { ColorType::Rgb };
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&mut out, width, height);
    encoder.set_color(colour);
    let mut writer = encoder.write_header().map_err(|e| wrong(e.to_string()))?;
    writer.write_image_data(pixels).map_err(|e| wrong(e.to_string()))?;
    writer.finish().map_err(|e| wrong(e.to_string()))?;
    Ok(out)
}

fn damaged(error: DecodingError) -> OpError {
    match error {
        DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            OpError::Truncated { format: "PNG" }
        }
        DecodingError::LimitsExceeded => OpError::Unsupported {
            format: "PNG",
            reason: "its extra chunks need more memory than scratch_bytes_max".to_owned(),
        },
        error => OpError::Corrupt { format: "PNG", reason: error.to_string() },
    }
}

/// From rows as they are stored to RGB.
fn unpack(packed: &[u8], out: &mut [u8], width: usize, colour: ColorType, depth: BitDepth, palette: &[u8]) {
    let bits = depth as usize;
    let row_bytes = (width * colour.samples() * bits).div_ceil(8);
    for (row, out) in packed.chunks_exact(row_bytes).zip(out.chunks_exact_mut(width * 3)) {
        match colour {
            ColorType::Grayscale if bits < 8 => {
                let scale = 255 / ((1_u16 << bits) - 1) as u8;
                each(out, small_values(row, bits).map(|value| [value * scale; 3]));
            }
            ColorType::Indexed => each(
                out,
                small_values(row, bits).map(|value| {
                    let at = usize::from(value) * 3;
                    palette.get(at..at + 3).map_or([0; 3], |entry| [entry[0], entry[1], entry[2]])
                }),
            ),
            ColorType::Grayscale if bits == 16 => {
                // Pillow holds these as numbers and cuts them off at 255 on the way to RGB.
                each(out, row.chunks_exact(2).map(|pair| [if pair[0] > 0 { 255 } else { pair[1] }; 3]));
            }
            ColorType::Grayscale | ColorType::GrayscaleAlpha => {
                let step = colour.samples() * bits / 8;
                each(out, row.chunks_exact(step).map(|pixel| [pixel[0]; 3]));
            }
            ColorType::Rgb | ColorType::Rgba => {
                // The high byte of each value comes first.
                let (step, value) = (colour.samples() * bits / 8, bits / 8);
                each(out, row.chunks_exact(step).map(|pixel| [pixel[0], pixel[value], pixel[2 * value]]));
            }
        }
    }
}

fn each(out: &mut [u8], pixels: impl Iterator<Item = [u8; 3]>) {
    for (out, pixel) in out.chunks_exact_mut(3).zip(pixels) {
        out.copy_from_slice(&pixel);
    }
}

/// Values of 1, 2, 4 or 8 bits, the highest bits of a byte first.
fn small_values(row: &[u8], bits: usize) -> impl Iterator<Item = u8> {
    let mask = ((1_u16 << bits) - 1) as u8;
    row.iter().flat_map(move |byte| (0..8 / bits).map(move |i| (byte >> (8 - bits * (i + 1))) & mask))
}
