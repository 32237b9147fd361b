//! Real trainings on shipped pictures: every way to select learns, can be stopped at any batch, and goes on with the
//! same bits.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod together;

use gristmill_core::plan::Shape;
use gristmill_core::select::Selection;
use gristmill_node::config::{Config, Settings};
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::open;
use gristmill_node::selection::SelectionOptions;
use gristmill_ops::Recipe;
use gristmill_train::{Checkpoint, Ended, EpochRow, Event, Run, Schedule, Sgd, TrainOptions, Trainer};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

const EPOCHS: u64 = 4;

struct Ground {
    folder: tempfile::TempDir,
    train: Arc<DataSet>,
    test: Loader,
    settings: Settings,
}

impl Ground {
    fn new() -> Ground {
        let folder = tempfile::tempdir().unwrap();
        let place = ("catalog.folder".to_string(), folder.path().to_str().unwrap().to_string());
        let settings = Config::load(None, &[place]).unwrap().settings().clone();
        let set = |part: &str| {
            let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/shippable/fashion-mnist-");
            let path = format!("{data}{part}-images-idx3-ubyte.gz");
            let opened = open::catalog(&path, &settings, false, &mut |_| ControlFlow::Continue(())).unwrap();
            Arc::new(open::data_set(opened.catalog, &settings, &|| false).unwrap())
        };
        let (train, test) = (set("4000-train"), set("1000-test"));
        let options = LoaderOptions { shape: Shape::single(256), shuffle: false, ..settings.loader() };
        let test = Loader::new(test, Some(&Recipe::preset("mnist").unwrap()), options).unwrap();
        Ground { folder, train, test, settings }
    }

    fn loader(&self, selection: Selection) -> Loader {
        let epochs = Some(EPOCHS as u32);
        let selection = SelectionOptions { selection, epochs, ..SelectionOptions::default() };
        let shape = Shape::single(128);
        let options = LoaderOptions { shape, selection, seed: 7, ..self.settings.loader() };
        Loader::new(self.train.clone(), Some(&Recipe::preset("mnist").unwrap()), options).unwrap()
    }
}

fn options() -> TrainOptions {
    TrainOptions {
        hidden: vec![32],
        epochs: EPOCHS,
        rate: 0.05,
        schedule: Schedule::Cosine,
        sgd: Sgd { momentum: 0.9, weight_decay: 5e-4 },
        seed: 3,
    }
}

/// A training in one go, or stopped after every `batches` batches and resumed by a new trainer with a new loader.
fn trained(ground: &Ground, selection: &Selection, batches: Option<u32>) -> (u64, Vec<EpochRow>, u32) {
    let kept = Checkpoint {
        path: ground.folder.path().join("c.ckpt"),
        every_batches: 0,
        identity: vec![("what".into(), "a test".into())],
    };
    let _ = std::fs::remove_file(&kept.path);
    let mut stops = 0;
    loop {
        let loader = ground.loader(selection.clone());
        let mut trainer = if kept.path.exists() {
            Trainer::resume(options(), &loader, &kept).unwrap()
        } else {
            Trainer::new(options(), &loader).unwrap()
        };
        let seen = Cell::new(0);
        let ended = trainer.run(Run {
            train: &loader,
            test: Some(&ground.test),
            checkpoint: batches.is_some().then_some(&kept),
            stop: &|| batches.is_some_and(|batches| seen.get() >= batches),
            watch: &mut |event| {
                if let Event::Batch(_) = event {
                    seen.set(seen.get() + 1);
                }
                Ok(())
            },
        });
        if ended.unwrap() == Ended::Finished {
            return (trainer.fingerprint(), trainer.history().to_vec(), stops);
        }
        stops += 1;
        assert!(stops < 500, "no progress");
    }
}

/// A way to select whose special epochs all come within a few.
fn early(name: &str) -> Selection {
    let mut selection = Selection::named(name).unwrap();
    let quick: &[(&str, &str)] = match name {
        "bucket" => &[("warmup", "1"), ("relax", "1"), ("smoothing", "0"), ("stagnation", "1")],
        "active-bias" => &[("warmup", "2")],
        "biggest-loser" => &[("staleness", "1"), ("power", "1")],
        "iis" | "proxy" => &[("warmup", "1")],
        "weighted" => &[("wrong_max", "1")],
        _ => &[],
    };
    quick.iter().for_each(|(option, value)| selection.set(option, value).unwrap());
    selection
}

#[test]
fn every_way_to_select_learns_and_resumes_with_the_same_bits() {
    let ground = Ground::new();
    for name in Selection::NAMES {
        let selection = early(name);
        let (bits, rows, _) = trained(&ground, &selection, None);
        let accuracy = rows[3].test_accuracy.unwrap();
        assert!(accuracy > 0.7, "{name}: {accuracy}");
        let (resumed_bits, resumed, stops) = trained(&ground, &selection, Some(17));
        assert!(stops >= 4, "{name} was stopped {stops} times");
        assert_eq!(bits, resumed_bits, "{name}");
        for (a, b) in rows.iter().zip(&resumed) {
            let facts = |row: &EpochRow| (row.kept, row.served, row.trained, row.steps, row.loss.to_bits());
            assert_eq!(facts(a), facts(b), "{name}: epoch {}", a.epoch);
            assert_eq!((a.test_accuracy, a.proxy, &a.reason), (b.test_accuracy, b.proxy, &b.reason));
        }
    }
}

#[test]
fn what_each_way_trains_is_what_it_says() {
    let ground = Ground::new();
    let rows = |name: &str| trained(&ground, &early(name), None).1;
    let plain = rows("uniform");
    assert!(plain.iter().all(|row| (row.kept, row.served, row.trained) == (4_000, 4_000, 4_000)));
    let skipping = rows("weighted");
    assert!(skipping[1].kept < 4_000 && skipping[1].served == skipping[1].kept, "{:?}", skipping[1]);
    assert!(skipping[1].bytes < plain[1].bytes, "what is not trained is not read");
    let judging = rows("biggest-loser");
    assert!(judging[1].served == 4_000 && judging[1].trained < 3_000, "{:?}", judging[1]);
    let proxied = rows("proxy");
    assert_eq!(proxied.iter().map(|row| row.proxy).collect::<Vec<_>>(), [true, false, false, false]);
    assert!(
        (2_000..=2_040).contains(&proxied[1].kept) && proxied[1].loss > proxied[0].loss * 0.8,
        "the real model starts anew"
    );
}
