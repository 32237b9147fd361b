//! The last step: pixels to numbers, written once into the batch.
//!
//! Conversion, normalisation, a pending flip and the change of layout are one pass. `(v / 255 - mean) / std` is one
//! multiplication and one addition of single precision, so every machine gets the same bits. Whole samples of one
//! channel are computed (the compiler does many at a time); where values are picked out of pixels, a table of the
//! 256 results of the same formula is faster.

use super::frame::Frame;
use super::{Dtype, Layout, Output};
use crate::OpError;

/// Writes frames of one shape.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    output: Output,
    /// One per channel; empty for u8.
    scales: Vec<Scale>,
}

/// From a pixel's value to a number.
#[derive(Debug, Clone)]
struct Scale {
    factor: f32,
    offset: f32,
    table: [f32; 256],
}

impl Scale {
    fn new(mean: f64, std: f64) -> Scale {
        let (factor, offset) = ((1.0 / (255.0 * std)) as f32, (-mean / std) as f32);
        let table = std::array::from_fn(|value| number(value as u8, factor, offset));
        Scale { factor, offset, table }
    }
}

#[inline]
fn number(value: u8, factor: f32, offset: f32) -> f32 {
    f32::from(value) * factor + offset
}

impl Writer {
    /// `normalise` holds mean and standard deviation of each channel.
    pub(super) fn new(output: Output, normalise: Option<&[(f64, f64)]>) -> Writer {
        let scale = |channel: usize| {
            let (mean, std) = normalise.and_then(|all| all.get(channel)).unwrap_or(&(0.0, 1.0));
            Scale::new(*mean, *std)
        };
        let scales = match output.dtype {
            Dtype::U8 => Vec::new(),
            Dtype::F32 => (0..output.channels as usize).map(scale).collect(),
        };
        Writer { output, scales }
    }

    pub(super) fn output(&self) -> Output {
        self.output
    }

    pub(super) fn write(&self, frame: &Frame, pixels: &[u8], out: &mut [u8]) -> Result<(), OpError> {
        debug_assert_eq!(frame.size(), [self.output.height, self.output.width], "compiled for this size");
        if self.output.dtype == Dtype::U8 {
            if self.output.channels == 1 {
                write_grey(frame, pixels, out, |value| value);
            } else {
                write_colour(self.output, frame, pixels, out, |pixel| *pixel);
            }
            return Ok(());
        }
        let out = bytemuck::try_cast_slice_mut::<u8, f32>(out).map_err(|_| OpError::WrongOutput {
            reason: "f32 numbers need an address that is a multiple of 4".to_owned(),
        })?;
        match &*self.scales {
            [red, green, blue] => write_colour(self.output, frame, pixels, out, |[r, g, b]| {
                [red.table[usize::from(*r)], green.table[usize::from(*g)], blue.table[usize::from(*b)]]
            }),
            scales => {
                for Scale { factor, offset, .. } in scales {
                    write_grey(frame, pixels, out, |value| number(value, *factor, *offset));
                }
            }
        }
        Ok(())
    }
}

fn write_grey<T>(frame: &Frame, pixels: &[u8], out: &mut [T], number: impl Fn(u8) -> T) {
    if let Some(all) = frame.unbroken(pixels).filter(|_| !frame.flipped) {
        return convert(all.iter(), out, number);
    }
    for (row, out) in out.chunks_exact_mut(frame.width as usize).enumerate() {
        let row = frame.row(pixels, row as u32);
        if frame.flipped {
            convert(row.iter().rev(), out, &number);
        } else {
            convert(row.iter(), out, &number);
        }
    }
}

#[inline]
fn convert<'a, T>(values: impl Iterator<Item = &'a u8>, out: &mut [T], number: impl Fn(u8) -> T) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = number(*value);
    }
}

fn write_colour<T: Copy>(
    output: Output,
    frame: &Frame,
    pixels: &[u8],
    out: &mut [T],
    numbers: impl Fn(&[u8; 3]) -> [T; 3],
) {
    let width = output.width as usize;
    match output.layout {
        Layout::Nchw => {
            let (red, rest) = out.split_at_mut(width * output.height as usize);
            let (green, blue) = rest.split_at_mut(red.len());
            let planes = red
                .chunks_exact_mut(width)
                .zip(green.chunks_exact_mut(width))
                .zip(blue.chunks_exact_mut(width));
            for (row, ((red, green), blue)) in planes.enumerate() {
                let (row, _) = frame.row(pixels, row as u32).as_chunks::<3>();
                let to = red.iter_mut().zip(green).zip(blue);
                let write = |(pixel, ((r, g), b)): (&[u8; 3], ((&mut T, &mut T), &mut T))| {
                    [*r, *g, *b] = numbers(pixel);
                };
                if frame.flipped {
                    row.iter().rev().zip(to).for_each(write);
                } else {
                    row.iter().zip(to).for_each(write);
                }
            }
        }
        Layout::Nhwc => {
            for (row, out) in out.chunks_exact_mut(width * 3).enumerate() {
                let (row, _) = frame.row(pixels, row as u32).as_chunks::<3>();
                let (out, _) = out.as_chunks_mut::<3>();
                if frame.flipped {
                    row.iter().rev().zip(out).for_each(|(pixel, out)| *out = numbers(pixel));
                } else {
                    row.iter().zip(out).for_each(|(pixel, out)| *out = numbers(pixel));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_multiplication_is_as_good_as_the_formula() {
        for (mean, std) in [(0.0, 1.0), (0.485, 0.229), (0.1307, 0.3081), (0.4465, 0.2616)] {
            let scale = Scale::new(mean, std);
            for value in 0..=255_u8 {
                let exact = (f64::from(value) / 255.0 - mean) / std;
                let ours = f64::from(scale.table[usize::from(value)]);
                // Half a unit in the last place of the two terms, which are below 1 / std.
                assert!((ours - exact).abs() <= 1.8e-7 / std, "{value}: {ours} for {exact}");
            }
        }
        assert_eq!(Scale::new(0.0, 1.0).table[255].to_bits(), 1.0_f32.to_bits());
    }
}
