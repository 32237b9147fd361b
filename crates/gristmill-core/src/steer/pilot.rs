//! Moves knobs: one at a time, at an epoch's boundary, with a reason that a person can check.
//!
//! A [`Knob`] is a decision with a few values. After every epoch the [`Pilot`] is told how long that took per sample, and
//! asks a prediction (the caller's: the simulator with what was measured) for every setting that differs in one knob. The one
//! that promises most is moved to, if that is clearly more than nothing. The next epoch is its trial: what was promised
//! stands beside what was measured, and a move that did not help is undone and not tried again for a while.
//!
//! Two knobs can hold each other back: with as few reads as threads, more of either alone brings nothing. So if no single
//! move promises enough, pairs are looked at, and the better half of the best pair is moved first.
//!
//! Deliberately not here: what a knob does, how an epoch is predicted or measured, and accuracy ([`super::guard`]).

use std::fmt;

/// A move must promise this much.
const GAIN_MIN: f64 = 1.05;
/// A move that brought less than this is undone.
const KEPT_MIN: f64 = 1.02;
/// The first half of a pair need not help by itself, but must not harm.
const HALF_MIN: f64 = 0.95;
/// Epochs for which a move that did not help is not tried again; twice as many each time.
const BARRED_EPOCHS: u64 = 8;

/// One adjustable decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    /// Its name, as in the settings.
    pub name: &'static str,
    /// What it may be, in the order of a ladder.
    pub values: Vec<String>,
    /// Which of them it is.
    pub at: usize,
    /// Whether it stays there.
    pub pinned: bool,
}

/// What an epoch came to.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// Which epoch.
    pub epoch: u64,
    /// Seconds per sample that it had: epochs of different lengths can be compared.
    pub seconds_per_sample: f64,
    /// How much longer the next one takes if nothing is moved: a cache that filled meanwhile, say, makes it shorter. 1 if that
    /// is not known.
    pub drift: f64,
    /// How many times longer it took because others kept the machine busier than before; 1 if that is not known. A move is not
    /// blamed for it.
    pub excess: f64,
    /// What training waited for, as a clause: "71 % of the time is waiting for the link".
    pub cause: &'a str,
}

/// What was done about a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It was moved, on trial.
    Moved,
    /// The trial went well.
    Kept,
    /// It did not, and the knob is back.
    Undone,
}

impl Action {
    /// Its one word, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Action::Moved => "moved",
            Action::Kept => "kept",
            Action::Undone => "undone",
        }
    }
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The epoch that comes next.
    pub epoch: u64,
    /// The epoch before which the knob was moved: this one, or an earlier one if it is a verdict.
    pub since: u64,
    /// Which knob.
    pub knob: &'static str,
    /// What it was before.
    pub from: String,
    /// What it is after.
    pub to: String,
    /// What was done.
    pub action: Action,
    /// How many times faster it should be.
    pub predicted: f64,
    /// How many times faster it was; none before the trial.
    pub measured: Option<f64>,
    /// Why, in one sentence.
    pub reason: String,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Decision { epoch, knob, from, to, action, predicted, measured, reason, .. } = self;
        let moved = format!("{knob} {from} -> {to}");
        match measured {
            None => write!(f, "epoch {epoch}: {reason}; {moved}, predicted {predicted:.2}x"),
            Some(measured) => {
                let action = action.name();
                write!(
                    f,
                    "epoch {epoch}: {moved} {action}: predicted {predicted:.2}x, measured {measured:.2}x"
                )
            }
        }
    }
}

/// A move whose epoch is being trained.
#[derive(Debug, Clone)]
struct Trial {
    since: u64,
    knob: usize,
    from: usize,
    predicted: f64,
    /// Seconds per sample as they would be without it.
    before_s: f64,
    /// Whether it is the first half of a pair.
    half: bool,
}

/// A move that did not help.
#[derive(Debug, Clone)]
struct Barred {
    knob: usize,
    from: usize,
    to: usize,
    until: u64,
    epochs: u64,
}

/// Decides what is moved next.
#[derive(Debug, Clone)]
pub struct Pilot {
    knobs: Vec<Knob>,
    trial: Option<Trial>,
    /// The first half of a pair that was kept, until the other half is.
    half: Option<Decision>,
    barred: Vec<Barred>,
}

impl Pilot {
    /// A pilot of these knobs. One with fewer than two values is as good as pinned.
    pub fn new(knobs: Vec<Knob>) -> Pilot {
        Pilot { knobs, trial: None, half: None, barred: Vec::new() }
    }

    /// Every knob as it stands.
    pub fn knobs(&self) -> &[Knob] {
        &self.knobs
    }

    /// The place of every knob.
    pub fn setting(&self) -> Vec<usize> {
        self.knobs.iter().map(|knob| knob.at).collect()
    }

    /// Takes what an epoch came to, ends a trial, and perhaps moves one knob for the next. `predict` says how many seconds a
    /// sample would take at a setting, in whatever unit, or nothing if it cannot.
    pub fn observe(
        &mut self,
        seen: Observed<'_>,
        mut predict: impl FnMut(&[usize]) -> Option<f64>,
    ) -> Vec<Decision> {
        let usable = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        if !usable(seen.seconds_per_sample) {
            return Vec::new();
        }
        let mut decisions = Vec::new();
        let mut now_s = seen.seconds_per_sample;
        if let Some(trial) = self.trial.take() {
            let (decision, undone) = self.judge(&trial, seen);
            if undone {
                now_s = trial.before_s;
            } else {
                self.half = trial.half.then(|| decision.clone());
            }
            decisions.push(decision);
        }
        let here = self.setting();
        let Some(here_s) = predict(&here).filter(|seconds| usable(*seconds)) else { return decisions };
        let mut gain = |changes: &[(usize, usize)]| {
            let mut there = here.clone();
            changes.iter().for_each(|&(knob, to)| there[knob] = to);
            predict(&there).filter(|seconds| usable(*seconds)).map(|there_s| here_s / there_s)
        };
        let moves = self.moves(seen.epoch);
        let singles: Vec<(f64, usize, usize)> =
            moves.iter().filter_map(|&(knob, _, to)| Some((gain(&[(knob, to)])?, knob, to))).collect();
        let best = self.most(&singles).filter(|(most, ..)| *most >= GAIN_MIN);
        let (best, half) = match best {
            Some(best) => (Some(best), false),
            None => (Pilot::first_half(&singles, &mut gain), true),
        };
        if let Some((predicted, knob, to)) = best {
            let from = self.knobs[knob].at;
            self.knobs[knob].at = to;
            let drift = if usable(seen.drift) { seen.drift } else { 1.0 };
            self.trial =
                Some(Trial { since: seen.epoch + 1, knob, from, predicted, before_s: now_s * drift, half });
            let together = if half { ", and this helps together with another" } else { "" };
            let reason = format!("{}{together}", seen.cause);
            decisions.push(self.line(knob, from, to, seen.epoch, Action::Moved, predicted, None, reason));
        } else if let Some(half) = self.half.take() {
            decisions.extend(self.take_back(half, seen.epoch));
        }
        decisions
    }

    /// Takes back the first half of a pair whose other half came to nothing, if it cost something by itself and its knob was
    /// not moved since.
    fn take_back(&mut self, half: Decision, epoch: u64) -> Option<Decision> {
        let knob = self.knobs.iter().position(|knob| knob.name == half.knob)?;
        let place = |value: &str| self.knobs[knob].values.iter().position(|known| known == value);
        let (from, to) = (place(&half.from)?, place(&half.to)?);
        if self.knobs[knob].at != to || half.measured.is_none_or(|measured| measured >= 1.0) {
            return None;
        }
        self.bar(knob, from, to, epoch);
        self.knobs[knob].at = from;
        let reason = "what it was to help with came to nothing".into();
        Some(Decision {
            epoch: epoch + 1,
            from: half.to,
            to: half.from,
            action: Action::Undone,
            reason,
            ..half
        })
    }

    /// The move that promises most. Of equal promises the largest step: what is not the limit now may be after the next move.
    fn most(&self, moves: &[(f64, usize, usize)]) -> Option<(f64, usize, usize)> {
        let step = |knob: usize, to: usize| to.abs_diff(self.knobs[knob].at);
        moves.iter().copied().reduce(|best, one| {
            let larger = step(one.1, one.2) > step(best.1, best.2);
            let better = one.0 > best.0 * 1.001 || one.0 > best.0 * 0.999 && larger;
            if better { one } else { best }
        })
    }

    /// Of the pair of moves that promises enough, and most, the one that promises more by itself.
    fn first_half(
        singles: &[(f64, usize, usize)],
        gain: &mut impl FnMut(&[(usize, usize)]) -> Option<f64>,
    ) -> Option<(f64, usize, usize)> {
        let mut best: Option<(f64, (f64, usize, usize))> = None;
        for (at, &one) in singles.iter().enumerate() {
            for &other in singles[at + 1..].iter().filter(|other| other.1 != one.1) {
                let Some(both) = gain(&[(one.1, one.2), (other.1, other.2)]) else { continue };
                let first = if one.0 >= other.0 { one } else { other };
                let more = best.is_none_or(|(most, _)| both > most * 1.001);
                if both >= GAIN_MIN && first.0 >= HALF_MIN && more {
                    best = Some((both, first));
                }
            }
        }
        best.map(|(_, first)| first)
    }

    /// Every move of one knob that may be tried.
    fn moves(&self, epoch: u64) -> Vec<(usize, usize, usize)> {
        let free = self.knobs.iter().enumerate().filter(|(_, knob)| !knob.pinned);
        let all = free.flat_map(|(index, knob)| (0..knob.values.len()).map(move |to| (index, knob.at, to)));
        let barred = |&(knob, from, to): &(usize, usize, usize)| {
            let same = |bar: &&Barred| (bar.knob, bar.from, bar.to) == (knob, from, to);
            self.barred.iter().find(same).is_some_and(|bar| epoch < bar.until)
        };
        all.filter(|&(_, from, to)| from != to).filter(|one| !barred(one)).collect()
    }

    /// Ends a trial: the knob stays where it is, or goes back.
    fn judge(&mut self, trial: &Trial, seen: Observed<'_>) -> (Decision, bool) {
        let Trial { since, knob, from, predicted, before_s, half } = *trial;
        let to = self.knobs[knob].at;
        let excess = if seen.excess.is_finite() && seen.excess > 0.0 { seen.excess } else { 1.0 };
        let measured = before_s / (seen.seconds_per_sample / excess);
        if measured >= if half { HALF_MIN } else { KEPT_MIN } {
            let told = if half { "it is kept for what comes with it" } else { "it helps" };
            let line =
                self.line(knob, from, to, seen.epoch, Action::Kept, predicted, Some(measured), told.into());
            return (Decision { since, ..line }, false);
        }
        self.bar(knob, from, to, seen.epoch);
        self.knobs[knob].at = from;
        let told = "it does not help".into();
        let line = self.line(knob, to, from, seen.epoch, Action::Undone, predicted, Some(measured), told);
        (Decision { since, ..line }, true)
    }

    fn bar(&mut self, knob: usize, from: usize, to: usize, epoch: u64) {
        let known = self.barred.iter_mut().find(|bar| (bar.knob, bar.from, bar.to) == (knob, from, to));
        if let Some(bar) = known {
            bar.epochs = bar.epochs.saturating_mul(2);
            bar.until = epoch.saturating_add(bar.epochs);
        } else {
            let until = epoch.saturating_add(BARRED_EPOCHS);
            self.barred.push(Barred { knob, from, to, until, epochs: BARRED_EPOCHS });
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a line has that many parts")]
    fn line(
        &self,
        knob: usize,
        from: usize,
        to: usize,
        epoch: u64,
        action: Action,
        predicted: f64,
        measured: Option<f64>,
        reason: String,
    ) -> Decision {
        let Knob { name, values, .. } = &self.knobs[knob];
        Decision {
            epoch: epoch + 1,
            since: epoch + 1,
            knob: name,
            from: values[from].clone(),
            to: values[to].clone(),
            action,
            predicted,
            measured,
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert!(blind.observe(seen(0, 1.0), |_| None).is_empty());
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
            .flat_map(|(_, lines)| {
                lines.iter().filter(|one| one.action == Action::Undone).map(|one| one.knob)
            })
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
        let after = pilot.observe(seen(1, 0.5), |_| None);
        assert_eq!((after[0].action, after[0].measured), (Action::Undone, Some(1.0)));
        // Somebody else took half of the cores meanwhile.
        let mut pilot = Pilot::new(vec![knob("split", &["none", "best"], 0)]);
        pilot.observe(seen(0, 1.0), |at| Some([1.0, 0.5][at[0]]));
        let after = pilot.observe(Observed { excess: 2.0, ..seen(1, 1.0) }, |_| None);
        assert_eq!((after[0].action, after[0].measured), (Action::Kept, Some(2.0)));
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
}
