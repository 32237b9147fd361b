//! The steering of a real loader: from a bad start to a good setting, by reasons that hold, with the same batches.

use crate::loader::{data, options};
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::report::EpochReport;
use gristmill_node::steer::{Pins, SteerOptions};
use gristmill_node::store::{StoreOptions, ThrottleOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Pictures behind a store that answers after 2 ms.
fn far() -> Arc<DataSet> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("steer-photos-{}", std::process::id()));
    if !folder.exists() {
        gristmill_testdata::cut_photos(&folder, 700, 3).unwrap();
    }
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
    let (ids, reports) = train(&Loader::new(Arc::clone(&set), None, bad(free)).unwrap(), 5);
    let decisions: Vec<_> = reports.iter().flat_map(|report| &report.decisions).collect();
    let first = decisions.first().expect("something is moved");
    assert_eq!((first.epoch, first.knob.as_str(), first.from.as_str()), (1, "reads", "1"), "{first}");
    assert!(first.line.contains("% of the time is waiting for the store; reads 1 -> "), "{first}");
    assert!(reports[1].reads_in_flight > 1 && reports[0].reads_in_flight == 1);
    let kept = decisions.iter().find(|one| one.action == "kept").expect("and kept");
    assert!(kept.measured.unwrap() > 1.3, "{kept}");
    assert!(
        reports[4].wall_ms < reports[0].wall_ms / 1.5,
        "{:?}",
        reports.iter().map(|r| r.wall_ms).collect::<Vec<_>>()
    );
    // What is trained on is the same as with every knob pinned.
    let (pinned_ids, pinned) = train(&Loader::new(set, None, bad(SteerOptions::default())).unwrap(), 5);
    assert_eq!(ids, pinned_ids);
    assert!(pinned.iter().all(|report| report.decisions.is_empty() && report.reads_in_flight == 1));
}
