//! The same data set in a real S3 server: the catalog comes from the URL, and so do the same batches.

use crate::store::s3::{SECRET, options as s3_options, serve};
use gristmill_core::plan::Shape;
use gristmill_node::catalog::{self, BuildOptions, Catalog, CheckOptions, Source};
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Loader, LoaderOptions, OnBad};
use gristmill_node::store::{Store, StoreOptions, open};
use gristmill_ops::Recipe;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

fn build(url: &str, object: Option<&str>, options: &StoreOptions) -> (Arc<Catalog>, Arc<dyn Store>) {
    let store = open(url, options).unwrap();
    let source =
        Source { store: store.clone(), root_url: url.into(), object: object.map(Into::into), kind: None };
    let draft =
        catalog::build(&source, &BuildOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    (Arc::new(draft.into_catalog().unwrap()), store)
}

/// What two epochs of a data set give: ids and fingerprints.
fn epochs(catalog: &Arc<Catalog>, store: Arc<dyn Store>) -> Vec<(Vec<u32>, u64)> {
    let options = LoaderOptions {
        shape: Shape::single(8),
        seed: 3,
        shuffle: true,
        threads: 2,
        prefetch_batches: 2,
        reads_in_flight: 0,
        memory_bytes_max: 256 << 20,
        pixels_max: 1 << 24,
        on_bad: OnBad::Raise,
        stall_ms_max: 60_000,
        selection: gristmill_node::selection::SelectionOptions::default(),
        split: gristmill_node::split::SplitOptions::default(),
        exchange: None,
        steer: gristmill_node::steer::SteerOptions::default(),
    };
    let set = DataSet::new(catalog.clone(), store, 64 << 20, &|| false).unwrap();
    let loader =
        Loader::new(Arc::new(set), Some(&Recipe::preset("imagenet-train").unwrap()), options).unwrap();
    let epochs = [0, 1].map(|epoch| loader.epoch(epoch, 0).unwrap());
    let batches = epochs.into_iter().flatten().map(|batch| batch.unwrap());
    batches.map(|batch| (batch.ids.clone(), batch.fingerprint())).collect()
}

/// The pictures below `folder` as two shards, with their labels as WebDataset has them.
fn shard(folder: &Path, to: &Path) {
    let mut shards =
        [0, 1].map(|i| tar::Builder::new(File::create(to.join(format!("train-{i}.tar"))).unwrap()));
    let mut classes: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    classes.sort();
    let add = |shard: &mut tar::Builder<File>, name: String, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        shard.append_data(&mut header, name, bytes).unwrap();
    };
    for (label, class) in classes.iter().enumerate() {
        for file in fs::read_dir(class).unwrap().map(|entry| entry.unwrap().path()) {
            let key = file.file_stem().unwrap().to_str().unwrap().to_string();
            let shard = &mut shards[label % 2];
            add(shard, format!("{key}.jpg"), &fs::read(&file).unwrap());
            add(shard, format!("{key}.cls"), label.to_string().as_bytes());
        }
    }
    for shard in shards {
        shard.into_inner().unwrap();
    }
}

#[test]
fn a_data_set_in_s3_is_the_same_data_set() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("bucket/data/photos");
    gristmill_testdata::cut_photos(&folder, 40, 5).unwrap();
    shard(&folder, &root.path().join("bucket/data"));

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let address = runtime.block_on(serve(root.path()));
    let remote = s3_options(address, SECRET);
    let local = StoreOptions::default();
    let here = root.path().join("bucket/data");
    for (below, object) in [("/photos", None), ("", Some("train-{0..1}.tar"))] {
        let (near, near_store) = build(&format!("{}{below}", here.display()), object, &local);
        let (far, far_store) = build(&format!("s3://bucket/data{below}"), object, &remote);
        assert_eq!((far.len(), far.digest()), (40, near.digest()), "the same data set wherever it lies");
        assert_eq!(epochs(&far, far_store.clone()), epochs(&near, near_store));
        let options = CheckOptions { content: false };
        let findings =
            catalog::check(&far, &*far_store, &options, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(findings.is_clean(), "{findings:?}");
    }
}
