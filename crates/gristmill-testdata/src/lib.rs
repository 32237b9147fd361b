//! A realistic folder of JPEGs, made from ten free photos.
//!
//! Each picture is a random cut of one photo, scaled to a random size and compressed with a random quality,
//! subsampling and scan order, so that a few megabytes in the repository become a data set with the variety of a
//! real one. Its class is the photo it was cut from. The same seed gives the same bytes.
//!
//! Deliberately not here: anything the product uses. This crate serves tests, the demo and benchmarks.

#![forbid(unsafe_code)]

mod pasted;

use fast_image_resize::images::{Image as Pixels, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use gristmill_core::rng::Stream;
pub use pasted::pasted_photos;
use std::fs;
use std::io::{Error, Read, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

/// The shipped data, wherever the tests are run from.
pub fn shippable() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/shippable")
}

/// Larger data sets that are not shipped: `GRISTMILL_DATA`, or a folder beside the project. `None`, with a line
/// that says so, when it is absent.
pub fn external(name: &str) -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = std::env::var_os("GRISTMILL_DATA").map_or_else(default, PathBuf::from).join(name);
    if path.exists() {
        return Some(path);
    }
    report_absence(&path);
    None
}

/// The content of an xz file among them; also absent where there is no program `xz`.
pub fn external_xz(name: &str) -> Option<Vec<u8>> {
    let path = external(name)?;
    let unpacked = std::process::Command::new("xz").arg("-dc").arg(&path).output();
    let unpacked = unpacked.ok().filter(|output| output.status.success());
    if unpacked.is_none() {
        report_absence(Path::new("the program xz"));
    }
    unpacked.map(|output| output.stdout)
}

#[expect(clippy::print_stderr, reason = "a test that could not look at real data must say so")]
fn report_absence(path: &Path) {
    eprintln!("NOT TESTED on real data: {} is absent (set GRISTMILL_DATA)", path.display());
}

/// Qualities of pictures as the web has them.
pub const QUALITIES: Range<u32> = 60..96;

/// Writes `count` JPEGs into class folders below `folder`, of qualities as the web has them.
pub fn cut_photos(folder: &Path, count: u32, seed: u64) -> Result<()> {
    cut_photos_of(folder, count, seed, QUALITIES)
}

/// The same with qualities from this range, which must not be empty.
pub fn cut_photos_of(folder: &Path, count: u32, seed: u64, qualities: Range<u32>) -> Result<()> {
    let photos = photos()?;
    for (name, _) in &photos {
        fs::create_dir_all(folder.join(name))?;
    }
    for i in 0..count {
        let (name, photo) = &photos[i as usize % photos.len()];
        let mut stream = Stream::from_key(gristmill_core::rng::key(&[seed, i.into()]));
        fs::write(folder.join(name).join(format!("{i:05}.jpg")), cut(photo, &mut stream, &qualities)?)?;
    }
    Ok(())
}

/// Any image as a JPEG, for tests that need one of a certain kind.
pub fn jpeg(
    pixels: &[u8],
    width: usize,
    quality: i32,
    subsamp: Subsamp,
    progressive: bool,
) -> Result<Vec<u8>> {
    let mut compressor = Compressor::new().map_err(other)?;
    compressor.set_quality(quality).map_err(other)?;
    compressor.set_subsamp(subsamp).map_err(other)?;
    compressor.set_progressive(progressive).map_err(other)?;
    let height = pixels.len() / 3 / width;
    let image = Image { pixels, width, pitch: width * 3, height, format: PixelFormat::RGB };
    compressor.compress_to_vec(image).map_err(other)
}

/// The same picture as others would publish it again: compressed anew, smaller, and 5 % brighter.
pub fn near_duplicates(picture: &[u8]) -> Result<[(&'static str, Vec<u8>); 3]> {
    let photo: Photo = turbojpeg::decompress(picture, PixelFormat::RGB).map_err(other)?;
    let again = jpeg(&photo.pixels, photo.width, 75, Subsamp::Sub2x2, true)?;
    let [width, height] = [photo.width, photo.height].map(|side| (side as u32 * 3 / 4).max(8));
    let source =
        Pixels::from_vec_u8(photo.width as u32, photo.height as u32, photo.pixels.clone(), PixelType::U8x3);
    let mut small = Pixels::new(width, height, PixelType::U8x3);
    Resizer::new().resize(&source.map_err(other)?, &mut small, None).map_err(other)?;
    let small = jpeg(small.buffer(), width as usize, 90, Subsamp::None, false)?;
    let light: Vec<u8> = photo.pixels.iter().map(|&v| (u32::from(v) * 105 / 100).min(255) as u8).collect();
    let light = jpeg(&light, photo.width, 90, Subsamp::Sub2x1, false)?;
    Ok([("re-encoded", again), ("resized", small), ("brighter", light)])
}

type Photo = Image<Vec<u8>>;

fn photos() -> Result<Vec<(String, Photo)>> {
    let mut archive = tar::Archive::new(fs::File::open(shippable().join("cc0-photos.tar"))?);
    let mut photos = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path()?.file_stem().and_then(|stem| stem.to_str()).unwrap_or("photo").to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        photos.push((name, turbojpeg::decompress(&bytes, PixelFormat::RGB).map_err(other)?));
    }
    Ok(photos)
}

fn cut(photo: &Photo, stream: &mut Stream, qualities: &Range<u32>) -> Result<Vec<u8>> {
    // Most pictures are of medium size, as in collections from the web; a few are small or large.
    let longest = [160, 320, 400, 500, 500, 500, 640, 900][stream.below(8) as usize] + stream.below(60);
    let scale = longest as f64 / photo.width.max(photo.height) as f64;
    let size = [photo.width, photo.height].map(|side| ((side as f64 * scale) as u32).max(16));
    let small = cut_pixels(photo, stream, size)?;
    let quality = (qualities.start + stream.below(qualities.len() as u64) as u32) as i32;
    let subsamp = [Subsamp::Sub2x2, Subsamp::Sub2x2, Subsamp::Sub2x2, Subsamp::None, Subsamp::Sub2x1];
    let subsamp = subsamp[stream.below(5) as usize];
    let progressive = stream.below(10) == 0;
    jpeg(&small, size[0] as usize, quality, subsamp, progressive)
}

/// A random part of a photo, of half its sides or more, at this size.
fn cut_pixels(photo: &Photo, stream: &mut Stream, [width, height]: [u32; 2]) -> Result<Vec<u8>> {
    let part = 0.5 + 0.5 * stream.unit();
    let (w, h) = (photo.width as f64 * part, photo.height as f64 * part);
    let left = stream.unit() * (photo.width as f64 - w);
    let top = stream.unit() * (photo.height as f64 - h);
    let source = ImageRef::new(photo.width as u32, photo.height as u32, &photo.pixels, PixelType::U8x3);
    let mut small = Pixels::new(width, height, PixelType::U8x3);
    let options =
        ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).crop(left, top, w, h);
    Resizer::new().resize(&source.map_err(other)?, &mut small, &options).map_err(other)?;
    Ok(small.into_vec())
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::other(error)
}
