//! Options and settings at and over their limits, and those that would do nothing.

use crate::{Place, Ran, text};
use std::fs;

fn fifo(place: &Place, name: &str) {
    rustix::fs::mkfifoat(rustix::fs::CWD, place.path(name), rustix::fs::Mode::RWXU).unwrap();
}

#[test]
fn numbers_out_of_range_are_refused() {
    let place = Place::new();
    let photos = place.photos(10);
    let with = |args: &[&str]| place.run(&[&["bench", "load", text(&photos)], args].concat());
    for step_ms in ["inf", "1e300", "nan", "-5", "3600001"] {
        with(&["--step-ms", step_ms]).bad(2, &["--step-ms", "3600000"]);
    }
    with(&["--from-epoch", "18446744073709551615", "--epochs", "3"]).bad(2, &["--from-epoch", "--epochs"]);
    with(&["--from-epoch", "18446744073709551614", "--epochs", "1", "--batches", "1"]).good();
    with(&["--threads", "1025"]).bad(2, &["loader.threads", "from 0 to 1024"]);
    with(&["--batch", "99999999999"]).bad(2, &["a whole number from 1 to 4294967295"]);
    let huge = ["--set", "store.attempt_ms_max=18446744073709551615", "--faults", "0.1"];
    with(&huge).bad(2, &["store.attempt_ms_max"]);
}

#[test]
fn pipes_and_devices_are_neither_read_nor_replaced() {
    let place = Place::new();
    let photos = place.photos(10);
    fifo(&place, "pipe");
    fifo(&place, "pipe.toml");
    place.run(&["catalog", "build", text(&photos), "-o", "pipe"]).bad(2, &["pipe", "not a regular file"]);
    assert!(!place.path("pipe").is_file(), "it is a pipe still");
    for source in ["pipe", "/dev/zero"] {
        let ran = place.run(&["bench", "load", source]);
        assert!(matches!(ran.code, Some(1 | 2)) && ran.err.contains(source), "{:?} {}", ran.code, ran.err);
    }
    for file in ["pipe.toml", "/dev/zero"] {
        place.run(&["config", "check", file]).bad(2, &[file, "not a regular file"]);
        place.run(&["config", "show", "--config", file]).bad(2, &[file, "not a regular file"]);
    }
    place.run(&["bench", "load", text(&photos), "--recipe", "pipe.toml"]).bad(2, &["not a regular file"]);
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let place = Place::new();
    let photos = place.photos(10);
    let ran = place.run(&["catalog", "build", text(&photos), "-o", "c.catalog", "--label-column", "x"]);
    ran.bad(2, &["not a list"]);
    assert!(ran.err.contains("--label-column"), "{}", ran.err);
    place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]).good();
    place.run(&["bench", "load", "c.catalog", "--rebuild"]).bad(2, &["c.catalog"]);
    place.run(&["bench", "load", "c.catalog", "--kind", "tar"]).bad(2, &["folder", "tar"]);
    fs::write(place.path("a.toml"), "[loader]\nbatch = 3\n").unwrap();
    for more in [["--set", "loader.batch=4"], ["--config", "b.toml"]] {
        assert_eq!(place.run(&[&["config", "check", "a.toml"], &more[..]].concat()).code, Some(2));
    }
}

#[test]
fn the_kind_chooses_where_a_folder_is_several_things() {
    let place = Place::new();
    let photos = place.photos(10);
    fs::copy(gristmill_testdata::shippable().join("cc0-photos.tar"), photos.join("more.tar")).unwrap();
    let load = |more: &[&str]| {
        let args = ["bench", "load", text(&photos), "--epochs", "1", "--batch", "5", "--json"];
        place.run(&[&args[..], more].concat())
    };
    let ran = load(&[]);
    ran.bad(2, &["several"]);
    assert!(ran.err.contains("--kind"), "{}", ran.err);
    for kind in ["folder", "tar", "folder"] {
        assert_eq!(load(&["--kind", kind]).good().json()[0]["samples"], 10, "{kind}");
    }
    load(&["--kind", "idx"]).bad(2, &["nothing in"]);
}

#[test]
fn a_config_file_is_checked_by_itself() {
    let place = Place::new();
    let check = |text: &str, variable: &str| {
        fs::write(place.path("a.toml"), text).unwrap();
        Ran::of(&place.command(&["config", "check", "a.toml"]).env(variable, "0").output().unwrap())
    };
    let ran = check("[loader]\nbatch = 3\n", "GRISTMILL_LOADER_BATCH").good();
    assert_eq!(ran.out, "a.toml: sound, 1 setting\n");
    check("[recipe]\nname = \"imagenet-trian\"\n", "X").bad(2, &["imagenet-trian"]);
    check("[recipe]\nname = \"none.toml\"\n", "X").bad(2, &["none.toml"]);
    check("[loader]\nthreads = 5000\n", "X").bad(2, &["loader.threads", "1024"]);
    for (variable, words) in
        [("GRISTMILL_LOADER_BACH", "GRISTMILL_LOADER_BATCH"), ("GRISTMILL_LOADER_BATCH", "0")]
    {
        let ran = Ran::of(&place.command(&["config", "show"]).env(variable, "0").output().unwrap());
        ran.bad(2, &[]);
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    place.run(&["config", "show", "--set", "recipe.name=imagenet-trian"]).bad(2, &["imagenet-trian"]);
}

#[test]
fn files_that_are_no_config_are_wrong_calls() {
    let place = Place::new();
    fs::write(place.path("bytes.toml"), [b'#', 0xff]).unwrap();
    fs::create_dir(place.path("folder.toml")).unwrap();
    for (file, words) in
        [("missing.toml", "no such file"), ("folder.toml", "folder"), ("bytes.toml", "UTF-8")]
    {
        place.run(&["config", "check", file]).bad(2, &[file, words]);
        place.run(&["config", "show", "--config", file]).bad(2, &[file, words]);
    }
}

#[test]
fn faults_are_over_soon() {
    let place = Place::new();
    let photos = place.photos(10);
    let args = ["bench", "load", text(&photos), "--faults", "0.3", "--epochs", "1", "--batch", "5", "--json"];
    let row = &place.run(&args).good().json()[0];
    assert_eq!(row["samples"], 10);
    assert!(row["wall_ms"].as_f64().unwrap() < 15_000.0, "{row}");
}

#[test]
fn cpu_is_divided_by_what_was_processed() {
    let place = Place::new();
    let photos = place.photos(60);
    let args =
        ["bench", "load", text(&photos), "--recipe", "imagenet-train", "--batch", "4", "--threads", "1"];
    let load =
        |more: &[&str]| place.run(&[&args[..], &["--epochs", "1", "--json"], more].concat()).good().json();
    let cpu = |row: &serde_json::Value| row["cpu_ms_per_sample"].as_f64().unwrap();
    let whole = cpu(&load(&[])[0]);
    // The step gives the loader time to prefetch four batches more.
    let part = &load(&["--batches", "1", "--step-ms", "700"])[0];
    assert_eq!(part["samples"], 4);
    assert!(cpu(part) < whole * 3.0, "{part}, but {whole} ms for all");
    let none = &load(&["--from-batch", "15"])[0];
    assert!(none["cpu_ms_per_sample"].is_null() && none["samples"] == 0, "{none}");
}

#[test]
fn a_rank_without_a_batch_is_told() {
    let place = Place::new();
    let photos = place.photos(10);
    let args = ["bench", "load", text(&photos), "--batch", "64", "--set", "loader.drop_last=true"];
    let ran = place.run(&[&args[..], &["--epochs", "1", "--json"]].concat()).good();
    assert!(ran.err.contains("warning: epoch 0 has no batch for rank 0 of 1"), "{}", ran.err);
}

#[test]
fn names_are_shown_and_not_obeyed() {
    let place = Place::new();
    let photos = place.photos(10);
    fs::write(photos.join("rocket/\x1b[2J\n.jpg"), "no picture").unwrap();
    place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]).good();
    for args in [
        &["catalog", "show", "c.catalog", "--samples", "20"][..],
        &["catalog", "check", "c.catalog", "--decode"],
        &["bench", "load", "c.catalog", "--recipe", "imagenet-eval", "--epochs", "1"],
    ] {
        let ran = place.run(args);
        let all = ran.out + &ran.err;
        assert!(all.contains(r"\u{1b}[2J\n.jpg") && !all.contains('\x1b'), "{all}");
    }
}

#[test]
fn single_files_are_named_and_one_is_not_many() {
    let place = Place::new();
    let tar = gristmill_testdata::shippable().join("cc0-photos.tar");
    let built = place.run(&["catalog", "build", text(&tar), "-o", "c.catalog"]).good();
    assert!(built.out.lines().next().unwrap().ends_with("/cc0-photos.tar"), "{}", built.out);
    assert!(built.out.contains("in 1 object,"), "{}", built.out);
    let shown = &place.run(&["catalog", "show", "c.catalog", "--json"]).good().json()[0];
    assert_eq!(shown["object"], "cc0-photos.tar");

    let one = place.path("one");
    fs::create_dir_all(one.join("only")).unwrap();
    fs::copy(place.photos(10).join("rocket/00009.jpg"), one.join("only/a.jpg")).unwrap();
    let built = place.run(&["catalog", "build", text(&one), "-o", "o.catalog"]).good();
    assert!(
        built.out.contains("1 sample (folder") && built.out.contains("in 1 object, 1 class\n"),
        "{}",
        built.out
    );
    let shown = &place.run(&["catalog", "show", "o.catalog", "--json"]).good().json()[0];
    assert!(shown["object"].is_null(), "{shown}");
    let checked = place.run(&["catalog", "check", "o.catalog"]).good();
    assert_eq!(checked.out, "1 sample: all as the catalog says\n");
}

#[test]
fn very_many_damaged_samples_are_counted_and_the_hint_fits() {
    let place = Place::new();
    let photos = place.photos(10);
    for i in 0..1_003 {
        fs::write(photos.join(format!("rocket/bad-{i}.jpg")), "no picture").unwrap();
    }
    place.run(&["catalog", "build", text(&photos), "-o", "c.catalog"]).good();
    let ran = place.run(&["catalog", "check", "c.catalog", "--decode", "--json"]);
    let damaged = &ran.json()[0]["damaged"];
    assert_eq!((ran.code, damaged["count"].as_u64()), (Some(1), Some(1_003)));
    assert_eq!(damaged["first"].as_array().unwrap().len(), 1_000);
    assert!(ran.err.contains("loader.on_bad=skip") && !ran.err.contains("catalog build"), "{}", ran.err);
}
