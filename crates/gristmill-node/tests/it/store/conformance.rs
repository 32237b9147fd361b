//! What every store and every wrapper must do, whatever it is made of.
//!
//! The suite reads a fixed set of objects, which each test puts into its own kind of store first.

use futures::StreamExt;
use gristmill_core::rng::mix;
use gristmill_node::Kind;
use gristmill_node::store::{ObjectInfo, Store};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

const LARGE: &str = "large.bin";

/// Names that somebody, somewhere, encodes wrongly.
const ODD: [&str; 12] = [
    "odd/space in name",
    "odd/50%",
    "odd/a%20b%2Fc",
    "odd/plus+plus",
    "odd/hash#1",
    "odd/question?mark=1",
    "odd/ünï/日本語.bin",
    "odd/&=;@!$,:'()*",
    "odd/~[]{}^`|<>\"",
    "odd/.hidden",
    "odd/..dots..",
    "odd/back\\slash",
];

/// Objects with contents that differ everywhere, so that a wrong range shows.
pub(super) fn objects() -> BTreeMap<String, Vec<u8>> {
    let mut sizes =
        vec![("a/x", 1_000), ("a/b/y", 77), ("ab/x", 5), ("a.txt", 1), ("empty", 0), (LARGE, 1_000_000)];
    sizes.extend(ODD.map(|name| (name, 300)));
    let content = |seed: u64, size: u64| (0..size).map(|at| mix(at ^ (seed << 40)) as u8).collect();
    let objects = sizes.into_iter().zip(1..);
    objects.map(|((name, size), seed)| (name.to_string(), content(seed, size))).collect()
}

/// Writes the objects as files.
pub(super) fn write_objects(root: &Path) {
    for (name, bytes) in objects() {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// What a server may be excused from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Excused {
    /// Nothing.
    Nothing,
    /// Listings: a plain web server has none.
    Listings,
    /// What S3 does and the test server on files does not: no object where a folder is (it answers 500), and the
    /// same entity tag in listings as in single answers (it leaves it out of listings).
    S3OnFiles,
}

/// Runs the whole suite on a store that holds [`objects`] and nothing else.
pub(super) async fn check(store: &dyn Store, excused: Excused) {
    let objects = objects();
    reads(store, &objects).await;
    wrong_reads(store, excused).await;
    stats(store, &objects).await;
    many_at_once(store, &objects).await;
    if excused != Excused::Listings {
        listings(store, &objects, excused).await;
    }
}

async fn reads(store: &dyn Store, objects: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in objects {
        let size = bytes.len() as u64;
        for range in
            [0..size, 0..0, size..size, size / 3..size / 2, size.saturating_sub(1)..size, 0..size.min(1)]
        {
            let got =
                store.read(name, range.clone()).await.unwrap_or_else(|e| panic!("{name} {range:?}: {e}"));
            assert!(got == bytes[range.start as usize..range.end as usize], "{name} {range:?}");
        }
    }
}

async fn wrong_reads(store: &dyn Store, excused: Excused) {
    let kind = async |name: &str, range: Range<u64>| {
        let error = store.read(name, range.clone()).await.err();
        let error = error.unwrap_or_else(|| panic!("{name:?} {range:?} was read"));
        assert!(error.to_string().contains(name.trim_matches('\0')), "{error}");
        error.kind()
    };
    #[expect(clippy::reversed_empty_ranges, reason = "a damaged catalog can hold one")]
    let outside = [0..1_001, 999..1_001, 1_000..1_001, 5_000..5_001, 1_001..1_001, 0..u64::MAX, 9..3];
    for range in outside {
        assert_eq!(kind("a/x", range.clone()).await, Kind::Corrupt, "{range:?}");
    }
    assert_eq!(kind("empty", 0..1).await, Kind::Corrupt);
    for missing in ["missing", "a/missing", "missing/x", "a/x/y", "a"] {
        if missing == "a" && excused == Excused::S3OnFiles {
            continue;
        }
        assert_eq!(kind(missing, 0..1).await, Kind::NotFound, "{missing}");
        assert_eq!(kind(missing, 0..0).await, Kind::NotFound, "{missing}");
        assert_eq!(store.stat(missing).await.unwrap_err().kind(), Kind::NotFound, "{missing}");
    }
    for wrong in ["", "..", "../a/x", "a/../a/x", "./a/x", "/a/x", "a//x", "a/x/", "a\0"] {
        assert_eq!(store.read(wrong, 0..1).await.unwrap_err().kind(), Kind::Config, "{wrong:?}");
        assert_eq!(store.stat(wrong).await.unwrap_err().kind(), Kind::Config, "{wrong:?}");
    }
}

async fn stats(store: &dyn Store, objects: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in objects {
        let info = store.stat(name).await.unwrap();
        assert_eq!((&info.path, info.bytes), (name, bytes.len() as u64));
        assert_eq!(info, store.stat(name).await.unwrap(), "what did not change keeps its version");
    }
}

async fn many_at_once(store: &dyn Store, objects: &BTreeMap<String, Vec<u8>>) {
    let large = &objects[LARGE];
    let range = |read: u64| {
        let start = mix(read) % 900_000;
        start..start + mix(start) % 100_000
    };
    let reads =
        futures::stream::iter(0..100).map(async |read| (range(read), store.read(LARGE, range(read)).await));
    let mut reads = reads.buffer_unordered(50);
    while let Some((range, got)) = reads.next().await {
        assert!(got.unwrap() == large[range.start as usize..range.end as usize], "{range:?}");
    }
}

async fn listings(store: &dyn Store, objects: &BTreeMap<String, Vec<u8>>, excused: Excused) {
    for prefix in
        ["", "a", "a/b", "odd", "odd/ünï", "ab", "empty", "a.txt", "missing", "missing/deep", "o", "odd/50%"]
    {
        let got = list(store, prefix).await;
        let folder = format!("{prefix}/");
        let want = objects.iter().filter(|(name, _)| prefix.is_empty() || name.starts_with(&folder));
        let want: Vec<(String, u64)> = want.map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect();
        let got: Vec<(String, u64)> = got.into_iter().map(|info| (info.path, info.bytes)).collect();
        assert_eq!(got, want, "{prefix:?}");
    }
    let listed = if excused == Excused::S3OnFiles { Vec::new() } else { list(store, "a").await };
    for info in &listed {
        assert_eq!(store.stat(&info.path).await.unwrap(), *info, "a listing and a single answer agree");
    }
    for wrong in ["..", "a/", "/a", "a//b"] {
        let error = store.list(wrong, &mut |_| Ok(())).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Config, "{wrong:?}");
    }
    let mut seen = 0;
    let mut stop = |_| {
        seen += 1;
        if seen == 2 { Err(gristmill_node::Error::new(Kind::Stopped, "enough")) } else { Ok(()) }
    };
    assert_eq!(store.list("", &mut stop).await.unwrap_err().kind(), Kind::Stopped);
    assert_eq!(seen, 2, "nothing is shown after an error");
}

async fn list(store: &dyn Store, prefix: &str) -> Vec<ObjectInfo> {
    let mut infos = Vec::new();
    let mut visit = |info| {
        infos.push(info);
        Ok(())
    };
    store.list(prefix, &mut visit).await.unwrap_or_else(|e| panic!("{prefix}: {e}"));
    infos.sort_by(|a, b| a.path.cmp(&b.path));
    infos
}
