//! Decoding only what a crop needs gives exactly the pixels of decoding all and cutting.

use gristmill_ops::{Encoding, Op, Pipeline, Recipe, Scratch, Size};
use proptest::prelude::*;

use crate::making::{LIMITS, SUBSAMPLINGS, cut, draw, jpeg, png, recipe, result, run, whole};

fn crop(size: [usize; 2]) -> Op {
    Op::RandomCrop { size: Size::Exact(size.map(|side| side as u32)), padding: 0 }
}

#[test]
fn every_place_of_small_pictures() {
    for subsampling in SUBSAMPLINGS {
        for progressive in [false, true] {
            let (width, height) = (131, 77);
            let data = jpeg(width, height, subsampling, progressive, 1);
            let (all, ..) = whole(&data);
            for (rows, columns) in [(1, 1), (3, 2), (8, 8), (16, 33), (40, 7), (70, 130), (77, 131)] {
                let pipeline =
                    Pipeline::new(&recipe([crop([rows, columns])]), Encoding::Sniffed, LIMITS).unwrap();
                for sample in 0..40 {
                    let part = pipeline.region(draw(sample), width as u32, height as u32).unwrap();
                    let [x, y] = [part.x, part.y].map(|at| at as usize);
                    assert_eq!([part.width as usize, part.height as usize], [columns, rows]);
                    assert!(
                        run(&pipeline, draw(sample), &data).unwrap()
                            == cut(&all, width, 3, [x, y, columns, rows]),
                        "{subsampling:?}, progressive {progressive}: {columns} x {rows} at {x}, {y}"
                    );
                }
            }
        }
    }
}

/// A JPEG whose three components all claim the sampling factors 2 x 1, which means the same as 1 x 1: the library's
/// MCU is then not the one that it tells.
#[test]
fn unusual_sampling_factors_fall_back_to_the_whole() {
    let mut data = jpeg(128, 64, turbojpeg::Subsamp::None, false, 2);
    let frame = data.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    for component in 0..3 {
        data[frame + 11 + 3 * component] = 0x21;
    }
    // The blocks are now in another order, so the picture is scrambled; but it is one picture.
    let all = result([Op::CenterCrop { size: Size::Exact([64, 128]) }], Encoding::Sniffed, 0, &data);
    let pipeline = Pipeline::new(&recipe([crop([20, 9])]), Encoding::Sniffed, LIMITS).unwrap();
    for sample in 0..40 {
        let part = pipeline.region(draw(sample), 128, 64).unwrap();
        let place = [part.x as usize, part.y as usize, 9, 20];
        assert_eq!(run(&pipeline, draw(sample), &data).unwrap(), cut(&all, 128, 3, place));
    }
}

/// A PNG holds the same pixels and is always decoded whole: every recipe must give the same for both.
#[test]
fn recipes_do_not_see_the_difference() {
    let flip = Op::Flip { probability: 0.5 };
    let resized =
        Op::RandomResizedCrop { size: Size::Exact([40, 56]), scale: [0.08, 1.0], ratio: [0.75, 1.33] };
    let middle = Op::CenterCrop { size: Size::Exact([51, 90]) };
    let shorter = Op::Resize { size: Size::Side(60) };
    let table: Vec<Vec<Op>> = vec![
        vec![resized.clone(), flip.clone()],
        vec![flip.clone(), resized.clone()],
        vec![Op::Grey, flip.clone(), resized],
        vec![middle.clone(), flip.clone()],
        vec![shorter.clone(), Op::CenterCrop { size: Size::Side(48) }],
        vec![flip.clone(), shorter.clone(), Op::CenterCrop { size: Size::Exact([30, 20]) }],
        vec![shorter, Op::CenterCrop { size: Size::Side(100) }, flip.clone()],
        vec![flip.clone(), middle, Op::Grey, Op::Rgb],
        vec![flip.clone(), Op::RandomCrop { size: Size::Side(64), padding: 9 }],
        vec![flip, Op::Grey, crop([33, 44])],
    ];
    for (i, ops) in table.into_iter().enumerate() {
        for (j, subsampling) in SUBSAMPLINGS.into_iter().enumerate() {
            let (width, height) = (150 + j, 101 + i);
            let data = jpeg(width, height, subsampling, j % 2 == 0, i as u64);
            let same = png(&whole(&data).0, width, height);
            for sample in 0..8 {
                let [a, b] = [&data, &same].map(|data| result(ops.clone(), Encoding::Sniffed, sample, data));
                assert!(a == b, "recipe {i}, {subsampling:?}, sample {sample}");
            }
        }
    }
}

#[test]
fn one_scratch_serves_many_pictures() {
    let pipeline =
        Pipeline::new(&Recipe::preset("imagenet-train").unwrap(), Encoding::Sniffed, LIMITS).unwrap();
    let mut scratch = Scratch::new();
    let mut out = vec![0_f32; pipeline.output().bytes() / 4];
    for (i, (width, height)) in [(300, 200), (20, 30), (2200, 1700), (64, 64)].into_iter().enumerate() {
        let data = jpeg(width, height, SUBSAMPLINGS[i], false, 5);
        let out = bytemuck::cast_slice_mut(&mut out);
        pipeline.run(&mut scratch, draw(i as u32), &data, out).unwrap();
        assert_eq!(out, run(&pipeline, draw(i as u32), &data).unwrap(), "{width} x {height}");
        assert!(scratch.held_bytes() < 32 << 20, "{} bytes held", scratch.held_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_size_and_place(
        width in 1_usize..220, height in 1_usize..220, share in (0.0..1.0_f64, 0.0..1.0_f64),
        kind in 0..7_usize, progressive: bool, sample: u32,
    ) {
        let data = jpeg(width, height, SUBSAMPLINGS[kind], progressive, u64::from(sample));
        let size = [1 + (share.0 * (height - 1) as f64) as usize, 1 + (share.1 * (width - 1) as f64) as usize];
        let pipeline = Pipeline::new(&recipe([crop(size)]), Encoding::Sniffed, LIMITS).unwrap();
        let part = pipeline.region(draw(sample), width as u32, height as u32).unwrap();
        let expected = cut(&whole(&data).0, width, 3, [part.x as usize, part.y as usize, size[1], size[0]]);
        prop_assert!(run(&pipeline, draw(sample), &data).unwrap() == expected);
    }
}
