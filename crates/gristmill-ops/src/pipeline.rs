//! A recipe made ready for one kind of data, and run on one sample.
//!
//! Compiling checks everything that does not depend on a sample: the order of the ops, their values, the output's
//! shape. Running then draws what is random, decodes as little as the first crop needs, moves a view over pixels
//! where an op only selects or mirrors, and makes new pixels only where an op computes some. The last step writes
//! numbers once, into their place in the batch.
//!
//! Deliberately not here: threads and queues; whoever owns them gives each thread its own [`Scratch`].

mod advance;
mod apply;
mod compile;
mod frame;
mod resize;
mod scratch;
mod sizes;
mod stage;
mod tensor;

use std::time::Instant;

use gristmill_core::SampleId;
use serde::{Deserialize, Serialize};

pub use scratch::Scratch;
pub use stage::{Advanced, BUILD, Facts, Stage};

use crate::codec::{self, Format};
use crate::{Encoding, Op, OpError, RawImage, Recipe, RecipeError, Rect};
use compile::Step;
use frame::Frame;
use tensor::Writer;

/// What a sample may cost; checked before anything is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pixels that the header of a picture may announce.
    pub pixels_max: u64,
    /// Bytes of working memory for one sample.
    pub scratch_bytes_max: usize,
}

/// What the randomness of a sample's ops is a function of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    /// The seed of the run.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// The sample.
    pub sample: SampleId,
}

/// The type of the numbers in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dtype {
    /// Pixels as they are, 0 to 255.
    U8,
    /// Pixels divided by 255, then normalised if the recipe says so.
    #[default]
    F32,
}

/// The order of the dimensions in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Sample, channel, row, column.
    #[default]
    Nchw,
    /// Sample, row, column, channel.
    Nhwc,
}

/// The shape of one sample in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// The type of the numbers.
    pub dtype: Dtype,
    /// The order of the dimensions.
    pub layout: Layout,
    /// 1 or 3.
    pub channels: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
}

impl Output {
    /// How many bytes one sample takes in the batch.
    pub fn bytes(&self) -> usize {
        let numbers = self.shape().iter().product::<usize>();
        match self.dtype {
            Dtype::U8 => numbers,
            Dtype::F32 => numbers * 4,
        }
    }

    /// The dimensions in the order of the layout.
    pub fn shape(&self) -> [usize; 3] {
        let [channels, height, width] = [self.channels, self.height, self.width].map(|side| side as usize);
        match self.layout {
            Layout::Nchw => [channels, height, width],
            Layout::Nhwc => [height, width, channels],
        }
    }
}

/// Where the time of one sample went.
///
/// Reading the clock would be a good part of the work on a small raw sample. Of those, one in 32 is measured and
/// reported 32 times over, the others as zero, so that sums over many samples are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spent {
    /// Bytes to pixels.
    pub decode_ns: u64,
    /// All that follows.
    pub ops_ns: u64,
}

/// A recipe ready to run on samples of one encoding; shared by threads.
#[derive(Debug, Clone)]
pub struct Pipeline {
    encoding: Encoding,
    limits: Limits,
    /// As the recipe has them; the steps are what they were compiled to.
    ops: Vec<Op>,
    steps: Vec<Step>,
    writer: Writer,
    /// Writes the same frames as bare interleaved pixels.
    pixels: Writer,
}

impl Pipeline {
    /// Checks the recipe against what is known about the data.
    pub fn new(recipe: &Recipe, encoding: Encoding, limits: Limits) -> Result<Pipeline, RecipeError> {
        let (steps, writer) = compile::compile(recipe, encoding, limits)?;
        let pixels = Output { dtype: Dtype::U8, layout: Layout::Nhwc, ..writer.output() };
        let pixels = Writer::new(pixels, None);
        Ok(Pipeline { encoding, limits, ops: recipe.ops.clone(), steps, writer, pixels })
    }

    /// The shape of every sample.
    pub fn output(&self) -> Output {
        self.writer.output()
    }

    /// Whether samples are pictures that have to be decoded, and not pixels already.
    pub fn decodes(&self) -> bool {
        self.encoding == Encoding::Sniffed
    }

    /// What a sample may cost.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Runs all ops on one sample and writes the result into `out`, which must have exactly the output's length.
    pub fn run(
        &self,
        scratch: &mut Scratch,
        draw: Draw,
        bytes: &[u8],
        out: &mut [u8],
    ) -> Result<Spent, OpError> {
        self.check_place(out)?;
        let timed = match self.encoding {
            Encoding::Sniffed => 1,
            Encoding::Raw(_) => scratch.timed_raw(),
        };
        if timed == 0 {
            let frame = self.decode(scratch, draw, bytes)?;
            self.finish(frame, scratch, draw, bytes, out)?;
            return Ok(Spent::default());
        }
        let begin = Instant::now();
        let frame = self.decode(scratch, draw, bytes)?;
        let decoded = Instant::now();
        self.finish(frame, scratch, draw, bytes, out)?;
        Ok(Spent {
            decode_ns: (decoded - begin).as_nanos() as u64 * timed,
            ops_ns: decoded.elapsed().as_nanos() as u64 * timed,
        })
    }

    fn check_place(&self, out: &[u8]) -> Result<(), OpError> {
        let expected = self.output().bytes();
        if out.len() == expected {
            return Ok(());
        }
        let reason = format!("it has {} bytes where the recipe gives {expected}", out.len());
        Err(OpError::WrongOutput { reason })
    }

    /// All that follows the decoding.
    fn finish(
        &self,
        mut frame: Frame,
        scratch: &mut Scratch,
        draw: Draw,
        bytes: &[u8],
        out: &mut [u8],
    ) -> Result<(), OpError> {
        for step in &self.steps {
            step.apply(&mut frame, scratch, self.limits, draw, bytes)?;
        }
        self.writer.write(&frame, frame.pixels(scratch, bytes), out)?;
        scratch.shrink();
        Ok(())
    }

    fn decode(&self, scratch: &mut Scratch, draw: Draw, bytes: &[u8]) -> Result<Frame, OpError> {
        match self.encoding {
            Encoding::Raw(raw) => Pipeline::decode_raw(scratch, bytes, raw),
            Encoding::Sniffed => self.decode_sniffed(scratch, draw, bytes),
        }
    }

    fn decode_raw(scratch: &mut Scratch, bytes: &[u8], raw: RawImage) -> Result<Frame, OpError> {
        if bytes.len() as u64 != raw.bytes() {
            return Err(OpError::WrongLength {
                expected_bytes: raw.bytes(),
                found_bytes: bytes.len() as u64,
            });
        }
        if raw.planar && raw.channels == 3 {
            Ok(Frame::interleaved(scratch, bytes, raw))
        } else {
            Ok(Frame::input(raw))
        }
    }

    fn decode_sniffed(&self, scratch: &mut Scratch, draw: Draw, bytes: &[u8]) -> Result<Frame, OpError> {
        match Format::of(bytes)? {
            Format::Jpeg => {
                let wanted = |width, height| self.region(draw, width, height);
                let (region, size) = scratch.jpeg.decode(bytes, self.limits, &mut scratch.front, wanted)?;
                Ok(Frame::decoded(region, size))
            }
            Format::Png => {
                let [height, width] =
                    codec::decode_png(bytes, self.limits, &mut scratch.back, &mut scratch.front)?;
                Ok(Frame::decoded(Rect::whole(width, height), [height, width]))
            }
        }
    }
}
