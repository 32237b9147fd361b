//! A sample brought part of the way in one place, and finished in another.
//!
//! [`Pipeline::advance`] and [`Pipeline::run_from`] are the two halves of [`Pipeline::run`]. What lies between them
//! is one of the forms of [`Stage`]; what comes out is the same, byte for byte. The first half never fails: a sample
//! that cannot be brought to a stage stays raw, and whoever finishes it says what is wrong with it. The second half
//! trusts nothing in the bytes that it is given.
//!
//! The forms, all numbers little-endian: a cut is width, height, x and y (u16 each) of the picture and of the part,
//! then a JPEG of the part; decoded is width and height (u32 each), then pixels; cropped is the bare pixels, whose
//! size follows from the recipe; packed and lossy are those pixels in `codec`'s own form and as JPEG; finished is
//! the output as it is.

use std::time::Instant;

use super::frame::Frame;
use super::{Advanced, Draw, Pipeline, Scratch, Spent, Stage};
use crate::codec::{self, Format, PartOf};
use crate::{Encoding, OpError, RawImage, Rect};

/// Width and height before decoded pixels.
pub(super) const DECODED_HEADER_BYTES: usize = 8;

/// What there is of a sample.
#[derive(Clone, Copy)]
struct Given<'a> {
    /// Its raw bytes.
    bytes: &'a [u8],
    /// Its decoded form, if somebody kept it.
    decoded: Option<&'a [u8]>,
}

/// A form that does not fit the recipe or contradicts itself.
fn wrong(stage: Stage, reason: impl Into<String>) -> OpError {
    OpError::WrongForm { stage, reason: reason.into() }
}

impl Pipeline {
    /// Runs the sample as far as `stage` and writes that form into `out`, which is cleared first.
    ///
    /// The answer says which stage `out` holds. It is [`Stage::Raw`], and `out` empty, when the sample cannot be
    /// brought to the stage, and when a cut or packed form would not be smaller than `bytes`.
    pub fn advance(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        bytes: &[u8],
        stage: Stage,
        out: &mut Vec<u8>,
    ) -> Advanced {
        self.advance_with(scratch, draw, bytes, None, stage, out)
    }

    /// The same for a sample whose [`Stage::Decoded`] form is at hand, which then need not be made again.
    pub fn advance_with(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        bytes: &[u8],
        decoded: Option<&[u8]>,
        stage: Stage,
        out: &mut Vec<u8>,
    ) -> Advanced {
        let begin_ns = thread_cpu_ns();
        out.clear();
        let from = Given { bytes, decoded };
        let reached = match stage {
            Stage::Raw => Ok(false),
            Stage::Cut => Ok(self.cut(draw, bytes, out)),
            Stage::Decoded => self.decoded(scratch, draw, bytes, out),
            Stage::Cropped => self.cropped(scratch, draw, from, out).map(|()| true),
            Stage::Packed => self.packed(scratch, draw, from, out),
            Stage::Lossy => self.lossy(scratch, draw, from, out),
            Stage::Finished => self.finished(scratch, draw, from, out).map(|()| true),
        };
        let stage = if reached == Ok(true) { stage } else { Stage::Raw };
        if stage == Stage::Raw {
            out.clear();
        }
        scratch.shrink();
        Advanced { stage, cpu_ns: thread_cpu_ns().saturating_sub(begin_ns) }
    }

    /// Finishes what [`Pipeline::advance`] began and writes the result into `out`, as [`Pipeline::run`] would have.
    pub fn run_from(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        stage: Stage,
        bytes: &[u8],
        out: &mut [u8],
    ) -> Result<Spent, OpError> {
        self.check_place(out)?;
        let begin = Instant::now();
        let (frame, input) = match stage {
            Stage::Raw => return self.run(scratch, draw, bytes, out),
            Stage::Finished => {
                self.check_length(stage, bytes, out.len())?;
                out.copy_from_slice(bytes);
                return Ok(Spent { decode_ns: 0, ops_ns: begin.elapsed().as_nanos() as u64 });
            }
            Stage::Cut => (self.open_cut(scratch, draw, bytes)?, bytes),
            Stage::Decoded => self.open_decoded(bytes)?,
            Stage::Cropped => {
                self.check_length(stage, bytes, self.pixels.output().bytes())?;
                (Frame::input(self.cropped_shape()), bytes)
            }
            Stage::Packed => (self.open_packed(scratch, bytes)?, bytes),
            Stage::Lossy => (self.open_lossy(scratch, bytes)?, bytes),
        };
        let decoded = Instant::now();
        match stage {
            Stage::Cut | Stage::Decoded => self.finish(frame, scratch, draw, input, out)?,
            _ => {
                self.writer.write(&frame, frame.pixels(scratch, input), out)?;
                scratch.shrink();
            }
        }
        Ok(Spent {
            decode_ns: (decoded - begin).as_nanos() as u64,
            ops_ns: decoded.elapsed().as_nanos() as u64,
        })
    }

    /// The shape of the pixels before they become numbers.
    fn cropped_shape(&self) -> RawImage {
        let output = self.output();
        RawImage { width: output.width, height: output.height, channels: output.channels, planar: false }
    }

    fn check_length(&self, stage: Stage, bytes: &[u8], expected: usize) -> Result<(), OpError> {
        if bytes.len() == expected {
            return Ok(());
        }
        let output = self.output();
        Err(wrong(
            stage,
            format!(
                "it has {} bytes where {} x {} pixels need {expected}",
                bytes.len(),
                output.width,
                output.height
            ),
        ))
    }

    fn decoded(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let (frame, [height, width]) = match self.encoding {
            Encoding::Raw(raw) => (Pipeline::decode_raw(scratch, bytes, raw)?, [raw.height, raw.width]),
            Encoding::Sniffed => match Format::of(bytes)? {
                Format::Jpeg => {
                    let jpeg = &mut scratch.jpeg;
                    let Some(size) = jpeg.decode_sound(bytes, self.limits, &mut scratch.front)? else {
                        return Ok(false);
                    };
                    (Frame::decoded(Rect::whole(size[1], size[0]), size), size)
                }
                Format::Png => {
                    let size = codec::decode_png(bytes, self.limits, &mut scratch.back, &mut scratch.front)?;
                    (Frame::decoded(Rect::whole(size[1], size[0]), size), size)
                }
            },
        };
        let pixels = frame.pixels(scratch, bytes);
        let length = width as usize * height as usize * frame.channels as usize;
        out.reserve_exact(DECODED_HEADER_BYTES + length);
        out.extend_from_slice(&width.to_le_bytes());
        out.extend_from_slice(&height.to_le_bytes());
        out.extend_from_slice(&pixels[..length]);
        // Whoever finishes it needs no room for these pixels. A sample that one place could not run stays raw.
        let mut frame = frame;
        for step in &self.steps {
            step.apply(&mut frame, scratch, self.limits, draw, bytes)?;
        }
        Ok(true)
    }

    fn open_decoded<'a>(&self, bytes: &'a [u8]) -> Result<(Frame, &'a [u8]), OpError> {
        let stage = Stage::Decoded;
        let Some((&header, pixels)) = bytes.split_first_chunk::<DECODED_HEADER_BYTES>() else {
            return Err(wrong(stage, "it ends within its header"));
        };
        let [width, height] =
            [0, 4].map(|at| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]));
        let channels = match self.encoding {
            Encoding::Sniffed => 3,
            Encoding::Raw(raw) if [raw.width, raw.height] == [width, height] => raw.channels,
            Encoding::Raw(_) => return Err(wrong(stage, "its size is not that of the data set")),
        };
        codec::check_pixels("decoded picture", width, height, self.limits)?;
        let shape = RawImage { width, height, channels, planar: false };
        if width == 0 || height == 0 || pixels.len() as u64 != shape.bytes() {
            let found = pixels.len();
            return Err(wrong(stage, format!("{width} x {height} pixels in {found} bytes")));
        }
        Ok((Frame::input(shape), pixels))
    }

    fn cut(&self, draw: Draw, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let jpeg = self.encoding == Encoding::Sniffed && Format::of(bytes) == Ok(Format::Jpeg);
        let wanted = |width, height| self.region(draw, width, height);
        jpeg && codec::cut_jpeg(bytes, self.limits, out, wanted) == Ok(true)
    }

    fn open_cut(&self, scratch: &mut Scratch, draw: Draw, bytes: &[u8]) -> Result<Frame, OpError> {
        let wrong = |reason: &str| wrong(Stage::Cut, reason);
        if self.encoding != Encoding::Sniffed {
            return Err(wrong("the samples of this data set are not JPEGs"));
        }
        let (part, jpeg) = PartOf::read(bytes).ok_or_else(|| wrong("its header makes no sense"))?;
        let [height, width] = part.size;
        codec::check_pixels("JPEG", width, height, self.limits)?;
        let wanted = self.region(draw, width, height)?;
        if Format::of(jpeg) != Ok(Format::Jpeg) {
            return Err(wrong("there is no JPEG in it"));
        }
        let mut region = None;
        scratch.jpeg.decode(jpeg, self.limits, &mut scratch.front, |width, height| {
            region = part.region(width, height).filter(|region| region.contains(wanted));
            match region {
                Some(_) => Ok(Rect::whole(width, height)),
                None => Err(wrong("it is not the part that this draw looks at")),
            }
        })?;
        let region = region.ok_or_else(|| wrong("there is no picture in it"))?;
        Ok(Frame::decoded(region, part.size))
    }

    fn cropped(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        from: Given<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let (mut frame, bytes) = match from.decoded {
            Some(decoded) => self.open_decoded(decoded)?,
            None => (self.decode(scratch, draw, from.bytes)?, from.bytes),
        };
        for step in &self.steps {
            step.apply(&mut frame, scratch, self.limits, draw, bytes)?;
        }
        let length = self.pixels.output().bytes();
        self.limits.check_scratch(length as u64)?;
        out.resize(length, 0);
        self.pixels.write(&frame, frame.pixels(scratch, bytes), out)
    }

    /// Makes the crop beside `out` and hands it on.
    fn with_crop<T>(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        from: Given<'_>,
        then: impl FnOnce(&mut Scratch, &[u8]) -> T,
    ) -> Result<T, OpError> {
        let mut pixels = std::mem::take(&mut scratch.crop);
        let outcome = self.cropped(scratch, draw, from, &mut pixels).map(|()| then(scratch, &pixels));
        scratch.crop = pixels;
        outcome
    }

    fn packed(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        from: Given<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let RawImage { width, channels, .. } = self.cropped_shape();
        self.with_crop(scratch, draw, from, |_, pixels| {
            codec::pack(pixels, width as usize, channels as usize, out);
            out.len() < from.bytes.len()
        })
    }

    fn open_packed(&self, scratch: &mut Scratch, bytes: &[u8]) -> Result<Frame, OpError> {
        let shape = self.cropped_shape();
        scratch.front.resize(self.pixels.output().bytes(), 0);
        let (width, channels) = (shape.width as usize, shape.channels as usize);
        if codec::unpack(bytes, width, channels, &mut scratch.front) {
            Ok(Frame::in_front(shape))
        } else {
            Err(wrong(Stage::Packed, "its bytes end too early or too late"))
        }
    }

    fn lossy(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        from: Given<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool, OpError> {
        let shape = self.cropped_shape();
        self.with_crop(scratch, draw, from, |scratch, pixels| scratch.encoder.encode(pixels, shape, out))
    }

    fn open_lossy(&self, scratch: &mut Scratch, bytes: &[u8]) -> Result<Frame, OpError> {
        let shape = self.cropped_shape();
        let wrong = |reason: &str| wrong(Stage::Lossy, reason);
        if Format::of(bytes) != Ok(Format::Jpeg) {
            return Err(wrong("there is no JPEG in it"));
        }
        scratch.jpeg.decode(bytes, self.limits, &mut scratch.front, |width, height| {
            if [width, height] == [shape.width, shape.height] {
                Ok(Rect::whole(width, height))
            } else {
                Err(wrong(&format!("{width} x {height} pixels for {} x {}", shape.width, shape.height)))
            }
        })?;
        if shape.channels == 1 {
            // Decoded to three equal values.
            let count = shape.width as usize * shape.height as usize;
            (0..count).for_each(|i| scratch.front[i] = scratch.front[i * 3]);
        }
        Ok(Frame::in_front(shape))
    }

    fn finished(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        from: Given<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), OpError> {
        let (stage, bytes) =
            from.decoded.map_or((Stage::Raw, from.bytes), |decoded| (Stage::Decoded, decoded));
        let length = self.output().bytes();
        self.limits.check_scratch(length as u64)?;
        out.resize(length, 0);
        // Numbers need an address that fits them, which a vector of bytes need not have but nearly always has.
        if out.as_ptr().align_offset(align_of::<f32>()) == 0 {
            return self.run_from(scratch, draw, stage, bytes, out).map(|_| ());
        }
        let mut numbers = vec![0_f32; length.div_ceil(4)];
        let numbers = &mut bytemuck::cast_slice_mut::<f32, u8>(&mut numbers)[..length];
        self.run_from(scratch, draw, stage, bytes, numbers)?;
        out.copy_from_slice(numbers);
        Ok(())
    }
}

/// CPU time that this thread has taken so far.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
