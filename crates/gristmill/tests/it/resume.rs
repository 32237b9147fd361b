//! Kill -9 at any time, go on where it was: the batches are those of a run that was never interrupted.

use crate::{Place, text};
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn trace(path: &std::path::Path) -> Vec<serde_json::Value> {
    let whole = fs::read_to_string(path).unwrap_or_default();
    // A line that the kill cut off has not been handed over.
    let lines = whole.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn killed_and_resumed_runs_equal_an_uninterrupted_one() {
    let place = Place::new();
    let photos = place.photos(120);
    let base = [
        "bench",
        "load",
        text(&photos),
        "--recipe",
        "imagenet-train",
        "--batch",
        "3",
        "--epochs",
        "1",
        "--json",
    ];
    place.run(&[&base[..], &["--batches-out", "whole.jsonl"]].concat()).good();
    let whole = trace(&place.path("whole.jsonl"));
    assert_eq!(whole.len(), 40);

    let mut pieces = Vec::new();
    for (turn, threads) in ["1", "2", "7", "3"].iter().cycle().enumerate() {
        assert!(turn < 40, "no progress");
        let from = pieces.len().to_string();
        let name = format!("piece-{turn}.jsonl");
        let more = ["--from-batch", &from, "--threads", threads, "--batches-out", &name, "--step-ms", "5"];
        let mut child = place.command(&[&base[..], &more].concat()).stdout(Stdio::null()).spawn().unwrap();
        // About every tenth batch.
        let give_up = Instant::now() + Duration::from_mins(1);
        while trace(&place.path(&name)).len() < 10 && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < give_up, "stuck after {} batches", pieces.len());
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        pieces.extend(trace(&place.path(&name)));
        if pieces.len() == whole.len() {
            assert!(turn >= 3, "it was killed several times");
            break;
        }
    }
    assert_eq!(pieces, whole);
}
