//! Randomness: the same draw gives the same bytes, another sample, epoch or seed gives others.

use gristmill_core::SampleId;
use gristmill_ops::{Draw, Encoding, Op, Pipeline, Recipe, Size};
use turbojpeg::Subsamp;

use crate::making::{LIMITS, jpeg, raw, recipe, result, run, texture};

#[test]
fn a_draw_is_a_function() {
    let pipeline =
        Pipeline::new(&Recipe::preset("imagenet-train").unwrap(), Encoding::Sniffed, LIMITS).unwrap();
    let data = jpeg(400, 300, Subsamp::Sub2x2, false, 11);
    let base = Draw { seed: 1, epoch: 2, sample: SampleId(3) };
    let bytes = run(&pipeline, base, &data).unwrap();
    assert!(bytes == run(&pipeline.clone(), base, &data).unwrap());
    for other in [Draw { seed: 2, ..base }, Draw { epoch: 3, ..base }, Draw { sample: SampleId(4), ..base }] {
        assert_ne!(pipeline.region(base, 400, 300).unwrap(), pipeline.region(other, 400, 300).unwrap());
        assert!(bytes != run(&pipeline, other, &data).unwrap(), "{other:?}");
    }
}

/// The crops that a separate model in Python gives: a plan made elsewhere or earlier must find the same ones.
#[test]
fn crops_never_change() {
    let pipeline =
        Pipeline::new(&Recipe::preset("imagenet-train").unwrap(), Encoding::Sniffed, LIMITS).unwrap();
    let crops = [0, 1, 2].map(|sample| {
        let part = pipeline.region(Draw { seed: 42, epoch: 0, sample: SampleId(sample) }, 500, 375).unwrap();
        [part.x, part.y, part.width, part.height]
    });
    assert_eq!(crops, [[68, 8, 347, 330], [78, 13, 190, 225], [79, 1, 272, 357]]);
}

#[test]
fn ops_of_one_kind_draw_apart() {
    let pixels = texture(9, 1, 12);
    let flip = Op::Flip { probability: 0.5 };
    let changed =
        |ops: &[Op]| (0..400).filter(|i| result(ops.to_vec(), raw(9, 1, 3), *i, &pixels) != pixels).count();
    // 400 coin flips: 200, give or take 5 standard deviations of 10. Were the two flips one, none would be changed.
    assert!((150..250).contains(&changed(std::slice::from_ref(&flip))));
    assert!((150..250).contains(&changed(&[flip.clone(), flip])));
}

#[test]
fn a_crop_of_the_whole_draws_nothing() {
    let pixels = texture(6, 5, 13);
    let whole = Op::RandomCrop { size: Size::Exact([5, 6]), padding: 0 };
    for sample in 0..20 {
        assert_eq!(result([whole.clone()], raw(6, 5, 3), sample, &pixels), pixels);
    }
    assert!(recipe([whole]).ops[1].is_random());
}
