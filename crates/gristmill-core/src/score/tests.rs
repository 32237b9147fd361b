//! The paper's formulas and its worked example, both readings.

use super::*;

fn close(a: f64, b: f64, within: f64) {
    assert!((a - b).abs() <= within, "{a} is not {b}");
}

#[test]
fn criteria_by_hand() {
    close(ce(0.7), 0.5146, 5e-5);
    close(literal(0.7), 0.3602, 5e-5);
    close(margin(0.7, 0.2), 0.5, 1e-12);
    close(ce(0.02), 5.644, 5e-4);
    close(literal(0.02), 0.1129, 5e-5);
    close(cheapness(0.5, 0.5, 0.5), 2.0, 1e-12);
    close(cheapness(1.0, 1.0, 0.5), 1.0, 1e-12);
    close(cheapness(0.02, 0.024, 0.5), 45.45, 5e-3);
}

#[test]
fn equation_three_as_printed_is_never_over_its_maximum() {
    assert!((0..=10_000).all(|i| literal(f64::from(i) / 10_000.0) < 0.5308));
    assert!(literal(0.02) < literal(0.7), "and calls a sample it is sure is wrong less important");
}

#[test]
fn a_threshold_follows_slowly() {
    let mut threshold = Threshold::default();
    for (target, value) in [(1.0, 1.0), (0.8, 0.98), (0.4, 0.922)] {
        close(threshold.follow(target, 0.9), value, 1e-12);
    }
}

const ENTROPY: [f32; 12] = [1.05, 3.2, 4.5, 0.12, 4.40, 1.20, 1.30, 2.20, 5.02, 1.98, 0.88, 0.96];
const MARGIN: [f32; 12] = [1.33, 1.02, 0.30, 1.77, 1.20, 1.30, 0.90, 0.55, 1.99, 1.09, 1.80, 0.12];
const CHEAP: [f32; 12] = [12.00, 45.12, 20.01, 3.22, 4.55, 2.99, 5.88, 9.07, 6.04, 10.70, 8.90, 7.66];

fn voted(lists: [&[f32; 12]; 3], thresholds: [f64; 3], polarity: Polarity) -> Vec<u32> {
    let vote =
        |id: usize| majority([0, 1, 2].map(|list| polarity.important(lists[list][id], thresholds[list])));
    (0..12).filter(|&id| vote(id as usize)).collect()
}

#[test]
fn the_worked_example_in_both_readings() {
    let lists = [&ENTROPY, &MARGIN, &CHEAP];
    let thresholds = lists.map(|list| median(&mut list.clone()));
    for (found, expected) in thresholds.iter().zip([1.64, 1.145, 8.28]) {
        close(*found, expected, 1e-6);
    }
    // As the text says: scores above the threshold are important.
    assert_eq!(voted(lists, thresholds, Polarity::Higher), [0, 1, 2, 4, 7, 8, 9, 10]);
    // As the table does it: category 1, called important, is the lower half, row by row in the printed order.
    let rows = [
        ([3, 10, 11, 0, 5, 6], [9, 7, 1, 4, 2, 8]),
        ([11, 2, 7, 6, 1, 9], [4, 5, 0, 3, 10, 8]),
        ([5, 3, 4, 6, 8, 11], [10, 7, 9, 0, 2, 1]),
    ];
    for ((list, threshold), (first, second)) in lists.into_iter().zip(thresholds).zip(rows) {
        let (important, rest) = partition(list, threshold, Polarity::Lower);
        assert_eq!((important.as_slice(), rest.as_slice()), (&first[..], &second[..]));
        // The two readings are mirror images.
        let (mut mirrored, _) = partition(&list.map(|score| -score), -threshold, Polarity::Higher);
        mirrored.reverse();
        assert_eq!(mirrored, important);
    }
    assert_eq!(voted(lists, thresholds, Polarity::Lower), [3, 5, 6, 11]);
}

#[test]
fn a_median_is_the_middle_or_between_the_two() {
    assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    assert_eq!(median(&mut [7.0]), 7.0);
    assert_eq!(median(&mut []), 0.0);
}

fn said<'a>(ids: &'a [u32], p_true: &'a [f32], p_rival: &'a [f32], loss: &'a [f32]) -> Feedback<'a> {
    Feedback { ids, p_true, p_rival, loss, entropy: None }
}

#[test]
fn what_is_no_number_is_contained_and_counted() {
    let mut scores = Scores::new(4, EntropyForm::Ce);
    let nan = f32::NAN;
    scores
        .feedback(&said(&[0, 1, 2], &[0.5, nan, 0.25], &[0.2, 0.1, nan], &[0.7, nan, f32::INFINITY]), 0)
        .unwrap();
    scores.settle();
    assert_eq!(scores.unknown, 2);
    assert_eq!(scores.entropy, [1.0, 1.0, 1.0, 0.0], "unknown takes the largest known");
    assert_eq!(scores.loss[1], 0.7);
    assert!(scores.wrong(1) && scores.wrong(2) && !scores.wrong(0));
    assert_eq!(scores.seen, [1, 1, 1, 0]);
    // All unknown: still no infinity.
    let mut scores = Scores::new(1, EntropyForm::Ce);
    scores.feedback(&said(&[0], &[nan], &[nan], &[nan]), 0).unwrap();
    scores.settle();
    assert_eq!((scores.entropy[0], scores.loss[0]), (0.0, 0.0));
}

#[test]
fn feedback_that_makes_no_sense_is_refused_whole() {
    let mut scores = Scores::new(2, EntropyForm::Ce);
    let before = scores.clone();
    let cases = [
        (said(&[0, 1], &[0.5], &[0.1, 0.1], &[1.0, 1.0]), "2 ids but 1 values of p_true"),
        (said(&[0, 2], &[0.5, 0.5], &[0.1, 0.1], &[1.0, 1.0]), "sample 2"),
        (said(&[0, 1], &[0.5, 1.5], &[0.1, 0.1], &[1.0, 1.0]), "p_true = 1.5"),
        (said(&[0, 1], &[0.5, 0.5], &[0.1, -0.1], &[1.0, 1.0]), "p_rival = -0.1"),
    ];
    for (feedback, part) in cases {
        let error = scores.feedback(&feedback, 0).unwrap_err();
        assert!(error.0.contains(part), "{error}");
    }
    assert_eq!(scores, before);
    let shannon = Scores::new(2, EntropyForm::Shannon).feedback(&said(&[0], &[0.5], &[0.1], &[1.0]), 0);
    assert!(shannon.unwrap_err().0.contains("shannon"));
}

#[test]
fn read_times_find_latency_and_bandwidth() {
    let mut times = ReadTimes::default();
    assert_eq!(times.fit(), None);
    for bytes in [1_000, 50_000, 200_000, 10] {
        times.note(bytes, 0.010 + f64::from(bytes) / 50e6);
    }
    times.note(5, f64::NAN);
    let (latency, per_byte) = times.fit().unwrap();
    close(latency, 0.010, 1e-9);
    close(per_byte, 1.0 / 50e6, 1e-13);
    // Equal sizes: everything is latency, and everything equally cheap.
    let mut times = ReadTimes::default();
    (0..9).for_each(|_| times.note(784, 0.002));
    close(times.fit().unwrap().0, 0.002, 1e-12);
    assert!(times.relative(&[784, 784]).iter().all(|cost| (cost - 1.0).abs() < 1e-6));
    let cheap = times.cheapness(&[100, 784, 784]);
    assert!(cheap[0] > cheap[1] && (cheap[1] - 1.0).abs() < 1e-6, "{cheap:?}");
    assert!(times.cheapness(&[]).is_empty());
}

#[test]
fn a_loss_alone_stands_for_probabilities() {
    let (p, rival) = probabilities_of(std::f32::consts::LN_2);
    close(p.into(), 0.5, 1e-6);
    close(rival.into(), 0.5, 1e-6);
    assert_eq!(probabilities_of(-3.0).0, 1.0);
    assert_eq!(probabilities_of(f32::INFINITY).0, 0.0);
}
