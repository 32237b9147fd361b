//! The page over real sockets: what it shows, whom it answers, and that nothing it meets stops anything.

use gristmill_core::family::Families;
use gristmill_core::plan::Shape;
use gristmill_node::Kind;
use gristmill_node::catalog::{self, BuildOptions, Source};
use gristmill_node::config::Config;
use gristmill_node::dataset::DataSet;
use gristmill_node::loader::{Loader, LoaderOptions};
use gristmill_node::page::{Decision, Listening, Outcome, Page, PageOptions, Progress};
use gristmill_node::report::EpochReport;
use gristmill_node::store::{LocalStore, Store};
use gristmill_testdata::cut_photos;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PHOTOS: u32 = 24;

/// A folder of pictures, the first of which is spoiled, in classes with awkward names.
fn data(folder: &Path) -> Arc<DataSet> {
    cut_photos(folder, PHOTOS, 3).unwrap();
    let mut classes: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    classes.sort();
    let mut files: Vec<_> = fs::read_dir(&classes[0]).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut bytes = fs::read(&files[0]).unwrap();
    bytes.truncate(bytes.len() / 3);
    fs::write(&files[0], bytes).unwrap();
    fs::rename(&classes[0], folder.join("<script>alert(1)<&amp>")).unwrap();
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder).unwrap());
    let source = Source { root_url: store.url(), store: store.clone(), object: None, kind: None };
    let draft =
        catalog::build(&source, &BuildOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    Arc::new(DataSet::new(Arc::new(draft.into_catalog().unwrap()), store, 0, &|| false).unwrap())
}

struct Shown {
    page: Page,
    at: Listening,
    set: Arc<DataSet>,
    _folder: tempfile::TempDir,
}

fn shown() -> Shown {
    let folder = tempfile::tempdir().unwrap();
    let set = data(folder.path());
    let settings = vec![("selection.kind".to_string(), "bucket".to_string())];
    let page = Page::new(set.clone(), &PageOptions::default(), 1 << 26, settings).unwrap();
    let at = page.serve("127.0.0.1:0").unwrap();
    Shown { page, at, set, _folder: folder }
}

/// Reads an epoch of all samples but the last few, as a training would, and tells the page.
fn train(shown: &Shown, epoch: u64) {
    let config = Config::load(None, &[("loader.threads".into(), "1".into())]).unwrap();
    let options = LoaderOptions { shape: Shape::single(8), ..config.settings().loader() };
    let loader = Loader::new(shown.set.clone(), None, options).unwrap();
    let mut running = loader.epoch(epoch, 0).unwrap();
    shown.page.began(&running);
    for batch in running.by_ref() {
        let batch = batch.unwrap();
        let losses: Vec<f32> = batch.ids.iter().map(|id| *id as f32 / 10.0 + epoch as f32).collect();
        shown.page.learned(&batch.ids, &losses);
        shown.page.live(&Progress { epoch, epochs: 3, ..Progress::default() }, &EpochReport::default());
    }
    shown.page.epoch(&running.report(), &Outcome { accuracy: Some(0.5), ..Outcome::default() });
}

/// Sends a request as it is and reads the answer to its end: the head, and the body.
fn raw(at: SocketAddr, request: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // One that is refused early may be cut off.
    let _ = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    let body = answer.split_off(end);
    (String::from_utf8(answer).unwrap().to_ascii_lowercase(), body)
}

fn get(at: SocketAddr, path: &str) -> (String, Vec<u8>) {
    raw(at, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

fn json(at: SocketAddr, path: &str) -> Value {
    let (head, body) = get(at, path);
    assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn a_run_is_shown_as_it_goes() {
    let shown = shown();
    let at = shown.at.address();
    let (head, body) = get(at, "/");
    assert!(head.starts_with("http/1.1 200") && head.contains("text/html"), "{head}");
    assert!(body.starts_with(b"<!doctype html>"));
    for header in
        ["content-security-policy: default-src 'none'; script-src 'sha256-", "nosniff", "no-referrer", "deny"]
    {
        assert!(head.contains(header), "{header} is missing in {head}");
    }
    let first = json(at, "/api/state");
    assert_eq!((&first["facts"]["samples"], &first["epochs"]), (&PHOTOS.into(), &Value::Array(Vec::new())));
    let (change, boot) = (&first["change"], first["facts"]["boot"].as_str().unwrap());
    let (head, body) = get(at, &format!("/api/state?after={change}&boot={boot}"));
    assert!(head.starts_with("http/1.1 204") && body.is_empty(), "nothing changed: {head}");
    train(&shown, 0);
    train(&shown, 1);
    shown.page.decided(&Decision { epoch: 1, knob: "split".into(), ..Decision::default() });
    let news = json(at, &format!("/api/state?after={change}&boot={boot}"));
    assert_eq!(news["epochs"].as_array().unwrap().len(), 2);
    assert_eq!((&news["epochs"][1]["outcome"]["accuracy"], &news["of"]), (&0.5.into(), &3.into()));
    assert_eq!(news["decisions"][0]["knob"], "split");
    // Another page was at this address before: everything is sent.
    assert_eq!(json(at, &format!("/api/state?after={}&boot=other", news["change"]))["whole"], true);
    let hardest = json(at, "/api/samples?kind=hardest&n=5");
    assert_eq!(hardest["items"][0]["id"], PHOTOS - 1);
    assert_eq!(hardest["items"][0]["scores"].as_array().unwrap().len(), 2);
    assert_eq!((hardest["items"].as_array().unwrap().len(), &hardest["total"]), (5, &PHOTOS.into()));
    assert!(json(at, "/api/samples?kind=hardest&from=20&n=100")["items"].as_array().unwrap().len() == 4);
    assert_eq!(json(at, "/api/samples?kind=skipped")["total"], 0);
    let (_, metrics) = get(at, "/metrics");
    assert!(String::from_utf8(metrics).unwrap().contains("gristmill_run_epochs_total 2"));
}

#[test]
fn pictures_come_and_a_spoiled_one_says_why() {
    let shown = shown();
    let at = shown.at.address();
    let id = |part: &str| {
        let name =
            |id: u32| shown.set.catalog().locate(gristmill_core::SampleId(id)).unwrap().name.to_string();
        (0..PHOTOS).filter(|id| name(*id).contains(part)).collect::<Vec<u32>>()
    };
    let spoiled = id("script")[0];
    let (head, body) = get(at, &format!("/thumb/{spoiled}"));
    let body = String::from_utf8(body).unwrap();
    assert!(head.starts_with("http/1.1 200") && head.contains("image/svg+xml"), "{head}");
    assert!(body.starts_with("<svg") && !body.contains("<script"), "{body}");
    let (head, body) = get(at, &format!("/thumb/{}", spoiled + 1));
    assert!(head.contains("content-type: image/") && !head.contains("svg"), "{head}");
    assert!(body.starts_with(&[0xff, 0xd8]) || body.starts_with(b"\x89PNG"));
    assert!(body.len() < 200_000 && head.contains("max-age"));
    for missing in ["/thumb/24", "/thumb/-1", "/thumb/", "/thumb/1/..", "/thumb/99999999999"] {
        assert!(get(at, missing).0.starts_with("http/1.1 404"), "{missing}");
    }
}

#[test]
fn whoever_is_not_a_browser_of_this_machine_is_refused() {
    let shown = shown();
    let at = shown.at.address();
    let ask = |line: &str, headers: &str| {
        raw(at, &format!("{line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n")).0
    };
    for (line, headers, status) in [
        ("GET /", "Host: evil.example\r\n", "421"),
        ("GET /api/state", "Host: evil.example:7078\r\n", "421"),
        ("GET /api/state", "", "421"),
        ("GET /api/state", "Host: localhost\r\nHost: localhost\r\n", "421"),
        ("GET /api/samples?kind=hardest", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", "403"),
        ("POST /api/state", "Host: localhost\r\nContent-Length: 0\r\n", "405"),
        ("DELETE /", "Host: localhost\r\n", "405"),
        ("HEAD /", "Host: localhost\r\n", "200"),
        ("GET /../../etc/passwd", "Host: localhost\r\n", "404"),
        ("GET /thumb/..%2f..%2fetc%2fpasswd", "Host: localhost\r\n", "404"),
        ("GET //api/state", "Host: localhost\r\n", "404"),
        ("GET /api/samples", "Host: localhost\r\n", "400"),
        ("GET /api/samples?kind=%00", "Host: localhost\r\n", "400"),
        ("GET /api/samples?kind=families&from=99999999999999999999&n=-5", "Host: localhost\r\n", "200"),
        ("GET /api/state?after=18446744073709551615", "Host: localhost\r\n", "200"),
    ] {
        let head = ask(line, headers);
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{line} {headers}: {head}");
        assert!(head.contains("nosniff") && head.contains("default-src 'none'"), "{head}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(100_000));
    assert!(!raw(at, &long).0.starts_with("http/1.1 200"));
    raw(at, "\0\0\0\0garbage\r\n\r\n");
    assert!(get(at, "/").0.starts_with("http/1.1 200"), "it goes on after all of that");
}

#[test]
fn browsers_that_go_away_hold_nothing_up() {
    let shown = shown();
    let at = shown.at.address();
    for i in 0..100_u32 {
        let mut stream = TcpStream::connect(at).unwrap();
        // Not a word, half a request, or a request whose answer nobody reads.
        let words = ["", "GET /api/sta", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"][i as usize % 3];
        stream.write_all(words.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }
    train(&shown, 0);
    assert!(get(at, "/api/state").0.starts_with("http/1.1 200"));
}

#[test]
fn a_taken_port_and_an_open_one_are_said() {
    let shown = shown();
    let taken = shown.page.serve(&shown.at.address().to_string()).unwrap_err();
    assert!(taken.kind() != Kind::Config && taken.to_string().contains("127.0.0.1"), "{taken}");
    assert!(taken.remedy().unwrap().contains("--page"), "{taken}");
    for open in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let refused = shown.page.serve(open).unwrap_err();
        assert!(refused.kind() == Kind::Config && refused.remedy().unwrap().contains("ssh -L"), "{refused}");
    }
    for unclear in ["", "7078", "no such name:1", "127.0.0.1:99999"] {
        assert_eq!(shown.page.serve(unclear).unwrap_err().kind(), Kind::Config, "{unclear}");
    }
    let address = shown.at.address();
    drop(shown.at);
    assert!(TcpStream::connect(address).is_err(), "the port is free again");
}

#[test]
fn the_saved_page_has_everything_in_it() {
    let shown = shown();
    train(&shown, 0);
    shown.page.families(&Families::group(&[1, 1, 1, 9 << 40], &[0; 4], 2, false).unwrap());
    shown.page.ended();
    let html = shown.page.html().unwrap();
    assert!(!html.contains("<script>alert") && html.contains("\\u003cscript>alert(1)"));
    let data = html.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&data["state"]["ended"], &data["state"]["epochs"][0]["report"]["samples"]),
        (&true.into(), &PHOTOS.into())
    );
    assert_eq!(data["samples"]["hardest"]["items"].as_array().unwrap().len(), PHOTOS as usize);
    assert_eq!(data["samples"]["families"]["items"][0]["members"].as_array().unwrap().len(), 3);
    let pictures = data["pictures"].as_object().unwrap();
    assert_eq!(pictures.len(), PHOTOS as usize);
    assert!(pictures.values().all(|uri| uri.as_str().unwrap().starts_with("data:image/")));
}
