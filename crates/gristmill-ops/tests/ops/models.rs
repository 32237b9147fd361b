//! Every op against a plain model of it.

use gristmill_ops::{Dtype, Encoding, Layout, Op, Pipeline, RawImage, Recipe, Size};
use proptest::prelude::*;

use crate::making::{LIMITS, draw, raw, recipe, result, run, texture};

/// The pixel at (x, y), black outside.
fn at(pixels: &[u8], [width, height]: [usize; 2], channels: usize, x: i64, y: i64) -> &[u8] {
    if x < 0 || y < 0 || x >= width as i64 || y >= height as i64 {
        return &[0; 3][..channels];
    }
    &pixels[(y as usize * width + x as usize) * channels..][..channels]
}

fn seen(pixels: &[u8], size: [usize; 2], channels: usize, start: [i64; 2], crop: [u32; 2]) -> Vec<u8> {
    let rows = start[1]..start[1] + i64::from(crop[1]);
    rows.flat_map(|y| {
        (start[0]..start[0] + i64::from(crop[0])).flat_map(move |x| at(pixels, size, channels, x, y))
    })
    .copied()
    .collect()
}

/// One channel, antialiased triangle filter, exactly.
fn resized(pixels: &[u8], [width, height]: [usize; 2], [to_width, to_height]: [usize; 2]) -> Vec<f64> {
    let weights = |from: usize, to: usize| -> Vec<Vec<f64>> {
        let scale = from as f64 / to as f64;
        let reach = scale.max(1.0);
        (0..to)
            .map(|i| {
                let centre = (i as f64 + 0.5) * scale;
                let raw = (0..from).map(|j| (1.0 - (j as f64 + 0.5 - centre).abs() / reach).max(0.0));
                let raw: Vec<f64> = raw.collect();
                let sum: f64 = raw.iter().sum();
                raw.iter().map(|weight| weight / sum).collect()
            })
            .collect()
    };
    let (across, down) = (weights(width, to_width), weights(height, to_height));
    let mut out = Vec::new();
    for down in &down {
        for across in &across {
            let mut sum = 0.0;
            for (y, a) in down.iter().enumerate() {
                for (x, b) in across.iter().enumerate() {
                    sum += a * b * f64::from(pixels[y * width + x]);
                }
            }
            out.push(sum);
        }
    }
    out
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn centre_crop(width in 1_usize..40, height in 1_usize..40, rows in 1_u32..40, columns in 1_u32..40, grey: bool) {
        let channels = if grey { 1 } else { 3 };
        let pixels = &texture(width, height, 3)[..width * height * channels];
        let start = |length: usize, size: u32| {
            let (length, size) = (length as i64, i64::from(size));
            // Rounds half to even, as Python does; padding puts the smaller half first.
            if size > length { -((size - length) / 2) } else {
                let (half, odd) = ((length - size) / 2, (length - size) % 2);
                half + odd * (half % 2)
            }
        };
        let expected = seen(pixels, [width, height], channels, [start(width, columns), start(height, rows)], [columns, rows]);
        let op = Op::CenterCrop { size: Size::Exact([rows, columns]) };
        prop_assert_eq!(result([op], raw(width, height, channels as u32), 0, pixels), expected);
    }

    #[test]
    fn random_crop_is_some_place_of_the_padded_picture(
        width in 1_usize..20, height in 1_usize..20, padding in 0_u32..5, cut in (0_u32..8, 0_u32..8), sample: u32,
    ) {
        let pixels = texture(width, height, 4);
        let rows = (height as u32 + 2 * padding).saturating_sub(cut.0).max(1);
        let columns = (width as u32 + 2 * padding).saturating_sub(cut.1).max(1);
        let op = Op::RandomCrop { size: Size::Exact([rows, columns]), padding };
        let ours = result([op], raw(width, height, 3), sample, &pixels);
        let pad = i64::from(padding);
        let found = (-pad..=height as i64 + pad - i64::from(rows)).any(|y| {
            (-pad..=width as i64 + pad - i64::from(columns))
                .any(|x| seen(&pixels, [width, height], 3, [x, y], [columns, rows]) == ours)
        });
        prop_assert!(found);
    }

    #[test]
    fn flip_is_a_mirror_wherever_it_stands(width in 2_usize..30, height in 1_usize..30, sample: u32) {
        let pixels = texture(width, height, 5);
        let mirrored: Vec<u8> =
            pixels.chunks_exact(width * 3).flat_map(|row| row.chunks_exact(3).rev().flatten()).copied().collect();
        let always = Op::Flip { probability: 1.0 };
        prop_assert_eq!(&result([always.clone()], raw(width, height, 3), sample, &pixels), &mirrored);
        prop_assert_eq!(&result([always.clone(), always.clone()], raw(width, height, 3), sample, &pixels), &pixels);
        let never = Op::Flip { probability: 0.0 };
        prop_assert_eq!(&result([never], raw(width, height, 3), sample, &pixels), &pixels);
        // Before a crop: the same as cropping the mirrored picture.
        let crop = Op::CenterCrop { size: Size::Exact([height as u32, width as u32 + 3]) };
        let crop_of_mirrored = result([crop.clone()], raw(width, height, 3), sample, &mirrored);
        prop_assert_eq!(result([always, crop], raw(width, height, 3), sample, &pixels), crop_of_mirrored);
    }

    #[test]
    fn resize_is_the_antialiased_triangle(
        width in 1_usize..40, height in 1_usize..40, rows in 1_u32..40, columns in 1_u32..40,
    ) {
        let pixels = &texture(width, height, 6)[..width * height];
        let ours = result([Op::Resize { size: Size::Exact([rows, columns]) }], raw(width, height, 1), 0, pixels);
        let exact = resized(pixels, [width, height], [columns as usize, rows as usize]);
        for (ours, exact) in ours.iter().zip(&exact) {
            prop_assert!((f64::from(*ours) - exact).abs() <= 0.501, "{} for {}", ours, exact);
        }
    }

    #[test]
    fn resize_and_centre_crop_as_one(
        width in 8_usize..90, height in 8_usize..90, side in 8_u32..60, less in 0_u32..8, flipped: bool,
    ) {
        let pixels = texture(width, height, 7);
        let resize = Op::Resize { size: Size::Side(side) };
        let crop = Op::CenterCrop { size: Size::Side((side - less).max(1)) };
        // An op between the two keeps them apart.
        let flip = Op::Flip { probability: f64::from(u8::from(flipped)) };
        let apart = [flip.clone(), resize.clone(), Op::Flip { probability: 0.0 }, crop.clone()];
        let one = result([flip, resize, crop], raw(width, height, 3), 0, &pixels);
        let two = result(apart, raw(width, height, 3), 0, &pixels);
        prop_assert_eq!(one, two);
    }
}

#[test]
fn grey_and_rgb() {
    let pixels = [255, 0, 0, 0, 255, 0, 0, 0, 255, 12, 34, 56];
    let grey = [76, 150, 29, 30];
    assert_eq!(result([Op::Grey], raw(2, 2, 3), 0, &pixels), grey);
    assert_eq!(result([Op::Rgb], raw(2, 2, 3), 0, &pixels), pixels);
    assert_eq!(result([Op::Grey], raw(2, 2, 1), 0, &grey), grey);
    assert_eq!(result([Op::Rgb], raw(2, 1, 1), 0, &grey[..2]), [76, 76, 76, 150, 150, 150]);
    assert_eq!(result([Op::Grey, Op::Rgb], raw(1, 1, 3), 0, &pixels[9..]), [30; 3]);
}

#[test]
fn types_and_layouts() {
    let pixels = texture(5, 4, 8);
    for layout in [Layout::Nchw, Layout::Nhwc] {
        for flipped in [false, true] {
            let flip = Op::Flip { probability: f64::from(u8::from(flipped)) };
            let ops = |dtype| Recipe { ops: vec![Op::Decode, flip.clone(), Op::ToTensor { dtype, layout }] };
            let small = Pipeline::new(&ops(Dtype::U8), raw(5, 4, 3), LIMITS).unwrap();
            let bytes = run(&small, draw(0), &pixels).unwrap();
            for (i, value) in bytes.iter().enumerate() {
                let (channel, y, x) = match layout {
                    Layout::Nchw => (i / 20, i % 20 / 5, i % 5),
                    Layout::Nhwc => (i % 3, i / 15, i % 15 / 3),
                };
                let x = if flipped { 4 - x } else { x };
                assert_eq!(*value, pixels[(y * 5 + x) * 3 + channel], "{layout:?}, flipped {flipped}, {i}");
            }
            let mut normalised = ops(Dtype::F32);
            let (mean, std) = ([0.1, 0.2, 0.3], [0.5, 0.6, 0.7]);
            normalised.ops.push(Op::Normalise { mean: mean.to_vec(), std: std.to_vec() });
            let large = Pipeline::new(&normalised, raw(5, 4, 3), LIMITS).unwrap();
            let shape = if layout == Layout::Nchw { [3, 4, 5] } else { [4, 5, 3] };
            assert_eq!((large.output().shape(), large.output().bytes()), (shape, 240));
            for (i, (number, value)) in
                floats(&run(&large, draw(0), &pixels).unwrap()).iter().zip(&bytes).enumerate()
            {
                let channel = if layout == Layout::Nchw { i / 20 } else { i % 3 };
                let exact = (f64::from(*value) / 255.0 - mean[channel]) / std[channel];
                assert!((f64::from(*number) - exact).abs() < 1e-6, "{number} for {exact}");
            }
        }
    }
}

#[test]
fn planes_become_pixels() {
    let pixels = texture(32, 32, 9);
    let planes: Vec<u8> =
        (0..3).flat_map(|channel| pixels.iter().skip(channel).step_by(3)).copied().collect();
    let planar = RawImage { width: 32, height: 32, channels: 3, planar: true };
    for ops in [
        vec![],
        vec![Op::Flip { probability: 1.0 }],
        vec![Op::RandomCrop { size: Size::Side(32), padding: 4 }],
    ] {
        let interleaved = result(ops.clone(), raw(32, 32, 3), 1, &pixels);
        assert_eq!(result(ops, Encoding::Raw(planar), 1, &planes), interleaved);
    }
    let cifar =
        Pipeline::new(&Recipe::preset("cifar-train").unwrap(), Encoding::Raw(planar), LIMITS).unwrap();
    assert_eq!(cifar.output().shape(), [3, 32, 32]);
}

#[test]
fn mnist_goes_straight_through() {
    let pixels = &texture(28, 28, 10)[..784];
    let pipeline = Pipeline::new(&Recipe::preset("mnist").unwrap(), raw(28, 28, 1), LIMITS).unwrap();
    assert_eq!(pipeline.output().shape(), [1, 28, 28]);
    for (number, value) in floats(&run(&pipeline, draw(0), pixels).unwrap()).iter().zip(pixels) {
        let exact = (f64::from(*value) / 255.0 - 0.1307) / 0.3081;
        assert!((f64::from(*number) - exact).abs() < 1e-6, "{number} for {exact}");
    }
    assert_eq!(recipe([]).ops.len(), 2);
}
