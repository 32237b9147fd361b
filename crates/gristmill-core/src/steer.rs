//! Which resource training waits for, and thereby which criteria vote on what is worth fetching.
//!
//! Three rates are measured over a window: how many samples per second the store gives, preprocessing makes, and the
//! model takes. The smallest is the bottleneck. So that noise does not flip the decision to and fro, another resource
//! takes over only after it was 10 % below the present one in two windows in a row. And a training that hardly waits
//! is not bound by I/O, whatever the rates say: they come from a model of the store, the waiting is observed.
//!
//! Every verdict comes with its reason as one sentence with the numbers in it: what the steering changes, a user can
//! see. [`pilot`] moves knobs, [`guard`] watches accuracy. Deliberately not here: measuring (the node's).

pub mod guard;
pub mod pilot;

/// Another resource must be below this share of the present one's rate to take over.
const TAKEOVER_SHARE: f64 = 0.9;
/// In so many windows in a row.
const TAKEOVER_WINDOWS: u32 = 2;
/// Below this share of time spent waiting for data, training is not bound by I/O.
const STALL_MIN: f64 = 0.1;

/// What was measured over one window, in samples per second; `None` where it was not.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Profile {
    /// What the model takes, with data at hand.
    pub compute_per_s: Option<f64>,
    /// What all preprocessing threads make, with bytes at hand.
    pub prep_per_s: Option<f64>,
    /// What the store gives.
    pub io_per_s: Option<f64>,
    /// The share of time that training waits for data, 0 to 1.
    pub stall: Option<f64>,
}

/// The resource that training waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The model itself: forward, backward, and talking to other ranks.
    Compute,
    /// Decoding and the other ops.
    Prep,
    /// Bytes from the store.
    Io,
}

impl Bound {
    /// All of them, in the order they are reported.
    pub const ALL: [Bound; 3] = [Bound::Io, Bound::Prep, Bound::Compute];

    /// Its one word, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Prep => "preprocessing",
            Bound::Io => "I/O",
        }
    }

    /// Whether what a sample costs to fetch has a vote beside what it teaches.
    pub fn cost_votes(self) -> bool {
        self == Bound::Io
    }

    /// Which criteria vote, in words.
    pub fn votes(self) -> &'static str {
        if self.cost_votes() { "entropy, margin and cost vote" } else { "entropy alone votes" }
    }

    /// What gives, makes or takes the samples, as a subject.
    fn actor(self) -> &'static str {
        match self {
            Bound::Compute => "the model",
            Bound::Prep => "preprocessing",
            Bound::Io => "fetching",
        }
    }
}

impl Profile {
    /// The measured rate of a resource. What is no rate counts as not measured.
    pub fn rate(&self, bound: Bound) -> Option<f64> {
        let rate = match bound {
            Bound::Compute => self.compute_per_s,
            Bound::Prep => self.prep_per_s,
            Bound::Io => self.io_per_s,
        };
        rate.filter(|rate| rate.is_finite() && *rate > 0.0)
    }

    /// The share of waiting, if it is below what would mean a lack of data.
    fn hardly_waits(&self) -> Option<f64> {
        self.stall.filter(|stall| (0.0..STALL_MIN).contains(stall))
    }

    /// The rate that counts in the comparison: what the stall rules out is no bottleneck.
    fn counted(&self, bound: Bound) -> Option<f64> {
        if bound == Bound::Io && self.hardly_waits().is_some() { None } else { self.rate(bound) }
    }
}

/// A decision and why it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What training waits for.
    pub bound: Bound,
    /// Whether that is another one than before.
    pub changed: bool,
    /// One sentence with the numbers.
    pub reason: String,
}

/// The decision as it stands, window by window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steer {
    bound: Option<Bound>,
    challenger: Option<Bound>,
    /// In how many windows in a row the challenger won.
    windows: u32,
}

impl Steer {
    /// As bytes, for a state that is saved.
    pub fn to_bytes(&self) -> [u8; 3] {
        let code = |bound: Option<Bound>| bound.map_or(0, |bound| bound as u8 + 1);
        [code(self.bound), code(self.challenger), self.windows.min(255) as u8]
    }

    /// Goes on from a saved state; none if these are not its bytes.
    pub fn from_bytes([bound, challenger, windows]: [u8; 3]) -> Option<Steer> {
        let known = |code: u8| match code {
            0 => Some(None),
            1 => Some(Some(Bound::Compute)),
            2 => Some(Some(Bound::Prep)),
            3 => Some(Some(Bound::Io)),
            _ => None,
        };
        Some(Steer { bound: known(bound)?, challenger: known(challenger)?, windows: windows.into() })
    }

    /// Before anything was measured.
    pub fn new() -> Steer {
        Steer::default()
    }

    /// What training waits for, once that was decided.
    pub fn bound(&self) -> Option<Bound> {
        self.bound
    }

    /// Decides anew with one more window.
    pub fn observe(&mut self, profile: &Profile) -> Verdict {
        let known = Bound::ALL.into_iter().filter_map(|bound| Some((profile.counted(bound)?, bound)));
        let smallest = known.min_by(|a, b| a.0.total_cmp(&b.0));
        let before = self.bound;
        let Some((rate, smallest)) = smallest else {
            // Nothing to compare. What only the stall speaks about is settled by it.
            let bound = if profile.hardly_waits().is_some() {
                Bound::Compute
            } else {
                before.unwrap_or(Bound::Compute)
            };
            let changed = before.is_some_and(|before| before != bound);
            if profile.hardly_waits().is_some() {
                *self = Steer { bound: Some(bound), ..Steer::default() };
            }
            return Verdict { bound, changed, reason: reason(profile, bound, None) };
        };
        let Some(present) = before else {
            *self = Steer { bound: Some(smallest), ..Steer::default() };
            return Verdict { bound: smallest, changed: false, reason: reason(profile, smallest, None) };
        };
        let beaten = profile.counted(present).is_none_or(|own| rate < TAKEOVER_SHARE * own);
        if smallest == present || !beaten {
            (self.challenger, self.windows) = (None, 0);
            let near = (smallest != present).then_some(Pending::TooNear(smallest));
            return Verdict { bound: present, changed: false, reason: reason(profile, present, near) };
        }
        self.windows = if self.challenger == Some(smallest) { self.windows + 1 } else { 1 };
        self.challenger = Some(smallest);
        if self.windows < TAKEOVER_WINDOWS {
            let waiting = Some(Pending::OneMoreWindow(smallest));
            return Verdict { bound: present, changed: false, reason: reason(profile, present, waiting) };
        }
        *self = Steer { bound: Some(smallest), ..Steer::default() };
        Verdict { bound: smallest, changed: true, reason: reason(profile, smallest, None) }
    }
}

/// Why the smallest rate did not decide.
#[derive(Clone, Copy)]
enum Pending {
    TooNear(Bound),
    OneMoreWindow(Bound),
}

fn reason(profile: &Profile, bound: Bound, pending: Option<Pending>) -> String {
    let mut parts = Vec::new();
    for resource in Bound::ALL {
        if let Some(rate) = profile.rate(resource) {
            let rate = grouped(rate);
            let actor = resource.actor();
            parts.push(if parts.is_empty() {
                format!("{actor} gives {rate} samples/s")
            } else {
                format!("{actor} {rate}")
            });
        }
    }
    let mut rates = if parts.is_empty() { "no rate is known".to_string() } else { parts.join(", ") };
    if rates.starts_with("the model") {
        rates = rates.replacen("gives", "takes", 1);
    }
    let waiting = profile.hardly_waits().map_or(String::new(), |stall| {
        format!(", and training waits {:.0} % of the time, which is not I/O", stall * 100.0)
    });
    let (name, votes) = (bound.name(), bound.votes());
    let bound_by = match pending {
        None => format!("bound by {name}"),
        Some(Pending::TooNear(other)) => {
            format!("still bound by {name}, for {} is not 10 % slower", other.actor())
        }
        Some(Pending::OneMoreWindow(other)) => {
            format!("still bound by {name}, until {} is slowest in one more window", other.actor())
        }
    };
    format!("{rates}{waiting}: {bound_by}; {votes}")
}

/// A rate as people read it: whole, with a comma between thousands.
fn grouped(rate: f64) -> String {
    if rate < 9.95 {
        return format!("{rate:.1}");
    }
    let digits = format!("{rate:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use Bound::{Compute, Io, Prep};

    fn profile(io: f64, prep: f64, compute: f64, stall: Option<f64>) -> Profile {
        let known = |rate: f64| (rate != 0.0).then_some(rate);
        Profile { compute_per_s: known(compute), prep_per_s: known(prep), io_per_s: known(io), stall }
    }

    #[test]
    fn the_smallest_rate_decides_and_says_why() {
        let table = [
            (
                profile(410.0, 2_900.0, 5_200.0, None),
                Io,
                "fetching gives 410 samples/s, preprocessing 2,900, the model 5,200: bound by I/O; entropy, \
                 margin and cost vote",
            ),
            (
                profile(9_000.0, 2_900.0, 1_234_567.0, Some(0.5)),
                Prep,
                "fetching gives 9,000 samples/s, preprocessing 2,900, the model 1,234,567: bound by preprocessing; \
                 entropy alone votes",
            ),
            (
                profile(410.0, 2_900.0, 5_200.0, Some(0.04)),
                Prep,
                "fetching gives 410 samples/s, preprocessing 2,900, the model 5,200, and training waits 4 % of the \
                 time, which is not I/O: bound by preprocessing; entropy alone votes",
            ),
            (
                profile(0.0, 0.0, 3.21, None),
                Compute,
                "the model takes 3.2 samples/s: bound by compute; entropy alone votes",
            ),
            (Profile::default(), Compute, "no rate is known: bound by compute; entropy alone votes"),
            (
                profile(f64::NAN, -4.0, f64::INFINITY, Some(f64::NAN)),
                Compute,
                "no rate is known: bound by compute; entropy alone votes",
            ),
        ];
        for (profile, bound, words) in table {
            let verdict = Steer::new().observe(&profile);
            assert_eq!((verdict.bound, verdict.changed, &*verdict.reason), (bound, false, words));
        }
    }

    /// Windows one after the other: rates and stall, then what is decided, whether it changed, and a part of why.
    fn check(windows: &[(Profile, Bound, bool, &str)]) {
        let mut steer = Steer::new();
        for (i, (profile, bound, changed, words)) in windows.iter().enumerate() {
            let verdict = steer.observe(profile);
            assert_eq!(
                (verdict.bound, verdict.changed),
                (*bound, *changed),
                "window {i}: {}",
                verdict.reason
            );
            assert!(verdict.reason.contains(words), "window {i}: {}", verdict.reason);
        }
    }

    #[test]
    fn another_resource_must_win_clearly_and_twice() {
        let io = profile(100.0, 200.0, 200.0, None);
        let clear = profile(100.0, 89.0, 200.0, None);
        let near = profile(100.0, 91.0, 200.0, None);
        let other = profile(100.0, 200.0, 80.0, None);
        check(&[
            (io, Io, false, "bound by I/O;"),
            (near, Io, false, "still bound by I/O, for preprocessing is not 10 % slower"),
            (near, Io, false, "not 10 % slower"),
            (clear, Io, false, "until preprocessing is slowest in one more window"),
            (io, Io, false, "bound by I/O;"), // the count begins anew
            (clear, Io, false, "one more window"),
            (other, Io, false, "until the model is slowest"), // and anew for another one
            (clear, Io, false, "one more window"),
            (clear, Prep, true, "bound by preprocessing; entropy alone votes"),
            (io, Prep, false, "until fetching"),
            (io, Io, true, "entropy, margin and cost vote"),
        ]);
    }

    #[test]
    fn a_training_that_hardly_waits_is_not_bound_by_io() {
        let rates = |stall| profile(100.0, 500.0, 400.0, Some(stall));
        check(&[
            (rates(0.6), Io, false, "bound by I/O"),
            (rates(0.09), Io, false, "one more window"),
            (rates(0.05), Compute, true, "waits 5 % of the time"),
            (rates(0.1), Compute, false, "until fetching"),
            (rates(0.1), Io, true, "bound by I/O"),
        ]);
        check(&[
            (profile(100.0, 0.0, 0.0, Some(0.5)), Io, false, "bound by I/O"),
            (profile(100.0, 0.0, 0.0, Some(0.01)), Compute, true, "not I/O"),
            (Profile::default(), Compute, false, "no rate is known"),
        ]);
    }

    #[test]
    fn cost_votes_only_where_fetching_is_slow() {
        assert_eq!(Bound::ALL.map(Bound::cost_votes), [true, false, false]);
        assert_eq!(Bound::ALL.map(Bound::name), ["I/O", "preprocessing", "compute"]);
    }
}
