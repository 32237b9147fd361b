//! A view over pixels: where they lie, which part is seen, and whether it is seen mirrored.
//!
//! Cropping moves the view and flipping turns it around; neither touches a pixel. Ops that compute new pixels
//! (resize, grey, RGB, padding) write them to the other buffer of the scratch, and the view then covers those.
//!
//! Resizing goes along the rows first and along the columns after it, as Pillow does: the order decides what is
//! rounded in between. The library's weights have fewer bits than Pillow's, so where a value lies halfway between two
//! the directions may both round the other way: of 188 million values in tests/parity, 3 differed by 2 of 255.

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{InnerPixel, U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

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

/// A part of the source, in fractions of pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
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

    /// Resizes `span` of what is seen inside `window` (as seen) to `size` rows and columns. Nothing outside the
    /// window contributes.
    pub(super) fn resize(
        &mut self,
        scratch: &mut Scratch,
        limits: Limits,
        input: &[u8],
        window: Rect,
        span: Span,
        size: [u32; 2],
    ) -> Result<(), OpError> {
        let span =
            if self.flipped { Span { x: f64::from(self.width) - span.x - span.width, ..span } } else { span };
        let window = self.in_memory(window);
        let channels = self.channels as usize;
        let [height, width] = size;
        let bytes = u64::from(width) * u64::from(height) * channels as u64;
        let between = u64::from(width) * u64::from(window.height) * channels as u64;
        limits.check_scratch(self.occupied() + bytes + between)?;
        let mut narrow = std::mem::take(&mut scratch.narrow);
        let (place, from, to, resizer) = scratch.other(self.place, input, bytes as usize);
        let window_in_memory = Rect {
            x: (self.x + i64::from(window.x)) as u32,
            y: (self.y + i64::from(window.y)) as u32,
            ..window
        };
        let span = Span { x: span.x - f64::from(window.x), y: span.y - f64::from(window.y), ..span };
        let source = Source { pixels: from, stride: self.stride, window: window_in_memory };
        let outcome = if channels == 1 {
            resample::<U8>(resizer, &source, span, &mut narrow, to, size)
        } else {
            resample::<U8x3>(resizer, &source, span, &mut narrow, to, size)
        };
        scratch.narrow = narrow;
        outcome.map_err(|error| OpError::WrongOutput { reason: format!("resizing failed: {error}") })?;
        self.cover(place, size, self.channels);
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

/// A part of a picture, for the resizer.
struct Source<'a> {
    pixels: &'a [u8],
    stride: usize,
    window: Rect,
}

/// Rows first, then columns; either is skipped when it has nothing to do.
fn resample<P: PixelTrait + InnerPixel>(
    resizer: &mut Resizer,
    &Source { pixels, stride, window }: &Source<'_>,
    span: Span,
    narrow: &mut Vec<u8>,
    to: &mut [u8],
    [height, width]: [u32; 2],
) -> Result<(), Box<dyn std::error::Error>> {
    let rows = pixels.len() / (stride * P::size());
    let picture = TypedImageRef::<P>::from_buffer(stride as u32, rows as u32, pixels)?;
    let part = TypedCroppedImage::from_ref(&picture, window.x, window.y, window.width, window.height)?;
    let bytes = width as usize * window.height as usize * P::size();
    if narrow.len() < bytes {
        narrow.resize(bytes, 0);
    }
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    let along_rows = options.crop(span.x, 0.0, span.width, f64::from(window.height));
    let mut between = TypedImage::<P>::from_buffer(width, window.height, &mut narrow[..bytes])?;
    resizer.resize_typed(&part, &mut between, &along_rows)?;
    let along_columns = options.crop(0.0, span.y, f64::from(width), span.height);
    let mut target = TypedImage::<P>::from_buffer(width, height, to)?;
    resizer.resize_typed(&between, &mut target, &along_columns)?;
    Ok(())
}
