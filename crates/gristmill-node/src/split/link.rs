//! How fast the link is, from what came while it had enough to do.
//!
//! The time between two arrivals counts if several reads were under way during it: otherwise it was not the link that
//! was waited for. What comes right after a rest says less: links let through at once what they saved up meanwhile.

use std::time::{Duration, Instant};

/// Reads that must be under way for the link to be busy.
const BUSY_READS: usize = 3;

/// How long after a rest what was saved up may come.
const BURST: Duration = Duration::from_millis(30);
/// What came later than that counts alone if it took so long at least, and was so large a part of all: else it may be what
/// came after somebody stalled.
const STEADY_LEAST: Duration = Duration::from_millis(100);
const STEADY_PART: u64 = 8;

/// How fast the link was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    pub(super) bytes_per_s: f64,
    /// Whether it was busy for long at a time. What is measured in bursts only may be too much.
    pub(super) steady: bool,
}

/// What came in one epoch while the link was busy.
#[derive(Debug)]
pub(super) struct Link {
    since: Instant,
    /// Since when enough was under way, if it was at the last arrival.
    busy: Option<Instant>,
    steady: Came,
    in_bursts: Came,
}

#[derive(Debug, Default)]
struct Came {
    bytes: u64,
    time: Duration,
}

impl Came {
    fn bytes_per_s(&self) -> Option<f64> {
        let rate = self.bytes as f64 / self.time.as_secs_f64();
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }
}

impl Link {
    pub(super) fn new() -> Link {
        Link { since: Instant::now(), busy: None, steady: Came::default(), in_bursts: Came::default() }
    }

    /// So many bytes came, and so many reads are still under way.
    pub(super) fn came(&mut self, bytes: u64, under_way: usize, now: Instant) {
        if let Some(begun) = self.busy {
            let burst = now.saturating_duration_since(begun) < BURST;
            let came = if burst { &mut self.in_bursts } else { &mut self.steady };
            came.time += now.saturating_duration_since(self.since);
            came.bytes += bytes;
        }
        let still = self.busy.unwrap_or(now);
        (self.since, self.busy) = (now, (under_way >= BUSY_READS).then_some(still));
    }

    /// One more was asked for, and so many are under way now: from the third on the link is waited for, even if all that
    /// came before had come at once and nothing was left.
    /// Whether it is since now.
    pub(super) fn asked(&mut self, under_way: usize, now: Instant) -> bool {
        let begins = self.busy.is_none() && under_way >= BUSY_READS;
        if begins {
            (self.since, self.busy) = (now, Some(now));
        }
        begins
    }

    /// The link had nothing to do until now.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.since, self.busy) = (now, None);
    }

    /// How fast it was; none if too little came to say.
    pub(super) fn rate(&self) -> Option<Rate> {
        let (bytes, time) =
            (self.steady.bytes + self.in_bursts.bytes, self.steady.time + self.in_bursts.time);
        let steady = self.steady.time >= STEADY_LEAST && self.steady.bytes >= bytes / STEADY_PART;
        let came = if steady { &self.steady } else { &Came { bytes, time } };
        came.bytes_per_s().map(|bytes_per_s| Rate { bytes_per_s, steady })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_in_which_the_link_is_busy_counts() {
        let mut link = Link::new();
        assert_eq!(link.rate(), None);
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        link.restart(at(0));
        for ms in (10..=2_000).step_by(10) {
            link.came(10_000, 8, at(ms));
        }
        // A long rest, then one read at a time.
        link.restart(at(60_000));
        for ms in (61_000..=70_000).step_by(1_000) {
            link.restart(at(ms - 1_000));
            link.came(10, 0, at(ms));
        }
        let rate = link.rate().unwrap();
        assert!((900_000.0..1_100_000.0).contains(&rate.bytes_per_s) && rate.steady, "{rate:?}");
    }

    /// A link of 1 MB/s that rests half of the time, and then lets 10 ms worth of bytes through at once.
    #[test]
    fn what_was_saved_up_in_a_rest_is_not_its_rate() {
        let rate = |work_ms: u64| {
            let (mut link, start) = (Link::new(), Instant::now());
            let at = |ms: u64| start + Duration::from_millis(ms);
            for round in 0..20 {
                let begin = round * 2 * work_ms;
                link.restart(at(begin));
                (1..=8).for_each(|under_way| _ = link.asked(under_way, at(begin)));
                link.came(10_000, 8, at(begin));
                (1..=work_ms).for_each(|ms| link.came(1_000, 8, at(begin + ms)));
            }
            link.rate().unwrap()
        };
        let (long, short) = (rate(100), rate(20));
        assert!((long.bytes_per_s - 1e6).abs() < 1e4 && long.steady, "{long:?}");
        assert!(short.bytes_per_s > 1.3e6 && !short.steady, "nothing else is known: {short:?}");
    }

    #[test]
    fn a_stall_is_not_the_rate_of_a_link() {
        let (mut link, start) = (Link::new(), Instant::now());
        // A hundred windows of 6 MB, each in 6 ms; once the node took a fifth of a second for one.
        for window in 0..100_u64 {
            let begin = start + Duration::from_millis(window * 300);
            let stall = if window == 40 { 200 } else { 0 };
            (1..=64).for_each(|under_way| _ = link.asked(under_way, begin));
            for left in (0..64_u64).rev() {
                let at = begin + Duration::from_millis(stall) + Duration::from_micros((64 - left) * 100);
                link.came(100_000, left as usize, at);
            }
        }
        let rate = link.rate().unwrap();
        assert!(!rate.steady && rate.bytes_per_s > 7e8, "{rate:?}");
    }

    /// Answers that come in bursts: eight at once, every 80 ms, and then eight more are asked for.
    #[test]
    fn the_time_before_a_burst_counts() {
        let (mut link, start) = (Link::new(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        for burst in 0..20 {
            let began = (1..=8).filter(|under_way| link.asked(*under_way, at(burst * 80))).count();
            assert_eq!(began, 1);
            (0..8).rev().for_each(|under_way| link.came(10_000, under_way, at(burst * 80 + 80)));
        }
        let rate = link.rate().unwrap().bytes_per_s;
        assert!((600_000.0..1_100_000.0).contains(&rate), "{rate}");
    }
}
