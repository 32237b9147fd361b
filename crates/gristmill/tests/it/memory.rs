//! The memory limit holds, whichever way samples are fetched.

use crate::{Place, text};
use std::fs;
use std::process::Stdio;
use std::time::Duration;

/// What the process itself takes: program, threads, allocator.
const BASE_BYTES: u64 = 48 << 20;

/// The most memory a run of the command held.
fn peak_bytes(place: &Place, args: &[&str]) -> u64 {
    let mut child = place.command(args).stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) * 1_024);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    peak
}

#[test]
fn memory_stays_under_its_limit() {
    let place = Place::new();
    let photos = place.photos(400);
    let limit: u64 = 250 << 20;
    // Batches of 67 leave a short last one; the slow consumer lets the loader run as far ahead as it may.
    for way in ["store.reads_in_flight=0", "store.reads_in_flight=16"] {
        let settings = format!("loader.memory_bytes_max={limit}");
        let args = [
            "bench",
            "load",
            text(&photos),
            "--recipe",
            "imagenet-train",
            "--batch",
            "67",
            "--epochs",
            "2",
            "--json",
            "--step-ms",
            "700",
            "--set",
            &settings,
            "--set",
            way,
            "--set",
            "loader.prefetch_batches=64",
        ];
        let peak = peak_bytes(&place, &args);
        assert!(peak < limit + BASE_BYTES, "{way}: {} MiB at a limit of {} MiB", peak >> 20, limit >> 20);
        assert!(peak > limit / 2, "{way}: it used what it may: {} MiB", peak >> 20);
    }
}
