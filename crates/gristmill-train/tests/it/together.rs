//! Ranks that load for themselves and step together: threads with a loader each, with and without slices.

use crate::{EPOCHS, Ground, options, trained};
use flate2::read::GzDecoder;
use gristmill_core::plan::Shape;
use gristmill_core::select::Selection;
use gristmill_node::dataset::DataSet;
use gristmill_node::exchange::{ExchangeSettings, Fraction, Local};
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::open;
use gristmill_node::selection::SelectionOptions;
use gristmill_ops::Recipe;
use gristmill_train::EpochRow;
use gristmill_train::ranks::{Joint, together};
use std::fs::File;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

/// The training pictures unpacked, so that each can be read, held and sent by itself.
fn unpacked(ground: &Ground) -> DataSet {
    for part in ["images-idx3", "labels-idx1"] {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/shippable/fashion-mnist-4000-train-");
        let mut inside = GzDecoder::new(File::open(format!("{data}{part}-ubyte.gz")).unwrap());
        let mut file = File::create(ground.folder.path().join(format!("train-{part}-ubyte"))).unwrap();
        std::io::copy(&mut inside, &mut file).unwrap();
    }
    let path = ground.folder.path().join("train-images-idx3-ubyte");
    let go_on = &mut |_| ControlFlow::Continue(());
    let opened = open::catalog(path.to_str().unwrap(), &ground.settings, false, go_on).unwrap();
    open::data_set(opened.catalog, &ground.settings, &|| false).unwrap().beside()
}

/// Four ranks train one model together, from the store or from slices that they swap, and end as well as one does.
#[test]
fn ranks_that_load_for_themselves_learn_together() {
    let ground = Ground::new();
    let set = unpacked(&ground);
    let (_, alone, _) = trained(&ground, &Selection::Uniform, None);
    let right = |rows: &[EpochRow]| rows.last().unwrap().test_accuracy.unwrap();
    let options = options();
    let weighted = Selection::named("weighted").unwrap();
    for (selection, exchange) in [
        (Selection::Uniform, None),
        (weighted.clone(), None),
        (Selection::Uniform, Some(0.3)),
        (weighted, Some(0.3)),
    ] {
        let ends = Mutex::new(Local::ranks(4, None).into_iter().map(Some).collect::<Vec<_>>());
        let usual = ground.settings.loader();
        let make = |rank: u32| {
            let selection = SelectionOptions { selection: selection.clone(), ..usual.selection.clone() };
            let swaps = |fraction| ExchangeSettings {
                fraction: Fraction::Fixed(fraction),
                ..ExchangeSettings::default()
            };
            let shape = Shape { rank, world: 4, ..Shape::single(32) };
            let loading = LoaderOptions {
                shape,
                selection,
                seed: 7,
                exchange: exchange.map(swaps),
                threads: 1,
                ..usual.clone()
            };
            let loader =
                Loader::new(Arc::new(set.beside()), Some(&Recipe::preset("mnist").unwrap()), loading)?;
            // Taken before the others are waited for.
            let end = ends.lock().unwrap()[rank as usize].take();
            match end.filter(|_| exchange.is_some()) {
                Some(end) => loader.with_transport(Box::new(end)),
                None => Ok(loader),
            }
        };
        let joint = Joint {
            options: &options,
            world: 4,
            loader: &make,
            test: &ground.test,
            samples_per_s: 0.0,
            stop: &|| false,
        };
        let mut reports = 0;
        let rows = together(&joint, &mut |_, all| reports += all.len()).unwrap().unwrap();
        assert_eq!((rows.len() as u64, reports as u64), (EPOCHS, 4 * EPOCHS));
        assert!(right(&rows) > right(&alone) - 0.05, "{} {}", right(&rows), right(&alone));
        assert_eq!(rows[0].served, 4_000, "{selection:?} {exchange:?}");
        assert!(rows.iter().all(|row| row.kept <= 4_000 && row.steps > 0 && row.wall_ms > 0.0));
        let stopped = Joint { stop: &|| true, ..joint };
        assert_eq!(together(&stopped, &mut |_, _| ()).unwrap(), None);
    }
}

#[test]
fn what_a_rank_meets_is_said_once_and_ends_all() {
    let ground = Ground::new();
    let make = |rank: u32| match rank {
        2 => Err(gristmill_node::Error::config("rank 2 has no data")),
        _ => Ok(ground.loader(Selection::Uniform)),
    };
    let (options, test) = (options(), &ground.test);
    let joint =
        Joint { options: &options, world: 4, loader: &make, test, samples_per_s: 0.0, stop: &|| false };
    let error = together(&joint, &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("rank 2 has no data"), "{error}");
}
