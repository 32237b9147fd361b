//! The bottleneck as a user meets it: measured, decided, explained, saved.

use crate::{Place, text};

#[test]
fn a_slow_store_a_slow_model_and_no_model() {
    let place = Place::new();
    let photos = place.photos(40);
    let args = ["profile", text(&photos), "--recipe", "imagenet-train", "--seconds", "2", "--json"];
    let slow = ["--latency-ms", "100", "--set", "store.reads_in_flight=2", "--compute", "1000000"];
    let row = place.run(&[&args[..], &slow, &["--save", "p.json"]].concat()).good().json().remove(0);
    assert_eq!((&row["bound"], &row["cost_votes"]), (&"I/O".into(), &true.into()), "{row}");
    assert!(row["reason"].as_str().unwrap().contains("bound by I/O; entropy, margin and cost vote"), "{row}");
    let rate = |value: &serde_json::Value| value["samples_per_s"].as_f64().unwrap();
    // Two reads of 100 ms each at a time: 20 a second at most.
    assert!(rate(&row["fetch"]) < 22.0 && rate(&row["fetch"]) > 2.0 && rate(&row["prep"]) > 22.0, "{row}");
    let saved = std::fs::read_to_string(place.path("p.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&saved).unwrap(), row);

    let row = place.run(&[&args[..], &["--step-ms", "60000"]].concat()).good().json().remove(0);
    assert_eq!((&row["bound"], &row["cost_votes"]), (&"compute".into(), &false.into()), "{row}");
    assert!((row["compute_per_s"].as_f64().unwrap() * 60.0 - row["batch"].as_f64().unwrap()).abs() < 1e-6);

    let forms = &row["forms"];
    let bytes =
        |op: &str| forms["ops"].as_array().unwrap().iter().find(|o| o["op"] == op).unwrap()["bytes"].clone();
    assert_eq!(bytes("random-resized-crop"), 150_528.0, "{forms}");
    assert_eq!(bytes("normalise"), 602_112.0, "{forms}");
    let times = |policy: &str| forms[policy].as_f64().unwrap();
    assert!(times("saves_best") > 1.3 && times("saves_best") > times("saves_sophon"), "{forms}");

    let words = place.run(&args[..6]).good().out;
    assert!(words.contains("not told") && words.contains("waits for data"), "{words}");
    assert!(
        words.contains("cut without loss") && words.contains("a node near the data would save"),
        "{words}"
    );
}

#[test]
fn nonsense_is_refused() {
    let place = Place::new();
    let photos = place.photos(10);
    for (args, words) in [
        (["--step-ms", "0"], "--step-ms 0 is not above 0"),
        (["--step-ms", "-1"], "--step-ms -1 is not above 0"),
        (["--compute", "nan"], "--compute NaN"),
        (["--seconds", "0"], "--seconds 0"),
        (["--seconds", "1e9"], "--seconds 1000000000"),
    ] {
        place.run(&[&["profile", text(&photos)], &args[..]].concat()).bad(2, &[words]);
    }
    let both = place.run(&["profile", text(&photos), "--step-ms", "1", "--compute", "1"]);
    assert_eq!(both.code, Some(2));
}
