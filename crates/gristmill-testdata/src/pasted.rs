//! JPEGs of photographic size with classes that a model has to learn: shipped Fashion-MNIST pictures, laid large over
//! cuts of the shipped photos.
//!
//! Telling the photos themselves apart takes a small model a few steps. These take as long as Fashion-MNIST does, while
//! their bytes are those of photos.

use super::{cut_pixels, jpeg, other, photos, shippable};
use fast_image_resize::images::Image as Pixels;
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use flate2::read::GzDecoder;
use gristmill_core::rng::{Stream, key};
use std::fs;
use std::io::{Error, Read, Result};
use std::path::Path;
use turbojpeg::Subsamp;

/// The sides of a picture of the set.
const SIDE: usize = 28;
/// The sides of a JPEG. Of the best quality it has 70 kB, more bytes for the time that decoding takes than a larger one of a
/// lower quality: a link can be its limit on few cores, too.
const LARGE: u32 = 176;
/// How much of what is seen is the set's picture; the rest is the photo.
const SHOWN: u32 = 6;
const OF: u32 = 10;
/// How much each value is off at most, up or down: the grain of a sensor. Without it laying pictures over each other leaves
/// little for JPEG to keep, and files are a quarter as large.
const GRAIN: i16 = 14;
/// What stands before the pixels and before the labels of an idx file.
const HEADS: [usize; 2] = [16, 8];

/// Writes the first `count` pictures of a shipped part (`4000-train`, `1000-test`) into class folders below `folder`.
pub fn pasted_photos(folder: &Path, part: &str, count: u32, seed: u64, quality: i32) -> Result<()> {
    let [pictures, labels] = ["images-idx3", "labels-idx1"].map(|kind| unpacked(part, kind));
    let (pictures, labels) = (pictures?, labels?);
    let photos = photos()?;
    let of = |bytes: &'_ [u8], at: usize, len: usize| bytes.get(at..at + len).map(<[u8]>::to_vec);
    for i in 0..count {
        let missing = || Error::other(format!("{part} has no picture {i}"));
        let grey = of(&pictures, HEADS[0] + i as usize * SIDE * SIDE, SIDE * SIDE).ok_or_else(missing)?;
        let label = *labels.get(HEADS[1] + i as usize).ok_or_else(missing)?;
        let mut stream = Stream::from_key(key(&[seed, i.into()]));
        let photo = &photos[stream.below(photos.len() as u64) as usize].1;
        let mut under = cut_pixels(photo, &mut stream, [LARGE, LARGE])?;
        let over = enlarged(grey)?;
        for (pixel, shown) in under.chunks_exact_mut(3).zip(&over) {
            let grain = stream.bits().to_le_bytes();
            for (value, grain) in pixel.iter_mut().zip(grain) {
                let mixed = (u32::from(*shown) * SHOWN + u32::from(*value) * (OF - SHOWN)) / OF;
                let off = i16::from(grain) * (2 * GRAIN + 1) / 256 - GRAIN;
                *value = (mixed as i16 + off).clamp(0, 255) as u8;
            }
        }
        let class = folder.join(format!("class-{label}"));
        fs::create_dir_all(&class)?;
        fs::write(
            class.join(format!("{i:05}.jpg")),
            jpeg(&under, LARGE as usize, quality, Subsamp::None, false)?,
        )?;
    }
    Ok(())
}

fn unpacked(part: &str, kind: &str) -> Result<Vec<u8>> {
    let packed = fs::File::open(shippable().join(format!("fashion-mnist-{part}-{kind}-ubyte.gz")))?;
    let mut bytes = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn enlarged(grey: Vec<u8>) -> Result<Vec<u8>> {
    let small = Pixels::from_vec_u8(SIDE as u32, SIDE as u32, grey, PixelType::U8).map_err(other)?;
    let mut large = Pixels::new(LARGE, LARGE, PixelType::U8);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
    Resizer::new().resize(&small, &mut large, &options).map_err(other)?;
    Ok(large.into_vec())
}
