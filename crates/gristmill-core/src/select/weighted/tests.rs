//! What `weighted` promises: the noise it says, no sample that weighs too much, and caution where little is known.

use super::super::tests::{facts, learned, run, selector, train};
use super::super::{Facts, Feedback, Norm, ReadTimes, Readings, Selector};
use super::Weighted;
use crate::math::exp2;
use crate::rng::{Stream, key};

#[test]
fn nothing_is_skipped_while_much_is_predicted_wrongly() {
    // What the second epoch trains, and why, if this share of 4,000 samples was wrong in the first.
    let second = |wrong: f32, options: &[(&str, &str)], epochs: Option<u32>| {
        let mut selector = selector("weighted", options, facts(vec![0; 4_000], 3, epochs));
        let ids: Vec<u32> = selector.begin(0, &Readings::default()).unwrap().ids.clone();
        let wrongly = |id: u32| (id as f32) < wrong * 4_000.0;
        let p_true: Vec<f32> = ids.iter().map(|&id| if wrongly(id) { 0.3 } else { 0.7 }).collect();
        let p_rival: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
        let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
        let said = Feedback { ids: &ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
        selector.feedback(&said).unwrap();
        let chosen = selector.begin(1, &Readings::default()).unwrap();
        (chosen.ids.len(), chosen.summary.reason.clone())
    };
    let [few, some, many] = [0.09, 0.22, 0.25].map(|wrong| second(wrong, &[], None));
    assert!(few.0 < 3_300 && !few.1.contains("wrongly"), "{few:?}");
    assert!(some.0 > 3_400 && some.0 < 3_900 && some.1.contains("wrongly yet"), "{some:?}");
    assert_eq!(many.0, 4_000);
    assert!(many.1.starts_with("every sample: 25 % are predicted wrongly"), "{}", many.1);
    let off = second(0.25, &[("wrong_max", "1")], None);
    assert!(off.0 < 3_200 && !off.1.contains("wrongly"), "{off:?}");
    let blind = {
        let mut selector = selector("weighted", &[], facts(vec![0; 100], 3, None));
        selector.begin(0, &Readings::default()).unwrap();
        selector.unjudged();
        let (ids, p, loss): (Vec<u32>, _, _) = ((0..100).collect(), [0.2; 100], [1.6; 100]);
        let said = Feedback { ids: &ids, p_true: &p, p_rival: &[0.8; 100], loss: &loss, entropy: None };
        selector.feedback(&said).unwrap();
        selector.begin(1, &Readings::default()).unwrap().summary.reason.clone()
    };
    assert!(!blind.contains("wrongly") && blind.contains("wrong_max"), "nobody knows who was right: {blind}");
    // In the second of many epochs there is time.
    assert!(second(0.25, &[], Some(60)).0 < 3_700);
    assert_eq!(second(0.25, &[], Some(3)).0, 4_000, "not in the second of few");
}

/// Trains `epochs` epochs of samples that look different at every visit, as under random crops: each has a share of
/// visits at which it is hard. Gives the noise that skipping really added in the last half, against what `noise` allows.
fn noise_found(samples: u32, epochs: u64, noise: f64) -> f64 {
    let options = [("wrong_max", "1"), ("full_share", "0"), ("noise", &noise.to_string())];
    let mut selector =
        selector("weighted", &options, facts(vec![0; samples as usize], 3, Some(epochs as u32)));
    let hard = |id: u32| f64::from(id % 64) / 640.0;
    let found = |epoch: u64, id: u32| {
        let unit = |purpose| Stream::from_key(key(&[epoch, id.into(), purpose])).unit();
        // Easy views are of many sizes, down to nothing; none of them tells how often the hard ones come.
        if unit(0) < hard(id) { 0.45 } else { exp2(-2.0 - 14.0 * unit(1)) as f32 }
    };
    let (mut added, mut all) = (0.0, 0.0);
    for epoch in 0..epochs {
        let chosen = selector.begin(epoch, &Readings::default()).unwrap().clone();
        let p_true: Vec<f32> = chosen.ids.iter().map(|&id| 1.0 - found(epoch, id)).collect();
        let p_rival: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
        let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
        let said =
            Feedback { ids: &chosen.ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
        selector.feedback(&said).unwrap();
        if epoch >= epochs / 2 {
            // A sample of weight w that comes once in w epochs adds (w - 1) of its square in each of them.
            let weight = |place: usize| f64::from(chosen.weights[place] / chosen.batch_share);
            let square = |place: usize| f64::from(found(epoch, chosen.ids[place])).powi(2);
            added += (0..chosen.ids.len()).map(|i| weight(i) * (weight(i) - 1.0) * square(i)).sum::<f64>();
            all += (0..samples).map(|id| f64::from(found(epoch, id)).powi(2)).sum::<f64>();
        }
    }
    added / all / noise
}

#[test]
fn skipping_adds_the_noise_that_is_allowed_though_samples_look_different_at_every_visit() {
    // Few samples: most steps of their sizes have few visits, and what the last visit was says next to nothing.
    for (samples, noise) in [(2_000, 0.1), (2_000, 0.02), (20_000, 0.1)] {
        let found = noise_found(samples, 40, noise);
        assert!((0.4..2.0).contains(&found), "{samples} samples, {noise}: {found} times as much");
    }
}

#[test]
fn before_any_sample_was_seen_twice_none_counts_for_more_than_two() {
    // Easy samples, and a model without batch norm, which may let them wait for long.
    let mut selector =
        selector("weighted", &[("weight_max", "20"), ("wrong_max", "1")], facts(vec![0; 4_000], 3, None));
    selector.norm(Norm::Absent);
    let chosen = run(&mut selector, 0..6, &Readings::default());
    let most = |epoch: usize| {
        let chosen = &chosen[epoch];
        chosen.weights.iter().copied().fold(0.0, f32::max) / chosen.batch_share
    };
    assert!(chosen[1].ids.len() < 4_000 && most(1) <= 2.001, "{}", most(1));
    assert!(most(5) > 3.0, "{}", most(5));
}

#[test]
fn the_more_is_predicted_wrongly_the_less_noise_is_added() {
    let weighted = Weighted::default();
    let allowance = |wrong| weighted.allowance(1.0, wrong, 50, Some(100));
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(allowance(0.1), 1.0);
    near(allowance(0.02), 1.0);
    near(allowance(0.25), 0.0);
    assert!(allowance(0.15) < 0.7 && allowance(0.2) < 0.5 * allowance(0.15));
    let known = |wrong| weighted.allowance(4.0, wrong, 50, Some(100));
    near(known(0.1), 1.0);
    near(known(0.05), 2.0);
    near(known(0.001), 4.0);
    near(known(0.25), 0.0);
    near(Weighted { wrong_max: 1.0, ..weighted }.allowance(4.0, 0.001, 50, Some(100)), 1.0);
}

#[test]
fn more_noise_is_added_where_batch_norm_goes_by_weights_and_few_are_predicted_wrongly() {
    let told = |options: &[(&str, &str)], norm, judged: bool| {
        let begin = || selector("weighted", options, facts(vec![0; 4_000], 3, Some(30)));
        let mut selector = begin();
        selector.norm(norm);
        if !judged {
            // A run that was stopped knows it when it goes on, in another process.
            selector.unjudged();
            let saved = selector.state();
            selector = begin();
            selector.restore(&saved).unwrap();
            selector.norm(norm);
        }
        let last = run(&mut selector, 0..9, &Readings::default()).pop().unwrap();
        (last.ids.len(), last.summary.reason.contains("more than else, since only"))
    };
    let kept = |options: &[(&str, &str)], norm| told(options, norm, true).0;
    let least = ("least", "0.1");
    let [weighed, unknown] = [Norm::Weighed, Norm::Unknown].map(|norm| kept(&[least], norm));
    assert!(6 * weighed < 5 * unknown, "{weighed} against {unknown}");
    assert_eq!(kept(&[least, ("easy", "1")], Norm::Weighed), unknown);
    assert_eq!(kept(&[least, ("easy", "4")], Norm::Unknown), weighed);
    assert!(told(&[], Norm::Weighed, true).1 && !told(&[], Norm::Unknown, true).1, "the reason says so");
    let blind = told(&[least], Norm::Weighed, false);
    assert_eq!(blind, (unknown, false), "nobody knows who was right");
}

/// A `weighted` that has seen every sample twice, each time with the same outcome.
fn settled(options: &[(&str, &str)], facts: Facts) -> Selector {
    let options: Vec<_> = options.iter().copied().chain([("warmup", "2")]).collect();
    let mut selector = selector("weighted", &options, facts);
    for epoch in 0..2 {
        let all = selector.begin(epoch, &Readings::default()).unwrap().ids.clone();
        train(&mut selector, &all, 4);
    }
    selector
}

#[test]
fn weighted_adds_the_noise_it_may_with_and_without_cost() {
    let mut times = ReadTimes::default();
    [(100, 0.001), (100_000, 1.0)].iter().for_each(|&(bytes, s)| times.note(bytes, s));
    for io_bound in [false, true] {
        // Sizes over three orders of magnitude, which have nothing to do with the difficulty.
        let sizes = (0..20_000_u32).map(|id| 100 << ((id.wrapping_mul(40_503) >> 7 & 1_023) / 103)).collect();
        let facts = Facts { sizes, ..facts(vec![0; 20_000], 3, None) };
        let options = [
            ("noise", "0.1"),
            ("batch_least", "1"),
            ("weight_max", "1000"),
            ("least", "0.01"),
            ("wrong_max", "1"),
        ];
        let mut selector = settled(&options, facts);
        let size = |id: u32| f64::from(1.0 - learned(id, 4).0).powi(2);
        let chosen = selector.begin(2, &Readings { io_bound, times, steps: 0 }).unwrap();
        // A sample with chance q is there with chance q and weight 1 / q: this is its noise on average.
        let pairs = chosen.ids.iter().zip(&chosen.weights).map(|(&id, &w)| (id, f64::from(w)));
        let added: f64 = pairs.map(|(id, w)| w * (w - 1.0) * size(id)).sum();
        let share = added / (0..20_000).map(size).sum::<f64>();
        assert!((share - 0.1).abs() < 0.03, "{share} with cost {io_bound}");
        assert!(chosen.ids.len() < 15_000, "{}", chosen.ids.len());
    }
}

#[test]
fn weighted_may_add_more_noise_early_in_a_run_whose_end_is_known() {
    let kept = |early: &str, epoch: u64, epochs: Option<u32>| {
        let options = [("early", early), ("full_share", "0"), ("least", "0.01")];
        let mut selector = settled(&options, facts(vec![0; 4_000], 3, epochs));
        selector.begin(epoch, &Readings::default()).unwrap().ids.len()
    };
    let often = |early| [2, 50, 99].map(|epoch| kept(early, epoch, Some(100)));
    let [even, later @ ..] = often("1");
    assert_eq!(later, [even; 2]);
    let [first, middle, last] = often("8");
    assert!(first < middle && middle < last && 5 * first < 4 * even, "{first}, {middle}; else {even}");
    assert_eq!(last, even);
    assert_eq!(kept("8", 2, None), even, "nobody knows what is early");
}

#[test]
fn batches_stay_whole_in_long_runs_whose_batch_norm_goes_by_weights() {
    let share = |epochs, norm| {
        let readings = Readings { steps: 200, ..Readings::default() };
        let mut selector = selector("weighted", &[], facts(vec![0; 4_000], 3, epochs));
        selector.norm(norm);
        run(&mut selector, 0..12, &readings).last().unwrap().batch_share
    };
    let (weighed, unknown) = (Norm::Weighed, Norm::Unknown);
    assert!(share(Some(30), weighed) > 0.999);
    for (epochs, norm) in [(Some(20), weighed), (None, weighed), (Some(30), unknown)] {
        assert!(share(epochs, norm) < 0.8, "{epochs:?} {norm:?}");
    }
}
