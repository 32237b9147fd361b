//! `simulate` as a user meets it: figures by cause, the same again from the same seed, faults, profiles, nonsense.

use crate::{Place, text};
use serde_json::Value;

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} in {row}"))
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_does_not() {
    let place = Place::new();
    let args = [
        "simulate",
        "--ranks",
        "16",
        "--samples",
        "3200",
        "--epochs",
        "30",
        "--labels",
        "sorted",
        "--classes",
    ];
    let more = ["10", "--spread", "0.5", "--shuffle", "global,local,partial", "--json"];
    let run = |seed: &str| place.run(&[&args[..], &more, &["--seed", seed]].concat()).good().out;
    let out = run("7");
    assert_eq!(out, run("7"));
    assert_ne!(out, run("8"));

    let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 3 * 31, "an object per epoch, and one for all");
    let causes = ["compute_s", "disk_s", "cpu_s", "exchange_s", "store_s", "slowest_s", "restart_s"];
    for row in rows.iter().filter(|row| row["total"] != true) {
        let sum: f64 = causes.iter().map(|cause| number(row, cause)).sum();
        assert!((sum / number(row, "epoch_s") - 1.0).abs() < 1e-9, "{row}");
    }
    let totals: Vec<&Value> = rows.iter().filter(|row| row["total"] == true).collect();
    let names: Vec<&str> = totals.iter().map(|row| row["shuffle"].as_str().unwrap()).collect();
    assert_eq!(names, ["global", "local", "partial"]);
    let of = |field: &str| [0, 1, 2].map(|side: usize| number(totals[side], field));
    let [_, local, partial] = of("divergence");
    assert!(local > 0.8 && partial < 0.3, "the exchange mixes: {local} {partial}");
    let [global, local, partial] = of("seen_share");
    assert!(global > 0.8 && local < 0.07 && (0.4..0.55).contains(&partial), "{global} {local} {partial}");
    let [global, local, partial] = of("exchanged_share");
    assert!(global == 0.0 && local == 0.0 && (partial - 0.3).abs() < 1e-9);
    assert_eq!(totals[2]["setup"]["seed"], 7);
}

#[test]
fn faults_cost_time_and_are_told() {
    let place = Place::new();
    let args =
        ["simulate", "--ranks", "8", "--samples", "800", "--epochs", "3", "--cpu-ms", "1", "--step-ms", "20"];
    let faults = ["--fault", "slow-disk:1:50", "--fault", "late-rank:0:2", "--fault", "lost-node:7:1"];
    let json =
        |more: &[&str]| place.run(&[&args[..], &["--disk", "50MB", "--json"], more].concat()).good().json();
    let (well, sick) = (json(&[]), json(&faults));
    assert!(number(&sick[0], "slowest_s") > number(&well[0], "slowest_s") + 1.9, "{}", sick[0]);
    assert_eq!((&sick[1]["restarts"], &sick[1]["refilled"]), (&1.into(), &100.into()));
    assert!(number(&sick[1], "restart_s") > 90.0 && number(&sick[2], "restart_s") == 0.0);
    assert_eq!(well[2]["seen_share"], sick[2]["seen_share"], "nothing is lost");

    let words = place.run(&[&args[..], &faults].concat()).good().out;
    for word in
        ["lost-node:7:1", "a node was lost", "slowest", "nothing lost", "every invariant held", "12.5 %"]
    {
        assert!(words.contains(word), "{word:?} is missing in:\n{words}");
    }
}

#[test]
fn what_was_measured_can_be_simulated() {
    let place = Place::new();
    let photos = place.photos(40);
    let args =
        ["profile", text(&photos), "--recipe", "imagenet-train", "--batch", "8", "--seconds", "1", "--json"];
    let more = ["--step-ms", "50", "--latency-ms", "20", "--bytes-per-s", "500kB", "--save", "p.json"];
    let profile = place.run(&[&args[..], &more].concat()).good().json().remove(0);
    let total =
        place.run(&["simulate", "--profile", "p.json", "--ranks", "1", "--shuffle", "global", "--json"]);
    let total = total.good().json().pop().unwrap();
    let setup = &total["setup"];
    assert_eq!(
        (&setup["samples"], &setup["batch"], &setup["reads_in_flight"]),
        (&40.into(), &8.into(), &64.into())
    );
    assert!((number(setup, "step_ms") - 50.0).abs() < 1e-6, "{setup}");
    let bytes = number(setup, "bytes") * number(setup, "samples");
    assert!((number(&profile["data"], "bytes_mean") - number(setup, "bytes")).abs() < 1e-6);
    // The store gives 500 kB/s, and nothing else is as slow.
    let expected = bytes / 500e3;
    assert!((number(&total, "epoch_s") / expected - 1.0).abs() < 0.25, "{expected} s: {total}");
    let words = place.run(&["simulate", "--profile", "p.json", "--ranks", "4", "--epochs", "2"]).good();
    assert!(words.err.contains("as they were measured") && words.out.contains("4 ranks"), "{}", words.out);

    let saved = std::fs::read_to_string(place.path("p.json")).unwrap();
    for (name, text, code, words) in [
        ("cut.json", &saved[..saved.len() / 2], 1, "cut.json is damaged"),
        ("old.json", r#"{"schema": 1}"#, 2, "version 1"),
        ("none.json", "hello", 1, "none.json is damaged"),
    ] {
        std::fs::write(place.path(name), text).unwrap();
        place.run(&["simulate", "--profile", name]).bad(code, &[words]);
    }
    place.run(&["simulate", "--profile", "nowhere.json"]).bad(1, &["nowhere.json"]);
}

#[test]
fn two_thousand_ranks_are_soon_done() {
    let place = Place::new();
    let args = [
        "simulate",
        "--ranks",
        "2048",
        "--samples",
        "1280000",
        "--epochs",
        "2",
        "--fraction",
        "0.3",
        "--json",
    ];
    let rows = place.run(&args).good().json();
    assert!((number(&rows[0], "held_share") * 100.0 - 0.0635).abs() < 1e-4, "{}", rows[0]);
    assert_eq!(rows[2]["followed"], 64, "mixing is followed on some ranks, and that is said");
}

#[test]
fn one_rank_degenerates_and_says_so() {
    let place = Place::new();
    let ran = place
        .run(&["simulate", "--ranks", "1", "--samples", "640", "--epochs", "2", "--svg", "mix.svg"])
        .good();
    assert!(ran.out.contains("nobody to exchange with"), "{}", ran.out);
    assert!(std::fs::read_to_string(place.path("mix.svg")).unwrap().contains("seen"));
    let few = place.run(&["simulate", "--ranks", "100", "--samples", "200", "--epochs", "1"]).good();
    assert!(few.out.contains("a fraction of 0.3 of 2 samples is none"), "{}", few.out);
}

#[test]
fn nonsense_is_refused() {
    let place = Place::new();
    for (args, words) in [
        (["--ranks", "0"], "ranks 0 is not from 1"),
        (["--ranks", "99999999"], "ranks 99999999"),
        (["--ranks", "130000"], "1 to 65536"),
        (["--samples", "10"], "64 ranks are more than 10 samples"),
        (["--samples", "4294967295"], "samples 4294967295"),
        (["--fraction", "1.5"], "fraction is 1.5"),
        (["--fraction", "-0.1"], "fraction is -0.1"),
        (["--fraction", "NaN"], "fraction is NaN"),
        (["--kept", "0"], "kept 0"),
        (["--link", "0"], "--link \"0\" is not a rate above 0"),
        (["--disk", "fast"], "--disk \"fast\" is not a rate"),
        (["--store-requests-per-s", "0"], "requests per second: 0"),
        (["--step-ms", "-1"], "the step: -0.001 s"),
        (["--bytes", "huge"], "--bytes \"huge\" is not a size"),
        (["--spread", "-1"], "spread -1"),
        (["--classes", "0"], "classes 0"),
        (["--batch", "0"], "batch 0"),
        (["--threads", "0"], "threads 0"),
        (["--cores", "0"], "without cores"),
        (["--epochs", "0"], "--epochs 0 is not from 1"),
        (["--shuffle", "globl"], "--shuffle \"globl\" is none of global, local, partial"),
        (["--labels", "mixed"], "even, sorted"),
        (["--choose", "importance"], "needs the scores of a real training"),
        (["--fault", "fire:1:2"], "no fault is called \"fire\""),
        (["--fault", "slow-disk:64:2"], "ranks are 0 to 63"),
        (["--fault", "slow-disk:1:0.5"], "factor from 1"),
        (["--fault", "lost-node:1:10"], "only 10 epochs"),
        (["--svg", "no/such/folder/x.svg"], "no folder"),
    ] {
        place.run(&[&["simulate"], &args[..]].concat()).bad(2, &[words]);
    }
}
