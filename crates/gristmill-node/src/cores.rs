//! How many cores there are, and how many others leave.
//!
//! What the model computes, what a node on the same machine sends, the kernel's part of it and whoever else works here all
//! come out of the cores that decode. No profile of ops has any of that; what the whole machine was busy with, less the
//! loader's own threads, does.

use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs;

/// What `/proc/stat` counts in, on every Linux that Rust supports.
const TICKS_PER_S: f64 = 100.0;
/// The least that others leave.
const CORES_LEAST: f64 = 0.25;

/// The cores of this machine that this process may use.
pub(crate) fn all() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// CPU time that the cores which this process may use have worked so far, for whomever; none where that cannot be known, or
/// where the process may use only a part of their time.
pub(crate) fn machine_busy_s() -> Option<f64> {
    let mask = sched_getaffinity(None).ok()?;
    if mask.count() as usize != all() {
        return None; // a quota
    }
    busy_s(&fs::read_to_string("/proc/stat").ok()?, &|core| core < CpuSet::MAX_CPU && mask.is_set(core))
}

/// Of the cores that count: user, nice, system, interrupts and what a hypervisor took; not idle and not waiting for a disk.
/// The rest of a line (guests) is in the user's part already.
fn busy_s(stat: &str, counts: &dyn Fn(usize) -> bool) -> Option<f64> {
    let mut busy = None;
    for line in stat.lines() {
        let Some((core, times)) = line.strip_prefix("cpu").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        if !core.parse().is_ok_and(counts) {
            continue;
        }
        let ticks: Vec<f64> =
            times.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, steal] = ticks[..] else { return None };
        *busy.get_or_insert(0.0) += (user + nice + system + irq + softirq + steal) / TICKS_PER_S;
    }
    busy
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
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1000 200 300 99999 8888 10 20 70 0 0\ncpu1 100 0 0 5 5 0 0 0\n\
                    cpu2 7 7 7 7 7 7 7 7\nintr 1 2\n";
        assert_eq!(busy_s(stat, &|core| core < 2), Some(17.0), "only cores that count");
        for bad in ["", "cpu  1 2 3 4 5 6 7 8", "cpu0 1 2 3", "cpu0 a b c d e f g h"] {
            assert_eq!(busy_s(bad, &|_| true), None, "{bad}");
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
