//! `compare split` as a user meets it: a real node in a process of its own behind a slow link.

use crate::{Place, text};

#[test]
fn policies_side_by_side_over_a_slow_link() {
    let place = Place::new();
    let photos = place.photos(48);
    let args = ["compare", "split", text(&photos), "--by", "throttle", "--link", "16Mbit", "--cores", "0,1"];
    let more = ["--policies", "all,best", "--epochs", "1", "--batch", "8", "--svg", "split.svg", "--json"];
    // What else this machine does meanwhile is not to be counted.
    let apart = ["--set", "split.same_machine=false"];
    let rows = place.run(&[&args[..], &more, &apart].concat()).good().json();
    let names: Vec<(&str, f64)> = rows
        .iter()
        .map(|row| (row["policy"].as_str().unwrap(), row["upstream_cores"].as_f64().unwrap()))
        .collect();
    let expected = [("none", 0.0), ("all", 0.0), ("best", 0.0), ("none", 1.0), ("all", 1.0), ("best", 1.0)];
    assert_eq!(names, expected);
    let figure = |row: usize, field: &str| rows[row][field].as_f64().unwrap_or_else(|| panic!("{field}"));
    for row in 0..4 {
        assert!(
            (figure(row, "traffic_ratio") - 1.0).abs() < 1e-9,
            "without cores everything comes raw: {rows:?}"
        );
    }
    assert!(figure(4, "traffic_ratio") < 0.9, "tensors are larger than files: {}", rows[4]);
    assert!(figure(5, "traffic_ratio") > 1.3 && figure(5, "speedup") > 1.1, "{}", rows[5]);
    assert!(figure(5, "predicted_s") > 0.0 && figure(5, "upstream_cpu_s") > 0.0, "{}", rows[5]);
    assert_eq!((&rows[5]["link"], &rows[5]["link_bytes_per_s"]), (&"throttle".into(), &2_000_000.into()));
    assert!(std::fs::read_to_string(place.path("split.svg")).unwrap().contains("best"));
}

#[test]
fn nonsense_is_refused() {
    let place = Place::new();
    let photos = place.photos(4);
    for (args, words) in [
        (["--cores", "-1"], "\"-1\" is not a number from 0"),
        (["--link", "0"], "--link \"0\" is not a rate above 0"),
        (["--policies", "sofon"], "sophon"),
        (["--by", "magic"], "auto, namespace, throttle"),
        (["--epochs", "0"], "--epochs 0 is not from 1"),
        (["--accelerator", "-5"], "--accelerator -5 is not from 0"),
    ] {
        place.run(&[&["compare", "split", text(&photos)], &args[..]].concat()).bad(2, &[words]);
    }
    place.run(&["compare", "split", "nowhere"]).bad(1, &["nowhere"]);
}
