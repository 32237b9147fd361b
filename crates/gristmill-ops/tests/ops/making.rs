//! Pictures and recipes for the tests.

use gristmill_core::SampleId;
use gristmill_ops::{
    Draw, Dtype, Encoding, Layout, Limits, Op, OpError, Pipeline, RawImage, Recipe, Scratch,
};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

pub(crate) const LIMITS: Limits = Limits { pixels_max: 1 << 26, scratch_bytes_max: 1 << 28 };

/// Every way of subsampling that JPEG files use.
pub(crate) const SUBSAMPLINGS: [Subsamp; 7] = [
    Subsamp::None,
    Subsamp::Sub2x1,
    Subsamp::Sub2x2,
    Subsamp::Gray,
    Subsamp::Sub1x2,
    Subsamp::Sub4x1,
    Subsamp::Sub1x4,
];

/// RGB pixels with edges, gradients and grain.
pub(crate) fn texture(width: usize, height: usize, key: u64) -> Vec<u8> {
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            let grain = gristmill_core::rng::mix(key ^ (y * 65_536 + x) as u64);
            let edge = if (x / 5 + y / 7) % 2 == 0 { 90 } else { 0 };
            let value = |shift: u32, slope: usize| {
                (edge + slope * (x + 2 * y) % 140 + (grain >> shift) as usize % 25) as u8
            };
            pixels.extend([value(0, 3), value(8, 5), value(16, 2)]);
        }
    }
    pixels
}

/// A JPEG of [`texture`].
pub(crate) fn jpeg(
    width: usize,
    height: usize,
    subsampling: Subsamp,
    progressive: bool,
    key: u64,
) -> Vec<u8> {
    let pixels = texture(width, height, key);
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(80).unwrap();
    compressor.set_subsamp(subsampling).unwrap();
    compressor.set_progressive(progressive).unwrap();
    let image = Image { pixels: &pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
    compressor.compress_to_vec(image).unwrap()
}

/// All pixels of a JPEG, by the safe binding.
pub(crate) fn whole(jpeg: &[u8]) -> (Vec<u8>, usize, usize) {
    let image = turbojpeg::decompress(jpeg, PixelFormat::RGB).unwrap();
    (image.pixels, image.width, image.height)
}

/// A PNG of RGB pixels.
pub(crate) fn png(pixels: &[u8], width: usize, height: usize) -> Vec<u8> {
    let mut data = Vec::new();
    let mut encoder = png::Encoder::new(&mut data, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
    data
}

/// Raw pixels of one or three interleaved channels.
pub(crate) fn raw(width: usize, height: usize, channels: u32) -> Encoding {
    Encoding::Raw(RawImage { width: width as u32, height: height as u32, channels, planar: false })
}

/// Decode, these ops, and pixels out as they are, interleaved.
pub(crate) fn recipe(ops: impl IntoIterator<Item = Op>) -> Recipe {
    let last = Op::ToTensor { dtype: Dtype::U8, layout: Layout::Nhwc };
    Recipe { ops: [Op::Decode].into_iter().chain(ops).chain([last]).collect() }
}

pub(crate) fn draw(sample: u32) -> Draw {
    Draw { seed: 7, epoch: 3, sample: SampleId(sample) }
}

/// Runs a pipeline on one sample with memory of its own.
pub(crate) fn run(pipeline: &Pipeline, draw: Draw, bytes: &[u8]) -> Result<Vec<u8>, OpError> {
    let mut out = vec![0_f32; pipeline.output().bytes().div_ceil(4)];
    let out = &mut bytemuck::cast_slice_mut::<f32, u8>(&mut out)[..pipeline.output().bytes()];
    pipeline.run(&mut Scratch::new(), draw, bytes, out)?;
    Ok(out.to_vec())
}

/// Compiles and runs.
pub(crate) fn result(
    ops: impl IntoIterator<Item = Op>,
    encoding: Encoding,
    sample: u32,
    bytes: &[u8],
) -> Vec<u8> {
    run(&Pipeline::new(&recipe(ops), encoding, LIMITS).unwrap(), draw(sample), bytes).unwrap()
}

/// The part of interleaved pixels from (x, y).
pub(crate) fn cut(
    pixels: &[u8],
    stride: usize,
    channels: usize,
    [x, y, width, height]: [usize; 4],
) -> Vec<u8> {
    let rows = pixels.chunks_exact(stride * channels).skip(y).take(height);
    rows.flat_map(|row| &row[x * channels..(x + width) * channels]).copied().collect()
}
