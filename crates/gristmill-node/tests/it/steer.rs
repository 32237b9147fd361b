//! The steering of a real loader: from a bad start to a good setting, by reasons that hold, with the same batches.

use crate::loader::{catalog_of, data, options, recipe};
use crate::split::{behind, serve_options};
use gristmill_core::cache::Policy;
use gristmill_core::plan::Shape;
use gristmill_node::client::ClientOptions;
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::node::{Node, NodeOptions};
use gristmill_node::report::EpochReport;
use gristmill_node::serve::{Hosted, Server};
use gristmill_node::split::SplitOptions;
use gristmill_node::steer::{Pins, SteerOptions};
use gristmill_node::store::{StoreOptions, ThrottleOptions};
use gristmill_ops::Recipe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// So many pictures.
fn photos(count: u32) -> PathBuf {
    let name = format!("steer-photos-{count}-{}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !folder.exists() {
        gristmill_testdata::cut_photos(&folder, count, 3).unwrap();
    }
    folder
}

/// Pictures behind a store that answers after 2 ms.
fn far() -> Arc<DataSet> {
    let folder = photos(700);
    let throttle = Some(ThrottleOptions { latency_ms: 2, ..ThrottleOptions::default() });
    data(&folder, &StoreOptions { throttle, ..StoreOptions::default() })
}

/// Every knob where it should not be.
fn bad(steer: SteerOptions) -> LoaderOptions {
    LoaderOptions { threads: 1, reads_in_flight: 1, prefetch_batches: 1, steer, ..options() }
}

/// What epochs are like when a model takes 4 ms for a batch: their ids, and their reports.
fn train(loader: &Loader, epochs: u64) -> (Vec<Vec<u32>>, Vec<EpochReport>) {
    let (mut ids, mut reports) = (Vec::new(), Vec::new());
    for number in 0..epochs {
        let mut epoch = loader.epoch(number, 0).unwrap();
        while let Some(batch) = epoch.next_batch().unwrap() {
            ids.push(batch.ids.clone());
            std::thread::sleep(Duration::from_millis(4));
        }
        reports.push(epoch.report());
    }
    (ids, reports)
}

#[test]
fn a_bad_start_is_mended_by_moves_that_keep_their_promises() {
    let set = far();
    let free = SteerOptions { on: true, pins: Pins::default() };
    let (ids, reports) = train(&Loader::new(Arc::clone(&set), None, bad(free)).unwrap(), 7);
    let decisions: Vec<_> = reports.iter().flat_map(|report| &report.decisions).collect();
    let first = decisions.first().expect("something is moved");
    assert_eq!((first.knob.as_str(), first.from.as_str()), ("reads", "1"), "{first}");
    // What an epoch was does not explain itself while other tests come and go on the same cores: then the next one is asked.
    assert!((1..=3).contains(&first.epoch), "{first}");
    assert!(first.line.contains("% of the time is waiting for the store; reads 1 -> "), "{first}");
    let moved = first.epoch as usize;
    assert!(reports[moved].reads_in_flight > 1 && reports[moved - 1].reads_in_flight == 1);
    let kept = decisions.iter().find(|one| one.action == "kept").expect("and kept");
    assert!(kept.measured.unwrap() > 1.3, "{kept}");
    let walls: Vec<f64> = reports.iter().map(|report| report.wall_ms).collect();
    let after = walls[moved..].iter().copied().fold(f64::INFINITY, f64::min);
    assert!(after < walls[0] / 1.5, "{walls:?}");
    // What is trained on is the same as with every knob pinned.
    let (pinned_ids, pinned) = train(&Loader::new(set, None, bad(SteerOptions::default())).unwrap(), 7);
    assert_eq!(ids, pinned_ids);
    assert!(pinned.iter().all(|report| report.decisions.is_empty() && report.reads_in_flight == 1));
}

#[test]
fn a_slow_link_is_split_before_the_first_epoch_ends() {
    let near = data(&photos(700), &StoreOptions::default());
    let node = Arc::new(Node::new(near, NodeOptions::new(Policy::Foresight, 256 << 20)).unwrap());
    let server = Server::start(serve_options(), None, vec![Hosted { name: "photos".into(), node }]).unwrap();
    let slow = ClientOptions { throttle_bytes_per_s: Some(8_000_000), ..ClientOptions::default() };
    let set = behind(&server, slow);
    let pins = Pins { reads: true, threads: true, ahead: true, ..Pins::default() };
    let free = SteerOptions { on: true, pins };
    let split = SplitOptions { same_machine: Some(false), profile_samples: 80, ..SplitOptions::default() };
    let loading = |steer| LoaderOptions { reads_in_flight: 8, split, steer, ..options() };
    let make = |steer| Loader::new(Arc::clone(&set), Some(&recipe()), loading(steer)).unwrap();
    let (ids, reports) = train(&make(free), 2);
    let begun = reports[0].split.as_ref().and_then(|split| split.begun).expect("it begins inside the first");
    assert!(begun.after < 600 && begun.lasting > 1.05, "{begun:?}");
    assert!(begun.measured.is_some() || begun.after > 500, "enough is left to measure: {begun:?}");
    if begun.measured.is_none() {
        return; // a busy machine, on which the node was known late
    }
    let lines: Vec<&str> = reports[1].decisions.iter().map(|one| one.line.as_str()).collect();
    assert!(lines[0].starts_with(&format!("epoch 0: after {} samples the ", begun.after)), "{lines:?}");
    assert!(lines[0].contains("split none -> best, predicted"), "{lines:?}");
    // The trial was that epoch, or goes on in the next.
    assert!(lines.get(1).is_none_or(|line| line.starts_with("epoch 1: split ")), "{lines:?}");
    assert_eq!(train(&make(SteerOptions::default()), 2).0, ids, "what is trained on is the same");
}

#[test]
fn small_samples_behind_a_slow_store_are_not_taken_for_a_slow_link() {
    // A node in front of a store of 2 ms and 3,000 reads per second, which looks like a link of 2.4 MB/s.
    let folder = tempfile::tempdir().unwrap();
    let images = [&[0, 0, 8, 3, 0, 0, 3, 232, 0, 0, 0, 28, 0, 0, 0, 28][..], &vec![7; 784_000]].concat();
    let labels = [&[0, 0, 8, 1, 0, 0, 3, 232][..], &[1; 1_000]].concat();
    std::fs::write(folder.path().join("train-images-idx3-ubyte"), images).unwrap();
    std::fs::write(folder.path().join("train-labels-idx1-ubyte"), labels).unwrap();
    let throttle =
        ThrottleOptions { latency_ms: 2, requests_per_s: Some(3_000), ..ThrottleOptions::default() };
    let slow = StoreOptions { throttle: Some(throttle), ..StoreOptions::default() };
    let catalog = catalog_of(folder.path(), Some("train-images-idx3-ubyte"));
    let store = gristmill_node::store::open(catalog.source(), &slow).unwrap();
    let set = Arc::new(DataSet::new(catalog, store, 0, &|| false).unwrap());
    let node = Arc::new(Node::new(set, NodeOptions::new(Policy::Foresight, 64 << 10)).unwrap());
    let server = Server::start(serve_options(), None, vec![Hosted { name: "photos".into(), node }]).unwrap();
    let set = behind(&server, ClientOptions::default());
    let steer = SteerOptions { on: true, pins: Pins::default() };
    let split = SplitOptions { profile_samples: 80, ..SplitOptions::default() };
    let loading = LoaderOptions { shape: Shape::single(64), reads_in_flight: 64, split, steer, ..options() };
    let loader = Loader::new(set, Some(&Recipe::preset("mnist").unwrap()), loading).unwrap();
    let (_, reports) = train(&loader, 3);
    let last = reports[2].split.as_ref().unwrap();
    assert!(last.profiled >= 80, "{last:?}");
    if last.calibration_bytes == 0 {
        return; // a busy machine, on which the node was never known, so that nothing could be split
    }
    for report in &reports {
        let split = report.split.as_ref().unwrap();
        assert!(split.begun.is_none() && split.wanted == 0, "{split:?}");
        assert!(report.decisions.iter().all(|one| one.knob != "split"), "{:?}", report.decisions);
    }
}

#[test]
fn a_link_that_no_epoch_kept_busy_is_split_all_the_same() {
    let near = data(&photos(240), &StoreOptions::default());
    let node = Arc::new(Node::new(near, NodeOptions::new(Policy::Foresight, 64 << 20)).unwrap());
    let server = Server::start(serve_options(), None, vec![Hosted { name: "photos".into(), node }]).unwrap();
    let slow = ClientOptions { throttle_bytes_per_s: Some(4_000_000), ..ClientOptions::default() };
    let set = behind(&server, slow);
    // With one read at a time the splitter never sees the link busy; who looked knows how fast it is.
    let pins = Pins { reads: true, threads: true, ahead: true, ..Pins::default() };
    let free = SteerOptions { on: true, pins };
    let split = SplitOptions { same_machine: Some(false), ..SplitOptions::default() };
    let loader = Loader::new(set, Some(&recipe()), LoaderOptions { split, ..bad(free) }).unwrap();
    let (_, reports) = train(&loader, 6);
    let split = |report: &EpochReport| report.split.clone().expect("there is a node");
    let decisions: Vec<_> = reports.iter().flat_map(|report| &report.decisions).collect();
    assert!(decisions.iter().any(|one| one.knob == "split" && one.action == "moved"), "{decisions:?}");
    assert!(
        reports.iter().any(|report| split(report).traffic_ratio() > 1.3),
        "{:?}",
        reports.iter().map(split).collect::<Vec<_>>()
    );
}
