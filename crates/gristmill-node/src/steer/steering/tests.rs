//! The steering of a loader that is only told of: what it decides from which reports.

use super::*;
use crate::report::Wait;
use crate::steer::Pins;

const START: Setting = Setting { threads: 1, reads: 1, ahead: 1, split: false };

/// The report of an epoch of 2,000 samples on a machine: 8 ms of latency, 50 MB/s, 2 ms of CPU and 10 ms a batch of 20.
fn epoch(number: u64, setting: Setting) -> EpochReport {
    let sheet_like = |s: Setting| {
        let bytes = if s.split { 40_000.0 } else { 100_000.0 };
        let link = f64::max(bytes / 50e6, (0.008 + bytes / 50e6) / s.reads.max(1) as f64);
        let cpu = 0.0008 / s.threads.min(cores::all()) as f64;
        (link.max(cpu).max(0.0005), link)
    };
    let (each_s, link_s) = sheet_like(setting);
    let wall_ms = each_s * 2_000.0 * 1e3;
    let wait_ms = wall_ms - 1_000.0;
    let fetch_ms = if link_s >= each_s { wait_ms } else { 0.0 };
    EpochReport {
        epoch: number,
        batches: 100,
        samples: 2_000,
        processed: 2_000,
        wall_ms,
        loader_cpu_ms: 1_600.0,
        fetch_ms: 2_000.0 * 10.0,
        decode_ms: 1_600.0,
        wait: Wait { total_ms: wait_ms, fetch_ms, decode_ms: wait_ms - fetch_ms, ..Wait::default() },
        ..EpochReport::default()
    }
}

/// What is known before an epoch of such a machine, on which one job may be split.
fn ahead<'a>(
    epoch: u64,
    look: &'a dyn Fn(usize) -> Option<Answers>,
    what_if: &'a dyn Fn(usize, Option<f64>) -> Option<[WhatIf; 2]>,
) -> Ahead<'a> {
    let (samples, batch, bytes, cached) = (2_000, 20, (100_000.0, 0.0), None);
    Ahead { epoch, samples, batch, cached, can_direct: false, can_split: true, bytes, jobs: 1, look, what_if }
}

fn drive(options: SteerOptions, epochs: u64) -> (Vec<f64>, Setting, Vec<Decision>) {
    let steering = Steering::new(options, START).unwrap();
    let looks = std::cell::Cell::new(0);
    let look = |_| {
        looks.set(looks.get() + 1);
        Some(Answers { latency_s: 0.008, bytes_per_s: 50e6 })
    };
    let what_if = |_, _| {
        Some(
            [WhatIf {
                bytes: [100_000.0, 40_000.0],
                local_s: [0.0008, 0.0006],
                upstream_per_s: 5_000.0,
                upstream_s: 0.0,
                same_machine: false,
                per_byte_s: 0.0,
                step_cpu_s: 0.0,
            }; 2],
        )
    };
    let (mut walls, mut setting, mut all) = (Vec::new(), START, Vec::new());
    for number in 0..epochs {
        let ahead = ahead(number, &look, &what_if);
        let (now, decisions) = steering.begin(&ahead);
        (setting, all) = (now, [all, decisions].concat());
        let report = epoch(number, setting);
        walls.push(report.wall_ms);
        // Whatever this process did meanwhile is not the epoch's.
        steering.lock().cpu_s = busy_s() - report.loader_cpu_ms / 1e3;
        steering.ended(&report, true);
    }
    assert!(looks.get() <= 2, "it looks seldom: {}", looks.get());
    (walls, setting, all)
}

#[test]
fn from_a_bad_start_every_knob_comes_right_within_five_epochs() {
    let free = SteerOptions { on: true, pins: Pins::default() };
    let (walls, setting, decisions) = drive(free, 12);
    let best = epoch(0, Setting { threads: cores::all(), reads: 64, ahead: 4, split: true }).wall_ms;
    assert!(walls[5..].iter().all(|wall| *wall <= best * 1.1), "{walls:?} against {best}: {decisions:#?}");
    assert!(setting.split && setting.reads >= 16, "{setting:?}");
    for one in decisions.iter().filter(|one| one.measured.is_some()) {
        let (predicted, measured) = (one.predicted.unwrap(), one.measured.unwrap());
        assert!((measured / predicted - 1.0).abs() < 0.15, "{one}");
    }
    assert!(decisions[0].line.starts_with("epoch 1: 95 % of the time is waiting for the link; reads 1 -> "));
}

#[test]
fn what_is_pinned_stays() {
    let pins = Pins { split: true, threads: true, ..Pins::default() };
    let (_, setting, _) = drive(SteerOptions { on: true, pins }, 8);
    assert!(!setting.split && setting.threads == 1 && setting.reads > 1);
    assert!(Steering::new(SteerOptions { on: true, pins: Pins::ALL }, START).is_none());
    assert!(Steering::new(SteerOptions { on: false, pins: Pins::default() }, START).is_none());
}

#[test]
fn after_an_epoch_that_waited_for_nothing_the_next_begins_at_once() {
    let good = Setting { threads: 2, reads: 64, ahead: 4, split: true };
    let asked = std::cell::Cell::new(0);
    let look = |_| None;
    let what_if = |_, _| {
        asked.set(asked.get() + 1);
        None
    };
    for (wait_ms, asks) in [(20.0, false), (500.0, true)] {
        let steering = Steering::new(SteerOptions { on: true, pins: Pins::default() }, good).unwrap();
        asked.set(0);
        for number in 0..2 {
            let ahead = ahead(number, &look, &what_if);
            let (setting, decisions) = steering.begin(&ahead);
            assert!(setting == good && decisions.is_empty(), "{setting:?} {decisions:?}");
            let wait = Wait { total_ms: wait_ms, fetch_ms: wait_ms, ..Wait::default() };
            let report = EpochReport { wall_ms: 1_000.0 + wait_ms, wait, ..epoch(number, good) };
            steering.ended(&report, true);
        }
        assert_eq!(asked.get() > 0, asks, "{wait_ms} ms");
    }
}

/// What is decided after epochs of so many ms at this setting, and how often it was asked what a split would come to.
fn asked(
    setting: Setting,
    pins: Pins,
    jobs: usize,
    wall_ms: &[f64],
    answers: Answers,
) -> (Vec<Decision>, Vec<u32>) {
    let steering = Steering::new(SteerOptions { on: true, pins }, setting).unwrap();
    let asks = std::cell::Cell::new(0);
    let look = |_| Some(answers);
    let latency_s = answers.latency_s;
    // The node's cores give a thousand samples per second, whatever the setting.
    let what_if = |_, _| {
        asks.set(asks.get() + 1);
        let bytes = [100_000.0, 40_000.0];
        let (upstream_per_s, local_s) = (1_000.0, [0.0008, 0.0006]);
        let nothing = (0.0, false);
        let ((upstream_s, same_machine), per_byte_s, step_cpu_s) = (nothing, 0.0, 0.0);
        Some([WhatIf { bytes, local_s, upstream_per_s, upstream_s, same_machine, per_byte_s, step_cpu_s }; 2])
    };
    let (mut decided, mut counts) = (Vec::new(), Vec::new());
    for (number, wall_ms) in wall_ms.iter().copied().enumerate() {
        let epoch_number = number as u64;
        let ahead = Ahead { can_split: !pins.split, jobs, ..ahead(epoch_number, &look, &what_if) };
        asks.set(0);
        decided.extend(steering.begin(&ahead).1);
        counts.push(asks.get());
        let wait = Wait { total_ms: wall_ms - 1_000.0, fetch_ms: wall_ms - 1_000.0, ..Wait::default() };
        let fetch_ms = 2_000.0 * latency_s * 1e3;
        let report = EpochReport { wall_ms, wait, fetch_ms, ..epoch(epoch_number, setting) };
        steering.lock().cpu_s = busy_s() - report.loader_cpu_ms / 1e3;
        steering.ended(&report, true);
    }
    (decided, counts)
}

#[test]
fn what_was_found_to_be_best_is_not_looked_for_in_every_epoch() {
    let good = Setting { threads: 2, reads: 64, ahead: 4, split: true };
    let walls = [2_000.0, 2_000.0, 2_050.0, 1_950.0, 2_000.0, 2_000.0, 2_000.0, 2_000.0];
    let link = Answers { latency_s: 0.008, bytes_per_s: 50e6 };
    let (decided, asks) = asked(good, Pins::default(), 1, &walls, link);
    assert!(decided.is_empty(), "{decided:?}");
    assert!(asks[1] > 0 && asks[2..=5].iter().all(|asks| *asks == 0) && asks[6] > 0, "{asks:?}");
    // An epoch that is not like it is a reason to ask again.
    let (_, asks) = asked(good, Pins::default(), 1, &[2_000.0, 2_000.0, 2_500.0, 2_000.0], link);
    assert!(asks[2] == 0 && asks[3] > 0, "{asks:?}");
}

#[test]
fn jobs_that_share_a_store_do_not_outbid_each_other() {
    let pins = Pins { split: true, threads: true, ahead: true, ..Pins::default() };
    for (jobs, reads, moves) in [(1, 64, true), (2, 64, false), (2, 4, true)] {
        let setting = Setting { threads: 2, reads, ahead: 8, split: false };
        // So many reads at once, and what an epoch took, make a latency.
        let far = Answers { latency_s: reads as f64 * 0.002, bytes_per_s: f64::INFINITY };
        let (decided, _) = asked(setting, pins, jobs, &[4_000.0, 4_000.0], far);
        let to: Vec<&str> = decided.iter().map(|one| one.to.as_str()).collect();
        assert_eq!(!to.is_empty(), moves, "{jobs} jobs, {reads} reads: {decided:?}");
        assert!(jobs == 1 || to.iter().all(|to| to.parse::<usize>().unwrap() <= 64), "{decided:?}");
    }
}
