//! Families of real pictures: planted near-duplicates are found, others are left alone, and what is kept is used.

use gristmill_node::catalog::{self, BuildOptions, Catalog, Source};
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::families::{self, FamilyOptions, FamilySet};
use gristmill_node::loader::LoaderOptions;
use gristmill_node::store::{LocalStore, Store};
use gristmill_node::{Kind, Result};
use gristmill_testdata::{cut_photos, external, external_xz, jpeg, near_duplicates, shippable};
use std::fs;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use turbojpeg::Subsamp;

const DEFAULT: FamilyOptions = FamilyOptions { radius: None, cross_label: false };

fn data(folder: &Path, object: Option<&str>) -> Arc<DataSet> {
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder).unwrap());
    let source =
        Source { root_url: store.url(), store: store.clone(), object: object.map(Into::into), kind: None };
    let draft =
        catalog::build(&source, &BuildOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    let catalog = Arc::new(draft.into_catalog().unwrap());
    Arc::new(DataSet::new(catalog, store, 64 << 20, &|| false).unwrap())
}

fn loader() -> LoaderOptions {
    Config::load(None, &[("loader.threads".into(), "2".into())]).unwrap().settings().loader()
}

fn build(set: &Arc<DataSet>, options: FamilyOptions) -> FamilySet {
    families::build(set, options, &loader(), &mut |_| true).unwrap().0
}

/// Puts near-duplicates of every `step`-th picture of a folder beside it, named after it.
fn plant(folder: &Path, step: usize) -> usize {
    let mut planted = 0;
    let mut classes: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    classes.sort();
    let mut files: Vec<_> = classes
        .iter()
        .flat_map(|class| fs::read_dir(class).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| !path.display().to_string().contains("cifar-"))
        .collect();
    files.sort();
    for path in files.iter().step_by(step) {
        let origin = path.file_stem().unwrap().to_str().unwrap();
        for (what, bytes) in near_duplicates(&fs::read(path).unwrap()).unwrap() {
            fs::write(path.with_file_name(format!("{origin}~{what}.jpg")), bytes).unwrap();
            planted += 1;
        }
    }
    planted
}

/// Every planted picture is in the family of the one it was made from. Gives back which pictures were grouped with
/// another than their own.
fn check_planted(catalog: &Catalog, found: &FamilySet, planted: usize) -> Vec<[u32; 2]> {
    let name = |id: u32| catalog.locate(gristmill_core::SampleId(id)).unwrap().name.to_string();
    let origin = |id: u32| {
        let name = name(id);
        name.split('~').next().unwrap().trim_end_matches(".jpg").trim_end_matches(".JPEG").to_string()
    };
    let mut seen = 0;
    let mut strangers = Vec::new();
    for id in 0..catalog.len() {
        if name(id).contains('~') {
            seen += 1;
            let family = found.families.family(id);
            let original =
                family.iter().find(|other| !name(**other).contains('~') && origin(**other) == origin(id));
            assert!(original.is_some(), "{} is alone: {family:?}", name(id));
        }
        let leader = found.families.leader(id);
        if origin(leader) != origin(id) {
            strangers.push([leader, id]);
        }
        assert!(found.distance(id) <= found.families.radius());
    }
    assert_eq!(seen, planted);
    strangers
}

#[test]
fn planted_duplicates_among_shipped_pictures_are_found() {
    let folder = tempfile::tempdir().unwrap();
    cut_photos(folder.path(), 200, 3).unwrap();
    let planted = plant(folder.path(), 20);
    let set = data(folder.path(), None);
    // Cuts of one photo overlap, so many are relatives by themselves: a chosen radius would be tightened for them.
    for cross_label in [false, true] {
        let found = build(&set, FamilyOptions { radius: Some(4), cross_label });
        assert_eq!(found.bad, 0);
        check_planted(set.catalog(), &found, planted);
        assert!((found.families.purity(set.catalog().labels().unwrap()) - 1.0).abs() < 1e-12);
    }
}

/// 5,000 real pictures: all photos there are, filled up with small ones, and three near-duplicates of every tenth photo.
#[test]
fn planted_duplicates_among_5000_real_pictures_are_found() {
    let sets = ["imagenette-224", "imagenet-sample", "large-photos"].map(external);
    let [Some(imagenette), Some(imagenet), Some(large)] = sets else { return };
    let Some(cifar) = external_xz("cifar10/data_batch_1.bin.xz") else { return };
    let folder = tempfile::tempdir().unwrap();
    for (set, what) in [(imagenette, "imagenette"), (imagenet, "imagenet"), (large, "large")] {
        let mut archive = ::tar::Archive::new(fs::File::open(set.join("images.tar")).unwrap());
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().into_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            let Some(name) = path.file_name().filter(|_| !bytes.is_empty()).and_then(|name| name.to_str())
            else {
                continue;
            };
            // Imagenette has a folder per class; of the others every picture is a class of its own.
            let class = match path.parent().and_then(Path::file_name).and_then(|class| class.to_str()) {
                Some(class) if what == "imagenette" => class.to_string(),
                _ => format!("{what}-{name}"),
            };
            fs::create_dir_all(folder.path().join(&class)).unwrap();
            fs::write(folder.path().join(class).join(name), bytes).unwrap();
        }
    }
    let planted = plant(folder.path(), 10);
    let photos = data(folder.path(), None).catalog().len() as usize;
    add_cifar(&cifar, folder.path(), 5_000 + planted - photos);
    let set = data(folder.path(), None);
    assert_eq!(set.catalog().len() as usize, 5_000 + planted);
    // Across labels, so that the guard does not do the hash's work.
    let found = build(&set, FamilyOptions { radius: Some(4), cross_label: true });
    let strangers = check_planted(set.catalog(), &found, planted);
    let labels = set.catalog().labels().unwrap();
    // CIFAR has near-duplicates of its own; they are of one label.
    assert!(
        strangers.iter().all(|pair| labels[pair[0] as usize] == labels[pair[1] as usize]),
        "{strangers:?}"
    );
    assert!(strangers.len() <= 5, "{strangers:?}");
    let guarded = build(&set, FamilyOptions { radius: Some(4), cross_label: false });
    assert_eq!(guarded.families.len(), found.families.len());
}

/// Writes `count` CIFAR pictures as JPEG files.
fn add_cifar(records: &[u8], folder: &Path, count: usize) {
    for (i, record) in records.chunks_exact(3_073).take(count).enumerate() {
        let (label, planes) = (record[0], &record[1..]);
        let pixels: Vec<u8> =
            (0..1_024).flat_map(|p| [planes[p], planes[1_024 + p], planes[2_048 + p]]).collect();
        let class = folder.join(format!("cifar-{label}"));
        fs::create_dir_all(&class).unwrap();
        let bytes = jpeg(&pixels, 32, 95, Subsamp::None, false).unwrap();
        fs::write(class.join(format!("cifar-{i:05}.jpg")), bytes).unwrap();
    }
}

/// The groups that another program found by its own perceptual hash of the same pictures.
#[test]
fn cifar_has_the_families_that_others_find() {
    let Some(groups) = external("cifar10/phash_groups.json") else { return };
    let folder = tempfile::tempdir().unwrap();
    for batch in ["data_batch_1.bin", "data_batch_2.bin"] {
        let Some(records) = external_xz(&format!("cifar10/{batch}.xz")) else { return };
        fs::write(folder.path().join(batch), records).unwrap();
    }
    let set = data(folder.path(), None);
    let found = build(&set, FamilyOptions { radius: Some(4), cross_label: true });
    let text = fs::read_to_string(groups).unwrap();
    let published: serde_json::Value = serde_json::from_str(&text).unwrap();
    let published: Vec<Vec<u32>> = serde_json::from_value(published["hamming_le_4"].clone()).unwrap();
    let ours: Vec<Vec<u32>> = found.families.iter().map(<[u32]>::to_vec).collect();
    let shared = ours.iter().filter(|family| published.contains(family)).count();
    assert!(shared * 10 >= published.len() * 9 && shared * 10 >= ours.len() * 9);
}

#[test]
fn raw_samples_are_hashed_and_kept_families_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.families");
    let set = data(&shippable(), Some("fashion-mnist-1000-test-images-idx3-ubyte.gz"));
    let mut hashed = 0;
    let mut open_or_build = |options| -> Result<FamilySet> {
        families::open_or_build(&path, &set, options, &loader(), &mut |at| {
            hashed = at.done;
            true
        })
    };
    let first = open_or_build(DEFAULT).unwrap();
    assert_eq!((first.hashes.len(), first.bad), (1_000, 0));
    assert!(first.families.radius() <= 2 && first.families.grouped() < 200);
    // Kept ones are read, with other options they are grouped from the kept hashes: nothing is hashed again.
    fs::metadata(&path).unwrap();
    let unread = |_| panic!("hashed again");
    let again = families::open_or_build(&path, &set, DEFAULT, &loader(), &mut |at| unread(at)).unwrap();
    assert_eq!(again, first);
    let wide = FamilyOptions { radius: Some(6), cross_label: true };
    let wide = families::open_or_build(&path, &set, wide, &loader(), &mut |at| unread(at)).unwrap();
    assert!(wide.families.grouped() > first.families.grouped() && wide.hashes == first.hashes);
    let other = data(&shippable(), Some("fashion-mnist-4000-train-images-idx3-ubyte.gz"));
    assert!(families::open(&path, other.catalog(), DEFAULT).unwrap().is_none(), "another data set's");
    let error = families::open(&path, set.catalog(), FamilyOptions { radius: Some(40), ..DEFAULT });
    assert!(error.unwrap_err().to_string().contains("40 bits"));
}

#[test]
fn bad_samples_are_counted_and_stopping_stops() {
    let folder = tempfile::tempdir().unwrap();
    cut_photos(folder.path(), 20, 3).unwrap();
    fs::write(folder.path().join("rocket/text.jpg"), "no picture").unwrap();
    let gone = folder.path().join("rocket/gone.jpg");
    fs::copy(folder.path().join("rocket/00009.jpg"), &gone).unwrap();
    let set = data(folder.path(), None);
    fs::remove_file(gone).unwrap();
    let (found, bad) = families::build(&set, DEFAULT, &loader(), &mut |_| true).unwrap();
    assert_eq!((found.bad, bad.len()), (2, 2), "{bad:?}");
    assert!(bad.iter().any(|bad| bad.reason.contains("not a JPEG or PNG")), "{bad:?}");
    assert!(found.families.family(bad[0].id.0).is_empty());
    let stopped = families::build(&set, DEFAULT, &loader(), &mut |_| false);
    assert!(stopped.is_ok() || stopped.is_err_and(|error| error.kind() == Kind::Stopped));
}
