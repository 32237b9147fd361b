//! Real data sets, when they are there: `GRISTMILL_DATA`, or `../shared/data` beside the repository.

use super::{build, local, tar};
use gristmill_core::SampleId;
use gristmill_node::catalog::{BuildOptions, Catalog, SourceKind};
use gristmill_node::store::{LocalStore, Store};
use gristmill_ops::Encoding;
use gristmill_testdata::external;
use std::path::Path;

fn catalog(folder: &Path, object: Option<&str>) -> Catalog {
    build(&local(folder, object), &BuildOptions::default()).unwrap().into_catalog().unwrap()
}

#[test]
fn imagenette_tar() {
    let Some(folder) = external("imagenette-224") else { return };
    let catalog = catalog(&folder, None);
    assert_eq!((catalog.kind(), catalog.len(), catalog.classes().len()), (SourceKind::Tar, 1_000, 10));
    assert_eq!(catalog.classes()[0], "n01440764");
    assert_eq!(catalog.class_counts().unwrap(), [100; 10]);
    let store = LocalStore::new(&folder).unwrap();
    for id in 0..catalog.len() {
        let place = catalog.locate(SampleId(id)).unwrap();
        let bytes = futures::executor::block_on(store.read(place.name, place.range)).unwrap();
        assert!(
            bytes.starts_with(&[0xff, 0xd8]) && bytes.ends_with(&[0xff, 0xd9]),
            "sample {id} is a whole JPEG"
        );
    }
}

#[test]
fn mnist_family() {
    for name in ["mnist", "fashion-mnist"] {
        let Some(folder) = external(name) else { continue };
        let train = catalog(&folder, None);
        assert_eq!((train.kind(), train.len(), train.gzip()), (SourceKind::Idx, 60_000, true));
        let Encoding::Raw(shape) = train.encoding() else { panic!("idx is raw") };
        assert_eq!((shape.width, shape.height, shape.bytes()), (28, 28, 784));
        assert_eq!(train.total_bytes().unwrap(), 60_000 * 784);
        if name == "fashion-mnist" {
            assert_eq!(train.class_counts().unwrap(), [6_000; 10]);
        }
        assert_eq!(catalog(&folder, Some("t10k-images-idx3-ubyte.gz")).len(), 10_000);
    }
}

#[test]
fn a_list_of_unpacked_pictures() {
    let Some(folder) = external("imagenet-sample") else { return };
    let unpacked = tempfile::tempdir().unwrap();
    let shard = std::fs::File::open(folder.join("images.tar")).unwrap();
    ::tar::Archive::new(shard).unpack(unpacked.path()).unwrap();
    std::fs::copy(folder.join("labels.csv"), unpacked.path().join("labels.csv")).unwrap();
    let listed = catalog(unpacked.path(), Some("labels.csv"));
    assert_eq!((listed.kind(), listed.len()), (SourceKind::List, 260));
    assert_eq!(listed.classes()[listed.labels().unwrap()[0] as usize], "tench");
    let packed = catalog(&folder, None);
    assert_eq!(packed.total_bytes().unwrap(), listed.total_bytes().unwrap());
    assert_eq!(packed.classes(), ["images"], "the tar alone knows no labels");
}

#[test]
fn a_tar_cut_at_every_place_never_gives_fewer_samples_silently() {
    let whole = tar(&[("a/1.jpg", &[1; 700]), ("a/1.cls", b"0"), ("a/2.jpg", &[2; 100]), ("a/2.cls", b"1")]);
    let end_mark = 512 + 1_024 + 1_024 + 1_024 + 1_024;
    for length in 1..whole.len() {
        let set = super::files(&[("a.tar", &whole[..length])]);
        let built = build(&super::memory(&set, None), &BuildOptions::default());
        assert_eq!(built.is_ok(), length >= end_mark + 512, "{length} bytes of {}", whole.len());
    }
}
