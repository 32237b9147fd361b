//! `check` finds what changed, vanished and appeared, and nothing else.

use super::{build, cifar, files, gzip, idx_images, idx_labels, local, memory, on_disk, tar};
use gristmill_node::Kind;
use gristmill_node::catalog::{BuildOptions, CheckOptions, Findings, Found, check};
use gristmill_node::store::{LocalStore, MemoryStore};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

const CONTENT: CheckOptions = CheckOptions { content: true };

fn names(found: &Found) -> Vec<&str> {
    assert!(found.count >= found.first.len() as u64);
    found.first.iter().map(|finding| finding.name.as_str()).collect()
}

fn compare(folder: &Path, object: Option<&str>, content: bool, change: impl FnOnce()) -> Findings {
    let options = BuildOptions { content, ..BuildOptions::default() };
    let catalog = build(&local(folder, object), &options).unwrap().into_catalog().unwrap();
    let store = LocalStore::new(folder).unwrap();
    let run =
        || check(&catalog, &store, &CheckOptions { content }, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(run().is_clean(), "{:?}", run());
    change();
    run()
}

#[test]
fn a_folder_that_changes() {
    for content in [false, true] {
        let set =
            files(&[("bee/a.jpg", b"a"), ("bee/b.jpg", b"b"), ("owl/c.jpg", b"c"), ("owl/d.jpg", b"d")]);
        let folder = on_disk(&set);
        let at = |name: &str| folder.path().join(name);
        let found = compare(folder.path(), None, content, || {
            fs::write(at("bee/a.jpg"), b"longer").unwrap();
            fs::write(at("bee/b.jpg"), b"B").unwrap();
            fs::File::open(at("bee/b.jpg")).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            fs::remove_file(at("owl/c.jpg")).unwrap();
            fs::write(at("owl/e.jpg"), b"e").unwrap();
            fs::write(at("owl/readme.txt"), b"e").unwrap();
            fs::create_dir(at("ant")).unwrap();
            fs::write(at("ant/f.png"), b"f").unwrap();
        });
        assert_eq!(names(&found.changed), ["bee/a.jpg", "bee/b.jpg"]);
        assert_eq!(names(&found.vanished), ["owl/c.jpg"]);
        assert_eq!(names(&found.appeared), ["ant/f.png", "owl/e.jpg"]);
        assert_eq!((found.objects, found.contents), (4, if content { 2 } else { 0 }));
        assert_eq!(found.changed.first[0].detail, "6 bytes, was 1");
    }
}

#[test]
fn a_new_version_with_the_same_content_is_clean_when_contents_are_read() {
    let folder = on_disk(&files(&[("bee/a.jpg", b"a")]));
    let touch = || {
        let file = fs::File::open(folder.path().join("bee/a.jpg")).unwrap();
        file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(9)).unwrap();
    };
    assert_eq!(compare(folder.path(), None, false, touch).changed.count, 1);
    let touch = || {
        fs::File::open(folder.path().join("bee/a.jpg")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    };
    assert!(compare(folder.path(), None, true, touch).is_clean());
}

#[test]
fn shards_pairs_batches_and_lists() {
    let shard = tar(&[("1.jpg", b"1"), ("1.cls", b"0")]);
    let folder = on_disk(&files(&[("a-0.tar", &shard)]));
    let add = || fs::write(folder.path().join("a-1.tar"), &shard).unwrap();
    assert_eq!(names(&compare(folder.path(), None, false, add).appeared), ["a-1.tar"]);
    let found = compare(folder.path(), Some("a-{0..1}.tar"), false, || {
        fs::write(folder.path().join("a-2.tar"), &shard).unwrap();
        fs::remove_file(folder.path().join("a-0.tar")).unwrap();
    });
    assert_eq!((names(&found.vanished), found.appeared.count), (vec!["a-0.tar"], 0));

    let folder = on_disk(&files(&[
        ("x-images-idx3-ubyte.gz", &gzip(&idx_images(2))),
        ("x-labels-idx1-ubyte.gz", &gzip(&idx_labels(&[0, 1]))),
    ]));
    let labels = folder.path().join("x-labels-idx1-ubyte.gz");
    let swap = || fs::write(&labels, gzip(&idx_labels(&[1, 0]))).unwrap();
    assert_eq!(names(&compare(folder.path(), None, true, swap).changed), ["x-labels-idx1-ubyte.gz"]);

    let folder = on_disk(&files(&[("data_batch_1.bin", &cifar(1, &[0]))]));
    let add = || fs::write(folder.path().join("data_batch_2.bin"), cifar(1, &[1])).unwrap();
    assert_eq!(names(&compare(folder.path(), None, false, add).appeared), ["data_batch_2.bin"]);

    let folder = on_disk(&files(&[("l.csv", b"a.jpg,0\n"), ("a.jpg", b"a")]));
    let found = compare(folder.path(), Some("l.csv"), false, || {
        fs::write(folder.path().join("l.csv"), b"a.jpg,0\nb.jpg,1\n").unwrap();
    });
    assert_eq!((names(&found.changed), found.appeared.count), (vec!["l.csv"], 0));
}

#[test]
fn everything_gone_is_counted_and_bounded() {
    let set: super::Files = (0..1_500).map(|n| (format!("bee/{n:04}.jpg"), vec![1])).collect();
    let catalog = build(&memory(&set, None), &BuildOptions::default()).unwrap().into_catalog().unwrap();
    let none = MemoryStore::new([("readme.md", "x")]);
    let go = |options| check(&catalog, &none, &options, &mut |_| ControlFlow::Continue(()));
    let found = go(CheckOptions::default()).unwrap();
    assert_eq!((found.vanished.count, found.vanished.first.len()), (1_500, 1_000));
    assert!(go(CONTENT).unwrap_err().to_string().contains("no content hashes"));
    let error =
        check(&catalog, &none, &CheckOptions::default(), &mut |_| ControlFlow::Break(())).unwrap_err();
    assert_eq!(error.kind(), Kind::Stopped);
}
