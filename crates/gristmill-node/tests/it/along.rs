//! What comes along: neighbours of a sample that is read, if they are wanted soon. What is trained on stays the same, the
//! limit holds, and there are fewer reads.

use bytes::Bytes;
use gristmill_core::SampleId;
use gristmill_core::cache::{JobId, Policy};
use gristmill_core::plan::Shape;
use gristmill_node::access::{Access, Embedded};
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::disk::DiskOptions;
use gristmill_node::loader::{Data, Loader};
use gristmill_node::node::{Ask, Node, NodeOptions, Served, Tier};
use gristmill_node::open;
use std::sync::Arc;
use tempfile::TempDir;

const SAMPLES: u32 = 2_000;
const SIDE: u32 = 10;
const BYTES: u32 = SIDE * SIDE;

/// Small pictures in one file, each full of its own number, behind a store that answers after a millisecond.
fn set() -> (Arc<DataSet>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let numbers = |all: &[u32]| all.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
    let pixels = (0..SAMPLES).flat_map(|id| vec![id as u8; BYTES as usize]);
    let images = [numbers(&[0x0803, SAMPLES, SIDE, SIDE]), pixels.collect()].concat();
    let labels = [numbers(&[0x0801, SAMPLES]), vec![0; SAMPLES as usize]].concat();
    let source = folder.path().join("train-images-idx3-ubyte");
    std::fs::write(&source, images).unwrap();
    std::fs::write(folder.path().join("train-labels-idx1-ubyte"), labels).unwrap();
    let place = folder.path().join("catalogs").to_str().unwrap().to_string();
    // Not all of it fits into memory, so every sample is read by itself.
    let pairs = [
        ("catalog.folder".to_string(), place),
        ("cache.size".to_string(), "20%".to_string()),
        ("store.throttle_latency_ms".to_string(), "1".to_string()),
    ];
    let settings = Config::load(None, &pairs).unwrap().settings().clone();
    let go_on = &mut |_| std::ops::ControlFlow::Continue(());
    let opened = open::catalog(source.to_str().unwrap(), &settings, false, go_on).unwrap();
    (Arc::new(open::data_set(opened.catalog, &settings, &|| false).unwrap()), folder)
}

fn node(set: &Arc<DataSet>, gap_bytes_max: u64) -> Arc<Node> {
    let memory = u64::from(SAMPLES * (BYTES + 128) / 5);
    let options =
        NodeOptions { gap_bytes_max, prefetch_bytes_max: 0, ..NodeOptions::new(Policy::Foresight, memory) };
    Arc::new(Node::new(Arc::clone(set), options).unwrap())
}

fn fetch(node: &Node, job: JobId, id: u32) -> (Tier, Bytes) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let served = runtime.block_on(node.fetch_one(job, Ask { id: SampleId(id), cold: false })).unwrap();
    (served.tier, served.bytes)
}

#[test]
fn neighbours_that_are_wanted_come_along_and_others_do_not() {
    let (set, _folder) = set();
    let node = node(&set, 2 * u64::from(BYTES));
    let job = node.join("test").unwrap();
    // Between 11 and 13 is one sample that nobody wants; 8 is in no plan, 500 is far away.
    node.announce(job, 0, false, vec![10, 500, 11, 13, 9]).unwrap();
    let mut tiers = Vec::new();
    for id in [10, 11, 13, 9, 8, 500] {
        let (tier, bytes) = fetch(&node, job, id);
        assert_eq!(bytes, vec![id as u8; BYTES as usize]);
        tiers.push(tier);
    }
    let (far, here) = (Tier::Store, Tier::Memory);
    assert_eq!(tiers, [far, here, here, here, far, far]);
    let report = node.report();
    assert_eq!((report.store_reads, report.prefetched), (3, 3), "9 to 13 are one read");
}

#[test]
fn what_came_along_for_nobody_is_let_go() {
    let (set, _folder) = set();
    let node = node(&set, 1_000);
    let job = node.join("test").unwrap();
    let held = |node: &Node| node.report().memory_entries;
    node.announce(job, 0, false, vec![10, 11, 12]).unwrap();
    fetch(&node, job, 10);
    assert_eq!(held(&node), 3, "10 is kept, 11 and 12 wait");
    node.announce(job, 1, false, vec![12, 700]).unwrap();
    assert_eq!(held(&node), 2, "nobody asks for 11 any more");
    assert_eq!(fetch(&node, job, 12).0, Tier::Memory);
    node.announce(job, 2, false, vec![20, 21]).unwrap();
    fetch(&node, job, 20);
    assert_eq!(held(&node), 4, "10, 12 and 20 are kept, 21 waits");
    node.leave(job);
    assert_eq!(held(&node), 3, "who is gone asks for nothing");
}

#[test]
fn what_two_jobs_want_waits_for_both() {
    let (set, _folder) = set();
    let node = node(&set, 1_000);
    let [one, other] = ["one", "other"].map(|name| node.join(name).unwrap());
    node.announce(one, 0, false, vec![10, 11]).unwrap();
    node.announce(other, 0, false, vec![900, 901, 11]).unwrap();
    let tiers = [(one, 10), (one, 11), (other, 900), (other, 901), (other, 11)]
        .map(|(job, id)| fetch(&node, job, id).0);
    assert_eq!(tiers, [Tier::Store, Tier::Memory, Tier::Store, Tier::Memory, Tier::Memory]);
    assert_eq!(node.report().store_reads, 2);
}

#[test]
fn those_asked_for_together_bring_theirs_along() {
    let (set, _folder) = set();
    let node = node(&set, 2 * u64::from(BYTES));
    let job = node.join("test").unwrap();
    node.announce(job, 0, false, vec![10, 300, 11, 12, 301, 302, 299]).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tiers = |ids: &[u32]| -> Vec<Tier> {
        let asks: Vec<Ask> = ids.iter().map(|&id| Ask { id: SampleId(id), cold: false }).collect();
        let served = runtime.block_on(node.fetch(job, &asks));
        let right = |(one, id): (&gristmill_node::Result<Served>, &u32)| {
            let one = one.as_ref().unwrap();
            assert_eq!((one.id, &one.bytes[..]), (SampleId(*id), &vec![*id as u8; BYTES as usize][..]));
            one.tier
        };
        served.iter().zip(ids).map(right).collect()
    };
    assert_eq!(tiers(&[10, 300]), [Tier::Store; 2]);
    assert_eq!(tiers(&[11, 12, 301, 302, 299]), [Tier::Memory; 5]);
    assert_eq!(node.report().store_reads, 2);
}

#[test]
fn what_came_along_reaches_the_disk() {
    let (set, folder) = set();
    let disk =
        DiskOptions { folder: folder.path().join("disk"), bytes_max: 4 << 20, queue_bytes_max: 1 << 20 };
    let memory = u64::from(SAMPLES * (BYTES + 128) / 5);
    let options = NodeOptions {
        gap_bytes_max: 1_000,
        prefetch_bytes_max: 0,
        disk: Some(disk),
        ..NodeOptions::new(Policy::Foresight, memory)
    };
    let node = Node::new(Arc::clone(&set), options).unwrap();
    let job = node.join("test").unwrap();
    node.announce(job, 0, false, (10..40).collect()).unwrap();
    (10..40).for_each(|id| _ = fetch(&node, job, id));
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while node.report().disk_entries < 30 {
        assert!(std::time::Instant::now() < give_up, "{:?}", node.report());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_neighbour_that_cannot_be_read_is_nobodys_trouble() {
    let (set, folder) = set();
    let node = node(&set, 1_000);
    let job = node.join("test").unwrap();
    node.announce(job, 0, false, vec![10, 11, 12]).unwrap();
    // The file ends in the middle of 11: read together they fail.
    let file =
        std::fs::OpenOptions::new().write(true).open(folder.path().join("train-images-idx3-ubyte")).unwrap();
    file.set_len(16 + u64::from(BYTES) * 11 + 5).unwrap();
    assert_eq!(fetch(&node, job, 10).1, vec![10; BYTES as usize]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asked = runtime.block_on(node.fetch_one(job, Ask { id: SampleId(11), cold: false }));
    assert!(asked.is_err(), "whoever asks for it hears of it");
    assert_eq!(node.report().memory_entries, 1, "nothing is left of those that did not come");
}

#[test]
fn the_same_samples_with_fewer_reads_within_the_limit() {
    let (set, _folder) = set();
    let mut reads = Vec::new();
    let mut trained: Vec<Vec<(u32, Bytes)>> = Vec::new();
    for gap_bytes_max in [0, 5 * u64::from(BYTES)] {
        let node = node(&set, gap_bytes_max);
        let access = Arc::new(Embedded::join(Arc::clone(&node), "test").unwrap()) as Arc<dyn Access>;
        let mut options = Config::default().settings().loader();
        (options.shape, options.threads) = (Shape::single(32), 2);
        let loader = Loader::new(Arc::clone(&set), None, options).unwrap().with_access(Some(access));
        let mut all = Vec::new();
        for epoch in 0..2 {
            for batch in loader.epoch(epoch, 0).unwrap() {
                let batch = batch.unwrap();
                let Data::Raw(raw) = &batch.data else { panic!("no recipe, no tensors") };
                all.extend(batch.ids.iter().copied().zip(raw.iter().cloned()));
                let report = node.report();
                assert!(report.memory_bytes <= report.memory_bytes_max);
            }
        }
        reads.push(node.report().store_reads);
        trained.push(all);
    }
    assert!(trained[0] == trained[1], "what is trained on has changed");
    assert!(trained[0].iter().all(|(id, bytes)| bytes[..] == vec![*id as u8; BYTES as usize]));
    assert!(reads[1] * 3 < reads[0] * 2, "{reads:?}: a third fewer at least");
}
