//! What users get wrong: each gets one sentence that says what and where, and no catalog is left behind.

use super::{cifar, files, gzip, idx_images, idx_labels, local, memory, on_disk, refusal, tar, told};
use gristmill_node::catalog::{Draft, SourceKind};
use gristmill_node::store::{LocalStore, ObjectInfo};
use gristmill_ops::Encoding;
use std::fs;

fn check(pairs: &[(&str, &[u8])], object: Option<&str>, words: &str) {
    let set = files(pairs);
    let folder = on_disk(&set);
    for source in [local(folder.path(), object), memory(&set, object)] {
        let message = refusal(&source);
        assert!(message.contains(words), "{message:?} should contain {words:?}");
    }
}

#[test]
fn folders() {
    let error = told(&LocalStore::new("/no/such/folder").unwrap_err());
    assert!(error.contains("/no/such/folder"), "{error}");
    check(&[], None, "there is nothing in");
    check(&[("readme.md", b"")], None, "is a data set that Gristmill knows; looked for class folders");
    check(&[("data_batch_1.bin.xz", b"")], None, "data_batch_1.bin.xz is packed; unpack it first");
    check(&[("set.csv", b"")], None, "to use the list set.csv, name it");
    check(&[("bee/a.jpg", b""), ("owl/a.txt", b"")], None, "/owl has no picture; remove it");
    check(&[("bee/a.webp", b"")], None, "is a data set that Gristmill knows");
}

#[test]
fn an_empty_class_folder_on_disk_is_named() {
    let folder = on_disk(&files(&[("bee/a.jpg", b"a")]));
    fs::create_dir(folder.path().join("owl")).unwrap();
    fs::create_dir(folder.path().join(".git")).unwrap();
    let message = refusal(&local(folder.path(), None));
    assert!(message.contains("/owl has no picture"), "{message}");
}

#[test]
fn names() {
    check(&[("a.tar", b"")], Some("b.tar"), "there is no file");
    check(&[("a-0.tar", b"")], Some("a-{0..2}.tar"), "a-1.tar (2 of 3 are missing)");
    check(&[("a-0.tar", b"")], Some("a-{0..2.tar"), "has a { without a }");
    check(&[("a.parquet", b"")], Some("a.parquet"), "cannot tell what");
}

#[test]
fn lists() {
    let a: (&str, &[u8]) = ("a.jpg", b"a");
    check(
        &[a, ("l.csv", b"path,label\na.jpg,0\nb.jpg,0\n")],
        Some("l.csv"),
        "l.csv line 3: there is no file b.jpg",
    );
    check(
        &[a, ("l.csv", b"a.jpg,0\na.jpg,0\n")],
        Some("l.csv"),
        "l.csv: line 2: a.jpg was already listed in line 1",
    );
    check(&[a, ("l.csv", b"../a.jpg,0\n")], Some("l.csv"), "line 1: \"../a.jpg\" leads out");
    check(&[a, ("l.csv", b"")], Some("l.csv"), "l.csv lists no samples");
    check(&[a, ("l.jsonl", b"[1]\n")], Some("l.jsonl"), "line 1: not a JSON object");
}

#[test]
fn tars() {
    let whole = tar(&[("bee/1.jpg", &[1; 2_000]), ("bee/2.jpg", &[2; 2_000])]);
    // Header, four blocks, header, then the data of the second member.
    check(&[("a.tar", &whole[..4_000])], None, "a.tar ends in the middle of member bee/2.jpg at byte 4000");
    check(
        &[("a.tar", &whole[..5_120])],
        None,
        "ends at byte 5120 after member bee/2.jpg without an end mark",
    );
    check(&[("a.tar", &whole[..300])], None, "is not a tar file");
    check(
        &[("a.tar", &[b'x'; 4_096])],
        None,
        "is not a tar file: the header at byte 0 does not fit its checksum",
    );
    let mut flipped = whole.clone();
    flipped[2_560 + 3] ^= 1;
    check(&[("a.tar", &flipped)], None, "is damaged: the header at byte 2560 does not fit its checksum");
    check(&[("a.tar", &tar(&[("a.txt", b"")]))], None, "has no picture in its 1 tar shards");
    check(
        &[("a.tar", &tar(&[("1.jpg", b"1"), ("1.cls", b"dog")]))],
        None,
        "1.cls holds \"dog\", which is not a label",
    );
    check(
        &[("a.tar", &tar(&[("1.jpg", b"1"), ("1.cls", b"1"), ("2.jpg", b"2")]))],
        None,
        "2.jpg has no label, but others have",
    );
    check(
        &[("a.tar", &tar(&[("1.a.jpg", b"1"), ("1.b.jpg", b"1")]))],
        None,
        "1.b.jpg belongs to the same sample as 1.a.jpg",
    );
    check(&[("a.tar", &tar(&[("1.jpg", b"1"), ("1.json", b"{")]))], None, "1.json is not readable as JSON");
    check(&[("a.tar.gz", b"")], None, "a.tar.gz is packed; unpack it first");
}

#[test]
fn a_tar_with_an_absurd_size_is_refused() {
    let mut header = ::tar::Header::new_gnu();
    header.set_path("1.jpg").unwrap();
    for size in [u64::MAX, u64::MAX / 2, 1 << 40] {
        header.set_size(size);
        header.set_cksum();
        let mut shard = header.as_bytes().to_vec();
        shard.extend([0; 2_048]);
        let message = refusal(&memory(&files(&[("a.tar", &shard)]), None));
        assert!(message.contains("1.jpg") || message.contains("no readable size"), "{message}");
    }
    header.set_entry_type(::tar::EntryType::GNULongName);
    header.set_size(1 << 30);
    header.set_cksum();
    let mut shard = header.as_bytes().to_vec();
    shard.extend(vec![0; 4 << 20]);
    refusal(&memory(&files(&[("a.tar", &shard)]), None));
}

#[test]
fn idx_files() {
    let (images, labels) = (idx_images(3), idx_labels(&[0, 1, 2]));
    let pair = |images: &[u8], labels: &[u8], words: &str| {
        check(&[("x-images-idx3-ubyte", images), ("x-labels-idx1-ubyte", labels)], None, words);
        let zipped = [("x-images-idx3-ubyte.gz", gzip(images)), ("x-labels-idx1-ubyte.gz", gzip(labels))];
        let set: super::Files = zipped.into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect();
        let message = refusal(&memory(&set, None));
        assert!(message.contains(words) || message.contains("more than the expected"), "{message}");
    };
    pair(&images, &idx_labels(&[0, 1]), "has 3 pictures, but ");
    pair(&images[..30], &labels, "x-images-idx3-ubyte");
    pair(&[&images[..], b"x"].concat(), &labels, "its header counts pictures for 34 bytes, but there are 35");
    pair(&images, &[&labels[..], b"x"].concat(), "its header counts labels for 11 bytes, but there are 12");
    pair(
        &idx_labels(&[0; 12]),
        &labels,
        "begins with 0x00000801, but idx pictures of bytes begin with 0x00000803",
    );
    pair(&images[..7], &labels, "not even a whole idx header");
    pair(&idx_images(0), &idx_labels(&[]), "gives 0 pictures");
    let mut huge = images.clone();
    huge[4..8].fill(0xff);
    pair(&huge, &labels, "its header gives 4294967295 pictures");
    check(&[("x-images-idx3-ubyte", &images)], None, "is alone: there is neither x-labels-idx1-ubyte nor");
    check(
        &[("x-images-idx3-ubyte", &images), ("x-labels-idx1-ubyte", &labels), ("classes.txt", b"a\nb")],
        None,
        "classes.txt: there are 2 class names, but 3 classes",
    );
    let whole = gzip(&images);
    for bad in [&whole[..whole.len() - 5], &[&whole[..], b"junk"].concat()] {
        check(
            &[("x-images-idx3-ubyte.gz", bad), ("x-labels-idx1-ubyte.gz", &gzip(&labels))],
            None,
            "not a whole gzip",
        );
    }
}

#[test]
fn cifar_files() {
    let batch = cifar(1, &[1, 2]);
    check(
        &[("data_batch_1.bin", &batch[..3_000])],
        None,
        "3000 bytes are not a whole number of CIFAR-10 records",
    );
    check(&[("data_batch_1.bin", b"")], None, "0 bytes are not a whole number");
    check(
        &[("train.bin", &batch)],
        None,
        "its length fits CIFAR-10, whose files are called data_batch_*.bin",
    );
    check(
        &[("data_batch_1.bin", &cifar(1, &[1, 77]))],
        None,
        "record 1 has label 77, but CIFAR-10 has 10 classes",
    );
}

#[test]
fn a_draft_that_is_unsound_is_never_written() {
    let folder = tempfile::tempdir().unwrap();
    let object = ObjectInfo { path: "a".into(), bytes: 10, version: 0 };
    let mut outside = Draft::of_ranges("memory:", SourceKind::Tar, Encoding::Sniffed);
    outside.set_classes(vec!["all".into()]);
    let number = outside.push_object(&object).unwrap();
    outside.push_range(number, 8, 3, 0).unwrap();
    let mut unlabelled = Draft::of_files("memory:", SourceKind::Folder, Encoding::Sniffed);
    unlabelled.push_file(&object, 0).unwrap();
    let empty = Draft::of_files("memory:", SourceKind::Folder, Encoding::Sniffed);
    for draft in [outside, unlabelled, empty] {
        assert!(draft.write(&folder.path().join("a.grist")).is_err());
        assert!(draft.into_catalog().is_err());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let mut draft = Draft::of_files("memory:", SourceKind::Folder, Encoding::Sniffed);
    let error = draft.push_file(&ObjectInfo { bytes: 1 << 32, ..object }, 0).unwrap_err();
    assert!(error.to_string().contains("more than the 4 GiB"), "{error}");
}
