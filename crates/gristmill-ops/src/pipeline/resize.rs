//! The antialiased bilinear resize of Pillow, rounded only once.
//!
//! Each row of the result is first the weighted sum of a few rows of the source, one row of floats that stays in the
//! cache; each of its pixels is then the weighted sum of a few of those floats. The weights are Pillow's. Pillow
//! rounds to whole numbers after each direction, so its result lies within 1 of the exact value; this one lies within
//! one half of it and a hair. So the two never differ by more than 1 of 255. (What sums of thousands of rounded
//! weights add to that is below one half as long as a direction shrinks by no more than 2000.)
//!
//! Only the wanted span of the result is computed, from the weights that the whole would have: cropping what was
//! resized and resizing only what the crop keeps give the same bytes. Products and sums are plain and in a fixed
//! order, so every machine gives the same bytes. A direction that stays as it is has one weight of 1 per pixel.
//!
//! Why no library: `fast_image_resize` keeps 8 bits between the directions and differs from Pillow by 2 now and
//! then (3 of 188 million values in tests/parity). Being strict costs little: 0.21 ms for the average picture of
//! `imagenet-train` with the baseline instructions of x86-64, where the library takes 0.20 ms with AVX2.

#[cfg(test)]
mod tests;

use std::ops::Range;

/// Added before rounding: exact halves go up, as in Pillow, although sums of floats may fall short of them.
const HAIR: f32 = 1.0 / 4096.0;

/// From here on a float has no bits for fractions, so adding it rounds; the whole number is in its lowest bits.
const WHOLE: f32 = 8_388_608.0;

/// One direction of a resize: `count` pixels from `first` of the `to` pixels that `from` pixels become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Axis {
    /// All pixels of the result.
    pub(super) fn whole(from: u32, to: u32) -> Axis {
        Axis { from, to, first: 0, count: to }
    }

    /// The same pixels, with both sides counted from the other end.
    pub(super) fn mirrored(self) -> Axis {
        Axis { first: self.to - self.first - self.count, ..self }
    }

    /// The pixels of the source that contribute.
    pub(super) fn reach(self) -> Range<u32> {
        let triangle = Triangle::new(self);
        triangle.taps(self.first).start..triangle.taps(self.first + self.count - 1).end
    }

    /// How many pixels of the source contribute to one of the result, at most.
    fn taps_max(self) -> u64 {
        (2.0 * Triangle::new(self).reach).ceil() as u64 + 1
    }
}

/// The filter of one direction: one step of the result in pixels of the source, and how far a pixel of it reaches.
#[derive(Clone, Copy)]
struct Triangle {
    from: u32,
    scale: f64,
    reach: f64,
    inverse: f64,
}

impl Triangle {
    fn new(axis: Axis) -> Triangle {
        let scale = f64::from(axis.from) / f64::from(axis.to);
        let reach = scale.max(1.0);
        Triangle { from: axis.from, scale, reach, inverse: 1.0 / reach }
    }

    /// The middle of pixel `i` of the result.
    fn centre(self, i: u32) -> f64 {
        (f64::from(i) + 0.5) * self.scale
    }

    /// The weight of source pixel `x`, before all are made to sum up to 1.
    fn weight(self, x: u32, centre: f64) -> f64 {
        (1.0 - ((f64::from(x) - centre + 0.5) * self.inverse).abs()).max(0.0)
    }

    /// The source pixels that contribute to pixel `i` of the result, without those of weight 0 on either side.
    fn taps(self, i: u32) -> Range<u32> {
        let centre = self.centre(i);
        // The cast takes what is negative to 0.
        let mut start = (centre - self.reach + 0.5) as u32;
        let mut end = ((centre + self.reach + 0.5) as u32).min(self.from);
        while start + 1 < end && self.weight(start, centre) == 0.0 {
            start += 1;
        }
        while start + 1 < end && self.weight(end - 1, centre) == 0.0 {
            end -= 1;
        }
        start..end
    }
}

/// The weights of one direction: for each pixel of the result the first source pixel, and `each` weights.
#[derive(Debug, Default)]
struct Weights {
    starts: Vec<u32>,
    values: Vec<f32>,
    each: usize,
}

impl Weights {
    /// Starts are counted from the first pixel in reach.
    fn fill(&mut self, axis: Axis) {
        let triangle = Triangle::new(axis);
        let pixels = axis.first..axis.first + axis.count;
        let origin = triangle.taps(axis.first).start;
        self.each = pixels.clone().map(|i| triangle.taps(i).len()).max().unwrap_or(1);
        self.starts.clear();
        self.values.clear();
        for i in pixels {
            let (taps, centre) = (triangle.taps(i), triangle.centre(i));
            self.starts.push(taps.start - origin);
            let weights = taps.map(|x| triangle.weight(x, centre));
            let sum: f64 = weights.clone().sum();
            self.values.extend(weights.map(|weight| (weight / sum) as f32));
            self.values.resize(self.starts.len() * self.each, 0.0);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.starts.iter().map(|start| *start as usize).zip(self.values.chunks_exact(self.each))
    }

    /// The sums of four neighbouring floats at a time: a colour and the red of the next, which that one overwrites.
    /// `TAPS` is `each` where it is known beforehand, else 0.
    fn colours<const TAPS: usize>(&self, from: &[f32], to: &mut [f32]) {
        let taps = if TAPS == 0 { self.each } else { TAPS };
        for (i, (start, weights)) in self.starts.iter().zip(self.values.chunks_exact(taps)).enumerate() {
            let from = &from[*start as usize * 3..][..=taps * 3];
            let mut sum = [HAIR; 4];
            for k in 0..taps {
                for (sum, value) in sum.iter_mut().zip(&from[k * 3..k * 3 + 4]) {
                    *sum += weights[k] * value;
                }
            }
            to[i * 3..i * 3 + 4].copy_from_slice(&sum);
        }
    }

    fn greys(&self, from: &[f32], to: &mut [f32]) {
        for ((start, weights), to) in self.iter().zip(to) {
            let taps = weights.iter().zip(&from[start..]);
            *to = taps.fold(HAIR, |sum, (weight, value)| sum + weight * value);
        }
    }
}

/// Weights and rows, kept for the next picture.
#[derive(Debug, Default)]
pub(super) struct Resizer {
    down: Weights,
    across: Weights,
    /// A row as wide as the part of the source in reach.
    wide: Vec<f32>,
    /// A row as wide as the result.
    narrow: Vec<f32>,
}

impl Resizer {
    /// The bytes that a resize takes beside the pixels, at most.
    pub(super) fn bytes_max(down: Axis, across: Axis, channels: u32) -> u64 {
        let weights = |axis: Axis| u64::from(axis.count) * (axis.taps_max() + 1);
        let rows = across.reach().len() as u64 + across.taps_max() + u64::from(across.count);
        4 * (weights(down) + weights(across) + rows * u64::from(channels) + 2)
    }

    /// Writes the spans of `down` and `across`. `row(y)` gives the pixels in reach of `across` of the row `y` below
    /// the first one in reach of `down`.
    pub(super) fn resize<'a>(
        &mut self,
        down: Axis,
        across: Axis,
        channels: usize,
        row: impl Fn(usize) -> &'a [u8],
        to: &mut [u8],
    ) {
        self.down.fill(down);
        self.across.fill(across);
        let (values, results) = (across.reach().len() * channels, across.count as usize * channels);
        // Weights that only fill up, and the fourth lane, reach over the end: there must be numbers.
        self.wide.clear();
        self.wide.resize(values + self.across.each * channels + 1, 0.0);
        self.narrow.clear();
        self.narrow.resize(results + 1, 0.0);
        let (across, wide, narrow) = (&self.across, &mut self.wide, &mut self.narrow);
        for ((start, weights), to) in self.down.iter().zip(to.chunks_exact_mut(results)) {
            blend(start, weights, &row, &mut wide[..values]);
            match (channels, across.each) {
                (1, _) => across.greys(wide, narrow),
                (_, 1) => across.colours::<1>(wide, narrow),
                (_, 2) => across.colours::<2>(wide, narrow),
                (_, 3) => across.colours::<3>(wide, narrow),
                (_, 4) => across.colours::<4>(wide, narrow),
                (_, 5) => across.colours::<5>(wide, narrow),
                _ => across.colours::<0>(wide, narrow),
            }
            for (to, value) in to.iter_mut().zip(narrow.iter()) {
                *to = (value + WHOLE).to_bits() as u8;
            }
        }
    }

    /// How many bytes are held for the next picture.
    pub(super) fn held_bytes(&self) -> usize {
        let weights = |held: &Weights| held.starts.capacity() + held.values.capacity();
        4 * (weights(&self.down) + weights(&self.across) + self.wide.capacity() + self.narrow.capacity())
    }
}

/// The weighted sum of the rows from `start`, four at a time.
fn blend<'a>(start: usize, weights: &[f32], row: impl Fn(usize) -> &'a [u8], to: &mut [f32]) {
    // Weights that only fill up have no row.
    let used = weights.iter().rposition(|weight| *weight != 0.0).map_or(1, |last| last + 1);
    for (i, weights) in weights[..used].chunks(4).enumerate() {
        let (set, start) = (i == 0, start + i * 4);
        match weights.len() {
            1 => add::<1>(set, start, weights, &row, to),
            2 => add::<2>(set, start, weights, &row, to),
            3 => add::<3>(set, start, weights, &row, to),
            _ => add::<4>(set, start, weights, &row, to),
        }
    }
}

/// Sets the sum of `ROWS` rows, or adds it to what is there.
fn add<'a, const ROWS: usize>(
    set: bool,
    start: usize,
    weights: &[f32],
    row: impl Fn(usize) -> &'a [u8],
    to: &mut [f32],
) {
    // Of a length that is known and the same for all, they are read without checks and several values at once.
    let rows: [&[u8]; ROWS] = std::array::from_fn(|k| &row(start + k)[..to.len()]);
    let weights: [f32; ROWS] = std::array::from_fn(|k| weights[k]);
    let sum = |i: usize| {
        let mut sum = weights[0] * f32::from(rows[0][i]);
        for k in 1..ROWS {
            sum += weights[k] * f32::from(rows[k][i]);
        }
        sum
    };
    if set {
        for (i, to) in to.iter_mut().enumerate() {
            *to = sum(i);
        }
    } else {
        for (i, to) in to.iter_mut().enumerate() {
            *to += sum(i);
        }
    }
}
