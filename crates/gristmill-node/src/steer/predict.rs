//! How long a sample would take at a setting: one epoch of the simulator, with what was measured.

use super::Setting;
use super::probe::Answers;
use super::sheet::Sheet;
use gristmill_sim::{Disk, Knobs, Labels, Link, Load, Machine, Shuffle, Store, simulate_epoch};

/// The most samples that are simulated: more would say the same.
const SAMPLES_MAX: u32 = 4_096;
/// Unless batches are large: then so many of them.
const BATCHES_MIN: u32 = 32;
/// The least that others leave the loader of the cores.
const CORES_LEAST: f64 = 0.25;

/// What a sample comes to with the first ops on the node, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WhatIf {
    /// Bytes over the link, raw and split.
    pub(crate) bytes: [f64; 2],
    /// CPU time here, raw and split.
    pub(crate) local_s: [f64; 2],
    /// Samples per second that the node's cores can bring there.
    pub(crate) upstream_per_s: f64,
    /// CPU time of the node for a sample, and whether that is time of this machine's cores.
    pub(crate) upstream_s: f64,
    pub(crate) same_machine: bool,
    /// CPU time of this machine's cores for a byte that crosses the link.
    pub(crate) per_byte_s: f64,
    /// And for training a sample.
    pub(crate) step_cpu_s: f64,
}

impl WhatIf {
    /// What a sample takes of this machine's cores beside what is done here, raw or split.
    fn shared_s(&self, split: bool) -> f64 {
        let upstream_s = if split && self.same_machine { self.upstream_s } else { 0.0 };
        upstream_s + self.per_byte_s * self.bytes[usize::from(split)]
    }
}

/// What the next epoch is like, whatever the setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Course {
    pub(super) samples: u32,
    pub(super) batch: u32,
    /// Bytes of a sample, and how they spread as a share of that.
    pub(super) bytes: f64,
    pub(super) spread: f64,
    /// The share that a cache will give.
    pub(super) cached: f64,
    pub(super) cores: usize,
    /// How the store answers; none if nobody looked.
    pub(super) answers: Option<Answers>,
}

/// Seconds per sample at `setting`; `was` is what the sheet was measured at. None where nothing can be said.
pub(super) fn seconds(
    sheet: &Sheet,
    course: &Course,
    was: Setting,
    setting: Setting,
    what_if: Option<&WhatIf>,
) -> Option<f64> {
    let (mut bytes, mut cpu_s, mut upstream_per_s) = (course.bytes, sheet.cpu_s, f64::INFINITY);
    // Cores that others have whatever the setting, and what the node takes of ours for a sample.
    let (mut busy_cores, mut shared_s, mut ops_s) = (sheet.busy_cores, 0.0, 0.0);
    if setting.split || was.split {
        let what_if = what_if?;
        let (now, then) = (usize::from(was.split), usize::from(setting.split));
        bytes = what_if.bytes[then];
        // What a cache has no node works on.
        let (was_missed, missed) = (1.0 - sheet.cached, 1.0 - course.cached);
        let local_s =
            |split: usize, missed: f64| missed * what_if.local_s[split] + (1.0 - missed) * what_if.local_s[0];
        cpu_s *= local_s(then, missed) / local_s(now, was_missed);
        let was_shared_s = what_if.shared_s(was.split) * was_missed + what_if.step_cpu_s;
        busy_cores -= was_shared_s / sheet.seconds_per_sample;
        shared_s = what_if.shared_s(setting.split) * missed + what_if.step_cpu_s;
        if setting.split {
            upstream_per_s = what_if.upstream_per_s;
            // Who asks for one at a time waits for the ops, too.
            ops_s = what_if.upstream_s;
        }
    }
    let direct = setting.reads == 0;
    let (latency_s, bytes_per_s) = match course.answers {
        Some(answers) => (answers.latency_s, answers.bytes_per_s),
        None if was.reads == 0 => (sheet.blocked_s, f64::INFINITY),
        None => (sheet.flight_s, f64::INFINITY),
    };
    // Others work on these cores, too.
    let wanted = setting.threads.min(course.cores) as f64;
    let left = (course.cores as f64 - busy_cores.max(0.0)).max(CORES_LEAST);
    cpu_s = cpu_s.max((cpu_s + shared_s) * wanted / left);
    let none = f64::INFINITY;
    let machine = Machine {
        ranks: 1,
        ranks_per_node: 1,
        cores: course.cores as u32,
        disk: Disk { bytes_per_s: none, latency_s: 0.0, sync_s: 0.0 },
        link: Link { bytes_per_s: none, latency_s: 0.0 },
        store: Store { bytes_per_s, requests_per_s: upstream_per_s, latency_s: latency_s + ops_s },
        ..Machine::default()
    };
    let samples = course.samples.min(SAMPLES_MAX.max(course.batch.saturating_mul(BATCHES_MIN)));
    let load = Load {
        samples,
        bytes,
        spread: course.spread,
        classes: 1,
        labels: Labels::Even,
        batch: course.batch,
        cpu_s,
        step_s: sheet.step_s,
    };
    let knobs = Knobs {
        shuffle: Shuffle::Global,
        cached: course.cached.clamp(0.0, 1.0),
        threads: setting.threads as u32,
        reads_in_flight: if direct { 0 } else { setting.reads as u32 },
        prefetch_batches: setting.ahead as u32,
        ..Knobs::default()
    };
    let cost = simulate_epoch(&machine, &load, &knobs).ok()?;
    Some(cost.seconds / f64::from(samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        Sheet {
            epoch: 0,
            seconds_per_sample: 0.01,
            step_s: 0.01,
            cpu_s: 0.002,
            blocked_s: 0.0,
            flight_s: 0.008,
            busy_cores: 0.0,
            cached: 0.0,
            wait_share: 0.9,
            fetch_share: 0.9,
            cause: String::new(),
        }
    }

    const COURSE: Course = Course {
        samples: 2_000,
        batch: 20,
        bytes: 100_000.0,
        spread: 0.0,
        cached: 0.0,
        cores: 4,
        answers: Some(Answers { latency_s: 0.008, bytes_per_s: 50e6 }),
    };

    #[test]
    fn each_knob_moves_its_own_limit() {
        let at = |threads, reads, split| Setting { threads, reads, ahead: 4, split };
        let what_if = WhatIf {
            bytes: [100_000.0, 40_000.0],
            local_s: [0.002, 0.001],
            upstream_per_s: 900.0,
            upstream_s: 0.001,
            same_machine: false,
            per_byte_s: 0.0,
            step_cpu_s: 0.0,
        };
        let seconds = |course: &Course, setting| {
            seconds(&sheet(), course, at(1, 1, false), setting, Some(&what_if)).unwrap()
        };
        // One read at a time: 10 ms each. Many: 2 ms of link each. Split: 0.8 ms of link, but 1.1 ms of the node's cores.
        for (setting, should) in [
            (at(1, 1, false), 0.010),
            (at(1, 64, false), 0.002),
            (at(2, 64, true), 1.0 / 900.0),
            (at(2, 1, true), 0.0098),
        ] {
            let is = seconds(&COURSE, setting);
            assert!((is / should - 1.0).abs() < 0.06, "{setting:?}: {is}");
        }
        let cached = Course { cached: 0.5, ..COURSE };
        assert!((seconds(&cached, at(2, 64, false)) / 0.001 - 1.0).abs() < 0.06);
        // The step is 0.5 ms a sample: no setting is faster.
        let near = Course { answers: Some(Answers { latency_s: 0.0, bytes_per_s: 1e12 }), ..COURSE };
        assert!((seconds(&near, at(4, 64, false)) / 0.0005 - 1.0).abs() < 0.1);
        assert!((seconds(&near, at(1, 64, false)) / 0.002 - 1.0).abs() < 0.1, "one thread decodes in 2 ms");
        // Without knowing what a split would come to, nothing is said of it.
        assert_eq!(super::seconds(&sheet(), &COURSE, at(1, 1, false), at(1, 1, true), None), None);
    }

    #[test]
    fn a_node_on_this_machine_takes_its_cores() {
        let at = |split| Setting { threads: 4, reads: 64, ahead: 4, split };
        let near = Course { answers: Some(Answers { latency_s: 0.0, bytes_per_s: 1e12 }), ..COURSE };
        let seconds = |shared_s, was, cached| {
            let what_if = WhatIf {
                bytes: [1e5, 4e4],
                local_s: [0.002; 2],
                upstream_per_s: 1e9,
                upstream_s: shared_s,
                same_machine: true,
                per_byte_s: 0.0,
                step_cpu_s: 0.0,
            };
            let course = Course { cached, ..near };
            // Where it was split, the cores that others had are the node's: 2 ms in each 1 ms.
            let busy_cores = if was { 2.0 } else { 0.0 };
            let sheet = Sheet { busy_cores, seconds_per_sample: 0.001, ..sheet() };
            super::seconds(&sheet, &course, at(was), at(true), Some(&what_if)).unwrap()
        };
        // 2 ms here, on four cores; and 2 ms more on the same.
        for (shared_s, was, cached, should) in [
            (0.0, false, 0.0, 0.0005),
            (0.002, false, 0.0, 0.001),
            (0.002, true, 0.0, 0.001),
            (0.002, false, 0.5, 0.00075),
        ] {
            let is = seconds(shared_s, was, cached);
            assert!((is / should - 1.0).abs() < 0.1, "{shared_s} {was} {cached}: {is}");
        }
    }

    /// Where both ends are on this machine, fewer bytes leave more of its cores: here 1 ms of two for each raw sample.
    #[test]
    fn bytes_that_do_not_come_need_not_be_moved() {
        let at = |split| Setting { threads: 2, reads: 64, ahead: 4, split };
        let near =
            Course { answers: Some(Answers { latency_s: 0.0, bytes_per_s: 1e12 }), cores: 2, ..COURSE };
        let what_if = |per_byte_s| WhatIf {
            bytes: [1e5, 0.0],
            local_s: [0.002; 2],
            upstream_per_s: 1e9,
            upstream_s: 0.0,
            same_machine: true,
            per_byte_s,
            step_cpu_s: 0.0,
        };
        let sheet = Sheet { busy_cores: 1.0, seconds_per_sample: 0.001, ..sheet() };
        let seconds = |per_byte_s| {
            super::seconds(&sheet, &near, at(false), at(true), Some(&what_if(per_byte_s))).unwrap()
        };
        // Two threads that decode 2 ms each, with all of the two cores, or with the half that others leave.
        for (per_byte_s, should) in [(1e-8, 0.001), (0.0, 0.002)] {
            let is = seconds(per_byte_s);
            assert!((is / should - 1.0).abs() < 0.06, "{per_byte_s}: {is}");
        }
    }

    #[test]
    fn cores_that_others_have_are_not_counted_on() {
        let busy = Sheet { busy_cores: 3.0, ..sheet() };
        let near = Course { answers: Some(Answers { latency_s: 0.0, bytes_per_s: 1e12 }), ..COURSE };
        let at = |threads| Setting { threads, reads: 64, ahead: 4, split: false };
        let [one, four] = [1, 4].map(|threads| seconds(&busy, &near, at(1), at(threads), None).unwrap());
        assert!((one / four - 1.0).abs() < 0.05, "{one} {four}");
    }
}
