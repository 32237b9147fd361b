//! How fast the link is, from what came while it had enough to do.
//!
//! The time between two arrivals counts if several reads were under way during it: otherwise it was not the link that
//! was waited for.

use std::time::{Duration, Instant};

/// Reads that must be under way for the link to be busy.
const BUSY_READS: usize = 3;

/// What came in one epoch while the link was busy.
#[derive(Debug)]
pub(super) struct Link {
    since: Instant,
    /// Whether enough was under way since then.
    busy: bool,
    busy_time: Duration,
    busy_bytes: u64,
}

impl Link {
    pub(super) fn new() -> Link {
        Link { since: Instant::now(), busy: false, busy_time: Duration::ZERO, busy_bytes: 0 }
    }

    /// So many bytes came, and so many reads are still under way.
    pub(super) fn came(&mut self, bytes: u64, under_way: usize, now: Instant) {
        if self.busy {
            self.busy_time += now.saturating_duration_since(self.since);
            self.busy_bytes += bytes;
        }
        (self.since, self.busy) = (now, under_way >= BUSY_READS);
    }

    /// One more was asked for, and so many are under way now: from the third on the link is waited for, even if all that
    /// came before had come at once and nothing was left.
    /// Whether it is since now.
    pub(super) fn asked(&mut self, under_way: usize, now: Instant) -> bool {
        let begins = !self.busy && under_way >= BUSY_READS;
        if begins {
            (self.since, self.busy) = (now, true);
        }
        begins
    }

    /// The link had nothing to do until now.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.since, self.busy) = (now, false);
    }

    /// Bytes per second; none if too little came to say.
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        let rate = self.busy_bytes as f64 / self.busy_time.as_secs_f64();
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_in_which_the_link_is_busy_counts() {
        let mut link = Link::new();
        assert_eq!(link.bytes_per_s(), None);
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
        let rate = link.bytes_per_s().unwrap();
        assert!((900_000.0..1_100_000.0).contains(&rate), "{rate}");
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
        let rate = link.bytes_per_s().unwrap();
        assert!((600_000.0..1_100_000.0).contains(&rate), "{rate}");
    }
}
