//! The loader on real files: order, resume, ranks, limits, bad samples and faults.

use gristmill_core::plan::{Shape, Uneven};
use gristmill_node::catalog::{self, BuildOptions, Catalog, Source};
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Batch, Data, Loader, LoaderOptions, OnBad};
use gristmill_node::store::{
    FaultOptions, LocalStore, RetryOptions, Store, StoreOptions, ThrottleOptions, open,
};
use gristmill_node::{Kind, Result};
use gristmill_ops::Recipe;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// One folder of pictures for all tests of this file, made once.
pub(crate) fn photos() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loader-photos-{}", std::process::id()));
        gristmill_testdata::cut_photos(&folder, 90, 7).unwrap();
        folder
    })
}

pub(crate) fn catalog_of(folder: &Path, object: Option<&str>) -> Arc<Catalog> {
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder).unwrap());
    let source = Source { root_url: store.url(), store, object: object.map(Into::into), kind: None };
    let draft =
        catalog::build(&source, &BuildOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    Arc::new(draft.into_catalog().unwrap())
}

pub(crate) fn data(folder: &Path, options: &StoreOptions) -> Arc<DataSet> {
    let catalog = catalog_of(folder, None);
    let store = open(catalog.source(), options).unwrap();
    Arc::new(DataSet::new(catalog, store, 64 << 20, &|| false).unwrap())
}

pub(crate) fn options() -> LoaderOptions {
    LoaderOptions {
        shape: Shape::single(8),
        seed: 11,
        shuffle: true,
        threads: 2,
        prefetch_batches: 3,
        reads_in_flight: 0,
        memory_bytes_max: 256 << 20,
        pixels_max: 1 << 24,
        on_bad: OnBad::Raise,
        stall_ms_max: 60_000,
        selection: gristmill_node::selection::SelectionOptions::default(),
        split: gristmill_node::split::SplitOptions::default(),
        exchange: None,
        steer: gristmill_node::steer::SteerOptions::default(),
    }
}

pub(crate) fn recipe() -> Recipe {
    Recipe::preset("imagenet-train").unwrap()
}

/// Errors, stalls and short bodies, each at `rate`.
fn spoil(rate: f64) -> FaultOptions {
    FaultOptions { seed: 5, error_rate: rate, stall_rate: rate, short_rate: rate, stall_ms: 60_000 }
}

/// What a consumer sees of a batch: its place, ids, labels and a fingerprint of its content.
type Seen = (u32, Vec<u32>, Vec<u32>, u64);

fn seen(batch: &Batch) -> Seen {
    (batch.index, batch.ids.clone(), batch.labels.clone(), batch.fingerprint())
}

fn run(set: &Arc<DataSet>, options: LoaderOptions, epoch: u64, from: u32) -> Result<Vec<Seen>> {
    let loader = Loader::new(set.clone(), Some(&recipe()), options)?;
    loader.epoch(epoch, from)?.map(|batch| batch.map(|batch| seen(&batch))).collect()
}

#[test]
fn the_same_order_and_bytes_with_any_number_of_threads_and_either_way_of_fetching() {
    let set = data(photos(), &StoreOptions::default());
    let one = run(&set, LoaderOptions { threads: 1, ..options() }, 2, 0).unwrap();
    assert_eq!(one.len(), 12);
    let mut ids: Vec<u32> = one.iter().flat_map(|(_, ids, ..)| ids.clone()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..90).collect::<Vec<_>>(), "every sample once");
    for threads in [2, 7] {
        assert_eq!(
            run(&set, LoaderOptions { threads, ..options() }, 2, 0).unwrap(),
            one,
            "{threads} threads"
        );
    }
    assert_eq!(
        run(&set, LoaderOptions { reads_in_flight: 5, ..options() }, 2, 0).unwrap(),
        one,
        "reads in flight"
    );
    let other = run(&set, options(), 3, 0).unwrap();
    assert_ne!(other[0].1, one[0].1, "another epoch has another order");
}

#[test]
fn labels_are_those_of_the_class_folders() {
    let set = data(photos(), &StoreOptions::default());
    for (_, ids, labels, _) in run(&set, options(), 0, 0).unwrap() {
        for (id, label) in ids.iter().zip(labels) {
            let at = set.catalog().locate(gristmill_core::SampleId(*id)).unwrap();
            assert!(at.name.starts_with(&set.catalog().classes()[label as usize]), "{}", at.name);
        }
    }
}

#[test]
fn an_epoch_resumes_at_any_batch() {
    let set = data(photos(), &StoreOptions::default());
    let whole = run(&set, options(), 1, 0).unwrap();
    for from in [0, 1, 5, 11, 12] {
        let rest = run(&set, LoaderOptions { threads: 3, ..options() }, 1, from).unwrap();
        assert_eq!(rest, whole[from as usize..], "from batch {from}");
    }
    let error = run(&set, options(), 1, 13).unwrap_err();
    assert!(error.to_string().contains("no batch 13"), "{error}");
}

#[test]
fn ranks_share_an_epoch() {
    let set = data(photos(), &StoreOptions::default());
    for world in [1, 2, 3, 8] {
        let mut ids = Vec::new();
        let mut counts = Vec::new();
        for rank in 0..world {
            let shape = Shape { batch: 4, rank, world, uneven: Uneven::Drop, drop_last: false };
            let loader = Loader::new(set.clone(), None, LoaderOptions { shape, ..options() }).unwrap();
            let batches: Vec<_> = loader.epoch(0, 0).unwrap().map(|batch| batch.unwrap()).collect();
            counts.push(batches.len());
            ids.extend(batches.iter().flat_map(|batch| batch.ids.clone()));
        }
        assert!(counts.iter().all(|count| *count == counts[0]), "equally many batches: {counts:?}");
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all, "disjoint");
        assert_eq!(all as u32, 90 - 90 % world, "complete but for the remainder");
    }
}

#[test]
fn without_a_recipe_batches_hold_the_files_bytes() {
    let set = data(photos(), &StoreOptions::default());
    for reads_in_flight in [0, 4] {
        let loader = Loader::new(set.clone(), None, LoaderOptions { reads_in_flight, ..options() }).unwrap();
        for batch in loader.epoch(0, 0).unwrap() {
            let batch = batch.unwrap();
            let Data::Raw(samples) = &batch.data else { panic!("a tensor without a recipe") };
            for (id, bytes) in batch.ids.iter().zip(samples) {
                let at = set.catalog().locate(gristmill_core::SampleId(*id)).unwrap();
                assert_eq!(bytes, &fs::read(photos().join(at.name)).unwrap());
            }
        }
    }
}

#[test]
fn faults_within_the_retry_limits_change_nothing() {
    let clean = run(&data(photos(), &StoreOptions::default()), options(), 0, 0).unwrap();
    let retry = RetryOptions {
        attempts_max: 12,
        backoff_ms: 1,
        backoff_ms_max: 4,
        attempt_ms_max: 40,
        ..RetryOptions::default()
    };
    let faults = Some(spoil(0.1));
    let spoilt = data(photos(), &StoreOptions { retry, faults, ..StoreOptions::default() });
    let loader = Loader::new(spoilt, Some(&recipe()), options()).unwrap();
    let mut epoch = loader.epoch(0, 0).unwrap();
    let with_faults: Vec<_> = epoch.by_ref().map(|batch| seen(&batch.unwrap())).collect();
    assert_eq!(with_faults, clean);
    assert!(epoch.report().retries > 9, "{} retries", epoch.report().retries);
}

#[test]
fn a_lost_store_is_one_clear_error() {
    let retry = RetryOptions {
        attempts_max: 2,
        backoff_ms: 1,
        backoff_ms_max: 1,
        attempt_ms_max: 20,
        ..RetryOptions::default()
    };
    let faults = Some(spoil(0.33));
    let set = data(photos(), &StoreOptions { retry, faults, ..StoreOptions::default() });
    for on_bad in [OnBad::Raise, OnBad::Skip] {
        let error = run(&set, LoaderOptions { on_bad, ..options() }, 0, 0).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable, "{error}");
        assert!(error.to_string().contains("attempts"), "{error}");
    }
}

#[test]
fn bad_samples_are_raised_or_skipped_and_named() {
    let folder = tempfile::tempdir().unwrap();
    gristmill_testdata::cut_photos(folder.path(), 30, 1).unwrap();
    fs::write(folder.path().join("rocket/text.jpg"), "this is no picture").unwrap();
    let whole = fs::read(folder.path().join("rocket/00009.jpg")).unwrap();
    fs::write(folder.path().join("rocket/zcut.jpg"), &whole[..whole.len() / 2]).unwrap();
    let set = data(folder.path(), &StoreOptions::default());
    let error = run(&set, LoaderOptions { shuffle: false, ..options() }, 0, 0).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("rocket/text.jpg"), "{error}");
    assert!(error.remedy().unwrap().contains("skip"));

    let loader =
        Loader::new(set, Some(&recipe()), LoaderOptions { on_bad: OnBad::Skip, ..options() }).unwrap();
    let mut epoch = loader.epoch(0, 0).unwrap();
    let batches: Vec<_> = epoch.by_ref().map(|batch| batch.unwrap()).collect();
    let skipped: Vec<&str> = batches.iter().flat_map(|b| &b.skipped).map(|bad| bad.reason.as_str()).collect();
    assert_eq!((batches.len(), skipped.len(), epoch.report().skipped), (4, 2, 2));
    assert!(skipped.iter().any(|reason| reason.contains("text.jpg")), "{skipped:?}");
    assert!(skipped.iter().any(|reason| reason.contains("zcut.jpg")), "{skipped:?}");
    assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), 30);
    for batch in &batches {
        let Data::Tensor(tensor) = &batch.data else { panic!("no tensor") };
        assert_eq!(tensor.bytes().len(), batch.len() * tensor.output().bytes());
    }
}

#[test]
fn a_file_that_changed_since_it_was_catalogued_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    gristmill_testdata::cut_photos(folder.path(), 10, 1).unwrap();
    let set = data(folder.path(), &StoreOptions::default());
    fs::write(folder.path().join("rocket/00009.jpg"), "short").unwrap();
    let error = run(&set, options(), 0, 0).unwrap_err();
    assert!(error.to_string().contains("rocket/00009.jpg"), "{error}");
    assert!(error.remedy().unwrap().contains("catalog build"), "{:?}", error.remedy());
}

#[test]
fn the_memory_limit_is_checked_before_anything_is_read() {
    let set = data(photos(), &StoreOptions::default());
    let error = run(&set, LoaderOptions { memory_bytes_max: 9 << 20, ..options() }, 0, 0).unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("loader.memory_bytes_max"), "{error}");
    let hint = error.remedy().unwrap();
    let needed: u64 =
        hint.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty()).unwrap().parse().unwrap();
    assert!(
        run(&set, LoaderOptions { memory_bytes_max: needed, threads: 1, ..options() }, 0, 0).is_ok(),
        "{hint}"
    );
}

#[test]
fn a_consumer_may_keep_batches_or_leave_early() {
    let set = data(photos(), &StoreOptions::default());
    for reads_in_flight in [0, 8] {
        let loader =
            Loader::new(set.clone(), Some(&recipe()), LoaderOptions { reads_in_flight, ..options() })
                .unwrap();
        let kept: Vec<_> = loader.epoch(0, 0).unwrap().map(|batch| batch.unwrap()).collect();
        assert_eq!(kept.len(), 12, "keeping all batches does not hang");
        let mut early = loader.epoch(1, 0).unwrap();
        early.next().unwrap().unwrap();
        drop(early);
        assert_eq!(loader.epoch(2, 0).unwrap().count(), 12);
    }
}

#[test]
fn a_wait_for_a_slow_store_is_charged_to_fetching() {
    let throttle = Some(ThrottleOptions { latency_ms: 30, ..ThrottleOptions::default() });
    let set = data(photos(), &StoreOptions { throttle, ..StoreOptions::default() });
    let loader = Loader::new(set, None, LoaderOptions { reads_in_flight: 4, ..options() }).unwrap();
    let mut epoch = loader.epoch(0, 0).unwrap();
    assert_eq!(epoch.by_ref().count(), 12);
    let report = epoch.report();
    // 90 reads, 4 at a time, 30 ms each: two thirds of a second and nothing else to do.
    assert!(report.wait.total_ms > 400.0, "{report:?}");
    assert!(report.wait.fetch_ms > 0.8 * report.wait.total_ms, "{report:?}");
}

#[test]
fn a_wait_for_the_threads_is_not_charged_to_a_store_with_latency() {
    // Much later than it takes to read, but all at once: after the first bytes only decoding is waited for.
    let throttle = Some(ThrottleOptions { latency_ms: 20, ..ThrottleOptions::default() });
    let set = data(photos(), &StoreOptions { throttle, ..StoreOptions::default() });
    let loader = Loader::new(set, Some(&recipe()), LoaderOptions { threads: 1, ..options() }).unwrap();
    let mut epoch = loader.epoch(0, 0).unwrap();
    assert_eq!(epoch.by_ref().count(), 12);
    let report = epoch.report();
    assert!(report.wait.decode_ms + report.wait.ops_ms > report.wait.fetch_ms, "{report:?}");
    assert!(report.full_ms < 0.2 * report.wall_ms, "nobody was too far ahead: {report:?}");
}

#[test]
fn a_bad_sample_alone_in_its_batch_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    gristmill_testdata::cut_photos(folder.path(), 12, 1).unwrap();
    fs::write(folder.path().join("rocket/zz.jpg"), "this is no picture").unwrap();
    let set = data(folder.path(), &StoreOptions::default());
    let bad_last =
        LoaderOptions { on_bad: OnBad::Skip, shuffle: false, shape: Shape::single(1), ..options() };
    let loader = Loader::new(set.clone(), Some(&recipe()), bad_last.clone()).unwrap();
    let mut epoch = loader.epoch(0, 0).unwrap();
    assert_eq!(epoch.by_ref().map(|batch| batch.unwrap().len()).sum::<usize>(), 12);
    assert_eq!((epoch.report().skipped, epoch.report().batches), (1, 12));
    // Other ranks would wait for the batch that is missing here.
    let shape = Shape { world: 2, rank: 0, uneven: Uneven::Pad, ..bad_last.shape };
    let error = run(&set, LoaderOptions { shape, ..bad_last }, 0, 0).unwrap_err();
    assert!(error.to_string().contains("zz.jpg") && error.remedy().unwrap().contains("rank"), "{error}");
}

#[test]
fn padded_shares_are_complete_and_equal() {
    let set = data(photos(), &StoreOptions::default());
    for world in [2, 4, 7] {
        let mut ids = Vec::new();
        for rank in 0..world {
            let shape = Shape { batch: 4, rank, world, uneven: Uneven::Pad, drop_last: false };
            let loader = Loader::new(set.clone(), None, LoaderOptions { shape, ..options() }).unwrap();
            let part: Vec<u32> = loader.epoch(0, 0).unwrap().flat_map(|batch| batch.unwrap().ids).collect();
            assert_eq!(part.len() as u32, 90_u32.div_ceil(world));
            ids.extend(part);
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 90);
    }
}

#[test]
fn a_store_that_hangs_ends_in_an_error_that_names_it() {
    let throttle = Some(ThrottleOptions { latency_ms: 60_000, ..ThrottleOptions::default() });
    let set = data(photos(), &StoreOptions { throttle, ..StoreOptions::default() });
    let error = run(&set, LoaderOptions { stall_ms_max: 200, ..options() }, 0, 0).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("waiting for the store"), "{error}");
}
