//! The published examples, and what must hold for every way to select.

use super::percentile::{Losses, chance};
use super::*;
use crate::plan::{Plan, Shape};
use proptest::prelude::*;

pub(super) fn facts(labels: Vec<u32>, seed: u64, epochs: Option<u32>) -> Facts {
    let sizes = (0..labels.len() as u32).map(|i| 500 + i % 7 * 100).collect();
    Facts { labels, sizes, seed, epochs, class_floor: 0.05 }
}

pub(super) fn selector(name: &str, options: &[(&str, &str)], facts: Facts) -> Selector {
    let mut selection = Selection::named(name).unwrap();
    options.iter().for_each(|(option, value)| selection.set(option, value).unwrap());
    Selector::new(selection, facts).unwrap()
}

/// A model that learns: the probability of the true label grows with the epoch, by the difficulty of the sample.
pub(super) fn learned(id: u32, epoch: u64) -> (f32, f32, f32) {
    let difficulty = (id.wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0;
    let logit = 0.6 * epoch as f32 + 3.0 - 7.0 * difficulty;
    let p = 1.0 / (1.0 + (-logit).exp());
    // How the rest is spread over the other labels has nothing to do with the difficulty.
    let spread = (id.wrapping_mul(40_503) >> 3 & 1_023) as f32 / 1_024.0;
    (p, (1.0 - p) * (0.3 + 0.7 * spread), -p.max(1e-9).ln())
}

pub(super) fn train(selector: &mut Selector, ids: &[u32], epoch: u64) {
    let facts: Vec<(f32, f32, f32)> = ids.iter().map(|&id| learned(id, epoch)).collect();
    let p_true: Vec<f32> = facts.iter().map(|f| f.0).collect();
    let p_rival: Vec<f32> = facts.iter().map(|f| f.1).collect();
    let loss: Vec<f32> = facts.iter().map(|f| f.2).collect();
    let said = Feedback { ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
    selector.feedback(&said).unwrap();
}

/// Trains for some epochs and gives what was chosen in each.
pub(super) fn run(selector: &mut Selector, epochs: std::ops::Range<u64>, readings: &Readings) -> Vec<Chosen> {
    epochs
        .map(|epoch| {
            let chosen = selector.begin(epoch, readings).unwrap().clone();
            let mut ids = chosen.ids.clone();
            ids.dedup();
            train(selector, &ids, epoch);
            chosen
        })
        .collect()
}

#[test]
fn online_draws_by_rank() {
    let found: Vec<f64> = (0..4).map(|rank| baselines::rank_chance(rank, 100.0, 4)).collect();
    for (found, expected) in found.iter().zip([0.6907, 0.2184, 0.0691, 0.0218]) {
        assert!((found - expected).abs() < 5e-5, "{found} is not {expected}");
    }
    // And the draws follow it: 4 samples, many epochs.
    let mut selector = selector("online", &[], facts(vec![0; 4], 7, None));
    let mut drawn = [0_f64; 4];
    run(&mut selector, 0..1, &Readings::default());
    for epoch in 1..4_000 {
        let chosen = selector.begin(epoch, &Readings::default()).unwrap();
        chosen.ids.iter().for_each(|&id| drawn[id as usize] += 1.0);
    }
    let mut by_difficulty: Vec<u32> = (0..4).collect();
    by_difficulty.sort_by(|&a, &b| learned(b, 0).2.total_cmp(&learned(a, 0).2));
    let share: Vec<f64> =
        by_difficulty.iter().map(|&id| drawn[id as usize] / drawn.iter().sum::<f64>()).collect();
    // The class floor adds a sample now and then, so within two points.
    assert!((share[0] - 0.6907).abs() < 0.02 && (share[3] - 0.0218).abs() < 0.02, "{share:?}");
}

#[test]
fn active_bias_measures_how_much_a_prediction_varies() {
    let mut history = baselines::History::new(2);
    assert_eq!(history.deviation(0), None);
    for p in [0.2, 0.6, 0.4] {
        history.visit(0, p);
    }
    assert!((history.deviation(0).unwrap() - 0.16438).abs() < 5e-6, "{:?}", history.deviation(0));
    // Weights: their mean is 1, and the one that varies weighs more.
    let mut selector = selector("active-bias", &[("warmup", "3")], facts(vec![0; 50], 1, None));
    let chosen = run(&mut selector, 0..6, &Readings::default());
    assert!(chosen[2].weights.is_empty() && chosen[3].weights.len() == 50);
    let mean = chosen[3].weights.iter().sum::<f32>() / 50.0;
    assert!((mean - 1.0).abs() < 1e-4, "{mean}");
    assert!(chosen[3].weights.iter().any(|w| *w > 1.1) && chosen[3].weights.iter().any(|w| *w < 0.9));
}

#[test]
fn percentiles_and_their_powers() {
    let mut losses = Losses::new(10);
    losses.push(&(1..=10).map(|i| i as f32 / 10.0).collect::<Vec<_>>());
    assert_eq!(losses.percentile(0.55), 0.5);
    assert_eq!(chance(0.5, 2.0), 0.25);
    assert!((chance(0.5, 0.33) - 0.7955).abs() < 5e-5);
    losses.push(&[5.0, f32::NAN]);
    assert_eq!(losses.queue().len(), 10);
    assert_eq!(losses.percentile(0.55), 0.3, "the oldest two are gone");
}

proptest! {
    /// Against the definition: the share of the last `most` losses that is lower.
    #[test]
    fn percentiles_are_those_of_the_last_losses(
        chunks in prop::collection::vec(prop::collection::vec(0_u8..9, 0..12), 0..9), most in 1_usize..15, asked in 0_u8..9,
    ) {
        let mut losses = Losses::new(most);
        let mut all: Vec<f32> = Vec::new();
        for chunk in chunks {
            let chunk: Vec<f32> = chunk.into_iter().map(f32::from).collect();
            all.extend(&chunk);
            losses.push(&chunk);
            let last = &all[all.len().saturating_sub(most)..];
            let lower = last.iter().filter(|loss| **loss < asked.into()).count();
            prop_assert_eq!(losses.percentile(asked.into()), lower as f64 / last.len().max(1) as f64);
            prop_assert_eq!(losses.queue(), last);
        }
    }
}

#[test]
fn biggest_loser_forwards_all_and_trains_few() {
    let samples = 20_000;
    let mut selector = selector("biggest-loser", &[("power", "2")], facts(vec![0; samples], 1, None));
    let all: Vec<u32> = (0..samples as u32).collect();
    let losses: Vec<f32> = all.iter().map(|&id| learned(id, 3).2).collect();
    selector.begin(0, &Readings::default()).unwrap();
    assert!(selector.keep(&all, &losses).unwrap().iter().all(|kept| *kept), "the first epoch trains on all");
    selector.begin(1, &Readings::default()).unwrap();
    let mut kept = 0;
    for (ids, losses) in all.chunks(100).zip(losses.chunks(100)) {
        kept += selector.keep(ids, losses).unwrap().iter().filter(|kept| **kept).count();
    }
    let share = kept as f64 / samples as f64;
    assert!((0.31..0.42).contains(&share), "a third, and the first thousand: {share}");
    assert!(selector.keep(&[1], &[]).is_err() && selector.keep(&[samples as u32], &[0.5]).is_err());
}

#[test]
fn iis_takes_three_quarters_between_full_epochs() {
    let mut selector = selector("iis", &[("warmup", "2")], facts(vec![0; 30_000], 1, None));
    let kept: Vec<f64> = run(&mut selector, 0..7, &Readings::default())
        .iter()
        .map(|c| c.ids.len() as f64 / 30_000.0)
        .collect();
    assert_eq!((kept[0], kept[1], kept[3], kept[6]), (1.0, 1.0, 1.0, 1.0));
    assert!([2, 4, 5].iter().all(|&e: &usize| (0.74..0.80).contains(&kept[e])), "{kept:?}");
}

#[test]
fn infobatch_keeps_the_sum_of_weights() {
    let mut selector = selector("infobatch", &[], Facts { class_floor: 0.0, ..facts(vec![0; 4], 3, None) });
    selector.begin(0, &Readings::default()).unwrap();
    let p = [0.5_f32; 4];
    let said =
        Feedback { ids: &[0, 1, 2, 3], p_true: &p, p_rival: &p, loss: &[0.1, 0.2, 0.5, 1.2], entropy: None };
    selector.feedback(&said).unwrap();
    let chosen = selector.begin(1, &Readings::default()).unwrap();
    assert_eq!(chosen.ids.len(), 3);
    assert!(chosen.ids.ends_with(&[2, 3]), "only what is strictly below the mean may go: {:?}", chosen.ids);
    assert_eq!(chosen.weights, [2.0, 1.0, 1.0]);
}

#[test]
fn proxy_fixes_the_least_sure_share() {
    let mut selector =
        selector("proxy", &[("warmup", "2"), ("share", "0.3")], facts(vec![0; 1_000], 3, None));
    let chosen = run(&mut selector, 0..5, &Readings::default());
    assert!(chosen[1].summary.proxy && !chosen[2].summary.proxy);
    assert_eq!((chosen[1].ids.len(), chosen[2].ids.len()), (1_000, 300));
    assert_eq!(chosen[2].ids, chosen[4].ids, "for good");
    let doubt = |id: u32| 1.0 - learned(id, 1).0.max(learned(id, 1).1);
    let least_in = chosen[2].ids.iter().map(|&id| doubt(id)).fold(f32::MAX, f32::min);
    let most_out = (0..1_000).filter(|id| !chosen[2].ids.contains(id)).map(doubt).fold(0.0, f32::max);
    assert!(least_in >= most_out - 1e-6, "{least_in} {most_out}");
}

#[test]
fn buckets_shed_what_is_learned_and_recall_when_stuck() {
    let options = [("warmup", "2"), ("stagnation", "2")];
    let mut with = selector("bucket", &options, facts(vec![0; 5_000], 3, None));
    let mut without =
        selector("bucket", &[&options[..], &[("recall", "off")]].concat(), facts(vec![0; 5_000], 3, None));
    let (with, without) =
        (run(&mut with, 0..25, &Readings::default()), run(&mut without, 0..25, &Readings::default()));
    assert_eq!(with[1].ids.len(), 5_000);
    assert!(without[24].ids.len() < 3_500, "{}", without[24].ids.len());
    assert!(without.iter().all(|chosen| chosen.summary.recalled == 0));
    assert!(without.windows(2).all(|pair| pair[1].ids.len() <= pair[0].ids.len()));
    assert!(with.iter().any(|chosen| chosen.summary.recalled > 0), "accuracy reaches its top and stays");
    // Who rests is easier than who does not.
    let mean = |ids: &[u32]| ids.iter().map(|&id| learned(id, 0).2).sum::<f32>() / ids.len() as f32;
    let resting: Vec<u32> = (0..5_000).filter(|id| without[24].ids.binary_search(id).is_err()).collect();
    assert!(mean(&resting) < mean(&without[24].ids));
}

#[test]
fn cost_has_a_vote_when_training_waits_for_io() {
    let mut times = ReadTimes::default();
    [(500, 0.01), (800, 0.016), (1_100, 0.022)].iter().for_each(|&(bytes, s)| times.note(bytes, s));
    let io = Readings { io_bound: true, times, steps: 0 };
    for (name, options) in [
        ("bucket", vec![("warmup", "1"), ("relax", "1"), ("smoothing", "0")]),
        ("weighted", vec![("noise", "0.1"), ("wrong_max", "1")]),
    ] {
        let mean_size = |readings: &Readings| {
            let mut selector = selector(name, &options, facts(vec![0; 4_000], 3, None));
            let chosen = run(&mut selector, 0..6, readings);
            let ids: Vec<u32> = chosen[2..].iter().flat_map(|chosen| chosen.ids.iter().copied()).collect();
            ids.iter().map(|id| f64::from(500 + id % 7 * 100)).sum::<f64>() / ids.len() as f64
        };
        let (plain, dear) = (mean_size(&Readings::default()), mean_size(&io));
        assert!(dear < plain - 5.0, "{name}: {dear} against {plain} bytes");
    }
}

#[test]
fn weighted_is_unbiased_and_takes_turns() {
    let mut selector = selector(
        "weighted",
        &[("noise", "0.2"), ("least", "0.2"), ("weight_max", "5"), ("batch_least", "1"), ("wrong_max", "1")],
        facts(vec![0; 4_000], 3, None),
    );
    let chosen = run(&mut selector, 0..40, &Readings::default());
    let kept: f64 = chosen[5..].iter().map(|c| c.ids.len() as f64 / 4_000.0).sum::<f64>() / 35.0;
    assert!(kept < 0.75, "{kept}");
    // Over the epochs every sample's weights add up to about one per epoch, and none waits longer than 1 / least.
    let mut carried = vec![0.0_f32; 4_000];
    let mut waited = vec![0_u32; 4_000];
    for chosen in &chosen[5..] {
        waited.iter_mut().for_each(|w| *w += 1);
        for (&id, &weight) in chosen.ids.iter().zip(&chosen.weights) {
            carried[id as usize] += weight;
            waited[id as usize] = 0;
        }
        assert!(waited.iter().all(|&w| w <= 5), "{:?}", waited.iter().max());
        // In one epoch less while the waits grow longer: a sample carries its wait when it is over.
        let sum: f32 = chosen.weights.iter().sum();
        assert!((sum / 4_000.0 - 1.0).abs() < 0.25, "{sum}");
    }
    let mean = carried.iter().sum::<f32>() / 35.0 / 4_000.0;
    assert!((mean - 1.0).abs() < 0.1, "{mean}");
    let worst = carried.iter().map(|sum| (sum / 35.0 - 1.0).abs()).fold(0.0, f32::max);
    assert!(worst < 0.5, "{worst}");
}

#[test]
fn jobs_of_one_seed_meet_what_they_have_in_common_in_one_order() {
    let chosen = |ids: Vec<u32>, weights: Vec<f32>| {
        let summary = Summary { samples: 1_000, kept: ids.len() as u32, ..Summary::default() };
        Chosen { epoch: 3, ids, weights, batch_share: 1.0, summary }
    };
    let all = chosen((0..1_000).collect(), Vec::new()).shuffled(7).0;
    assert_eq!(all, Stream::new(7, 3, Purpose::TrainingOrder, &[]).permutation(1_000), "the neutral order");
    let (fives, weights) =
        chosen((0..200).map(|id| id * 5).collect(), (0..200).map(|id| id as f32).collect()).shuffled(7);
    assert_eq!(fives, all.iter().copied().filter(|id| id % 5 == 0).collect::<Vec<_>>());
    assert!(fives.iter().zip(weights).all(|(id, weight)| *id as f32 == weight * 5.0), "each with its weight");
    let mut twice = chosen((0..500).flat_map(|id| [id, id]).collect(), Vec::new()).shuffled(7).0;
    assert!(twice.windows(2).filter(|pair| pair[0] == pair[1]).count() < 10, "repeats lie apart");
    twice.sort_unstable();
    assert!(twice.chunks(2).zip(0..).all(|(pair, id)| pair == [id, id]));
}

#[test]
fn weighted_makes_smaller_batches_of_the_same_weight() {
    let usual = Shape::single(64);
    for (least, shrunk) in [("0.01", true), ("1", false)] {
        let options = [("batch_least", least), ("least", "0.2"), ("weight_max", "5"), ("wrong_max", "1")];
        let mut selector = selector("weighted", &options, facts(vec![0; 6_400], 3, None));
        let chosen = run(&mut selector, 0..4, &Readings::default()).pop().unwrap();
        let plan = Plan::weighted(chosen.ids.clone(), chosen.weights.clone(), chosen.shape(usual)).unwrap();
        assert!(chosen.ids.len() < 5_000);
        // As many steps as the full epoch has, each of about the weight of a full batch; or fewer of more weight.
        assert_eq!((95..=100).contains(&plan.batches()), shrunk, "{} batches", plan.batches());
        let mean = chosen.weights.iter().sum::<f32>() / chosen.weights.len() as f32;
        assert_eq!((mean - 1.0).abs() < 0.2, shrunk, "{mean}");
    }
}

#[test]
fn a_selection_leaves_no_sample_alone_in_a_batch() {
    let chosen = |kept: u32, batch_share: f32| {
        let summary = Summary { samples: 2_000, kept, ..Summary::default() };
        Chosen { epoch: 3, ids: (0..kept).collect(), weights: Vec::new(), batch_share, summary }
    };
    for (world, batch, batch_share) in [(1, 16, 1.0), (1, 64, 1.0), (1, 64, 0.7), (3, 32, 1.0), (5, 64, 0.5)]
    {
        let usual = Shape { world, ..Shape::single(batch) };
        for kept in 2 * world..2_000 {
            let chosen = chosen(kept, batch_share);
            let plan = Plan::of(chosen.ids.clone(), chosen.shape(usual)).unwrap();
            let last = plan.batch_len(plan.batches() - 1);
            assert!(last > 1, "{last} of {kept} in batches of {batch} on {world}");
            let asked = (batch as f32 * batch_share).ceil() as u32;
            let batch = plan.shape().batch;
            assert!(batch <= asked && 4 * batch >= 3 * asked, "batches of {batch}, {asked} were asked for");
        }
        let cut_off = Shape { drop_last: true, ..usual };
        assert_eq!(chosen(65, 1.0).shape(cut_off).batch, batch, "nobody is left alone there");
    }
    let small = chosen(841, 1.0).shape(Shape::single(8)).batch;
    assert_eq!(small, 8, "none of 6 to 8 will do, and smaller ones would be another training");
    let everything = chosen(2_000, 1.0).shape(Shape::single(1_999)).batch;
    assert_eq!(everything, 1_999, "an epoch of everything is cut as the user says");
}

#[test]
fn weighted_goes_by_what_gradients_turn_out_to_be() {
    // Two models to whom two thirds are easy; to one of them these are hard again at every second visit.
    let kept = |jumps: bool| {
        let mut selector = selector("weighted", &[], facts(vec![0; 4_000], 3, None));
        let mut last = 0;
        for epoch in 0..8 {
            let ids = selector.begin(epoch, &Readings::default()).unwrap().ids.clone();
            last = ids.len();
            let p = |&id: &u32| match id % 3 {
                0 => 0.3, // a third is hard to both
                _ if jumps && (u64::from(id) + epoch).is_multiple_of(2) => 0.4,
                _ => 0.99,
            };
            let p_true: Vec<f32> = ids.iter().map(p).collect();
            let zeros = vec![0.0; ids.len()];
            let said = Feedback { ids: &ids, p_true: &p_true, p_rival: &zeros, loss: &zeros, entropy: None };
            selector.feedback(&said).unwrap();
        }
        last
    };
    assert!(kept(true) as f64 > 1.25 * kept(false) as f64, "{} and {}", kept(true), kept(false));
}

#[test]
fn weighted_is_bolder_with_a_model_that_treats_every_sample_by_itself() {
    let chosen = |norm: Norm, options: &[(&str, &str)]| {
        let mut selector = selector("weighted", options, facts(vec![0; 4_000], 3, None));
        selector.norm(norm);
        let epochs = run(&mut selector, 0..12, &Readings::default());
        let kept: usize = epochs[4..].iter().map(|chosen| chosen.ids.len()).sum();
        // What is known of the model is part of a saved state.
        let mut resumed = self::selector("weighted", options, facts(vec![0; 4_000], 3, None));
        resumed.restore(&selector.state()).unwrap();
        (resumed.begin(12, &Readings::default()).unwrap().clone(), kept)
    };
    let most = |chosen: &Chosen| chosen.weights.iter().copied().fold(0.0, f32::max) / chosen.batch_share;
    let ((careful, often), (bold, rarely)) = (chosen(Norm::Unknown, &[]), chosen(Norm::Absent, &[]));
    assert!(100 * rarely < 95 * often, "{rarely} {often}");
    assert_eq!((most(&careful), most(&bold)), (5.0, 3.0));
    assert!(bold.summary.reason.contains("no batch norm") && !careful.summary.reason.contains("norm"));
    let set = [("noise", "0.2"), ("least", "0.2"), ("weight_max", "5")];
    assert_eq!(chosen(Norm::Absent, &set).0.ids, careful.ids, "what is set stays");
}

#[test]
fn weighted_is_the_same_for_gradients_of_any_scale() {
    let kept = |scale: f32| {
        let mut selector = selector("weighted", &[], facts(vec![0; 4_000], 3, None));
        let ids: Vec<u32> = selector.begin(0, &Readings::default()).unwrap().ids.clone();
        let p_true: Vec<f32> = ids.iter().map(|&id| 1.0 - scale * (0.1 + learned(id, 0).2)).collect();
        let zeros = vec![0.0; ids.len()];
        let said = Feedback { ids: &ids, p_true: &p_true, p_rival: &zeros, loss: &zeros, entropy: None };
        selector.feedback(&said).unwrap();
        selector.begin(1, &Readings::default()).unwrap().ids.len() as f64 / 4_000.0
    };
    assert!((kept(0.1) - kept(0.001)).abs() < 0.03, "{} {}", kept(0.1), kept(0.001));
}

#[test]
fn weighted_brings_back_what_was_forgotten() {
    let mut selector = selector("weighted", &[("batch_least", "1")], facts(vec![0; 1_000], 3, Some(100)));
    run(&mut selector, 0..10, &Readings::default());
    let chosen = selector.begin(10, &Readings::default()).unwrap().clone();
    let forgotten = *chosen.ids.iter().zip(&chosen.weights).find(|(_, w)| **w > 2.0).unwrap().0;
    let said = Feedback { ids: &[forgotten], p_true: &[0.2], p_rival: &[0.7], loss: &[1.6], entropy: None };
    selector.feedback(&said).unwrap();
    let next = selector.begin(11, &Readings::default()).unwrap();
    let place = next.ids.binary_search(&forgotten).unwrap();
    assert_eq!(next.weights[place], 1.0);
    assert_eq!(
        selector.begin(95, &Readings::default()).unwrap().ids.len(),
        1_000,
        "the last epochs see everything"
    );
}

/// An easy sample.
fn said(ids: &[u32]) -> Feedback<'_> {
    Feedback { ids, p_true: &[0.99], p_rival: &[0.01], loss: &[0.01], entropy: None }
}

#[test]
fn bad_input_is_refused_or_contained() {
    let none = Selector::new(Selection::Uniform, facts(vec![], 0, None));
    assert!(none.unwrap_err().0.contains("no samples"));
    assert!(Selector::new(Selection::Uniform, facts(vec![0], 0, Some(0))).is_err());
    assert!(
        Selector::new(Selection::Uniform, Facts { class_floor: 1.5, ..facts(vec![0], 0, None) }).is_err()
    );
    for label in [u32::MAX - 1, u32::MAX] {
        let error = Selector::new(Selection::Uniform, facts(vec![label], 0, None)).unwrap_err().0;
        assert!(error.contains(&label.to_string()), "{error}");
    }
    let mut selector = selector("weighted", &[], facts(vec![0, 1, 0], 0, None));
    assert!(selector.feedback(&said(&[0])).unwrap_err().0.contains("before the first epoch"));
    selector.begin(0, &Readings::default()).unwrap();
    assert!(selector.feedback(&said(&[3])).unwrap_err().0.contains("sample 3"));
    for epoch in 0..12 {
        let ids = selector.begin(epoch, &Readings::default()).unwrap().ids.clone();
        ids.iter().for_each(|&id| selector.feedback(&said(&[id])).unwrap());
        if let Some(&skipped) = [0, 1, 2].iter().find(|id| !ids.contains(id)) {
            assert!(selector.feedback(&said(&[skipped])).unwrap_err().0.contains("not served"));
        }
    }
    assert!(selector.begin(3, &Readings::default()).unwrap_err().0.contains("epoch 3 is past"));
}

#[test]
fn a_state_is_refused_when_it_is_of_another_run_or_damaged() {
    let labels = vec![0, 1, 0, 1];
    let mut selector = selector("bucket", &[], facts(labels.clone(), 5, None));
    run(&mut selector, 0..3, &Readings::default());
    let state = selector.state();
    for other in [
        super::tests::selector("bucket", &[], facts(labels.clone(), 6, None)),
        super::tests::selector("bucket", &[("relax", "0.3")], facts(labels.clone(), 5, None)),
        super::tests::selector("weighted", &[], facts(labels.clone(), 5, None)),
        super::tests::selector("bucket", &[], facts(vec![0, 0, 0, 1], 5, None)),
    ] {
        let mut other = other;
        assert!(other.restore(&state).unwrap_err().0.contains("another"));
    }
    for cut in [0, 7, state.len() / 2, state.len() - 1] {
        assert!(selector.clone().restore(&state[..cut]).is_err());
    }
    for place in (0..state.len()).step_by(3) {
        let mut spoiled = state.clone();
        spoiled[place] ^= 4;
        assert!(selector.clone().restore(&spoiled).is_err(), "byte {place}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For every way: never empty, ids in order and of the data set, no class lost, the same again after a resume at
    /// any epoch, whatever order the feedback came in.
    #[test]
    fn what_holds_for_every_way(
        way in 0_usize..9, samples in 1_usize..300, classes in 1_u32..6, seed: u64, io: bool, stop in 1_u64..9, nan: bool,
    ) {
        let labels: Vec<u32> = (0..samples as u32).map(|i| if i == 0 { classes - 1 } else { i * 7 % classes }).collect();
        let name = Selection::NAMES[way];
        let facts = Facts { labels: labels.clone(), ..facts(labels.clone(), seed, Some(10)) };
        let readings = Readings { io_bound: io, ..Readings::default() };
        let mut selector = Selector::new(Selection::named(name).unwrap(), facts.clone()).unwrap();
        let mut other = selector.clone();
        for epoch in 0..10 {
            let chosen = selector.begin(epoch, &readings).unwrap().clone();
            prop_assert!(!chosen.ids.is_empty());
            prop_assert!(chosen.ids.is_sorted() && (chosen.ids[chosen.ids.len() - 1] as usize) < samples);
            prop_assert!(chosen.weights.is_empty() || chosen.weights.len() == chosen.ids.len());
            prop_assert!(chosen.weights.iter().all(|w| w.is_finite() && *w > 0.0));
            for class in &labels {
                prop_assert!(chosen.ids.iter().any(|&id| labels[id as usize] == *class), "class {} lost", class);
            }
            prop_assert_eq!(&chosen, other.begin(epoch, &readings).unwrap());
            let mut ids = chosen.ids.clone();
            ids.dedup();
            train(&mut selector, &ids, epoch);
            for id in ids.iter().rev() {
                train(&mut other, &[*id], epoch);
            }
            if nan && epoch == 2 {
                let said = Feedback { ids: &ids[..1], p_true: &[f32::NAN], p_rival: &[0.0], loss: &[f32::NAN], entropy: None };
                selector.feedback(&said).unwrap();
                other.feedback(&said).unwrap();
            }
            if epoch == stop {
                let mut resumed = Selector::new(Selection::named(name).unwrap(), facts.clone()).unwrap();
                resumed.restore(&other.state()).unwrap();
                prop_assert_eq!(resumed.state(), other.state());
                other = resumed;
            }
        }
    }
}
