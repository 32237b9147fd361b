//! A node behind TCP and Unix sockets.
//!
//! [`Server::start`] opens the sockets, or says in one sentence why not, and then serves on a runtime of its own until
//! it is drained or dropped. Each connection is one task that reads requests, asks the node, and writes answers in
//! whatever order they are ready. A request that the node can answer at once never leaves that task.
//!
//! Nothing grows with what a client does or leaves undone: connections, requests and bytes in flight, the length of
//! messages, and the time for a handshake, a message, a write and a rest all have limits. Memory for samples is booked
//! before they are read, per connection and in all, and given back when they are written, so a client that does not
//! read its answers stops being served, and is cut off when it keeps that up.
//!
//! A client may hand over its recipe and then ask for samples that have come some way through it: `ops` is the pool that
//! runs those ops, `staged` has them run.
//!
//! Deliberately not here: caching (the node's) and who may see which data set: one token opens all.

mod connection;
mod gate;
mod http;
mod listen;
pub(crate) mod metrics;
mod ops;
mod options;
mod outgoing;
mod pixels;
mod requests;
mod staged;

pub use ops::{OpsReport, StageCount};
pub use options::ServeOptions;
pub(crate) use options::{CORES_LEAST, CORES_MAX};

use crate::node::{Node, NodeReport};
use crate::token::Token;
use crate::{Error, Kind, Result};
use gate::Gate;
use listen::Listeners;
use ops::Ops;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// A node and the name under which it is served.
#[derive(Debug, Clone)]
pub struct Hosted {
    /// The last part of the URL.
    pub name: String,
    /// What serves it.
    pub node: Arc<Node>,
}

/// What all connections share.
#[derive(Debug)]
struct State {
    options: ServeOptions,
    hosted: Vec<Hosted>,
    token: Option<Token>,
    gate: Gate,
    /// Bytes of answers that may be in memory, of all connections.
    budget: Arc<Semaphore>,
    /// Bytes of lanes. Not of the budget: what waits for that waits for answers to be written, and a lane stays.
    lanes: Arc<Semaphore>,
    /// The part of the budget that may wait for ops, so that raw samples never do.
    staged: Arc<Semaphore>,
    draining: watch::Sender<bool>,
    /// Runs the first ops of recipes.
    ops: Ops,
    counts: Counts,
    started: Instant,
}

/// What was done so far.
#[derive(Debug, Default)]
struct Counts {
    refused: AtomicU64,
    messages: AtomicU64,
    samples: AtomicU64,
    bytes: AtomicU64,
    lane_bytes: AtomicU64,
    cut_off: AtomicU64,
}

/// What a server did since it started, and its nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerReport {
    /// The version of the program.
    pub version: String,
    /// How long it has been up.
    pub up_s: f64,
    /// Connections that are open.
    pub connections: u64,
    /// The limit on them.
    pub connections_max: u64,
    /// Handshakes that were refused, for whatever reason.
    pub refused: u64,
    /// Connections that were cut off: silent, slow or not making sense.
    pub cut_off: u64,
    /// Fetch messages.
    pub messages: u64,
    /// Samples sent.
    pub samples: u64,
    /// Bytes of samples sent.
    pub bytes: u64,
    /// Those of them that went through memory shared with a client.
    pub lane_bytes: u64,
    /// Bytes of answers in memory.
    pub bytes_in_flight: u64,
    /// The limit on them.
    pub bytes_in_flight_max: u64,
    /// Whether it is shutting down.
    pub draining: bool,
    /// Ops that ran here for clients.
    pub ops: OpsReport,
    /// Each data set.
    pub sets: Vec<SetReport>,
}

/// One data set as reports show it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetReport {
    /// Its name.
    pub name: String,
    /// Its digest.
    pub digest: String,
    /// What its node did.
    pub node: NodeReport,
    /// Requests that needed no read from the store, as a share.
    pub hit_ratio: f64,
}

impl State {
    fn report(&self) -> ServerReport {
        let limit = self.options.bytes_in_flight_max;
        ServerReport {
            version: env!("CARGO_PKG_VERSION").to_string(),
            up_s: self.started.elapsed().as_secs_f64(),
            connections: self.gate.open(),
            connections_max: self.options.connections_max,
            refused: self.counts.refused.load(Relaxed),
            cut_off: self.counts.cut_off.load(Relaxed) + self.gate.evicted(),
            messages: self.counts.messages.load(Relaxed),
            samples: self.counts.samples.load(Relaxed),
            bytes: self.counts.bytes.load(Relaxed),
            lane_bytes: self.counts.lane_bytes.load(Relaxed),
            bytes_in_flight: limit.saturating_sub(self.budget.available_permits() as u64),
            bytes_in_flight_max: limit,
            draining: *self.draining.borrow(),
            ops: self.ops.report(),
            sets: self.hosted.iter().map(SetReport::new).collect(),
        }
    }
}

impl SetReport {
    fn new(hosted: &Hosted) -> SetReport {
        let node = hosted.node.report();
        let digest = hosted.node.set().catalog().digest().to_string();
        SetReport { name: hosted.name.clone(), digest, hit_ratio: node.hit_ratio(), node }
    }
}

/// A running server; dropping it ends it at once.
#[derive(Debug)]
pub struct Server {
    runtime: Option<Runtime>,
    state: Arc<State>,
    tcp: Option<SocketAddr>,
    http: Option<SocketAddr>,
    unix: Option<PathBuf>,
}

impl Server {
    /// Opens the sockets and serves.
    pub fn start(options: ServeOptions, token: Option<Token>, hosted: Vec<Hosted>) -> Result<Server> {
        options.check(&hosted)?;
        listen::allow_files(options.connections_max)?;
        let tls = listen::tls(&options)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("grist-serve")
            .worker_threads(threads(options.threads))
            .enable_all()
            .build()
            .map_err(|e| Error::io("start", "an I/O runtime", e))?;
        let listeners = runtime.block_on(Listeners::open(&options, token.is_some()))?;
        let samples = hosted.iter().map(|hosted| u64::from(hosted.node.set().catalog().len())).sum();
        let state = Arc::new(State {
            gate: Gate::new(options.connections_max),
            budget: Arc::new(Semaphore::new(options.bytes_in_flight_max as usize)),
            lanes: Arc::new(Semaphore::new(options.lanes_bytes_max as usize)),
            staged: Arc::new(Semaphore::new(options.staged_bytes_max() as usize)),
            hosted,
            token,
            draining: watch::Sender::new(false),
            ops: Ops::start(&options, samples)?,
            counts: Counts::default(),
            started: Instant::now(),
            options,
        });
        let (tcp, http) = (listeners.tcp_address(), listeners.http_address());
        let unix = listeners.unix_path();
        runtime.block_on(async { listeners.serve(&state, tls) });
        Ok(Server { runtime: Some(runtime), state, tcp, http, unix })
    }

    /// Where it listens for TCP; the port is the real one if 0 was asked for.
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Where it listens for HTTP.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The Unix socket.
    pub fn unix(&self) -> Option<&PathBuf> {
        self.unix.as_ref()
    }

    /// What it did so far.
    pub fn report(&self) -> ServerReport {
        self.state.report()
    }

    /// A flag that becomes true when the process is asked to end (SIGTERM), instead of the process ending.
    pub fn terminated(&self) -> Result<Arc<AtomicBool>> {
        use tokio::signal::unix::{SignalKind, signal};
        let flag = Arc::new(AtomicBool::new(false));
        let Some(runtime) = &self.runtime else { return Ok(flag) };
        let _entered = runtime.enter();
        let mut asked = signal(SignalKind::terminate()).map_err(|e| Error::io("listen for", "SIGTERM", e))?;
        let told = flag.clone();
        runtime.spawn(async move {
            asked.recv().await;
            told.store(true, Relaxed);
        });
        Ok(flag)
    }

    /// Stops accepting, finishes what is in flight within `drain_ms_max`, and ends. An error says what was cut off.
    pub fn drain(mut self) -> Result<()> {
        let limit = Duration::from_millis(self.state.options.drain_ms_max);
        self.state.draining.send_replace(true);
        let Some(runtime) = self.runtime.take() else { return Ok(()) };
        let drained = runtime.block_on(async { tokio::time::timeout(limit, self.state.gate.empty()).await });
        let left = self.state.gate.open();
        runtime.shutdown_timeout(Duration::from_millis(100));
        if drained.is_ok() {
            return Ok(());
        }
        let ms = self.state.options.drain_ms_max;
        Err(Error::new(Kind::Stopped, format!("{left} connections were cut off: not done within {ms} ms"))
            .hint("raise serve.drain_ms_max"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Waited for, so that the port is free when this returns.
            runtime.shutdown_timeout(Duration::from_millis(500));
        }
        if let Some(path) = &self.unix {
            // Somebody may have removed it before.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn threads(asked: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if asked == 0 { (cores / 2).clamp(1, 8) } else { asked }
}

/// TLS if there is a certificate.
type Tls = Option<TlsAcceptor>;
