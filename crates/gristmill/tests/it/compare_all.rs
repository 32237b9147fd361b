//! `compare all` as a user meets it: real trainings in several scenarios, small enough for seconds.

use crate::{Place, text};
use std::path::PathBuf;

/// Pictures to train on and to judge by: the shipped ones, cut short and unpacked.
fn pictures(place: &Place, count: u32) -> [PathBuf; 2] {
    [("4000-train", count), ("1000-test", 200)].map(|(part, count)| {
        for (kind, head, each) in [("images-idx3", 16, 784), ("labels-idx1", 8, 1)] {
            let shipped =
                gristmill_testdata::shippable().join(format!("fashion-mnist-{part}-{kind}-ubyte.gz"));
            let mut bytes = Vec::new();
            let mut inside = flate2::read::GzDecoder::new(std::fs::File::open(shipped).unwrap());
            std::io::Read::read_to_end(&mut inside, &mut bytes).unwrap();
            bytes.truncate(head + each * count as usize);
            bytes[4..8].copy_from_slice(&count.to_be_bytes());
            std::fs::write(place.path(&format!("{part}-{kind}-ubyte")), bytes).unwrap();
        }
        place.path(&format!("{part}-images-idx3-ubyte"))
    })
}

const SMALL: [&str; 8] = ["--epochs", "3", "--seeds", "1", "--hidden", "16", "--latency-ms", "2"];

#[test]
fn every_configuration_is_trained_and_judged_by_plain() {
    let place = Place::new();
    let [source, test] = pictures(&place, 800);
    let args = [
        &[
            "compare",
            "all",
            text(&source),
            "--test",
            text(&test),
            "--scenario",
            "b,c",
            "--accelerator",
            "20000",
        ],
        &SMALL[..],
        &["--json", "--keep", "kept", "--svg", "all.svg"],
    ]
    .concat();
    let rows = place.run(&args).good().json();
    let names = |scenario: &str| -> Vec<&str> {
        let of = rows.iter().filter(|row| row["scenario"] == scenario && row["promise"] != true);
        of.map(|row| row["configuration"].as_str().unwrap()).collect()
    };
    for scenario in ["b", "c"] {
        assert_eq!(names(scenario), ["plain", "selection", "cache", "all"]);
    }
    for row in rows.iter().filter(|row| row["promise"] != true) {
        let number = |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("{field} in {row}"));
        assert!(
            number("accuracy") > 0.3 && number("seconds") > 0.0 && number("speedup_epochs") > 0.0,
            "{row}"
        );
        assert!(row["speedup"].is_null() == row["time_to_s"].is_null(), "{row}");
        assert!((0.1..=1.0).contains(&number("trained_share")) && row["epochs"] == 3, "{row}");
        assert!(row["decisions"].is_array() && row["epoch_s"].as_array().unwrap().len() == 3, "{row}");
        assert!(row["accuracy_sd"].is_null(), "one seed has no spread: {row}");
        let plain = row["configuration"] == "plain";
        assert!(!plain || row["speedup"] == 1.0 && row["trained_share"] == 1.0, "{row}");
    }
    let of = |scenario: &str, configuration: &str| {
        rows.iter().find(|row| row["scenario"] == scenario && row["configuration"] == configuration).unwrap()
    };
    // Reads that overlap, and fewer of them: whatever else this machine does, that is far from plain.
    assert!(of("b", "all")["speedup_epochs"].as_f64().unwrap() > 1.3, "{rows:?}");
    assert!(
        of("b", "cache")["bytes_read"].as_u64().unwrap() < of("b", "plain")["bytes_read"].as_u64().unwrap()
    );
    let verdicts: Vec<_> = rows.iter().filter(|row| row["promise"] == true).collect();
    assert_eq!(verdicts.len(), 2);
    assert!(verdicts.iter().all(|row| row["holds"].is_boolean() && row["accuracy_holds"].is_boolean()));
    assert_eq!(std::fs::read_to_string(place.path("all.svg")).unwrap().matches("<polyline").count(), 8);
    // What is kept is not trained again.
    let kept = std::fs::read_to_string(place.path("kept")).unwrap();
    assert_eq!(kept.lines().count(), 8);
    let again = place.run(&args).good().json();
    for (own, before) in again.iter().zip(&rows) {
        // A number that was written and read again may differ in its last bit.
        let near = |field: &str| {
            (own[field].as_f64()? / before[field].as_f64()? - 1.0).abs().lt(&1e-9).then_some(())
        };
        assert!(
            own["promise"] == true || near("seconds").and(near("speedup_epochs")).is_some(),
            "{own} {before}"
        );
    }
    assert_eq!(again.len(), rows.len());
    assert_eq!(std::fs::read_to_string(place.path("kept")).unwrap(), kept);
}

#[test]
fn jobs_ranks_and_photos_have_their_own_configurations() {
    let place = Place::new();
    let [source, test] = pictures(&place, 400);
    let typed =
        ["compare", "all", text(&source), "--test", text(&test), "--scenario", "d,e", "--epochs", "2"];
    let more = ["--seeds", "1", "--hidden", "8", "--hidden-b", "8", "--workers", "2"];
    let ran = place.run(&[&typed[..], &more].concat()).good();
    for word in ["two jobs", "four ranks", "exchange", "hand", "without split", "d: ", "e: "] {
        assert!(ran.out.contains(word) || ran.err.contains(word), "{word}: {}{}", ran.out, ran.err);
    }
    let photos = place.photos(40);
    let typed =
        ["compare", "all", text(&photos), "--test", text(&photos), "--scenario", "a", "--epochs", "2"];
    let more =
        ["--seeds", "1", "--hidden", "8", "--configurations", "split,all", "--by", "throttle", "--json"];
    let rows = place.run(&[&typed[..], &more].concat()).good().json();
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert!(rows[0]["ground"].as_str().unwrap().contains("500 Mbit/s, paced by the client"), "{rows:?}");
    // Learning how fast the node is takes some bytes, which so few photos hardly give back.
    let read = |row: usize| rows[row]["bytes_read"].as_u64().unwrap();
    assert!(read(1) <= read(0) * 11 / 10, "{rows:?}");
}

#[test]
fn a_bad_start_is_shown_beside_fixed_settings() {
    let place = Place::new();
    let [source, test] = pictures(&place, 300);
    let typed =
        ["compare", "all", text(&source), "--test", text(&test), "--bad-start", "--scenario", "b", "--json"];
    let rows = place.run(&[&typed[..], &SMALL].concat()).good().json();
    let bad: Vec<_> = rows.iter().filter(|row| row["bad_start"] == true).collect();
    assert_eq!((rows.len(), bad.len()), (4, 1), "{rows:?}");
    assert_eq!(bad[0]["epoch_s"].as_array().unwrap().len(), 3);
    let first = |row: &serde_json::Value| row["epoch_s"][0].as_f64().unwrap();
    assert!(first(bad[0]) > 2.0 * first(&rows[2]), "one read at a time is slow: {rows:?}");
}

#[test]
fn nonsense_is_refused() {
    let place = Place::new();
    for (args, words) in [
        (["--scenario", "f"], "\"f\" is not one of a, b, c, d, e"),
        (["--scenario", ""], "names none"),
        (["--configurations", "al"], "plain, selection"),
        (["--workers", "0"], "--workers 0"),
        (["--accelerator", "-1"], "--accelerator -1"),
        (["--epochs", "0"], "0 epochs"),
        (["--seeds", "0"], "--seeds 0"),
        (["--keep", "nowhere/kept"], "nowhere"),
    ] {
        place.run(&[&["compare", "all"], &args[..]].concat()).bad(2, &[words]);
    }
    place.run(&["compare", "all", "--scenario", "d", "--bad-start"]).bad(2, &["--bad-start", "scenario d"]);
}
