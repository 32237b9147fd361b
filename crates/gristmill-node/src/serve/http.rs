//! `/metrics` for Prometheus and `/healthz` for whoever watches over processes.
//!
//! Where others can reach it, `/metrics` wants the token as `Authorization: Bearer`. `/healthz` says one word to anybody.

use super::listen::FULL_PAUSE;
use super::{State, Tls, metrics};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections that may be open; more wait.
const CONNECTIONS_MAX: usize = 64;
/// How long one may stay: a scrape takes milliseconds.
const CONNECTION_LIMIT: Duration = Duration::from_secs(30);
/// How long a request may take to arrive.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// The longest request.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// Answers until the server ends. While it drains it still answers, so that others see it.
pub(super) async fn serve(listener: TcpListener, state: Arc<State>, tls: Tls) {
    let open = listener.local_addr().is_ok_and(|at| at.ip().to_canonical().is_loopback());
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(FULL_PAUSE).await;
            continue;
        };
        let (state, tls) = (state.clone(), tls.clone());
        tokio::spawn(async move {
            // One that fails or takes too long is the other side's loss only.
            let _ = timeout(CONNECTION_LIMIT, async {
                match tls {
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            connection(stream, state, open).await;
                        }
                    }
                    None => connection(stream, state, open).await,
                }
            })
            .await;
            drop(slot);
        });
    }
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin>(stream: S, state: Arc<State>, open: bool) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(&request, &state, open);
        async { Ok::<_, Infallible>(response) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST_LIMIT).max_buf_size(REQUEST_BYTES_MAX);
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

fn respond(request: &Request<Incoming>, state: &State, open: bool) -> Response<Full<Bytes>> {
    let plain = |status: StatusCode, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".into());
    }
    match request.uri().path() {
        "/healthz" if *state.draining.borrow() => plain(StatusCode::SERVICE_UNAVAILABLE, "draining\n".into()),
        "/healthz" => plain(StatusCode::OK, "ok\n".into()),
        "/metrics" => {
            let shown = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
            let shown = shown.and_then(|value| value.strip_prefix("Bearer "));
            let known = state.token.as_ref().is_some_and(|token| shown.is_some_and(|text| token.is(text)));
            if !open && !known {
                return plain(StatusCode::UNAUTHORIZED, "the token is missing or wrong\n".into());
            }
            plain(StatusCode::OK, metrics::text(&state.report()))
        }
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".into()),
    }
}
