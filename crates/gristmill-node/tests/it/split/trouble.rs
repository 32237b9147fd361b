//! Nodes that are busy, old, strange, without cores, or gone: raw samples, the same pixels, and a reason.

use super::*;
use gristmill_node::wire::{
    Failure, Greeting, HEADER_BYTES, Header, Hello, Prepare, Prepared, VERSION, Verb,
};
use gristmill_node::wire::{end_frame, put_frame};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

const LIMITS: Limits = Limits { pixels_max: 1 << 24, scratch_bytes_max: usize::MAX };

fn wait(what: &str, fine: impl Fn() -> bool) {
    let start = Instant::now();
    while !fine() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One message of the node.
fn heard(stream: &mut TcpStream) -> (Header, Vec<u8>) {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let header = Header::decode(&header, 1 << 20).unwrap();
    let mut body = vec![0; header.bytes as usize];
    stream.read_exact(&mut body).unwrap();
    (header, body)
}

fn say(stream: &mut TcpStream, verb: Verb, fill: impl FnOnce(&mut bytes::BytesMut)) {
    let mut out = bytes::BytesMut::new();
    let start = put_frame(&mut out, verb, 1);
    fill(&mut out);
    end_frame(&mut out, start, 0);
    stream.write_all(&out).unwrap();
}

/// Hands over any text as a recipe.
fn prepare(server: &Server, recipe: &str, build: &str, peer: bool) -> gristmill_node::Result<Prepared> {
    let mut stream = TcpStream::connect(server.tcp().unwrap()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (header, body) = heard(&mut stream);
    assert_eq!(header.request, u32::from(VERSION), "the node says its version where a number would stand");
    Greeting::decode(&body).unwrap();
    let hello = Hello { proof: [0; 32], digest: None, name: String::new(), job: "raw".into(), peer };
    say(&mut stream, Verb::Hello, |out| hello.encode(out));
    assert_eq!(heard(&mut stream).0.verb, Verb::Welcome);
    let prepare = Prepare {
        build: build.into(),
        pixels_max: 1 << 24,
        scratch_bytes_max: 1 << 40,
        recipe: recipe.into(),
    };
    say(&mut stream, Verb::Prepare, |out| prepare.encode(out));
    let (header, body) = heard(&mut stream);
    match header.verb {
        Verb::Prepared => Prepared::decode(&body),
        Verb::Failed => Err(Failure::decode(&body).unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_overloaded_pool_sends_raw_samples() {
    for (op_queue_max, op_queue_bytes_max) in [(0, 1 << 20), (1, 1 << 20), (256, 10)] {
        let busy = ServeOptions { cores: Some(0.05), op_queue_max, op_queue_bytes_max, ..serve_options() };
        let server = serve(busy);
        let set = behind(&server, ClientOptions::default());
        let (got, report) = epoch(&loader(&set, split(SplitMode::Stage(Stage::Cropped))), 0);
        same(&got, &plain(0), "a busy node");
        let (split, ops) = (of(&report), server.report().ops);
        assert_eq!(ops.queue, 0);
        assert!(ops.busy > 0 && short(split, Shortfall::Busy) == ops.busy, "{split:?} {ops:?}");
        assert_eq!(at_stage(split, Stage::Raw), ops.busy, "{split:?}");
        assert!(report.to_string().contains("op queue was full"), "{report}");
    }
}

#[test]
fn a_node_that_takes_too_long_for_a_stage_is_asked_for_raw_bytes() {
    let slow = ServeOptions { cores: Some(0.02), ..serve_options() };
    let server = serve(slow);
    let impatient = ClientOptions { request_ms_max: 300, ..ClientOptions::default() };
    let set = behind(&server, impatient);
    let (got, report) = epoch(&loader(&set, split(SplitMode::Stage(Stage::Cropped))), 0);
    same(&got, &plain(0), "a slow node");
    let split = of(&report);
    assert!(short(split, Shortfall::Away) + short(split, Shortfall::Busy) > 0, "{split:?}");
}

#[test]
fn a_second_recipe_over_one_connection_comes_raw() {
    let server = serve(serve_options());
    let set = behind(&server, ClientOptions::default());
    let cut = || split(SplitMode::Stage(Stage::Cropped));
    let (got, report) = epoch(&loader(&set, cut()), 0);
    same(&got, &plain(0), "the first recipe");
    assert!(at_stage(of(&report), Stage::Cropped) > 0);
    // The same shape, other pixels: nobody but the node could tell them apart.
    let mut other = recipe();
    other.ops[1] = match other.ops[1] {
        Op::RandomResizedCrop { size, ratio, .. } => Op::RandomResizedCrop { size, scale: [0.9, 1.0], ratio },
        ref op => op.clone(),
    };
    let other_loader = |set: &Arc<DataSet>, options| Loader::new(set.clone(), Some(&other), options).unwrap();
    let (expected, _) = epoch(&other_loader(&near(), options()), 0);
    let (got, report) = epoch(&other_loader(&set, cut()), 0);
    same(&got, &expected, "the second recipe");
    assert!(of(&report).reason.contains("another recipe"), "{report}");
}

#[test]
fn old_strange_and_idle_nodes_mean_raw_samples_with_a_reason() {
    let old_client = ClientOptions { wire_version: 1, ..ClientOptions::default() };
    let other_codec = ClientOptions { build: "0/another codec", ..ClientOptions::default() };
    for (node, client, words) in [
        (ServeOptions { wire_version: 1, ..serve_options() }, ClientOptions::default(), "older version"),
        (serve_options(), old_client, "older version"),
        (ServeOptions { cores: Some(0.0), ..serve_options() }, ClientOptions::default(), "no cores"),
        (ServeOptions { build: "9/a codec to come", ..serve_options() }, ClientOptions::default(), "build"),
        (serve_options(), other_codec, "0/another codec"),
    ] {
        let server = serve(node);
        let set = behind(&server, client);
        let loader = loader(&set, split(SplitMode::Policy(SplitPolicy::Best)));
        for at in 0..2 {
            let (got, report) = epoch(&loader, at);
            same(&got, &plain(at), words);
            let split = of(&report);
            assert!(split.reason.contains(words) && split.wanted == 0, "{split:?}");
            assert!(report.to_string().contains(words), "{report}");
        }
        assert!(set.upstream().unwrap().client().is_up(), "the connection bears it");
        assert_eq!(server.report().cut_off, 0);
    }
}

#[test]
fn recipes_that_the_node_lacks_are_refused_with_a_sentence() {
    let server = serve(serve_options());
    let known = serde_json::to_string(&recipe()).unwrap();
    let build = gristmill_ops::BUILD;
    let mut giant = recipe();
    giant.ops[1] =
        Op::RandomResizedCrop { size: Size::Side(65_535), scale: [0.08, 1.0], ratio: [0.75, 1.33] };
    let giant = serde_json::to_string(&giant).unwrap();
    let flips = |many: usize| {
        let mut flips = recipe();
        flips.ops.splice(2..3, std::iter::repeat_n(Op::Flip { probability: 0.5 }, many - 1));
        serde_json::to_string(&flips).unwrap()
    };
    assert!(prepare(&server, &flips(61), build, false).is_ok(), "64 ops");
    assert_eq!(prepare(&server, &known, build, false).unwrap(), Prepared { handle: 0, cores: 2.0 });
    for (recipe, build, words) in [
        (r#"{"op":[{"kind":"decode"},{"kind":"warp","by":3}]}"#, build, "warp"),
        ("nonsense", build, "not a recipe"),
        (r#"{"op":[]}"#, build, "recipe"),
        (&giant, build, "bytes, and the node makes"),
        (&flips(62), build, "65 ops"),
        (known.as_str(), "2/other", "2/other"),
    ] {
        let error = prepare(&server, recipe, build, false).unwrap_err();
        assert!(error.to_string().contains(words), "{words:?} is missing in {error}");
    }
    let error = prepare(&server, &known, build, true).unwrap_err();
    assert!(error.to_string().contains("peer"), "{error}");
    // A client hands over one recipe, once.
    let client = Client::connect(&url(&server), ClientOptions::default()).unwrap();
    (0..20).for_each(|_| _ = block_on(client.prepare(&recipe(), LIMITS)).unwrap());
    let error = block_on(client.prepare(&small_crops(), LIMITS)).unwrap_err();
    assert!(error.to_string().contains("another recipe"), "{error}");
    block_on(client.ping()).unwrap();
}

#[test]
fn a_node_that_restarts_within_an_epoch_changes_nothing() {
    let server = serve(serve_options());
    let at = server.tcp().unwrap().to_string();
    let eager = ClientOptions { backoff_ms: 10, backoff_ms_max: 50, ..ClientOptions::default() };
    let set = behind(&server, eager);
    let mut slow = split(SplitMode::Stage(Stage::Cut));
    (slow.prefetch_batches, slow.reads_in_flight) = (0, 2);
    let loader = loader(&set, slow);
    let wanted = plain(0);
    let mut running = loader.epoch(0, 0).unwrap();
    let mut server = Some(server);
    let mut got = Vec::new();
    while let Some(batch) = running.next_batch().unwrap() {
        let Data::Tensor(tensor) = &batch.data else { panic!("there is a recipe") };
        got.push((batch.ids.clone(), tensor.bytes().to_vec()));
        if got.len() == 3 {
            drop(server.take());
            server = Some(serve(ServeOptions { listen: at.clone(), ..serve_options() }));
        }
    }
    same(&got, &wanted, "a restarted node");
    let report = running.report();
    assert!(server.unwrap().report().ops.cpu_s > 0.0, "the new one was handed the recipe again");
    assert!(at_stage(of(&report), Stage::Cut) > 40, "{:?}", report.split);
}

#[test]
fn a_shared_node_that_is_lost_leaves_the_work_to_the_store() {
    let server = serve(serve_options());
    let store = near();
    let access = Shared::join(&url(&server), ClientOptions::default(), store.clone()).unwrap();
    let mut slow = split(SplitMode::Stage(Stage::Cut));
    (slow.prefetch_batches, slow.reads_in_flight) = (0, 2);
    let loader = loader(&store, slow).with_access(Some(Arc::new(access)));
    let mut running = loader.epoch(0, 0).unwrap();
    let (mut got, mut server) = (Vec::new(), Some(server));
    while let Some(batch) = running.next_batch().unwrap() {
        let Data::Tensor(tensor) = &batch.data else { panic!("there is a recipe") };
        got.push((batch.ids.clone(), tensor.bytes().to_vec()));
        if got.len() == 4 {
            drop(server.take());
        }
    }
    same(&got, &plain(0), "a lost node");
    let report = running.report();
    let split = of(&report);
    assert!(at_stage(split, Stage::Cut) > 10 && short(split, Shortfall::Away) > 10, "{split:?}");
    assert!(report.fallbacks > 10 && report.to_string().contains("the node was away"), "{report}");
}

#[test]
fn stages_are_bounded_and_unknown_recipes_are_raw() {
    let limits =
        ServeOptions { connection_bytes_max: 4 << 20, bytes_in_flight_max: 32 << 20, ..serve_options() };
    let server = serve(limits);
    let set = near();
    let client = Client::connect(&url(&server), ClientOptions::default()).unwrap();
    let wish = |stage, bytes_max| Wish { stage, epoch: 5, seed: 11, bytes_max };
    let asks = |stage: Stage, bytes_max: u32| -> Vec<StagedAsk> {
        let ask =
            |id| StagedAsk { ask: Ask { id: SampleId(id), cold: false }, wish: Some(wish(stage, bytes_max)) };
        (0..90).map(ask).collect()
    };
    let fetch = |asks: &[StagedAsk]| -> Vec<Staged> {
        let came = block_on(client.fetch_staged(asks)).unwrap();
        came.into_iter().map(Result::unwrap).collect()
    };
    // Before the recipe is handed over everything is raw.
    for staged in fetch(&asks(Stage::Cropped, u32::MAX)) {
        assert_eq!((staged.stage, staged.shortfall), (Stage::Raw, Shortfall::Unprepared));
    }
    block_on(client.prepare(&recipe(), LIMITS)).unwrap();
    // Under a limit that no tensor fits, raw bytes come.
    for staged in fetch(&asks(Stage::Finished, 1_000)) {
        assert_eq!((staged.stage, staged.shortfall), (Stage::Raw, Shortfall::Sample));
        let size = set.catalog().size(staged.served.id).unwrap();
        assert_eq!(staged.served.bytes.len() as u32, size);
    }
    // 54 MB of tensors through 4 MiB of memory, each the one that is computed here.
    let pipeline = Pipeline::new(&recipe(), set.catalog().encoding(), LIMITS).unwrap();
    let (mut scratch, mut out) = (Scratch::new(), vec![0; pipeline.output().bytes()]);
    let watching = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while server.report().ops.stages[Stage::Finished as usize].samples < 90 {
                most = most.max(server.report().bytes_in_flight);
                std::thread::sleep(Duration::from_millis(1));
            }
            most
        });
        for staged in fetch(&asks(Stage::Finished, 1 << 20)) {
            assert_eq!(staged.stage, Stage::Finished);
            let draw = Draw { seed: 11, epoch: 5, sample: staged.served.id };
            let raw = set.read_now(staged.served.id).unwrap();
            pipeline.run(&mut scratch, draw, &raw, &mut out).unwrap();
            assert!(out == staged.served.bytes[..], "sample {}", staged.served.id);
        }
        watch.join().unwrap()
    });
    assert!(watching <= 4 << 20, "{watching} bytes were in flight");
    wait("all of it is given back", || server.report().bytes_in_flight == 0);
}

#[test]
fn a_fraction_of_a_core_is_not_exceeded() {
    let server = serve(ServeOptions { cores: Some(0.25), ..serve_options() });
    let set = behind(&server, ClientOptions::default());
    let (_, report) = epoch(&loader(&set, split(SplitMode::Stage(Stage::Cropped))), 0);
    let (split, ops) = (of(&report), server.report().ops);
    assert_eq!(at_stage(split, Stage::Cropped), 90, "{split:?}");
    let share = ops.cpu_s / split.measured_s;
    // The last sample is not waited for.
    assert!(share < 0.3, "{share:.3} of a core in {:.2} s", split.measured_s);
    assert!((ops.cpu_s - split.upstream_cpu_s).abs() < 0.01 * ops.cpu_s + 1e-3, "{ops:?} {split:?}");
}

/// Asks for these samples at a stage, whatever they have come to be in bytes.
fn fetch(client: &Client, ids: std::ops::Range<u32>, stage: Stage) -> Vec<Staged> {
    let wish = Some(Wish { stage, epoch: 5, seed: 11, bytes_max: u32::MAX });
    let ask = |id| StagedAsk { ask: Ask { id: SampleId(id), cold: false }, wish };
    let came = block_on(client.fetch_staged(&ids.map(ask).collect::<Vec<_>>())).unwrap();
    came.into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_sample_that_fails_under_the_limits_of_the_client_stays_raw() {
    let server = serve(serve_options());
    let (set, limits) = (near(), Limits { scratch_bytes_max: 500_000, ..LIMITS });
    let client = Client::connect(&url(&server), ClientOptions::default()).unwrap();
    block_on(client.prepare(&recipe(), limits)).unwrap();
    let pipeline = Pipeline::new(&recipe(), set.catalog().encoding(), limits).unwrap();
    let (mut scratch, mut out) = (Scratch::new(), vec![0; pipeline.output().bytes()]);
    let mut failed = 0;
    for staged in fetch(&client, 0..90, Stage::Cropped) {
        let raw = set.read_now(staged.served.id).unwrap();
        let draw = Draw { seed: 11, epoch: 5, sample: staged.served.id };
        let fails = pipeline.run(&mut scratch, draw, &raw, &mut out).is_err();
        assert_eq!(staged.stage == Stage::Raw, fails, "sample {}", staged.served.id);
        failed += u32::from(fails);
    }
    assert!((1..90).contains(&failed), "{failed} of 90 failed");
}

#[test]
fn raw_samples_do_not_wait_for_ops() {
    // The first sample is followed by a rest of about two seconds, in which the others wait.
    let server = serve(ServeOptions { cores: Some(0.01), bytes_in_flight_max: 4 << 20, ..serve_options() });
    let client = || Client::connect(&url(&server), ClientOptions::default()).unwrap();
    let (slow, quick) = (client(), client());
    block_on(slow.prepare(&recipe(), LIMITS)).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| fetch(&slow, 0..20, Stage::Cropped));
        wait("ops are under way", || server.report().ops.cpu_s > 0.0);
        let start = Instant::now();
        for id in 0..20 {
            let came = block_on(quick.fetch(&[Ask { id: SampleId(id), cold: false }])).unwrap();
            assert!(came[0].is_ok());
        }
        let took = start.elapsed();
        assert!(took < Duration::from_millis(500), "raw samples took {took:?}");
        let came = waiting.join().unwrap();
        let many = |stage, why| came.iter().filter(|one| (one.stage, one.shortfall) == (stage, why)).count();
        let (done, busy) = (many(Stage::Cropped, Shortfall::None), many(Stage::Raw, Shortfall::Busy));
        assert!(done > 0 && busy > 0 && done + busy == 20, "{done} done, {busy} busy");
    });
}

#[test]
fn almost_no_cores_are_refused() {
    let node = Arc::new(Node::new(near(), NodeOptions::new(Policy::Foresight, 64 << 20)).unwrap());
    for cores in [1e-30, 0.0099, -1.0, f64::NAN, 1e9] {
        let hosted = vec![Hosted { name: "photos".into(), node: node.clone() }];
        let error = Server::start(ServeOptions { cores: Some(cores), ..serve_options() }, None, hosted);
        assert!(error.unwrap_err().to_string().contains("serve.cores"), "{cores}");
    }
}
