//! `compare exchange` as a user meets it: real trainings of many ranks on shipped pictures, in seconds.

use crate::{Place, text};
use std::path::PathBuf;

/// The shipped pictures to train on and to judge by.
fn pictures() -> [PathBuf; 2] {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/shippable/fashion-mnist-");
    ["4000-train", "1000-test"].map(|part| PathBuf::from(format!("{folder}{part}-images-idx3-ubyte.gz")))
}

const SMALL: [&str; 8] = ["--ranks", "64", "--hidden", "16", "--seeds", "1", "--epochs", "4"];

#[test]
fn local_shuffling_of_sorted_slices_loses_and_an_exchange_mends_it() {
    let place = Place::new();
    let [source, test] = pictures();
    let more =
        ["--fractions", "0,0.5", "--choose", "uniform,class", "--keep", "kept", "--svg", "e.svg", "--json"];
    let args = [&["compare", "exchange", text(&source), "--test", text(&test)], &SMALL[..], &more].concat();
    let rows = place.run(&args).good().json();
    let of = |partition: &str, fraction: serde_json::Value, choose: &str| {
        let found = rows.iter().find(|row| {
            row["partition"] == partition && row["fraction"] == fraction && row["choose"] == choose
        });
        found.unwrap_or_else(|| panic!("{partition} {fraction} {choose}"))
    };
    let accuracy =
        |partition, fraction, choose| of(partition, fraction, choose)["accuracy"].as_f64().unwrap();
    let global = accuracy("sorted", "global".into(), "uniform");
    assert!(global > 0.7, "{global}");
    assert!(accuracy("sorted", 0.0.into(), "uniform") < global - 0.1, "{rows:?}");
    assert!(accuracy("even", 0.0.into(), "uniform") > global - 0.05, "{rows:?}");
    for choose in ["uniform", "class"] {
        let row = of("sorted", 0.5.into(), choose);
        assert!(row["accuracy"].as_f64().unwrap() > global - 0.05, "{row}");
        assert!(row["moved_share"].as_f64().unwrap() > 0.45 && row["ranks"] == 64, "{row}");
    }
    let summaries: Vec<_> = rows.iter().filter(|row| row["summary"] == true).collect();
    assert_eq!((rows.len() - summaries.len(), summaries.len()), (8, 4));
    assert_eq!(std::fs::read_to_string(place.path("e.svg")).unwrap().matches("<polyline").count(), 4);
    // What is kept is not trained again: the same rows at once, and nothing is added.
    let kept = std::fs::read_to_string(place.path("kept")).unwrap();
    assert_eq!(kept.lines().count(), 7);
    assert_eq!(place.run(&args).good().json(), rows);
    assert_eq!(std::fs::read_to_string(place.path("kept")).unwrap(), kept);
}

#[test]
fn the_table_is_for_people() {
    let place = Place::new();
    let [source, _] = pictures();
    let more = ["--fractions", "0.3", "--choose", "importance", "--partition", "sorted", "--holdout"];
    let ran = place.run(&[&["compare", "exchange", text(&source)], &SMALL[..], &more].concat()).good();
    assert!(ran.out.contains("importance") && ran.out.contains("smallest"), "{}", ran.out);
    assert!(ran.out.contains("ranks x batch: 64 x"), "{}", ran.out);
}

#[test]
fn nonsense_is_refused() {
    let place = Place::new();
    let [source, test] = pictures();
    for (args, words) in [
        (["--ranks", "1"], "not a number from 2"),
        (["--ranks", "5000"], "5000 ranks"),
        (["--fractions", "2"], "from 0 to 1"),
        (["--choose", "clas"], "uniform, importance, class, balanced"),
        (["--partition", "odd"], "even, sorted"),
        (["--batch", "0"], "--batch"),
        (["--epochs", "0"], "0 epochs"),
        (["--seeds", "0"], "--seeds 0"),
    ] {
        let typed = ["compare", "exchange", text(&source), "--test", text(&test)];
        place.run(&[&typed, &args[..]].concat()).bad(2, &[words]);
    }
}
