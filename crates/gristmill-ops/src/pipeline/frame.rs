//! A view over pixels: where they lie, which part is seen, and whether it is seen mirrored.
//!
//! Cropping moves the view and flipping turns it around; neither touches a pixel. Ops that compute new pixels
//! (resize, grey, RGB, padding) write them to the other buffer of the scratch, and the view then covers those.

use super::resize::{Axis, Resizer};
use super::{Limits, Scratch};
use crate::{OpError, RawImage, Rect};

/// Which memory holds the pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The bytes of the sample themselves.
    Input,
    /// One buffer of the scratch.
    Front,
    /// The other.
    Back,
}

/// What the next op sees.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    place: Place,
    /// Pixels per row of the memory.
    pub(super) stride: usize,
    /// Rows of the memory that belong to this sample.
    rows: u32,
    /// Where the view starts in the memory. Negative only between a partial decode and the crop it was made for.
    x: i64,
    y: i64,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) channels: u32,
    pub(super) flipped: bool,
}

impl Frame {
    /// The sample's own bytes as interleaved pixels.
    pub(super) fn input(raw: RawImage) -> Frame {
        Frame {
            place: Place::Input,
            stride: raw.width as usize,
            rows: raw.height,
            x: 0,
            y: 0,
            width: raw.width,
            height: raw.height,
            channels: raw.channels,
            flipped: false,
        }
    }

    /// Interleaved pixels in the front buffer.
    pub(super) fn in_front(raw: RawImage) -> Frame {
        Frame { place: Place::Front, ..Frame::input(raw) }
    }

    /// Three planes, made into pixels.
    pub(super) fn interleaved(scratch: &mut Scratch, bytes: &[u8], raw: RawImage) -> Frame {
        let (place, planes, pixels, _) = scratch.other(Place::Input, bytes, bytes.len());
        let (red, rest) = planes.split_at(planes.len() / 3);
        let (green, blue) = rest.split_at(red.len());
        for (((pixel, r), g), b) in pixels.chunks_exact_mut(3).zip(red).zip(green).zip(blue) {
            pixel.copy_from_slice(&[*r, *g, *b]);
        }
        Frame { place, ..Frame::input(raw) }
    }

    /// The picture of `size` rows and columns, of which `region` lies in the front buffer as RGB.
    pub(super) fn decoded(region: Rect, [height, width]: [u32; 2]) -> Frame {
        Frame {
            place: Place::Front,
            stride: region.width as usize,
            rows: region.height,
            x: -i64::from(region.x),
            y: -i64::from(region.y),
            width,
            height,
            channels: 3,
            flipped: false,
        }
    }

    pub(super) fn size(&self) -> [u32; 2] {
        [self.height, self.width]
    }

    /// The memory in which the view lies.
    pub(super) fn pixels<'a>(&self, scratch: &'a Scratch, input: &'a [u8]) -> &'a [u8] {
        match self.place {
            Place::Input => input,
            Place::Front => &scratch.front,
            Place::Back => &scratch.back,
        }
    }

    /// The bytes of one row of the view, as they lie in memory (a flip is still to be applied).
    #[inline]
    pub(super) fn row<'a>(&self, pixels: &'a [u8], row: u32) -> &'a [u8] {
        let start =
            ((self.y + i64::from(row)) as usize * self.stride + self.x as usize) * self.channels as usize;
        &pixels[start..start + self.width as usize * self.channels as usize]
    }

    /// All bytes of the view, when its rows follow each other without a gap.
    #[inline]
    pub(super) fn unbroken<'a>(&self, pixels: &'a [u8]) -> Option<&'a [u8]> {
        if self.stride != self.width as usize || self.x != 0 {
            return None;
        }
        let row = self.stride * self.channels as usize;
        pixels.get(self.y as usize * row..(self.y as usize + self.height as usize) * row)
    }

    /// Looks at a part only. `rect` is as seen, flip included.
    pub(super) fn crop(&mut self, rect: Rect) {
        let rect = self.in_memory(rect);
        self.x += i64::from(rect.x);
        self.y += i64::from(rect.y);
        (self.width, self.height) = (rect.width, rect.height);
    }

    /// Where the part that is seen as `rect` lies relative to the view's start in memory.
    fn in_memory(&self, rect: Rect) -> Rect {
        if self.flipped { rect.mirrored(self.width) } else { rect }
    }

    /// Looks at `size` rows and columns from (`x`, `y`) as seen, with black where that is outside the picture.
    pub(super) fn crop_padded(
        &mut self,
        scratch: &mut Scratch,
        limits: Limits,
        input: &[u8],
        [y, x]: [i64; 2],
        [height, width]: [u32; 2],
    ) -> Result<(), OpError> {
        let (right, bottom) = (x + i64::from(width), y + i64::from(height));
        if x >= 0 && y >= 0 && right <= i64::from(self.width) && bottom <= i64::from(self.height) {
            self.crop(Rect { x: x as u32, y: y as u32, width, height });
            return Ok(());
        }
        // From here on in memory's direction; the flip stays pending.
        let x = if self.flipped { i64::from(self.width) - right } else { x };
        let channels = self.channels as usize;
        let bytes = width as usize * height as usize * channels;
        limits.check_scratch(self.occupied() + bytes as u64)?;
        let (place, from, to, _) = scratch.other(self.place, input, bytes);
        to.fill(0);
        let first = x.max(0);
        let columns = ((x + i64::from(width)).min(i64::from(self.width)) - first).max(0) as usize * channels;
        for row in 0..height {
            let source = y + i64::from(row);
            if columns > 0 && (0..i64::from(self.height)).contains(&source) {
                let start = (row as usize * width as usize + (first - x) as usize) * channels;
                let from = &self.row(from, source as u32)[first as usize * channels..];
                to[start..start + columns].copy_from_slice(&from[..columns]);
            }
        }
        self.cover(place, [height, width], self.channels);
        Ok(())
    }

    /// Resizes `part` (as seen) as if it were a whole picture; `down` and `across` say to what.
    pub(super) fn resize(
        &mut self,
        scratch: &mut Scratch,
        limits: Limits,
        input: &[u8],
        part: Rect,
        [down, across]: [Axis; 2],
    ) -> Result<(), OpError> {
        let part = self.in_memory(part);
        let across = if self.flipped { across.mirrored() } else { across };
        let channels = self.channels as usize;
        let bytes = u64::from(down.count) * u64::from(across.count) * u64::from(self.channels);
        limits.check_scratch(self.occupied() + bytes + Resizer::bytes_max(down, across, self.channels))?;
        let (place, from, to, resizer) = scratch.other(self.place, input, bytes as usize);
        let (rows, columns) = (down.reach(), across.reach());
        let x = (self.x + i64::from(part.x) + i64::from(columns.start)) as usize;
        let y = (self.y + i64::from(part.y) + i64::from(rows.start)) as usize;
        let row = |row: usize| &from[((y + row) * self.stride + x) * channels..][..columns.len() * channels];
        resizer.resize(down, across, channels, row, to);
        self.cover(place, [down.count, across.count], self.channels);
        Ok(())
    }

    /// To one channel, with the weights and rounding of Pillow's mode L.
    pub(super) fn grey(
        &mut self,
        scratch: &mut Scratch,
        limits: Limits,
        input: &[u8],
    ) -> Result<(), OpError> {
        if self.channels == 1 {
            return Ok(());
        }
        self.recolour(scratch, limits, input, 1, |from, to| {
            for (pixel, grey) in from.chunks_exact(3).zip(to) {
                let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
                *grey = ((r * 19_595 + g * 38_470 + b * 7_471 + 0x8000) >> 16) as u8;
            }
        })
    }

    /// To three equal channels.
    pub(super) fn rgb(&mut self, scratch: &mut Scratch, limits: Limits, input: &[u8]) -> Result<(), OpError> {
        if self.channels == 3 {
            return Ok(());
        }
        self.recolour(scratch, limits, input, 3, |from, to| {
            for (grey, pixel) in from.iter().zip(to.chunks_exact_mut(3)) {
                pixel.fill(*grey);
            }
        })
    }

    fn recolour(
        &mut self,
        scratch: &mut Scratch,
        limits: Limits,
        input: &[u8],
        channels: u32,
        recolour: impl Fn(&[u8], &mut [u8]),
    ) -> Result<(), OpError> {
        // The view may be of a picture that was decoded in part: then only that part has pixels to recolour.
        let (from_x, from_y) = ((-self.x).max(0), (-self.y).max(0));
        let whole = Frame {
            x: self.x.max(0),
            y: self.y.max(0),
            width: (i64::from(self.width) - from_x).min(self.stride as i64 - self.x.max(0)) as u32,
            height: (i64::from(self.height) - from_y).min(i64::from(self.rows) - self.y.max(0)) as u32,
            ..self.clone()
        };
        let bytes = whole.width as usize * whole.height as usize * channels as usize;
        limits.check_scratch(self.occupied() + bytes as u64)?;
        let (place, from, to, _) = scratch.other(self.place, input, bytes);
        let row_bytes = whole.width as usize * channels as usize;
        for (row, to) in to.chunks_exact_mut(row_bytes).enumerate() {
            recolour(whole.row(from, row as u32), to);
        }
        let (width, height) = (self.width, self.height);
        self.cover(place, [whole.height, whole.width], channels);
        (self.x, self.y, self.width, self.height) = (-from_x, -from_y, width, height);
        Ok(())
    }

    /// Bytes that the pixels of the view occupy in the scratch.
    fn occupied(&self) -> u64 {
        if self.place == Place::Input {
            return 0;
        }
        self.stride as u64 * u64::from(self.rows) * u64::from(self.channels)
    }

    /// The view now covers all of new pixels; a pending flip stays pending.
    fn cover(&mut self, place: Place, [height, width]: [u32; 2], channels: u32) {
        let flipped = self.flipped;
        *self = Frame {
            place,
            stride: width as usize,
            rows: height,
            x: 0,
            y: 0,
            width,
            height,
            channels,
            flipped,
        };
    }
}
