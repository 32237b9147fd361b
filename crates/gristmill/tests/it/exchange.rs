//! Ranks that exchange: what they print, what they refuse, and kill -9 at any moment.

use crate::{Place, text};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const WORLD: u64 = 3;
const EPOCHS: u64 = 5;

/// Every batch of every rank by rank, epoch and number: ids and content.
type Trace = BTreeMap<(u64, u64, u64), (serde_json::Value, serde_json::Value)>;

fn trace(path: &Path) -> Trace {
    let mut all = Trace::new();
    for rank in 0..WORLD {
        let whole = fs::read_to_string(format!("{}.{rank}", text(path))).unwrap_or_default();
        // A line that the kill cut off has not been handed over.
        for line in whole.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |name: &str| value[name].as_u64().unwrap();
            let seen = (value["ids"].clone(), value["fingerprint"].clone());
            all.insert((rank, number("epoch"), number("batch")), seen);
        }
    }
    all
}

/// The ids that the slices on disk have, rank by rank.
fn slices(folder: &Path) -> Vec<Vec<u32>> {
    let one = |rank: u64| {
        let places = fs::read_dir(folder.join(format!("rank-{rank:05}"))).unwrap().map(Result::unwrap);
        let files = places.filter(|place| place.path().is_dir()).flat_map(|place| {
            fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap())
        });
        // What was being written when it was killed has an ending.
        files.filter_map(|name| u32::from_str_radix(&name, 16).ok()).collect()
    };
    (0..WORLD).map(one).collect()
}

/// The newest epoch that a journal has committed.
fn committed(folder: &Path) -> u64 {
    let one = |rank: u64| {
        let text = fs::read_to_string(folder.join(format!("rank-{rank:05}/slice.json"))).ok()?;
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["epoch"].as_u64()
    };
    (0..WORLD).filter_map(one).max().unwrap_or(0)
}

#[test]
fn killed_ranks_lose_and_double_nothing() {
    let place = Place::new();
    let photos = place.photos(60);
    let base =
        ["bench", "load", text(&photos), "--ranks", "3", "--exchange", "0.5", "--batch", "2", "--json"];
    let total = EPOCHS.to_string();
    let ran = place.run(&[&base[..], &["--epochs", &total, "--batches-out", "whole"]].concat()).good();
    let whole = trace(&place.path("whole"));
    assert_eq!(whole.len() as u64, WORLD * EPOCHS * 10);
    let rows = ran.json();
    let totals: Vec<_> = rows.iter().filter(|row| row["total"] == true).collect();
    assert_eq!((rows.len() as u64, totals.len() as u64), (EPOCHS * (WORLD + 1), EPOCHS));
    assert!(totals.iter().all(|row| row["wait_exchange_share"].as_f64().unwrap() < 0.9));
    assert!(totals.iter().all(|row| row["resumes_at"] == 0));
    assert!(rows.iter().filter(|row| row["rank"] == 1).all(|row| row["exchange"]["sent"] == 10));

    let hold = place.path("slice");
    let mut pieces = Trace::new();
    let give_up = Instant::now() + Duration::from_mins(3);
    for turn in 0.. {
        assert!(Instant::now() < give_up, "no progress");
        let from = committed(&hold);
        if from == EPOCHS {
            assert!(turn >= 4, "it was killed several times");
            break;
        }
        let (name, left) = (format!("piece-{turn}"), (EPOCHS - from).to_string());
        let from = from.to_string();
        let more = ["--hold", text(&hold), "--from-epoch", &from, "--epochs", &left, "--batches-out", &name];
        let mut child = place
            .command(&[&base[..], &more, &["--step-ms", "3"]].concat())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Killed some batches after it has begun: in the middle of an exchange, at its end, in the next one.
        let batches = WORLD as usize * (4 + turn * 7 % 13);
        while trace(&place.path(&name)).len() < batches && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < give_up, "stuck in epoch {from}");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(turn as u64 % 7));
        child.kill().unwrap();
        child.wait().unwrap();
        // Every sample is somewhere, whatever was under way; no slice has more than it may.
        let there = slices(&hold);
        assert!(there.iter().all(|ids| ids.len() <= 30), "{there:?}");
        let mut all = there.concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (0..60).collect::<Vec<_>>(), "turn {turn}");
        for (at, seen) in trace(&place.path(&name)) {
            assert_eq!(whole[&at], seen, "rank, epoch and batch {at:?}");
            pieces.insert(at, seen);
        }
    }
    assert_eq!(pieces, whole);
    // One more epoch, to the end: every sample is held once.
    let more = ["--hold", text(&hold), "--from-epoch", &total, "--epochs", "1"];
    let ran = place.run(&[&base[..], &more].concat()).good();
    assert!(ran.json().iter().filter(|row| row["total"] != true).all(|row| row["exchange"]["refilled"] == 0));
    assert_eq!(ran.json()[WORLD as usize]["resumes_at"], EPOCHS);
    let mut all = slices(&hold).concat();
    all.sort_unstable();
    assert_eq!(all, (0..60).collect::<Vec<_>>());
}

#[test]
fn an_epoch_of_several_ranks_is_one_block() {
    let place = Place::new();
    let photos = place.photos(24);
    let base = ["bench", "load", text(&photos), "--ranks", "3", "--batch", "2", "--epochs", "2"];
    let run = |more: &[&str]| place.run(&[&base[..], more].concat()).good();
    let brief = run(&["--exchange", "0.5", "--hold", text(&place.path("slice"))]);
    let out = brief.out;
    assert_eq!(out.lines().count(), 6, "{out}");
    assert!(
        out.contains("epoch 1, 3 ranks: 24 samples in") && out.contains("exchanged 12 samples ("),
        "{out}"
    );
    let words = run(&["--exchange", "0.5", "--hold", text(&place.path("slice")), "--from-epoch", "2"]).err;
    assert!(
        words.contains("slice of rank 0: ready for epoch 2; 8 samples were there, 0 were read"),
        "{words}"
    );
    let verbose = run(&["--exchange", "0.01", "--verbose"]).out;
    assert!(verbose.contains("rank 2, epoch 1") && verbose.contains("note: a fraction of 0.01"), "{verbose}");
    assert!(!run(&["--exchange", "global"]).out.contains("exchanged"));
}

#[test]
fn what_cannot_be_exchanged_is_said() {
    let place = Place::new();
    let photos = place.photos(12);
    let run = |more: &[&str]| place.run(&[&["bench", "load", text(&photos), "--epochs", "1"], more].concat());
    run(&["--exchange", "0.3"]).bad(2, &["an exchange needs ranks"]);
    run(&["--exchange", "0.3", "--ranks", "1"]).bad(2, &["an exchange needs at least 2 ranks"]);
    run(&["--exchange", "0.3", "--ranks", "13"]).bad(2, &["13 ranks cannot each hold a slice of 12 samples"]);
    run(&["--exchange", "1.3", "--ranks", "2"]).bad(2, &["exchange.fraction", "a share from 0 to 1"]);
    run(&["--ranks", "0"]).bad(2, &["--ranks 0"]);
    run(&["--ranks", "2", "--exchange", "0.5", "--link", "fast"]).bad(2, &["--link", "not a speed"]);
    run(&["--ranks", "2", "--exchange", "0.5", "--set", "exchange.message_bytes_max=100"])
        .bad(2, &["over exchange.message_bytes_max = 100"]);
    run(&["--ranks", "2", "--exchange", "global"]).good();
    let gzipped = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../data/shippable/fashion-mnist-1000-test-images-idx3-ubyte.gz");
    let ran = place.run(&["bench", "load", text(&gzipped), "--ranks", "2", "--exchange", "0.5"]);
    ran.bad(2, &["gzipped"]);
}
