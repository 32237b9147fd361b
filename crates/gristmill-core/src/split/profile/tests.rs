//! Estimates against what was measured: exact on lines, near on noise, absent where nobody measured.

use super::*;
use crate::rng::Stream;

fn shapes(count: u64) -> impl Iterator<Item = Shape> {
    let mut stream = Stream::from_key(11);
    (0..count).map(move |_| {
        let (width, height) = (200 + stream.below(800) as u32, 200 + stream.below(800) as u32);
        let density = 0.1 + 0.5 * stream.unit();
        let raw_bytes = (f64::from(width * height) * density) as u32;
        Shape { raw_bytes, width, height, cut_share: 0.1 + 0.9 * stream.unit() }
    })
}

fn whole_s(shape: &Shape) -> f64 {
    1e-4 + 8e-9 * f64::from(shape.raw_bytes) + 3e-9 * f64::from(shape.width * shape.height)
}

fn near(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() <= share * b.abs()
}

/// A profile of so many samples in the forms raw (0), cut (1) and cropped (3).
fn profiled(count: u64) -> Profile {
    let mut profile = Profile::new(0);
    for shape in shapes(count) {
        let (raw, share) = (f64::from(shape.raw_bytes), shape.cut_share);
        profile
            .measured(&shape, &Measured { stage: 0, left_s: Some(whole_s(&shape)), ..Measured::default() });
        let cut = Measured {
            stage: 1,
            bytes: Some(600.0 + share * raw),
            ahead_s: Some(2e-5 + 5e-9 * raw + 4e-9 * share * raw),
            left_s: Some(1e-4 + share * (whole_s(&shape) - 1e-4)),
            again: false,
        };
        profile.measured(&shape, &cut);
        let cropped = Measured {
            stage: 3,
            bytes: Some(150_528.0),
            ahead_s: Some(whole_s(&shape) - 5e-5),
            left_s: Some(5e-5),
            again: false,
        };
        profile.measured(&shape, &cropped);
    }
    profile
}

#[test]
fn what_is_linear_is_found_again() {
    let profile = profiled(1_024);
    // Twice the sizes that were seen.
    let shape = Shape { raw_bytes: 900_000, width: 2_000, height: 1_400, cut_share: 0.4 };
    let choices = profile.choices(&shape, &[1, 3, 4]);
    let stages: Vec<u8> = choices.iter().map(|choice| choice.stage).collect();
    assert_eq!(stages, [0, 1, 3], "nobody measured stage 4");
    let whole = whole_s(&shape);
    let expected = [
        (900_000.0, 0.0, whole),
        (360_600.0, 2e-5 + 4.5e-3 + 1.44e-3, 1e-4 + 0.4 * (whole - 1e-4)),
        (150_528.0, whole - 5e-5, 5e-5),
    ];
    for (choice, (bytes, upstream_s, local_s)) in choices.iter().zip(expected) {
        assert!(near(choice.bytes, bytes, 1e-3), "{choice:?} {bytes}");
        assert!(near(choice.upstream_s, upstream_s, 1e-3), "{choice:?} {upstream_s}");
        assert!(near(choice.local_s, local_s, 1e-3), "{choice:?} {local_s}");
    }
}

#[test]
fn few_equal_and_broken_measurements_do_no_harm() {
    let shape = Shape { raw_bytes: 100_000, width: 500, height: 400, cut_share: 0.5 };
    let raw = |left_s: f64| Measured { stage: 0, left_s: Some(left_s), ..Measured::default() };
    let mut profile = Profile::new(0);
    for _ in 1..MEASURED_MIN {
        profile.measured(&shape, &raw(0.002));
    }
    for broken in [f64::NAN, f64::INFINITY, -1.0] {
        profile.measured(&shape, &raw(broken));
    }
    assert!(profile.choices(&shape, &[1]).is_empty() && profile.mean(0).is_none());
    profile.measured(&shape, &raw(0.002));
    assert_eq!((profile.count(0), profile.count(1)), (MEASURED_MIN, 0));
    // All alike: the mean, for whatever sample.
    let other = Shape { raw_bytes: 5, width: 1, height: 1, cut_share: f64::NAN };
    for shape in [shape, other] {
        let choices = profile.choices(&shape, &[]);
        assert!(near(choices[0].local_s, 0.002, 1e-9), "{choices:?}");
    }
    assert!(near(profile.mean(0).unwrap().local_s, 0.002, 1e-9));
}

#[test]
fn an_estimate_stays_positive_below_what_was_seen() {
    let profile = profiled(256);
    let tiny = Shape { raw_bytes: 1, width: 1, height: 1, cut_share: 0.0 };
    for choice in profile.choices(&tiny, &[1, 3]).iter() {
        assert!(choice.local_s > 0.0 && (choice.stage == 0 || choice.upstream_s > 0.0), "{choice:?}");
    }
}

#[test]
fn a_slower_upstream_node_costs_its_factor() {
    let mut profile = profiled(512);
    let shape = Shape { raw_bytes: 200_000, width: 800, height: 600, cut_share: 0.5 };
    let before = profile.choices(&shape, &[1, 3]);
    assert!(near(profile.factor(3), 1.0, 1e-12));
    for shape in shapes(200) {
        profile.upstream(&shape, 3, 1.7 * (whole_s(&shape) - 5e-5));
        profile.upstream(&shape, 4, 1.0);
        profile.upstream(&shape, 3, f64::NAN);
    }
    assert!(near(profile.factor(3), 1.7, 1e-3), "{}", profile.factor(3));
    // Of forms that were not calibrated the others speak.
    assert!(near(profile.factor(1), 1.7, 1e-3), "{}", profile.factor(1));
    let after = profile.choices(&shape, &[1, 3]);
    for (before, after) in before.iter().zip(after.iter()) {
        assert!(near(after.upstream_s, 1.7 * before.upstream_s, 1e-3), "{before:?} {after:?}");
        assert!(near(after.local_s, before.local_s, 1e-12));
    }
}

#[test]
fn a_slice_has_small_and_large_files_in_proportion() {
    let mut stream = Stream::from_key(3);
    let size = |_| {
        let bits = 4 + stream.below(16);
        1 + stream.below(1 << bits) as u32
    };
    let bytes: Vec<u32> = (0..10_000).map(size).collect();
    let mean = |ids: &[SampleId]| {
        ids.iter().map(|id| f64::from(bytes[id.0 as usize])).sum::<f64>() / ids.len() as f64
    };
    let all: Vec<SampleId> = (0..10_000).map(SampleId).collect();
    let slice = stratified(&bytes, 0.05, 9);
    assert_eq!(slice.len(), 500);
    assert!(slice.windows(2).all(|pair| pair[0] < pair[1]), "sorted, none twice");
    assert!(near(mean(&slice), mean(&all), 0.02), "{} {}", mean(&slice), mean(&all));
    assert_eq!(slice, stratified(&bytes, 0.05, 9));
    assert_ne!(slice, stratified(&bytes, 0.05, 10));
    assert_eq!(stratified(&bytes, 7.0, 9), all);
    for nothing in [0.0, -1.0, f64::NAN] {
        assert!(stratified(&bytes, nothing, 9).is_empty());
    }
    assert!(stratified(&[], 0.5, 9).is_empty());
}

#[test]
fn what_comes_again_is_a_figure_of_its_own() {
    let mut profile = profiled(256);
    let shape = Shape { raw_bytes: 80_000, width: 500, height: 400, cut_share: 0.8 };
    let first = profile.choices(&shape, &[3])[1].upstream_s;
    assert_eq!(profile.again_s(&shape, 3), None);
    for shape in shapes(MEASURED_MIN) {
        let again = Measured { stage: 3, ahead_s: Some(1e-5), again: true, ..Measured::default() };
        profile.measured(&shape, &again);
    }
    assert!((profile.again_s(&shape, 3).unwrap() - 1e-5).abs() < 1e-6);
    let still = profile.choices(&shape, &[3])[1].upstream_s;
    assert!((still - first).abs() < 1e-12, "the first time takes what it took");
    let other = profile.again_s(&shape, 1).unwrap();
    assert!(other < 0.01 * profile.choices(&shape, &[1])[1].upstream_s, "{other}");
}

#[test]
fn a_node_that_got_faster_is_soon_believed() {
    let mut profile = profiled(1_024);
    let shape = Shape { raw_bytes: 80_000, width: 500, height: 400, cut_share: 0.8 };
    let ahead = |profile: &Profile| profile.choices(&shape, &[3])[1].upstream_s;
    let before = ahead(&profile);
    for _ in 0..6 {
        profile.fade();
        for shape in shapes(200) {
            let faster = Measured { stage: 3, ahead_s: Some(0.1 * whole_s(&shape)), ..Measured::default() };
            profile.measured(&shape, &faster);
        }
    }
    let after = ahead(&profile);
    assert!(after < 0.2 * before, "{before} -> {after}");
    // What little there is stays.
    let mut few = profiled(10);
    (0..9).for_each(|_| few.fade());
    assert_eq!(few.choices(&shape, &[1, 3]).len(), 3);
}

#[test]
fn of_forms_that_take_the_same_the_cheapest_is_not_the_one_that_was_measured_too_low() {
    let shape = Shape { raw_bytes: 80_000, width: 500, height: 400, cut_share: 0.8 };
    // All three take 1 ms; eight measurements of each happened to be 30 % too low, right, and 30 % too high.
    let measured = |profile: &mut Profile, times: u64| {
        for (stage, ahead_s) in [(1, 0.0007), (2, 0.001), (3, 0.0013)] {
            let one = Measured {
                stage,
                bytes: Some(1.0),
                ahead_s: Some(ahead_s),
                left_s: Some(1e-4),
                again: false,
            };
            (0..times).for_each(|_| profile.measured(&shape, &one));
        }
        let raw = Measured { stage: 0, bytes: Some(1.0), left_s: Some(0.001), ..Measured::default() };
        (0..times).for_each(|_| profile.measured(&shape, &raw));
    };
    let least = |profile: &Profile| {
        let choices = profile.choices(&shape, &[1, 2, 3]);
        choices[1..].iter().map(|choice| choice.upstream_s).fold(f64::INFINITY, f64::min)
    };
    let (mut apart, mut alike) = (Profile::new(0), Profile::new(0).alike(&[1, 2, 3]));
    [&mut apart, &mut alike].into_iter().for_each(|profile| measured(profile, MEASURED_MIN));
    assert!(near(least(&apart), 0.0007, 0.01), "{}", least(&apart));
    assert!(near(least(&alike), 0.001, 0.1), "{}", least(&alike));
    // What was measured often is believed.
    measured(&mut alike, 2_000);
    assert!(near(least(&alike), 0.0007, 0.02), "{}", least(&alike));
}
