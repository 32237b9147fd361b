//! `serve` and `status` as a user meets them: a real process, real sockets, signals.

use crate::{Place, Ran, text};
use futures::executor::block_on;
use gristmill_core::SampleId;
use gristmill_node::client::{Client, ClientOptions};
use gristmill_node::config::Config;
use gristmill_node::loader::{Data, Loader};
use gristmill_node::node::Ask;
use gristmill_node::open;
use gristmill_node::token::Token;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A serving process; killed if a test fails before it ends.
struct Serving {
    child: Child,
    said: serde_json::Value,
}

impl Serving {
    fn start(place: &Place, more: &[&str]) -> Serving {
        let photos = text(&place.path("photos")).to_string();
        let args = [&["serve", photos.as_str(), "--json"], more].concat();
        let mut child = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Serving { said: serde_json::from_str(&line).expect("it says where it listens"), child }
    }

    fn url(&self) -> &str {
        self.said["tcp"].as_str().unwrap()
    }

    fn end(mut self, signal: Signal) -> Ran {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let asked = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(asked.elapsed() < Duration::from_secs(12), "it ends soon");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut words = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut words).unwrap();
        Ran { code: self.child.wait().unwrap().code(), out: String::new(), err: words }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn asks(ids: std::ops::Range<u32>) -> Vec<Ask> {
    ids.map(|id| Ask { id: SampleId(id), cold: false }).collect()
}

#[test]
fn it_serves_shows_its_status_and_drains_on_sigterm() {
    let place = Place::new();
    place.photos(20);
    fs::write(place.path("token"), "0123456789abcdef0123\n").unwrap();
    let socket = place.path("node.sock");
    // Reads take a while, so that some are in flight when the signal comes.
    let serving = Serving::start(
        &place,
        &[
            "--listen",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--unix",
            text(&socket),
            "--token-file",
            "token",
            "--set",
            "store.throttle_latency_ms=700",
        ],
    );
    assert_eq!((&serving.said["name"], &serving.said["samples"]), (&"photos".into(), &20.into()));
    let token = Some(Token::new("0123456789abcdef0123").unwrap());
    let options = ClientOptions { token, ..ClientOptions::default() };
    let client = Client::connect(serving.url(), options.clone()).unwrap();
    let unix = Client::connect(serving.said["unix"].as_str().unwrap(), options).unwrap();
    assert!(block_on(unix.fetch(&asks(0..3))).unwrap().iter().all(Result::is_ok));

    let ran = place.run(&["status", serving.url(), "--token-file", "token"]).good();
    for words in ["connections", "photos (20 samples", "3 samples"] {
        assert!(ran.out.contains(words), "{words:?} is missing in\n{}", ran.out);
    }
    let report = &place.run(&["status", serving.url(), "--token-file", "token", "--json"]).good().json()[0];
    assert_eq!((&report["samples"], &report["sets"][0]["name"]), (&3.into(), &"photos".into()));
    place.run(&["status", serving.url()]).bad(2, &["token is missing or wrong"]);
    place.run(&["status", "grist://127.0.0.1:1"]).bad(1, &["grist://127.0.0.1:1", "connection refused"]);
    place.run(&["status", "nonsense"]).bad(2, &["is not the URL of a node"]);

    let asking = client.clone();
    let fetch = std::thread::spawn(move || block_on(asking.fetch(&asks(0..20))));
    std::thread::sleep(Duration::from_millis(200));
    let ran = serving.end(Signal::TERM);
    assert!(ran.code == Some(0) && ran.err.contains("finishing what is in flight"), "{}", ran.err);
    let came = fetch.join().unwrap().expect("what was in flight is finished");
    assert!(came.iter().all(Result::is_ok));
    assert!(!socket.exists(), "the socket is removed");
}

#[test]
fn what_cannot_be_served_is_said_and_ctrl_c_ends_it() {
    let place = Place::new();
    place.photos(20);
    let photos = place.path("photos");
    place.run(&["serve", text(&photos), "--listen", "0.0.0.0:0"]).bad(2, &["without a token"]);
    place.run(&["serve", text(&photos), "--token-file", "none"]).bad(2, &["token file", "none"]);
    place.run(&["serve", text(&photos), "--name", "a/b"]).bad(2, &["not a name for a data set"]);
    place.run(&["serve", text(&photos), "--tls-cert", "x.pem"]).bad(2, &["one of them is missing"]);
    place.run(&["serve", "nothing"]).bad(1, &["nothing"]);
    let serving = Serving::start(&place, &["--listen", "127.0.0.1:0"]);
    let at = serving.url().trim_start_matches("grist://").split('/').next().unwrap().to_string();
    place.run(&["serve", text(&photos), "--listen", &at]).bad(1, &["already in use", &at]);
    // An idle client does not hold it up.
    let _client = Client::connect(serving.url(), ClientOptions::default()).unwrap();
    assert_eq!(serving.end(Signal::INT).code, Some(0));
}

/// A program that starts a node holds its input open. When it is gone, however it ended, so is the node.
#[test]
fn a_node_ends_with_the_program_that_started_it() {
    let place = Place::new();
    place.photos(60);
    let photos = text(&place.path("photos")).to_string();
    let mut command =
        place.command(&["serve", &photos, "--json", "--listen", "127.0.0.1:0", "--while-stdin"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("grist://"), "it says where it listens: {line:?}");
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it serves as long as its input is open");
    drop(child.stdin.take());
    let asked = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(asked.elapsed() < Duration::from_secs(12), "it ends soon");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
}

/// The ids and bytes of an epoch, in order.
fn epoch(loader: &Loader, epoch: u64, mut after_batch: impl FnMut(usize)) -> Vec<(u32, bytes::Bytes)> {
    let mut all = Vec::new();
    for (index, batch) in loader.epoch(epoch, 0).unwrap().enumerate() {
        let batch = batch.unwrap();
        let Data::Raw(raw) = &batch.data else { panic!("no recipe, no tensors") };
        all.extend(batch.ids.iter().copied().zip(raw.iter().cloned()));
        after_batch(index);
    }
    all
}

/// A node is killed at 20 moments of some epochs and started again, with and without a disk: what is trained on stays
/// the same, the node is used again, and with a disk it comes back warm.
#[test]
fn kill_9_of_the_node_changes_nothing_but_the_time() {
    for disk in [false, true] {
        let place = Place::new();
        let photos = text(&place.photos(60)).to_string();
        let cache = format!("{}:64MiB", text(&place.path("cache")));
        let mut more = vec!["--memory", "30%", "--listen", "127.0.0.1:0"];
        if disk {
            more.extend(["--disk", &cache]);
        }
        let mut serving = Serving::start(&place, &more);
        let url = serving.url().to_string();
        let at = url.trim_start_matches("grist://").split('/').next().unwrap().to_string();
        *more.iter_mut().find(|word| **word == "127.0.0.1:0").unwrap() = &at;

        let folder = text(&place.path("catalogs")).to_string();
        let settings = |cache: &str| {
            let pairs = [("catalog.folder", &*folder), ("cache.size", cache), ("loader.batch", "10")];
            let slow = [("store.throttle_latency_ms", "3"), ("store.reads_in_flight", "8")];
            let pairs: Vec<_> = pairs.iter().chain(&slow).map(|(k, v)| ((*k).into(), (*v).into())).collect();
            Config::load(None, &pairs).unwrap().settings().clone()
        };
        let open = |cache: &str| {
            let settings = settings(cache);
            let opened =
                open::catalog(&photos, &settings, false, &mut |_| ControlFlow::Continue(())).unwrap();
            let set = Arc::new(open::data_set(opened.catalog, &settings, &|| false).unwrap());
            let access = open::access(&set, &settings, "test").unwrap();
            Loader::new(set, None, settings.loader()).unwrap().with_access(access)
        };
        let (plain, shared) = (open("off"), open(&url));
        let mut kills = 0;
        let mut number = 0;
        while kills < 20 {
            let seen = epoch(&shared, number, |index| {
                // Not at every batch and never at the same ones.
                if kills < 20 && (index as u64 * 7 + number * 3).is_multiple_of(4) {
                    serving.child.kill().unwrap();
                    serving.child.wait().unwrap();
                    serving = Serving::start(&place, &more);
                    kills += 1;
                }
            });
            assert!(seen == epoch(&plain, number, |_| ()), "epoch {number} changed");
            number += 1;
        }
        let on_disk = |url: &str| {
            let report = &place.run(&["status", url, "--json"]).good().json()[0];
            report["sets"][0]["node"]["disk_entries"].as_u64().unwrap_or(0)
        };
        // Back-off included, it is used again: it has samples to give.
        let back = Instant::now();
        while served(&place, &url) == 0 || disk && on_disk(&url) <= 40 {
            assert!(back.elapsed() < Duration::from_secs(20), "the restarted node is not used again");
            assert!(epoch(&shared, number, |_| ()) == epoch(&plain, number, |_| ()));
            number += 1;
        }
        if disk {
            serving.child.kill().unwrap();
            serving.child.wait().unwrap();
            serving = Serving::start(&place, &more);
            let entries = on_disk(serving.url());
            assert!(entries > 30, "the disk is not warm: {entries} of 60 samples");
        }
    }
}

/// What a loader keeps, or a node for it, is measured with it.
#[test]
fn bench_load_reads_through_the_cache_it_is_told() {
    let place = Place::new();
    let photos = text(&place.photos(40)).to_string();
    let socket = text(&place.path("s.sock")).to_string();
    let serving = Serving::start(&place, &["--memory", "100%", "--listen", "127.0.0.1:0", "--unix", &socket]);
    let shared = format!("cache.size=grist+unix://{socket}");
    let second = |cache: &str| {
        let load = ["bench", "load", &photos, "--recipe", "none", "--epochs", "2", "--set", cache, "--json"];
        let bytes = place.run(&load).good().json()[1]["bytes"].as_u64();
        bytes.unwrap()
    };
    assert!(second("cache.size=off") > 0);
    assert_eq!(second("cache.size=64MiB"), 0, "all of it is kept");
    second(&shared);
    assert_eq!(served(&place, serving.url()), 80);
}

/// Three nodes share a cache; one is killed, one is stopped so that it hangs, one is slow: only the time changes.
#[test]
fn a_dead_a_hanging_and_a_slow_peer_change_nothing() {
    let place = Place::new();
    let photos = text(&place.photos(40)).to_string();
    let ports: Vec<u16> = (0..3)
        .map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap())
        .collect::<Vec<_>>()
        .iter()
        .map(|held| held.local_addr().unwrap().port())
        .collect();
    let urls: Vec<String> = ports.iter().map(|port| format!("grist://127.0.0.1:{port}/photos")).collect();
    let list = urls.join(",");
    let start = |at: usize| {
        let listen = format!("127.0.0.1:{}", ports[at]);
        let mut more =
            vec!["--memory", "100%", "--listen", &listen, "--peers", &list, "--advertise", &urls[at]];
        more.extend(["--set", "store.throttle_latency_ms=15"]);
        Serving::start(&place, &more)
    };
    let (first, second, mut third) = (start(0), start(1), start(2));
    let up = |url: &str| {
        let report = place.run(&["status", url, "--json"]).good().json().remove(0);
        report["sets"][0]["node"]["peers_up"].as_u64().unwrap()
    };
    let begun = Instant::now();
    while up(&urls[0]) < 3 {
        assert!(begun.elapsed() < Duration::from_secs(20), "the nodes do not find each other");
    }
    let folder = text(&place.path("catalogs")).to_string();
    let open = |cache: &str| {
        let pairs = [("catalog.folder", folder.as_str()), ("cache.size", cache), ("loader.batch", "8")];
        let pairs: Vec<_> = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let settings = Config::load(None, &pairs).unwrap().settings().clone();
        let go_on = &mut |_| ControlFlow::Continue(());
        let opened = open::catalog(&photos, &settings, false, go_on).unwrap();
        let set = Arc::new(open::data_set(opened.catalog, &settings, &|| false).unwrap());
        let access = open::access(&set, &settings, "test").unwrap();
        Loader::new(set, None, settings.loader()).unwrap().with_access(access)
    };
    let (plain, shared) = (open("off"), open(&urls[0]));
    assert!(epoch(&shared, 0, |_| ()) == epoch(&plain, 0, |_| ()));
    kill_process(Pid::from_child(&second.child), Signal::STOP).unwrap();
    third.child.kill().unwrap();
    let begun = Instant::now();
    for number in 1..4 {
        assert!(epoch(&shared, number, |_| ()) == epoch(&plain, number, |_| ()), "epoch {number} changed");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    kill_process(Pid::from_child(&second.child), Signal::CONT).unwrap();
    drop(first);
}

/// Samples that a node has served.
fn served(place: &Place, url: &str) -> u64 {
    place.run(&["status", url, "--json"]).good().json()[0]["samples"].as_u64().unwrap()
}

/// The batches of some epochs of a loader on a node, and what the last report says of the split.
fn split_epochs(place: &Place, url: &str, policy: &str, epochs: u64) -> (Vec<u64>, String) {
    let catalogs = place.path("catalogs");
    let settings = [
        ("split.policy", policy),
        ("split.link_bytes_per_s", "1MB"),
        ("catalog.folder", text(&catalogs)),
        ("loader.batch", "10"),
    ];
    let settings = settings.map(|(key, value)| (key.to_string(), value.to_string()));
    let config = Config::load(None, &settings).unwrap();
    let opened = open::catalog(url, config.settings(), false, &mut |_| ControlFlow::Continue(())).unwrap();
    let set = Arc::new(open::data_set(opened.catalog, config.settings(), &|| false).unwrap());
    let recipe = open::recipe("imagenet-train").unwrap();
    let loader = Loader::new(set, recipe.as_ref(), config.settings().loader()).unwrap();
    let (mut prints, mut said) = (Vec::new(), String::new());
    for epoch in 0..epochs {
        let mut running = loader.epoch(epoch, 0).unwrap();
        while let Some(batch) = running.next_batch().unwrap() {
            prints.push(batch.fingerprint());
        }
        running.end();
        said = running.report().to_string();
    }
    (prints, said)
}

#[test]
fn a_node_runs_ops_with_the_cores_it_is_given() {
    let place = Place::new();
    place.photos(60);
    let serving = Serving::start(&place, &["--listen", "127.0.0.1:0", "--cores", "1.5"]);
    let (plain, _) = split_epochs(&place, serving.url(), "none", 2);
    let (best, said) = split_epochs(&place, serving.url(), "best", 2);
    assert_eq!(best, plain, "the same pixels wherever samples are cut");
    assert!(said.contains("split best") && said.contains("over the link instead of"), "{said}");
    let ran = place.run(&["status", serving.url()]).good();
    for words in ["1.5 cores", "stages", "cut ("] {
        assert!(ran.out.contains(words), "{words:?} is missing in\n{}", ran.out);
    }
    drop(serving);
    let idle = Serving::start(&place, &["--listen", "127.0.0.1:0", "--cores", "0"]);
    let (raw, said) = split_epochs(&place, idle.url(), "best", 2);
    assert!(raw == plain && said.contains("no cores"), "{said}");
    let photos = place.path("photos");
    for cores in ["-1", "many", "nan", "1e9"] {
        place.run(&["serve", text(&photos), "--cores", cores]).bad(2, &["serve.cores", "0.5"]);
    }
}
