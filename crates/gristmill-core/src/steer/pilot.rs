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
pub const GAIN_MIN: f64 = 1.05;
/// A move that brought less than this is undone.
const KEPT_MIN: f64 = 1.02;
/// One that is to bring so many times more in later epochs has one of those for its trial, too.
const LATER_MIN: f64 = 1.25;
/// Unless it costs more than this at once.
const AT_ONCE_MIN: f64 = 0.5;
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
    /// What no setting can be faster than, in the unit of predictions: the model's own steps. 0 if that is not known.
    pub least_s: f64,
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

/// What a sample takes at a setting, in whatever unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// In the next epoch.
    pub next_s: f64,
    /// In the epochs after that: less where the next one does something once and for all.
    pub lasting_s: f64,
}

impl From<f64> for Forecast {
    fn from(seconds: f64) -> Forecast {
        Forecast { next_s: seconds, lasting_s: seconds }
    }
}

/// A move that somebody else made inside an epoch, with what came of it before the epoch was over.
#[derive(Debug, Clone, Copy)]
pub struct Tried<'a> {
    /// The epoch in which it was made.
    pub epoch: u64,
    /// The name of the knob.
    pub knob: &'a str,
    /// To which of its values.
    pub to: usize,
    /// Seconds per sample as they would be without it.
    pub before_s: f64,
    /// How many times faster the rest of the epoch should be.
    pub predicted: f64,
    /// How many times faster the rest of the epoch was.
    pub measured: f64,
    /// How many times faster it should be in later epochs.
    pub lasting: f64,
    /// Why it was made, as a clause.
    pub cause: &'a str,
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
    /// If it is the first half of a pair, the knob of the other.
    partner: Option<usize>,
    /// How many times faster it should be in later epochs, if that is much more than at once.
    later: Option<f64>,
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
    /// The first half of a pair that was kept, until the knob of the other half is moved and kept.
    half: Option<(Decision, usize)>,
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

    /// Whether a move waits for its verdict.
    pub fn tries(&self) -> bool {
        self.trial.is_some()
    }

    /// The place of every knob.
    pub fn setting(&self) -> Vec<usize> {
        self.knobs.iter().map(|knob| knob.at).collect()
    }

    /// Takes what an epoch came to, ends a trial, and perhaps moves one knob for the next. `predict` says how many seconds a
    /// sample would take at a setting, in whatever unit, or nothing if it cannot.
    pub fn observe<F: Into<Forecast>>(
        &mut self,
        seen: Observed<'_>,
        mut predict: impl FnMut(&[usize]) -> Option<F>,
    ) -> Vec<Decision> {
        let usable = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        if !usable(seen.seconds_per_sample) {
            return Vec::new();
        }
        let mut decisions = Vec::new();
        let mut now_s = seen.seconds_per_sample;
        if let Some(trial) = self.trial.take() {
            let Some((decision, undone)) = self.judge(&trial, seen) else { return decisions };
            if undone {
                now_s = trial.before_s;
            } else if let Some(partner) = trial.partner {
                self.half = Some((decision.clone(), partner));
            } else if self.half.as_ref().is_some_and(|(_, partner)| *partner == trial.knob) {
                self.half = None;
            }
            decisions.push(decision);
        }
        let here = self.setting();
        let mut predict = |places: &[usize]| {
            let forecast: Forecast = predict(places)?.into();
            (usable(forecast.next_s) && usable(forecast.lasting_s)).then_some(forecast)
        };
        let Some(now) = predict(&here) else { return decisions };
        let mut forecast = |changes: &[(usize, usize)]| {
            let mut there = here.clone();
            changes.iter().for_each(|&(knob, to)| there[knob] = to);
            predict(&there)
        };
        // What is moved is chosen by what it brings in the end.
        let mut gain = |changes: &[(usize, usize)]| Some(now.lasting_s / forecast(changes)?.lasting_s);
        // Where nothing can promise enough, no setting needs to be predicted.
        let hopeless = now.lasting_s < GAIN_MIN * seen.least_s;
        let moves = if hopeless { Vec::new() } else { self.moves(seen.epoch) };
        let singles: Vec<(f64, usize, usize)> =
            moves.iter().filter_map(|&(knob, _, to)| Some((gain(&[(knob, to)])?, knob, to))).collect();
        let best = self.most(&singles).filter(|(most, ..)| *most >= GAIN_MIN);
        let best = match best {
            Some(best) => Some((best, None)),
            None => Pilot::first_half(&singles, &mut gain),
        };
        if let Some(((lasting, knob, to), partner)) = best {
            let predicted = forecast(&[(knob, to)]).map_or(lasting, |there| now.next_s / there.next_s);
            let from = self.knobs[knob].at;
            self.knobs[knob].at = to;
            let drift = if usable(seen.drift) { seen.drift } else { 1.0 };
            self.trial = Some(Trial {
                since: seen.epoch + 1,
                knob,
                from,
                predicted,
                before_s: now_s * drift,
                partner,
                later: later(predicted, lasting),
            });
            let together = if partner.is_some() { ", and this helps together with another" } else { "" };
            let then = later(predicted, lasting).map(|lasting| format!(" ({lasting:.2}x in later epochs)"));
            let reason = format!("{}{together}{}", seen.cause, then.unwrap_or_default());
            decisions.push(self.line(knob, from, to, seen.epoch, Action::Moved, predicted, None, reason));
        } else if let Some((half, _)) = self.half.take() {
            decisions.extend(self.take_back(half, seen.epoch));
        }
        decisions
    }

    /// Takes a move that was made inside an epoch, where that epoch had its trial: it stays, or is not made again for a while.
    pub fn tried(&mut self, tried: Tried<'_>) -> Vec<Decision> {
        let Tried { epoch, knob, to, before_s, predicted, measured, lasting, cause } = tried;
        let known = self.knobs.iter().position(|known| known.name == knob);
        let Some(knob) = known.filter(|&knob| to < self.knobs[knob].values.len()) else { return Vec::new() };
        let from = self.knobs[knob].at;
        let moved = self.line(knob, from, to, epoch, Action::Moved, predicted, None, cause.into());
        let moved = Decision { epoch, since: epoch, ..moved };
        self.knobs[knob].at = to;
        let later = later(predicted, lasting);
        let trial = Trial { since: epoch, knob, from, predicted, before_s, partner: None, later };
        let seconds_per_sample = before_s / measured.max(1e-9);
        let seen = Observed { epoch, seconds_per_sample, drift: 1.0, excess: 1.0, least_s: 0.0, cause };
        [Some(moved), self.judge(&trial, seen).map(|(judged, _)| judged)].into_iter().flatten().collect()
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

    /// Of the pair of moves that promises enough, and most, the one that promises more by itself, and the other's knob.
    fn first_half(
        singles: &[(f64, usize, usize)],
        gain: &mut impl FnMut(&[(usize, usize)]) -> Option<f64>,
    ) -> Option<((f64, usize, usize), Option<usize>)> {
        let mut best: Option<(f64, (f64, usize, usize), usize)> = None;
        for (at, &one) in singles.iter().enumerate() {
            for &other in singles[at + 1..].iter().filter(|other| other.1 != one.1) {
                let Some(both) = gain(&[(one.1, one.2), (other.1, other.2)]) else { continue };
                let (first, second) = if one.0 >= other.0 { (one, other) } else { (other, one) };
                let more = best.is_none_or(|(most, ..)| both > most * 1.001);
                if both >= GAIN_MIN && first.0 >= HALF_MIN && more {
                    best = Some((both, first, second.1));
                }
            }
        }
        best.map(|(_, first, partner)| (first, Some(partner)))
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

    /// Ends a trial: the knob stays where it is, or goes back. None if it goes on, for what it is to bring later.
    fn judge(&mut self, trial: &Trial, seen: Observed<'_>) -> Option<(Decision, bool)> {
        let Trial { since, knob, from, predicted, before_s, partner, later } = *trial;
        let half = partner.is_some();
        let to = self.knobs[knob].at;
        let excess = if seen.excess.is_finite() && seen.excess > 0.0 { seen.excess } else { 1.0 };
        let measured = before_s / (seen.seconds_per_sample / excess);
        if let Some(lasting) = later.filter(|_| (AT_ONCE_MIN..KEPT_MIN).contains(&measured)) {
            self.trial = Some(Trial { predicted: lasting, later: None, ..trial.clone() });
            return None;
        }
        if measured >= if half { HALF_MIN } else { KEPT_MIN } {
            let told = if half { "it is kept for what comes with it" } else { "it helps" };
            let line =
                self.line(knob, from, to, seen.epoch, Action::Kept, predicted, Some(measured), told.into());
            return Some((Decision { since, ..line }, false));
        }
        self.bar(knob, from, to, seen.epoch);
        self.knobs[knob].at = from;
        let told = "it does not help".into();
        let line = self.line(knob, to, from, seen.epoch, Action::Undone, predicted, Some(measured), told);
        Some((Decision { since, ..line }, true))
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

/// What a move is to bring in later epochs, where that is much more than at once.
fn later(predicted: f64, lasting: f64) -> Option<f64> {
    (lasting >= predicted * LATER_MIN).then_some(lasting)
}

#[cfg(test)]
mod tests;
