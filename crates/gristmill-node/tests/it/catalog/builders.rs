//! Every builder on generated data: labels, places, names and contents.

use super::{
    both, build, cifar, contents, files, gzip, idx_images, idx_labels, kind_of, local, memory, on_disk, tar,
};
use gristmill_core::SampleId;
use gristmill_node::Kind;
use gristmill_node::catalog::{self, BuildOptions, SourceKind, Step};
use gristmill_ops::{Encoding, RawImage};
use std::fs;
use std::ops::ControlFlow;

fn plain() -> BuildOptions {
    BuildOptions::default()
}

#[test]
fn class_folders() {
    let set = files(&[
        ("owl/b.jpg", b"bbb"),
        ("bee/x/c.PNG", b"c"),
        ("bee/d.Jpeg", b"dd"),
        ("bee/.hidden.jpg", b"no"),
        (".cache/a.jpg", b"no"),
        ("owl/e.webp", b"no"),
        ("top.jpg", b"no"),
        ("labels.csv", b"x"),
    ]);
    let catalog = both(&set, None, &plain());
    assert_eq!(catalog.kind(), SourceKind::Folder);
    assert_eq!(catalog.encoding(), Encoding::Sniffed);
    assert_eq!(catalog.classes(), ["bee", "owl"]);
    assert_eq!(catalog.labels().unwrap(), [0, 0, 1]);
    assert_eq!(catalog.class_counts().unwrap(), [2, 1]);
    assert_eq!(contents(&catalog, &set), [&b"dd"[..], b"c", b"bbb"]);
    assert_eq!((catalog.total_bytes().unwrap(), catalog.packed(), catalog.has_content()), (6, false, false));
    let notes = catalog.notes().join("\n");
    for words in ["1 pictures beside", "1 .webp files", "labels.csv was not used"] {
        assert!(notes.contains(words), "{notes}");
    }
}

#[test]
fn a_flat_folder_is_one_class() {
    let set = files(&[("b.jpg", b"bbb"), ("a.png", b"")]);
    let draft = build(&memory(&set, None), &plain()).unwrap();
    assert_eq!(draft.classes(), ["set"]);
    let notes = draft.notes().join("\n");
    assert!(notes.contains("one class") && notes.contains("1 pictures have 0 bytes"), "{notes}");
}

#[test]
fn an_empty_class_can_be_allowed() {
    let folder = on_disk(&files(&[("bee/a.jpg", b"a"), ("owl/readme.txt", b"")]));
    fs::create_dir(folder.path().join("ant")).unwrap();
    let options = BuildOptions { allow_empty_classes: true, ..plain() };
    let draft = build(&local(folder.path(), None), &options).unwrap();
    assert_eq!(draft.classes(), ["ant", "bee", "owl"]);
    assert_eq!(draft.into_catalog().unwrap().labels().unwrap(), [1]);
}

#[test]
fn lists() {
    let csv = b"path,class_index,class_name\nx/b.jpg,1,owl\na.jpg,0,bee\n";
    let json = b"{\"path\": \"a.jpg\", \"label\": \"owl\"}\n{\"path\": \"x/b.jpg\", \"label\": \"bee\"}\n";
    let set = files(&[
        ("sub/set.csv", csv),
        ("sub/set.jsonl", json),
        ("sub/x/b.jpg", b"bbb"),
        ("sub/a.jpg", b"a"),
        ("sub/not-listed.jpg", b"no"),
    ]);
    let catalog = both(&set, Some("sub/set.csv"), &plain());
    assert_eq!((catalog.kind(), catalog.classes().join(",").as_str()), (SourceKind::List, "bee,owl"));
    assert_eq!(catalog.labels().unwrap(), [1, 0]);
    assert_eq!(contents(&catalog, &set), [&b"bbb"[..], b"a"], "ids follow the lines");
    assert_eq!(catalog.side_files()[0].name, "sub/set.csv");
    let catalog = both(&set, Some("sub/set.jsonl"), &plain());
    assert_eq!(catalog.labels().unwrap(), [1, 0]);
    assert_eq!(contents(&catalog, &set), [&b"a"[..], b"bbb"]);
}

#[test]
fn tar_shards() {
    let long = format!("{}/0003", "long-folder-name".repeat(12));
    let first =
        tar(&[("0001.jpg", b"one"), ("0001.cls", b"2\n"), ("0002.cls", b"0"), ("0002.png", b"three")]);
    let second = tar(&[
        ("./0004.json", br#"{"label": 1, "caption": "x"}"#),
        ("./0004.jpeg", b"four"),
        (&format!("{long}.jpg"), &[7; 3_000]),
        (&format!("{long}.cls"), b"1"),
        ("readme.txt", b"hello"),
    ]);
    let set = files(&[("t-00.tar", &first), ("t-01.tar", &second), ("classes.txt", b"a\nb\nc\n")]);
    for object in [Some("t-{00..01}.tar"), None, Some("t-{00,01}.tar")] {
        let catalog = both(&set, object, &plain());
        assert_eq!((catalog.kind(), catalog.packed(), catalog.objects()), (SourceKind::Tar, true, 2));
        assert_eq!(catalog.classes(), ["a", "b", "c"]);
        assert_eq!(catalog.labels().unwrap(), [2, 0, 1, 1]);
        assert_eq!(contents(&catalog, &set), [&b"one"[..], b"three", b"four", &[7; 3_000]]);
        assert_eq!(catalog.locate(SampleId(2)).unwrap().name, "t-01.tar");
        assert!(catalog.notes()[0].contains("1 members are neither"), "{:?}", catalog.notes());
    }
    let reversed = both(&set, Some("t-{01,00}.tar"), &plain());
    assert_eq!(reversed.labels().unwrap(), [1, 1, 2, 0], "a list of shards keeps its order");
}

#[test]
fn tar_of_folders_takes_them_as_classes() {
    let shard = tar(&[("train/owl/1.JPEG", b"1"), ("train/bee/2.JPEG", b"22"), ("val/owl/3.JPEG", b"333")]);
    let set = files(&[("images.tar", &shard)]);
    let catalog = both(&set, None, &plain());
    assert_eq!(catalog.classes(), ["bee", "owl"]);
    assert_eq!(catalog.labels().unwrap(), [1, 0, 1]);
    let shard = tar(&[("1.jpg", b"1"), ("bee/2.jpg", b"22")]);
    let catalog = both(&files(&[("images.tar", &shard)]), None, &plain());
    assert_eq!((catalog.classes().join(","), catalog.labels().unwrap()), ("all".into(), &[0, 0][..]));
}

#[test]
fn pax_names_and_sizes_are_understood() {
    let mut builder = ::tar::Builder::new(Vec::new());
    let name = format!("{}.jpg", "p".repeat(300));
    builder.append_pax_extensions([("path", name.as_bytes()), ("size", b"5")]).unwrap();
    let mut header = ::tar::Header::new_ustar();
    header.set_path("short.txt").unwrap();
    header.set_size(5);
    header.set_cksum();
    builder.append(&header, &b"pixel"[..]).unwrap();
    let set = files(&[("a.tar", &builder.into_inner().unwrap())]);
    assert_eq!(contents(&both(&set, None, &plain()), &set), [b"pixel"]);
}

#[test]
fn idx_plain_and_gzip() {
    let (images, labels) = (idx_images(4), idx_labels(&[3, 0, 1, 3]));
    let plain_set = files(&[
        ("train-images-idx3-ubyte", &images),
        ("train-labels-idx1-ubyte", &labels),
        ("classes.txt", b"a\nb\nc\nd"),
    ]);
    let gzip_set = files(&[
        ("t10k-images-idx3-ubyte.gz", &gzip(&idx_images(1))),
        ("t10k-labels-idx1-ubyte.gz", &gzip(&idx_labels(&[1]))),
        ("train-images-idx3-ubyte.gz", &gzip(&images)),
        ("train-labels-idx1-ubyte.gz", &gzip(&labels)),
    ]);
    let pixels: Vec<Vec<u8>> = (0..4).map(|id| (id * 6..id * 6 + 6).collect()).collect();
    for (set, zipped) in [(&plain_set, false), (&gzip_set, true)] {
        let catalog = both(set, None, &plain());
        assert_eq!((catalog.kind(), catalog.gzip(), catalog.has_content()), (SourceKind::Idx, zipped, true));
        let shape = RawImage { width: 2, height: 3, channels: 1, planar: false };
        assert_eq!(catalog.encoding(), Encoding::Raw(shape));
        assert_eq!(catalog.labels().unwrap(), [3, 0, 1, 3]);
        assert_eq!(catalog.classes().join(""), if zipped { "0123" } else { "abcd" });
        assert_eq!(contents(&catalog, set), pixels);
        assert_eq!(catalog.object(0).unwrap().inflated_bytes, 16 + 24);
    }
    let catalog = both(&gzip_set, None, &plain());
    assert!(catalog.notes()[0].contains("\"train\""), "{:?}", catalog.notes());
    for object in ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"] {
        assert_eq!(both(&gzip_set, Some(object), &plain()).len(), 1);
    }
}

#[test]
fn cifar_10_and_100() {
    let set = files(&[
        ("data_batch_1.bin", &cifar(1, &[5, 0])),
        ("data_batch_2.bin", &cifar(1, &[9])),
        ("data_batch_10.bin", &cifar(1, &[1])),
        ("test_batch.bin", &cifar(1, &[2])),
        ("batches.meta.txt", b"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n"),
    ]);
    let catalog = both(&set, None, &plain());
    assert_eq!((catalog.kind(), catalog.objects(), catalog.has_content()), (SourceKind::Cifar, 3, true));
    assert_eq!(catalog.labels().unwrap(), [5, 0, 9, 1]);
    assert_eq!(catalog.classes()[9], "j");
    assert_eq!(contents(&catalog, &set), [5, 0, 9, 1].map(|label| vec![label; 3_072]));
    assert_eq!(both(&set, Some("test_batch.bin"), &plain()).labels().unwrap(), [2]);

    // More than one chunk of reading, so that records lie across the cut.
    let labels: Vec<u8> = (0..3_000_u32).map(|id| (id * 7 % 100) as u8).collect();
    let set = files(&[("train.bin", &cifar(2, &labels)), ("test.bin", &cifar(2, &[1]))]);
    let catalog = both(&set, None, &plain());
    assert_eq!((catalog.objects(), catalog.classes().len()), (1, 100));
    assert!(catalog.labels().unwrap().iter().zip(&labels).all(|(a, b)| *a == u32::from(*b)));
    assert_eq!(contents(&catalog, &set)[2_999], vec![labels[2_999]; 3_072]);
}

#[test]
fn kinds_are_found_and_can_be_said() {
    let shard = tar(&[("a/1.jpg", b"1")]);
    let mixed = files(&[("a.tar", &shard), ("bee/1.jpg", b"1"), ("list.csv", b"bee/1.jpg,0\n")]);
    let error = build(&memory(&mixed, None), &plain()).unwrap_err();
    assert!(error.to_string().contains("could be several things: tar, folder"), "{error}");
    for kind in [SourceKind::Tar, SourceKind::Folder, SourceKind::List] {
        let mut source = memory(&mixed, None);
        source.kind = Some(kind);
        assert_eq!(build(&source, &plain()).unwrap().kind(), kind);
    }
    assert_eq!(kind_of(&mixed, Some("a.tar")), SourceKind::Tar);
    assert_eq!(kind_of(&mixed, Some("list.csv")), SourceKind::List);
}

#[test]
fn the_digest_names_the_data() {
    let set = files(&[("bee/a.jpg", b"a"), ("owl/b.jpg", b"b")]);
    let base = build(&memory(&set, None), &plain()).unwrap().digest();
    let content = BuildOptions { content: true, ..plain() };
    let read = both(&set, None, &content).digest();
    assert_eq!(base.to_string().len(), 32);
    assert_ne!(base, read, "with contents it says more");
    for (other, same, same_read) in [
        (files(&[("bee/a.jpg", b"A"), ("owl/b.jpg", b"b")]), true, false),
        (files(&[("bee/a.jpg", b"aa"), ("owl/b.jpg", b"b")]), false, false),
        (files(&[("bee/c.jpg", b"a"), ("owl/b.jpg", b"b")]), false, false),
        (files(&[("bee/a.jpg", b"a"), ("owl/b.jpg", b"b"), ("owl/c.jpg", b"b")]), false, false),
        (files(&[("owl/b.jpg", b"b"), ("bee/a.jpg", b"a"), ("readme.md", b"")]), true, true),
    ] {
        assert_eq!(build(&memory(&other, None), &plain()).unwrap().digest() == base, same, "{other:?}");
        assert_eq!(build(&memory(&other, None), &content).unwrap().digest() == read, same_read, "{other:?}");
    }
}

#[test]
fn progress_is_told_and_can_stop_the_work() {
    let set: super::Files = (0..500).map(|n| (format!("bee/{n}.jpg"), vec![0; 10_000])).collect();
    let mut steps = Vec::new();
    let options = BuildOptions { content: true, ..plain() };
    catalog::build(&memory(&set, None), &options, &mut |progress| {
        steps.push((progress.step, progress.done));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(steps.contains(&(Step::List, 500)), "{steps:?}");
    assert!(steps.iter().any(|(step, done)| *step == Step::Hash && *done > 1_000_000), "{steps:?}");
    for stop_at in [Step::List, Step::Hash] {
        let error = catalog::build(&memory(&set, None), &options, &mut |progress| {
            if progress.step == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap_err();
        assert_eq!(error.kind(), Kind::Stopped);
    }
}

#[test]
fn building_inside_of_a_runtime_works_too() {
    let set = files(&[("bee/a.jpg", b"a")]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let draft = runtime.block_on(async { build(&memory(&set, None), &plain()) });
    assert_eq!(draft.unwrap().len(), 1);
}
