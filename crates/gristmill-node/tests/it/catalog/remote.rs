//! A store that does not answer at once gives the same catalogs, with many requests in flight.

use super::{Files, build, files, memory, tar};
use bytes::Bytes;
use futures::future::BoxFuture;
use gristmill_node::Result;
use gristmill_node::catalog::{BuildOptions, Source};
use gristmill_node::store::{MemoryStore, ObjectInfo, Store};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that answers late and counts how many wait for an answer.
#[derive(Debug)]
struct Late {
    inner: MemoryStore,
    waiting: AtomicUsize,
    most: AtomicUsize,
    stats: AtomicUsize,
}

impl Late {
    fn new(files: &Files) -> Arc<Late> {
        let inner = MemoryStore::new(files.clone());
        Arc::new(Late { inner, waiting: 0.into(), most: 0.into(), stats: 0.into() })
    }

    async fn wait(&self) {
        let waiting = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(waiting, Ordering::Relaxed);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store for Late {
    fn url(&self) -> String {
        "late:".into()
    }

    fn read<'a>(&'a self, object: &'a str, range: Range<u64>) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(async move {
            self.wait().await;
            self.inner.read(object, range).await
        })
    }

    fn stat<'a>(&'a self, object: &'a str) -> BoxFuture<'a, Result<ObjectInfo>> {
        Box::pin(async move {
            self.wait().await;
            self.stats.fetch_add(1, Ordering::Relaxed);
            self.inner.stat(object).await
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        visit: &'a mut (dyn FnMut(ObjectInfo) -> Result<()> + Send),
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.list(prefix, visit)
    }

    fn immediate(&self) -> bool {
        false
    }

    fn retries(&self) -> u64 {
        self.inner.retries()
    }

    fn faults(&self) -> u64 {
        self.inner.faults()
    }
}

/// Builds from the late store; gives how many requests were in flight and how many objects were asked for.
fn same(files: &Files, object: Option<&str>, content: bool) -> (usize, usize) {
    let options = BuildOptions { content, ..BuildOptions::default() };
    let late = Late::new(files);
    let source = Source { store: late.clone(), ..memory(files, object) };
    let digest = build(&source, &options).unwrap().digest();
    assert_eq!(digest, build(&memory(files, object), &options).unwrap().digest());
    (late.most.load(Ordering::Relaxed), late.stats.load(Ordering::Relaxed))
}

#[test]
fn many_requests_are_in_flight() {
    let shards: Files =
        (0..40).map(|n| (format!("a-{n:02}.tar"), tar(&[("1.jpg", &[n; 9]), ("1.cls", b"0")]))).collect();
    assert!(same(&shards, Some("a-{00..39}.tar"), false).0 > 20);
    assert!(same(&shards, None, true).0 > 20);
    let list = (0..200).map(|n| format!("{n}.jpg,0\n")).collect::<Vec<_>>().concat();
    let mut set = files(&[("l.csv", list.as_bytes())]);
    set.extend((0..200).map(|n| (format!("{n}.jpg"), vec![0; n])));
    let (most, stats) = same(&set, Some("l.csv"), false);
    assert!(most > 50 && stats >= 200, "{most} in flight, {stats} asked for");
}

#[test]
fn a_long_list_is_looked_up_in_one_listing() {
    let list = (0..1_500).map(|n| format!("x/{n}.jpg,{}\n", n % 3)).collect::<Vec<_>>().concat();
    let mut set = files(&[("sub/l.csv", list.as_bytes())]);
    set.extend((0..1_500).map(|n| (format!("sub/x/{n}.jpg"), vec![0; 1])));
    let (_, stats) = same(&set, Some("sub/l.csv"), false);
    assert!(stats < 10, "{stats} objects were asked for one by one");
}
