//! `gristmill train` as a user meets it: it learns, it can be stopped and killed at any time, and it says what is wrong.

use crate::{Place, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/shippable/");

pub(crate) fn shipped(name: &str) -> String {
    format!("{DATA}fashion-mnist-{name}-images-idx3-ubyte.gz")
}

/// A training of the shipped pictures with these arguments.
fn typed<'a>(train: &'a str, test: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["train", train, "--test", test, "--json"], more].concat()
}

fn total(rows: &[Value]) -> &Value {
    let last = rows.last().unwrap();
    assert_eq!(last["total"], true);
    last
}

#[test]
fn it_learns_and_reports() {
    let place = Place::new();
    let (train, test) = (shipped("4000-train"), shipped("1000-test"));
    let more = ["--epochs", "3", "--report", "r.svg", "--report", "r.json"];
    let rows = place.run(&typed(&train, &test, &more)).good().json();
    assert_eq!(rows.len(), 4);
    assert!(rows[2]["loss"].as_f64().unwrap() < rows[0]["loss"].as_f64().unwrap());
    assert!(total(&rows)["accuracy"].as_f64().unwrap() > 0.78, "{}", rows[3]);
    for row in &rows[..3] {
        assert_eq!(
            (&row["samples"], &row["served"], &row["trained"]),
            (&4_000.into(), &4_000.into(), &4_000.into())
        );
    }
    let drawn = fs::read_to_string(place.path("r.svg")).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    // A line of accuracy over time, with a point per epoch.
    let lines: Vec<&str> =
        drawn.split("points=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let points = |line: &&&str| {
        line.split(' ')
            .filter(|point| point.split(',').all(|n| n.parse::<f64>().is_ok_and(f64::is_finite)))
            .count()
    };
    assert!(lines.iter().any(|line| points(&line) == 3), "{lines:?}");
    let written = fs::read_to_string(place.path("r.json")).unwrap();
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["epochs"], Value::from(rows[..3].to_vec()));
    assert_eq!(written["total"], rows[3]);
    let words = place.run(&["train", &train, "--test", &test, "--epochs", "1"]).good();
    assert!(
        words.out.contains("of the test data right") && words.out.contains("waiting for bytes"),
        "{}",
        words.out
    );
}

#[test]
fn killed_and_resumed_it_ends_with_the_same_bits() {
    let place = Place::new();
    let (train, test) = (shipped("4000-train"), shipped("1000-test"));
    let choosing = ["--selection", "weighted", "--families", "remove"];
    let base = typed(&train, &test, &[&["--epochs", "3", "--batch", "16"], &choosing[..]].concat());
    let whole = place.run(&base).good().json();
    let kept = ["--checkpoint", "c.ckpt", "--checkpoint-batches", "40", "--resume"];
    let resumed = [&base[..], &kept].concat();
    let mut kills = 0;
    let last = loop {
        assert!(kills < 60, "no progress");
        let mut child = place.command(&resumed).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let before = fs::metadata(place.path("c.ckpt")).and_then(|meta| meta.modified()).ok();
        let give_up = Instant::now() + Duration::from_mins(1);
        // Let it get past the next checkpoint or two, then kill it in the middle of whatever it does.
        while child.try_wait().unwrap().is_none() {
            let now = fs::metadata(place.path("c.ckpt")).and_then(|meta| meta.modified()).ok();
            if now != before {
                std::thread::sleep(Duration::from_millis(20 + 17 * kills % 60));
                break;
            }
            assert!(Instant::now() < give_up, "stuck");
            std::thread::sleep(Duration::from_millis(1));
        }
        if child.try_wait().unwrap().is_some() {
            break child.wait_with_output().unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    };
    assert!(kills >= 3, "it was killed {kills} times");
    let rows = crate::Ran::of(&last).good().json();
    assert_eq!(total(&rows)["fingerprint"], total(&whole)["fingerprint"]);
    assert_eq!(total(&rows)["accuracy"], total(&whole)["accuracy"]);
    let again = place.run(&resumed).good().json();
    assert_eq!(total(&again)["fingerprint"], total(&whole)["fingerprint"], "a finished one stays finished");
}

#[test]
fn ctrl_c_keeps_the_batch_that_was_reached() {
    let place = Place::new();
    let (train, test) = (shipped("4000-train"), shipped("1000-test"));
    let base = typed(&train, &test, &["--epochs", "4", "--batch", "8"]);
    let kept = [&base[..], &["--checkpoint", "c.ckpt", "--report", "r.json", "--report", "r.svg"]].concat();
    let mut child = place.command(&kept).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let give_up = Instant::now() + Duration::from_mins(1);
    while !place.path("c.ckpt").exists() {
        assert!(Instant::now() < give_up && child.try_wait().unwrap().is_none(), "no checkpoint");
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(50));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = crate::Ran::of(&child.wait_with_output().unwrap());
    ran.bad(130, &["Ctrl-C after 1 epochs", "c.ckpt"]);
    assert!(ran.err.contains("--resume"));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(place.path("r.json")).unwrap()).unwrap();
    assert_eq!(report["total"]["epochs"], 1, "what there is when it is stopped is in the reports");
    assert!(place.path("r.svg").exists());
    place.run(&kept).bad(2, &["exists already"]);
    let rows = place.run(&[&kept[..], &["--resume"]].concat()).good().json();
    let whole = place.run(&base).good().json();
    assert_eq!(total(&rows)["fingerprint"], total(&whole)["fingerprint"]);
}

#[test]
fn a_checkpoint_of_something_else_is_refused() {
    let place = Place::new();
    let (train, test) = (shipped("4000-train"), shipped("1000-test"));
    let kept = ["--epochs", "1", "--checkpoint", "c.ckpt", "--resume"];
    place.run(&typed(&train, &test, &kept)).good();
    let other = |more: &[&str]| place.run(&[&typed(&train, &test, &kept)[..], more].concat());
    other(&["--batch", "32"]).bad(2, &["loader.batch = 64", "now it is 32"]);
    other(&["--lr", "0.01"]).bad(2, &["--lr = 0.05", "0.01"]);
    other(&["--set", "loader.seed=9"]).bad(2, &["loader.seed = 0"]);
    other(&["--set", "steer.probe_share=0.2"]).bad(2, &["steer.probe_share = 0.01"]);
    place.run(&typed(&test, &test, &kept)).bad(2, &["the data"]);
    let mut spoiled = fs::read(place.path("c.ckpt")).unwrap();
    let middle = spoiled.len() / 2;
    spoiled[middle] ^= 1;
    fs::write(place.path("c.ckpt"), spoiled).unwrap();
    other(&[]).bad(1, &["c.ckpt", "damaged"]);
    fs::write(place.path("c.ckpt"), "something").unwrap();
    other(&[]).bad(1, &["c.ckpt is not a checkpoint"]);
}

/// Pictures of 28 by 28 as an idx file, their labels in turns.
fn pictures(place: &Place, samples: u8, classes: u8) -> String {
    let name = format!("of-{samples}-{classes}-images-idx3-ubyte");
    let mut images = vec![0, 0, 8, 3, 0, 0, 0, samples, 0, 0, 0, 28, 0, 0, 0, 28];
    images.extend((0..u32::from(samples) * 784).map(|place| (place * 7 % 251) as u8));
    fs::write(place.path(&name), images).unwrap();
    let labels = (0..samples).map(|sample| sample % classes);
    let labels: Vec<u8> = [0, 0, 8, 1, 0, 0, 0, samples].into_iter().chain(labels).collect();
    fs::write(place.path(&name.replace("images-idx3", "labels-idx1")), labels).unwrap();
    name
}

#[test]
fn one_sample_or_one_class_is_trained_in_every_epoch() {
    let place = Place::new();
    for (samples, classes) in [(1, 1), (12, 1), (2, 2)] {
        let data = pictures(&place, samples, classes);
        for (way, families) in
            [("uniform", "off"), ("weighted", "remove"), ("bucket", "remove"), ("iis", "off")]
        {
            let args =
                ["train", &data, "--selection", way, "--families", families, "--epochs", "6", "--json"];
            let rows = place.run(&args).good().json();
            assert_eq!(rows.len(), 7, "{way} of {samples}");
            for row in &rows[..6] {
                assert!(row["trained"].as_u64().unwrap() > 0, "{way} of {samples}: {row}");
                assert!(row["loss"].as_f64().unwrap().is_finite(), "{way} of {samples}: {row}");
            }
        }
    }
}

#[test]
fn wrong_calls_are_one_sentence() {
    let place = Place::new();
    let (train, test) = (shipped("4000-train"), shipped("1000-test"));
    for (more, words) in [
        (&["--epochs", "0"][..], &["0 epochs"][..]),
        (&["--hidden", "12,x"], &["--hidden", "\"x\""]),
        (&["--hidden", "12,0"], &["--hidden", "\"0\""]),
        (&["--hidden", "99999999999"], &["weights"]),
        (&["--lr", "-1"], &["-1 is not a learning rate"]),
        (&["--lr", "nan"], &["not a learning rate"]),
        (&["--momentum", "1.5"], &["momentum 1.5"]),
        (&["--report", "r.png"], &["r.png"]),
        (&["--report", "nowhere/r.svg"], &["nowhere"]),
        (&["--recipe", "mmist"], &["mmist"]),
        (&["--selection", "buckat"], &["buckat"]),
        (&["--families", "some"], &["some", "repeat"]),
    ] {
        place.run(&typed(&train, &test, more)).bad(2, words);
    }
    place.run(&typed(&train, &test, &["--lr", "1e30", "--epochs", "1"])).bad(2, &["the loss of batch"]);
    let ran = place.run(&typed(&train, &test, &["--resume"]));
    assert!(ran.code == Some(2) && ran.err.contains("--checkpoint"), "{}", ran.err);
    place.run(&typed(&train, &test, &["--checkpoint", "nowhere/c.ckpt"])).bad(1, &["nowhere"]);
    let photos = place.photos(10);
    place.run(&["train", text(&photos)]).bad(2, &["recipe"]);
}

#[test]
fn every_method_has_its_row() {
    let place = Place::new();
    let args =
        ["compare", "selection", "--methods", "bucket-norecall,weighted", "--seeds", "2", "--epochs", "8"];
    let more = ["--hidden", "16", "--svg", "s.svg", "--json"];
    let rows = place.run(&[&args[..], &more].concat()).good().json();
    let names: Vec<&str> = rows.iter().map(|row| row["method"].as_str().unwrap()).collect();
    assert_eq!(names, ["uniform", "bucket-norecall", "weighted"]);
    for row in &rows {
        for field in ["accuracy", "accuracy_sd", "delta_points", "speedup", "trained_share", "io_saved_share"]
        {
            assert!(row[field].is_f64(), "{field}: {row}");
        }
    }
    assert_eq!((&rows[0]["speedup"], &rows[0]["trained_share"]), (&1.0.into(), &1.0.into()));
    let (trained, saved) = (&rows[2]["trained_share"], &rows[2]["io_saved_share"]);
    let (trained, saved) = (trained.as_f64().unwrap(), saved.as_f64().unwrap());
    assert!(trained < 0.9 && (trained + saved - 1.0).abs() < 0.01, "{trained} {saved}");
    assert!(fs::read_to_string(place.path("s.svg")).unwrap().contains("weighted"));
    for (methods, word) in
        [("buckat", "bucket"), ("weighted:noize=1", "noise"), ("weighted:noise=x", "noise")]
    {
        place.run(&["compare", "selection", "--methods", methods]).bad(2, &[word]);
    }
    place.run(&["compare", "selection", "--seeds", "0"]).bad(2, &["--seeds 0"]);
    place.run(&["compare", "selection", &shipped("4000-train")]).bad(2, &["test data"]);
}
