//! A node behind real sockets: what is asked for comes, whatever the way, and what is wrong is said.

mod failure;
mod hostile;
mod lane;
mod limits;

use bytes::Bytes;
use futures::executor::block_on;
use gristmill_core::SampleId;
use gristmill_core::cache::Policy;
use gristmill_node::Kind;
use gristmill_node::catalog::{Catalog, Draft, SourceKind};
use gristmill_node::client::{Client, ClientOptions};
use gristmill_node::dataset::DataSet;
use gristmill_node::node::{Ask, Node, NodeOptions, Standing, Tier};
use gristmill_node::serve::{Hosted, ServeOptions, Server};
use gristmill_node::store::{MemoryStore, ObjectInfo, Store, ThrottleOptions, Throttled};
use gristmill_node::token::Token;
use gristmill_ops::Encoding;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TOKEN: &str = "a token for tests only";

/// The bytes of a sample: all of them different.
pub(super) fn content(id: u32, bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at as u32).wrapping_mul(31).wrapping_add(id.wrapping_mul(7_919)) as u8).collect()
}

/// The same store, with every read taking so long.
pub(super) fn with_latency(store: Arc<dyn Store>, latency_ms: u64) -> Arc<dyn Store> {
    if latency_ms == 0 {
        return store;
    }
    Arc::new(Throttled::new(store, ThrottleOptions { latency_ms, ..ThrottleOptions::default() }).unwrap())
}

/// A node over samples of these sizes in memory; with `latency_ms` every read takes that long.
fn node(sizes: &[usize], latency_ms: u64) -> Arc<Node> {
    let mut draft = Draft::of_files("memory:", SourceKind::Folder, Encoding::Sniffed);
    draft.set_classes(vec!["all".into()]);
    let mut objects = Vec::new();
    for (id, &bytes) in sizes.iter().enumerate() {
        let path = format!("all/{id}");
        draft.push_file(&ObjectInfo { path: path.clone(), bytes: bytes as u64, version: 1 }, 0).unwrap();
        objects.push((path, content(id as u32, bytes)));
    }
    let store = with_latency(Arc::new(MemoryStore::new(objects)), latency_ms);
    let catalog = Arc::new(draft.into_catalog().unwrap());
    let set = Arc::new(DataSet::new(catalog, store, 0, &|| false).unwrap());
    Arc::new(Node::new(set, NodeOptions::new(Policy::Foresight, 64 << 20)).unwrap())
}

fn options() -> ServeOptions {
    ServeOptions { listen: "127.0.0.1:0".into(), ..ServeOptions::default() }
}

fn start(options: ServeOptions, node: Arc<Node>) -> Server {
    let token = Some(Token::new(TOKEN).unwrap());
    Server::start(options, token, vec![Hosted { name: "train".into(), node }]).unwrap()
}

fn url(server: &Server) -> String {
    format!("grist://{}/train", server.tcp().unwrap())
}

fn with_token() -> ClientOptions {
    ClientOptions { token: Some(Token::new(TOKEN).unwrap()), ..ClientOptions::default() }
}

fn connect(server: &Server) -> Client {
    Client::connect(&url(server), with_token()).unwrap()
}

fn asks(ids: impl IntoIterator<Item = u32>) -> Vec<Ask> {
    ids.into_iter().map(|id| Ask { id: SampleId(id), cold: false }).collect()
}

#[track_caller]
fn check(client: &Client, sizes: &[usize], ids: &[u32]) {
    let came = block_on(client.fetch(&asks(ids.iter().copied()))).unwrap();
    assert_eq!(came.len(), ids.len());
    for (&id, served) in ids.iter().zip(came) {
        let served = served.unwrap();
        assert_eq!(served.id, SampleId(id));
        assert!(matches!(served.tier, Tier::Memory | Tier::Store), "{}", served.tier);
        assert!(served.bytes == content(id, sizes[id as usize]), "sample {id}");
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/serve").join(name)
}

/// From nothing to several megabytes, small ones between large ones.
fn sizes() -> Vec<usize> {
    let mut sizes: Vec<usize> = (0..300).map(|id| id * 37 % 5_000).collect();
    sizes.extend([0, 1, 16_383, 16_384, 110_000, 3, 5 << 20, 2, 110_000, 110_001]);
    sizes
}

#[test]
fn samples_come_whole_over_tcp_unix_and_tls() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = sizes();
    let node = node(&sizes, 0);
    let socket = folder.path().join("s.sock");
    let plain = start(ServeOptions { unix: socket.to_str().unwrap().into(), ..options() }, node.clone());
    let pem = |name: &str| fixture(name).to_str().unwrap().to_string();
    let tls = ServeOptions { tls_cert: pem("node.pem"), tls_key: pem("node.key"), ..options() };
    let tls = start(tls, node);
    let ca = ClientOptions { tls_ca: Some(fixture("ca.pem")), ..with_token() };
    let all: Vec<u32> = (0..sizes.len() as u32).collect();
    for (url, options) in [
        (url(&plain), with_token()),
        (format!("grist+unix://{}", socket.display()), with_token()),
        (format!("grist+unix://{}?set=train", socket.display()), with_token()),
        (url(&tls), ca.clone()),
        (format!("grists://localhost:{}", tls.tcp().unwrap().port()), ca),
    ] {
        let client = Client::connect(&url, options).unwrap();
        check(&client, &sizes, &all);
        check(&client, &sizes, &[306, 306, 0, 306, 5]);
        let welcome = client.welcome().unwrap();
        assert_eq!((welcome.samples, welcome.name.as_str()), (sizes.len() as u32, "train"), "{url}");
    }
    let plain_to_tls = ClientOptions { connect_ms_max: 2_000, ..with_token() };
    assert!(Client::connect(&url(&tls), plain_to_tls).is_err());
    assert!(Client::connect(&format!("grists://{}", tls.tcp().unwrap()), with_token()).is_err());
    drop(plain);
    assert!(!socket.exists(), "the socket is removed");
}

#[test]
fn single_asks_from_many_threads_share_messages_and_a_connection() {
    let sizes = vec![100; 400];
    let server = start(options(), node(&sizes, 2));
    let client = connect(&server);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (client, sizes) = (client.clone(), &sizes);
            scope.spawn(move || {
                let wanted: Vec<u32> = (0..100).map(|n| n * 4 + thread).collect();
                let fetches = wanted.iter().map(|&id| {
                    let client = client.clone();
                    async move { client.fetch(&asks([id])).await.unwrap().remove(0).unwrap() }
                });
                for (served, &id) in block_on(futures::future::join_all(fetches)).iter().zip(&wanted) {
                    assert!(served.bytes == content(id, sizes[id as usize]));
                }
            });
        }
    });
    let (counts, report) = (client.counts(), server.report());
    assert_eq!((counts.samples, counts.connects, report.samples), (400, 1, 400));
    assert!(counts.messages < 200, "asks that wait together go together: {} messages", counts.messages);
}

#[test]
fn each_ask_has_its_own_error() {
    let server = start(options(), node(&[10, 20], 0));
    let client = connect(&server);
    for peer in [false, true] {
        let ids = [1, 2, 0, u32::MAX];
        let came = if peer {
            block_on(client.fetch_for_peer(&ids.map(SampleId))).unwrap()
        } else {
            block_on(client.fetch(&asks(ids))).unwrap()
        };
        let words: Vec<String> =
            came.iter().map(|one| one.as_ref().map_or_else(ToString::to_string, |_| "ok".into())).collect();
        assert_eq!(words[0], "ok");
        assert_eq!(words[2], "ok");
        assert!(words[1].contains("no sample 2") && words[3].contains("no sample 4294967295"), "{words:?}");
        assert_eq!(came[1].as_ref().unwrap_err().kind(), Kind::Config);
    }
    assert!(block_on(client.fetch(&[])).unwrap().is_empty());
    check(&client, &[10, 20], &[0, 1]);
}

#[test]
fn a_catalog_is_brought_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let node = node(&vec![5; 30_000], 0);
    let server = start(options(), node.clone());
    let client = connect(&server);
    let path = block_on(client.catalog(&folder.path().join("new"))).unwrap();
    let catalog = Catalog::open(&path).unwrap();
    catalog.verify().unwrap();
    assert_eq!((catalog.digest(), catalog.len()), (node.set().catalog().digest(), 30_000));
    // A damaged one is fetched again; a good one is not.
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(block_on(client.catalog(&folder.path().join("new"))).unwrap(), path);
    Catalog::open(&path).unwrap().verify().unwrap();
    drop(server);
    assert_eq!(block_on(client.catalog(&folder.path().join("new"))).unwrap(), path, "without the node");
}

#[test]
fn plans_standings_and_reports_cross_the_wire() {
    let server = start(options(), node(&vec![5; 70_000], 0));
    let client = connect(&server);
    block_on(client.announce(3, true, (0..70_000).rev().collect::<Vec<u32>>())).unwrap();
    block_on(client.announce(4, false, vec![1, 2, 2])).unwrap();
    let error = block_on(client.announce(5, false, vec![1, 70_000])).unwrap_err();
    assert!(error.to_string().contains("no sample 70000"), "{error}");
    let error = block_on(client.announce(5, false, vec![0; 300_000])).unwrap_err();
    assert!(error.to_string().contains("longer than the data set"), "{error}");
    let standing = |id| Standing { id: SampleId(id), score: 0.5, wanted: 1.0 };
    block_on(client.stand(&[standing(0), standing(69_999)])).unwrap();
    let error = block_on(client.stand(&[standing(70_000)])).unwrap_err();
    assert!(error.to_string().contains("no sample 70000"), "{error}");
    block_on(client.ping()).unwrap();
    let report = block_on(client.report()).unwrap();
    assert_eq!(report["sets"][0]["name"], "train");
    assert_eq!(report["sets"][0]["node"]["samples"], 70_000);
    assert_eq!(report["connections"], 1);
    assert!(client.is_up(), "an error about a request is not one about the node");
}

#[test]
fn several_data_sets_have_names() {
    let hosted = ["a", "b"].map(|name| Hosted { name: name.into(), node: node(&[name.len(), 7], 0) });
    let server = Server::start(options(), None, hosted.to_vec()).unwrap();
    let at = server.tcp().unwrap();
    let client = |name: &str| Client::connect(&format!("grist://{at}/{name}"), ClientOptions::default());
    check(&client("a").unwrap(), &[1, 7], &[0, 1]);
    check(&client("b").unwrap(), &[1, 7], &[1]);
    for name in ["c", ""] {
        let error = client(name).unwrap_err();
        assert!(
            error.to_string().contains("no data set") && error.remedy() == Some("it has a, b"),
            "{error}"
        );
    }
    let twice = Server::start(options(), None, vec![hosted[0].clone(), hosted[0].clone()]).unwrap_err();
    assert!(twice.to_string().contains("two data sets"), "{twice}");
}

#[test]
fn a_link_with_latency_keeps_everybody_waiting_and_nobody_in_turn() {
    let sizes = sizes();
    let server = start(options(), node(&sizes, 0));
    let far = ClientOptions { throttle_latency_ms: 80, ..with_token() };
    let client = Client::connect(&url(&server), far).unwrap();
    let start = Instant::now();
    check(&client, &sizes, &[3]);
    assert!(start.elapsed() >= Duration::from_millis(80), "{:?}", start.elapsed());
    // Twenty that are asked for together are under way together: one after the other they would take 1.6 s.
    let start = Instant::now();
    let all: Vec<Vec<Ask>> = (0..20).map(|id| asks([id])).collect();
    let came = block_on(futures::future::join_all(all.iter().map(|asks| client.fetch(asks))));
    assert!(came.iter().all(|one| one.as_ref().is_ok_and(|served| served[0].is_ok())));
    assert!((80..800).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}
