//! Whatever the bytes are: one clear sentence, no panic, no large allocation.

use gristmill_ops::{Encoding, Limits, Op, OpError, Pipeline, Recipe, Scratch, Size};
use proptest::prelude::*;
use turbojpeg::Subsamp;

use crate::making::{LIMITS, draw, jpeg, png, raw, recipe, run, texture};

fn train() -> Pipeline {
    Pipeline::new(&Recipe::preset("imagenet-train").unwrap(), Encoding::Sniffed, LIMITS).unwrap()
}

fn sentence(bytes: &[u8]) -> String {
    run(&train(), draw(0), bytes).unwrap_err().to_string()
}

/// A PNG whose header announces this size, with hardly any data behind it.
fn bomb(width: u32, height: u32) -> Vec<u8> {
    let mut data = png(&[0; 3], 1, 1);
    data[16..20].copy_from_slice(&width.to_be_bytes());
    data[20..24].copy_from_slice(&height.to_be_bytes());
    data
}

#[test]
fn sentences() {
    assert_eq!(sentence(b""), "no data (0 bytes)");
    assert_eq!(sentence(b"hello world"), "not a JPEG or PNG: begins with \"hello wo\"");
    assert_eq!(sentence(b"\0\xff\n"), "not a JPEG or PNG: begins with \"\\x00\\xff\\n\"");
    assert_eq!(
        sentence(&bomb(60_000, 60_000)),
        "PNG of 60000 x 60000 pixels is over the limit of 67,108,864 pixels (raise recipe.pixels_max)"
    );
    assert!(sentence(&bomb(0, 5)).starts_with("damaged PNG"), "{}", sentence(&bomb(0, 5)));
    let mut large = jpeg(8, 8, Subsamp::Sub2x2, false, 1);
    let frame = large.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    large[frame + 5..frame + 9].fill(0xFE);
    assert!(
        sentence(&large).contains("JPEG of 65278 x 65278 pixels is over the limit"),
        "{}",
        sentence(&large)
    );
    large[frame + 5..frame + 9].fill(0);
    assert!(sentence(&large).starts_with("damaged JPEG"), "{}", sentence(&large));
}

#[test]
fn data_that_ends_early() {
    for progressive in [false, true] {
        let data = jpeg(200, 150, Subsamp::Sub2x2, progressive, 2);
        assert!(run(&train(), draw(0), &data).is_ok());
        for share in [3, 200, 400, 600, 900, 990, 999] {
            let cut = &data[..data.len() * share / 1000];
            for sample in 0..5 {
                let error = run(&train(), draw(sample), cut).unwrap_err();
                assert!(
                    matches!(
                        error,
                        OpError::Truncated { .. } | OpError::Corrupt { .. } | OpError::NotAnImage { .. }
                    ),
                    "{error}"
                );
            }
        }
        assert_eq!(sentence(&data[..data.len() - 2]), "JPEG data ends early");
        let mut trailing = data.clone();
        trailing.extend(b"and more");
        assert!(run(&train(), draw(0), &trailing).is_ok());
    }
    let data = png(&texture(100, 90, 3), 100, 90);
    assert!(run(&train(), draw(0), &data).is_ok());
    for length in [9, 30, 60, data.len() / 2, data.len() - 20] {
        assert_eq!(sentence(&data[..length]), "PNG data ends early", "{length} of {}", data.len());
    }
}

#[test]
fn limits_hold_before_memory_is_taken() {
    let data = jpeg(600, 500, Subsamp::Sub2x2, false, 4);
    let progressive = jpeg(600, 500, Subsamp::Sub2x2, true, 4);
    let whole = recipe([Op::CenterCrop { size: Size::Exact([500, 600]) }]);
    let run_with = |scratch_bytes_max, data: &[u8]| {
        let limits = Limits { pixels_max: 300_000, scratch_bytes_max };
        run(&Pipeline::new(&whole, Encoding::Sniffed, limits).unwrap(), draw(0), data)
    };
    assert!(run_with(900_000, &data).is_ok());
    let error = run_with(899_999, &data).unwrap_err();
    assert_eq!(error, OpError::TooMuchScratch { needed_bytes: 900_000, scratch_bytes_max: 899_999 });
    // A progressive picture is held as coefficients before it becomes pixels.
    assert!(matches!(run_with(900_000, &progressive), Err(OpError::TooMuchScratch { .. })));
    let limits = Limits { pixels_max: 299_999, ..LIMITS };
    let error = run(&Pipeline::new(&whole, Encoding::Sniffed, limits).unwrap(), draw(0), &data).unwrap_err();
    assert!(matches!(error, OpError::TooManyPixels { .. }), "{error}");
    // One row of pixels becomes a billion when its shorter side is enlarged.
    let long = png(&texture(30_000, 1, 5), 30_000, 1);
    let tall = recipe([
        Op::Resize { size: Size::Side(256) },
        Op::Flip { probability: 0.5 },
        Op::CenterCrop { size: Size::Side(9) },
    ]);
    let error = run(&Pipeline::new(&tall, Encoding::Sniffed, LIMITS).unwrap(), draw(0), &long).unwrap_err();
    assert!(matches!(error, OpError::TooMuchScratch { .. }), "{error}");
}

#[test]
fn samples_and_places_that_do_not_fit() {
    let pipeline = Pipeline::new(&Recipe::preset("mnist").unwrap(), raw(28, 28, 1), LIMITS).unwrap();
    let mut scratch = Scratch::new();
    let mut out = vec![0_f32; 785];
    let out: &mut [u8] = bytemuck::cast_slice_mut(&mut out);
    let error = pipeline.run(&mut scratch, draw(0), &[0; 783], &mut out[..3136]).unwrap_err();
    assert_eq!(error.to_string(), "raw sample has 783 bytes where its shape says 784");
    let error = pipeline.run(&mut scratch, draw(0), &[0; 784], &mut out[..3135]).unwrap_err();
    assert!(error.to_string().contains("3135 bytes where the recipe gives 3136"), "{error}");
    let error = pipeline.run(&mut scratch, draw(0), &[0; 784], &mut out[1..3137]).unwrap_err();
    assert!(error.to_string().contains("multiple of 4"), "{error}");
    let crop = Pipeline::new(&Recipe::preset("cifar-train").unwrap(), Encoding::Sniffed, LIMITS).unwrap();
    let error = run(&crop, draw(0), &png(&texture(9, 40, 6), 9, 40)).unwrap_err();
    assert!(
        error.to_string().contains("17 x 48 pixels is smaller than the random crop of 32 x 32"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_damage_is_survived(
        is_png: bool, kind in 0..7_usize, progressive: bool,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut data = if is_png {
            png(&texture(40, 30, 7), 40, 30)
        } else {
            jpeg(40, 30, crate::making::SUBSAMPLINGS[kind], progressive, 7)
        };
        for (at, value) in &damage {
            let at = at.index(data.len());
            data[at] = *value;
        }
        let limits = Limits { pixels_max: 1 << 20, scratch_bytes_max: 1 << 24 };
        let pipeline = Pipeline::new(&Recipe::preset("imagenet-train").unwrap(), Encoding::Sniffed, limits).unwrap();
        if let Err(error) = run(&pipeline, draw(1), &data) {
            prop_assert!(!error.to_string().is_empty() && !error.to_string().contains('\n'));
        }
    }
}
