//! How many cores there are, and how many others leave.
//!
//! What the model computes, what a node on the same machine sends, the kernel's part of it and whoever else works here all
//! come out of the cores that decode. No profile of ops has any of that; what the whole machine was busy with, less the
//! loader's own threads, does.

use std::fs;

/// What `/proc/stat` counts in, on every Linux that Rust supports.
const TICKS_PER_S: f64 = 100.0;
/// The least that others leave.
const CORES_LEAST: f64 = 0.25;

/// The cores of this machine that this process may use.
pub(crate) fn all() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// CPU time that all cores of this machine have worked so far; none where that cannot be known.
pub(crate) fn machine_busy_s() -> Option<f64> {
    busy_s(&fs::read_to_string("/proc/stat").ok()?)
}

/// User, nice, system, interrupts and what a hypervisor took; not idle and not waiting for a disk. The rest of the line
/// (guests) is in the user's part already.
fn busy_s(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<f64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _, _, irq, softirq, steal] = ticks[..] else { return None };
    Some((user + nice + system + irq + softirq + steal) / TICKS_PER_S)
}

/// The cores that are left for ops, of those that threads could use.
pub(crate) fn left(threads_cores: f64, cores: f64, others: Option<f64>) -> f64 {
    others.map_or(threads_cores, |others| threads_cores.min((cores - others).max(CORES_LEAST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_work() {
        let stat = "cpu  1000 200 300 99999 8888 10 20 70 0 0\ncpu0 1 2 3\n";
        assert_eq!(busy_s(stat), Some(16.0));
        for bad in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3", "cpu  a b c d e f g h"] {
            assert_eq!(busy_s(bad), None, "{bad}");
        }
        let before = machine_busy_s().unwrap();
        let mut x = 1_u64;
        while machine_busy_s().unwrap() <= before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!((left(2.0, 2.0, Some(0.7)) - 1.3).abs() < 1e-9 && left(1.0, 8.0, Some(3.0)) >= 1.0);
        assert!((left(2.0, 2.0, Some(9.0)) - CORES_LEAST).abs() < 1e-9 && left(2.0, 2.0, None) >= 2.0);
    }
}
