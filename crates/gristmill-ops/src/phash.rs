//! A 64-bit perceptual hash: pictures that look alike have hashes that differ in few bits.
//!
//! Zauner's DCT variant. The picture becomes 32 x 32 grey cells (each the mean of the pixels it covers), its 2-D
//! DCT-II is taken, and of the 8 x 8 lowest frequencies each gives one bit: whether it is above their median. The
//! mean brightness (the coefficient of no frequency) is left out of the median, and its bit is always 1: so a hash is
//! never 0, which stands for no hash.
//!
//! The same bytes give the same hash on every machine: means and transform are whole-number arithmetic with a table
//! of cosines, no mathematics library. JPEGs are decoded as grey at up to an eighth of their size, which skips most of
//! the work; the decoder's results do not depend on the machine either.
//!
//! Deliberately not here: comparing hashes and what to do about it (`core::family`), and turned or mirrored pictures.

use crate::codec::{self, Format, JpegDecoder};
use crate::{Encoding, Limits, OpError, RawImage};

/// Cells per side.
const CELLS: usize = 32;
/// Half cells per side.
const HALVES: usize = 2 * CELLS;
/// Frequencies per side.
const LOW: usize = 8;
/// Scaled pictures keep at least this many pixels per side: two per cell, so that the scaling decides no bit.
const SIDE_MIN: u32 = 2 * CELLS as u32;
/// How large a buffer may stay after a sample.
const KEEP_BYTES: usize = 8 << 20;

/// cos(k * pi / 64) for k = 0..=32, in units of 1/16384.
const COSINES: [i64; 33] = [
    16_384, 16_364, 16_305, 16_207, 16_069, 15_893, 15_679, 15_426, 15_137, 14_811, 14_449, 14_053, 13_623,
    13_160, 12_665, 12_140, 11_585, 11_003, 10_394, 9_760, 9_102, 8_423, 7_723, 7_005, 6_270, 5_520, 4_756,
    3_981, 3_196, 2_404, 1_606, 804, 0,
];

/// A hash and the size of what was hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashed {
    /// The hash; never 0.
    pub bits: u64,
    /// Pixels per row.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// Hashes one picture after the other, reusing its memory; one per thread.
#[derive(Default)]
pub struct Hasher {
    jpeg: JpegDecoder,
    pixels: Vec<u8>,
    packed: Vec<u8>,
    row: Vec<u8>,
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hasher").finish_non_exhaustive()
    }
}

impl Hasher {
    /// Empty: memory is taken when a sample needs it.
    pub fn new() -> Hasher {
        Hasher::default()
    }

    /// The hash of a sample of this encoding, from its bytes as they are stored.
    pub fn hash(&mut self, encoding: Encoding, bytes: &[u8], limits: Limits) -> Result<Hashed, OpError> {
        let hashed = match encoding {
            Encoding::Raw(raw) => self.hash_raw(raw, bytes)?,
            Encoding::Sniffed => match Format::of(bytes)? {
                Format::Jpeg => {
                    let coarse = self.jpeg.decode_coarse(bytes, limits, SIDE_MIN, &mut self.pixels)?;
                    let bits = self.hash_pixels(coarse.size, coarse.divisor, coarse.channels);
                    Hashed { bits, width: coarse.size[1], height: coarse.size[0] }
                }
                Format::Png => {
                    let size = codec::decode_png(bytes, limits, &mut self.packed, &mut self.pixels)?;
                    Hashed { bits: self.hash_pixels(size, 1, 3), width: size[1], height: size[0] }
                }
            },
        };
        self.shrink();
        Ok(hashed)
    }

    fn hash_raw(&mut self, raw: RawImage, bytes: &[u8]) -> Result<Hashed, OpError> {
        if bytes.len() as u64 != raw.bytes() || bytes.is_empty() {
            return Err(OpError::WrongLength {
                expected_bytes: raw.bytes(),
                found_bytes: bytes.len() as u64,
            });
        }
        let mut halves = Halves::new([raw.height, raw.width], 1);
        let (width, area) = (raw.width as usize, raw.width as usize * raw.height as usize);
        for row in 0..raw.height as usize {
            match (raw.channels, raw.planar) {
                (1, _) => halves.add(&bytes[row * width..][..width]),
                (_, true) => {
                    let [red, green, blue] =
                        [0, 1, 2].map(|plane| &bytes[plane * area + row * width..][..width]);
                    self.row.clear();
                    self.row.extend(red.iter().zip(green).zip(blue).map(|((&r, &g), &b)| luma([r, g, b])));
                    halves.add(&self.row);
                }
                (_, false) => halves.add(grey(&bytes[row * width * 3..][..width * 3], &mut self.row)),
            }
        }
        Ok(Hashed { bits: bits_of(&halves.cells()), width: raw.width, height: raw.height })
    }

    /// The hash of the pixels in the buffer.
    fn hash_pixels(&mut self, size: [u32; 2], divisor: u32, channels: u32) -> u64 {
        let [rows, columns] = size.map(|side| side.div_ceil(divisor) as usize);
        let mut halves = Halves::new(size, divisor);
        for row in self.pixels.chunks_exact(columns * channels as usize).take(rows) {
            halves.add(if channels == 1 { row } else { grey(row, &mut self.row) });
        }
        bits_of(&halves.cells())
    }

    fn shrink(&mut self) {
        for buffer in [&mut self.pixels, &mut self.packed] {
            if buffer.capacity() > KEEP_BYTES {
                *buffer = Vec::new();
            }
        }
        self.jpeg.shrink(KEEP_BYTES);
    }
}

/// A row of RGB as grey.
fn grey<'a>(row: &[u8], out: &'a mut Vec<u8>) -> &'a [u8] {
    out.clear();
    out.extend(row.chunks_exact(3).map(|pixel| luma([pixel[0], pixel[1], pixel[2]])));
    out
}

fn luma(rgb: [u8; 3]) -> u8 {
    let [r, g, b] = rgb.map(u32::from);
    ((r * 19_595 + g * 38_470 + b * 7_471 + 0x8000) >> 16) as u8
}

/// Means of the pixels under half a cell in each direction. Lengths are counted in 64ths of a pixel, so that all
/// borders are whole.
struct Halves {
    width: usize,
    height: usize,
    /// The length of a stored pixel, which may stand for several of the picture: the last one is then cut.
    pixel: usize,
    /// The next row.
    row: usize,
    sums: Vec<[u64; HALVES]>,
}

impl Halves {
    /// For a picture of this size, of which each pixel that is added stands for a square of `divisor` pixels.
    fn new([height, width]: [u32; 2], divisor: u32) -> Halves {
        let pixel = HALVES * divisor as usize;
        let sums = vec![[0; HALVES]; HALVES];
        Halves { width: width as usize, height: height as usize, pixel, row: 0, sums }
    }

    /// Adds the next row of pixels.
    fn add(&mut self, row: &[u8]) {
        let mut across = [0_u64; HALVES];
        for (half, sum) in across.iter_mut().enumerate() {
            let (begin, end) = (half * self.width, (half + 1) * self.width);
            let (first, last) = (begin / self.pixel, (end - 1) / self.pixel);
            *sum = if first == last {
                (end - begin) as u64 * u64::from(row[first])
            } else {
                let inner: u64 = row[first + 1..last].iter().map(|&value| u64::from(value)).sum();
                let (before, after) = ((first + 1) * self.pixel - begin, end - last * self.pixel);
                inner * self.pixel as u64
                    + before as u64 * u64::from(row[first])
                    + after as u64 * u64::from(row[last])
            };
        }
        let (begin, end) = (self.row * self.pixel, ((self.row + 1) * self.pixel).min(self.height * HALVES));
        for half in begin / self.height..=(end - 1) / self.height {
            let covered = end.min((half + 1) * self.height) - begin.max(half * self.height);
            for (sum, part) in self.sums[half].iter_mut().zip(across) {
                *sum += covered as u64 * part;
            }
        }
        self.row += 1;
    }

    /// The mean of each half, in 256ths.
    fn means(&self) -> Vec<[i64; HALVES]> {
        let area = self.width as u64 * self.height as u64;
        self.sums.iter().map(|row| row.map(|sum| ((sum * 256 + area / 2) / area) as i64)).collect()
    }

    /// The picture in cells. A plain mean over a cell would let a pattern about as fine as the cells (a fence, a
    /// fabric) show up as a coarse one that changes with every resize; weighing half a cell on either side in removes
    /// it.
    fn cells(&self) -> [[i64; CELLS]; CELLS] {
        let means = self.means();
        let rows: [[i64; HALVES]; CELLS] =
            std::array::from_fn(|cell| std::array::from_fn(|half| smooth(cell, |row| means[row][half])));
        rows.map(|row| std::array::from_fn(|cell| smooth(cell, |half| row[half])))
    }
}

/// Eight times the mean of a cell and its surroundings; the border is continued.
fn smooth(cell: usize, value: impl Fn(usize) -> i64) -> i64 {
    let (first, second) = (2 * cell, 2 * cell + 1);
    value(first.saturating_sub(1))
        + 3 * value(first)
        + 3 * value(second)
        + value((second + 1).min(HALVES - 1))
}

/// The waves of the lowest frequencies over the cells.
const WAVES: [[i64; CELLS]; LOW] = {
    let mut waves = [[0; CELLS]; LOW];
    let mut i = 0;
    while i < CELLS * LOW {
        waves[i / CELLS][i % CELLS] = cosine(i / CELLS, i % CELLS);
        i += 1;
    }
    waves
};

/// The cosine of (2 * place + 1) * frequency * pi / 64, in units of 1/16384.
const fn cosine(frequency: usize, place: usize) -> i64 {
    match (2 * place + 1) * frequency % 128 {
        angle @ 0..=32 => COSINES[angle],
        angle @ 33..=64 => -COSINES[64 - angle],
        angle @ 65..=96 => -COSINES[angle - 64],
        angle => COSINES[128 - angle],
    }
}

/// The lowest frequencies of the two-dimensional transform. The sums stay below 2^60.
fn transform(cells: &[[i64; CELLS]; CELLS]) -> [[i64; LOW]; LOW] {
    let dot = |a: &[i64; CELLS], b: &[i64; CELLS]| a.iter().zip(b).map(|(a, b)| a * b).sum::<i64>();
    let across: [[i64; CELLS]; LOW] =
        std::array::from_fn(|frequency| std::array::from_fn(|row| dot(&cells[row], &WAVES[frequency])));
    std::array::from_fn(|down| std::array::from_fn(|right| dot(&across[right], &WAVES[down])))
}

/// One bit per frequency, the lowest first.
fn bits_of(cells: &[[i64; CELLS]; CELLS]) -> u64 {
    let coefficients = transform(cells);
    let flat = coefficients.as_flattened();
    let mut ranked: [i64; LOW * LOW - 1] = std::array::from_fn(|i| flat[i + 1]);
    ranked.sort_unstable();
    let median = ranked[ranked.len() / 2];
    flat.iter().enumerate().skip(1).fold(1, |bits, (i, &value)| bits | u64::from(value > median) << i)
}

#[cfg(test)]
mod tests;
