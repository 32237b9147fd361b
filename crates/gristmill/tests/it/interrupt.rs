//! Ctrl-C: heard soon, whatever the store or the pretended step is doing, and nothing is left behind.

use crate::{Place, Ran, text};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Whether the process has a handler for SIGINT.
fn listens(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 2 != 0)
}

/// Starts a command that would take minutes, interrupts it and says how it ended.
#[track_caller]
fn interrupted(place: &Place, args: &[&str]) -> Ran {
    let mut command = place.command(args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let give_up = Instant::now() + Duration::from_secs(20);
    while !listens(&child) {
        assert!(Instant::now() < give_up && child.try_wait().unwrap().is_none(), "it never listened");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(400));
    assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let asked = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if asked.elapsed() > Duration::from_secs(2) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it still runs 2 s after Ctrl-C");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ran::of(&child.wait_with_output().unwrap())
}

fn names(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.path("")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const SLOW: [&str; 2] = ["--set", "store.throttle_latency_ms=120000"];
const PATIENT: [&str; 4] = ["--set", "store.attempt_ms_max=600000", "--set", "store.deadline_ms=600000"];

#[test]
fn while_a_slow_store_is_catalogued() {
    let place = Place::new();
    let photos = place.photos(10);
    let args = [&["catalog", "build", text(&photos), "-o", "c.catalog"], &SLOW[..], &PATIENT].concat();
    interrupted(&place, &args).bad(130, &["Ctrl-C"]);
    let args = [&["bench", "load", text(&photos)], &SLOW[..], &PATIENT].concat();
    interrupted(&place, &args).bad(130, &["Ctrl-C"]);
    assert_eq!(names(&place), ["photos"], "nothing is left");
}

#[test]
fn while_a_slow_store_is_read_or_checked() {
    let place = Place::new();
    let photos = place.photos(10);
    place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]).good();
    for command in [
        ["bench", "load", "c.catalog", "--json"],
        ["catalog", "check", "c.catalog", "--json"],
        ["catalog", "check", "c.catalog", "--decode"],
        ["families", "c.catalog", "--page", "p.html"],
        ["profile", "c.catalog", "--save", "p.json"],
    ] {
        let ran = interrupted(&place, &[&command[..], &SLOW, &PATIENT].concat());
        ran.bad(130, &["Ctrl-C"]);
    }
    assert_eq!(names(&place), ["c.catalog", "photos"], "nothing is left");
}

#[test]
fn during_a_long_step() {
    let place = Place::new();
    let photos = place.photos(10);
    let ran = interrupted(&place, &["bench", "load", text(&photos), "--batch", "2", "--step-ms", "60000"]);
    ran.bad(130, &["Ctrl-C"]);
}
