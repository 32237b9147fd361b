//! Whatever form a sample crosses the wire in: the finished bytes are those of running everything in one place.

use gristmill_ops::{Draw, Encoding, Op, Pipeline, RawImage, Recipe, Scratch, Size, Stage};
use turbojpeg::Subsamp;

use crate::making::{LIMITS, SUBSAMPLINGS, draw, jpeg, png, raw, recipe, run, texture};

/// Every stage that must not change a pixel.
pub(crate) const EXACT: [Stage; 5] =
    [Stage::Cut, Stage::Decoded, Stage::Cropped, Stage::Packed, Stage::Finished];

/// Takes a sample through every exact stage and compares with running it in one place; the stages reached.
pub(crate) fn agree(
    pipeline: &Pipeline,
    scratch: &mut Scratch,
    draw: Draw,
    bytes: &[u8],
    what: &str,
) -> Vec<Stage> {
    let expected = run(pipeline, draw, bytes);
    let (mut form, mut reached) = (Vec::new(), Vec::new());
    let length = pipeline.output().bytes();
    let mut numbers = vec![0_f32; length.div_ceil(4)];
    let out = &mut bytemuck::cast_slice_mut::<f32, u8>(&mut numbers)[..length];
    for stage in EXACT {
        let advanced = pipeline.advance(scratch, draw, bytes, stage, &mut form);
        if advanced.stage == Stage::Raw {
            assert!(form.is_empty(), "{what}: {} fell back and left {} bytes", stage.name(), form.len());
            continue;
        }
        assert_eq!(advanced.stage, stage, "{what}");
        if matches!(stage, Stage::Cut | Stage::Packed) {
            assert!(form.len() < bytes.len(), "{what}: {} is not smaller", stage.name());
        }
        out.fill(0xAA);
        let finished = pipeline.run_from(scratch, draw, stage, &form, out);
        match &expected {
            Ok(expected) => {
                finished.unwrap_or_else(|error| panic!("{what}: {}: {error}", stage.name()));
                assert!(out == expected, "{what}: other pixels from {}", stage.name());
            }
            Err(error) => assert!(finished.is_err(), "{what}: {} hides {error}", stage.name()),
        }
        reached.push(stage);
    }
    reached
}

fn train() -> Pipeline {
    Pipeline::new(&Recipe::preset("imagenet-train").unwrap(), Encoding::Sniffed, LIMITS).unwrap()
}

#[test]
fn presets_on_jpegs_of_every_sampling() {
    let mut scratch = Scratch::new();
    for preset in ["imagenet-train", "imagenet-eval"] {
        let pipeline = Pipeline::new(&Recipe::preset(preset).unwrap(), Encoding::Sniffed, LIMITS).unwrap();
        for (i, subsampling) in SUBSAMPLINGS.into_iter().enumerate() {
            for progressive in [false, true] {
                let data = jpeg(317, 241 + i, subsampling, progressive, 3);
                for sample in 0..4 {
                    let what = format!("{preset}, {subsampling:?}, progressive {progressive}, {sample}");
                    agree(&pipeline, &mut scratch, draw(sample), &data, &what);
                }
            }
        }
    }
}

#[test]
fn a_small_crop_of_a_large_picture_is_cut() {
    let pipeline = Pipeline::new(
        &recipe([Op::RandomCrop { size: Size::Side(64), padding: 0 }]),
        Encoding::Sniffed,
        LIMITS,
    )
    .unwrap();
    let data = jpeg(640, 480, Subsamp::Sub2x2, false, 1);
    let mut scratch = Scratch::new();
    for sample in 0..20 {
        assert_eq!(agree(&pipeline, &mut scratch, draw(sample), &data, "crop"), EXACT);
        let mut form = Vec::new();
        pipeline.advance(&mut scratch, draw(sample), &data, Stage::Cut, &mut form);
        let share = form.len() as f64 / data.len() as f64;
        let told = pipeline.cut_share(draw(sample), 640, 480);
        assert!((0.5..1.5).contains(&(share / told)), "{share} of the bytes where {told} was told");
    }
}

#[test]
fn pngs_and_raw_pixels() {
    let mut scratch = Scratch::new();
    let data = png(&texture(90, 70, 3), 90, 70);
    let reached = agree(&train(), &mut scratch, draw(1), &data, "png");
    assert!(!reached.contains(&Stage::Cut) && reached.contains(&Stage::Decoded));
    let pixels = texture(32, 32, 4);
    let cifar = Recipe::preset("cifar-train").unwrap();
    let planar = Encoding::Raw(RawImage { width: 32, height: 32, channels: 3, planar: true });
    for encoding in [raw(32, 32, 3), planar] {
        let pipeline = Pipeline::new(&cifar, encoding, LIMITS).unwrap();
        for sample in 0..20 {
            let reached = agree(&pipeline, &mut scratch, draw(sample), &pixels, "raw");
            assert!([Stage::Decoded, Stage::Cropped, Stage::Finished].iter().all(|s| reached.contains(s)));
        }
    }
    let pipeline = Pipeline::new(&Recipe::preset("mnist").unwrap(), raw(28, 28, 1), LIMITS).unwrap();
    agree(&pipeline, &mut scratch, draw(0), &pixels[..784], "grey");
}

#[test]
fn sizes_are_known_beforehand() {
    let (pipeline, mut scratch, mut form) = (train(), Scratch::new(), Vec::new());
    let data = jpeg(317, 241, Subsamp::Sub2x2, false, 3);
    for stage in [Stage::Decoded, Stage::Cropped, Stage::Finished] {
        pipeline.advance(&mut scratch, draw(0), &data, stage, &mut form);
        assert_eq!(pipeline.stage_bytes(stage, 317, 241), Some(form.len() as u64), "{}", stage.name());
    }
    assert_eq!(pipeline.stage_bytes(Stage::Cut, 317, 241), None);
    let crop = 224 * 224 * 3;
    assert_eq!(
        pipeline.sizes_by_op(317, 241),
        [
            ("decode", 317 * 241 * 3),
            ("random-resized-crop", crop),
            ("flip", crop),
            ("to-tensor", crop * 4),
            ("normalise", crop * 4)
        ]
    );
    let facts = pipeline.facts(&data).unwrap();
    assert_eq!((facts.width, facts.height, facts.can_cut), (317, 241, true));
    let facts = pipeline.facts(&png(&texture(9, 7, 3), 9, 7)).unwrap();
    assert_eq!((facts.width, facts.height, facts.can_cut), (9, 7, false));
    for nothing in [&b""[..], b"hello", &data[..20]] {
        assert_eq!(pipeline.facts(nothing), None);
    }
}
