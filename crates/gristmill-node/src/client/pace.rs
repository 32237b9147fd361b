//! A link that is slower than the real one, to see what a slow one would do.

use std::time::{Duration, Instant};

/// How far ahead of its rate the link may be, so that pauses are long enough for the clock.
const AHEAD: Duration = Duration::from_millis(4);

/// What a link that was late may catch up with: a pause that took too long, not a rest.
const BEHIND: Duration = Duration::from_millis(20);

/// What was taken from the link so far.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_s: Option<u64>,
    /// When all that was taken would have come over a link of that rate.
    due: Instant,
}

impl Pace {
    pub(super) fn new(bytes_per_s: Option<u64>) -> Pace {
        Pace { bytes_per_s: bytes_per_s.filter(|rate| *rate > 0), due: Instant::now() }
    }

    /// So many bytes came: how long to wait before the next ones are taken.
    pub(super) fn took(&mut self, bytes: usize) -> Duration {
        let Some(rate) = self.bytes_per_s else { return Duration::ZERO };
        let now = Instant::now();
        let earliest = now.checked_sub(BEHIND).unwrap_or(now);
        self.due = self.due.max(earliest) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        let ahead = self.due.saturating_duration_since(now);
        if ahead > AHEAD { ahead } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_no_faster_than_the_rate() {
        let mut pace = Pace::new(Some(1_000_000));
        assert!(pace.took(1_000).is_zero(), "a millisecond is not worth a pause");
        let pause = pace.took(100_000).as_secs_f64();
        assert!((0.08..0.102).contains(&pause), "{pause}");
        for none in [None, Some(0)] {
            assert!(Pace::new(none).took(1 << 30).is_zero());
        }
    }
}
