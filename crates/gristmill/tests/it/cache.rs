//! `gristmill compare cache` as a user meets it.

use super::train::shipped;
use super::{Place, Ran};
use std::fs;

/// A link so fast that the tests are not about waiting.
const LINK: [&str; 4] = ["--bytes-per-s", "50MB", "--latency-ms", "0"];

fn compare(place: &Place, args: &[&str]) -> Ran {
    let small = ["--seeds", "1", "--hidden", "16"];
    place.run(&[&["compare", "cache"][..], &small, &LINK, args].concat())
}

#[test]
fn every_side_has_its_row() {
    let place = Place::new();
    let rows =
        compare(&place, &["--epochs", "3", "--size", "10%,40%", "--svg", "c.svg", "--json"]).good().json();
    let names = |size: &str| -> Vec<&str> {
        rows.iter().filter(|row| row["size"] == size).map(|row| row["policy"].as_str().unwrap()).collect()
    };
    let cached = ["default", "base", "ilfu", "quiver", "static", "icache", "ours"];
    assert_eq!((names("10%"), names("40%"), names("off")), (cached.into(), cached.into(), vec!["none"]));
    let number = |size: &str, policy: &str, field: &str| {
        let row = rows.iter().find(|row| row["size"] == size && row["policy"] == policy);
        row.unwrap()[field].as_f64().unwrap_or_else(|| panic!("{policy}: {field}"))
    };
    for row in &rows {
        let (policy, size) = (row["policy"].as_str().unwrap(), row["size"].as_str().unwrap());
        for field in ["io_wait_s", "epoch_s", "accuracy", "io_wait_ratio", "epoch_ratio", "stand_ins"] {
            assert!(number(size, policy, field) >= 0.0, "{field}: {row}");
        }
        assert!(number(size, policy, "bytes_read") > 0.0 && row["bytes_per_s"] == 50_000_000, "{row}");
    }
    // What never changes is known exactly, but for what an entry takes beside its bytes.
    let fixed = |size, field| number(size, "static", field);
    assert!((0.3..=0.4).contains(&fixed("40%", "hit_ratio_later")), "{rows:?}");
    assert!(fixed("40%", "hit_ratio") < fixed("40%", "hit_ratio_later"));
    assert!(fixed("10%", "hit_ratio") < fixed("40%", "hit_ratio"));
    assert!(fixed("40%", "bytes_read") < 0.85 * number("off", "none", "bytes_read"));
    assert!((number("off", "none", "hit_ratio") - 0.0).abs() < 1e-12);
    // A cache changes no batch: the same samples in the same order train the same model.
    let same = ["none", "static"].map(|p| number(if p == "none" { "off" } else { "40%" }, p, "accuracy"));
    assert_eq!(same[0].to_bits(), same[1].to_bits());
    assert!(fs::read_to_string(place.path("c.svg")).unwrap().contains("seconds waited"));
}

#[test]
fn the_table_says_what_was_measured() {
    let place = Place::new();
    let ran = compare(&place, &["--epochs", "2", "--policies", "static"]).good();
    for words in ["static", "default", "50.0 MB per second", "the first one included"] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    assert!(!ran.out.contains("quiver"), "{}", ran.out);
}

#[test]
fn two_jobs_on_one_node() {
    let place = Place::new();
    let args = ["--epochs", "2", "--jobs", "2", "--policies", "ours,icache", "--json"];
    let rows = compare(&place, &args).good().json();
    let names = |field: &str| rows.iter().map(|row| row[field].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(names("policy"), ["shared", "only-a", "only-b", "shared", "only-a", "only-b"]);
    assert_eq!(names("side"), ["ours", "ours", "ours", "icache", "icache", "icache"]);
    for row in &rows {
        let of = |field: &str| row[field].as_f64().unwrap();
        let last = of("completion_a_s").max(of("completion_b_s"));
        assert!((of("completion_s") - last).abs() < 1e-9 && last > 0.0, "{row}");
        assert!(of("bytes_read") > 0.0 && of("accuracy_a") > 0.3 && of("accuracy_b") > 0.3, "{row}");
    }
}

#[test]
fn bad_input_is_refused() {
    let place = Place::new();
    let zipped = shipped("4000-train");
    let test = shipped("1000-test");
    for (args, words) in [
        (&["--size", "off"][..], "cache in this process"),
        (&["--size", "grist://h:1/x"], "cache in this process"),
        (&["--size", "some"], "20%"),
        (&["--size", ","], "names 0 sizes"),
        (&["--size", "100"], "smallest sample"),
        (&["--policies", "icash"], "icache"),
        (&["--jobs", "3"], "neither 1 nor 2"),
        (&["--jobs", "2", "--policies", "none"], "without a cache"),
        (&["--jobs", "2", "--svg", "c.svg"], "--svg"),
        (&["--bytes-per-s", "fast"], "throttle_bytes_per_s"),
        (&[&zipped, "--test", &test], "gzipped"),
    ] {
        place
            .run(&[&["compare", "cache", "--seeds", "1", "--epochs", "1"][..], args].concat())
            .bad(2, &[words]);
    }
}
