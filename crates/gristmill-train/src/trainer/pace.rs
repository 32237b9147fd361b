//! An accelerator that is pretended: a step lasts as long as it would there, whatever the model here takes of that.

use std::time::{Duration, Instant};

/// How fast a pretended accelerator is; none is as fast as this machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    samples_per_s: Option<f64>,
}

impl Pace {
    /// One that takes so many samples per second; what is no rate is no limit.
    pub(crate) fn of(samples_per_s: f64) -> Pace {
        Pace { samples_per_s: Some(samples_per_s).filter(|rate| rate.is_finite() && *rate > 0.0) }
    }

    /// Sleeps until a step with so many samples that began then would be over, or until it is to stop.
    pub(crate) fn wait(self, begun: Instant, samples: usize, stop: &dyn Fn() -> bool) {
        let Some(rate) = self.samples_per_s else { return };
        let lasts = Duration::try_from_secs_f64(samples as f64 / rate).unwrap_or(Duration::MAX);
        loop {
            let left = lasts.saturating_sub(begun.elapsed());
            if left.is_zero() || stop() {
                return;
            }
            std::thread::sleep(left.min(super::SLICE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_lasts_as_long_as_the_accelerator_takes() {
        let timed = |rate: f64, samples, stop: bool| {
            let begun = Instant::now();
            Pace::of(rate).wait(begun, samples, &|| stop);
            begun.elapsed()
        };
        assert!(timed(1_000.0, 20, false) >= Duration::from_millis(20));
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        Pace::of(1_000.0).wait(begun, 5, &|| false);
        // What the model took is part of the step. (Generous: other work may hold this test up.)
        assert!(begun.elapsed() < Duration::from_secs(5));
        for (rate, stop) in [(0.0, false), (f64::NAN, false), (-3.0, false), (1e-9, true)] {
            assert!(timed(rate, 1_000, stop) < Duration::from_secs(5), "{rate}");
        }
    }
}
