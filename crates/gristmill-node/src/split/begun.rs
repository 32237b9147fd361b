//! A split that begins inside an epoch which a steering left unsplit: what it was to bring, and what it brought.
//!
//! The first epoch of a loader over a slow link is its longest, and after a small part of it everything is known that a
//! split needs. So where that promises enough, the rest of the epoch is split and is the trial: what is measured there
//! goes to the pilot with what was promised. What a sample would have taken unsplit is what it was expected to take, or
//! what it took so far if that is less, since learning about the node went on beside it.
//!
//! At first the link is full of what was asked for raw, and what was split waits behind it. That passes, and later epochs
//! have none of it, so in a trial that is long enough some samples let things settle before anything is measured.
//!
//! Deliberately not here: whether the next epoch is split (`steer`).

use gristmill_core::split::Decided;
use gristmill_core::steer::pilot::GAIN_MIN;
use serde::Serialize;
use std::time::Instant;

/// Samples that the rest must have to say anything.
const REST_MIN: u64 = 128;
/// Of the rest, one in so many lets things settle, within bounds.
const SETTLE_PART: u64 = 8;
const SETTLE: [u64; 2] = [64, 512];

/// What is said of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Begun {
    /// Samples that were asked for before.
    pub after: u64,
    /// What limited the epoch until then.
    pub limit: &'static str,
    /// Seconds that a sample takes without.
    pub unsplit_s: f64,
    /// How many times faster the rest should be than without.
    pub predicted: f64,
    /// How many times faster later epochs should be, in which the node has what it did once.
    pub lasting: f64,
    /// How many times faster it was; none before the end, or if the epoch was left before its end.
    pub measured: Option<f64>,
}

/// The same while the epoch runs.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    told: Begun,
    /// What is measured begins with this sample.
    from: u64,
    /// When all before it were finished, and how many that were by then.
    since: Option<(u64, Instant)>,
}

impl Trial {
    /// None if too little is promised. `taken_s` is what each sample took so far.
    pub(super) fn new(decided: &Decided, after: u64, rest: u64, taken_s: f64) -> Option<Trial> {
        let each_s = |seconds: f64| seconds / rest.max(1) as f64;
        let unsplit_s = each_s(decided.before.epoch_s()).min(taken_s);
        let [predicted, lasting] =
            [decided.after, decided.lasting].map(|times| unsplit_s / each_s(times.epoch_s()));
        let limit = decided.before.bottleneck().name();
        let told = Begun { after, limit, unsplit_s, predicted, lasting, measured: None };
        let settle = (rest / SETTLE_PART).clamp(SETTLE[0], SETTLE[1]);
        let from = after + if rest >= settle + 2 * REST_MIN { settle } else { 0 };
        (rest >= REST_MIN && lasting >= GAIN_MIN).then_some(Trial { told, from, since: None })
    }

    /// The sample that what is measured begins with.
    pub(super) fn from(&self) -> u64 {
        self.from
    }

    /// So many samples are finished.
    pub(super) fn finished(&mut self, samples: u64, now: Instant) {
        if samples >= self.from && self.since.is_none() {
            self.since = Some((samples, now));
        }
    }

    /// The epoch is over, and had so many samples.
    pub(super) fn ended(&mut self, samples: u64, now: Instant) {
        let Some((from, since)) = self.since else { return };
        let rest = samples.saturating_sub(from);
        if rest >= REST_MIN {
            let each_s = now.saturating_duration_since(since).as_secs_f64() / rest as f64;
            self.told.measured = Some(self.told.unsplit_s / each_s.max(1e-9));
        }
    }

    pub(super) fn told(&self) -> Begun {
        self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_core::split::Times;
    use std::time::Duration;

    fn decided(before_s: f64, after_s: f64) -> Decided {
        let times = |link_s| Times { link_s, ..Times::default() };
        Decided {
            stages: Vec::new(),
            before: times(before_s),
            after: times(after_s),
            lasting: times(after_s),
            bytes_before: 0.0,
            bytes_after: 0.0,
            moved: 0,
            reason: String::new(),
        }
    }

    #[test]
    fn the_rest_of_the_epoch_is_the_trial() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        // Two hundred samples are left, of 4 ms unsplit and 1 ms split; learning made it 5 ms so far.
        let mut trial = Trial::new(&decided(0.8, 0.2), 200, 200, 0.005).unwrap();
        assert!((trial.told().predicted - 4.0).abs() < 1e-9 && trial.told().limit == "link");
        trial.finished(199, at(0));
        trial.finished(200, at(100));
        trial.finished(201, at(105));
        assert_eq!((trial.from(), trial.told().measured), (200, None));
        trial.ended(400, at(100 + 400));
        assert!((trial.told().measured.unwrap() - 2.0).abs() < 1e-6, "{trial:?}");
    }

    #[test]
    fn where_there_are_many_the_first_let_things_settle() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut trial = Trial::new(&decided(3.2, 0.8), 200, 800, 0.005).unwrap();
        trial.finished(250, at(400));
        trial.finished(301, at(500));
        trial.ended(1_001, at(500 + 700));
        assert!(trial.from() == 300 && (trial.told().measured.unwrap() - 4.0).abs() < 1e-6, "{trial:?}");
        // An epoch that ends before that was not measured.
        let mut trial = Trial::new(&decided(3.2, 0.8), 200, 800, 0.005).unwrap();
        trial.ended(290, at(500));
        assert_eq!(trial.told().measured, None);
    }

    #[test]
    fn what_promises_little_or_has_no_rest_is_not_begun() {
        assert!(Trial::new(&decided(4.0, 3.9), 200, 1_000, 1.0).is_none());
        let pays_later = Decided { lasting: decided(0.0, 1.0).after, ..decided(4.0, 4.4) };
        let told = Trial::new(&pays_later, 200, 1_000, 1.0).unwrap().told();
        assert!(told.predicted < 1.0 && told.lasting > 3.9, "{told:?}");
        // So far samples took no longer than a split would.
        assert!(Trial::new(&decided(4.0, 1.0), 200, 1_000, 0.001).is_none());
        assert!(Trial::new(&decided(4.0, 1.0), 200, 100, 1.0).is_none());
        let mut left = Trial::new(&decided(4.0, 1.0), 200, 1_000, 1.0).unwrap();
        left.finished(200, Instant::now());
        left.ended(250, Instant::now());
        assert_eq!(left.told().measured, None, "it was left before its end");
    }
}
