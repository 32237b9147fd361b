//! The page behind a loopback socket.
//!
//! Only GET and HEAD, only for those who ask for this machine by a name of its own: a script of another site whose name
//! was made to point here (DNS rebinding) sends that site's name and is refused. Connections, requests and answers are
//! bounded; a browser that goes away or stalls costs one connection until its time is over. The page has a runtime of
//! its own with one thread, so that it takes no turn from the loader's.

use super::samples::{self, Kind};
use super::{Shared, document, lock, metrics};
use crate::page::pictures::drawn;
use crate::{Error, Result, serve};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections that may be open; more wait.
const CONNECTIONS_MAX: usize = 32;
/// How long one may stay; browsers open the next by themselves.
const CONNECTION_LIMIT: Duration = Duration::from_mins(1);
/// How long a request may take to arrive.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// The longest request.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// How long to wait when the system has no room for one more connection.
const FULL_PAUSE: Duration = Duration::from_millis(50);
/// Threads for pictures and rankings.
const BLOCKING_THREADS: usize = 4;

/// A page that is shown; dropping it ends that.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Listening {
    /// Where it is; the port is the real one if 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same for a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_millis(200));
        }
    }
}

/// Listens at `address`, which is a loopback one.
pub(super) fn serve(shared: &Arc<Shared>, address: SocketAddr) -> Result<Listening> {
    let failed = |e| {
        Error::io("show the page on", address, e)
            .hint("is another run using it? --page=127.0.0.1:0 takes any free port")
    };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("grist-page")
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(|e| Error::io("start", "an I/O runtime", e))?;
    let entered = runtime.enter();
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    drop(entered);
    runtime.spawn(accept(listener, Arc::clone(shared)));
    Ok(Listening { address, runtime: Some(runtime) })
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(FULL_PAUSE).await;
            continue;
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(respond(&request, &shared).await) }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(REQUEST_LIMIT).max_buf_size(REQUEST_BYTES_MAX);
            // One that fails or takes too long is the browser's loss only.
            let _ = timeout(CONNECTION_LIMIT, http.serve_connection(TokioIo::new(stream), service)).await;
            drop(slot);
        });
    }
}

async fn respond(request: &Request<Incoming>, shared: &Arc<Shared>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    if !asked_for_this_machine(request.headers()) {
        return plain(StatusCode::MISDIRECTED_REQUEST, "this page answers to localhost and 127.0.0.1 only");
    }
    let path = request.uri().path();
    let elsewhere = request.headers().get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if elsewhere && path != "/" {
        return plain(StatusCode::FORBIDDEN, "another site's page may not ask for this");
    }
    let query = Query(request.uri().query().unwrap_or(""));
    match path {
        "/" => answer(StatusCode::OK, "text/html; charset=utf-8", document::LIVE.as_str().into()),
        "/api/state" => {
            let same = query.get("boot").is_none_or(|boot| boot == shared.facts.boot);
            let seen = if same { query.number("after").unwrap_or(0) } else { 0 };
            let news = document::state(shared, seen);
            let told = news.as_ref().and_then(|news| news["change"].as_u64()).unwrap_or(seen);
            *lock(&shared.asked) = (Some(Instant::now()), told);
            match news {
                Some(state) => json(&state),
                None => answer(StatusCode::NO_CONTENT, "application/json", Bytes::new()),
            }
        }
        "/api/samples" => {
            let Some(kind) = query.get("kind").and_then(Kind::named) else {
                return plain(StatusCode::BAD_REQUEST, "kind is hardest, skipped, families or stand-ins");
            };
            let from = query.number("from").unwrap_or(0).min(1 << 20) as usize;
            let count = query.number("n").unwrap_or(24).min(samples::WINDOW_MAX as u64) as usize;
            let shared = Arc::clone(shared);
            // A ranking is a pass over all samples.
            let made = tokio::task::spawn_blocking(move || samples::window(&shared, kind, from, count)).await;
            made.map_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "that failed"), |made| json(&made))
        }
        "/metrics" => {
            let run = {
                let state = lock(&shared.state);
                let (report, epochs) = state.last();
                metrics::text(report, epochs)
            };
            let text = lock(&shared.server).as_ref().map_or(run, serve::metrics::text);
            answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text.into())
        }
        _ => match path.strip_prefix("/thumb/") {
            Some(id) => picture(shared, id).await,
            None => plain(StatusCode::NOT_FOUND, "there is nothing here"),
        },
    }
}

/// The picture of a sample; a drawing says why there is none.
async fn picture(shared: &Arc<Shared>, id: &str) -> Response<Full<Bytes>> {
    let id = id.parse().ok().filter(|id| *id < shared.facts.samples);
    let (status, picture) = match id {
        Some(id) => (StatusCode::OK, shared.pictures.of(&shared.set, id).await),
        None => (StatusCode::NOT_FOUND, drawn("there is no such sample")),
    };
    let mut response = answer(status, picture.media_type, picture.bytes);
    if picture.media_type != "image/svg+xml" {
        let kept = HeaderValue::from_static("private, max-age=3600");
        response.headers_mut().insert(header::CACHE_CONTROL, kept);
    }
    response
}

/// Whether the browser was told a name of this machine. The port may be another: tunnels change it.
fn asked_for_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let local = name.eq_ignore_ascii_case("localhost");
    local || name.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    answer(status, "text/plain; charset=utf-8", format!("{text}\n").into())
}

fn json(value: &serde_json::Value) -> Response<Full<Bytes>> {
    answer(StatusCode::OK, "application/json", value.to_string().into())
}

fn answer(status: StatusCode, media_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let fixed: [(HeaderName, &'static str); 6] = [
        (header::CONTENT_TYPE, media_type),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(policy) = HeaderValue::from_str(&document::POLICY) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// What stands after the question mark. Values are numbers and plain words, so nothing is decoded.
struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, v)| v)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        let ours =
            ["localhost", "LOCALHOST:80", "127.0.0.1:7078", "127.9.9.9", "[::1]:7078", "[::ffff:127.0.0.1]"];
        let others = [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7078",
            "10.0.0.1",
            "[::2]",
            "[",
        ];
        for (hosts, local) in [(&ours[..], true), (&others[..], false)] {
            for host in hosts {
                let mut headers = HeaderMap::new();
                headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
                assert_eq!(asked_for_this_machine(&headers), local, "{host}");
                headers.append(header::HOST, HeaderValue::from_static("localhost"));
                assert!(!asked_for_this_machine(&headers), "two names");
            }
        }
        assert!(!asked_for_this_machine(&HeaderMap::new()));
    }

    #[test]
    fn queries_are_read_without_trust() {
        let query = Query("kind=hardest&from=7&n=-1&n=9&x&=&after=99999999999999999999999");
        assert_eq!((query.get("kind"), query.number("from")), (Some("hardest"), Some(7)));
        assert_eq!((query.number("n"), query.number("after"), query.get("x")), (None, None, None));
    }
}
