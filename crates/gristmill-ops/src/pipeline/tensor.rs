//! The last step: pixels to numbers, written once into the batch.
//!
//! Conversion, normalisation, a pending flip and the change of layout are one pass. A table of the 256 possible
//! results per channel makes every number exactly what `(v / 255 - mean) / std` gives in single precision, for the
//! price of a load.

use super::frame::Frame;
use super::{Dtype, Layout, Output};
use crate::OpError;

/// Writes frames of one shape.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    output: Output,
    /// One per channel; empty for u8.
    tables: Vec<[f32; 256]>,
}

impl Writer {
    /// `normalise` holds mean and standard deviation of each channel.
    pub(super) fn new(output: Output, normalise: Option<&[(f32, f32)]>) -> Writer {
        let table = |channel: usize| {
            let mut table = [0.0; 256];
            for (value, number) in table.iter_mut().enumerate() {
                *number = value as f32 / 255.0;
                if let Some((mean, std)) = normalise.and_then(|all| all.get(channel)) {
                    *number = (*number - mean) / std;
                }
            }
            table
        };
        let tables = match output.dtype {
            Dtype::U8 => Vec::new(),
            Dtype::F32 => (0..output.channels as usize).map(table).collect(),
        };
        Writer { output, tables }
    }

    pub(super) fn output(&self) -> Output {
        self.output
    }

    pub(super) fn write(&self, frame: &Frame, pixels: &[u8], out: &mut [u8]) -> Result<(), OpError> {
        debug_assert_eq!(frame.size(), [self.output.height, self.output.width], "compiled for this size");
        match &*self.tables {
            [] => write_numbers(self.output, frame, pixels, out, [|value| value; 3]),
            tables => {
                let out = bytemuck::try_cast_slice_mut::<u8, f32>(out).map_err(|_| OpError::WrongOutput {
                    reason: "f32 numbers need an address that is a multiple of 4".to_owned(),
                })?;
                let [first, second, third] = [0, 1, 2].map(|channel| &tables[channel.min(tables.len() - 1)]);
                let numbers = [first, second, third].map(|table| move |value: u8| table[usize::from(value)]);
                write_numbers(self.output, frame, pixels, out, numbers);
            }
        }
        Ok(())
    }
}

fn write_numbers<T: Copy>(
    output: Output,
    frame: &Frame,
    pixels: &[u8],
    out: &mut [T],
    [first, second, third]: [impl Fn(u8) -> T; 3],
) {
    let width = output.width as usize;
    if output.channels == 1 {
        if let Some(all) = frame.unbroken(pixels).filter(|_| !frame.flipped) {
            convert(all.iter(), out, &first);
        } else {
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                let row = frame.row(pixels, row as u32);
                if frame.flipped {
                    convert(row.iter().rev(), out, &first);
                } else {
                    convert(row.iter(), out, &first);
                }
            }
        }
        return;
    }
    let numbers = |pixel: &[u8; 3]| [first(pixel[0]), second(pixel[1]), third(pixel[2])];
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

#[inline]
fn convert<'a, T>(values: impl Iterator<Item = &'a u8>, out: &mut [T], number: &impl Fn(u8) -> T) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = number(*value);
    }
}
