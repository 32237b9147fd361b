//! The four techniques want different things of the same samples. What is promised where they meet, by letter:
//!
//! | | promise | held by |
//! |---|---|---|
//! | A | what a sample costs is what the store takes for it; a hit in a cache does not make it cheap | `a_hit_in_a_cache_makes_no_sample_cheap` |
//! | B | one selection decides who is trained; hot and cold are shares of what it chose | `one_selection_decides_and_the_cache_acts_on_what_it_chose` |
//! | C | selection prefers what is cheap to fetch, a cache holds what is dear | `what_is_dear_is_trained_less_often_when_fetching_is_slow`; core `foresight_prefers_what_saves_more_time_per_byte` |
//! | D | stand-ins are samples that this rank holds; who holds what stays | `cold_stand_ins_are_samples_of_the_rank_and_move_nothing`; `exchange::stand_ins_are_samples_of_the_rank` |
//! | E | all ranks have equally many batches, whatever is selected | `exchange::selection_keeps_ranks_even_and_at_home`; core `every_rank_trains_what_it_holds_and_all_train_equally_much` |
//! | F | a sample that is cached is fetched raw; nothing random is cached | `split::a_cache_here_keeps_raw_samples_only_and_a_full_one_asks_for_no_more`; `what_was_cached_is_cropped_anew_in_every_epoch` |
//! | G | one first epoch is the profile of everything | `one_first_epoch_serves_selection_cache_and_split` |
//! | H | a stand-in has its own id and label, feedback is about it, and who was asked for is as it was | `a_stand_in_teaches_about_itself_only` |
//! | I | everything that is decided changes at the epoch's boundary, under one number | `what_an_epoch_is_does_not_change_while_it_runs` |
//! | J | jobs share the bytes of a node and nothing else | `jobs_that_share_a_node_train_what_they_would_alone`; `node::two_jobs_share_no_stand_ins`; `exchange::trouble::a_second_process_on_a_slice_is_refused_on_every_rank` |
//! | K | no class vanishes, its share is told, and accuracy is watched | `every_class_keeps_its_floor_and_its_share_is_told`; `selection::a_class_whose_samples_look_alike_keeps_its_floor`; `guard` |
//! | L | the rate of learning goes by epochs, however few steps they have | train `the_rate_does_not_follow_the_number_of_steps` |

use crate::exchange;
use crate::loader::{data, options, photos, recipe};
use crate::serve::content;
use futures::future::BoxFuture;
use gristmill_core::cache::Policy;
use gristmill_core::family::Families;
use gristmill_core::plan::Shape;
use gristmill_core::score::Feedback;
use gristmill_core::select::Selection;
use gristmill_core::split::SplitPolicy;
use gristmill_node::access::{Access, Announcement, Embedded};
use gristmill_node::catalog::{Draft, SourceKind};
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Data, Loader, LoaderOptions};
use gristmill_node::node::{Ask, Node, NodeOptions, NodeReport, Served, Tier};
use gristmill_node::report::EpochReport;
use gristmill_node::selection::{Choice, FamilyUse};
use gristmill_node::split::{SplitMode, SplitOptions};
use gristmill_node::store::{MemoryStore, ObjectInfo, StoreOptions, ThrottleOptions, Throttled};
use gristmill_ops::Encoding;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Samples of these sizes in classes of ten, from a store that is slow as it is told.
fn slow(sizes: &[usize], throttle: ThrottleOptions) -> Arc<DataSet> {
    let mut draft = Draft::of_files("memory:", SourceKind::Folder, Encoding::Sniffed);
    draft.set_classes((0..sizes.len().div_ceil(10)).map(|class| format!("{class:03}")).collect());
    let mut objects = Vec::new();
    for (id, &bytes) in sizes.iter().enumerate() {
        let path = format!("{:03}/{id:05}", id / 10);
        let label = (id / 10) as u32;
        draft.push_file(&ObjectInfo { path: path.clone(), bytes: bytes as u64, version: 1 }, label).unwrap();
        objects.push((path, content(id as u32, bytes)));
    }
    let store = Arc::new(Throttled::new(Arc::new(MemoryStore::new(objects)), throttle).unwrap());
    Arc::new(DataSet::new(Arc::new(draft.into_catalog().unwrap()), store, 0, &|| false).unwrap())
}

fn latency(latency_ms: u64) -> ThrottleOptions {
    ThrottleOptions { latency_ms, ..ThrottleOptions::default() }
}

fn selecting(kind: &str, set: &[(&str, &str)]) -> LoaderOptions {
    let mut all = options();
    (all.shape, all.reads_in_flight) = (Shape::single(10), 16);
    all.selection.selection = Selection::named(kind).unwrap();
    set.iter().for_each(|(option, value)| all.selection.selection.set(option, value).unwrap());
    all
}

/// A trainer who gives each label this probability.
fn tell(choice: &Choice, ids: &[u32], p: fn(u32) -> f32) {
    let p_true: Vec<f32> = ids.iter().map(|&id| p(id)).collect();
    let p_rival: Vec<f32> = p_true.iter().map(|p| (1.0 - p) / 2.0).collect();
    let loss: Vec<f32> = p_true.iter().map(|p| -p.ln()).collect();
    let said = Feedback { ids, p_true: &p_true, p_rival: &p_rival, loss: &loss, entropy: None };
    choice.feedback(&said).unwrap();
}

/// To whom all samples are equally easy.
fn easy(_: u32) -> f32 {
    0.97
}

/// To whom two of three pairs are easy, and nobody as the others.
fn uneven(id: u32) -> f32 {
    if (id / 2).is_multiple_of(3) { 0.5 } else { 0.9 - 1e-5 * id as f32 }
}

/// The ids and labels of an epoch in order, and its report.
fn train(loader: &Loader, epoch: u64, p: fn(u32) -> f32) -> (Vec<(u32, u32)>, EpochReport) {
    let mut running = loader.epoch(epoch, 0).unwrap();
    let mut seen = Vec::new();
    while let Some(batch) = running.next_batch().unwrap() {
        if let Some(choice) = loader.choice() {
            tell(choice, &batch.ids, p);
        }
        seen.extend(batch.ids.iter().copied().zip(batch.labels.iter().copied()));
    }
    running.end();
    (seen, running.report())
}

fn ids(seen: &[(u32, u32)]) -> BTreeSet<u32> {
    seen.iter().map(|(id, _)| *id).collect()
}

/// A node as its job sees it, and what it was told and asked.
#[derive(Debug)]
struct Watched {
    access: Embedded,
    told: Mutex<Vec<Announcement>>,
    asked: Mutex<Vec<Ask>>,
}

impl Watched {
    fn join(set: &Arc<DataSet>, options: NodeOptions) -> Arc<Watched> {
        let node = Arc::new(Node::new(Arc::clone(set), options).unwrap());
        let access = Embedded::join(node, "test").unwrap();
        Arc::new(Watched { access, told: Mutex::default(), asked: Mutex::default() })
    }
}

impl Access for Watched {
    fn at_hand(&self, ask: Ask) -> Option<Served> {
        let served = self.access.at_hand(ask);
        if served.is_some() {
            self.asked.lock().unwrap().push(ask);
        }
        served
    }

    fn fetch(&self, ask: Ask) -> BoxFuture<'_, gristmill_node::Result<Served>> {
        self.asked.lock().unwrap().push(ask);
        self.access.fetch(ask)
    }

    fn immediate(&self) -> bool {
        self.access.immediate()
    }

    fn announce(&self, announcement: Announcement) -> gristmill_node::Result<()> {
        self.told.lock().unwrap().push(announcement.clone());
        self.access.announce(announcement)
    }

    fn learn(&self, ids: &[u32], wanted: &[f32]) {
        self.access.learn(ids, wanted);
    }

    fn report(&self) -> Option<NodeReport> {
        self.access.report()
    }

    fn hot_share(&self) -> Option<f64> {
        self.access.hot_share()
    }
}

/// A.
#[test]
fn a_hit_in_a_cache_makes_no_sample_cheap() {
    let set = slow(&[1_000; 120], latency(4));
    let bytes = 120 * 1_128 / 2;
    let access = Watched::join(&set, NodeOptions::new(Policy::Static, bytes));
    let loader = Loader::new(set, None, selecting("active-bias", &[])).unwrap().with_access(Some(access));
    let (mut reads, mut hits) = (0, 0);
    for epoch in 0..4 {
        let (_, report) = train(&loader, epoch, easy);
        let of =
            |tier: Tier| report.tiers.iter().filter(move |used| used.tier == tier).map(|used| used.samples);
        reads += of(Tier::Store).sum::<u64>();
        hits += of(Tier::Memory).sum::<u64>();
    }
    let times = loader.choice().unwrap().read_times();
    assert!(hits > 120 && reads + hits == 480, "{reads} reads, {hits} hits");
    assert_eq!(times.sums[0] as u64, reads, "every read is noted, and no hit");
    let (first, per_byte) = times.fit().unwrap();
    assert!(first + 1_000.0 * per_byte >= 0.004, "{first} s and {per_byte} s per byte");
}

/// B.
#[test]
fn one_selection_decides_and_the_cache_acts_on_what_it_chose() {
    let set = slow(&[1_000; 400], latency(0));
    let cache = NodeOptions { stand_ins: true, hot_share: 0.7, ..NodeOptions::new(Policy::Score, 100_000) };
    let access = Watched::join(&set, NodeOptions { prefetch_bytes_max: 0, ..cache });
    let iis = [("warmup", "1"), ("history", "64"), ("power", "1")];
    let loader = Loader::new(set, None, selecting("iis", &iis)).unwrap();
    let loader = loader.with_access(Some(Arc::clone(&access) as Arc<dyn Access>));
    let mut fewer = 0;
    for epoch in 0..6 {
        access.asked.lock().unwrap().clear();
        let (seen, report) = train(&loader, epoch, easy);
        let kept = report.selection.unwrap().kept;
        assert_eq!(seen.len(), kept as usize, "what is chosen is trained: nobody chooses once more");
        let asked = access.asked.lock().unwrap().clone();
        let told = access.told.lock().unwrap().pop().unwrap();
        let chosen: BTreeSet<u32> = told.order.iter().copied().collect();
        assert_eq!((chosen.len(), asked.len()), (kept as usize, kept as usize));
        assert!(asked.iter().all(|ask| chosen.contains(&ask.id.0)));
        let cold = asked.iter().filter(|ask| ask.cold).count() as f64;
        if kept < 400 {
            fewer += 1;
            let share = cold / f64::from(kept);
            // The probe is never cold, so there may be a little less than three tenths.
            assert!((0.2..=0.31).contains(&share), "{share} of what was chosen is cold");
        } else {
            assert!(cold == 0.0, "in an epoch of everything nobody is stood in for");
        }
    }
    assert!(fewer >= 3, "{fewer}");
}

/// C: the half of selection.
#[test]
fn what_is_dear_is_trained_less_often_when_fetching_is_slow() {
    let sizes: Vec<usize> = (0..240).map(|id| if id % 2 == 0 { 200 } else { 20_000 }).collect();
    // Ten milliseconds for a large one: a busy machine adds some to each read, and must not make them alike.
    let throttle = ThrottleOptions { bytes_per_s: Some(2_000_000), ..latency(1) };
    let set = slow(&sizes, throttle);
    let mut how = selecting("weighted", &[("full_share", "0"), ("least", "0.05"), ("wrong_max", "1")]);
    how.reads_in_flight = 1; // side by side, small ones wait for large ones
    let loader = Loader::new(set, None, how).unwrap();
    let mut times = [0_u32; 2];
    for epoch in 0..9 {
        let (seen, report) = train(&loader, epoch, uneven);
        let facts = report.selection.unwrap();
        assert_eq!(facts.io_bound, epoch > 0, "{}", facts.bottleneck);
        // In the second epoch nobody was seen twice, and half of all easy ones come whatever they cost.
        let easy = seen.iter().filter(|(id, _)| epoch > 1 && uneven(*id) > 0.8);
        easy.for_each(|(id, _)| times[*id as usize % 2] += 1);
    }
    let [cheap, dear] = times.map(f64::from);
    assert!(cheap > 0.0 && dear < 0.85 * cheap, "{dear} dear ones and {cheap} cheap ones");
}

/// D.
#[test]
fn cold_stand_ins_are_samples_of_the_rank_and_move_nothing() {
    let set = exchange::set(1_800);
    let mut options = exchange::options(3, 8, exchange::settings(0.3));
    options.selection = selecting("iis", &[("warmup", "1"), ("history", "64"), ("power", "1")]).selection;
    let run = |cached: bool| {
        exchange::ranks(&set, &options, |rank, loader| {
            let mut loader = loader.unwrap();
            let cache =
                NodeOptions { stand_ins: true, hot_share: 0.1, ..NodeOptions::new(Policy::Score, 40_000) };
            let node = Arc::new(Node::new(loader.shared_set(), cache).unwrap());
            if cached {
                let access = Embedded::join(Arc::clone(&node), "test").unwrap();
                loader = loader.with_access(Some(Arc::new(access)));
            }
            let mut held = Vec::new();
            for epoch in 0..8 {
                let owners = loader.exchanger().unwrap().owners(epoch);
                let seen = exchange::train(&loader, epoch, usize::MAX).unwrap();
                let owners = owners.unwrap();
                let owned = owners.held(rank);
                assert!(seen.ids().iter().all(|id| owned.contains(id)), "rank {rank}, epoch {epoch}");
                if epoch == 0 {
                    // Everything was trained, so the same is said with and without a cache; and then no more.
                    tell(loader.choice().unwrap(), &seen.ids(), uneven);
                }
                held.push(seen.held);
            }
            (held, node.report().stand_ins)
        })
    };
    let (plain, cached) = (run(false), run(true));
    assert!(cached.iter().any(|(_, stand_ins)| *stand_ins > 0), "somebody stood in");
    for (plain, cached) in plain.iter().zip(&cached) {
        assert_eq!(plain.0, cached.0, "who holds what is the same");
    }
}

/// F: what is cached has had no random op.
#[test]
fn what_was_cached_is_cropped_anew_in_every_epoch() {
    let set = data(photos(), &StoreOptions::default());
    let access = Watched::join(&set, NodeOptions::new(Policy::Static, 64 << 20));
    let plain = Loader::new(Arc::clone(&set), Some(&recipe()), options()).unwrap();
    let cached = Loader::new(set, Some(&recipe()), options()).unwrap().with_access(Some(access));
    let mut before: Vec<Vec<u8>> = vec![Vec::new(); 90];
    for epoch in 0..3 {
        let both = cached.epoch(epoch, 0).unwrap().zip(plain.epoch(epoch, 0).unwrap());
        for (cached, plain) in both {
            let (cached, plain) = (cached.unwrap(), plain.unwrap());
            let (Data::Tensor(cached_pixels), Data::Tensor(pixels)) = (&cached.data, &plain.data) else {
                panic!("there is a recipe")
            };
            assert!(cached.ids == plain.ids && cached_pixels.bytes() == pixels.bytes(), "epoch {epoch}");
            let each = cached_pixels.bytes().chunks_exact(cached_pixels.output().bytes());
            for (&id, pixels) in cached.ids.iter().zip(each) {
                let old = std::mem::replace(&mut before[id as usize], pixels.to_vec());
                assert!(old != pixels, "sample {id} was cropped as in the epoch before");
            }
        }
    }
}

/// G.
#[test]
fn one_first_epoch_serves_selection_cache_and_split() {
    let server = crate::split::serve(crate::split::serve_options());
    let set = crate::split::behind(&server, gristmill_node::client::ClientOptions::default());
    let mode = SplitMode::Policy(SplitPolicy::Best);
    let mut how = selecting("weighted", &[("full_share", "0")]);
    how.split = SplitOptions { mode, link_bytes_per_s: Some(2e6), ..SplitOptions::default() };
    let bytes = set.catalog().total_bytes().unwrap();
    let node = Node::new(Arc::clone(&set), NodeOptions::new(Policy::Foresight, bytes * 3 / 10)).unwrap();
    let access: Arc<dyn Access> = Arc::new(Embedded::join(Arc::new(node), "test").unwrap());
    let loader = Loader::new(set, Some(&recipe()), how).unwrap().with_access(Some(access));
    let (seen, first) = train(&loader, 0, easy);
    assert_eq!(ids(&seen).len(), 90, "the profile is of everything");
    assert_eq!(first.split.as_ref().unwrap().wanted, 0, "and nothing is split meanwhile");
    assert!(first.hit_ratio().unwrap() < 0.1, "{first}");
    let (seen, second) = train(&loader, 1, easy);
    let facts = second.selection.as_ref().unwrap();
    assert!(ids(&seen).len() < 90 && !facts.bottleneck.is_empty(), "scores and bottleneck are known");
    assert!(second.hit_ratio().unwrap() > 0.1, "the cache is filled: {second}");
    let split = second.split.as_ref().unwrap();
    assert!(split.wanted > 0 && split.predicted_s.is_some(), "the split is decided: {split:?}");
}

/// H.
#[test]
fn a_stand_in_teaches_about_itself_only() {
    let set = slow(&[500; 300], latency(0));
    // Relatives across classes, so that labels tell who was served.
    let hashes: Vec<u64> = (0..300_u64).map(|id| (id % 30 + 1) << 30).collect();
    let labels: Vec<u32> = (0..300).map(|id| id / 10).collect();
    let families = Arc::new(Families::group(&hashes, &labels, 0, true).unwrap());
    let mut how = selecting("infobatch", &[]);
    how.selection.families = FamilyUse::Repeat;
    let loader = Loader::new(set, None, how).unwrap().with_families(families).unwrap();
    let choice = loader.choice().unwrap();
    let (seen, report) = train(&loader, 0, easy);
    assert!(seen.iter().all(|(id, label)| *label == id / 10), "its own label");
    let served = ids(&seen);
    let stand_ins = report.selection.unwrap().stand_ins as usize;
    assert!(stand_ins > 20 && served.len() == 300 - stand_ins, "{stand_ins} of 300, {}", served.len());
    // Who was only asked for is unknown as before, and infobatch keeps the unknown for certain.
    let active = choice.decide(1, Shape::single(10), true).unwrap().active;
    let asked: Vec<u32> = (0..300).filter(|id| !served.contains(id)).collect();
    assert!(
        active.len() < 290 && asked.iter().all(|id| active.binary_search(id).is_ok()),
        "{}",
        active.len()
    );
}

/// I.
#[test]
fn what_an_epoch_is_does_not_change_while_it_runs() {
    let set = slow(&[800; 300], latency(0));
    let access = Watched::join(&set, NodeOptions::new(Policy::Foresight, 100_000));
    let loader = Loader::new(set, None, selecting("weighted", &[("full_share", "0")])).unwrap();
    let loader = loader.with_access(Some(Arc::clone(&access) as Arc<dyn Access>));
    for epoch in 0..4 {
        let mut running = loader.epoch(epoch, 0).unwrap();
        let plan = loader.plan(epoch).unwrap();
        let told = loader.choice().unwrap().chosen().unwrap();
        while let Some(batch) = running.next_batch().unwrap() {
            tell(loader.choice().unwrap(), &batch.ids, easy);
            let place = batch.index;
            let expected: Vec<u32> = plan.batch(place).map(|id| id.0).collect();
            assert_eq!(batch.ids, expected);
            assert_eq!(loader.plan(epoch).unwrap().order(), plan.order(), "after batch {place}");
        }
        let now = loader.choice().unwrap().chosen().unwrap();
        assert_eq!((now.kept, now.reason, now.threshold), (told.kept, told.reason, told.threshold));
        let announced = access.told.lock().unwrap();
        let epochs: Vec<u64> = announced.iter().map(|told| told.epoch).collect();
        assert_eq!(epochs, (0..=epoch).collect::<Vec<_>>(), "one announcement per epoch, with its number");
        assert_eq!(announced[epoch as usize].order.len(), plan.samples() as usize);
        drop(running);
    }
    assert_eq!(access.report().unwrap().jobs[0].epoch, 3);
    let error = loader.plan(1).unwrap_err();
    assert!(error.to_string().contains("epoch 1 is past"), "{error}");
}

/// J.
#[test]
fn jobs_that_share_a_node_train_what_they_would_alone() {
    let set = slow(&[1_000; 240], latency(0));
    let ways = [("weighted", 0), ("uniform", 1), ("infobatch", 0)];
    let loader = |(kind, rank): (&str, u32), access: Option<Arc<dyn Access>>| {
        let mut how = selecting(kind, &[]);
        how.shape = Shape { rank, world: if kind == "uniform" { 2 } else { 1 }, ..how.shape };
        Loader::new(Arc::clone(&set), None, how).unwrap().with_access(access)
    };
    let run = |loaders: &[Loader]| -> Vec<Vec<(u32, u32)>> {
        let one = |epoch: u64| loaders.iter().map(move |loader| train(loader, epoch, easy).0);
        (0..4).flat_map(one).collect()
    };
    let alone = run(&ways.map(|way| loader(way, None)));
    let cache = NodeOptions { stand_ins: true, hot_share: 0.2, ..NodeOptions::new(Policy::Score, 300_000) };
    let node = Arc::new(Node::new(Arc::clone(&set), cache).unwrap());
    let join = || Some(Arc::new(Embedded::join(Arc::clone(&node), "job").unwrap()) as Arc<dyn Access>);
    let together = run(&ways.map(|way| loader(way, join())));
    assert!(alone == together, "another job changes nothing of what one trains");
    let report = node.report();
    assert_eq!(report.stand_ins, 0);
    let all: u64 = report.served.iter().sum();
    assert!(report.store_bytes < all * 1_000 / 3, "{} bytes for {all} samples", report.store_bytes);
}

/// K.
#[test]
fn every_class_keeps_its_floor_and_its_share_is_told() {
    let set = slow(&[100; 400], latency(0));
    let mut how = selecting("proxy", &[("warmup", "1"), ("share", "0.1")]);
    (how.selection.class_floor, how.selection.probe_share) = (0.2, 0.05);
    let loader = Loader::new(set, None, how).unwrap();
    train(&loader, 0, easy);
    for epoch in 1..4 {
        let (seen, report) = train(&loader, epoch, easy);
        let facts = report.selection.clone().unwrap();
        assert!(facts.kept < 200 && facts.for_classes > 0, "{facts:?}");
        assert_eq!(facts.class_shares.len(), 40);
        for class in 0..40_u32 {
            let kept = ids(&seen).iter().filter(|id| *id / 10 == class).count();
            assert!(kept >= 2, "class {class} has {kept} of 10");
            assert!((facts.class_shares[class as usize] - kept as f32 / 10.0).abs() < 1e-6);
        }
        assert!(report.to_string().contains("classes keep 20 to"), "{report}");
        assert!(facts.probe.is_none() || epoch > 1, "a small model's accuracy is not the real one's");
    }
}
