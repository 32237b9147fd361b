//! The resize against plain models: exact sums in f64, and Pillow's two directions with whole numbers in between.

use super::*;
use proptest::prelude::*;

/// Every source pixel's share in every pixel of the result.
fn shares(from: usize, to: usize) -> Vec<Vec<f64>> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    let share = |i: usize| {
        let centre = (i as f64 + 0.5) * scale;
        let raw = (0..from).map(|j| (1.0 - (j as f64 + 0.5 - centre).abs() / reach).max(0.0));
        let sum: f64 = raw.clone().sum();
        raw.map(|weight| weight / sum).collect()
    };
    (0..to).map(share).collect()
}

/// The exact values of one channel, of rows and columns given first as they are and then as they become.
fn exact(pixels: &[u8], from: [usize; 2], to: [usize; 2]) -> Vec<f64> {
    let (down, across) = (shares(from[0], to[0]), shares(from[1], to[1]));
    let pixel = |down: &[f64], across: &[f64]| {
        let row =
            |y: usize| across.iter().zip(&pixels[y * from[1]..]).map(|(share, p)| share * f64::from(*p));
        down.iter().enumerate().map(|(y, share)| share * row(y).sum::<f64>()).sum()
    };
    down.iter().flat_map(|down| across.iter().map(move |across| pixel(down, across))).collect()
}

/// One channel as Pillow does it: columns first, weights of 22 bits, whole numbers in between.
fn pillow(pixels: &[u8], from: [usize; 2], to: [usize; 2]) -> Vec<u8> {
    let weights = |from: usize, to: usize| -> Vec<Vec<i64>> {
        let whole = |share: &f64| (0.5 + share * f64::from(1 << 22)) as i64;
        shares(from, to).iter().map(|shares| shares.iter().map(whole).collect()).collect()
    };
    let sum = |weights: &[i64], at: &dyn Fn(usize) -> u8| {
        let products = weights.iter().enumerate().map(|(i, weight)| weight * i64::from(at(i)));
        ((products.sum::<i64>() + (1 << 21)) >> 22).clamp(0, 255) as u8
    };
    let across = weights(from[1], to[1]);
    let narrow: Vec<u8> = (0..from[0])
        .flat_map(|y| across.iter().map(move |weights| sum(weights, &|x| pixels[y * from[1] + x])))
        .collect();
    let down = weights(from[0], to[0]);
    let columns = 0..to[1];
    down.iter()
        .flat_map(|weights| columns.clone().map(|x| sum(weights, &|y| narrow[y * to[1] + x])))
        .collect()
}

fn resized(resizer: &mut Resizer, pixels: &[u8], down: Axis, across: Axis, channels: usize) -> Vec<u8> {
    let mut to = vec![0; (down.count * across.count) as usize * channels];
    let (rows, columns) = (down.reach(), across.reach());
    let row = |y: usize| {
        let start = (rows.start as usize + y) * across.from as usize + columns.start as usize;
        &pixels[start * channels..][..columns.len() * channels]
    };
    resizer.resize(down, across, channels, row, &mut to);
    assert!(resizer.down.values.len() as u64 <= u64::from(down.count) * down.taps_max());
    assert!(resizer.across.values.len() as u64 <= u64::from(across.count) * across.taps_max());
    to
}

/// Grain, or black and white in turns, which the two directions round furthest apart.
fn picture([rows, columns]: [u32; 2], channels: u32, grain: Option<u64>) -> Vec<u8> {
    let mut state = grain.unwrap_or(0);
    let mut value = |i: u32| match grain {
        Some(_) => {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        }
        None => (i / channels % columns + i / channels / columns + i % channels) as u8 % 2 * 255,
    };
    (0..rows * columns * channels).map(&mut value).collect()
}

fn check(from: [u32; 2], to: [u32; 2], channels: u32, grain: Option<u64>) {
    let pixels = picture(from, channels, grain);
    let [down, across] = [0, 1].map(|side| Axis::whole(from[side], to[side]));
    let ours = resized(&mut Resizer::default(), &pixels, down, across, channels as usize);
    for channel in 0..channels as usize {
        let plane: Vec<u8> = pixels.iter().skip(channel).step_by(channels as usize).copied().collect();
        let (from, to) = (from.map(|side| side as usize), to.map(|side| side as usize));
        let (exact, pillow) = (exact(&plane, from, to), pillow(&plane, from, to));
        let ours = ours.iter().skip(channel).step_by(channels as usize);
        for ((ours, exact), pillow) in ours.zip(exact).zip(pillow) {
            assert!(ours.abs_diff(pillow) <= 1, "{ours} where Pillow has {pillow} and exact is {exact}");
            // One half, and nothing but the hair and the last bits of the sums.
            let over = (f64::from(*ours) - exact).abs() - 0.5;
            assert!(over < f64::from(HAIR) + 1e-4, "{ours} for {exact}");
        }
    }
}

#[test]
fn sizes_at_the_ends() {
    for (from, to) in [
        ([1, 1], [1, 1]),
        ([1, 1], [90, 90]),
        ([90, 90], [1, 1]),
        ([64, 64], [32, 32]),
        ([32, 32], [64, 64]),
        ([40, 41], [40, 41]),
        ([3, 4000], [2, 1]),
        ([5000, 1], [3, 2]),
    ] {
        for channels in [1, 3] {
            check(from, to, channels, None);
            check(from, to, channels, Some(7));
        }
    }
}

#[test]
fn what_stays_as_it_is_stays() {
    let pixels = picture([9, 13], 3, Some(1));
    let axes = [9, 13].map(|side| Axis::whole(side, side));
    assert_eq!(resized(&mut Resizer::default(), &pixels, axes[0], axes[1], 3), pixels);
}

#[test]
fn extremes_stay_extremes() {
    for value in [0, 255] {
        let pixels = vec![value; 77 * 61 * 3];
        for to in [1, 7, 50, 76, 78, 200] {
            let (down, across) = (Axis::whole(77, to), Axis::whole(61, to));
            let all = resized(&mut Resizer::default(), &pixels, down, across, 3);
            assert!(all.iter().all(|found| *found == value), "{value} to {to}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn within_one_of_pillow(
        from in prop::array::uniform2(1_u32..90), to in prop::array::uniform2(1_u32..90),
        colour: bool, grain: Option<u64>,
    ) {
        check(from, to, if colour { 3 } else { 1 }, grain);
    }

    /// What a JPEG is decoded for is asked before a flip is known; one pixel of margin must do.
    #[test]
    fn the_other_end_reaches_as_far(
        from in 1_u32..3000, to in 1_u32..600, cut in prop::array::uniform2(0_u32..600),
    ) {
        let first = cut[0] % to;
        let axis = Axis { from, to, first, count: 1 + cut[1] % (to - first) };
        let (seen, mirrored) = (axis.reach(), axis.mirrored().reach());
        prop_assert!(mirrored.end <= from && mirrored.start < mirrored.end);
        prop_assert!(mirrored.start.abs_diff(from - seen.end) <= 1, "{:?} and {:?}", seen, mirrored);
        prop_assert!(mirrored.end.abs_diff(from - seen.start) <= 1, "{:?} and {:?}", seen, mirrored);
    }

    #[test]
    fn a_span_is_a_part_of_the_whole(
        from in prop::array::uniform2(1_u32..90), to in prop::array::uniform2(1_u32..90),
        cut in prop::array::uniform4(0_u32..40), grain: u64,
    ) {
        let pixels = picture(from, 3, Some(grain));
        let whole = [0, 1].map(|side| Axis::whole(from[side], to[side]));
        let part = [0, 1].map(|side| {
            let first = cut[side].min(to[side] - 1);
            Axis { first, count: (to[side] - first).saturating_sub(cut[side + 2]).max(1), ..whole[side] }
        });
        // The same resizer: what a larger picture left in it must not matter.
        let mut resizer = Resizer::default();
        let all = resized(&mut resizer, &pixels, whole[0], whole[1], 3);
        let some = resized(&mut resizer, &pixels, part[0], part[1], 3);
        let row = |y: u32| ((part[0].first + y) * to[1] + part[1].first) as usize * 3;
        let expected: Vec<u8> = (0..part[0].count)
            .flat_map(|y| &all[row(y)..row(y) + part[1].count as usize * 3])
            .copied()
            .collect();
        prop_assert_eq!(some, expected);
    }
}
