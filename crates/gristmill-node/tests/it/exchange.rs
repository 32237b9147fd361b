//! The exchange at work: ranks as threads, each with a loader and a slice of its own, against what the core predicts.

mod crash;
mod selects;
mod trouble;

use bytes::Bytes;
use gristmill_core::exchange::{Choose, ExchangeOptions, Form, Owners, View};
use gristmill_core::family::Families;
use gristmill_core::plan::{Shape, Uneven};
use gristmill_core::score::Feedback;
use gristmill_core::select::Selection;
use gristmill_node::Result;
use gristmill_node::access::Embedded;
use gristmill_node::catalog::{Catalog, Draft, SourceKind};
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::exchange::{ExchangeSettings, Fraction, Hold, Local, Transport};
use gristmill_node::loader::{Data, Loader, LoaderOptions};
use gristmill_node::node::{Node, NodeOptions, Tier};
use gristmill_node::report::EpochReport;
use gristmill_node::selection::FamilyUse;
use gristmill_node::store::{MemoryStore, ObjectInfo, Store};
use gristmill_ops::Encoding;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// What sample `id` is: of a size and content of its own.
fn content(id: u32) -> Vec<u8> {
    let size = 20 + (id * 37 % 211) as usize;
    (0..size).map(|at| (id as usize * 131 + at * 7) as u8).collect()
}

/// A data set of `samples` in four classes, in memory.
fn catalog(samples: u32) -> (Arc<Catalog>, Arc<dyn Store>) {
    let mut draft = Draft::of_files("memory:", SourceKind::Folder, Encoding::Sniffed);
    draft.set_classes(["a", "b", "c", "d"].map(String::from).to_vec());
    let mut objects = Vec::new();
    for id in 0..samples {
        let path = format!("{}/{id:05}", ["a", "b", "c", "d"][id as usize % 4]);
        let bytes = content(id).len() as u64;
        draft.push_file(&ObjectInfo { path: path.clone(), bytes, version: 1 }, id % 4).unwrap();
        objects.push((path, Bytes::from(content(id))));
    }
    (Arc::new(draft.into_catalog().unwrap()), Arc::new(MemoryStore::new(objects)))
}

pub(crate) fn set(samples: u32) -> DataSet {
    let (catalog, store) = catalog(samples);
    DataSet::new(catalog, store, 0, &|| false).unwrap()
}

pub(crate) fn settings(fraction: f64) -> ExchangeSettings {
    ExchangeSettings {
        fraction: Fraction::Fixed(fraction),
        patience_ms: 20_000,
        ..ExchangeSettings::default()
    }
}

fn in_folder(fraction: f64, folder: &Path) -> ExchangeSettings {
    ExchangeSettings { hold: Hold::Folder(folder.to_path_buf()), ..settings(fraction) }
}

pub(crate) fn options(world: u32, batch: u32, exchange: ExchangeSettings) -> LoaderOptions {
    let mut options = Config::default().settings().loader();
    options.shape = Shape { batch, rank: 0, world, uneven: Uneven::Pad, drop_last: false };
    (options.seed, options.threads, options.memory_bytes_max) = (11, 1, 64 << 20);
    options.exchange = Some(exchange);
    options
}

/// What one rank saw in an epoch.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) batches: Vec<Vec<u32>>,
    pub(crate) report: EpochReport,
    /// What the slice has after it.
    pub(crate) held: Vec<u32>,
    peak: u32,
}

impl Seen {
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.batches.concat()
    }
}

/// Runs a function on every rank at the same time.
pub(crate) fn ranks<T: Send>(
    set: &DataSet,
    options: &LoaderOptions,
    run: impl Fn(u32, Result<Loader>) -> T + Sync,
) -> Vec<T> {
    let ends = Local::ranks(options.shape.world, None);
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = ends
            .into_iter()
            .map(|end| {
                let rank = end.rank();
                let options = LoaderOptions { shape: Shape { rank, ..options.shape }, ..options.clone() };
                let set = Arc::new(set.beside());
                scope.spawn(move || {
                    let loader = Loader::new(set, None, options);
                    run(rank, loader.and_then(|loader| loader.with_transport(Box::new(end))))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Trains one epoch; every sample must be what it was.
pub(crate) fn train(loader: &Loader, epoch: u64, batches_max: usize) -> Result<Seen> {
    let mut running = loader.epoch(epoch, 0)?;
    let mut batches = Vec::new();
    while batches.len() < batches_max
        && let Some(batch) = running.next_batch()?
    {
        let Data::Raw(raw) = &batch.data else { panic!("no recipe, no tensors") };
        for (id, bytes) in batch.ids.iter().zip(raw) {
            assert!(bytes == &content(*id), "sample {id}");
        }
        batches.push(batch.ids.clone());
    }
    let held = loader.exchanger().unwrap().held();
    Ok(Seen { batches, report: running.report(), held: held.ids(), peak: held.peak() })
}

/// Some epochs on all ranks, by rank.
fn trained(set: &DataSet, options: &LoaderOptions, epochs: std::ops::Range<u64>) -> Vec<Vec<Seen>> {
    ranks(set, options, |_, loader| {
        let loader = loader.unwrap();
        epochs.clone().map(|epoch| train(&loader, epoch, usize::MAX).unwrap()).collect()
    })
}

/// Who holds what when each epoch begins, as the core alone says.
fn predicted(samples: u32, options: &LoaderOptions, fraction: f64, epochs: u64) -> Vec<Owners> {
    let exchange = options.exchange.as_ref().unwrap();
    let how = ExchangeOptions { fraction, form: exchange.form, choose: exchange.choose };
    let labels: Vec<u32> = (0..samples).map(|id| id % 4).collect();
    let mut owners = Owners::new(samples, options.shape.world, options.seed).unwrap();
    let mut all = vec![owners.clone()];
    for epoch in 0..epochs {
        let labels = if how.choose.by_label() { &labels[..] } else { &[] };
        let moves = owners.exchange(options.seed, epoch, &how, View { labels, ..View::default() }).unwrap();
        let left = owners.lay_out(options.seed, epoch, options.shape, true, None).left;
        owners.commit(&moves);
        owners.leave(left);
        all.push(owners.clone());
    }
    all
}

fn sorted(ids: &[u32]) -> Vec<u32> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}

#[test]
fn ranks_train_what_they_hold_and_hold_what_was_predicted() {
    let (samples, world, epochs) = (90, 4, 4);
    let set = set(samples);
    let options = options(world, 5, settings(0.3));
    let seen = trained(&set, &options, 0..epochs);
    let owners = predicted(samples, &options, 0.3, epochs);
    for epoch in 0..epochs as usize {
        let mut times = vec![0; samples as usize];
        for (rank, seen) in seen.iter().enumerate() {
            let Seen { report, held, peak, .. } = &seen[epoch];
            let (before, after) = (owners[epoch].held(rank as u32), owners[epoch + 1].held(rank as u32));
            let ids = seen[epoch].ids();
            assert!(ids.iter().all(|id| before.contains(id)), "what came is trained in the next epoch");
            assert_eq!(*held, sorted(after));
            assert!(*peak <= (1.3 * before.len() as f64).ceil() as u32);
            ids.iter().for_each(|id| times[*id as usize] += 1);
            let swap = report.exchange.as_ref().unwrap();
            // 22 samples are the smallest slice: 6 steps.
            assert_eq!((swap.sent, swap.received, swap.committed, swap.missed), (6, 6, true, 0));
            assert_eq!(swap.refilled, if epoch == 0 { before.len() as u32 } else { 0 });
            assert!(swap.bytes_sent > 6 * 28 && swap.divergence > 0.0);
            let tiers: Vec<_> = report.tiers.iter().filter(|used| used.samples > 0).collect();
            assert_eq!((tiers.len(), tiers[0].tier, tiers[0].samples), (1, Tier::Held, ids.len() as u64));
            assert_eq!((ids.len(), report.batches, report.bytes), (23, 5, 0));
        }
        assert!(times.iter().all(|&n| n == 1 || n == 2));
        assert_eq!(times.iter().sum::<i32>(), 92, "two are trained again to even out the ranks");
    }
}

#[test]
fn a_cache_in_front_changes_nothing() {
    let set = set(60);
    let options = options(3, 4, settings(0.5));
    let plain = trained(&set, &options, 0..3);
    let cached = ranks(&set, &options, |_, loader| {
        let loader = loader.unwrap();
        let node =
            Node::new(loader.shared_set(), NodeOptions::new(gristmill_core::cache::Policy::Foresight, 2_000));
        let access = Embedded::join(Arc::new(node.unwrap()), "test").unwrap();
        let loader = loader.with_access(Some(Arc::new(access)));
        (0..3).map(|epoch| train(&loader, epoch, usize::MAX).unwrap()).collect::<Vec<_>>()
    });
    for (plain, cached) in plain.iter().flatten().zip(cached.iter().flatten()) {
        assert_eq!((&plain.batches, &plain.held), (&cached.batches, &cached.held));
        assert!(cached.report.tiers.iter().all(|used| used.tier != Tier::Store || used.samples == 0));
    }
}

#[test]
fn an_epoch_that_is_left_is_finished_by_the_next() {
    let set = set(72);
    let options = options(3, 4, settings(0.4));
    let whole = trained(&set, &options, 0..3);
    let broken = ranks(&set, &options, |_, loader| {
        let loader = loader.unwrap();
        let first = train(&loader, 0, 2).unwrap();
        // The same epoch again: its exchange goes on and is not begun twice.
        let again = train(&loader, 0, 3).unwrap();
        let rest = (1..3).map(|epoch| train(&loader, epoch, usize::MAX).unwrap());
        let rest: Vec<Seen> = rest.collect();
        (first, again, rest)
    });
    for (whole, (first, again, rest)) in whole.iter().zip(&broken) {
        assert_eq!(
            (&first.batches[..], &again.batches[..]),
            (&whole[0].batches[..2], &whole[0].batches[..3])
        );
        for (whole, rest) in whole[1..].iter().zip(rest) {
            assert_eq!((&whole.batches, &whole.held), (&rest.batches, &rest.held));
        }
    }
}

#[test]
fn an_epoch_can_be_entered_in_the_middle() {
    let set = set(72);
    let options = options(3, 4, settings(0.4));
    let whole = trained(&set, &options, 0..4);
    let entered = ranks(&set, &options, |_, loader| {
        let loader = loader.unwrap();
        // Epoch 2 at batch 3, without having been there before: who holds what is computed.
        let rest: Vec<Vec<u32>> =
            loader.epoch(2, 3).unwrap().map(|batch| batch.unwrap().ids.clone()).collect();
        (rest, train(&loader, 3, usize::MAX).unwrap())
    });
    for (whole, (rest, next)) in whole.iter().zip(&entered) {
        assert_eq!(&whole[2].batches[3..], &rest[..]);
        assert_eq!((&whole[3].batches, &whole[3].held), (&next.batches, &next.held));
    }
}

#[test]
fn the_fraction_rises_only_where_classes_are_uneven() {
    let exchange = ExchangeSettings { fraction: Fraction::Auto, ..settings(0.0) };
    let seen = trained(&set(200), &options(4, 10, exchange), 0..3);
    let fractions: Vec<f64> =
        seen[0].iter().map(|seen| seen.report.exchange.as_ref().unwrap().fraction).collect();
    assert!(
        fractions.iter().all(|f| (f - 0.1).abs() < 1e-9),
        "an even partition needs no more: {fractions:?}"
    );
}

#[test]
fn selection_keeps_ranks_even_and_at_home() {
    for kind in ["weighted", "infobatch"] {
        let mut options = options(3, 4, ExchangeSettings { choose: Choose::Importance, ..settings(0.3) });
        options.selection.selection = Selection::named(kind).unwrap();
        options.selection.epochs = Some(60);
        let set = set(96);
        let seen = ranks(&set, &options, |rank, loader| {
            let loader = loader.unwrap();
            let mut all = Vec::new();
            for epoch in 0..8 {
                let before =
                    loader.exchanger().unwrap().owners(epoch).map(|owners| owners.held(rank).to_vec());
                let seen = train(&loader, epoch, usize::MAX).unwrap();
                let ids = seen.ids();
                let p_true: Vec<f32> = ids.iter().map(|id| if id % 3 == 0 { 0.4 } else { 0.995 }).collect();
                let p_rival: Vec<f32> = p_true.iter().map(|p| 1.0 - p).collect();
                let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
                let said =
                    Feedback { ids: &ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
                loader.choice().unwrap().feedback(&said).unwrap();
                assert!(
                    ids.iter().all(|id| before.as_ref().unwrap().contains(id)),
                    "{kind}: trains what it holds"
                );
                all.push(seen);
            }
            (all, loader.exchanger().unwrap().state())
        });
        let kept = |seen: &Seen| seen.report.selection.as_ref().unwrap().kept;
        for epoch in 0..8 {
            let first = &seen[0].0[epoch];
            let mut held: Vec<u32> = Vec::new();
            for (all, _) in &seen {
                let one = &all[epoch];
                assert_eq!(
                    (one.batches.len(), kept(one)),
                    (first.batches.len(), kept(first)),
                    "{kind} {epoch}"
                );
                assert_eq!(one.ids().len(), first.ids().len());
                held.extend(&one.held);
            }
            assert_eq!(sorted(&held), (0..96).collect::<Vec<_>>(), "{kind}: complete and disjoint");
        }
        assert!(seen[0].0.iter().any(|seen| kept(seen) < 96), "{kind} left something out");
        assert!(seen.iter().all(|(_, state)| *state == seen[0].1));
        // From a saved state alone: the selection decided who holds what.
        let resumed = ranks(&set, &options, |_, loader| {
            let loader = loader.unwrap();
            let error = loader.exchanger().unwrap().owners(8).unwrap_err();
            assert!(error.to_string().contains("depends on what was selected"), "{error}");
            loader.exchanger().unwrap().restore(&seen[0].1).unwrap();
            loader.exchanger().unwrap().owners(8).unwrap()
        });
        assert!(
            resumed
                .iter()
                .enumerate()
                .all(|(rank, owners)| { sorted(owners.held(rank as u32)) == seen[rank].0[7].held })
        );
    }
}

#[test]
fn stand_ins_are_samples_of_the_rank() {
    let hashes: Vec<u64> = (0..96_u64).map(|id| 0xffff << (id / 8 % 12)).collect();
    let families = Arc::new(Families::group(&hashes, &[0; 96], 0, false).unwrap());
    let mut options = options(3, 4, settings(0.3));
    options.selection.families = FamilyUse::Repeat;
    let counts = ranks(&set(96), &options, |rank, loader| {
        let loader = loader.unwrap().with_families(Arc::clone(&families)).unwrap();
        let mut stand_ins = 0;
        for epoch in 0..3 {
            let owners = loader.exchanger().unwrap().owners(epoch);
            let seen = train(&loader, epoch, usize::MAX).unwrap();
            let owners = owners.unwrap();
            assert!(seen.ids().iter().all(|id| owners.held(rank).contains(id)));
            stand_ins += seen.report.selection.unwrap().stand_ins;
        }
        stand_ins
    });
    assert!(counts[0] > 0 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[test]
fn real_containers_are_sliced() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/shippable");
    for part in ["images-idx3", "labels-idx1"] {
        let mut bytes = Vec::new();
        let file =
            std::fs::File::open(shipped.join(format!("fashion-mnist-1000-test-{part}-ubyte.gz"))).unwrap();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut bytes).unwrap();
        std::fs::write(folder.path().join(format!("t10k-{part}-ubyte")), bytes).unwrap();
    }
    let file = folder.path().join("t10k-images-idx3-ubyte");
    let arguments = [
        ("exchange.fraction", "0.3"),
        ("exchange.hold", folder.path().join("slice").to_str().unwrap()),
        ("loader.world", "4"),
        ("loader.batch", "25"),
        ("catalog.folder", folder.path().join("catalogs").to_str().unwrap()),
    ]
    .map(|(key, value)| (key.to_string(), value.to_string()));
    std::fs::write(folder.path().join("empty.toml"), "").unwrap();
    let config = Config::load(Some(&folder.path().join("empty.toml")), &arguments).unwrap();
    let source = file.to_str().unwrap();
    let opened = gristmill_node::open::catalog(source, config.settings(), false, &mut |_| {
        std::ops::ControlFlow::Continue(())
    });
    let set = gristmill_node::open::data_set(opened.unwrap().catalog, config.settings(), &|| false).unwrap();
    assert_eq!(set.resident_bytes(), 0, "each rank holds its slice and no more");
    let whole = std::fs::read(&file).unwrap();
    let mut options = config.settings().loader();
    options.threads = 1;
    let held = ranks(&set, &options, |_, loader| {
        let loader = loader.unwrap();
        for epoch in 0..2 {
            for batch in loader.epoch(epoch, 0).unwrap() {
                let batch = batch.unwrap();
                let Data::Raw(raw) = &batch.data else { panic!("no recipe, no tensors") };
                for (id, bytes) in batch.ids.iter().zip(raw) {
                    assert!(bytes == &whole[16 + *id as usize * 784..][..784], "sample {id}");
                }
            }
        }
        loader.driver().unwrap().gather(Vec::new()).unwrap();
        loader.exchanger().unwrap().held().ids()
    });
    assert!(held.iter().all(|held| held.len() == 250));
    assert_eq!(sorted(&held.concat()), (0..1_000).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Any world, fraction, batch, form and choice: what moves is what the core says, and nothing is lost or doubled.
    #[test]
    fn any_run_is_as_predicted(
        samples in 8_u32..70, world in 2_u32..6, batch in 1_u32..9, fraction in 0.0_f64..=1.0,
        plain: bool, class: bool, drop: bool, bytes_max in 260_u64..2_000, seed: u64,
    ) {
        let set = set(samples);
        let mut options = options(world, batch, ExchangeSettings {
            form: if plain { Form::Plain } else { Form::Derangement },
            choose: if class { Choose::Class } else { Choose::Uniform },
            message_bytes_max: bytes_max,
            ..settings(fraction)
        });
        options.seed = seed;
        options.shape.uneven = if drop { Uneven::Drop } else { Uneven::Pad };
        let seen = trained(&set, &options, 0..3);
        let owners = predicted(samples, &options, fraction, 3);
        for epoch in 0..3 {
            let mut all: Vec<u32> = Vec::new();
            let mut times = vec![0; samples as usize];
            for (rank, seen) in seen.iter().enumerate() {
                let (before, after) = (owners[epoch].held(rank as u32), owners[epoch + 1].held(rank as u32));
                prop_assert_eq!(&seen[epoch].held, &sorted(after));
                prop_assert!(seen[epoch].peak <= owners[epoch].held_max(rank as u32, fraction).max(before.len() as u32));
                prop_assert!(seen[epoch].ids().iter().all(|id| before.contains(id)));
                seen[epoch].ids().iter().for_each(|id| times[*id as usize] += 1);
                all.extend(&seen[epoch].held);
            }
            prop_assert_eq!(sorted(&all), (0..samples).collect::<Vec<_>>());
            prop_assert!(times.iter().all(|&n| n <= 2 && (n > 0 || drop)));
        }
    }
}
