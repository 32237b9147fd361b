//! A node between a loader and its store: what is served is right, is read once, stays within its limits, and losing
//! any part of it changes nothing but the time.

use crate::serve::{content, with_latency};
use bytes::Bytes;
use futures::executor::block_on;
use gristmill_core::SampleId;
use gristmill_core::cache::Policy;
use gristmill_core::plan::Shape;
use gristmill_core::select::Selection;
use gristmill_node::access::{Access, Embedded};
use gristmill_node::catalog::{Catalog, Draft, SourceKind};
use gristmill_node::client::ClientOptions;
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::disk::DiskOptions;
use gristmill_node::loader::Loader;
use gristmill_node::node::{Ask, Node, NodeOptions, Standing, Tier};
use gristmill_node::open;
use gristmill_node::peers::Peers;
use gristmill_node::serve::{Hosted, ServeOptions, Server};
use gristmill_node::shared::Shared;
use gristmill_node::store::{MemoryStore, ObjectInfo, Store};
use gristmill_ops::Encoding;
use std::sync::Arc;

const SAMPLES: u32 = 300;
const BYTES: usize = 1_000;

fn hot(id: u32) -> Ask {
    Ask { id: SampleId(id), cold: false }
}

fn catalog(samples: u32) -> (Arc<Catalog>, Arc<dyn Store>) {
    let mut draft = Draft::of_files("memory:", SourceKind::Folder, Encoding::Sniffed);
    draft.set_classes(vec!["all".into()]);
    let mut objects = Vec::new();
    for id in 0..samples {
        let path = format!("all/{id:05}");
        draft.push_file(&ObjectInfo { path: path.clone(), bytes: BYTES as u64, version: 1 }, 0).unwrap();
        objects.push((path, content(id, BYTES)));
    }
    (Arc::new(draft.into_catalog().unwrap()), Arc::new(MemoryStore::new(objects)))
}

fn set(latency_ms: u64) -> Arc<DataSet> {
    let (catalog, store) = catalog(SAMPLES);
    Arc::new(DataSet::new(catalog, with_latency(store, latency_ms), 0, &|| false).unwrap())
}

fn options(policy: Policy, share: f64) -> NodeOptions {
    let total = f64::from(SAMPLES) * (BYTES as f64 + 128.0);
    NodeOptions { prefetch_bytes_max: 0, ..NodeOptions::new(policy, (total * share) as u64) }
}

fn loader(set: &Arc<DataSet>, selection: &str, access: Option<Arc<dyn Access>>) -> Loader {
    let mut options = Config::default().settings().loader();
    options.shape = Shape::single(32);
    options.threads = 2;
    options.selection.selection = Selection::named(selection).unwrap();
    Loader::new(Arc::clone(set), None, options).unwrap().with_access(access)
}

/// The ids and bytes of some epochs, in order.
fn trained(loader: &Loader, epochs: u64) -> Vec<(u32, Bytes)> {
    let mut all = Vec::new();
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch, 0).unwrap() {
            let batch = batch.unwrap();
            let gristmill_node::loader::Data::Raw(raw) = &batch.data else { panic!("no recipe, no tensors") };
            all.extend(batch.ids.iter().copied().zip(raw.iter().cloned()));
        }
    }
    all
}

#[test]
fn every_policy_serves_the_same_samples_and_keeps_its_limit() {
    for latency_ms in [0, 1] {
        let set = set(latency_ms);
        let plain = trained(&loader(&set, "uniform", None), 3);
        for (name, policy) in Policy::NAMES {
            let node = Arc::new(Node::new(set.clone(), options(policy, 0.3)).unwrap());
            let access = Arc::new(Embedded::join(node.clone(), "test").unwrap());
            let cached = loader(&set, "uniform", Some(access));
            let mut seen = trained(&cached, 3);
            let mut wanted = plain.clone();
            if policy == Policy::Quiver {
                // It reads in an order of its own: the same samples in every epoch.
                seen.chunks_mut(SAMPLES as usize).for_each(<[_]>::sort_unstable);
                wanted.chunks_mut(SAMPLES as usize).for_each(<[_]>::sort_unstable);
            }
            assert!(seen == wanted, "{name} changes what is trained on");
            let report = node.report();
            assert!(report.memory_bytes <= report.memory_bytes_max, "{name}");
            assert_eq!(report.served.iter().sum::<u64>(), u64::from(3 * SAMPLES), "{name}");
            if matches!(policy, Policy::Static | Policy::Foresight | Policy::Score) {
                assert!(report.served[0] > u64::from(2 * SAMPLES / 4), "{name} hits: {:?}", report.served);
            }
        }
    }
}

#[test]
fn who_asks_at_the_same_time_shares_one_read() {
    let node = Arc::new(Node::new(set(30), options(Policy::Lru, 1.0)).unwrap());
    let job = node.join("all").unwrap();
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let node = node.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(node.fetch_one(job, hot(7))).unwrap()
            })
        })
        .collect();
    for thread in threads {
        let served = thread.join().unwrap();
        assert_eq!((served.id, served.bytes), (SampleId(7), content(7, BYTES)));
    }
    let report = node.report();
    assert_eq!((report.store_reads, report.shared_reads), (1, 7));
    assert_eq!(block_on(node.fetch_one(job, hot(7))).unwrap().tier, Tier::Memory);
    let twice = block_on(node.fetch(job, &[hot(7), hot(7)]));
    assert!(twice.iter().all(|one| one.as_ref().is_ok_and(|served| served.tier == Tier::Memory)));
}

#[test]
fn the_disk_is_warm_after_a_restart_and_damage_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let disk = DiskOptions { folder: folder.path().into(), bytes_max: 4 << 20, queue_bytes_max: 1 << 20 };
    let with_disk = NodeOptions { disk: Some(disk), ..options(Policy::Foresight, 0.1) };
    let set = set(0);
    let plain = trained(&loader(&set, "uniform", None), 1);
    let run = |expect: &str| {
        let node = Arc::new(Node::new(set.clone(), with_disk.clone()).unwrap());
        let access = Arc::new(Embedded::join(node.clone(), "test").unwrap());
        assert!(trained(&loader(&set, "uniform", Some(access)), 1) == plain, "{expect}");
        node.report()
    };
    let cold = run("the first run reads everything");
    assert_eq!(cold.store_reads, u64::from(SAMPLES));
    let warm = run("the second one nothing");
    assert_eq!((warm.store_reads, warm.served[1]), (0, u64::from(SAMPLES)));
    for entry in walk(folder.path()).filter(|path| path.extension().is_some_and(|e| e == "seg")) {
        let mut bytes = std::fs::read(&entry).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        std::fs::write(&entry, bytes).unwrap();
    }
    let damaged = run("damage is read from the store instead");
    assert!(damaged.store_reads > 0 && damaged.store_reads < u64::from(SAMPLES), "{damaged:?}");
}

fn walk(folder: &std::path::Path) -> impl Iterator<Item = std::path::PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.into_iter()
}

#[test]
fn cold_samples_stand_in_for_cold_ones_with_their_own_id() {
    let set = set(1);
    let node = Arc::new(
        Node::new(
            set.clone(),
            NodeOptions { stand_ins: true, hot_share: 0.4, ..options(Policy::Score, 0.5) },
        )
        .unwrap(),
    );
    let job = node.join("test").unwrap();
    let cold: Vec<u32> = (0..150).collect();
    let score = |id: u32| if id < 150 { 0.1 } else { 1.0 };
    let standings: Vec<Standing> =
        (0..SAMPLES).map(|id| Standing { id: SampleId(id), score: score(id), wanted: 1.0 }).collect();
    node.stand(job, &standings).unwrap();
    node.announce(job, 6, false, (0..250).collect()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut stood_in = 0;
    let mut seen = std::collections::HashSet::new();
    for &id in &cold[..70] {
        std::thread::sleep(std::time::Duration::from_micros(300));
        let served = runtime.block_on(node.fetch_one(job, Ask { id: SampleId(id), cold: true })).unwrap();
        assert_eq!(served.bytes, content(served.id.0, BYTES), "a stand-in bears its own id");
        assert!(served.id.0 < 150, "cold by cold only");
        assert!(served.id.0 == id || seen.insert(served.id.0), "{} stood in twice", served.id);
        stood_in += u32::from(served.id.0 != id);
    }
    assert!(stood_in > 0, "nothing ever stood in");
    assert_eq!(node.report().stand_ins, u64::from(stood_in));
    let hot = runtime.block_on(node.fetch_one(job, hot(200))).unwrap();
    assert_eq!(hot.id, SampleId(200), "a hot sample is never stood in for");
    assert_eq!(runtime.block_on(node.fetch_one(job, self::hot(200))).unwrap().tier, Tier::Memory);
    let regions = node.report().regions.expect("score has two regions");
    assert_eq!(regions.hot_hits, 1);
    assert!(regions.cold_hits >= u64::from(stood_in) && regions.cold_bytes > 0, "{regions:?}");
    assert_eq!(node.region_hits(), Some([regions.hot_hits, regions.cold_hits]));
}

/// What stands in must be one that the job has selected itself: with two jobs nobody stands in for anybody.
#[test]
fn two_jobs_share_no_stand_ins() {
    let node =
        Node::new(set(1), NodeOptions { stand_ins: true, hot_share: 0.1, ..options(Policy::Score, 0.5) })
            .unwrap();
    let (first, second) = (node.join("first").unwrap(), node.join("second").unwrap());
    let standings: Vec<Standing> =
        (0..SAMPLES).map(|id| Standing { id: SampleId(id), score: 0.5, wanted: 1.0 }).collect();
    for (job, order) in [(first, 0..100), (second, 100..200)] {
        node.stand(job, &standings).unwrap();
        node.announce(job, 6, false, order.collect()).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for id in (0..100).map(SampleId) {
        assert_eq!(runtime.block_on(node.fetch_one(first, Ask { id, cold: true })).unwrap().id, id);
    }
}

#[test]
fn the_order_of_quiver_is_the_same_after_a_restart() {
    let node = || Node::new(set(0), options(Policy::Quiver, 0.3)).unwrap();
    let used = node();
    let job = used.join("test").unwrap();
    for epoch in 0..3 {
        let order = used.order(epoch).unwrap();
        assert_eq!(node().order(epoch), Some(order.clone()), "epoch {epoch}");
        used.announce(job, epoch, true, order.clone()).unwrap();
        order.iter().for_each(|&id| _ = block_on(used.fetch_one(job, hot(id))).unwrap());
    }
    let report = used.report();
    assert!(report.served[0] > u64::from(SAMPLES / 4), "what was left over is used: {:?}", report.served);
}

#[test]
fn an_idle_store_is_read_ahead_of_the_plan_once_and_within_the_budget() {
    let budget = 5 * BYTES as u64;
    let ahead = NodeOptions { prefetch_bytes_max: budget, ..options(Policy::Foresight, 0.5) };
    let node = Node::new(set(1), ahead).unwrap();
    assert!(node.reads_ahead());
    let job = node.join("test").unwrap();
    node.announce(job, 0, true, (0..SAMPLES).collect()).unwrap();
    let begun = std::time::Instant::now();
    while node.report().memory_entries < 100 {
        assert!(begun.elapsed().as_secs() < 10, "nothing is read ahead: {:?}", node.report());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(node.at_hand(job, hot(0)).unwrap().bytes, content(0, BYTES));
    std::thread::sleep(std::time::Duration::from_millis(200));
    let report = node.report();
    assert!(report.prefetched <= u64::from(SAMPLES), "something was read twice: {report:?}");
    assert!(report.memory_bytes <= report.memory_bytes_max);
    let without = NodeOptions { prefetch_bytes_max: 0, ..options(Policy::Foresight, 0.5) };
    assert!(!Node::new(set(1), without).unwrap().reads_ahead());
}

#[test]
fn feedback_within_an_epoch_decides_who_stays() {
    let node = Node::new(set(0), options(Policy::Foresight, 0.1)).unwrap();
    let job = node.join("test").unwrap();
    let stand = |wanted| -> Vec<Standing> {
        (0..SAMPLES).map(|id| Standing { id: SampleId(id), score: 1.0, wanted }).collect()
    };
    node.stand(job, &stand(0.5)).unwrap();
    node.announce(job, 0, true, (0..SAMPLES).collect()).unwrap();
    let fetch = |id| block_on(node.fetch_one(job, hot(id))).unwrap();
    (0..100).for_each(|id| _ = fetch(id));
    assert!(node.at_hand(job, hot(0)).is_some(), "who came first stays while all are alike");
    node.learn(job, &[0], &[0.0]);
    node.learn(job, &[100], &[0.9]);
    fetch(100);
    assert!(node.at_hand(job, hot(0)).is_none() && node.at_hand(job, hot(100)).is_some());
    let other = node.join("other").unwrap();
    node.learn(job, &[100], &[0.0]);
    node.learn(other, &[101], &[0.9]);
    fetch(101);
    assert!(node.at_hand(job, hot(101)).is_none(), "with two jobs the next announcement decides");
}

#[test]
fn neighbours_in_one_file_are_one_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = vec![0, 0, 8, 3, 0, 0, 0, 50, 0, 0, 0, 10, 0, 0, 0, 10];
    file.extend((0..5_000_u32).map(|at| (at / 100) as u8));
    std::fs::write(folder.path().join("train-images-idx3-ubyte"), file).unwrap();
    std::fs::write(
        folder.path().join("train-labels-idx1-ubyte"),
        [&[0, 0, 8, 1, 0, 0, 0, 50][..], &[0; 50]].concat(),
    )
    .unwrap();
    let source = folder.path().join("train-images-idx3-ubyte");
    let place = folder.path().join("catalogs").to_str().unwrap().to_string();
    let pairs = [("catalog.folder".to_string(), place), ("cache.size".to_string(), "50%".to_string())];
    let settings = Config::load(None, &pairs).unwrap().settings().clone();
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    let opened = open::catalog(source.to_str().unwrap(), &settings, false, go_on).unwrap();
    let set = Arc::new(open::data_set(opened.catalog, &settings, &|| false).unwrap());
    let node = Node::new(set, NodeOptions::new(Policy::Lru, 1 << 20)).unwrap();
    let job = node.join("test").unwrap();
    let served = block_on(node.fetch(job, &[hot(12), hot(10), hot(11), hot(40), hot(12)]));
    let bytes: Vec<u8> = served.iter().map(|one| one.as_ref().unwrap().bytes[99]).collect();
    assert_eq!(bytes, [12, 10, 11, 40, 12]);
    let report = node.report();
    assert_eq!((report.store_reads, report.store_bytes), (2, 400), "three neighbours, and one far off");
}

#[test]
fn what_caching_brings_to_a_job_is_measured() {
    let node = Node::new(set(10), options(Policy::Static, 1.0)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let slow = node.join("waits for the store").unwrap();
    let fast = node.join("computes").unwrap();
    for job in [slow, fast] {
        node.announce(job, 0, true, (0..SAMPLES).collect()).unwrap();
    }
    (0..40).for_each(|id| _ = runtime.block_on(node.fetch_one(slow, hot(id))).unwrap());
    (0..40).for_each(|id| _ = runtime.block_on(node.fetch_one(fast, hot(id))).unwrap());
    for job in [slow, fast] {
        node.announce(job, 1, true, (0..SAMPLES).collect()).unwrap();
    }
    let benefit = |at: usize| node.report().jobs[at].benefit.unwrap();
    assert!(benefit(0) > 0.7 && benefit(1) < 0.05, "{} and {}", benefit(0), benefit(1));
}

fn serve(node: Arc<Node>, listen: &str) -> Server {
    let options = ServeOptions { listen: listen.into(), ..ServeOptions::default() };
    Server::start(options, None, vec![Hosted { name: "train".into(), node }]).unwrap()
}

#[test]
fn a_shared_node_that_comes_and_goes_costs_no_sample() {
    let set = set(0);
    let plain = trained(&loader(&set, "uniform", None), 2);
    let node = || Arc::new(Node::new(set.clone(), options(Policy::Foresight, 0.5)).unwrap());
    let mut server = Some(serve(node(), "127.0.0.1:0"));
    let at = server.as_ref().unwrap().tcp().unwrap().to_string();
    let options = ClientOptions { backoff_ms: 5, backoff_ms_max: 20, ..ClientOptions::default() };
    let shared = Arc::new(Shared::join(&format!("grist://{at}/train"), options, set.clone()).unwrap());
    let remote = loader(&set, "uniform", Some(shared.clone()));
    let mut seen = Vec::new();
    for epoch in 0..2 {
        for (index, batch) in remote.epoch(epoch, 0).unwrap().enumerate() {
            let batch = batch.unwrap();
            let gristmill_node::loader::Data::Raw(raw) = &batch.data else { panic!("no recipe, no tensors") };
            seen.extend(batch.ids.iter().copied().zip(raw.iter().cloned()));
            match index % 4 {
                1 => drop(server.take()),
                3 => server = Some(serve(node(), &at)),
                _ => std::thread::sleep(std::time::Duration::from_millis(30)),
            }
        }
    }
    assert!(seen == plain, "the sequence changed");
    assert!(shared.fallbacks() > 0, "the store was never needed: the node was not away");
    drop(server.take());
    let mut last = remote.epoch(2, 0).unwrap();
    assert_eq!(last.by_ref().map(Result::unwrap).count(), SAMPLES.div_ceil(32) as usize);
    assert!(last.report().fallbacks > 0 && last.report().to_string().contains("shared node did not give"));
}

#[test]
fn peers_keep_one_copy_together_and_a_lost_one_is_a_miss() {
    let set = set(0);
    let held: Vec<_> = (0..3).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let urls: Vec<String> =
        held.iter().map(|at| format!("grist://{}/train", at.local_addr().unwrap())).collect();
    drop(held);
    let start = |place: usize| {
        let options = ClientOptions { backoff_ms: 5, backoff_ms_max: 20, ..ClientOptions::default() };
        let peers = Peers::new(&urls, &urls[place], &options).unwrap();
        let node =
            Arc::new(Node::beside(set.clone(), super::node::options(Policy::Static, 1.0), peers).unwrap());
        let listen = urls[place].trim_start_matches("grist://").trim_end_matches("/train").to_string();
        (serve(node.clone(), &listen), node)
    };
    let (first, second, third) = (start(0), start(1), start(2));
    let begun = std::time::Instant::now();
    while [&first, &second, &third].iter().any(|(_, node)| node.report().peers_up < 3) {
        assert!(begun.elapsed().as_secs() < 10, "the nodes do not find each other");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let access = Arc::new(Embedded::join(first.1.clone(), "test").unwrap());
    let plain = trained(&loader(&set, "uniform", None), 2);
    let cached = loader(&set, "uniform", Some(access));
    // A peer is asked over a socket, so the loader must keep reads in flight.
    let mut seen = trained(&cached, 1);
    let nodes = [&first.1, &second.1, &third.1];
    let kept: Vec<u64> = nodes.iter().map(|node| node.report().memory_entries).collect();
    assert_eq!(kept.iter().sum::<u64>(), u64::from(SAMPLES), "one copy of each: {kept:?}");
    assert!(kept.iter().all(|n| *n > u64::from(SAMPLES / 5)), "{kept:?}");
    assert!(first.1.report().served[Tier::Peer as usize] > 0);
    drop(second);
    for batch in cached.epoch(1, 0).unwrap() {
        let batch = batch.unwrap();
        let gristmill_node::loader::Data::Raw(raw) = &batch.data else { panic!("no recipe, no tensors") };
        seen.extend(batch.ids.iter().copied().zip(raw.iter().cloned()));
    }
    assert!(seen == plain, "the sequence changed");
}

#[test]
fn what_makes_no_sense_is_said() {
    let set = set(0);
    let error = Node::new(set.clone(), options(Policy::Lru, 0.0001)).unwrap_err();
    assert!(error.to_string().contains("the smallest sample has 1000 "), "{error}");
    assert!(error.remedy().is_some());
    let node = Node::new(set.clone(), options(Policy::Lru, 0.5)).unwrap();
    let job = node.join("x").unwrap();
    let unknown = block_on(node.fetch_one(job, hot(SAMPLES))).unwrap_err().to_string();
    assert!(unknown.contains("there is no sample 300"), "{unknown}");
    assert!(node.announce(job, 0, true, vec![SAMPLES]).is_err());
    node.leave(job);
    assert!(node.announce(job, 0, true, vec![0]).unwrap_err().to_string().contains("has left"));
    let served = block_on(node.fetch_one(job, hot(1))).unwrap();
    assert_eq!(served.bytes, content(1, BYTES), "a job that is gone is served all the same");
}
