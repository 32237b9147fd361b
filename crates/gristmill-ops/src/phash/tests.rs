//! The hash against a direct transform, and against what must not change it.

use super::*;
use fast_image_resize::images::Image as Pixels;
use fast_image_resize::{PixelType, Resizer};
use proptest::prelude::*;
use std::f64::consts::PI;
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

const LIMITS: Limits = Limits { pixels_max: 1 << 24, scratch_bytes_max: 1 << 26 };

/// A picture of soft blobs and a bright sky, as RGB.
fn picture(seed: u64, width: usize, height: usize) -> Vec<u8> {
    let mut stream = gristmill_core::rng::Stream::from_key(seed);
    let blobs: Vec<[f64; 6]> = (0..12).map(|_| [(); 6].map(|()| stream.unit())).collect();
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let (x, y) = (x as f64 / width as f64, y as f64 / height as f64);
            for channel in 0..3 {
                let light = blobs.iter().fold(0.2, |light, blob| {
                    let near = ((x - blob[0]).powi(2) + (y - blob[1]).powi(2)) / (0.002 + blob[2] * 0.03);
                    light + (blob[3 + channel] - 0.4) * (-near).exp()
                });
                pixels.push((light * 255.0).clamp(0.0, 255.0) as u8);
            }
        }
    }
    pixels
}

fn jpeg(pixels: &[u8], width: usize, quality: i32, progressive: bool) -> Vec<u8> {
    let mut compressor = Compressor::new().unwrap();
    compressor.set_quality(quality).unwrap();
    compressor.set_subsamp(Subsamp::Sub2x2).unwrap();
    compressor.set_progressive(progressive).unwrap();
    let height = pixels.len() / 3 / width;
    compressor
        .compress_to_vec(Image { pixels, width, pitch: width * 3, height, format: PixelFormat::RGB })
        .unwrap()
}

fn png(pixels: &[u8], width: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut out, width as u32, (pixels.len() / 3 / width) as u32);
    encoder.set_color(::png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(pixels).unwrap();
    out
}

fn raw(width: u32, height: u32, channels: u32, planar: bool) -> Encoding {
    Encoding::Raw(RawImage { width, height, channels, planar })
}

fn sniffed(bytes: &[u8]) -> u64 {
    Hasher::new().hash(Encoding::Sniffed, bytes, LIMITS).unwrap().bits
}

fn distance(a: u64, b: u64) -> u32 {
    (a ^ b).count_ones()
}

#[test]
fn cosines_are_cosines() {
    for (frequency, wave) in WAVES.iter().enumerate() {
        for (place, &value) in wave.iter().enumerate() {
            let exact = ((2 * place + 1) as f64 * frequency as f64 * PI / 64.0).cos() * 16_384.0;
            assert!((value as f64 - exact).abs() <= 0.5, "{frequency} {place}");
        }
        assert!(
            frequency == 0 || wave.iter().sum::<i64>() == 0,
            "brightness leaks into frequency {frequency}"
        );
    }
}

#[test]
fn the_look_decides_and_not_the_encoding() {
    for seed in 0..12 {
        let (width, height) = (320, 240);
        let pixels = picture(seed, width, height);
        let original = sniffed(&png(&pixels, width));
        for (quality, progressive) in [(95, false), (60, false), (75, true)] {
            let again = sniffed(&jpeg(&pixels, width, quality, progressive));
            assert!(
                distance(original, again) <= 4,
                "seed {seed}, quality {quality}: {}",
                distance(original, again)
            );
        }
        let brighter: Vec<u8> = pixels.iter().map(|&v| (f64::from(v) * 1.05).min(255.0) as u8).collect();
        assert!(distance(original, sniffed(&png(&brighter, width))) <= 4, "seed {seed}, brighter");
        let source = Pixels::from_vec_u8(width as u32, height as u32, pixels, PixelType::U8x3).unwrap();
        for [w, h] in [[160, 120], [500, 375], [96, 96]] {
            let mut resized = Pixels::new(w, h, PixelType::U8x3);
            Resizer::new().resize(&source, &mut resized, None).unwrap();
            let other = sniffed(&jpeg(resized.buffer(), w as usize, 85, false));
            assert!(distance(original, other) <= 4, "seed {seed}, {w} x {h}: {}", distance(original, other));
        }
    }
}

#[test]
fn other_pictures_have_other_hashes() {
    let hashes: Vec<u64> = (0..40).map(|seed| sniffed(&png(&picture(seed, 100, 80), 100))).collect();
    for (i, a) in hashes.iter().enumerate() {
        assert!(hashes[..i].iter().all(|b| distance(*a, *b) > 10));
        assert_eq!(a.count_ones(), 32, "half of the bits, with that of no frequency");
    }
}

/// Fixed hashes: another machine, compiler or rewrite must give the same.
#[test]
fn known_hashes() {
    let ramp: Vec<u8> = (0..28 * 28).map(|i| (252 - i % 28 * 5 - i / 28 * 4) as u8).collect();
    let checks: Vec<u8> = (0..32 * 32 * 3).map(|i| gristmill_core::rng::mix(i as u64 / 12) as u8).collect();
    let mut hasher = Hasher::new();
    let mut hash = |encoding, bytes: &[u8]| hasher.hash(encoding, bytes, LIMITS).unwrap().bits;
    assert_eq!(hash(raw(28, 28, 1, false), &ramp), 0x0100_0100_0100_01ab);
    assert_eq!(hash(raw(32, 32, 3, false), &checks), 0xdb07_5f58_81d6_e047);
    assert_eq!(hash(raw(32, 32, 3, true), &checks), 0x2799_f90d_b713_0715);
    assert_eq!(hash(raw(28, 28, 1, false), &[0; 784]), 1, "black");
    assert_eq!(hash(raw(28, 28, 1, false), &[200; 784]), 1, "flat");
}

#[test]
fn all_ways_to_store_the_same_pixels_agree() {
    let pixels = picture(5, 32, 32);
    let planes: Vec<u8> =
        (0..3).flat_map(|c| pixels.iter().skip(c).step_by(3).copied().collect::<Vec<_>>()).collect();
    let mut hasher = Hasher::new();
    let mut hash = |encoding, bytes: &[u8]| hasher.hash(encoding, bytes, LIMITS).unwrap();
    let interleaved = hash(raw(32, 32, 3, false), &pixels);
    assert_eq!(hash(raw(32, 32, 3, true), &planes), interleaved);
    assert_eq!(hash(Encoding::Sniffed, &png(&pixels, 32)), interleaved);
    assert_eq!((interleaved.width, interleaved.height), (32, 32));
    let grey: Vec<u8> = pixels.chunks_exact(3).map(|p| luma([p[0], p[1], p[2]])).collect();
    assert_eq!(hash(raw(32, 32, 1, false), &grey), interleaved);
    let wide = hash(Encoding::Sniffed, &jpeg(&picture(1, 700, 301), 700, 80, false));
    assert_eq!((wide.width, wide.height), (700, 301));
}

#[test]
fn bad_bytes_are_errors_and_the_hasher_goes_on() {
    let mut hasher = Hasher::new();
    let good = jpeg(&picture(2, 300, 200), 300, 80, false);
    let expect = hasher.hash(Encoding::Sniffed, &good, LIMITS).unwrap();
    let small = Limits { pixels_max: 100, ..LIMITS };
    let cut = &good[..good.len() / 2];
    let table: [(Encoding, &[u8], Limits); 5] = [
        (Encoding::Sniffed, b"hello", LIMITS),
        (Encoding::Sniffed, b"", LIMITS),
        (Encoding::Sniffed, &good, small),
        (Encoding::Sniffed, cut, LIMITS),
        (raw(28, 28, 1, false), &good, LIMITS),
    ];
    for (encoding, bytes, limits) in table {
        assert!(hasher.hash(encoding, bytes, limits).is_err());
        assert_eq!(hasher.hash(Encoding::Sniffed, &good, LIMITS).unwrap(), expect);
    }
}

/// A picture that is stored at a part of its size lies in the same cells, also where the last pixel is cut.
#[test]
fn coarse_pixels_lie_where_the_fine_ones_did() {
    let (width, height, divisor) = (301, 203, 4);
    let mut fine = Halves::new([height, width], 1);
    let mut coarse = Halves::new([height, width], divisor);
    let value = |x: u32, y: u32| ((x / divisor * 7 + y / divisor * 3) % 256) as u8;
    for y in 0..height {
        fine.add(&(0..width).map(|x| value(x, y)).collect::<Vec<_>>());
    }
    for y in (0..height).step_by(4) {
        coarse.add(&(0..width).step_by(4).map(|x| value(x, y)).collect::<Vec<_>>());
    }
    assert_eq!(fine.means(), coarse.means());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Means and transform against the definitions, in floating point.
    #[test]
    fn cells_and_frequencies_are_as_defined(seed: u64, width in 1_usize..90, height in 1_usize..90) {
        let mut stream = gristmill_core::rng::Stream::from_key(seed);
        let pixels: Vec<u8> = (0..width * height).map(|_| stream.below(256) as u8).collect();
        let mut halves = Halves::new([height as u32, width as u32], 1);
        pixels.chunks_exact(width).for_each(|row| halves.add(row));
        let means = halves.means();
        let overlap = |half: usize, side: usize, pixel: usize| {
            let (begin, end) = (half as f64 * side as f64 / 64.0, (half + 1) as f64 * side as f64 / 64.0);
            (end.min(pixel as f64 + 1.0) - begin.max(pixel as f64)).max(0.0)
        };
        for (y, x) in [(0, 0), (63, 63), (7, 40), (16, 3)] {
            let mut sum = 0.0;
            for row in 0..height {
                for column in 0..width {
                    let weight = overlap(y, height, row) * overlap(x, width, column);
                    sum += weight * f64::from(pixels[row * width + column]);
                }
            }
            let mean = sum / (width as f64 / 64.0) / (height as f64 / 64.0);
            prop_assert!((means[y][x] as f64 / 256.0 - mean).abs() < 0.01, "half cell {} {}", y, x);
        }
        let cells = halves.cells();
        let around = |cell: usize| [(2 * cell).max(1) - 1, 2 * cell, 2 * cell + 1, (2 * cell + 2).min(63)];
        for (y, x) in [(0, 0), (31, 31), (5, 17)] {
            let mut sum = 0;
            for (row, down) in around(y).into_iter().zip([1, 3, 3, 1]) {
                for (column, across) in around(x).into_iter().zip([1, 3, 3, 1]) {
                    sum += down * across * means[row][column];
                }
            }
            prop_assert_eq!(cells[y][x], sum);
        }
        let found = transform(&cells);
        for (down, right) in [(0, 0), (1, 0), (0, 1), (3, 5), (7, 7)] {
            let mut sum = 0.0;
            for (y, row) in cells.iter().enumerate() {
                for (x, &cell) in row.iter().enumerate() {
                    let wave = |frequency: usize, place: usize| ((2 * place + 1) as f64 * frequency as f64 * PI / 64.0).cos();
                    sum += cell as f64 / 16_384.0 * wave(down, y) * wave(right, x);
                }
            }
            let value = found[down][right] as f64 / 16_384.0 / 16_384.0 / 16_384.0;
            prop_assert!((value - sum).abs() < 10.0, "{} {}: {} and {}", down, right, value, sum);
        }
    }
}
