//! The file: against a naive model, damaged in every way, replaced while open.

use super::{both, build, cifar, files, gzip, idx_images, idx_labels, memory, tar};
use gristmill_core::SampleId;
use gristmill_node::Kind;
use gristmill_node::catalog::{BuildOptions, Catalog, Draft, SourceKind, VERSION};
use gristmill_node::store::ObjectInfo;
use gristmill_ops::Encoding;
use proptest::prelude::*;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Everything a catalog can be asked, as text.
fn read_all(path: &Path) -> gristmill_node::Result<String> {
    let catalog = Catalog::open(path)?;
    let mut all = format!(
        "{} {} {:?} {:?} {:?} {:?} {} {} {:?} {:?}",
        catalog.digest(),
        catalog.source(),
        catalog.kind(),
        catalog.classes(),
        catalog.encoding(),
        catalog.notes(),
        catalog.built_by(),
        catalog.built_unix_s(),
        catalog.labels()?,
        catalog.sizes()?,
    );
    for id in 0..catalog.len() {
        write!(all, "{:?} {}", catalog.locate(SampleId(id))?, catalog.label(SampleId(id))?).unwrap();
    }
    for object in 0..catalog.objects() {
        write!(all, "{:?}", catalog.object(object)?).unwrap();
    }
    Ok(all)
}

/// Small catalogs of every layout.
fn small() -> Vec<Draft> {
    let content = BuildOptions { content: true, ..BuildOptions::default() };
    let folder = files(&[("bee/a.jpg", b"a"), ("owl/b.jpg", b"bb"), ("owl/c.jpg", b"ccc")]);
    let shards = files(&[("a.tar", &tar(&[("1.jpg", b"1"), ("1.cls", b"3")]))]);
    let idx = files(&[
        ("train-images-idx3-ubyte.gz", &gzip(&idx_images(3))),
        ("train-labels-idx1-ubyte.gz", &gzip(&idx_labels(&[0, 1, 0]))),
    ]);
    let bins = files(&[("data_batch_1.bin", &cifar(1, &[1, 2]))]);
    let plain = BuildOptions::default();
    [(folder.clone(), &plain), (folder, &content), (shards, &plain), (idx, &plain), (bins, &plain)]
        .map(|(files, options)| build(&memory(&files, None), options).unwrap())
        .into()
}

#[test]
fn every_flipped_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grist");
    for draft in small() {
        draft.write(&path).unwrap();
        let good = fs::read(&path).unwrap();
        let before = read_all(&path).unwrap();
        for at in 0..good.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                fs::write(&path, &bad).unwrap();
                // Every byte is under a checksum, padding too, so nothing at all slips through.
                let error = read_all(&path).expect_err(&format!("byte {at} of {}", good.len()));
                assert!(matches!(error.kind(), Kind::Corrupt | Kind::Config), "{error}");
                assert!(error.remedy().unwrap().contains("gristmill catalog build"), "{error}");
            }
        }
        fs::write(&path, &good).unwrap();
        assert_eq!(read_all(&path).unwrap(), before);
    }
}

#[test]
fn every_cut_and_every_extension_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grist");
    for draft in small() {
        draft.write(&path).unwrap();
        let good = fs::read(&path).unwrap();
        for length in 0..good.len() {
            fs::write(&path, &good[..length]).unwrap();
            assert_eq!(Catalog::open(&path).unwrap_err().kind(), Kind::Corrupt, "{length} bytes");
        }
        fs::write(&path, [&good[..], b"more"].concat()).unwrap();
        assert_eq!(Catalog::open(&path).unwrap_err().kind(), Kind::Corrupt);
    }
}

#[test]
fn a_flipped_bit_in_a_later_block_is_found_at_first_use_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grist");
    let mut draft = Draft::of_files("memory:", SourceKind::Folder, Encoding::Sniffed);
    draft.set_classes(vec!["all".into()]);
    for id in 0..40_000 {
        draft.push_file(&ObjectInfo { path: format!("all/{id:06}.jpg"), bytes: id, version: 7 }, 0).unwrap();
    }
    draft.write(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // The last name lies at the very end, in the last block.
    let last = bytes.len() - 3;
    bytes[last] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let catalog = Catalog::open(&path).unwrap();
    assert_eq!(catalog.labels().unwrap().len(), 40_000);
    assert_eq!(catalog.locate(SampleId(0)).unwrap().name, "all/000000.jpg");
    for _ in 0..2 {
        let error = catalog.locate(SampleId(39_999)).unwrap_err();
        assert!(error.to_string().contains("do not fit their checksum"), "{error}");
    }
    assert_eq!(catalog.verify().unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn another_version_names_both_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grist");
    small()[0].write(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[8..12].copy_from_slice(&9_u32.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let error = Catalog::open(&path).unwrap_err();
    let words = format!("has format version 9, but this Gristmill reads version {VERSION}");
    assert!(error.to_string().contains(&words), "{error}");
    assert_eq!(error.remedy(), Some("make it again with `gristmill catalog build`"));
}

#[test]
fn what_is_no_catalog_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grist");
    for bytes in [&b""[..], b"GRISTCAT", &[0xff; 4_096]] {
        fs::write(&path, bytes).unwrap();
        assert!(Catalog::open(&path).unwrap_err().to_string().contains("is not a catalog"));
    }
    assert_eq!(Catalog::open(folder.path()).unwrap_err().kind(), Kind::Config);
    assert_eq!(Catalog::open(&folder.path().join("no")).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn an_open_catalog_survives_its_replacement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grist");
    let drafts = small();
    drafts[0].write(&path).unwrap();
    let old = Catalog::open(&path).unwrap();
    drafts[2].write(&path).unwrap();
    assert_eq!(old.locate(SampleId(2)).unwrap().name, "owl/c.jpg");
    assert_eq!(Catalog::open(&path).unwrap().locate(SampleId(0)).unwrap().name, "a.tar");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn ids_outside_are_errors() {
    let catalog = both(&files(&[("bee/a.jpg", b"a")]), None, &BuildOptions::default());
    for error in [
        catalog.locate(SampleId(1)).unwrap_err(),
        catalog.label(SampleId(u32::MAX)).unwrap_err(),
        catalog.object(1).unwrap_err(),
    ] {
        assert!(error.to_string().contains("so there is no"), "{error}");
    }
}

/// Objects (name, bytes, version) and samples (object, start, bytes, label) to choose from.
type Model = (Vec<(String, u64, u64)>, Vec<(u32, u64, u32, u32)>);

fn model() -> impl Strategy<Value = Model> {
    let objects = prop::collection::vec(("[a-zé/]{0,20}", 0..u64::from(u32::MAX), any::<u64>()), 1..40);
    let samples = prop::collection::vec((any::<u32>(), any::<u64>(), any::<u32>(), 0..5_u32), 1..120);
    (objects, samples)
}

proptest! {
    // Each case writes and syncs a file.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What was pushed comes back, whole or packed, from a file.
    #[test]
    fn the_file_is_the_model((objects, samples) in model(), packed: bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.grist");
        let info = |(name, bytes, version): &(String, u64, u64)| ObjectInfo {
            path: name.clone(), bytes: *bytes, version: *version,
        };
        let new = if packed { Draft::of_ranges } else { Draft::of_files };
        let mut draft = new("s3://b", SourceKind::Tar, Encoding::Sniffed);
        draft.set_classes((0..5).map(|n| format!("class {n}")).collect());
        let mut expect = Vec::new();
        if packed {
            for object in &objects {
                draft.push_object(&info(object)).unwrap();
            }
            for &(object, start, bytes, label) in &samples {
                let object = object % objects.len() as u32;
                let inside = objects[object as usize].1;
                let start = start % (inside + 1);
                let bytes = u64::from(bytes) % (inside - start + 1);
                draft.push_range(object, start, bytes, label).unwrap();
                expect.push((object, start, bytes, label));
            }
        } else {
            for (at, object) in objects.iter().enumerate() {
                let label = samples[at % samples.len()].3;
                draft.push_file(&info(object), label).unwrap();
                expect.push((at as u32, 0, object.1, label));
            }
        }
        let digest = draft.digest();
        draft.write(&path).unwrap();
        let catalog = Catalog::open(&path).unwrap();
        prop_assert_eq!(catalog.digest(), digest);
        prop_assert_eq!(catalog.file_bytes(), fs::metadata(&path).unwrap().len());
        prop_assert_eq!(catalog.len() as usize, expect.len());
        prop_assert_eq!(catalog.total_bytes().unwrap(), expect.iter().map(|sample| sample.2).sum::<u64>());
        for (id, &(object, start, bytes, label)) in expect.iter().enumerate() {
            let place = catalog.locate(SampleId(id as u32)).unwrap();
            prop_assert_eq!((place.object, place.name), (object, objects[object as usize].0.as_str()));
            prop_assert_eq!(place.range, start..start + bytes);
            prop_assert_eq!((catalog.labels().unwrap()[id], catalog.label(SampleId(id as u32)).unwrap()), (label, label));
            prop_assert_eq!(u64::from(catalog.sizes().unwrap()[id]), bytes);
        }
        for (at, object) in objects.iter().enumerate() {
            let facts = catalog.object(at as u32).unwrap();
            prop_assert_eq!((facts.name, facts.bytes, facts.version), (object.0.as_str(), object.1, object.2));
        }
    }
}
