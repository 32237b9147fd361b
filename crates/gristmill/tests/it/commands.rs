//! Every command once, for what it prints and what it leaves behind.

use crate::{Place, text};
use std::fs;

#[test]
fn a_folder_is_catalogued_shown_and_checked() {
    let place = Place::new();
    let photos = place.photos(20);
    let ran = place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]).good();
    assert!(ran.out.contains("20 samples (folder, JPEG or PNG)"), "{}", ran.out);
    assert!(ran.out.contains("rocket"), "{}", ran.out);

    let shown = place.run(&["catalog", "show", "c.catalog", "--samples", "2", "--json"]).good().json();
    assert_eq!((shown.len(), &shown[0]["samples"], &shown[0]["classes"]), (3, &20.into(), &10.into()));
    assert_eq!(shown[1]["object"], "acanthus-mollis/00000.jpg");
    assert!(
        place
            .run(&["catalog", "check", "c.catalog", "--decode"])
            .good()
            .out
            .contains("all as the catalog says")
    );

    fs::remove_file(photos.join("rocket/00009.jpg")).unwrap();
    fs::write(photos.join("rocket/new.jpg"), "x").unwrap();
    let grown = [fs::read(photos.join("rocket/00019.jpg")).unwrap(), vec![0]].concat();
    fs::write(photos.join("rocket/00019.jpg"), grown).unwrap();
    let ran = place.run(&["catalog", "check", "c.catalog"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    for line in ["vanished: rocket/00009.jpg", "appeared: rocket/new.jpg", "changed: rocket/00019.jpg"] {
        assert!(ran.out.contains(line), "{line} is missing in:\n{}", ran.out);
    }
    let found = &place.run(&["catalog", "check", "c.catalog", "--json"]).json()[0];
    assert_eq!((&found["changed"]["count"], &found["vanished"]["count"]), (&1.into(), &1.into()));
}

#[test]
fn check_decode_finds_what_cannot_be_decoded() {
    let place = Place::new();
    let photos = place.photos(10);
    fs::write(photos.join("rocket/text.jpg"), "no picture").unwrap();
    let cut = fs::read(photos.join("rocket/00009.jpg")).unwrap();
    fs::write(photos.join("rocket/cut.jpg"), &cut[..cut.len() / 3]).unwrap();
    place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]).good();
    let ran = place.run(&["catalog", "check", "c.catalog", "--decode"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("rocket/text.jpg") && ran.out.contains("rocket/cut.jpg"), "{}", ran.out);
    assert_eq!(ran.out.lines().filter(|line| line.starts_with("damaged: ")).count(), 2, "{}", ran.out);
}

#[test]
fn bench_load_prints_the_fields_it_promises() {
    let place = Place::new();
    let photos = place.photos(40);
    let args =
        ["bench", "load", text(&photos), "--recipe", "imagenet-train", "--batch", "8", "--threads", "2"];
    let rows = place.run(&[&args[..], &["--json", "--epochs", "2"]].concat()).good().json();
    assert_eq!(rows.len(), 3);
    for row in &rows[..2] {
        assert_eq!((&row["samples"], &row["batches"], &row["threads"]), (&40.into(), &5.into(), &2.into()));
        for field in ["samples_per_s", "cpu_ms_per_sample", "wall_ms", "bytes"] {
            assert!(row[field].as_f64().unwrap() > 0.0, "{field}: {row}");
        }
        let part = |name: &str| row[name].as_f64().unwrap();
        let parts =
            part("wait_fetch_ms") + part("wait_decode_ms") + part("wait_ops_ms") + part("wait_hand_over_ms");
        assert!((parts - part("wait_ms")).abs() < 1e-6 && part("wait_ms") <= part("wall_ms") * 1.01, "{row}");
    }
    assert_eq!(rows[2]["total"], true);
    let words = place.run(&args).good().out;
    assert!(words.contains("waited") && words.contains("decode") && words.contains("ms of CPU"), "{words}");
}

#[test]
fn the_same_data_through_every_kind_of_source() {
    let place = Place::new();
    let folder = gristmill_testdata::shippable();
    let idx = folder.join("fashion-mnist-1000-test-images-idx3-ubyte.gz");
    let rows = place
        .run(&["bench", "load", text(&idx), "--recipe", "mnist", "--batch", "256", "--epochs", "1", "--json"])
        .good()
        .json();
    assert_eq!(
        (&rows[0]["samples"], &rows[0]["batches"], &rows[0]["bytes"]),
        (&1000.into(), &4.into(), &784_000.into())
    );
    let tar = folder.join("cc0-photos.tar");
    let rows = place
        .run(&["bench", "load", text(&tar), "--recipe", "imagenet-eval", "--epochs", "1", "--json"])
        .good();
    assert_eq!(rows.json()[0]["samples"], 10);
}

#[test]
fn config_shows_every_setting_and_where_it_comes_from() {
    let place = Place::new();
    fs::write(place.path("gristmill.toml"), "[loader]\nbatch = 128\n").unwrap();
    let ran = place.run(&["config", "show", "--set", "loader.seed=5"]).good();
    assert!(ran.out.contains("batch = 128") && ran.out.contains("gristmill.toml"), "{}", ran.out);
    assert!(
        ran.out.lines().any(|line| line.starts_with("seed = 5") && line.contains("argument")),
        "{}",
        ran.out
    );
    let mut command = place.command(&["config", "show", "--json"]);
    let output = command.env("GRISTMILL_LOADER_THREADS", "3").output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let row = line.lines().find(|line| line.contains("loader.threads")).unwrap();
    assert!(row.contains("GRISTMILL_LOADER_THREADS") && row.contains("\"3\""), "{row}");
    place.run(&["config", "check", "gristmill.toml"]).good();
}
