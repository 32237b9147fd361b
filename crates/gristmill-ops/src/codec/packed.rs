//! Pixels compressed without loss, for a wire that is slower than the processor.
//!
//! Each value is predicted from its neighbours and only the error is coded. Four simple predictions are blended, each
//! with the more weight the better it did nearby; a correction learnt from places like this one is added. Red and
//! blue are predicted as differences from green, which is coded first. The errors become Rice codes of a length
//! that was right so far where the errors around, and those of the other colours of the pixel, were as large.
//!
//! An adaptive range coder in place of the Rice codes saved another 5 % and took 2.5 ms longer per crop of 224 pixels.
//!
//! Every machine gets the same bytes: integers, and single-precision operations that IEEE 754 defines to the last bit.
//! The bytes are untrusted when read: any bytes give some pixels in bounded time, or an error when too few or too many
//! are there. Deliberately not here: sizes. They follow from the recipe, which both sides have.

mod bits;

use self::bits::{Coder, Reader, Writer};

/// How many predictions are blended.
const KINDS: usize = 4;
/// Classes of how large the errors around are.
const LEVELS: usize = 20;
/// Classes of how large the errors of the other colours of the pixel are.
const ACROSS: usize = 5;

/// Compresses interleaved pixels of 1 or 3 channels and appends them to `out`.
pub(crate) fn pack(pixels: &[u8], width: usize, channels: usize, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    let mut models = Models::new(width, channels);
    for row in pixels.chunks_exact(width * channels) {
        // The writer changes nothing: it returns the values that it is given.
        models.row(&mut writer, |at| row[at], |_, _| {});
    }
    writer.finish();
}

/// Fills `pixels` with what [`pack`] compressed; `false` when that is not what `bytes` are.
pub(crate) fn unpack(bytes: &[u8], width: usize, channels: usize, pixels: &mut [u8]) -> bool {
    let mut reader = Reader::new(bytes);
    let mut models = Models::new(width, channels);
    for row in pixels.chunks_exact_mut(width * channels) {
        models.row(&mut reader, |_| 0, |at, value| row[at] = value);
    }
    reader.is_used_up()
}

/// What is remembered of a value for those below and to the right of it.
#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    /// How far each prediction was off, in 16 bits each: cells are added up as whole words.
    misses: u64,
    /// The value (of red and blue: less green).
    value: i16,
    /// The magnitude of the error that was coded.
    error: u16,
}

/// What one channel remembers of the row above, and what it has learnt.
struct Model {
    /// The row above, which becomes this row from left to right. There is one cell more at each end.
    cells: Vec<Cell>,
    north_west: Cell,
    /// By class of place: the mean of the numbers that stand for errors, in 64ths.
    means: [u32; LEVELS * ACROSS],
    /// By class of place: what to add to the prediction, in 256ths.
    corrections: [i32; LEVELS * 64],
}

/// What is known about a value from other channels of its pixel.
#[derive(Clone, Copy)]
struct Other {
    /// What it is predicted as a difference from.
    base: i32,
    /// How far off the predictions of the others were.
    off: i32,
    /// The error of the last of them.
    lean: i32,
}

struct Models {
    width: usize,
    channels: Vec<Model>,
    weights: Box<Weights>,
}

/// The weight of a prediction by how far it was off in four cells together.
type Weights = [f32; 1024];

impl Models {
    fn new(width: usize, channels: usize) -> Models {
        let model = || Model {
            cells: vec![Cell::default(); width + 2],
            north_west: Cell::default(),
            means: [4 * 64; LEVELS * ACROSS],
            corrections: [0; LEVELS * 64],
        };
        let weight = |miss: usize| {
            let distance = miss as f32 + 2.0;
            1.0 / (distance * distance)
        };
        Models {
            width,
            channels: (0..channels).map(|_| model()).collect(),
            weights: Box::new(std::array::from_fn(weight)),
        }
    }

    /// Codes one row of interleaved values.
    #[inline]
    fn row(&mut self, coder: &mut impl Coder, take: impl Fn(usize) -> u8, mut give: impl FnMut(usize, u8)) {
        let weights = &self.weights;
        self.channels.iter_mut().for_each(Model::begin);
        match &mut *self.channels {
            [red, green, blue] => {
                for x in 0..self.width {
                    let at = x * 3;
                    let none = Other { base: 0, off: 0, lean: 0 };
                    let (g, off) = green.value(coder, weights, x, none, take(at + 1));
                    let other = Other { base: i32::from(g), off: off.abs(), lean: off };
                    let (r, more) = red.value(coder, weights, x, other, take(at));
                    let other = Other { off: off.abs() + more.abs(), lean: more, ..other };
                    let (b, _) = blue.value(coder, weights, x, other, take(at + 2));
                    give(at, r);
                    give(at + 1, g);
                    give(at + 2, b);
                }
            }
            channels => {
                for grey in channels {
                    for x in 0..self.width {
                        let none = Other { base: 0, off: 0, lean: 0 };
                        give(x, grey.value(coder, weights, x, none, take(x)).0);
                    }
                }
            }
        }
    }
}

/// Misses are cut off here: four of them are still below the number of weights.
const MISS_MAX: u32 = 255;

impl Model {
    /// Beyond the ends it is as at the ends of the row above.
    fn begin(&mut self) {
        let last = self.cells.len() - 1;
        self.cells[last] = self.cells[last - 1];
        self.cells[0] = self.cells[1];
        self.north_west = self.cells[1];
    }

    /// Codes one value and says how far off its prediction was.
    #[inline]
    fn value(
        &mut self,
        coder: &mut impl Coder,
        weights: &Weights,
        x: usize,
        other: Other,
        value: u8,
    ) -> (u8, i32) {
        let (north_west, cells) = (self.north_west, &mut self.cells[x..x + 3]);
        let (west, north, north_east) = (cells[0], cells[1], cells[2]);
        let [w, nw, n, ne] = [west, north_west, north, north_east].map(|cell| i32::from(cell.value));
        let guesses = [w, n, w + n - nw, w + ne - n];
        let misses = west.misses + north_west.misses + north.misses + north_east.misses;
        let of_kind = |kind: usize| weights[(misses >> (16 * kind)) as usize % weights.len()];
        let weight: [f32; KINDS] = std::array::from_fn(of_kind);
        let part: [f32; KINDS] = std::array::from_fn(|kind| weight[kind] * guesses[kind] as f32);
        let (sum, total) =
            ((part[0] + part[1]) + (part[2] + part[3]), (weight[0] + weight[1]) + (weight[2] + weight[3]));
        // In 256ths.
        let blend = (sum / total * 256.0) as i32;
        let level = level(2 * (west.error + north.error) + north_west.error + north_east.error);
        let texture = usize::from(n * 256 > blend)
            | usize::from(w * 256 > blend) << 1
            | usize::from(nw * 256 > blend) << 2
            | usize::from(ne * 256 > blend) << 3
            | usize::from(other.lean > 0) << 4
            | usize::from(other.lean < 0) << 5;
        let correction = &mut self.corrections[level * 64 + texture];
        let guess = (other.base + ((blend + *correction + 128) >> 8)).clamp(0, 255);
        let mean = &mut self.means[level * ACROSS + across(other.off)];
        let folded = folded((i32::from(value) - guess) as i8);
        // Where the mean is just below a power of two, the next longer code is better already.
        let folded = coder.code((*mean + 29).max(64).ilog2() - 6, folded);
        *mean += folded;
        *mean -= *mean >> 6;
        let error = unfolded(folded);
        let value = (guess + error) as u8;
        let exact = i32::from(value) - other.base;
        *correction += (exact * 256 - blend - *correction) >> 5;
        let distance = |kind: usize| u64::from(guesses[kind].abs_diff(exact).min(MISS_MAX)) << (16 * kind);
        let misses = (distance(0) | distance(1)) | (distance(2) | distance(3));
        cells[1] = Cell { misses, value: exact as i16, error: error.unsigned_abs() as u16 };
        self.north_west = north;
        (value, error)
    }
}

/// Errors by magnitude, the two signs in turns: 0, -1, 1, -2, ...
#[inline]
fn folded(error: i8) -> u32 {
    u32::from((error << 1 ^ error >> 7) as u8)
}

#[inline]
fn unfolded(folded: u32) -> i32 {
    (folded >> 1) as i32 ^ -((folded & 1) as i32)
}

/// The class of how large errors are: half steps of a logarithm.
#[inline]
fn level(energy: u16) -> usize {
    let energy = u32::from(energy) + 1;
    let exponent = energy.ilog2();
    let half = energy >> exponent.saturating_sub(1) & 1;
    ((exponent * 2 + half) as usize).min(LEVELS - 1)
}

/// The class of how large the errors of the other channels are.
#[inline]
fn across(off: i32) -> usize {
    (off.unsigned_abs().max(1).ilog2() as usize).min(ACROSS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn there_and_back(pixels: &[u8], width: usize, channels: usize) -> usize {
        let mut packed = vec![1, 2, 3];
        pack(pixels, width, channels, &mut packed);
        let packed = &packed[3..];
        let mut back = vec![0xAA; pixels.len()];
        assert!(unpack(packed, width, channels, &mut back), "not all bytes were used");
        assert!(back == pixels, "{width} wide, {channels} channels");
        assert!(!unpack(&packed[..packed.len() - 1], width, channels, &mut back));
        assert!(!unpack(&[packed, &[0]].concat(), width, channels, &mut back));
        packed.len()
    }

    #[test]
    fn extremes() {
        for channels in [1, 3] {
            for width in [1, 2, 3, 17] {
                for value in [0, 127, 255] {
                    there_and_back(&vec![value; width * 9 * channels], width, channels);
                }
                let alternating: Vec<u8> =
                    (0..width * 50 * channels).map(|i| if i % 2 == 0 { 0 } else { 255 }).collect();
                there_and_back(&alternating, width, channels);
            }
        }
        // What does not change costs one bit a value; noise costs a little more than it is.
        assert!(there_and_back(&vec![200; 224 * 224 * 3], 224, 3) < 20_000);
        let noise: Vec<u8> = (0..64 * 64 * 3).map(|i| gristmill_core::rng::mix(i) as u8).collect();
        assert!(there_and_back(&noise, 64, 3) < noise.len() * 6 / 5);
    }

    #[test]
    fn gradients_are_small() {
        let pixels: Vec<u8> = (0..100 * 100_usize)
            .flat_map(|i| [i % 100 + i / 200, i % 100, (i % 100).midpoint(i / 100)].map(|value| value as u8))
            .collect();
        let bytes = there_and_back(&pixels, 100, 3);
        assert!(bytes * 5 < pixels.len(), "{bytes} of {}", pixels.len());
    }

    proptest! {
        #[test]
        fn any_pixels(width in 1_usize..40, rows in 1_usize..20, grey: bool, key: u64, shift in 0_u32..8) {
            let channels = if grey { 1 } else { 3 };
            let value = |i: usize| (gristmill_core::rng::mix(key ^ i as u64) as u8 >> shift).wrapping_add(key as u8);
            let pixels: Vec<u8> = (0..width * rows * channels).map(value).collect();
            there_and_back(&pixels, width, channels);
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), width in 1_usize..20) {
            unpack(&bytes, width, 3, &mut vec![0; width * 3 * 8]);
        }
    }
}
