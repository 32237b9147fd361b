//! The pilot against small machines whose every setting is known.

use super::*;
use crate::rng::Stream;
use proptest::prelude::*;

fn knob(name: &'static str, values: &[&str], at: usize) -> Knob {
    Knob { name, values: values.iter().map(ToString::to_string).collect(), at, pinned: false }
}

/// Four knobs, all of them wrong.
fn bad_start() -> Pilot {
    Pilot::new(vec![
        knob("threads", &["1", "2", "4", "8"], 0),
        knob("reads", &["1", "8", "64"], 0),
        knob("split", &["none", "best"], 0),
        knob("ahead", &["1", "4", "16"], 0),
    ])
}

/// Seconds per sample of a machine: the slowest of fetching, decoding and training.
fn machine(at: &[usize]) -> f64 {
    let link = [0.010, 0.004][at[2]];
    let latency = [0.060, 0.012, 0.002][at[1]];
    let decode = [0.016, 0.008, 0.004, 0.004][at[0]] * [1.0, 0.7][at[2]];
    let ahead = [1.3, 1.05, 1.0][at[3]];
    f64::max(link, latency).max(decode).max(0.003) * ahead
}

fn seen(epoch: u64, seconds_per_sample: f64) -> Observed<'static> {
    Observed {
        epoch,
        seconds_per_sample,
        drift: 1.0,
        excess: 1.0,
        least_s: 0.0,
        cause: "71 % of the time is waiting for the link",
    }
}

/// Epochs with the real machine `real`, of which the pilot knows `model`.
fn fly(
    pilot: &mut Pilot,
    epochs: std::ops::Range<u64>,
    real: impl Fn(&[usize], u64) -> f64,
    model: impl Fn(&[usize]) -> f64,
) -> Vec<(f64, Vec<Decision>)> {
    epochs
        .map(|epoch| {
            let seconds = real(&pilot.setting(), epoch);
            (seconds, pilot.observe(seen(epoch, seconds), |at| Some(model(at))))
        })
        .collect()
}

#[test]
fn every_knob_wrong_is_mended_one_at_a_time_and_stays() {
    let mut pilot = bad_start();
    let flight = fly(&mut pilot, 0..12, |at, _| machine(at), machine);
    let best = machine(&[3, 2, 1, 2]);
    for (epoch, (seconds, decisions)) in flight.iter().enumerate() {
        let moved = decisions.iter().filter(|one| one.action == Action::Moved).count();
        assert!(moved <= 1, "{decisions:?}");
        assert!(decisions.iter().all(|one| one.action != Action::Undone), "{decisions:?}");
        assert!(epoch < 5 || *seconds <= best * 1.1, "epoch {epoch}: {seconds} s, best {best} s");
    }
    let first = &flight[0].1[0];
    assert_eq!((first.knob, &*first.from, first.action, first.epoch), ("reads", "1", Action::Moved, 1));
    let told = first.to_string();
    assert!(
        told.starts_with("epoch 1: 71 % of the time is waiting for the link; reads 1 -> 64, predicted"),
        "{told}"
    );
    let kept = &flight[1].1[0];
    assert_eq!(
        (kept.action, kept.measured.map(|m| (m * 100.0).round())),
        (Action::Kept, Some((first.predicted * 100.0).round()))
    );
    assert!(flight[8..].iter().all(|(_, decisions)| decisions.is_empty()), "nothing is left to do");
}

#[test]
fn what_does_not_help_is_undone_and_left_alone_for_a_while() {
    let mut pilot = Pilot::new(vec![knob("split", &["none", "best"], 0)]);
    // It is promised twice the speed, and gets a little slower.
    let flight = fly(&mut pilot, 0..20, |at, _| [1.0, 1.1][at[0]], |at| [1.0, 0.5][at[0]]);
    let actions: Vec<(u64, Action)> = flight
        .iter()
        .enumerate()
        .flat_map(|(epoch, (_, decisions))| decisions.iter().map(move |one| (epoch as u64, one.action)))
        .collect();
    assert_eq!(
        actions[..4],
        [(0, Action::Moved), (1, Action::Undone), (9, Action::Moved), (10, Action::Undone)]
    );
    assert_eq!(actions.len(), 4, "then for sixteen epochs");
    assert_eq!(pilot.setting(), [0]);
    let undone = &flight[1].1[0];
    assert_eq!((&*undone.from, &*undone.to, undone.epoch, undone.since), ("best", "none", 2, 1));
    assert_eq!(undone.to_string(), "epoch 2: split best -> none undone: predicted 2.00x, measured 0.91x");
}

#[test]
fn pinned_knobs_and_what_cannot_be_predicted_stay() {
    let mut pilot = bad_start();
    for knob in &mut pilot.knobs {
        knob.pinned = knob.name != "threads";
    }
    fly(&mut pilot, 0..8, |at, _| machine(at), |at| machine(&[at[0], 2, 1, 2]));
    assert_eq!(pilot.setting()[1..], [0, 0, 0]);
    let mut blind = bad_start();
    assert!(blind.observe(seen(0, 1.0), |_| None::<f64>).is_empty());
    assert!(blind.observe(seen(1, f64::NAN), |_| Some(1.0)).is_empty());
    assert!(blind.observe(seen(2, 1.0), |_| Some(f64::NAN)).is_empty());
    assert_eq!(blind.setting(), [0; 4]);
}

#[test]
fn of_equal_promises_the_largest_step_is_taken() {
    let mut pilot = Pilot::new(vec![knob("threads", &["1", "2", "4", "8"], 0)]);
    fly(&mut pilot, 0..1, |_, _| 1.0, |at| if at[0] == 0 { 1.0 } else { 0.5 });
    assert_eq!(pilot.setting(), [3]);
}

#[test]
fn two_knobs_that_hold_each_other_back_are_moved_one_after_the_other() {
    let mut pilot = Pilot::new(vec![knob("threads", &["1", "2"], 0), knob("reads", &["1", "8"], 0)]);
    let held = |at: &[usize]| f64::max([1.0, 0.5][at[0]], [0.99, 0.4][at[1]]);
    let flight = fly(&mut pilot, 0..5, |at, _| held(at), held);
    assert_eq!(pilot.setting(), [1, 1]);
    assert!(flight[0].1[0].reason.ends_with("this helps together with another"), "{flight:?}");
    assert!(flight.iter().all(|(_, lines)| lines.iter().all(|one| one.action != Action::Undone)));
}

#[test]
fn the_first_of_two_is_taken_back_when_the_second_comes_to_nothing() {
    let mut pilot = Pilot::new(vec![knob("threads", &["1", "2"], 0), knob("reads", &["1", "8"], 0)]);
    let model = |at: &[usize]| f64::max([1.0, 0.5][at[0]], [0.99, 0.4][at[1]]);
    // In truth more reads bring nothing, and more threads cost a little.
    let flight = fly(&mut pilot, 0..6, |at, _| [1.0, 1.03][at[1]] + [0.0, 0.01][at[0]], model);
    assert_eq!(pilot.setting(), [0, 0]);
    let undone: Vec<&str> = flight
        .iter()
        .flat_map(|(_, lines)| lines.iter().filter(|one| one.action == Action::Undone).map(|one| one.knob))
        .collect();
    assert_eq!(undone.len(), 2, "both, one after the other: {flight:?}");
    assert_ne!(undone[0], undone[1]);
}

#[test]
fn what_changes_by_itself_is_not_counted_for_or_against_a_move() {
    let mut pilot = Pilot::new(vec![knob("split", &["none", "best"], 0)]);
    // The cache has filled: the next epoch takes half the time anyway, and the move brings nothing.
    let first = Observed { drift: 0.5, ..seen(0, 1.0) };
    pilot.observe(first, |at| Some([1.0, 0.8][at[0]]));
    let after = pilot.observe(seen(1, 0.5), |_| None::<f64>);
    assert_eq!((after[0].action, after[0].measured), (Action::Undone, Some(1.0)));
    // Somebody else took half of the cores meanwhile.
    let mut pilot = Pilot::new(vec![knob("split", &["none", "best"], 0)]);
    pilot.observe(seen(0, 1.0), |at| Some([1.0, 0.5][at[0]]));
    let after = pilot.observe(Observed { excess: 2.0, ..seen(1, 1.0) }, |_| None::<f64>);
    assert_eq!((after[0].action, after[0].measured), (Action::Kept, Some(2.0)));
}

#[test]
fn what_pays_later_may_cost_at_first() {
    let forecast = |at: &[usize]| [Forecast::from(1.0), Forecast { next_s: 1.1, lasting_s: 0.5 }][at[0]];
    let again = |_: &[usize]| None::<f64>;
    for (first, second, action) in [(1.1, 0.5, Action::Kept), (1.1, 1.2, Action::Undone)] {
        let mut pilot = Pilot::new(vec![knob("split", &["none", "best"], 0)]);
        let moved = pilot.observe(seen(0, 1.0), |at| Some(forecast(at))).remove(0);
        assert!(moved.action == Action::Moved && (moved.predicted - 1.0 / 1.1).abs() < 1e-9, "{moved}");
        assert!(moved.reason.ends_with("(2.00x in later epochs)"), "{moved}");
        assert!(pilot.observe(seen(1, first), again).is_empty(), "the next epoch is its trial, too");
        let judged = pilot.observe(seen(2, second), again).remove(0);
        assert_eq!((judged.action, judged.since), (action, 1), "{judged}");
        assert!((judged.predicted - 2.0).abs() < 1e-9, "{judged}");
    }
    // What costs too much at once has no second.
    let mut pilot = Pilot::new(vec![knob("split", &["none", "best"], 0)]);
    pilot.observe(seen(0, 1.0), |at| Some(forecast(at)));
    assert_eq!(pilot.observe(seen(1, 2.5), again).remove(0).action, Action::Undone);
    // Inside an epoch it is the same.
    let mut pilot = bad_start();
    let tried = Tried {
        epoch: 0,
        knob: "split",
        to: 1,
        before_s: 0.1,
        predicted: 0.9,
        measured: 0.8,
        lasting: 3.0,
        cause: "",
    };
    assert_eq!(pilot.tried(tried).len(), 1);
    let judged = pilot.observe(seen(1, 0.04), again).remove(0);
    assert_eq!((judged.action, judged.measured.map(f64::round)), (Action::Kept, Some(3.0)));
    // The same without anything to come is not even tried.
    let mut pilot = Pilot::new(vec![knob("split", &["none", "best"], 0)]);
    assert!(pilot.observe(seen(0, 1.0), |at| Some([1.0, 1.1][at[0]])).is_empty());
}

#[test]
fn a_move_inside_an_epoch_has_had_its_trial() {
    let tried = |measured| Tried {
        epoch: 0,
        knob: "split",
        to: 1,
        before_s: 0.1,
        predicted: 2.0,
        measured,
        lasting: 2.0,
        cause: "after 500 samples the link is the limit",
    };
    let mut pilot = bad_start();
    let lines: Vec<String> = pilot.tried(tried(1.9)).iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "epoch 0: after 500 samples the link is the limit; split none -> best, predicted 2.00x",
            "epoch 1: split none -> best kept: predicted 2.00x, measured 1.90x"
        ]
    );
    assert_eq!(pilot.setting(), [0, 0, 1, 0]);
    let mut pilot = Pilot::new(vec![knob("split", &["none", "best"], 0)]);
    let undone = pilot.tried(tried(0.9)).pop().unwrap();
    assert_eq!((undone.action, pilot.setting()), (Action::Undone, vec![0]));
    let flight = fly(&mut pilot, 1..20, |_, _| 1.0, |at| [1.0, 0.5][at[0]]);
    let again = flight.iter().position(|(_, decisions)| !decisions.is_empty());
    assert_eq!(again, Some(7), "it is left alone for a while");
    assert!(pilot.tried(Tried { knob: "unknown", ..tried(2.0) }).is_empty());
    assert!(pilot.tried(Tried { to: 9, ..tried(2.0) }).is_empty());
}

proptest! {
    /// Whatever the machine does, one knob moves at a time, pinned ones never, and with noise below the margins nothing is moved
    /// that the model does not promise.
    #[test]
    fn at_most_one_knob_per_epoch(seed: u64, pinned in 0_usize..4, noise in 0.0_f64..0.4) {
        let mut pilot = bad_start();
        pilot.knobs[pinned].pinned = true;
        let mut stream = Stream::from_key(seed);
        for epoch in 0..30 {
            let before = pilot.setting();
            let measured = machine(&before) * (1.0 + noise * stream.unit());
            let decisions = pilot.observe(seen(epoch, measured), |at| Some(machine(at)));
            let after = pilot.setting();
            let undone = decisions.iter().filter(|one| one.action == Action::Undone).count();
            let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
            prop_assert!(moved <= 1 + undone, "{decisions:?}");
            prop_assert_eq!(after[pinned], 0);
        }
    }
}

#[test]
fn where_the_model_is_the_limit_nothing_is_predicted_in_vain() {
    for (least_s, asked) in [(0.0, true), (0.05, true), (0.0595, false)] {
        let (mut pilot, mut predictions) = (bad_start(), 0);
        let decided = pilot.observe(Observed { least_s, ..seen(0, 0.06) }, |_| {
            predictions += 1;
            Some(0.0595_f64)
        });
        assert!(decided.is_empty(), "{decided:?}");
        assert_eq!(predictions > 1, asked, "{least_s}: {predictions}");
    }
}
