//! What this machine does beside ops, where the node is on it, too: the model, which takes more the faster samples come;
//! moving bytes, which takes less the fewer there are; and whoever else works here.
//!
//! Of what is neither an op nor the consumer's most is the kernel and both ends moving bytes. Whoever else works here
//! looks the same, so a byte is believed to take so much at most, and the rest is theirs.

use crate::cores;
use std::time::Instant;

/// The most CPU time that a byte takes on its way, through both ends of a connection.
const PER_BYTE_S_MAX: f64 = 25e-9;

/// What goes on beside ops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Beside {
    /// Cores that others have.
    pub(super) cores: f64,
    /// Cores that had anything but ops: all of what is here.
    pub(super) all_cores: f64,
    /// CPU seconds of the consumer per sample.
    pub(super) step_cpu_s: f64,
    /// CPU seconds per byte that crosses the link.
    pub(super) per_byte_s: f64,
}

impl Beside {
    /// Both count as much.
    pub(super) fn mean(self, other: Beside) -> Beside {
        Beside {
            cores: f64::midpoint(self.cores, other.cores),
            all_cores: f64::midpoint(self.all_cores, other.all_cores),
            step_cpu_s: f64::midpoint(self.step_cpu_s, other.step_cpu_s),
            per_byte_s: f64::midpoint(self.per_byte_s, other.per_byte_s),
        }
    }
}

/// What was done since the clocks were read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// CPU seconds of ops, here and on the node.
    pub(super) ops_s: f64,
    /// CPU seconds of whoever takes the batches.
    pub(super) consumer_s: f64,
    /// Batches that it took had so many.
    pub(super) samples: u64,
    pub(super) bytes: u64,
}

/// The clocks when an epoch began.
#[derive(Debug)]
pub(super) struct Clocks {
    since: Instant,
    busy_s: Option<f64>,
}

impl Clocks {
    pub(super) fn read() -> Clocks {
        Clocks { since: Instant::now(), busy_s: cores::machine_busy_s() }
    }

    /// What went on since then; none where the machine does not tell.
    pub(super) fn beside(&self, done: Done) -> Option<Beside> {
        let busy_s = cores::machine_busy_s()? - self.busy_s?;
        Some(share(busy_s, self.since.elapsed().as_secs_f64(), done))
    }
}

/// Who had what of the time that the machine was busy.
fn share(busy_s: f64, wall_s: f64, done: Done) -> Beside {
    let others_s = (busy_s - done.ops_s - done.consumer_s).max(0.0);
    let bytes = done.bytes as f64;
    let moving_s = others_s.min(bytes * PER_BYTE_S_MAX);
    Beside {
        cores: (others_s - moving_s) / wall_s.max(1e-3),
        all_cores: (busy_s - done.ops_s).max(0.0) / wall_s.max(1e-3),
        step_cpu_s: done.consumer_s / done.samples.max(1) as f64,
        per_byte_s: moving_s / bytes.max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_bytes_is_told_from_what_goes_on_anyway() {
        let done = Done { ops_s: 5.0, consumer_s: 1.0, samples: 1_000, bytes: 200_000_000 };
        for (name, busy_s, cores, per_byte_s) in [
            ("nothing but ops and the model", 6.0, 0.0, 0.0),
            ("and bytes, 2 s", 8.0, 0.0, 10e-9),
            ("and somebody else, 4 s", 15.0, 1.0, 25e-9),
            ("clocks that tick apart", 4.9, 0.0, 0.0),
        ] {
            let is = share(busy_s, 4.0, done);
            let right = (is.cores - cores).abs() < 1e-9 && (is.per_byte_s - per_byte_s).abs() < 1e-12;
            let all_cores = (busy_s - 5.0).max(0.0) / 4.0;
            let whole = (is.all_cores - all_cores).abs() < 1e-9;
            assert!(right && whole && (is.step_cpu_s - 0.001).abs() < 1e-12, "{name}: {is:?}");
        }
        let nothing = share(1.0, 0.0, Done { samples: 0, bytes: 0, ops_s: 0.0, consumer_s: 0.0 });
        assert!(nothing.cores.is_finite() && nothing.per_byte_s.abs() < 1e-12, "{nothing:?}");
    }
}
