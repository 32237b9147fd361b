//! Whatever form a sample crosses the wire in: the finished bytes are those of running everything in one place.

use gristmill_ops::{Draw, Encoding, Limits, Op, Pipeline, RawImage, Recipe, Scratch, Size, Stage};
use proptest::prelude::*;
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
    let (mut decoded, mut again): (Option<Vec<u8>>, _) = (None, Vec::new());
    let length = pipeline.output().bytes();
    let mut numbers = vec![0_f32; length.div_ceil(4)];
    let out = &mut bytemuck::cast_slice_mut::<f32, u8>(&mut numbers)[..length];
    for stage in EXACT {
        let advanced = pipeline.advance(scratch, draw, bytes, stage, &mut form);
        if let Some(decoded) = &decoded {
            let from = pipeline.advance_with(scratch, draw, bytes, Some(decoded), stage, &mut again);
            assert!(from.stage == advanced.stage && again == form, "{what}: {} from pixels", stage.name());
        }
        decoded = decoded.or_else(|| (advanced.stage == Stage::Decoded).then(|| form.clone()));
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
    for size in [[0, 0], [0, 9], [9, 0], [1, 1], [1, 60_000]] {
        pipeline.sizes_by_op(size[0], size[1]);
        let share = pipeline.cut_share(draw(0), size[0], size[1]);
        assert!(share > 0.0 && share <= 1.0, "{size:?}: {share}");
    }
    let facts = pipeline.facts(&data).unwrap();
    assert_eq!((facts.width, facts.height, facts.can_cut), (317, 241, true));
    let facts = pipeline.facts(&png(&texture(9, 7, 3), 9, 7)).unwrap();
    assert_eq!((facts.width, facts.height, facts.can_cut), (9, 7, false));
    for nothing in [&b""[..], b"hello", &data[..20]] {
        assert_eq!(pipeline.facts(nothing), None);
    }
}

#[test]
fn limits_hold_for_what_is_made_of_a_sample() {
    // No op needs working memory: the result is all there is.
    let sample = texture(100, 100, 1)[..10_000].to_vec();
    let numbers = Recipe::preset("mnist").unwrap().ops.split_off(3);
    let ops = [Op::Decode].into_iter().chain(numbers).collect();
    let recipe = Recipe { ops };
    for (stage, bytes) in [(Stage::Cropped, 10_000), (Stage::Finished, 40_000)] {
        for (scratch_bytes_max, reached) in [(bytes, stage), (bytes - 1, Stage::Raw)] {
            let limits = Limits { scratch_bytes_max, ..LIMITS };
            let pipeline = Pipeline::new(&recipe, raw(100, 100, 1), limits).unwrap();
            let mut form = Vec::new();
            let advanced = pipeline.advance(&mut Scratch::new(), draw(0), &sample, stage, &mut form);
            assert_eq!(advanced.stage, reached, "{scratch_bytes_max} bytes");
        }
    }
}

/// One that fails here with so much memory is not to pass because another place did the expensive part.
#[test]
fn whoever_cannot_run_a_sample_is_not_handed_a_form_of_it() {
    let small = recipe([Op::CenterCrop { size: Size::Side(64) }]);
    let enlarged =
        recipe([Op::Resize { size: Size::Exact([300, 400]) }, Op::CenterCrop { size: Size::Side(64) }]);
    let grey = jpeg(320, 240, Subsamp::Gray, true, 2);
    let coloured = jpeg(320, 240, Subsamp::Sub2x2, false, 2);
    let mut short = 0;
    for (recipe, data) in [(&small, &grey), (&small, &coloured), (&enlarged, &grey), (&enlarged, &coloured)] {
        for scratch_bytes_max in (10_000..2_000_000).step_by(30_000) {
            let limits = Limits { scratch_bytes_max, ..LIMITS };
            let pipeline = Pipeline::new(recipe, Encoding::Sniffed, limits).unwrap();
            if run(&pipeline, draw(0), data).is_ok() {
                continue;
            }
            short += 1;
            for stage in EXACT {
                let mut form = Vec::new();
                let advanced = pipeline.advance(&mut Scratch::new(), draw(0), data, stage, &mut form);
                assert_eq!(advanced.stage, Stage::Raw, "{} with {scratch_bytes_max} bytes", stage.name());
            }
        }
    }
    assert!(short > 20, "{short}");
}

#[test]
fn the_lossy_form_is_close() {
    let (pipeline, mut scratch, mut form) = (train(), Scratch::new(), Vec::new());
    let smooth: Vec<u8> =
        (0..300 * 250_usize).flat_map(|i| [i % 300 * 255 / 299, i / 300, 90].map(|v| v as u8)).collect();
    let data = png(&smooth, 300, 250);
    for (ops, grey) in [
        (vec![Op::CenterCrop { size: Size::Side(96) }], false),
        (vec![Op::Grey, Op::CenterCrop { size: Size::Side(96) }], true),
    ] {
        let pipeline = Pipeline::new(&recipe(ops), Encoding::Sniffed, LIMITS).unwrap();
        let advanced = pipeline.advance(&mut scratch, draw(0), &data, Stage::Lossy, &mut form);
        assert_eq!(advanced.stage, Stage::Lossy);
        let mut out = vec![0; pipeline.output().bytes()];
        pipeline.run_from(&mut scratch, draw(0), Stage::Lossy, &form, &mut out).unwrap();
        let expected = run(&pipeline, draw(0), &data).unwrap();
        let worst = out.iter().zip(&expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        assert!(worst > 0 || grey, "it is not lossy at all");
        assert!(worst < 12, "{worst}");
    }
    let mut out = vec![0_f32; pipeline.output().bytes() / 4];
    let error = pipeline
        .run_from(&mut scratch, draw(0), Stage::Lossy, &form, bytemuck::cast_slice_mut(&mut out))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the lossy form of the sample is not usable: 96 x 96 pixels for 224 x 224"),
        "{error}"
    );
}

#[test]
fn forms_that_do_not_fit() {
    let (pipeline, mut scratch, mut form) = (train(), Scratch::new(), Vec::new());
    let data = jpeg(640, 480, Subsamp::Sub2x2, false, 3);
    let mut out = vec![0_f32; pipeline.output().bytes() / 4];
    let out = bytemuck::cast_slice_mut::<f32, u8>(&mut out);
    for (stage, says) in [
        (Stage::Cut, "its header makes no sense"),
        (Stage::Decoded, "it ends within its header"),
        (Stage::Cropped, "it has 3 bytes where 224 x 224 pixels need 150528"),
        (Stage::Packed, "its bytes end too early or too late"),
        (Stage::Lossy, "there is no JPEG in it"),
        (Stage::Finished, "it has 3 bytes"),
    ] {
        let error = pipeline.run_from(&mut scratch, draw(0), stage, b"abc", out).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    // A cut that was made for another draw.
    let other = (0..50).find(|other| pipeline.region(draw(*other), 640, 480).unwrap().width < 300);
    pipeline.advance(&mut scratch, draw(other.unwrap()), &data, Stage::Cut, &mut form);
    let whole = (0..50).find(|other| pipeline.region(draw(*other), 640, 480).unwrap().width > 500);
    let error = pipeline.run_from(&mut scratch, draw(whole.unwrap()), Stage::Cut, &form, out).unwrap_err();
    assert!(error.to_string().contains("it is not the part that this draw looks at"), "{error}");
    // Decoded pixels with another size than they say, or with far too many.
    for (width, height) in [(3_u32, 2_u32), (0, 0), (1 << 31, 1 << 31), (5, 0)] {
        let form = [&width.to_le_bytes()[..], &height.to_le_bytes(), &[0; 12]].concat();
        assert!(pipeline.run_from(&mut scratch, draw(0), Stage::Decoded, &form, out).is_err());
    }
    assert!(pipeline.run_from(&mut scratch, draw(0), Stage::Finished, &[0; 4], &mut out[..4]).is_err());
}

/// Ops of every kind, in any order that gives a fixed size.
fn any_ops() -> impl Strategy<Value = Vec<Op>> {
    let side = 1_u32..90;
    let op = prop_oneof![
        (side.clone(), side.clone()).prop_map(|(h, w)| Op::RandomResizedCrop {
            size: Size::Exact([h, w]),
            scale: [0.08, 1.0],
            ratio: [0.75, 1.33]
        }),
        side.clone().prop_map(|side| Op::Resize { size: Size::Side(side) }),
        (side.clone(), side.clone()).prop_map(|(h, w)| Op::CenterCrop { size: Size::Exact([h, w]) }),
        (side.clone(), 0_u32..9)
            .prop_map(|(side, padding)| Op::RandomCrop { size: Size::Side(side), padding }),
        Just(Op::Flip { probability: 0.5 }),
        Just(Op::Grey),
        Just(Op::Rgb),
    ];
    (prop::collection::vec(op, 0..5), side).prop_map(|(mut ops, side)| {
        ops.push(Op::CenterCrop { size: Size::Side(side) });
        ops
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_picture_and_recipe(
        ops in any_ops(), width in 1_usize..260, height in 1_usize..260, kind in 0..7_usize, progressive: bool, sample: u32,
    ) {
        let data = jpeg(width, height, SUBSAMPLINGS[kind], progressive, u64::from(sample));
        // A random crop that is larger than what it is taken from is no recipe, or no sample for it.
        if let Ok(pipeline) = Pipeline::new(&recipe(ops), Encoding::Sniffed, LIMITS) {
            agree(&pipeline, &mut Scratch::new(), draw(sample), &data, "any");
        }
    }
}
