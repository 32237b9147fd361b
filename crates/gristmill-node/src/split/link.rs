//! How fast the link is, from what came while it had enough to do.
//!
//! Reads come in windows of a fifth of a second. A window counts only if several reads were under way all the time:
//! otherwise it was not the link that was waited for. The figure is an upper quartile, since what slows a window down
//! (a busy machine, a queue at the node) is not the link, and nothing makes one faster than it.

use std::time::{Duration, Instant};

/// How long a window is.
const WINDOW: Duration = Duration::from_millis(200);
/// Reads that must be under way for the link to be busy.
const BUSY_READS: usize = 3;
/// The most windows that are kept; later ones replace the oldest.
const WINDOWS_MAX: usize = 512;

/// Windows of one epoch.
#[derive(Debug)]
pub(super) struct Link {
    since: Instant,
    bytes: u64,
    rates: Vec<f64>,
    windows: usize,
    busy: Duration,
    busy_bytes: u64,
}

impl Link {
    pub(super) fn new() -> Link {
        let (rates, busy) = (Vec::new(), Duration::ZERO);
        Link { since: Instant::now(), bytes: 0, rates, windows: 0, busy, busy_bytes: 0 }
    }

    /// So many bytes came, and so many reads are still under way.
    pub(super) fn came(&mut self, bytes: u64, under_way: usize, now: Instant) {
        self.bytes += bytes;
        let took = now.saturating_duration_since(self.since);
        let over = under_way < BUSY_READS;
        if over || took >= WINDOW {
            if took >= WINDOW {
                let rate = self.bytes as f64 / took.as_secs_f64();
                if self.rates.len() < WINDOWS_MAX {
                    self.rates.push(rate);
                } else {
                    self.rates[self.windows % WINDOWS_MAX] = rate;
                }
                self.windows += 1;
            }
            self.busy += took;
            self.busy_bytes += self.bytes;
            self.restart(now);
        }
    }

    /// The link had too little to do until now.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.since, self.bytes) = (now, 0);
    }

    /// Bytes per second; none if too little came to say.
    pub(super) fn bytes_per_s(&self) -> Option<f64> {
        let rate = if self.rates.len() >= 4 {
            let mut rates = self.rates.clone();
            rates.sort_unstable_by(f64::total_cmp);
            rates[rates.len() * 3 / 4]
        } else {
            self.busy_bytes as f64 / self.busy.as_secs_f64()
        };
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_busy_windows_count() {
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
}
