//! A small web server on a real socket, well-behaved and not.

use super::block_on;
use super::conformance::{Excused, check, write_objects};
use bytes::Bytes;
use futures::StreamExt;
use gristmill_node::Kind;
use gristmill_node::store::{RetryOptions, Store, StoreOptions, open};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::net::TcpListener;
use url::Url;

/// How the server behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    /// Ranges and listings.
    Good,
    /// Ranges, no listings.
    Plain,
    /// Always the whole file.
    NoRanges,
    /// Bodies lack the last byte of the range that they say they are; only the first few times.
    Short(usize),
    /// A body that breaks off in the middle of what its header promised; only the first few times.
    BreaksOff(usize),
    /// Answers with this status; only the first few times.
    Fails(u16, usize),
}

type Body = BoxBody<Bytes, std::io::Error>;

async fn serve(root: &Path, manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let root: Arc<Path> = root.into();
    let served = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            socket.set_nodelay(true).unwrap();
            let (root, served) = (root.clone(), served.clone());
            let service = hyper::service::service_fn(move |request| {
                let response = answer(&root, manner, served.fetch_add(1, Relaxed), &request);
                std::future::ready(Ok::<_, Infallible>(response))
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service),
            );
        }
    });
    address
}

fn body(parts: Vec<std::io::Result<Bytes>>) -> Body {
    BodyExt::boxed(StreamBody::new(futures::stream::iter(parts).map(|part| part.map(Frame::data))))
}

fn status(status: u16) -> Response<Body> {
    Response::builder().status(status).body(body(vec![])).unwrap()
}

/// The file that a request's path names, decoded as any web server does.
fn file(root: &Path, path: &str) -> PathBuf {
    Url::parse(&format!("file://{path}"))
        .unwrap()
        .to_file_path()
        .map(|p| root.join(p.strip_prefix("/").unwrap()))
        .unwrap()
}

fn answer(root: &Path, manner: Manner, nth: usize, request: &Request<Incoming>) -> Response<Body> {
    let path = file(root, request.uri().path());
    if let Manner::Fails(code, times) = manner
        && nth < times
    {
        return status(code);
    }
    match request.method().as_str() {
        "GET" | "HEAD" => {}
        "PROPFIND" if manner == Manner::Good => return listing(root, &path),
        _ => return status(405),
    }
    let Ok(bytes) = std::fs::read(&path) else { return status(404) };
    let whole = Bytes::from(bytes);
    let size = whole.len();
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_string());
    let range = header("range").filter(|_| manner != Manner::NoRanges).map(|range| {
        let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let (start, end) = (start.parse::<usize>().unwrap(), end.parse::<usize>().unwrap());
        start..size.min(end.saturating_add(1))
    });
    let builder = Response::builder().header("etag", format!("\"{size}\""));
    let builder = builder.header("last-modified", "Tue, 15 Nov 1994 12:45:26 GMT");
    if request.method() == "HEAD" {
        return builder.header("content-length", size).body(body(vec![])).unwrap();
    }
    let (builder, part) = match range {
        Some(range) if range.start >= size => return status(416),
        Some(range) => {
            let said = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            (builder.status(206).header("content-range", said), whole.slice(range))
        }
        None => (builder, whole),
    };
    let half = part.len() / 2;
    let lost = || std::io::Error::other("the line went dead");
    match manner {
        Manner::Short(times) if nth < times => {
            let builder = builder.header("content-length", part.len() - 1);
            builder.body(body(vec![Ok(part.slice(..half)), Ok(part.slice(half..part.len() - 1))])).unwrap()
        }
        Manner::BreaksOff(times) if nth < times => {
            let builder = builder.header("content-length", part.len());
            builder.body(body(vec![Ok(part.slice(..half)), Err(lost())])).unwrap()
        }
        _ => {
            let builder = builder.header("content-length", part.len());
            builder.body(body(vec![Ok(part.slice(..half)), Ok(part.slice(half..))])).unwrap()
        }
    }
}

fn listing(root: &Path, folder: &Path) -> Response<Body> {
    let mut xml = r#"<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">"#.to_string();
    let mut folders = vec![folder.to_path_buf()];
    if !folder.is_dir() {
        return status(404);
    }
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.metadata().unwrap();
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let mut href = Url::parse("http://host/").unwrap();
            let parts = path.strip_prefix(root).unwrap().iter().map(|part| part.to_str().unwrap());
            href.path_segments_mut().unwrap().extend(parts);
            let href = href.path().replace('&', "&amp;").replace('\'', "&apos;");
            let size = meta.len();
            write!(
                xml,
                "<D:response><D:href>{href}</D:href><D:propstat><D:prop>\
                 <D:getlastmodified>Tue, 15 Nov 1994 12:45:26 GMT</D:getlastmodified>\
                 <D:getcontentlength>{size}</D:getcontentlength><D:getetag>\"{size}\"</D:getetag>\
                 <D:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            )
            .unwrap();
        }
    }
    xml.push_str("</D:multistatus>");
    Response::builder().status(207).body(body(vec![Ok(xml.into())])).unwrap()
}

fn options() -> StoreOptions {
    let retry = RetryOptions { attempts_max: 3, backoff_ms: 1, ..RetryOptions::default() };
    StoreOptions { retry, ..StoreOptions::default() }
}

/// Runs `test` on a store below a served folder with the conformance suite's objects.
fn with_store(manner: Manner, test: impl AsyncFnOnce(Arc<dyn Store>)) {
    let dir = tempfile::tempdir().unwrap();
    write_objects(&dir.path().join("data set/50%"));
    block_on(async {
        let address = serve(dir.path(), manner).await;
        test(open(&format!("http://{address}/data%20set/50%25/"), &options()).unwrap()).await;
    });
}

#[test]
fn http_conforms() {
    with_store(Manner::Good, async |store| {
        check(store.as_ref(), Excused::Nothing).await;
        assert_eq!(store.retries(), 0, "nothing had to be read twice");
    });
    with_store(Manner::Plain, async |store| check(store.as_ref(), Excused::Listings).await);
}

#[test]
fn a_server_without_listings_says_what_to_do() {
    with_store(Manner::Plain, async |store| {
        let error = store.list("", &mut |_| Ok(())).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.to_string().contains("does not speak WebDAV"), "{error}");
        assert!(error.remedy().unwrap().contains("list file"), "{error:?}");
        assert_eq!(store.retries(), 0);
    });
    with_store(Manner::Fails(501, usize::MAX), async |store| {
        assert_eq!(store.list("", &mut |_| Ok(())).await.unwrap_err().kind(), Kind::Config);
    });
    with_store(Manner::Fails(503, usize::MAX), async |store| {
        assert_eq!(store.list("", &mut |_| Ok(())).await.unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(store.retries(), 2);
    });
}

#[test]
fn a_server_without_ranges_gives_whole_files_only() {
    with_store(Manner::NoRanges, async |store| {
        assert_eq!(store.read("a/x", 0..1_000).await.unwrap().len(), 1_000);
        let error = store.read("a/x", 10..20).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.to_string().contains("only be read as a whole"), "{error}");
        assert_eq!(store.read("a/x", 0..1_001).await.unwrap_err().kind(), Kind::Corrupt);
    });
}

#[test]
fn broken_answers_are_tried_again() {
    let manners: [fn(usize) -> Manner; 6] = [
        Manner::Short,
        Manner::BreaksOff,
        |times| Manner::Fails(500, times),
        |times| Manner::Fails(503, times),
        |times| Manner::Fails(429, times),
        |times| Manner::Fails(408, times),
    ];
    for manner in manners {
        with_store(manner(2), async |store| {
            let bytes = store.read("a/x", 0..1_000).await.unwrap_or_else(|e| panic!("{:?}: {e}", manner(2)));
            assert_eq!((bytes.len(), store.retries()), (1_000, 2), "{:?}", manner(2));
        });
        with_store(manner(3), async |store| {
            let error = store.read("a/x", 0..1_000).await.unwrap_err();
            assert_eq!(error.kind(), Kind::Unavailable, "{:?}", manner(3));
            assert!(error.to_string().contains("/a/x: "), "{error}");
            assert!(error.to_string().contains("gave up after 3 attempts"), "{error}");
        });
    }
}

#[test]
fn refusals_are_final() {
    for (code, kind) in [
        (401, Kind::Config),
        (403, Kind::Config),
        (404, Kind::NotFound),
        (400, Kind::Config),
        (410, Kind::NotFound),
    ] {
        with_store(Manner::Fails(code, usize::MAX), async |store| {
            let error = store.read("a/x", 0..1_000).await.unwrap_err();
            assert_eq!((error.kind(), store.retries()), (kind, 0), "{code}: {error}");
        });
    }
}
