//! The split over real sockets: the same batches wherever samples are cut, whatever the node does or does not.

mod trouble;

use crate::loader::{data, options, photos, recipe};
use futures::executor::block_on;
use gristmill_core::SampleId;
use gristmill_core::cache::Policy;
use gristmill_core::split::SplitPolicy;
use gristmill_node::access::{Access, Embedded};
use gristmill_node::catalog::Catalog;
use gristmill_node::client::{Client, ClientOptions};
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Data, Loader, LoaderOptions};
use gristmill_node::node::{Ask, Node, NodeOptions};
use gristmill_node::report::EpochReport;
use gristmill_node::serve::{Hosted, ServeOptions, Server};
use gristmill_node::shared::{Shared, Upstream};
use gristmill_node::split::{Shortfall, SplitMode, SplitOptions, SplitReport, Staged, StagedAsk, Wish};
use gristmill_node::store::StoreOptions;
use gristmill_ops::{Draw, Limits, Op, Pipeline, Recipe, Scratch, Size, Stage};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A batch as bytes: ids and all numbers.
type Batches = Vec<(Vec<u32>, Vec<u8>)>;

/// Where the data lies.
fn near() -> Arc<DataSet> {
    data(photos(), &StoreOptions::default())
}

pub(crate) fn serve_options() -> ServeOptions {
    ServeOptions { listen: "127.0.0.1:0".into(), cores: Some(2.0), ..ServeOptions::default() }
}

/// A node near the data.
pub(crate) fn serve(options: ServeOptions) -> Server {
    let node = Arc::new(Node::new(near(), NodeOptions::new(Policy::Foresight, 64 << 20)).unwrap());
    Server::start(options, None, vec![Hosted { name: "photos".into(), node }]).unwrap()
}

fn url(server: &Server) -> String {
    format!("grist://{}/photos", server.tcp().unwrap())
}

/// The data set as one sees it that has nothing but the node.
pub(crate) fn behind(server: &Server, options: ClientOptions) -> Arc<DataSet> {
    behind_at(&url(server), options)
}

fn behind_at(url: &str, options: ClientOptions) -> Arc<DataSet> {
    let client = Client::connect(url, options).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("split-{}", std::process::id()));
    let path = block_on(client.catalog(&folder)).unwrap();
    let upstream = Arc::new(Upstream::new(client, Duration::from_secs(20)));
    Arc::new(DataSet::behind(Arc::new(Catalog::open(&path).unwrap()), upstream))
}

fn split(mode: SplitMode) -> LoaderOptions {
    // A link of this rate is the bottleneck of anything.
    // Whatever else this machine does, the decision is the same.
    let split = SplitOptions {
        mode,
        link_bytes_per_s: Some(2e6),
        same_machine: Some(false),
        ..SplitOptions::default()
    };
    LoaderOptions { split, ..options() }
}

fn loader(set: &Arc<DataSet>, options: LoaderOptions) -> Loader {
    Loader::new(set.clone(), Some(&recipe()), options).unwrap()
}

/// Crops so small that packed pixels are fewer bytes than most of these files.
fn small_crops() -> Recipe {
    let mut small = recipe();
    small.ops[1] = Op::RandomResizedCrop { size: Size::Side(64), scale: [0.08, 1.0], ratio: [0.75, 1.33] };
    small
}

/// All batches of an epoch and what it cost.
fn epoch(loader: &Loader, epoch: u64) -> (Batches, EpochReport) {
    let mut running = loader.epoch(epoch, 0).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = running.next_batch().unwrap() {
        let Data::Tensor(tensor) = &batch.data else { panic!("there is a recipe") };
        batches.push((batch.ids.clone(), tensor.bytes().to_vec()));
    }
    running.end();
    (batches, running.report())
}

/// What the plain loader gives.
fn plain(at: u64) -> Batches {
    epoch(&loader(&near(), options()), at).0
}

#[track_caller]
fn same(got: &Batches, wanted: &Batches, what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (place, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert_eq!(got.0, wanted.0, "{what}: the ids of batch {place}");
        assert!(got.1 == wanted.1, "{what}: the pixels of batch {place}");
    }
}

fn of(report: &EpochReport) -> &SplitReport {
    report.split.as_ref().expect("there is a split")
}

fn at_stage(report: &SplitReport, stage: Stage) -> u64 {
    report.stages.iter().find(|used| used.stage == stage).map_or(0, |used| used.samples)
}

fn short(report: &SplitReport, why: Shortfall) -> u64 {
    report.shortfalls.iter().find(|short| short.why == why).map_or(0, |short| short.samples)
}

#[test]
fn every_stage_gives_the_same_batches() {
    let server = serve(serve_options());
    for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::Lossy) {
        let recipe = if stage == Stage::Packed { small_crops() } else { recipe() };
        let load = |set, options| Loader::new(set, Some(&recipe), options).unwrap();
        let (wanted, _) = epoch(&load(near(), options()), 3);
        let set = behind(&server, ClientOptions::default());
        let (got, report) = epoch(&load(set, split(SplitMode::Stage(stage))), 3);
        same(&got, &wanted, stage.name());
        let split = of(&report);
        let (here, raw) = (at_stage(split, stage), at_stage(split, Stage::Raw));
        assert_eq!(split.stages.iter().map(|used| used.samples).sum::<u64>(), 90, "{split:?}");
        assert_eq!(if stage == Stage::Raw { raw } else { here + raw }, 90, "{split:?}");
        assert!(here > 0, "{stage:?} was never served: {split:?}");
        match stage {
            Stage::Cut => assert!(split.traffic_ratio() > 1.3 && split.upstream_cpu_s > 0.0, "{split:?}"),
            Stage::Finished => assert!(split.traffic_ratio() < 1.0, "{split:?}"),
            _ => {}
        }
        assert_eq!(short(split, Shortfall::Busy), 0, "{split:?}");
    }
    let ops = server.report().ops;
    assert!(ops.cpu_s > 0.0 && ops.queue == 0 && ops.busy == 0, "{ops:?}");
    assert_eq!(ops.stages[Stage::Finished as usize].samples, 90, "{ops:?}");
}

#[test]
fn pictures_that_stay_decoded_give_the_same_batches_in_a_part_of_the_time() {
    let cpu_by_epoch = |op_pixels_bytes_max: u64| {
        let server = serve(ServeOptions { op_pixels_bytes_max, ..serve_options() });
        let set = behind(&server, ClientOptions::default());
        let cpu = [Stage::Cropped, Stage::Finished].map(|stage| {
            let loader = loader(&set, split(SplitMode::Stage(stage)));
            [0, 1, 2].map(|at| {
                let before = server.report().ops;
                let (batches, report) = epoch(&loader, at);
                same(&batches, &plain(at), stage.name());
                assert!(at_stage(of(&report), stage) > 0, "{report:?}");
                let after = server.report().ops;
                (after.cpu_s - before.cpu_s, after.pixels_hits - before.pixels_hits)
            })
        });
        (cpu, server.report().ops)
    };
    let (cpu, ops) = cpu_by_epoch(256 << 20);
    assert_eq!(cpu[0][0].1, 0, "nothing is here yet");
    let staged: u64 =
        ops.stages.iter().filter(|sent| sent.stage != Stage::Raw).map(|sent| sent.samples).sum();
    assert_eq!(ops.pixels_hits + ops.pixels_entries, staged, "each picture was decoded once: {ops:?}");
    assert!(ops.pixels_bytes <= ops.pixels_bytes_max && ops.pixels_bytes > 1 << 20, "{ops:?}");
    assert!(cpu[0][1].0.min(cpu[0][2].0) < 0.7 * cpu[0][0].0, "{cpu:?}");
    let (cpu, ops) = cpu_by_epoch(0);
    assert_eq!((ops.pixels_hits, ops.pixels_entries, ops.pixels_bytes), (0, 0, 0));
    assert!(cpu[0][1].0 > 0.7 * cpu[0][0].0, "{cpu:?}");
    // Room for some of them: those stay.
    let (cpu, ops) = cpu_by_epoch(8 << 20);
    assert!(ops.pixels_bytes <= 8 << 20 && ops.pixels_entries > 0, "{ops:?}");
    assert_eq!(cpu[0][2].1, ops.pixels_entries, "{cpu:?}");
}

#[test]
fn what_is_done_once_is_charged_to_several_epochs() {
    let once = |epochs: Option<u32>| {
        let server = serve(serve_options());
        let set = behind(&server, ClientOptions::default());
        let mut options = split(SplitMode::Policy(SplitPolicy::Best));
        // Little of the node's time makes it the limit.
        options.split.upstream_cores = Some(0.01);
        options.selection.epochs = epochs;
        let load = |set, options| Loader::new(set, Some(&small_crops()), options).unwrap();
        let loader = load(set, options);
        epoch(&loader, 0);
        let (got, report) = epoch(&loader, 1);
        same(&got, &epoch(&load(near(), crate::loader::options()), 1).0, "charged");
        of(&report).once
    };
    let (more, last) = (once(None), once(Some(2)));
    // No later epoch shares what the last one does.
    assert!(more > 1.05 && last < 1.0 + 1e-9, "how much longer this epoch is: {more} {last}");
}

#[test]
fn what_was_cut_comes_through_a_lane_too() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s.sock").to_str().unwrap().to_string();
    let server = serve(ServeOptions { unix: socket.clone(), ..serve_options() });
    let set = behind_at(&format!("grist+unix://{socket}"), ClientOptions::default());
    let loader = loader(&set, split(SplitMode::Stage(Stage::Cropped)));
    for at in 0..3 {
        let (batches, report) = epoch(&loader, at);
        same(&batches, &plain(at), "through a lane");
        assert!(at_stage(of(&report), Stage::Cropped) > 0, "{report:?}");
    }
    let report = server.report();
    assert!(2 * report.lane_bytes > report.bytes, "{report:?}");
}

#[test]
fn what_a_node_on_this_machine_does_costs_this_machine_too() {
    let server = serve(serve_options());
    let predicted = |same_machine| {
        let mut options = split(SplitMode::Policy(SplitPolicy::All));
        options.split.same_machine = same_machine;
        let loader = loader(&behind(&server, ClientOptions::default()), options);
        epoch(&loader, 0);
        of(&epoch(&loader, 1).1).predicted.expect("it was decided").local_s
    };
    let (apart, together, found) = (predicted(Some(false)), predicted(Some(true)), predicted(None));
    assert!(together > 2.0 * apart, "{together} s here against {apart} s");
    assert!(found > 2.0 * apart, "the address says that it is here: {found} s against {apart} s");
}

#[test]
fn every_policy_gives_the_same_batches_and_says_what_it_did() {
    let server = serve(serve_options());
    let wanted: Vec<Batches> = (0..3).map(plain).collect();
    let policies = SplitPolicy::ALL.into_iter().filter(|policy| *policy != SplitPolicy::None);
    let modes = policies.map(SplitMode::Policy).chain([SplitMode::Auto]);
    for mode in modes {
        let set = behind(&server, ClientOptions::default());
        let loader = loader(&set, split(mode));
        for (at, wanted) in wanted.iter().enumerate() {
            let (got, report) = epoch(&loader, at as u64);
            let split = of(&report);
            same(&got, wanted, &format!("{} in epoch {at}", mode.name()));
            assert!(!split.reason.is_empty() && report.to_string().contains(&split.reason), "{split:?}");
            if at == 0 {
                assert_eq!((split.wanted, split.predicted_s), (0, None), "{split:?}");
                assert!(split.reason.contains("unsplit"), "{split:?}");
                continue;
            }
            assert!(split.predicted_s.is_some() && split.calibration_bytes > 0, "{split:?}");
            match mode {
                SplitMode::Policy(SplitPolicy::All) => {
                    assert_eq!(at_stage(split, Stage::Finished), 90, "{split:?}");
                }
                SplitMode::Policy(SplitPolicy::Resize) => {
                    assert_eq!(at_stage(split, Stage::Cropped), 90, "{split:?}");
                }
                SplitMode::Policy(SplitPolicy::Best) | SplitMode::Auto => {
                    assert_eq!(split.policy, "best");
                    assert!(split.traffic_ratio() > 1.3, "{split:?}");
                }
                _ => assert!(split.bytes <= split.raw_bytes, "{split:?}"),
            }
        }
    }
}

#[test]
fn auto_leaves_a_fast_link_alone_and_the_reason_is_said() {
    let server = serve(serve_options());
    let set = behind(&server, ClientOptions::default());
    let mut fast = split(SplitMode::Auto);
    fast.split.link_bytes_per_s = Some(1e12);
    let loader = loader(&set, fast);
    for at in 0..2 {
        let (got, report) = epoch(&loader, at);
        same(&got, &plain(at), "auto");
        assert_eq!(of(&report).wanted, 0, "{:?}", report.split);
    }
    let (_, report) = epoch(&loader, 2);
    assert!(of(&report).reason.contains("bottleneck"), "{:?}", report.split);
}

#[test]
fn a_long_first_epoch_is_split_before_its_end() {
    let server = serve(serve_options());
    let set =
        behind(&server, ClientOptions { throttle_bytes_per_s: Some(1_500_000), ..ClientOptions::default() });
    let mut long = split(SplitMode::Policy(SplitPolicy::Best));
    long.split = SplitOptions { profile_samples: 10, calibrate_samples: 10, ..long.split };
    long.reads_in_flight = 4;
    long.prefetch_batches = 1;
    let loader = loader(&set, long);
    let (got, report) = epoch(&loader, 0);
    same(&got, &plain(0), "the first epoch");
    // The calibration takes its share of a slow link; if it was not done in time the next epoch is split.
    let first = of(&report).wanted;
    let (got, report) = epoch(&loader, 1);
    same(&got, &plain(1), "the second epoch");
    assert!(first > 0 || of(&report).wanted > 0, "{:?}", report.split);
}

#[test]
fn a_resumed_epoch_has_the_same_batches() {
    let server = serve(serve_options());
    let set = behind(&server, ClientOptions::default());
    let wanted = plain(1);
    let loader = loader(&set, split(SplitMode::Policy(SplitPolicy::Best)));
    epoch(&loader, 0);
    for from in [1, 5] {
        let mut running = loader.epoch(1, from).unwrap();
        let first = running.next_batch().unwrap().unwrap();
        let Data::Tensor(tensor) = &first.data else { panic!("there is a recipe") };
        assert_eq!(first.ids, wanted[from as usize].0);
        assert!(tensor.bytes() == &wanted[from as usize].1[..], "from batch {from}");
    }
}

#[test]
fn what_takes_longer_to_decode_here_comes_prepared_though_a_cache_has_it() {
    let server = serve(serve_options());
    for (local_cores, past) in [(0.02, true), (64.0, false)] {
        let set = behind(&server, ClientOptions::default());
        let bytes = set.catalog().total_bytes().unwrap();
        let node =
            Arc::new(Node::new(set.clone(), NodeOptions::new(Policy::Static, bytes * 3 / 10)).unwrap());
        let access: Arc<dyn Access> = Arc::new(Embedded::join(node, "test").unwrap());
        let mut options = split(SplitMode::Policy(SplitPolicy::Best));
        options.split.local_cores = Some(local_cores);
        options.split.same_machine = Some(false);
        let loader = loader(&set, options).with_access(Some(access));
        for at in 0..3 {
            let (got, report) = epoch(&loader, at);
            same(&got, &plain(at), &format!("{local_cores} cores, epoch {at}"));
            if at == 2 {
                assert_eq!(of(&report).past > 0, past, "{local_cores} cores: {:?}", report.split);
            }
        }
    }
}

#[test]
fn a_cache_here_keeps_raw_samples_only_and_a_full_one_asks_for_no_more() {
    let server = serve(serve_options());
    for (policy, hits_min) in [(Policy::Static, 0.15), (Policy::Lru, 0.0), (Policy::Foresight, 0.1)] {
        let set = behind(&server, ClientOptions::default());
        let bytes = set.catalog().total_bytes().unwrap();
        let node = Arc::new(Node::new(set.clone(), NodeOptions::new(policy, bytes * 3 / 10)).unwrap());
        let access: Arc<dyn Access> = Arc::new(Embedded::join(node.clone(), "test").unwrap());
        let mode = SplitMode::Policy(SplitPolicy::Best);
        let loader = loader(&set, split(mode)).with_access(Some(access));
        for at in 0..3 {
            let (got, report) = epoch(&loader, at);
            same(&got, &plain(at), &format!("{policy:?}, epoch {at}"));
            let split = of(&report);
            if at > 0 {
                // Or they were asked for prepared, where decoding them here would take longer.
                let hits = report.hit_ratio().unwrap() + split.past as f64 / 90.0;
                assert!(hits >= hits_min, "{policy:?}: {report}");
                // The LRU would keep anything that comes, so it once had everything come raw.
                assert!(split.wanted > 0 && split.traffic_ratio() > 1.2, "{policy:?}: {split:?}");
                let came: u64 = split.stages.iter().map(|used| used.samples).sum();
                assert!(
                    came < 90 || hits_min <= 0.0 || split.past > 0,
                    "{policy:?}: what is here does not cross the link: {split:?}"
                );
            }
        }
        for id in 0..90 {
            let whole = block_on(node.fetch_for_peer(SampleId(id))).unwrap();
            assert_eq!(whole.bytes.len() as u32, set.catalog().size(SampleId(id)).unwrap(), "sample {id}");
        }
    }
}

#[test]
fn without_a_node_the_report_says_so() {
    let (got, report) = epoch(&loader(&near(), split(SplitMode::Policy(SplitPolicy::Best))), 0);
    same(&got, &plain(0), "a plain store");
    let split = of(&report);
    assert!(split.reason.contains("no node") && report.to_string().contains("no node"), "{split:?}");
    let raw = Loader::new(near(), None, self::split(SplitMode::Auto)).unwrap();
    let running = raw.epoch(0, 0).unwrap();
    assert!(of(&running.report()).reason.contains("no recipe"));
    for (link, accelerator) in [(0.0, 1.0), (1.0, -3.0), (f64::NAN, 1.0)] {
        let mut bad = self::split(SplitMode::Auto);
        bad.split.link_bytes_per_s = Some(link);
        bad.split.accelerator_samples_per_s = Some(accelerator);
        let error = Loader::new(near(), Some(&recipe()), bad).unwrap_err();
        assert!(error.to_string().contains("must be above 0"), "{error}");
    }
}
