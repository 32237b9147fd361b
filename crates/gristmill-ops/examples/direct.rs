//! What the pipeline costs beside libraries that do the same work.
//!
//! `direct FOLDER [ROUNDS]` takes every JPEG of a folder through the three library calls of `imagenet-train` by
//! hand (decode of the crop, resize, normalise; reused buffers, the same crops), and through `Pipeline::run`, in
//! turns. It prints one JSON line: the median over the rounds of the mean thread CPU time per picture, in
//! milliseconds, and of one raw 28 x 28 sample through `mnist`, in nanoseconds.

#![expect(unsafe_code, reason = "the libraries are called as their C interface is")]

use std::ffi::c_int;
use std::hint::black_box;

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer, pixels::U8x3};
use gristmill_core::SampleId;
use gristmill_ops::{Draw, Encoding, Limits, Pipeline, RawImage, Recipe, Rect, Scratch};
use serde_json::json;
use turbojpeg::raw;

const SIDE: usize = 224;
const LIMITS: Limits = Limits { pixels_max: 1 << 26, scratch_bytes_max: 1 << 30 };

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: direct FOLDER [ROUNDS]")?;
    let rounds: usize = arguments.next().map_or(Ok(7), |rounds| rounds.parse())?;
    let files = jpegs(&folder)?;
    let pipeline = Pipeline::new(&Recipe::preset("imagenet-train")?, Encoding::Sniffed, LIMITS)?;
    let mut scratch = Scratch::new();
    let mut direct = Direct::new();
    let mut out = vec![0_f32; 3 * SIDE * SIDE];
    let mut readings: [Vec<f64>; 5] = Default::default();
    for round in 0..rounds.max(1) {
        let mut sums = [0.0; 5];
        for (i, bytes) in files.iter().enumerate() {
            let draw = Draw { seed: 1, epoch: round as u64, sample: SampleId(u32::try_from(i)?) };
            let mut by_hand = |sums: &mut [f64; 5]| direct.run(bytes, &pipeline, draw, sums);
            let through =
                |sums: &mut [f64; 5], out: &mut [f32], scratch: &mut Scratch| -> Result<(), Failure> {
                    let begin = cpu_ms();
                    let spent = pipeline.run(scratch, draw, bytes, bytemuck::cast_slice_mut(out))?;
                    sums[3] += cpu_ms() - begin;
                    sums[4] += spent.decode_ns as f64 / 1e6;
                    Ok(())
                };
            // Whoever comes second finds the file in the cache: they take turns.
            if (i + round) % 2 == 0 {
                by_hand(&mut sums)?;
                through(&mut sums, &mut out, &mut scratch)?;
            } else {
                through(&mut sums, &mut out, &mut scratch)?;
                by_hand(&mut sums)?;
            }
        }
        for (readings, sum) in readings.iter_mut().zip(sums) {
            readings.push(sum / files.len() as f64);
        }
    }
    let [decode, resize, normalise, whole, inside] = readings.each_mut().map(|all| median(all));
    let libraries = decode + resize + normalise;
    let result = json!({
        "pictures": files.len(),
        "rounds": rounds,
        "decode_ms": decode,
        "resize_ms": resize,
        "normalise_ms": normalise,
        "libraries_ms": libraries,
        "pipeline_ms": whole,
        "pipeline_decode_wall_ms": inside,
        "pipeline_over_libraries": whole / libraries,
        "raw_28x28_ns": small_ns()?,
    });
    #[expect(clippy::print_stdout, reason = "the result is what the program is for")]
    {
        println!("{result}");
    }
    Ok(())
}

fn jpegs(folder: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let (mut folders, mut paths) = (vec![std::path::PathBuf::from(folder)], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { paths.push(path) }
        }
    }
    paths.sort();
    let files: Vec<Vec<u8>> = paths
        .iter()
        .filter(|path| path.is_file())
        .map(std::fs::read)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .filter(|bytes| bytes.starts_with(&[0xFF, 0xD8]))
        .collect();
    if files.is_empty() { Err(format!("{folder} has no JPEG").into()) } else { Ok(files) }
}

/// The three libraries with the buffers that any caller would reuse.
struct Direct {
    handle: raw::tjhandle,
    pixels: Vec<u8>,
    small: Vec<u8>,
    numbers: Vec<f32>,
    tables: [[f32; 256]; 3],
    resizer: Resizer,
}

impl Direct {
    fn new() -> Direct {
        let table = |mean: f32, std: f32| std::array::from_fn(|value| (value as f32 / 255.0 - mean) / std);
        Direct {
            // SAFETY: takes a plain number.
            handle: unsafe { raw::tj3Init(raw::TJINIT_TJINIT_DECOMPRESS as c_int) },
            pixels: Vec::new(),
            small: vec![0; SIDE * SIDE * 3],
            numbers: vec![0.0; SIDE * SIDE * 3],
            tables: [table(0.485, 0.229), table(0.456, 0.224), table(0.406, 0.225)],
            resizer: Resizer::new(),
        }
    }

    fn run(
        &mut self,
        bytes: &[u8],
        pipeline: &Pipeline,
        draw: Draw,
        sums: &mut [f64; 5],
    ) -> Result<(), Failure> {
        let begin = cpu_ms();
        let (region, crop) = self.decode(bytes, pipeline, draw)?;
        let decoded = cpu_ms();
        let source = TypedImageRef::<U8x3>::from_buffer(region.width, region.height, &self.pixels)?;
        let source = TypedCroppedImage::from_ref(
            &source,
            crop.x - region.x,
            crop.y - region.y,
            crop.width,
            crop.height,
        )?;
        let mut target = TypedImage::<U8x3>::from_buffer(SIDE as u32, SIDE as u32, &mut self.small)?;
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        self.resizer.resize_typed(&source, &mut target, &options)?;
        let resized = cpu_ms();
        let (red, rest) = self.numbers.split_at_mut(SIDE * SIDE);
        let (green, blue) = rest.split_at_mut(SIDE * SIDE);
        for (i, pixel) in self.small.chunks_exact(3).enumerate() {
            red[i] = self.tables[0][usize::from(pixel[0])];
            green[i] = self.tables[1][usize::from(pixel[1])];
            blue[i] = self.tables[2][usize::from(pixel[2])];
        }
        black_box(&self.numbers);
        let normalised = cpu_ms();
        sums[0] += decoded - begin;
        sums[1] += resized - decoded;
        sums[2] += normalised - resized;
        Ok(())
    }

    /// Decodes the crop with the least region that gives it exactly.
    fn decode(&mut self, bytes: &[u8], pipeline: &Pipeline, draw: Draw) -> Result<(Rect, Rect), Failure> {
        // SAFETY: pointer and length are those of a live slice; the other calls take plain numbers.
        let [width, height, subsampling] = unsafe {
            raw::tj3DecompressHeader(self.handle, bytes.as_ptr(), bytes.len() as _);
            [raw::TJPARAM_TJPARAM_JPEGWIDTH, raw::TJPARAM_TJPARAM_JPEGHEIGHT, raw::TJPARAM_TJPARAM_SUBSAMP]
                .map(|parameter| raw::tj3Get(self.handle, parameter as c_int))
        };
        let (width, height) = (u32::try_from(width)?, u32::try_from(height)?);
        let crop = pipeline.region(draw, width, height)?;
        let (unit_x, unit_y) = match subsampling {
            0 | 3 => (8, 8),
            1 => (16, 8),
            4 => (8, 16),
            _ => (16, 16),
        };
        let (x, y) = (crop.x.saturating_sub(2) / unit_x * unit_x, crop.y.saturating_sub(2) / unit_y * unit_y);
        let right = (crop.x + crop.width + 2).next_multiple_of(unit_x).min(width);
        let bottom = (crop.y + crop.height + 2).next_multiple_of(unit_y).min(height);
        let region = Rect { x, y, width: right - x, height: bottom - y };
        let area = region.width as usize * region.height as usize;
        if self.pixels.len() < area * 3 {
            self.pixels.resize(area * 3, 0);
        }
        let part = raw::tjregion {
            x: region.x as c_int,
            y: region.y as c_int,
            w: region.width as c_int,
            h: region.height as c_int,
        };
        // SAFETY: `pixels` was just made to hold the rows of the region; `bytes` is a live slice.
        let status = unsafe {
            raw::tj3SetCroppingRegion(self.handle, part);
            raw::tj3Decompress8(
                self.handle,
                bytes.as_ptr(),
                bytes.len() as _,
                self.pixels.as_mut_ptr(),
                (region.width * 3) as c_int,
                raw::TJPF_TJPF_RGB as c_int,
            )
        };
        if status == 0 { Ok((region, crop)) } else { Err("a JPEG does not decode by hand".into()) }
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        // SAFETY: the handle is never used again.
        unsafe { raw::tj3Destroy(self.handle) };
    }
}

/// One MNIST-like sample, straight from its bytes into the batch.
fn small_ns() -> Result<f64, Failure> {
    let raw = RawImage { width: 28, height: 28, channels: 1, planar: false };
    let pipeline = Pipeline::new(&Recipe::preset("mnist")?, Encoding::Raw(raw), LIMITS)?;
    let mut scratch = Scratch::new();
    let bytes: Vec<u8> = (0..784_u32).map(|i| (i * 7) as u8).collect();
    let mut out = vec![0_f32; 784 * 256];
    let (rounds, samples) = (9, 256 * 200);
    let mut readings = Vec::new();
    for _ in 0..rounds {
        let begin = cpu_ms();
        for i in 0..samples {
            let place = &mut out[i % 256 * 784..][..784];
            let draw = Draw { seed: 1, epoch: 0, sample: SampleId(u32::try_from(i)?) };
            pipeline.run(&mut scratch, draw, black_box(&bytes), bytemuck::cast_slice_mut(place))?;
        }
        readings.push((cpu_ms() - begin) * 1e6 / samples as f64);
    }
    Ok(median(&mut readings))
}

fn median(readings: &mut [f64]) -> f64 {
    readings.sort_by(f64::total_cmp);
    readings[readings.len() / 2]
}

fn cpu_ms() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
